//! What a user chooses of a filter: its kind and its size; and what `open` refuses, so that no flush has to.

use crate::error::{Error, Result};
use crate::filter::params;

/// Which filter a table carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum FilterKind {
    /// No filter: every candidate table is read.
    None,
    /// A standard Bloom filter.
    Bloom,
    /// A cache-line Bloom filter.
    #[default]
    Blocked,
    /// What a table without keys gets, whichever kind was asked for: it says "no" to everything. Not to be asked for
    /// in options.
    Empty,
}

/// How large a filter is made.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum FilterSize {
    /// Bits per distinct user key; above 0, at most 64. Fractions count.
    BitsPerKey(f64),
    /// The false-positive rate to reach; between 0 and 1, both excluded (1 % is 0.01), and within the reach of 64 bits
    /// per key.
    Rate(f64),
}

/// The filter that new tables get.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FilterOptions {
    /// Which kind.
    pub kind: FilterKind,
    /// How large.
    pub size: FilterSize,
}

impl Default for FilterOptions {
    fn default() -> Self {
        FilterOptions { kind: FilterKind::Blocked, size: FilterSize::BitsPerKey(10.0) }
    }
}

impl FilterOptions {
    /// Refuses at `open` what would otherwise fail at some later flush.
    pub(crate) fn validate(&self) -> Result<()> {
        if self.kind == FilterKind::Empty {
            return Err(Error::invalid_argument(
                "filter kind Empty cannot be asked for: tables without keys get it by themselves; choose None, Bloom or \
                 Blocked",
            ));
        }
        match self.size {
            FilterSize::BitsPerKey(bits) => validate_bits_per_key(bits),
            FilterSize::Rate(rate) => validate_rate(self.kind, rate),
        }
    }

    /// The bits per key to build with. Options that [`validate`](Self::validate) would refuse are brought into range.
    pub(crate) fn bits_per_key(&self) -> f64 {
        params::clamp_bits_per_key(match self.size {
            FilterSize::BitsPerKey(bits) => bits,
            FilterSize::Rate(rate) => {
                params::bits_per_key_for_rate(self.kind, rate).unwrap_or(params::MAX_BITS_PER_KEY)
            }
        })
    }
}

fn validate_bits_per_key(bits: f64) -> Result<()> {
    if bits > 0.0 && bits <= params::MAX_BITS_PER_KEY {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "filter size BitsPerKey({bits}): expected a number of bits per distinct key above 0 and at most {}; it is not the \
         size of the whole filter",
        params::MAX_BITS_PER_KEY
    )))
}

fn validate_rate(kind: FilterKind, rate: f64) -> Result<()> {
    if !(rate > 0.0 && rate < 1.0) {
        return Err(Error::invalid_argument(format!(
            "filter size Rate({rate}): expected a false-positive rate as a probability between 0 and 1, both excluded; 1 % \
             is 0.01"
        )));
    }
    if kind == FilterKind::None || params::bits_per_key_for_rate(kind, rate).is_some() {
        return Ok(());
    }
    let least = params::best_rate(kind, params::MAX_BITS_PER_KEY);
    Err(Error::invalid_argument(format!(
        "filter size Rate({rate}): {kind:?} filters reach a false-positive rate of {least:e} with {} bits per key, which \
         is the most they may have; ask for that rate or a greater one",
        params::MAX_BITS_PER_KEY
    )))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn options(kind: FilterKind, size: FilterSize) -> FilterOptions {
        FilterOptions { kind, size }
    }

    #[test]
    fn sizes_outside_their_range_are_refused_with_their_unit() {
        let message = |kind, size| {
            let error = options(kind, size).validate().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            error.to_string()
        };
        for bits in [0.0, -1.0, 64.1, 1e9, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for kind in [FilterKind::None, FilterKind::Bloom, FilterKind::Blocked] {
                assert!(message(kind, FilterSize::BitsPerKey(bits)).contains("bits per distinct key"), "{bits}");
            }
        }
        for rate in [0.0, 1.0, -0.1, 1.5, f64::NAN] {
            assert!(
                message(FilterKind::Bloom, FilterSize::Rate(rate)).contains("probability between 0 and 1"),
                "{rate}"
            );
        }
        assert!(message(FilterKind::Blocked, FilterSize::Rate(1e-9)).contains("64 bits per key"));
        assert!(message(FilterKind::Empty, FilterSize::BitsPerKey(10.0)).contains("Empty"));
    }

    #[test]
    fn sizes_within_their_range_are_accepted() {
        for kind in [FilterKind::None, FilterKind::Bloom, FilterKind::Blocked] {
            for size in [0.01, 0.5, 9.9, 64.0].map(FilterSize::BitsPerKey) {
                options(kind, size).validate().unwrap();
            }
            for size in [1e-7, 0.01, 0.999_999].map(FilterSize::Rate) {
                options(kind, size).validate().unwrap();
            }
        }
        options(FilterKind::Bloom, FilterSize::Rate(1e-13)).validate().unwrap();
        FilterOptions::default().validate().unwrap();
    }
}
