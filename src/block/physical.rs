//! A block as it lies in a table: its payload, and a trailer that says what the payload is and proves that it is this
//! block of this table.
//!
//! ```text
//! payload                     handle.len bytes
//! codec      u8               0 none, 1 lz4, 2 zstd
//! checksum   u32              masked CRC-32 of (table id u64, offset u64, payload, codec)
//! ```
//!
//! Table id and offset are in the checksum but not in the bytes: a block that lies in another place, or in another
//! table, fails like a damaged one.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use crate::block::compression::{Compression, decompress};
use crate::block::filled;
use crate::checksum::Checksum;
use crate::coding::{Decoder, put_u32, put_varint};
use crate::error::{Error, Result};
use crate::value::SharedBytes;
use crate::vfs::{Context, RandomAccessFile};
use std::path::Path;

/// Codec and checksum.
pub(crate) const TRAILER_BYTES: usize = 5;

/// Where a block's payload lies in its file; the trailer follows it and is not counted in `len`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHandle {
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl BlockHandle {
    /// Appends offset and length as varints.
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        put_varint(out, self.offset);
        put_varint(out, self.len);
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Self> {
        let offset = decoder.varint("offset of a block handle")?;
        let len = decoder.varint("length of a block handle")?;
        Ok(BlockHandle { offset, len })
    }

    /// The offset after the trailer. None over 64 bits.
    pub(crate) fn end(self) -> Option<u64> {
        self.offset.checked_add(self.len)?.checked_add(TRAILER_BYTES as u64)
    }

    /// Bytes on disk, trailer included.
    pub(crate) fn stored_bytes(self) -> u64 {
        self.len.saturating_add(TRAILER_BYTES as u64)
    }

    /// The bytes on disk as a length, once it is certain that the block ends at or before `limit`.
    pub(crate) fn checked_within(self, limit: u64) -> Result<usize> {
        let within = self.end().is_some_and(|end| end <= limit);
        let stored = usize::try_from(self.stored_bytes()).ok().filter(|_| within);
        stored.ok_or_else(|| {
            Error::corruption(format!("a block of {} bytes would end after byte {limit}, where blocks end", self.len))
                .at(self.offset)
        })
    }
}

/// Appends payload and trailer of the block that will lie at `offset`.
pub(crate) fn append_block(out: &mut Vec<u8>, table_id: u64, offset: u64, codec: Compression, payload: &[u8]) {
    out.extend_from_slice(payload);
    out.push(codec.codec());
    put_u32(out, block_checksum(table_id, offset, payload, codec.codec()));
}

fn block_checksum(table_id: u64, offset: u64, payload: &[u8], codec: u8) -> u32 {
    let mut sum = Checksum::for_block(table_id, offset);
    sum.update(payload);
    sum.update(&[codec]);
    sum.finish()
}

/// The parts of a stored block: payload, codec byte, checksum.
fn split(stored: &[u8]) -> Result<(&[u8], u8, u32)> {
    let (payload, trailer) = stored
        .len()
        .checked_sub(TRAILER_BYTES)
        .and_then(|len| stored.split_at_checked(len))
        .ok_or_else(|| Error::corruption("a block is shorter than its trailer"))?;
    let mut decoder = Decoder::new(trailer);
    Ok((payload, decoder.u8("codec")?, decoder.u32("block checksum")?))
}

/// Checks a stored block, trailer included, against its checksum.
pub(crate) fn verify_stored(stored: &[u8], table_id: u64, offset: u64) -> Result<()> {
    let (payload, codec, expected) = split(stored)?;
    let found = block_checksum(table_id, offset, payload, codec);
    if found == expected {
        return Ok(());
    }
    Err(Error::corruption(format!(
        "block checksum is {found:08x}, expected {expected:08x}: the block is damaged or lies in the wrong place; \
         restore the file from a backup"
    ))
    .at(offset))
}

/// Whether a stored block needs decoding before it can be used.
pub(crate) fn is_compressed(stored: &[u8]) -> Result<bool> {
    Ok(split(stored)?.1 != Compression::None.codec())
}

