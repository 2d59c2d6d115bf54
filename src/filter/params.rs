//! The mathematics of filter sizes: which false-positive rate a number of bits buys, and the other way round. Public, so
//! that experiments can compare what they measure with what was to be expected.
//!
//! Sizes are `u64` bits and rates are probabilities (1 % is 0.01). Bits per key may be fractions. Functions that take
//! bits per key answer 1 (no use at all) for zero and less.
//!
//! - Standard Bloom (1970): rate = (1 − e^(−k ÷ b))^k for b bits per key and k positions a key.
//! - Blocked Bloom (Putze, Sanders, Singler 2007), lines of B = 512 bits: a line holds Poisson(B ÷ b) keys, and a line
//!   with j of them says "maybe" to an absent key with probability (1 − (1 − 1 ÷ B)^(jk))^k. This takes the mean number
//!   of ones in such a line for all of them; the scatter around it makes the true rate greater, by 0.1 % of itself at 5
//!   bits per key, 1.2 % at 10 and 2.6 % at 16. The rate of a finished payload, which filter blocks carry, includes it.

use crate::filter::FilterKind;
use crate::filter::line::LINE_BITS;
use std::f64::consts::LN_2;

/// The most bits per key that options may ask for. More is taken for a mistake: a total given as "per key".
pub const MAX_BITS_PER_KEY: f64 = 64.0;

/// The most positions a key may have; the best k of no filter of up to [`MAX_BITS_PER_KEY`] is greater.
pub const MAX_PROBES: u32 = 64;

const BITS: f64 = LINE_BITS as f64;

/// Below this many bits per key every filter is taken to say "maybe" always.
const MIN_BITS_PER_KEY: f64 = 0.01;

/// The fewest bits per key that *any* filter with this false-positive rate must have: log2(1 ÷ rate).
pub fn lower_bound_bits_per_key(rate: f64) -> f64 {
    -rate.log2()
}

/// The bits of a filter of `keys` keys: rounded up, so at least the asked bits per key.
pub fn total_bits(keys: u64, bits_per_key: f64) -> u64 {
    (keys as f64 * bits_per_key).ceil() as u64
}

/// The textbook's bits of a standard Bloom filter for a rate, −n ln p ÷ (ln 2)², rounded up. It takes k for a real
/// number; [`bits_per_key_for_rate`] takes whole positions into account and needs slightly more.
pub fn bloom_bits_for_rate(keys: u64, rate: f64) -> u64 {
    (-(keys as f64) * rate.ln() / (LN_2 * LN_2)).ceil() as u64
}

/// The false-positive rate of a standard Bloom filter.
pub fn bloom_rate(bits_per_key: f64, k: u32) -> f64 {
    if bits_per_key.is_nan() || bits_per_key <= 0.0 {
        return 1.0;
    }
    power(-(-f64::from(k) / bits_per_key).exp_m1(), k)
}

/// The best number of positions for a standard Bloom filter: of the two whole numbers beside b ln 2 the one with the
/// smaller rate, which rounding would not always find.
pub fn bloom_best_k(bits_per_key: f64) -> u32 {
    let floor = ((bits_per_key * LN_2).floor() as u32).clamp(1, MAX_PROBES);
    let ceiling = (floor + 1).min(MAX_PROBES);
    if bloom_rate(bits_per_key, ceiling) < bloom_rate(bits_per_key, floor) { ceiling } else { floor }
}

/// The false-positive rate of a blocked Bloom filter of many lines.
pub fn blocked_rate(bits_per_key: f64, k: u32) -> f64 {
    if bits_per_key.is_nan() || bits_per_key < MIN_BITS_PER_KEY {
        return 1.0;
    }
    let mean = BITS / bits_per_key;
    mean_over_occupancy(mean, |j| mean / (j + 1.0), |j| line_rate(j, k))
}

/// The false-positive rate of a blocked Bloom filter of exactly `keys` keys in `lines` lines. A line then holds a
/// binomial number of keys, which matters below about 65,536 keys.
pub fn blocked_rate_of(keys: u64, lines: u64, k: u32) -> f64 {
    let n = keys as f64;
    if keys == 0 || lines == 0 {
        return 0.0;
    }
    if lines == 1 {
        return line_rate(n, k);
    }
    let odds = 1.0 / (lines as f64 - 1.0);
    mean_over_occupancy(n / lines as f64, |j| (n - j) / (j + 1.0) * odds, |j| line_rate(j, k))
}

/// The best number of positions for a blocked Bloom filter: the least of the model, which falls and then rises with k.
pub fn blocked_best_k(bits_per_key: f64) -> u32 {
    let mut best = (1, blocked_rate(bits_per_key, 1));
    for k in 2..=MAX_PROBES {
        let rate = blocked_rate(bits_per_key, k);
        if rate >= best.1 {
            break;
        }
        best = (k, rate);
    }
    best.0
}

