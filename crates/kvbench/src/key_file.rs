//! Real keys from a file: one a line, or key TAB value.
//!
//! Keys are bytes. A line ends with LF or CR LF; the first TAB ends the key; empty lines are skipped; of equal keys the
//! last one's value counts; keys the engine cannot hold are skipped. All of it is counted and said, since an experiment
//! on keys that silently went missing proves nothing.

use crate::failure::{Failure, Result};
use serde::Serialize;
use std::fmt;
use std::io::Read;
use std::path::Path;

/// The longest key the engine takes.
const MAX_KEY_BYTES: usize = 65_535;

/// A key, and its value if the file gives one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) key: Box<[u8]>,
    pub(crate) value: Option<Box<[u8]>>,
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) source: String,
    pub(crate) lines: u64,
    pub(crate) distinct_keys: u64,
    pub(crate) duplicate_keys: u64,
    pub(crate) skipped_empty: u64,
    pub(crate) skipped_over_long: u64,
    pub(crate) with_value: u64,
    pub(crate) mean_key_bytes: f64,
}

/// The distinct records in key order.
#[derive(Debug)]
pub(crate) struct KeyFile {
    pub(crate) records: Vec<Record>,
    pub(crate) summary: Summary,
}

impl KeyFile {
    /// Reads `path`, or standard input for "-"; at most `limit` lines that hold a key.
    pub(crate) fn read(path: &Path, limit: Option<u64>) -> Result<KeyFile> {
        let (source, bytes) = if path == Path::new("-") {
            let mut bytes = Vec::new();
            let outcome = std::io::stdin().lock().read_to_end(&mut bytes);
            outcome.map_err(|e| Failure::failed(format!("cannot read keys from standard input: {e}")))?;
            ("standard input".to_owned(), bytes)
        } else {
            let bytes = std::fs::read(path).map_err(|e| Failure::input("read keys from", path, &e))?;
            (path.display().to_string(), bytes)
        };
        Self::parse(source, &bytes, limit.unwrap_or(u64::MAX))
    }

    fn parse(source: String, bytes: &[u8], limit: u64) -> Result<KeyFile> {
        let mut summary = Summary { source, ..Default::default() };
        let mut records = Vec::new();
        for line in lines(bytes) {
            if records.len() as u64 >= limit {
                break;
            }
            summary.lines += 1;
            match record(line) {
                _ if line.is_empty() => summary.skipped_empty += 1,
                record if record.key.len() > MAX_KEY_BYTES => summary.skipped_over_long += 1,
                record => records.push(record),
            }
        }
        summary.duplicate_keys = keep_last_of_equal_keys(&mut records);
        summary.distinct_keys = records.len() as u64;
        summary.with_value = records.iter().filter(|record| record.value.is_some()).count() as u64;
        summary.mean_key_bytes = mean_key_bytes(&records);
        if records.is_empty() {
            return Err(Failure::usage(format!(
                "no keys in {} ({} lines, {} of them empty, {} over {MAX_KEY_BYTES} bytes); \
                 wanted: one key a line, or key TAB value",
                summary.source, summary.lines, summary.skipped_empty, summary.skipped_over_long
            )));
        }
        Ok(KeyFile { records, summary })
    }
}

/// The lines without their ends. Bytes after the last line end are a line of their own.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n').map(|line| {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        line.strip_suffix(b"\r").unwrap_or(line)
    })
}

fn record(line: &[u8]) -> Record {
    match line.iter().position(|byte| *byte == b'\t') {
        Some(tab) => Record { key: line[..tab].into(), value: Some(line[tab + 1..].into()) },
        None => Record { key: line.into(), value: None },
    }
}

/// Sorts by key; returns how many records went.
fn keep_last_of_equal_keys(records: &mut Vec<Record>) -> u64 {
    let before = records.len();
    records.sort_by(|a, b| a.key.cmp(&b.key)); // stable: equal keys stay in line order
    records.dedup_by(|later, kept| {
        let equal = later.key == kept.key;
        if equal {
            std::mem::swap(later, kept);
        }
        equal
    });
    (before - records.len()) as u64
}

