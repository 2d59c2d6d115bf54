//! Writes records: encodes them into memory, hands them to the operating system in one append, syncs.
//!
//! Use: `(add_record* flush | sync)* close`. The first append, sync or close that fails is final: every later call
//! returns that same error and does not touch the file, for a failed sync may have dropped what it could not write, and
//! whatever is appended behind a torn record is unreadable.

use crate::error::{Error, Result};
use crate::filename::FileNumber;
use crate::record::{BLOCK_BYTES, CLEAN_CLOSE, FIRST, FULL, HEADER_BYTES, LAST, MIDDLE, chunk_checksum, log_number_of};
use crate::vfs::{Context, SyncHandle, WritableFile};
use std::io;
use std::path::{Path, PathBuf};

/// What the buffer may keep between flushes: one large batch must not hold its size for ever.
const KEPT_BUFFER_BYTES: usize = 1 << 20;

/// The writing end of a file of records.
#[derive(Debug)]
pub(crate) struct RecordWriter {
    file: Box<dyn WritableFile>,
    path: PathBuf,
    log_number: u32,
    /// Encoded chunks that the operating system has not got yet.
    buffer: Vec<u8>,
    /// Bytes handed to the operating system.
    written: u64,
    /// What new chunks promise: bytes known to be durable.
    synced: u64,
    failed: Option<Error>,
}

impl RecordWriter {
    /// Over a new, empty file. `number` is the file's number.
    pub(crate) fn new(file: Box<dyn WritableFile>, path: PathBuf, number: FileNumber) -> Self {
        let log_number = log_number_of(number);
        RecordWriter { file, path, log_number, buffer: Vec::new(), written: 0, synced: 0, failed: None }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Encodes a record. It reaches the file with the next [`flush`](Self::flush).
    pub(crate) fn add_record(&mut self, payload: &[u8]) {
        self.add_record_parts(&[payload]);
    }

    /// Encodes one record whose payload is `parts` joined.
    pub(crate) fn add_record_parts(&mut self, parts: &[&[u8]]) {
        if self.failed.is_some() {
            return;
        }
        let mut left: usize = parts.iter().map(|part| part.len()).sum();
        let mut parts = parts.iter().copied();
        let mut part: &[u8] = &[];
        let mut is_first = true;
        loop {
            let taken = left.min(self.room_in_block());
            left -= taken;
            let kind = match (is_first, left == 0) {
                (true, true) => FULL,
                (true, false) => FIRST,
                (false, false) => MIDDLE,
                (false, true) => LAST,
            };
            self.put_chunk(kind, taken, |buffer| {
                let mut missing = taken;
                while missing > 0 {
                    if part.is_empty() {
                        part = parts.next().unwrap_or_default();
                        continue;
                    }
                    let (now, later) = part.split_at(missing.min(part.len()));
                    buffer.extend_from_slice(now);
                    missing -= now.len();
                    part = later;
                }
            });
            is_first = false;
            if left == 0 {
                return;
            }
        }
    }

    /// How much payload fits the rest of this block; a rest without room for a header is filled with zeros first.
    fn room_in_block(&mut self) -> usize {
        let used = (self.len() % BLOCK_BYTES as u64) as usize;
        let left = BLOCK_BYTES - used;
        if left >= HEADER_BYTES {
            return left - HEADER_BYTES;
        }
        self.buffer.resize(self.buffer.len() + left, 0);
        BLOCK_BYTES - HEADER_BYTES
    }

    fn put_chunk(&mut self, kind: u8, length: usize, put_payload: impl FnOnce(&mut Vec<u8>)) {
        let offset = self.len();
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; 4]);
        // A chunk is shorter than a block, so its length fits.
        self.buffer.extend_from_slice(&(length as u16).to_le_bytes());
        self.buffer.push(kind);
        self.buffer.extend_from_slice(&self.log_number.to_le_bytes());
        self.buffer.extend_from_slice(&self.synced.to_le_bytes());
        put_payload(&mut self.buffer);
        let crc = chunk_checksum(offset, &self.buffer[start + 4..]);
        self.buffer[start..start + 4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Hands every record added so far to the operating system, in one append. They are safe from a crash of the process
    /// when this returns.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.check()?;
        if self.buffer.is_empty() {
            return Ok(());
        }
        let appended = self.file.append(&self.buffer);
        self.latch("append to", appended)?;
        self.written = self.len();
        self.buffer.clear();
        self.buffer.shrink_to(KEPT_BUFFER_BYTES);
        Ok(())
    }