/// The lines of a blocked filter of `keys` keys: rounded up, at least one.
pub fn blocked_lines(keys: u64, bits_per_key: f64) -> u64 {
    total_bits(keys, bits_per_key).div_ceil(LINE_BITS).max(1)
}

/// The rate that a filter of this kind has at its best k; 1 for kinds without a size.
pub fn best_rate(kind: FilterKind, bits_per_key: f64) -> f64 {
    match kind {
        FilterKind::Bloom => bloom_rate(bits_per_key, bloom_best_k(bits_per_key)),
        FilterKind::Blocked => blocked_rate(bits_per_key, blocked_best_k(bits_per_key)),
        FilterKind::None | FilterKind::Empty => 1.0,
    }
}

/// The least bits per key with which a filter of this kind, at its best k, has at most `rate`. None if
/// [`MAX_BITS_PER_KEY`] do not reach it.
pub fn bits_per_key_for_rate(kind: FilterKind, rate: f64) -> Option<f64> {
    let (mut too_few, mut enough) = (MIN_BITS_PER_KEY, MAX_BITS_PER_KEY);
    if rate.is_nan() || best_rate(kind, enough) > rate {
        return None;
    }
    // Halved until the interval is far below one bit in a filter of a million keys.
    while enough - too_few > 1e-8 {
        let middle = (too_few + enough) / 2.0;
        if best_rate(kind, middle) <= rate { enough = middle } else { too_few = middle }
    }
    Some(enough)
}

/// Brings bits per key into the range that options may have; a number that is none becomes the default, 10.
pub(crate) fn clamp_bits_per_key(bits_per_key: f64) -> f64 {
    if bits_per_key.is_nan() { 10.0 } else { bits_per_key.clamp(MIN_BITS_PER_KEY, MAX_BITS_PER_KEY) }
}

/// `base` to the `exponent`, by squaring. `f64::powi` may round differently on other machines, and this decides bytes in
/// files.
pub(crate) fn power(mut base: f64, mut exponent: u32) -> f64 {
    let mut product = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            product *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    product
}

/// How often one line with `keys` keys says "maybe" to an absent key.
fn line_rate(keys: f64, k: u32) -> f64 {
    let zero_bit = (keys * f64::from(k) * (-1.0 / BITS).ln_1p()).exp();
    power(1.0 - zero_bit, k)
}

