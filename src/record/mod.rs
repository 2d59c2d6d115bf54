//! The framing that the log and the manifest share: records of any length in a file that is only ever appended to,
//! written so that a reader can tell a torn tail (cut it) from damage in data that was safe (refuse to open).
//!
//! A file is a row of blocks of 32 KiB. A record lies in one chunk, or is split over several; a chunk never crosses the
//! end of a block. What is left of a block and too short for a header is filled with zeros.
//!
//! ```text
//! block:   chunk | chunk | … | zeros (fewer than 19)
//!
//! chunk:   0        4        6      7             11                19
//!          +--------+--------+------+-------------+-----------------+---------+
//!          | crc    | length | type | log number  | promised synced | payload |
//!          | u32    | u16    | u8   | u32         | offset u64      | length  |
//!          +--------+--------+------+-------------+-----------------+---------+
//! ```
//!
//! - *crc*: masked CRC-32 over the chunk's offset in the file (u64), then everything after the field itself. The offset
//!   is not stored; with it, a chunk that was copied elsewhere (two blocks swapped, a log kept as a value inside a log)
//!   fails like a damaged one.
//! - *type*: 1 the whole record, 2 its first, 3 a middle, 4 its last chunk; 5 clean close; 0 never stands in a chunk:
//!   zeros are the unused end of a preallocated file.
//! - *log number*: the low bits of the file's number. Bytes of another file are not a part of this one.
//! - *promised synced offset*: the file was synced up to here before this chunk was written. It always is the end of a
//!   record, at or before the chunk's own record. So damage at an offset below any promise is not a torn write.
//! - *clean close*: an empty chunk, the last of the file, written after a sync; its promise is the end of the last record.

pub(crate) mod reader;
pub(crate) mod writer;

#[cfg(test)]
pub(crate) mod testing;

pub(crate) use reader::{End, RecordReader, Step};
pub(crate) use writer::RecordWriter;

use crate::checksum::Checksum;
use crate::error::{Error, ErrorKind, Result};
use crate::filename::FileNumber;
use crate::vfs::{Context, FileSystem};
use std::path::Path;

/// LevelDB's block size: one damaged length costs at most a block of resynchronisation.
pub(crate) const BLOCK_BYTES: usize = 32 * 1024;

/// crc 4, length 2, type 1, log number 4, promised offset 8.
pub(crate) const HEADER_BYTES: usize = 19;

const FULL: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;
const CLEAN_CLOSE: u8 = 5;

/// No file of records grows beyond this: a log is left once its memtable is full, and the batch that fills it is
/// smaller than 4 GiB.
const MAX_FILE_BYTES: u64 = 8 << 30;

/// The part of a file number that chunks carry.
fn log_number_of(number: FileNumber) -> u32 {
    (number & u64::from(u32::MAX)) as u32
}

/// The checksum of a chunk at `offset` whose bytes after the checksum field are `covered`.
fn chunk_checksum(offset: u64, covered: &[u8]) -> u32 {
    let mut checksum = Checksum::new();
    checksum.update(&offset.to_le_bytes());
    checksum.update(covered);
    checksum.finish()
}

/// Reads a whole file into memory. The length that the file system tells bounds it, and memory that is not there is an
/// error, not an abort.
pub(crate) fn read_whole(fs: &dyn FileSystem, path: &Path) -> Result<Vec<u8>> {
    let file = fs.open(path).context("open", path)?;
    let told = file.len().context("measure", path)?;
    let len = usize::try_from(told).ok().filter(|_| told <= MAX_FILE_BYTES).ok_or_else(|| {
        let message = format!("expected a file of at most {MAX_FILE_BYTES} bytes, found {told}; nothing was read");
        Error::corruption(message).in_file(path)
    })?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| {
        Error::new(ErrorKind::Io, format!("no memory to read {len} bytes; give the process more")).in_file(path)
    })?;
    bytes.resize(len, 0);
    let read = file.read_at(&mut bytes, 0).context("read", path)?;
    bytes.truncate(read);
    Ok(bytes)
}
