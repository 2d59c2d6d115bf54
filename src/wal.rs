//! The write-ahead log: a file of records (see `record`), the first a header, every other one a batch.
//!
//! ```text
//! header:  format version u32 | number of the log before this one u64, 0 for none
//! ```
//!
//! A log is closed (synced, and ended by a clean-close chunk) before anything in its successor is synced; so behind a log
//! that does not end cleanly recovery goes on only if no sequence number is missing, and refuses if the successor says
//! that it was synced. Only a log with batches gets a successor. A log is never appended to after it was read back:
//! recovery writes new files.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use crate::batch::{Batch, BatchRef};
use crate::coding::{Decoder, put_u32, put_u64};
use crate::error::{Error, Result};
use crate::filename::{FileName, FileNumber};
use crate::record::{End, HEADER_BYTES, RecordReader, RecordWriter, Step, read_whole};
use crate::vfs::{Context, FileSystem, SyncHandle};
use std::path::Path;

/// 0 until the first release.
const FORMAT_VERSION: u32 = 0;

/// What a log takes that holds nothing yet: its header.
pub(crate) const EMPTY_LOG_BYTES: u64 = (HEADER_BYTES as u64).saturating_add(12);

/// The writing end of a log.
#[derive(Debug)]
pub(crate) struct LogWriter {
    records: RecordWriter,
    number: FileNumber,
}

impl LogWriter {
    /// Creates log `number` behind `predecessor`. Its header is handed to the operating system and its directory entry
    /// is durable when this returns; with `preallocate_bytes` over 0, space for so many is reserved.
    pub(crate) fn create(
        fs: &dyn FileSystem,
        dir: &Path,
        number: FileNumber,
        preallocate_bytes: u64,
        predecessor: Option<FileNumber>,
    ) -> Result<Self> {
        let path = FileName::Log(number).in_dir(dir);
        let mut file = fs.create_new(&path).context("create", &path)?;
        if preallocate_bytes > 0 {
            file.allocate(preallocate_bytes).context("reserve space for", &path)?;
        }
        let mut records = RecordWriter::new(file, path, number);
        let mut header = Vec::new();
        put_u32(&mut header, FORMAT_VERSION);
        put_u64(&mut header, predecessor.unwrap_or(0));
        records.add_record(&header);
        records.flush()?;
        fs.sync_dir(dir).context("sync", dir)?;
        Ok(LogWriter { records, number })
    }

    /// Writes a group of batches with one append. They are safe from a crash of the process when this returns.
    pub(crate) fn append<'a>(&mut self, group: impl IntoIterator<Item = &'a Batch>) -> Result<()> {
        for batch in group {
            self.records.add_record(batch.as_bytes());
        }
        self.records.flush()
    }

    /// Makes every batch appended so far safe from a power cut.
    #[cfg(test)]
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.records.sync()
    }

    /// A second handle that only syncs. Its user notes [`len`](Self::len) before the sync, and tells
    /// [`set_synced_offset`](Self::set_synced_offset) or [`fail`](Self::fail) after it.
    pub(crate) fn sync_handle(&self) -> Result<Box<dyn SyncHandle>> {
        self.records.sync_handle()
    }

    /// The first `offset` bytes were synced through a handle.
    pub(crate) fn set_synced_offset(&mut self, offset: u64) {
        self.records.set_synced_offset(offset);
    }

    /// A sync through a handle failed: the log is finished.
    pub(crate) fn fail(&mut self, error: &Error) {
        self.records.fail(error);
    }

    /// Bytes known to be durable.
    pub(crate) fn synced_offset(&self) -> u64 {
        self.records.synced_offset()
    }

    /// Heap bytes of its buffer.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.records.buffer_bytes()
    }

    /// Bytes in the log.
    pub(crate) fn len(&self) -> u64 {
        self.records.flushed_len()
    }

    pub(crate) fn number(&self) -> FileNumber {
        self.number
    }

    pub(crate) fn path(&self) -> &Path {
        self.records.path()
    }

    /// Ends the log and returns its final length. All of it is durable when this returns.
    pub(crate) fn close(self) -> Result<u64> {
        self.records.close()
    }
}

/// How a log ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogEnd {
    /// The log was closed, and is whole.
    pub(crate) clean: bool,
    /// The log before this one. None also if the log breaks off before its header ends.
    pub(crate) predecessor: Option<FileNumber>,
    /// Where the valid part ends.
    pub(crate) valid_len: u64,
    /// How much of it was synced, as far as it says itself: then everything before it was durable, too.
    pub(crate) promised_len: u64,
    /// Where a record that was cut or damaged begins; nothing from there on was synced.
    pub(crate) torn_at: Option<u64>,
}