/// The mean of `value(j)` over a distribution of whole numbers j ≥ 0 with one peak, near `peak`, and
/// `ratio(j)` = P(j + 1) ÷ P(j). Walks outwards from the peak in relative weights, which neither overflow nor vanish.
fn mean_over_occupancy(peak: f64, ratio: impl Fn(f64) -> f64, value: impl Fn(f64) -> f64) -> f64 {
    const NEGLIGIBLE: f64 = 1e-18;
    let start = peak.floor();
    let (mut weights, mut sum) = (1.0, value(start));
    let (mut j, mut weight) = (start, 1.0);
    while weight > NEGLIGIBLE {
        weight *= ratio(j);
        j += 1.0;
        weights += weight;
        sum += weight * value(j);
    }
    (j, weight) = (start, 1.0);
    while weight > NEGLIGIBLE && j > 0.0 {
        j -= 1.0;
        weight /= ratio(j);
        weights += weight;
        sum += weight * value(j);
    }
    sum / weights
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn assert_close(found: f64, expected: f64, relative: f64) {
        assert!((found / expected - 1.0).abs() <= relative, "found {found}, expected {expected}");
    }

    #[test]
    fn bloom_bits_for_the_usual_rates() {
        for (rate, bound, bits) in
            [(0.1, 3.322, 4.793), (0.01, 6.644, 9.585), (0.001, 9.966, 14.378), (0.0001, 13.288, 19.170)]
        {
            assert_close(lower_bound_bits_per_key(rate), bound, 1e-4);
            assert_close(bloom_bits_for_rate(1_000_000_000, rate) as f64 / 1e9, bits, 1e-4);
            assert_close(bits / bound, 1.0 / LN_2, 2e-4);
        }
    }

    #[test]
    fn the_best_k_is_found_by_evaluation_and_not_by_rounding() {
        for (bits, k, rate) in [(8.0, 6, 0.02158), (10.0, 7, 0.00819), (12.0, 8, 0.00314), (16.0, 11, 0.000459)] {
            assert_eq!(bloom_best_k(bits), k);
            assert_close(bloom_rate(bits, k), rate, 2e-3);
        }
        for (bits, k) in [(4.793, 3), (9.585, 7), (14.378, 10), (19.170, 13), (0.5, 1), (64.0, 44)] {
            assert_eq!(bloom_best_k(bits), k);
        }
        assert_close(bloom_rate(4.793, 3), 0.1007, 5e-4);
        assert_close(bloom_rate(9.585, 7), 0.010039, 1e-4);
        for tenths in 1..640 {
            let bits = f64::from(tenths) / 10.0;
            let least = (1..=MAX_PROBES).map(|k| bloom_rate(bits, k)).fold(1.0, f64::min);
            assert_eq!(bloom_rate(bits, bloom_best_k(bits)), least, "at {bits}");
        }
    }

    #[test]
    fn a_thousand_million_keys_at_one_percent() {
        // 9,585,058,377.37 bits: over 2^32, so 32-bit sizes would wrap.
        assert_eq!(bloom_bits_for_rate(1_000_000_000, 0.01), 9_585_058_378);
        assert_eq!(bloom_bits_for_rate(1_000_000, 0.01), 9_585_059);
        assert_eq!(bloom_best_k(9.585_058_378), 7);
        assert_eq!(total_bits(1 << 40, 10.0), 10 << 40);
    }

    #[test]
    fn fractions_of_a_bit_count() {
        assert_eq!(total_bits(1000, 9.9), 9900);
        assert_eq!(total_bits(1000, 0.5), 500);
        assert_eq!(blocked_lines(1000, 9.9), 20);
        assert_eq!(blocked_lines(1000, 0.5), 1);
        assert_eq!(blocked_lines(0, 10.0), 1);
    }

    #[test]
    fn blocked_model_agrees_with_the_published_measurements() {
        for (bits, rate) in [(5.0, 0.0931), (8.0, 0.0232), (10.0, 0.00963), (12.0, 0.00409), (16.0, 0.00083)] {
            assert_close(best_rate(FilterKind::Blocked, bits), rate, 0.01);
        }
        assert_close(best_rate(FilterKind::Blocked, 20.0), 0.000196, 0.03);
    }

    #[test]
    fn blocked_best_k_is_the_least_of_the_model() {
        for bits in [0.5, 1.0, 5.0, 8.0, 9.9, 10.0, 12.0, 16.0, 24.0, 64.0] {
            let least = (1..=MAX_PROBES).map(|k| blocked_rate(bits, k)).fold(1.0, f64::min);
            assert_eq!(best_rate(FilterKind::Blocked, bits), least, "at {bits}");
        }
        assert_eq!([5.0, 8.0, 10.0, 12.0, 16.0].map(blocked_best_k), [3, 5, 7, 8, 10]);
    }

    #[test]
    fn binomial_occupancy_approaches_poisson_and_differs_when_small() {
        let lines = blocked_lines(1 << 24, 10.0);
        let bits_per_key = (lines * LINE_BITS) as f64 / f64::from(1 << 24);
        assert_close(blocked_rate_of(1 << 24, lines, 7), blocked_rate(bits_per_key, 7), 1e-4);
        // Three keys in two lines, k = 1: P(j keys in a line) is 1/8, 3/8, 3/8, 1/8 for 0 to 3.
        let q = 511.0 / 512.0_f64;
        let by_hand = (3.0 * (1.0 - q) + 3.0 * (1.0 - q * q) + (1.0 - q * q * q)) / 8.0;
        assert_close(blocked_rate_of(3, 2, 1), by_hand, 1e-12);
        assert_close(blocked_rate_of(1, 1, 1), 1.0 / 512.0, 1e-12);
        assert_eq!(blocked_rate_of(0, 1, 7), 0.0);
    }

    #[test]
    fn bits_per_key_and_rate_invert_each_other() {
        for kind in [FilterKind::Bloom, FilterKind::Blocked] {
            for rate in [0.9, 0.5, 0.1, 0.01, 0.001, 1e-6] {
                let bits = bits_per_key_for_rate(kind, rate).unwrap();
                let reached = best_rate(kind, bits);
                assert!(reached <= rate);
                assert_close(reached, rate, 1e-6);
            }
            assert_eq!(bits_per_key_for_rate(kind, 1e-30), None);
        }
        assert_close(bits_per_key_for_rate(FilterKind::Bloom, 0.01).unwrap(), 9.593, 1e-3);
        assert_eq!(bits_per_key_for_rate(FilterKind::None, 0.01), None);
    }

    #[test]
    fn no_bits_and_no_numbers_mean_no_filter() {
        for bits in [0.0, -1.0, f64::NAN, 1e-300] {
            assert_eq!(best_rate(FilterKind::Blocked, bits), 1.0);
        }
        assert_eq!(bloom_rate(0.0, 1), 1.0);
        assert_eq!(bloom_rate(f64::NAN, 3), 1.0);
        assert_eq!(bits_per_key_for_rate(FilterKind::Blocked, f64::NAN), None);
    }
}
