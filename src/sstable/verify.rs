//! `Table::verify`: reads every byte of a table again and believes nothing that was read before.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use crate::block::{Block, BlockAnswer, BlockHandle, BlockIter, read_exact};
use crate::error::{Error, Result};
use crate::filter::{Filter, FilterUnusable};
use crate::hash::HashKey;
use crate::iter::InternalIterator;
use crate::key::{InternalKey, InternalKeyBuf, MAX_SEQNO, ValueKind};
use crate::sstable::index::Index;
use crate::sstable::iter::ReadAhead;
use crate::sstable::metaindex::{FILTER, INDEX, PROPERTIES};
use crate::sstable::properties::Properties;
use crate::sstable::reader::Table;
use std::cmp::Ordering;

/// What `verify` found in a table that is not corrupt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VerifyReport {
    pub(crate) entries: u64,
    /// Data blocks.
    pub(crate) blocks: u64,
    /// The file's length: all of it was read.
    pub(crate) bytes: u64,
    /// Keys of the table that its filter denies. Anything but 0 loses data.
    pub(crate) filter_false_negatives: u64,
    /// Why the filter, if one was built, cannot be used.
    pub(crate) filter_unusable: Option<FilterUnusable>,
}

/// Padding is read in parts of this size.
const PADDING_PART_BYTES: u64 = 64 << 10;

impl Table {
    /// Reads every block and everything between them; checks checksums, order, bounds, separators, hash indexes and
    /// counts; asks the filter for every key. A bad filter is reported, anything else that is wrong is an error.
    pub(crate) fn verify(&self, hash_key: &HashKey) -> Result<VerifyReport> {
        let source = &self.source;
        let (metaindex_handle, metaindex) = source.read_metaindex()?;
        let limit = source.limit();
        let index = source.decode(metaindex.require(INDEX)?, |bytes| Index::parse(bytes, limit))?;
        let properties = source.decode(metaindex.require(PROPERTIES)?, |bytes| Properties::decode(&bytes))?;
        let (filter, filter_info) = source.read_filter(&metaindex);
        for handle in metaindex.handles().filter(|handle| metaindex.get(FILTER) != Some(*handle)) {
            source.read(handle)?;
        }

        let mut handles: Vec<BlockHandle> = metaindex.handles().chain([metaindex_handle]).collect();
        let mut walk =
            Walk { index: &index, filter: &filter, hash_key, last: None, found: Properties::default(), denied: 0 };
        walk.found.smallest_seqno = u64::MAX;
        let mut ahead = ReadAhead::default();
        for number in 0..index.len() {
            let handle = index.handle(number)?;
            handles.push(handle);
            let block = ahead.block(self, handle)?;
            self.located(handle, walk.block(number, handle, block))?;
        }
        self.check_padding(handles)?;
        let report = VerifyReport {
            entries: walk.found.entries,
            blocks: walk.found.data_blocks,
            bytes: source.identity.file_bytes,
            filter_false_negatives: walk.denied,
            filter_unusable: filter_info.err().flatten(),
        };
        walk.check_properties(&properties).map_err(|e| e.in_file(&source.path))?;
        Ok(report)
    }

    /// Blocks do not overlap, and what is between them is zero. A filter that lies nowhere has been reported already.
    fn check_padding(&self, mut handles: Vec<BlockHandle>) -> Result<()> {
        let limit = self.source.limit();
        handles.retain(|handle| handle.end().is_some_and(|end| end <= limit));
        handles.sort_by_key(|handle| handle.offset);
        let mut position = 0;
        for handle in handles {
            if handle.offset < position {
                return self.located(handle, Err(Error::corruption("two blocks of the table overlap")));
            }
            self.check_zeros(position, handle.offset)?;
            position = handle.end().unwrap_or(limit);
        }
        self.check_zeros(position, limit)
    }

    fn check_zeros(&self, mut start: u64, end: u64) -> Result<()> {
        while start < end {
            let part = end.saturating_sub(start).min(PADDING_PART_BYTES);
            let len = usize::try_from(part).unwrap_or(0);
            let bytes = read_exact(&*self.source.file, &self.source.path, start, len)?;
            if bytes.iter().any(|&byte| byte != 0) {
                let error = Error::corruption("bytes between blocks are not zero: the file is damaged");
                return Err(error.in_file(&self.source.path).at(start));
            }
            start = start.saturating_add(part);
        }
        Ok(())
    }
}

