//! The names of a database's files. Names are built from numbers alone, so that no user string ever becomes a path:
//! `000123.sst`, `000124.log`, `MANIFEST-000005`, `CURRENT`, `CURRENT.tmp`, `LOCK`.
//! One monotonic number space serves every kind of file; a number is never used again.

use std::path::{Path, PathBuf};

/// The number of a file.
pub(crate) type FileNumber = u64;

pub(crate) const CURRENT: &str = "CURRENT";
pub(crate) const CURRENT_TEMP: &str = "CURRENT.tmp";
pub(crate) const LOCK: &str = "LOCK";

/// A name that this database could have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FileName {
    Table(FileNumber),
    Log(FileNumber),
    Manifest(FileNumber),
    Current,
    CurrentTemp,
    Lock,
}

impl FileName {
    /// Exactly the names that [`FileName::to_string`] builds; everything else is not ours and is never touched.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let parsed = match name {
            CURRENT => FileName::Current,
            CURRENT_TEMP => FileName::CurrentTemp,
            LOCK => FileName::Lock,
            _ => {
                if let Some(digits) = name.strip_prefix("MANIFEST-") {
                    FileName::Manifest(number(digits)?)
                } else if let Some(digits) = name.strip_suffix(".sst") {
                    FileName::Table(number(digits)?)
                } else {
                    FileName::Log(number(name.strip_suffix(".log")?)?)
                }
            }
        };
        (parsed.to_string() == name).then_some(parsed)
    }

    pub(crate) fn number(self) -> Option<FileNumber> {
        match self {
            FileName::Table(n) | FileName::Log(n) | FileName::Manifest(n) => Some(n),
            FileName::Current | FileName::CurrentTemp | FileName::Lock => None,
        }
    }

    pub(crate) fn in_dir(self, dir: &Path) -> PathBuf {
        dir.join(self.to_string())
    }
}

impl std::fmt::Display for FileName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FileName::Table(n) => write!(f, "{n:06}.sst"),
            FileName::Log(n) => write!(f, "{n:06}.log"),
            FileName::Manifest(n) => write!(f, "MANIFEST-{n:06}"),
            FileName::Current => f.write_str(CURRENT),
            FileName::CurrentTemp => f.write_str(CURRENT_TEMP),
            FileName::Lock => f.write_str(LOCK),
        }
    }
}

fn number(digits: &str) -> Option<FileNumber> {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for name in [
            FileName::Table(1),
            FileName::Log(999_999),
            FileName::Manifest(1_000_000),
            FileName::Table(u64::MAX),
            FileName::Current,
            FileName::CurrentTemp,
            FileName::Lock,
        ] {
            assert_eq!(FileName::parse(&name.to_string()), Some(name));
        }
    }

    #[test]
    fn names_of_others_are_not_ours() {
        for name in [
            "",
            "1.sst",
            "0000001.sst",
            "000001.SST",
            "+00001.sst",
            "MANIFEST-",
            "MANIFEST-1",
            "000001.log.bak",
            "../000001.sst",
            "99999999999999999999.log",
            "current",
            "LOCK ",
            "000001",
            ".sst",
        ] {
            assert_eq!(FileName::parse(name), None, "{name}");
        }
    }
}