    /// Flushes and syncs. Every record added so far is safe from a power cut when this returns, if the file's entry is;
    /// later chunks promise it.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.flush()?;
        let flushed = self.written;
        let synced = self.file.sync();
        self.latch("sync", synced)?;
        self.synced = flushed;
        Ok(())
    }

    /// Another thread synced through a [`SyncHandle`] when [`flushed_len`](Self::flushed_len) was `offset`: later chunks
    /// promise it.
    pub(crate) fn set_synced_offset(&mut self, offset: u64) {
        self.synced = self.synced.max(offset.min(self.written));
    }

    /// Another thread's sync failed: the file is finished here, too.
    pub(crate) fn fail(&mut self, error: &Error) {
        self.failed.get_or_insert_with(|| error.clone());
    }

    /// The length of the file once everything is flushed.
    pub(crate) fn len(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Heap bytes of the buffer.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    /// Bytes handed to the operating system.
    pub(crate) fn flushed_len(&self) -> u64 {
        self.written
    }

    /// Bytes known to be durable.
    pub(crate) fn synced_offset(&self) -> u64 {
        self.synced
    }

    /// A second handle that only syncs.
    pub(crate) fn sync_handle(&self) -> Result<Box<dyn SyncHandle>> {
        self.check()?;
        self.file.sync_handle().context("open a second handle to sync", &self.path)
    }

    /// Syncs, ends the file with a clean-close chunk, syncs that and closes. Returns the final length. All of the file is
    /// durable when this returns, and a reader can tell that it is whole.
    pub(crate) fn close(mut self) -> Result<u64> {
        self.sync()?;
        self.room_in_block();
        self.put_chunk(CLEAN_CLOSE, 0, |_| ());
        self.sync()?;
        let RecordWriter { file, path, written, .. } = self;
        file.close().context("close", &path)?;
        Ok(written)
    }

    fn check(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn latch(&mut self, operation: &str, outcome: io::Result<()>) -> Result<()> {
        let outcome = outcome.context(operation, &self.path);
        if let Err(error) = &outcome {
            self.failed = Some(error.clone());
            self.buffer = Vec::new();
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::record::testing::{TestFs, writer};

    /// Checked against zlib's CRC-32 by hand: the offset as u64, then everything after the checksum field.
    #[test]
    fn golden_bytes() {
        let fs = TestFs::default();
        let mut records = writer(&fs, "d/000007.log", 7);
        records.add_record(b"abc");
        records.sync().unwrap();
        assert_eq!(records.close().unwrap(), 41);
        let mut expected = Vec::new();
        expected.extend_from_slice(&GOLDEN_CRC_1.to_le_bytes());
        expected.extend_from_slice(&[3, 0, 1, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend_from_slice(b"abc");
        expected.extend_from_slice(&GOLDEN_CRC_2.to_le_bytes());
        expected.extend_from_slice(&[0, 0, 5, 7, 0, 0, 0, 22, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(fs.bytes("d/000007.log"), expected);
    }

    const GOLDEN_CRC_1: u32 = 0x6c9a_5fa4;
    const GOLDEN_CRC_2: u32 = 0x0707_85cf;

    #[test]
    fn records_reach_the_file_with_the_flush_and_in_one_append() {
        let fs = TestFs::default();
        let mut records = writer(&fs, "d/000001.log", 1);
        records.add_record(&[1; 40_000]);
        records.add_record_parts(&[b"a", b"", b"bc"]);
        assert!(fs.bytes("d/000001.log").is_empty());
        records.flush().unwrap();
        assert_eq!(fs.bytes("d/000001.log").len() as u64, records.len());
        assert_eq!(fs.calls("append"), 1);
        assert_eq!(records.synced_offset(), 0);
    }

    #[test]
    fn the_first_failure_is_final_and_the_file_is_left_alone() {
        for operation in ["append", "sync"] {
            let fs = TestFs::default();
            let mut records = writer(&fs, "d/000001.log", 1);
            records.add_record(b"a");
            fs.fail_next(operation);
            let first = records.sync().unwrap_err();
            assert_eq!(first.kind(), ErrorKind::NoSpace);
            let calls = fs.all_calls();
            records.add_record(b"b");
            assert_eq!(records.flush().unwrap_err().to_string(), first.to_string());
            assert_eq!(records.sync().unwrap_err().to_string(), first.to_string());
            assert!(records.sync_handle().is_err());
            assert_eq!(records.close().unwrap_err().to_string(), first.to_string());
            assert_eq!(fs.all_calls(), calls, "{operation}");
        }
    }

    #[test]
    fn a_failed_sync_of_another_thread_and_a_failed_close_are_told() {
        let fs = TestFs::default();
        let mut records = writer(&fs, "d/000001.log", 1);
        records.fail(&Error::corruption("sync failed elsewhere"));
        assert_eq!(records.flush().unwrap_err().to_string(), "sync failed elsewhere");
        let records = writer(&fs, "d/000002.log", 2);
        fs.fail_next("close");
        assert_eq!(records.close().unwrap_err().kind(), ErrorKind::NoSpace);
    }

    #[test]
    fn a_sync_by_another_thread_raises_the_promise_but_never_beyond_what_was_flushed() {
        let fs = TestFs::default();
        let mut records = writer(&fs, "d/000001.log", 1);
        records.add_record(b"a");
        records.flush().unwrap();
        let handle = records.sync_handle().unwrap();
        handle.sync().unwrap();
        records.set_synced_offset(records.flushed_len());
        assert_eq!(records.synced_offset(), 20);
        records.set_synced_offset(5);
        records.set_synced_offset(1000);
        assert_eq!(records.synced_offset(), 20);
    }
}
