//! [`Table`]: an open table, and the point read in it.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use crate::block::{Block, BlockAnswer, BlockCache, BlockHandle, read_block, read_exact};
use crate::cache::CacheKey;
use crate::error::{Error, Result};
use crate::filter::{Filter, FilterInfo, FilterUnusable};
use crate::key::{PointAnswer, SeqNo};
use crate::sstable::PAGE_BYTES;
use crate::sstable::footer::{FOOTER_BYTES, Footer};
use crate::sstable::index::Index;
use crate::sstable::iter::{Purpose, TableIter};
use crate::sstable::mapped::Mapped;
use crate::sstable::metaindex::{FILTER, INDEX, Metaindex, PROPERTIES};
use crate::sstable::properties::Properties;
use crate::stats::{BlockSource, Placement, Recorder};
use crate::sync::Arc;
use crate::value::SharedBytes;
use crate::vfs::{Context, RandomAccessFile};
use std::path::{Path, PathBuf};

/// What the manifest says of a table's file. A file that is another table, or an older copy, does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableIdentity {
    pub(crate) table_id: u64,
    pub(crate) file_bytes: u64,
}

/// An immutable table, open for reading from several threads. Its filter, index and properties are in memory until it
/// is dropped; data blocks come from the map, the cache or the file.
pub(crate) struct Table {
    pub(super) source: Source,
    cache: Option<Arc<BlockCache>>,
    cache_id: u64,
    pub(super) index: Index,
    properties: Properties,
    filter: Filter,
    filter_info: Result<FilterInfo, Option<FilterUnusable>>,
    mapped: Option<Mapped>,
}

/// The file of a table and what is needed to believe its bytes.
pub(super) struct Source {
    pub(super) file: Arc<dyn RandomAccessFile>,
    pub(super) path: PathBuf,
    pub(super) identity: TableIdentity,
}

impl Source {
    /// Where the footer begins: blocks end at or before it.
    pub(super) fn limit(&self) -> u64 {
        self.identity.file_bytes.saturating_sub(FOOTER_BYTES as u64)
    }

    pub(super) fn read(&self, handle: BlockHandle) -> Result<SharedBytes> {
        read_block(&*self.file, &self.path, self.identity.table_id, self.limit(), handle)
    }

    /// The footer's metaindex handle, and the metaindex, once length, footer and identity are what they should be.
    pub(super) fn read_metaindex(&self) -> Result<(BlockHandle, Metaindex)> {
        self.check_length()?;
        let footer = self.read_footer().map_err(|e| e.in_file(&self.path).at(self.limit()))?;
        let bytes = self.read(footer.metaindex)?;
        let metaindex = Metaindex::decode(&bytes).map_err(|e| e.in_file(&self.path).at(footer.metaindex.offset))?;
        Ok((footer.metaindex, metaindex))
    }

    fn check_length(&self) -> Result<()> {
        let expected = self.identity.file_bytes;
        let found = self.file.len().context_of_named("get the length of", &self.path)?;
        if found == expected && found >= FOOTER_BYTES as u64 && found.is_multiple_of(PAGE_BYTES) {
            return Ok(());
        }
        Err(Error::corruption(format!(
            "the table has {found} bytes, expected {expected} (a multiple of {PAGE_BYTES}): it is cut short or another \
             file; restore it from a backup"
        ))
        .in_file(&self.path))
    }

    fn read_footer(&self) -> Result<Footer> {
        let footer = Footer::decode(&read_exact(&*self.file, &self.path, self.limit(), FOOTER_BYTES)?)?;
        if footer.table_id == self.identity.table_id {
            return Ok(footer);
        }
        Err(Error::corruption(format!(
            "the file holds table {:016x}, expected {:016x}: files were swapped or one is stale; restore from a backup",
            footer.table_id, self.identity.table_id
        )))
    }

    /// The filter, or why there is none. A table with a bad filter is still a table: it is read without.
    pub(super) fn read_filter(&self, metaindex: &Metaindex) -> (Filter, Result<FilterInfo, Option<FilterUnusable>>) {
        let Some(handle) = metaindex.get(FILTER) else { return (Filter::none(), Err(None)) };
        let parsed = self.read(handle).map_err(|_| FilterUnusable::Damaged).and_then(|block| Filter::parse(&block));
        match parsed {
            Ok((filter, info)) => (filter, Ok(info)),
            Err(reason) => (Filter::none(), Err(Some(reason))),
        }
    }

    /// Decodes a block with `decode`, which gets no say in where errors are located.
    pub(super) fn decode<T>(&self, handle: BlockHandle, decode: impl FnOnce(SharedBytes) -> Result<T>) -> Result<T> {
        decode(self.read(handle)?).map_err(|e| e.in_file(&self.path).at(handle.offset))
    }
}

impl Table {
    /// Opens the table in `file`. With `mapped`, the contract of the mmap read mode holds for it.
    pub(crate) fn open(
        file: Arc<dyn RandomAccessFile>,
        path: PathBuf,
        expected: TableIdentity,
        cache: Option<Arc<BlockCache>>,
        mapped: bool,
    ) -> Result<Table> {
        let source = Source { file, path, identity: expected };
        let (_, metaindex) = source.read_metaindex()?;
        let limit = source.limit();
        let index = source.decode(metaindex.require(INDEX)?, |bytes| Index::parse(bytes, limit))?;
        let properties = source.decode(metaindex.require(PROPERTIES)?, |bytes| Properties::decode(&bytes))?;
        let (filter, filter_info) = source.read_filter(&metaindex);
        let mapped = mapped.then(|| Mapped::new(&*source.file, &source.path, index.len())).transpose()?;
        let cache_id = cache.as_ref().map_or(0, |cache| cache.next_id());
        Ok(Table { source, cache, cache_id, index, properties, filter, filter_info, mapped })
    }

