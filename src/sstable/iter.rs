//! [`TableIter`]: a cursor over a table, in both directions.
//!
//! Where it goes from one block to the next it checks that the keys go on in order: a table whose blocks were shuffled
//! is reported, not merged.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use crate::block::{Block, BlockHandle, BlockIter, open_stored, read_exact, verify_stored};
use crate::error::{Error, Result};
use crate::iter::InternalIterator;
use crate::key::{InternalKey, InternalKeyBuf, Tag};
use crate::sstable::reader::{Table, checked_block};
use crate::sync::Arc;
use crate::value::SharedBytes;

/// What a cursor is for, which decides where its blocks come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A user's scan: through the map or the cache, which new blocks enter if `fill_cache` is set.
    #[cfg_attr(not(test), allow(dead_code, reason = "what users' cursors will read with"))]
    Read { fill_cache: bool },
    /// One pass over everything: large reads of its own, the cache left alone.
    Compaction,
}

/// One read of this size is as good as many small ones to a disk, and still fits the processor's second-level cache.
const READ_AHEAD_BYTES: u64 = 256 << 10;

/// A cursor that keeps its table open.
pub(crate) struct TableIter {
    table: Arc<Table>,
    purpose: Purpose,
    ahead: ReadAhead,
    /// The number of the block that `block` stands in. None before the first seek.
    loaded: Option<usize>,
    block: BlockIter,
    /// The key that stood at the edge of the block left last.
    edge: InternalKeyBuf,
    failed: Option<Error>,
}

/// A large buffer of the file from which blocks are cut, sharing it.
#[derive(Default)]
pub(super) struct ReadAhead {
    start: u64,
    buffer: Option<SharedBytes>,
}

impl ReadAhead {
    /// The verified data block at `handle`. What follows it is read along with it.
    pub(super) fn block(&mut self, table: &Table, handle: BlockHandle) -> Result<Block> {
        let table_id = table.source.identity.table_id;
        let stored = self.stored(table, handle)?;
        let opened = verify_stored(&stored, table_id, handle.offset).and_then(|()| open_stored(stored));
        table.located(handle, opened.and_then(checked_block))
    }

    fn stored(&mut self, table: &Table, handle: BlockHandle) -> Result<SharedBytes> {
        let limit = table.source.limit();
        let len = table.located(handle, handle.checked_within(limit))?;
        if let Some(stored) = self.cut(handle.offset, len) {
            return Ok(stored);
        }
        let data_end = table.index.len().checked_sub(1).map(|last| table.handle(last)).transpose()?;
        let data_end = data_end.and_then(BlockHandle::end).unwrap_or(limit);
        let useful = data_end.saturating_sub(handle.offset).min(READ_AHEAD_BYTES);
        let wanted = usize::try_from(useful).unwrap_or(len).max(len);
        self.buffer = Some(read_exact(&*table.source.file, &table.source.path, handle.offset, wanted)?);
        self.start = handle.offset;
        self.cut(handle.offset, len).ok_or_else(|| Error::corruption("read-ahead is shorter than a block"))
    }

    fn cut(&self, offset: u64, len: usize) -> Option<SharedBytes> {
        let start = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        self.buffer.as_ref()?.slice(start..start.checked_add(len)?)
    }
}

impl TableIter {
    pub(super) fn new(table: Arc<Table>, purpose: Purpose) -> Self {
        TableIter {
            table,
            purpose,
            ahead: ReadAhead::default(),
            loaded: None,
            block: BlockIter::new(Block::empty()),
            edge: InternalKeyBuf { user_key: Vec::new(), tag: Tag(0) },
            failed: None,
        }
    }

    /// Stands on the last entry.
    #[cfg_attr(not(test), allow(dead_code, reason = "what reverse cursors will stand on"))]
    pub(crate) fn seek_to_last(&mut self) -> Result<bool> {
        self.failed = None;
        let found = self.last();
        self.settle(found)
    }

    /// Moves back. Only while valid.
    #[cfg_attr(not(test), allow(dead_code, reason = "what reverse cursors will stand on"))]
    pub(crate) fn prev(&mut self) -> Result<bool> {
        self.step(BlockIter::prev, Self::previous_block)
    }

    fn first(&mut self) -> Result<bool> {
        if self.table.index.len() == 0 {
            return Ok(false);
        }
        self.load(0)?;
        self.block.seek_to_first()
    }