fn mean_key_bytes(records: &[Record]) -> f64 {
    let total: usize = records.iter().map(|record| record.key.len()).sum();
    total as f64 / records.len().max(1) as f64
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "keys         {}", self.source)?;
        writeln!(
            f,
            "             {} lines, {} distinct keys, mean length {:.1} B",
            self.lines, self.distinct_keys, self.mean_key_bytes
        )?;
        writeln!(f, "             {} duplicates (the last counts), {} values", self.duplicate_keys, self.with_value)?;
        writeln!(
            f,
            "             skipped: {} empty lines, {} keys over {MAX_KEY_BYTES} B",
            self.skipped_empty, self.skipped_over_long
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> KeyFile {
        KeyFile::parse("f".into(), bytes, u64::MAX).unwrap()
    }

    fn keys(file: &KeyFile) -> Vec<&[u8]> {
        file.records.iter().map(|record| &*record.key).collect()
    }

    #[test]
    fn lf_crlf_and_a_missing_last_line_end_give_the_same_keys() {
        for text in [&b"b\na\n"[..], b"b\r\na\r\n", b"b\r\na", b"b\na"] {
            assert_eq!(keys(&parse(text)), [b"a", b"b"], "{text:?}");
            assert_eq!(parse(text).summary.lines, 2);
        }
    }

    #[test]
    fn the_first_tab_ends_the_key_and_the_last_of_equal_keys_counts() {
        let file = parse(b"k\tone\nx\nk\ttwo\tmore\n");
        assert_eq!(file.records[0], Record { key: (*b"k").into(), value: Some((*b"two\tmore").into()) });
        assert_eq!((file.summary.duplicate_keys, file.summary.distinct_keys, file.summary.with_value), (1, 2, 1));
        assert_eq!(parse(b"k\t1\nk\t2\nk\t3\n").records[0].value.as_deref(), Some(&b"3"[..]));
    }

    #[test]
    fn empty_lines_are_skipped_but_a_tab_alone_is_the_empty_key() {
        let file = parse(b"\n\r\na\n\tv\n\n");
        assert_eq!(keys(&file), [&b""[..], b"a"]);
        assert_eq!((file.summary.lines, file.summary.skipped_empty), (5, 3));
    }

    #[test]
    fn over_long_keys_are_skipped_and_counted() {
        let mut bytes = vec![b'x'; MAX_KEY_BYTES + 1];
        bytes.extend_from_slice(b"\nok\n");
        bytes.extend(vec![b'y'; MAX_KEY_BYTES]);
        let file = parse(&bytes);
        assert_eq!((file.summary.skipped_over_long, file.records.len()), (1, 2));
    }

    #[test]
    fn keys_need_not_be_text() {
        assert_eq!(keys(&parse(b"\xff\xfe\n\x00\n")), [&b"\x00"[..], b"\xff\xfe"]);
    }

    #[test]
    fn a_file_without_keys_is_a_usage_error() {
        for bytes in [&b""[..], b"\n\n"] {
            let failure = KeyFile::parse("f".into(), bytes, u64::MAX).unwrap_err();
            assert!(matches!(&failure, Failure::Usage(m) if m.contains("no keys in f")), "{failure}");
        }
    }

    #[test]
    fn a_limit_counts_lines_with_keys() {
        let file = KeyFile::parse("f".into(), b"\na\nb\nc\n", 2).unwrap();
        assert_eq!((keys(&file), file.summary.lines), (vec![&b"a"[..], b"b"], 3));
    }

    #[test]
    fn the_summary_fits_80_columns() {
        let summary =
            Summary { lines: 12_345_678, distinct_keys: 12_345_678, with_value: 12_345_678, ..parse(b"a").summary };
        assert!(summary.to_string().lines().all(|line| line.len() <= 80), "{summary}");
    }
}