    /// The filter; `Filter::none()` if none was built or it cannot be used.
    pub(crate) fn filter(&self) -> &Filter {
        &self.filter
    }

    /// What the filter says of itself; `None` if none was built, else why it cannot be used. Whether it was built with
    /// the database's hash key is for the caller to compare.
    pub(crate) fn filter_info(&self) -> Result<&FilterInfo, Option<FilterUnusable>> {
        self.filter_info.as_ref().map_err(|reason| *reason)
    }

    pub(crate) fn properties(&self) -> &Properties {
        &self.properties
    }

    pub(crate) fn path(&self) -> &Path {
        &self.source.path
    }

    /// Bytes on the heap until the table is dropped: filter, index, properties and the table itself.
    pub(crate) fn pinned_bytes(&self) -> usize {
        let mapped = self.mapped.as_ref().map_or(0, Mapped::heap_bytes);
        [size_of::<Self>(), self.filter.memory_bytes(), self.index.heap_bytes(), self.properties.heap_bytes(), mapped]
            .into_iter()
            .fold(0, usize::saturating_add)
    }

    /// The newest version of `user_key` that is visible at `snapshot`. The filter is not asked: the caller has. Tells
    /// the recorder each data block looked into. One is looked into, or none; a further one only if versions of the key
    /// that are newer than the snapshot end a block.
    pub(crate) fn get(
        &self,
        user_key: &[u8],
        snapshot: SeqNo,
        fill_cache: bool,
        placement: Placement,
        recorder: &mut impl Recorder,
    ) -> Result<PointAnswer> {
        let mut seen_newer = false;
        let mut next = self.index.find(user_key);
        while let Some(number) = next {
            let handle = self.handle(number)?;
            let (block, source) = self.block(number, handle, fill_cache)?;
            recorder.block(placement, source, u32::try_from(handle.stored_bytes()).unwrap_or(u32::MAX));
            next = match self.located(handle, block.get(user_key, snapshot))? {
                BlockAnswer::Found { tag, value } => {
                    let kind = self.located(handle, tag.kind())?;
                    return Ok(PointAnswer::Found { seqno: tag.seqno(), kind, value });
                }
                BlockAnswer::NewerOnly => return Ok(PointAnswer::Invisible),
                BlockAnswer::PastEnd { newer: true } => {
                    seen_newer = true;
                    let after = number.saturating_add(1);
                    (after < self.index.len() && self.index.continues_after(number, user_key)).then_some(after)
                }
                // By what a separator is, the next block begins above the key.
                BlockAnswer::Absent | BlockAnswer::PastEnd { newer: false } => None,
            };
        }
        Ok(if seen_newer { PointAnswer::Invisible } else { PointAnswer::Absent })
    }

    /// A cursor over the whole table, which it keeps open.
    pub(crate) fn iter(self: &Arc<Self>, purpose: Purpose) -> TableIter {
        TableIter::new(self.clone(), purpose)
    }

    /// Where data block `number` lies.
    pub(super) fn handle(&self, number: usize) -> Result<BlockHandle> {
        self.index.handle(number).map_err(|e| e.in_file(&self.source.path))
    }

    /// Data block `number`, from the map, the cache, or the file.
    pub(super) fn block(&self, number: usize, handle: BlockHandle, fill_cache: bool) -> Result<(Block, BlockSource)> {
        let table_id = self.source.identity.table_id;
        if let Some(mapped) = &self.mapped
            && let Some(block) = self.located(handle, mapped.plain_block(number, handle, table_id))?
        {
            return Ok((block, BlockSource::Map));
        }
        let key = CacheKey { cache_id: self.cache_id, offset: handle.offset };
        if let Some(block) = self.cache.as_ref().and_then(|cache| cache.get(key)) {
            return Ok((block, BlockSource::Cache));
        }
        let (bytes, source) = match &self.mapped {
            Some(mapped) => (self.located(handle, mapped.open_compressed(handle, table_id))?, BlockSource::Map),
            None => (self.source.read(handle)?, BlockSource::Read),
        };
        let block = self.located(handle, checked_block(bytes))?;
        if let Some(cache) = self.cache.as_ref().filter(|_| fill_cache) {
            cache.insert(key, block.clone(), block.heap_bytes());
        }
        Ok((block, source))
    }

    /// Names file and offset in an error about the block at `handle`.
    #[inline]
    pub(super) fn located<T>(&self, handle: BlockHandle, result: Result<T>) -> Result<T> {
        result.map_err(|e| e.in_file(&self.source.path).at(handle.offset))
    }
}

/// A data block from verified bytes: its layout is checked, too, and that it holds something.
pub(super) fn checked_block(bytes: SharedBytes) -> Result<Block> {
    let block = Block::parse(bytes)?;
    block.check_restarts()?;
    if block.is_empty() {
        return Err(Error::corruption("a data block holds no entry"));
    }
    Ok(block)
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("path", &self.source.path).field("identity", &self.source.identity).finish()
    }
}