    #[cfg_attr(not(test), allow(dead_code, reason = "what reverse cursors will stand on"))]
    fn last(&mut self) -> Result<bool> {
        let Some(last) = self.table.index.len().checked_sub(1) else { return Ok(false) };
        self.load(last)?;
        self.block.seek_to_last()
    }

    #[cfg_attr(not(test), allow(dead_code, reason = "what reverse cursors will stand on"))]
    fn at_or_after(&mut self, target: InternalKey<'_>) -> Result<bool> {
        let Some(number) = self.table.index.find(target.user_key) else {
            self.loaded = None;
            return Ok(false);
        };
        self.load(number)?;
        if self.block.seek(target)? {
            return Ok(true);
        }
        // Newer versions of the key fill the end of this block, or the key lies between two blocks. Blocks that hold
        // nothing but newer versions are passed.
        while self.next_block()? {
            if self.block.key() >= target || self.block.seek(target)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn step(
        &mut self,
        within: impl FnOnce(&mut BlockIter) -> Result<bool>,
        beyond: impl FnOnce(&mut Self) -> Result<bool>,
    ) -> Result<bool> {
        if !self.valid() {
            return self.failed.clone().map_or(Ok(false), Err);
        }
        match within(&mut self.block) {
            Ok(true) => Ok(true),
            Ok(false) => {
                let found = beyond(self);
                self.settle(found)
            }
            failed => self.settle(failed),
        }
    }

    /// Stands on the first entry of the next block, whose predecessor was seen to its end.
    fn next_block(&mut self) -> Result<bool> {
        let Some(next) = self.loaded.and_then(|n| n.checked_add(1)).filter(|&n| n < self.table.index.len()) else {
            return Ok(false);
        };
        self.remember_edge();
        self.load(next)?;
        let found = self.block.seek_to_first()?;
        self.check_order(found && self.edge.as_ref() < self.block.key())
    }

    /// Stands on the last entry of the previous block, whose successor was seen from its beginning.
    #[cfg_attr(not(test), allow(dead_code, reason = "what reverse cursors will stand on"))]
    fn previous_block(&mut self) -> Result<bool> {
        let Some(previous) = self.loaded.and_then(|n| n.checked_sub(1)) else { return Ok(false) };
        self.remember_edge();
        self.load(previous)?;
        let found = self.block.seek_to_last()?;
        self.check_order(found && self.block.key() < self.edge.as_ref())
    }

    fn remember_edge(&mut self) {
        let last = self.block.last_seen();
        self.edge.user_key.clear();
        self.edge.user_key.extend_from_slice(last.user_key);
        self.edge.tag = last.tag;
    }

    fn check_order(&self, in_order: bool) -> Result<bool> {
        if in_order {
            return Ok(true);
        }
        Err(Error::corruption(
            "the keys of two neighbouring data blocks are out of order; restore the file from a backup",
        ))
    }

    fn load(&mut self, number: usize) -> Result<()> {
        if self.loaded == Some(number) {
            return Ok(());
        }
        self.loaded = None;
        let handle = self.table.handle(number)?;
        let block = match self.purpose {
            Purpose::Read { fill_cache } => self.table.block(number, handle, fill_cache)?.0,
            Purpose::Compaction => self.ahead.block(&self.table, handle)?,
        };
        self.block.set_block(block);
        self.loaded = Some(number);
        Ok(())
    }

    /// Keeps an error until the next seek, and says where it was met.
    fn settle(&mut self, outcome: Result<bool>) -> Result<bool> {
        let outcome = match (outcome, self.loaded.and_then(|number| self.table.handle(number).ok())) {
            (Err(e), Some(handle)) => self.table.located(handle, Err(e)),
            (Err(e), None) => Err(e.in_file(&self.table.source.path)),
            (ok, _) => ok,
        };
        self.failed = outcome.as_ref().err().cloned();
        outcome
    }
}

impl InternalIterator for TableIter {
    fn seek_to_first(&mut self) -> Result<bool> {
        self.failed = None;
        let found = self.first();
        self.settle(found)
    }

    fn seek(&mut self, target: InternalKey<'_>) -> Result<bool> {
        self.failed = None;
        let found = self.at_or_after(target);
        self.settle(found)
    }

    #[inline]
    fn next(&mut self) -> Result<bool> {
        self.step(BlockIter::next, Self::next_block)
    }

    fn valid(&self) -> bool {
        self.loaded.is_some() && self.failed.is_none() && self.block.valid()
    }

    fn key(&self) -> InternalKey<'_> {
        self.block.key()
    }

    fn value(&self) -> &[u8] {
        self.block.value()
    }
}