/// Reads log `number` and shows every batch to `visit`, in order. The file is only read.
///
/// `expect_clean_len` is the final length that a clean close left in the manifest: a log that does not end cleanly at
/// exactly this length is corrupt. Zeros behind the end may stay of the reserved space, if power went before its removal
/// was durable.
pub(crate) fn replay(
    fs: &dyn FileSystem,
    dir: &Path,
    number: FileNumber,
    expect_clean_len: Option<u64>,
    visit: impl FnMut(BatchRef<'_>) -> Result<()>,
) -> Result<LogEnd> {
    let path = FileName::Log(number).in_dir(dir);
    let bytes = read_whole(fs, &path)?;
    let end = replay_bytes(&bytes, number, visit).map_err(|error| error.in_file(&path))?;
    match expect_clean_len {
        Some(len) if !end.clean || end.valid_len != len => {
            let message = format!(
                "the database was closed with {len} bytes in this log, found {} that end {}; restore the log from a backup",
                end.valid_len,
                if end.clean { "cleanly" } else { "without a clean close" },
            );
            Err(Error::corruption(message).in_file(&path).at(end.valid_len))
        }
        _ => Ok(end),
    }
}

fn replay_bytes(bytes: &[u8], number: FileNumber, mut visit: impl FnMut(BatchRef<'_>) -> Result<()>) -> Result<LogEnd> {
    let mut reader = RecordReader::new(bytes, number);
    let mut predecessor = None;
    let mut is_header = true;
    let end = loop {
        let start = reader.valid_len();
        match reader.read()? {
            Step::End(end) => break end,
            Step::Record(record) if is_header => {
                predecessor = decode_header(&record).map_err(|error| error.at(start))?;
                is_header = false;
            }
            Step::Record(record) => {
                let batch = Batch::decode(&record).map_err(|error| error.at(start))?;
                visit(batch)?;
            }
        }
    };
    let torn_at = match end {
        End::Torn { offset } => Some(offset),
        End::CleanClose | End::EndOfFile => None,
    };
    Ok(LogEnd {
        clean: end == End::CleanClose,
        predecessor,
        valid_len: reader.valid_len(),
        promised_len: reader.promised(),
        torn_at,
    })
}

fn decode_header(record: &[u8]) -> Result<Option<FileNumber>> {
    let mut fields = Decoder::new(record);
    let version = fields.u32("log format version")?;
    if version != FORMAT_VERSION {
        return Err(Error::unsupported(format!(
            "expected a log of format {FORMAT_VERSION}, found {version}; open the database with the version that wrote it"
        )));
    }
    let predecessor = fields.u64("number of the log before")?;
    if !fields.is_empty() {
        return Err(Error::corruption(format!("expected a log header, found {} bytes more", fields.rest().len())));
    }
    Ok((predecessor != 0).then_some(predecessor))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::record::testing::{TestFs, writer};

    const PATH: &str = "d/000005.log";

    fn create(fs: &TestFs, preallocate_bytes: u64) -> LogWriter {
        LogWriter::create(fs, Path::new("d"), 5, preallocate_bytes, Some(3)).unwrap()
    }

    fn batch(seqno: u64) -> Batch {
        let mut batch = Batch::new();
        batch.put(0, format!("key {seqno}").as_bytes(), b"value").unwrap();
        batch.set_seqno(seqno);
        batch
    }

    fn seqnos(fs: &TestFs, expect_clean_len: Option<u64>) -> Result<(Vec<u64>, LogEnd)> {
        let mut seen = Vec::new();
        let end = replay(fs, Path::new("d"), 5, expect_clean_len, |batch| {
            seen.push(batch.seqno());
            Ok(())
        })?;
        Ok((seen, end))
    }

    fn is_corrupt<T>(outcome: Result<T>) -> bool {
        outcome.is_err_and(|e| e.kind() == ErrorKind::Corruption && e.path() == Some(Path::new(PATH)))
    }

    #[test]
    fn a_closed_log_replays_whole_and_knows_its_predecessor() {
        let fs = TestFs::default();
        let mut log = create(&fs, 0);
        log.append([&batch(1), &batch(2)]).unwrap();
        log.append([&batch(3)]).unwrap();
        assert_eq!(fs.calls("append"), 3, "the header and one append per group");
        let len = log.close().unwrap();
        let (seen, end) = seqnos(&fs, Some(len)).unwrap();
        assert_eq!(seen, [1, 2, 3]);
        assert_eq!(
            end,
            LogEnd { clean: true, predecessor: Some(3), valid_len: len, promised_len: end.promised_len, torn_at: None }
        );
        assert!(is_corrupt(seqnos(&fs, Some(len - 1))));
    }

    #[test]
    fn the_entry_of_a_log_is_durable_once_it_is_created() {
        let fs = TestFs::default();
        create(&fs, 1 << 16);
        assert_eq!(fs.all_calls(), ["create 000005.log", "allocate 000005.log", "append 000005.log", "sync_dir d"]);
        let taken = LogWriter::create(&fs, Path::new("d"), 5, 0, None);
        assert!(taken.is_err(), "a log is never opened over an existing file");
    }

    #[test]
    fn a_log_that_was_not_closed_ends_where_its_batches_do() {
        let fs = TestFs::default();
        let mut log = create(&fs, 1 << 16);
        log.append([&batch(1)]).unwrap();
        let len = log.len();
        log.append([&batch(2)]).unwrap();
        let (seen, end) = seqnos(&fs, None).unwrap();
        assert_eq!(seen, [1, 2]);
        assert_eq!((end.clean, end.valid_len, end.torn_at), (false, log.len(), None));
        let mut bytes = fs.bytes(PATH);
        bytes.truncate(len as usize + 10);
        fs.put(PATH, &bytes);
        let (seen, end) = seqnos(&fs, None).unwrap();
        assert_eq!(seen, [1]);
        assert_eq!((end.valid_len, end.torn_at), (len, Some(len)));
        assert!(is_corrupt(seqnos(&fs, Some(log.len()))), "the manifest says it was closed");
    }

    #[test]
    fn a_log_closed_in_reserved_space_is_clean_before_its_rest_is_cut_off() {
        let fs = TestFs::default();
        let mut log = create(&fs, 1 << 12);
        log.append([&batch(1)]).unwrap();
        let len = log.close().unwrap();
        let mut bytes = fs.bytes(PATH);
        assert_eq!(bytes.len() as u64, len);
        bytes.resize(1 << 12, 0);
        fs.put(PATH, &bytes);
        assert!(seqnos(&fs, Some(len)).unwrap().1.clean);
    }

    #[test]
    fn damage_below_a_promised_sync_refuses() {
        let fs = TestFs::default();
        let mut log = create(&fs, 0);
        log.append([&batch(1)]).unwrap();
        let first = log.len() as usize;
        log.append([&batch(2)]).unwrap();
        log.sync().unwrap();
        assert_eq!(log.synced_offset(), log.len());
        log.append([&batch(3)]).unwrap();
        let mut bytes = fs.bytes(PATH);
        bytes[first + 30] ^= 1;
        fs.put(PATH, &bytes);
        let error = seqnos(&fs, None).unwrap_err();
        assert_eq!(error.offset(), Some(first as u64));
        assert!(is_corrupt(Err::<(), _>(error)));
    }

    #[test]
    fn a_log_that_breaks_off_before_its_header_is_empty() {
        let fs = TestFs::default();
        fs.put(PATH, b"");
        assert_eq!(seqnos(&fs, None).unwrap().1.predecessor, None);
        create_elsewhere_and_cut(&fs, 10);
        let (seen, end) = seqnos(&fs, None).unwrap();
        assert!(seen.is_empty());
        assert_eq!((end.valid_len, end.torn_at), (0, Some(0)));
    }

    fn create_elsewhere_and_cut(fs: &TestFs, len: usize) {
        let other = TestFs::default();
        create(&other, 0);
        fs.put(PATH, &other.bytes(PATH)[..len]);
    }

    #[test]
    fn records_that_are_no_header_and_no_batch_are_refused_with_their_offset() {
        for (records, kind, offset) in [
            (vec![&b"\x01\0\0\0\0\0\0\0\0\0\0\0"[..]], ErrorKind::Unsupported, 0),
            (vec![&[0; 13]], ErrorKind::Corruption, 0),
            (vec![&[0; 12], b"no batch"], ErrorKind::Corruption, 31),
        ] {
            let fs = TestFs::default();
            let mut log = writer(&fs, PATH, 5);
            records.iter().for_each(|record| log.add_record(record));
            log.flush().unwrap();
            let error = seqnos(&fs, None).unwrap_err();
            assert_eq!((error.kind(), error.offset()), (kind, Some(offset)));
        }
    }

    #[test]
    fn what_the_visitor_refuses_stops_the_replay() {
        let fs = TestFs::default();
        create(&fs, 0).append([&batch(1), &batch(2)]).unwrap();
        let outcome = replay(&fs, Path::new("d"), 5, None, |_| Err(Error::invalid_argument("enough")));
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::InvalidArgument);
        let missing = replay(&fs, Path::new("d"), 6, None, |_| Ok(()));
        assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
    }
}
