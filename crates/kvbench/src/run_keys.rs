//! The keys of `run`, by number: made as db_bench makes them, or those of a key file in key order.

use crate::args::RunArgs;
use crate::failure::Result;
use crate::key_file::{KeyFile, Record, Summary};
use crate::table::grouped;
use std::borrow::Cow;

pub(crate) enum RunKeys {
    /// The number in 8 bytes, big-endian, padded with "0" to `size`; a shorter key keeps the low bytes.
    Numbered {
        count: u64,
        size: usize,
    },
    File(KeyFile),
}

impl RunKeys {
    pub(crate) fn new(args: &RunArgs) -> Result<RunKeys> {
        match &args.common.keys_from {
            Some(path) => Ok(RunKeys::File(KeyFile::read(path, args.num)?)),
            None => Ok(RunKeys::Numbered { count: args.num.unwrap_or(1_000_000), size: args.key_size as usize }),
        }
    }

    /// Keys there are; numbers go from 0 to below this.
    pub(crate) fn count(&self) -> u64 {
        match self {
            RunKeys::Numbered { count, .. } => *count,
            RunKeys::File(file) => file.records.len() as u64,
        }
    }

    pub(crate) fn key(&self, number: u64) -> Cow<'_, [u8]> {
        match self {
            RunKeys::Numbered { size, .. } => Cow::Owned(numbered(number, *size)),
            RunKeys::File(file) => Cow::Borrowed(&record(file, number).key),
        }
    }

    /// A key like `key(number)` that no workload ever writes: one or more "0" longer.
    pub(crate) fn missing(&self, number: u64) -> Vec<u8> {
        let mut key = self.key(number).into_owned();
        key.push(b'0');
        if let RunKeys::File(file) = self {
            while file.records.binary_search_by(|record| (*record.key).cmp(&key)).is_ok() {
                key.push(b'0');
            }
        }
        key
    }

    /// The value that the key file gives.
    pub(crate) fn value(&self, number: u64) -> Option<&[u8]> {
        match self {
            RunKeys::Numbered { .. } => None,
            RunKeys::File(file) => record(file, number).value.as_deref(),
        }
    }

    pub(crate) fn summary(&self) -> Option<&Summary> {
        match self {
            RunKeys::Numbered { .. } => None,
            RunKeys::File(file) => Some(&file.summary),
        }
    }

    pub(crate) fn text(&self, value_size: u32) -> String {
        match self {
            RunKeys::Numbered { count, size } => {
                format!("keys         {} of {size} B, with {value_size} B values\n", grouped(*count))
            }
            RunKeys::File(file) => format!("{}             values without TAB: {value_size} B\n", file.summary),
        }
    }
}

fn record(file: &KeyFile, number: u64) -> &Record {
    // Numbers are drawn below `count`, which came from this length.
    &file.records[number as usize]
}

fn numbered(number: u64, size: usize) -> Vec<u8> {
    let bytes = number.to_be_bytes();
    let mut key = bytes[8 - size.min(8)..].to_vec();
    key.resize(size, b'0');
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(keys: &[&str]) -> RunKeys {
        let records = keys.iter().map(|key| Record { key: key.as_bytes().into(), value: None }).collect();
        RunKeys::File(KeyFile { records, summary: Summary::default() })
    }

    #[test]
    fn numbered_keys_are_big_endian_and_padded_as_in_db_bench() {
        assert_eq!(numbered(0x0102, 16), *b"\0\0\0\0\0\0\x01\x0200000000");
        assert_eq!(numbered(0x0102, 8), *b"\0\0\0\0\0\0\x01\x02");
        assert_eq!(numbered(0x0102, 1), *b"\x02");
        assert!(numbered(255, 16) < numbered(256, 16));
    }

    #[test]
    fn missing_keys_are_one_byte_longer() {
        let keys = RunKeys::Numbered { count: 10, size: 16 };
        assert_eq!(keys.missing(3), [numbered(3, 16), b"0".to_vec()].concat());
    }

    #[test]
    fn missing_keys_of_a_file_are_not_in_the_file() {
        let keys = file(&["a", "a0", "a00", "b"]);
        assert_eq!((keys.missing(0), keys.missing(3)), (b"a000".to_vec(), b"b0".to_vec()));
        assert_eq!((keys.count(), &*keys.key(3)), (4, &b"b"[..]));
    }
}
