//! A filter setting as it is written on the command line: `none`, `blocked:10`, `bloom:9.9`.

use siftdb::{FilterKind, FilterOptions, FilterSize};
use std::fmt;
use std::str::FromStr;

/// One setting of a sweep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FilterSpec {
    None,
    Blocked(f64),
    Bloom(f64),
}

impl FilterSpec {
    pub(crate) fn options(self) -> FilterOptions {
        let (kind, bits) = match self {
            FilterSpec::None => return FilterOptions { kind: FilterKind::None, ..Default::default() },
            FilterSpec::Blocked(bits) => (FilterKind::Blocked, bits),
            FilterSpec::Bloom(bits) => (FilterKind::Bloom, bits),
        };
        FilterOptions { kind, size: FilterSize::BitsPerKey(bits) }
    }

    /// The name of its database's directory: no colon, which some file systems refuse.
    pub(crate) fn directory(self) -> String {
        self.to_string().replace(':', "-")
    }
}

impl FromStr for FilterSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, bits) = match text.split_once(':') {
            Some((kind, bits)) => {
                (kind, bits.parse().map_err(|_| format!("\"{bits}\" is not a number of bits per key"))?)
            }
            None => (text, 10.0),
        };
        if !(bits > 0.0 && bits <= 64.0) {
            return Err(format!("{bits} bits per key: must be above 0 and at most 64"));
        }
        match kind {
            "none" if !text.contains(':') => Ok(FilterSpec::None),
            "blocked" => Ok(FilterSpec::Blocked(bits)),
            "bloom" => Ok(FilterSpec::Bloom(bits)),
            _ => Err("known are none, blocked:BITS and bloom:BITS, as in none,blocked:10".into()),
        }
    }
}

impl fmt::Display for FilterSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FilterSpec::None => f.pad("none"),
            FilterSpec::Blocked(bits) => f.pad(&format!("blocked:{bits}")),
            FilterSpec::Bloom(bits) => f.pad(&format!("bloom:{bits}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_written_alike() {
        for text in ["none", "blocked:10", "bloom:9.9", "bloom:0.5"] {
            assert_eq!(text.parse::<FilterSpec>().unwrap().to_string(), text);
        }
        assert_eq!("bloom".parse(), Ok(FilterSpec::Bloom(10.0)));
    }

    #[test]
    fn impossible_settings_are_refused() {
        for text in ["ribbon:7", "blocked:0", "blocked:-1", "bloom:65", "bloom:x", "bloom:NaN", "none:3", ""] {
            assert!(text.parse::<FilterSpec>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_kind_reaches_the_engine() {
        assert_eq!(FilterSpec::None.options().kind, FilterKind::None);
        let options = FilterSpec::Bloom(9.9).options();
        assert_eq!((options.kind, options.size), (FilterKind::Bloom, FilterSize::BitsPerKey(9.9)));
    }
}
