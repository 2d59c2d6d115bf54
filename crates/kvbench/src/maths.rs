//! The few formulas behind the verdicts.

use serde::Serialize;

/// The 97.5 % quantile of the normal distribution: two-sided 95 % intervals.
const Z: f64 = 1.959_963_984_540_054;

/// The Wilson score interval of a rate of which `hits` of `trials` were seen, at 95 %. None without trials. Unlike the
/// textbook's normal interval it is honest at rates near 0, where a filter's rate lies.
pub(crate) fn wilson(hits: u64, trials: u64) -> Option<(f64, f64)> {
    if trials == 0 {
        return None;
    }
    let (n, rate) = (trials as f64, hits as f64 / trials as f64);
    let scale = 1.0 + Z * Z / n;
    let centre = (rate + Z * Z / (2.0 * n)) / scale;
    let half = Z / scale * (rate * (1.0 - rate) / n + Z * Z / (4.0 * n * n)).sqrt();
    Some(((centre - half).max(0.0), (centre + half).min(1.0)))
}

/// What the observed false-positive rate says about the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Ok,
    TooHigh,
    FewData,
    NoData,
}

impl Verdict {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::TooHigh => "too high",
            Verdict::FewData => "few data",
            Verdict::NoData => "no data",
        }
    }
}

/// Fewer expected false positives than this cannot clear a filter; they can still convict it.
const ENOUGH: f64 = 5.0;

/// Too high: the whole 95 % interval lies above the expected rate. Few data: not too high, but fewer than five false
/// positives were to be expected. No data: no filter was asked about an absent key.
pub(crate) fn verdict(hits: u64, trials: u64, expected: Option<f64>) -> Verdict {
    let (Some((low, _)), Some(expected)) = (wilson(hits, trials), expected) else {
        return Verdict::NoData;
    };
    if low > expected {
        Verdict::TooHigh
    } else if trials as f64 * expected < ENOUGH {
        Verdict::FewData
    } else {
        Verdict::Ok
    }
}

/// The middle of the values, or the mean of the two middle ones; 0 of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wilson_agrees_with_worked_examples() {
        // 10 of 100: 5.52 % to 17.44 %; 0 of 10: 0 to 27.75 % (published tables of the interval).
        let (low, high) = wilson(10, 100).unwrap();
        assert!((low - 0.0552).abs() < 5e-5 && (high - 0.1744).abs() < 5e-5, "{low} {high}");
        let (low, high) = wilson(0, 10).unwrap();
        assert!(low == 0.0 && (high - 0.2775).abs() < 5e-5, "{low} {high}");
        assert_eq!(wilson(0, 0), None);
    }

    #[test]
    fn wilson_stays_within_0_and_1() {
        let (low, high) = wilson(7, 7).unwrap();
        assert!(low > 0.6 && high <= 1.0);
    }

    #[test]
    fn verdicts_follow_the_interval() {
        assert_eq!(verdict(963, 100_000, Some(0.00963)), Verdict::Ok);
        assert_eq!(verdict(1_200, 100_000, Some(0.00963)), Verdict::TooHigh);
        assert_eq!(verdict(0, 100_000, Some(0.00963)), Verdict::Ok);
        assert_eq!(verdict(0, 0, Some(0.01)), Verdict::NoData);
        assert_eq!(verdict(0, 100, Some(0.01)), Verdict::FewData);
        assert_eq!(verdict(20, 100, Some(0.01)), Verdict::TooHigh);
        assert_eq!(verdict(5, 100, None), Verdict::NoData);
    }

    #[test]
    fn median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }
}