/// One walk over all entries, counting what the properties claim.
struct Walk<'a> {
    index: &'a Index,
    filter: &'a Filter,
    hash_key: &'a HashKey,
    last: Option<InternalKeyBuf>,
    found: Properties,
    denied: u64,
}

impl Walk<'_> {
    fn block(&mut self, number: usize, handle: BlockHandle, block: Block) -> Result<()> {
        self.found.data_blocks = self.found.data_blocks.saturating_add(1);
        self.found.data_bytes = self.found.data_bytes.saturating_add(handle.stored_bytes());
        let mut iter = BlockIter::new(block.clone());
        let mut more = iter.seek_to_first()?;
        while more {
            self.entry(number, &block, iter.key(), iter.value())?;
            more = iter.next()?;
        }
        Ok(())
    }

    fn entry(&mut self, number: usize, block: &Block, key: InternalKey<'_>, value: &[u8]) -> Result<()> {
        self.check_place(number, key)?;
        let is_new_key = self.last.as_ref().is_none_or(|last| last.user_key != key.user_key);
        if is_new_key {
            self.found.distinct_user_keys = self.found.distinct_user_keys.saturating_add(1);
            let denied = !self.filter.may_contain(self.hash_key.hash(key.user_key));
            self.denied = self.denied.saturating_add(u64::from(denied));
        }
        if block.has_hash_index() && !matches!(block.get(key.user_key, MAX_SEQNO)?, BlockAnswer::Found { .. }) {
            return Err(Error::corruption("a block's hash index denies one of its keys"));
        }
        self.count(key, value)?;
        match &mut self.last {
            Some(last) => {
                last.user_key.clear();
                last.user_key.extend_from_slice(key.user_key);
                last.tag = key.tag;
            }
            None => self.last = Some(key.to_owned()),
        }
        Ok(())
    }

    /// Above the entry before, at or below the separator of its block, above that of the block before (or equal, where
    /// versions of one key go on).
    fn check_place(&self, number: usize, key: InternalKey<'_>) -> Result<()> {
        let ascends = self.last.as_ref().is_none_or(|last| last.as_ref() < key);
        let below = self.index.compare_to_separator(key.user_key, number) != Ordering::Greater;
        let above =
            number.checked_sub(1).is_none_or(|before| match self.index.compare_to_separator(key.user_key, before) {
                Ordering::Greater => true,
                Ordering::Equal => self.last.as_ref().is_some_and(|last| last.user_key == key.user_key),
                Ordering::Less => false,
            });
        if ascends && below && above {
            return Ok(());
        }
        Err(Error::corruption(format!("{key:?} is out of order, or in a block where the index does not look for it")))
    }

    fn count(&mut self, key: InternalKey<'_>, value: &[u8]) -> Result<()> {
        let is_tombstone = key.tag.kind()? == ValueKind::Delete;
        let found = &mut self.found;
        found.entries = found.entries.saturating_add(1);
        found.tombstones = found.tombstones.saturating_add(u64::from(is_tombstone));
        found.raw_key_bytes = found.raw_key_bytes.saturating_add(key.user_key.len() as u64);
        found.raw_value_bytes = found.raw_value_bytes.saturating_add(value.len() as u64);
        found.smallest_seqno = found.smallest_seqno.min(key.tag.seqno());
        found.largest_seqno = found.largest_seqno.max(key.tag.seqno());
        found.smallest.get_or_insert_with(|| key.to_owned());
        Ok(())
    }

    fn check_properties(mut self, stored: &Properties) -> Result<()> {
        self.found.largest = self.last.take();
        if self.found.entries == 0 {
            self.found.smallest_seqno = 0;
        }
        let found = &self.found;
        let same_bounds = found.smallest == stored.smallest && found.largest == stored.largest;
        let counts = |p: &Properties| {
            [
                ("entries", p.entries),
                ("distinct user keys", p.distinct_user_keys),
                ("tombstones", p.tombstones),
                ("smallest sequence number", p.smallest_seqno),
                ("largest sequence number", p.largest_seqno),
                ("key bytes", p.raw_key_bytes),
                ("value bytes", p.raw_value_bytes),
                ("data bytes", p.data_bytes),
                ("data blocks", p.data_blocks),
            ]
        };
        let differing = counts(found).into_iter().zip(counts(stored)).find(|(found, stored)| found != stored);
        match differing {
            Some(((what, found), (_, stored))) => {
                Err(Error::corruption(format!("the table holds {found} as its {what}, its properties say {stored}")))
            }
            None if !same_bounds => Err(Error::corruption("the table's bounds are not those of its entries")),
            None => Ok(()),
        }
    }
}