/// The raw bytes of a stored block whose checksum is right. Plain ones are shared, not copied.
pub(crate) fn open_stored(stored: SharedBytes) -> Result<SharedBytes> {
    let (payload, codec, _) = split(&stored)?;
    match Compression::from_codec(codec)? {
        Compression::None => {
            stored.slice(0..payload.len()).ok_or_else(|| Error::corruption("a block is shorter than its trailer"))
        }
        compression => decompress(compression, payload),
    }
}

/// Reads exactly `len` bytes; the caller has checked `len` against the file's length.
pub(crate) fn read_exact(file: &dyn RandomAccessFile, path: &Path, offset: u64, len: usize) -> Result<SharedBytes> {
    filled(len, |buffer| {
        let read = file.read_at(buffer, offset).context_of_named("read", path)?;
        if read == len {
            return Ok(());
        }
        Err(Error::corruption(format!("expected {len} bytes, the file ends after {read}")).in_file(path).at(offset))
    })
}

/// Reads, verifies and opens the block at `handle` with one positioned read. Blocks end at or before `limit`.
pub(crate) fn read_block(
    file: &dyn RandomAccessFile,
    path: &Path,
    table_id: u64,
    limit: u64,
    handle: BlockHandle,
) -> Result<SharedBytes> {
    let read = || {
        let stored = read_exact(file, path, handle.offset, handle.checked_within(limit)?)?;
        verify_stored(&stored, table_id, handle.offset)?;
        open_stored(stored)
    };
    read().map_err(|e| e.in_file(path).at(handle.offset))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;
    use crate::block::testing::MemoryFile;
    use crate::error::ErrorKind;

    fn stored() -> Vec<u8> {
        let mut out = vec![0; 3];
        append_block(&mut out, 0x1122, 3, Compression::None, b"payload");
        out
    }

    #[test]
    fn golden_bytes() {
        // The CRC-32 (by zlib) of table id 0x1122, offset 3, payload and codec, masked.
        assert_eq!(stored(), b"\0\0\0payload\0\x8d\xc5\x38\x53");
    }

    #[test]
    fn a_plain_block_is_shared_with_what_was_read() {
        let file = MemoryFile::new(stored());
        let handle = BlockHandle { offset: 3, len: 7 };
        let block = read_block(&*file, Path::new("t"), 0x1122, 15, handle).unwrap();
        assert_eq!(&*block, b"payload");
        assert_eq!(block.heap_bytes(), 7 + TRAILER_BYTES, "payload and trailer in one buffer");
        assert_eq!(file.reads(), 1);
    }

    #[test]
    fn wrong_table_wrong_place_and_every_flipped_bit_are_corruption() {
        let read = |bytes: Vec<u8>, id, offset| {
            read_block(&*MemoryFile::new(bytes), Path::new("t"), id, 100, BlockHandle { offset, len: 7 })
        };
        assert_eq!(read(stored(), 0x1123, 3).err().unwrap().kind(), ErrorKind::Corruption);
        let mut moved = vec![0];
        moved.extend(stored());
        assert_eq!(read(moved, 0x1122, 4).err().unwrap().kind(), ErrorKind::Corruption);
        for bit in 3 * 8..stored().len() * 8 {
            let mut bytes = stored();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let error = read(bytes, 0x1122, 3).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Corruption, "bit {bit}");
            assert_eq!((error.path(), error.offset()), (Some(Path::new("t")), Some(3)));
        }
    }

    #[test]
    fn a_handle_outside_the_file_is_refused_before_anything_is_read() {
        let file = MemoryFile::new(stored());
        for (offset, len) in [(3, 8), (u64::MAX, 7), (0, u64::MAX), (1 << 40, 1 << 40), (3, u64::MAX - 7)] {
            let error = read_block(&*file, Path::new("t"), 0x1122, 15, BlockHandle { offset, len }).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Corruption);
        }
        assert_eq!(file.reads(), 0);
    }

    #[test]
    fn a_file_that_ends_early_is_corruption() {
        let file = MemoryFile::new(stored()[..12].to_vec());
        let error = read_block(&*file, Path::new("t"), 0x1122, 15, BlockHandle { offset: 3, len: 7 }).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corruption);
    }
}
