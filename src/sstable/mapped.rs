//! Data blocks read through a map of the file: no copy, no cache, and each block's checksum verified once.
//!
//! The only `unsafe` of the tables is the call that makes the map.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]
#![allow(unsafe_code)]

use crate::block::{Block, BlockHandle, is_compressed, open_stored, verify_stored};
use crate::error::{Error, Result};
use crate::sstable::reader::checked_block;
use crate::sync::{AtomicU64, Ordering};
use crate::value::SharedBytes;
use crate::vfs::{Context, MappedBytes, RandomAccessFile};
use std::path::Path;

/// A map of a whole table, and which of its data blocks have been found good.
pub(super) struct Mapped {
    bytes: MappedBytes,
    verified: Box<[AtomicU64]>,
}

impl Mapped {
    pub(super) fn new(file: &dyn RandomAccessFile, path: &Path, blocks: usize) -> Result<Self> {
        // SAFETY: whoever chose the read mode `mmap` through its unsafe constructor promised what `map` asks for: that
        // nobody changes or shortens the database's files while they are open. The engine itself never does: a table
        // is never written after its final sync.
        let bytes = unsafe { file.map() }.context_of_named("map", path)?;
        let words = blocks.div_ceil(64);
        Ok(Mapped { bytes, verified: std::iter::repeat_with(|| AtomicU64::new(0)).take(words).collect() })
    }

    /// The data block `number` in place, if it is stored plain.
    pub(super) fn plain_block(&self, number: usize, handle: BlockHandle, table_id: u64) -> Result<Option<Block>> {
        let stored = self.stored(handle)?;
        if is_compressed(&stored)? {
            return Ok(None);
        }
        if self.is_verified(number) {
            return Block::parse(open_stored(stored)?).map(Some);
        }
        verify_stored(&stored, table_id, handle.offset)?;
        let block = checked_block(open_stored(stored)?)?;
        self.set_verified(number);
        Ok(Some(block))
    }

    /// The raw bytes of a block that is stored compressed, verified each time: the caller caches them.
    pub(super) fn open_compressed(&self, handle: BlockHandle, table_id: u64) -> Result<SharedBytes> {
        let stored = self.stored(handle)?;
        verify_stored(&stored, table_id, handle.offset)?;
        open_stored(stored)
    }

    /// Payload and trailer in place.
    fn stored(&self, handle: BlockHandle) -> Result<SharedBytes> {
        let range = || {
            let start = usize::try_from(handle.offset).ok()?;
            SharedBytes::of_map(self.bytes.clone(), start..usize::try_from(handle.end()?).ok()?)
        };
        range().ok_or_else(|| Error::corruption("the mapped file ends before the block does"))
    }

    /// Relaxed both ways: a bit only says that immutable bytes were good, and nothing is published with it.
    fn is_verified(&self, number: usize) -> bool {
        let word = self.verified.get(number / 64);
        word.is_some_and(|word| word.load(Ordering::Relaxed) & (1 << (number % 64)) != 0)
    }

    fn set_verified(&self, number: usize) {
        if let Some(word) = self.verified.get(number / 64) {
            word.fetch_or(1 << (number % 64), Ordering::Relaxed);
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.verified.len().saturating_mul(8)
    }
}
