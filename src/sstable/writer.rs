//! Writes a table: `add* finish`. The picture of the file is in [`crate::sstable`].
//!
//! A data block is cut *before* an entry would make it larger than `block_bytes` (trailer included), so only blocks of
//! a single entry are larger. The key that opens the next block is then known, and with it the separator.

use crate::block::{BlockBuilder, BlockHandle, Compression, Compressor, TRAILER_BYTES, append_block};
use crate::error::{Error, Result};
use crate::filter::{FilterBuilder, FilterKind, FilterOptions, FilterSize};
use crate::hash::HashKey;
use crate::key::{InternalKey, MAX_KEY_BYTES, MAX_VALUE_BYTES, Tag, ValueKind};
use crate::sstable::footer::{FOOTER_BYTES, Footer};
use crate::sstable::index::IndexBuilder;
use crate::sstable::metaindex::{FILTER, INDEX, Metaindex, PROPERTIES};
use crate::sstable::properties::Properties;
use crate::sstable::{PAGE_BYTES, padding_to};
use crate::vfs::{Context, WritableFile};
use std::path::PathBuf;

/// Appends of this size cost little per byte and leave the page cache's read-ahead something to work with.
const APPEND_BYTES: usize = 256 << 10;

/// The filter's payload begins at a multiple of its header's alignment, a cache line.
const FILTER_ALIGNMENT: u64 = 64;

/// Blocks are not cut later than this, whatever `block_bytes` says, so that their offsets fit 32 bits.
const MAX_BLOCK_BYTES: usize = 1 << 30;

/// How a table is written.
#[derive(Clone, Debug)]
pub(crate) struct TableWriterOptions {
    /// A data block is cut before it gets larger than this, trailer included.
    pub(crate) block_bytes: usize,
    /// Entries from one restart point to the next.
    pub(crate) restart_interval: usize,
    pub(crate) compression: Compression,
    pub(crate) filter: FilterOptions,
    pub(crate) hash_key: HashKey,
    /// Random; stands in the footer, in every checksum and in the manifest.
    pub(crate) table_id: u64,
    /// Random; keeps the false positives of one table from being those of the next.
    pub(crate) filter_tweak: u64,
    /// Pads so that no block that fits a page crosses a page boundary.
    pub(crate) align_blocks: bool,
    /// Adds a hash index to each data block.
    pub(crate) block_hash_index: bool,
    /// Seconds since 1970-01-01 UTC.
    pub(crate) created_at: u64,
}

/// What `finish` wrote.
#[derive(Clone, Debug)]
pub(crate) struct TableSummary {
    pub(crate) file_bytes: u64,
    pub(crate) properties: Properties,
}

/// Writes one table. After an error the file is finished: drop the writer and remove the file.
pub(crate) struct TableWriter {
    out: Output,
    options: TableWriterOptions,
    block: BlockBuilder,
    compressor: Compressor,
    index: IndexBuilder,
    filter: FilterBuilder,
    last_tag: Tag,
    properties: Properties,
}

impl TableWriter {
    /// Fails with `Unsupported` if this build leaves the codec out.
    pub(crate) fn new(file: Box<dyn WritableFile>, path: PathBuf, options: TableWriterOptions) -> Result<Self> {
        let properties = Properties {
            created_at: options.created_at,
            filter: describe(&options.filter),
            compression: options.compression.name().to_owned(),
            smallest_seqno: u64::MAX,
            ..Properties::default()
        };
        Ok(TableWriter {
            out: Output::new(file, path, &options),
            block: BlockBuilder::new(options.restart_interval, options.block_hash_index),
            compressor: Compressor::new(options.compression)?,
            index: IndexBuilder::default(),
            filter: FilterBuilder::new(options.filter, options.hash_key, options.filter_tweak),
            last_tag: Tag(u64::MAX),
            properties,
            options,
        })
    }

    /// Adds an entry. It must sort after the one before it.
    pub(crate) fn add(&mut self, key: InternalKey<'_>, value: &[u8]) -> Result<()> {
        self.check(key, value)?;
        if !self.block.is_empty() {
            let limit = self.options.block_bytes.clamp(1, MAX_BLOCK_BYTES);
            if self.block.size_with(key, value) + TRAILER_BYTES > limit {
                self.finish_block(Some(key.user_key))?;
            }
        }
        if self.properties.entries == 0 || self.block.last_key() != key.user_key {
            self.properties.distinct_user_keys += 1;
            self.filter.add(self.options.hash_key.hash(key.user_key));
        }
        self.count(key, value)?;
        self.block.add(key, value);
        self.last_tag = key.tag;
        Ok(())
    }

    fn check(&self, key: InternalKey<'_>, value: &[u8]) -> Result<()> {
        if key.user_key.len() > MAX_KEY_BYTES || value.len() > MAX_VALUE_BYTES {
            let (key, value) = (key.user_key.len(), value.len());
            return Err(Error::invalid_argument(format!(
                "a table takes keys up to {MAX_KEY_BYTES} bytes and values up to {MAX_VALUE_BYTES}, not {key} and {value}"
            )));
        }
        let last = InternalKey::new(self.block.last_key(), self.last_tag);
        if self.properties.entries > 0 && key <= last {
            return Err(Error::invalid_argument(format!(
                "internal error: a table was given {key:?} after {last:?}; nothing was made visible, please report this"
            )));
        }
        Ok(())
    }

    fn count(&mut self, key: InternalKey<'_>, value: &[u8]) -> Result<()> {
        let properties = &mut self.properties;
        properties.tombstones += u64::from(key.tag.kind()? == ValueKind::Delete);
        properties.entries += 1;
        properties.raw_key_bytes += key.user_key.len() as u64;
        properties.raw_value_bytes += value.len() as u64;
        properties.smallest_seqno = properties.smallest_seqno.min(key.tag.seqno());
        properties.largest_seqno = properties.largest_seqno.max(key.tag.seqno());
        properties.smallest.get_or_insert_with(|| key.to_owned());
        Ok(())
    }

    fn finish_block(&mut self, next_first: Option<&[u8]>) -> Result<()> {
        let (codec, payload) = self.compressor.compress(self.block.finish())?;
        let handle = self.out.block(codec, payload)?;
        self.block.reset();
        self.properties.data_blocks += 1;
        self.properties.data_bytes += handle.stored_bytes();
        self.index.add(handle, self.block.last_key(), next_first);
        Ok(())
    }

    /// About how large the file would be if it were finished now.
    pub(crate) fn estimated_file_bytes(&self) -> u64 {
        let filter = self.properties.distinct_user_keys as f64 * bits_per_key(&self.options.filter) / 8.0;
        let parts = self.block.entry_bytes() + self.index.estimated_bytes() + FOOTER_BYTES;
        self.out.position() + parts as u64 + filter as u64
    }

    /// Bytes on the heap.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.out.buffer.capacity()
            + self.block.memory_bytes()
            + self.compressor.memory_bytes()
            + self.index.memory_bytes()
            + self.filter.memory_bytes()
    }

    /// Writes what is left, syncs and closes the file. The table is safe from a power cut once its directory is synced,
    /// too.
    pub(crate) fn finish(self) -> Result<TableSummary> {
        self.finish_with(FilterBuilder::finish)
    }

    /// `finish`, with the filter block that `build` makes: tests put others there.
    pub(super) fn finish_with(mut self, build: impl FnOnce(FilterBuilder) -> Option<Vec<u8>>) -> Result<TableSummary> {
        if !self.block.is_empty() {
            self.finish_block(None)?;
        }
        let mut metaindex = Metaindex::default();
        if let Some(filter) = build(self.filter) {
            self.properties.filter_bytes = filter.len() as u64;
            self.out.pad_to(FILTER_ALIGNMENT);
            metaindex.insert(FILTER, self.out.block(Compression::None, &filter)?);
        }
        let index = self.index.finish()?;
        self.properties.index_bytes = index.len() as u64;
        metaindex.insert(INDEX, self.out.block(Compression::None, &index)?);
        complete(&mut self.properties, InternalKey::new(self.block.last_key(), self.last_tag));
        metaindex.insert(PROPERTIES, self.out.block(Compression::None, &self.properties.encode())?);
        let metaindex = self.out.block(Compression::None, &metaindex.encode())?;
        let file_bytes = self.out.finish(metaindex)?;
        Ok(TableSummary { file_bytes, properties: self.properties })
    }
}

/// Fills in what is known at the end.
fn complete(properties: &mut Properties, last: InternalKey<'_>) {
    if properties.entries == 0 {
        properties.smallest_seqno = 0;
        return;
    }
    properties.largest = Some(last.to_owned());
    properties.mean_block_bytes = properties.data_bytes / properties.data_blocks.max(1);
}

fn describe(filter: &FilterOptions) -> String {
    let kind = match filter.kind {
        FilterKind::None | FilterKind::Empty => return "none".to_owned(),
        FilterKind::Bloom => "bloom",
        FilterKind::Blocked => "blocked",
    };
    match filter.size {
        FilterSize::BitsPerKey(bits) => format!("{kind}, {bits} bits per key"),
        FilterSize::Rate(rate) => format!("{kind}, rate {rate}"),
    }
}

/// For estimates only: a Bloom filter of rate r has log2(1/r) / ln 2 bits per key.
fn bits_per_key(filter: &FilterOptions) -> f64 {
    match (filter.kind, filter.size) {
        (FilterKind::None, _) => 0.0,
        (_, FilterSize::BitsPerKey(bits)) => bits,
        (_, FilterSize::Rate(rate)) => -rate.log2() / std::f64::consts::LN_2,
    }
}

/// The file being written, from front to back, through a buffer.
struct Output {
    file: Box<dyn WritableFile>,
    path: PathBuf,
    table_id: u64,
    align_blocks: bool,
    buffer: Vec<u8>,
    appended: u64,
}

impl Output {
    fn new(file: Box<dyn WritableFile>, path: PathBuf, options: &TableWriterOptions) -> Self {
        Output {
            file,
            path,
            table_id: options.table_id,
            align_blocks: options.align_blocks,
            buffer: Vec::new(),
            appended: 0,
        }
    }

    fn position(&self) -> u64 {
        self.appended + self.buffer.len() as u64
    }

    /// Puts a block at the current position, or at the next page if it would cross into it and need not.
    fn block(&mut self, codec: Compression, payload: &[u8]) -> Result<BlockHandle> {
        let stored = (payload.len() + TRAILER_BYTES) as u64;
        if self.align_blocks && stored <= PAGE_BYTES && padding_to(self.position(), PAGE_BYTES) < stored {
            self.pad_to(PAGE_BYTES);
        }
        let handle = BlockHandle { offset: self.position(), len: payload.len() as u64 };
        append_block(&mut self.buffer, self.table_id, handle.offset, codec, payload);
        if self.buffer.len() >= APPEND_BYTES {
            self.append()?;
        }
        Ok(handle)
    }

    fn pad_to(&mut self, alignment: u64) {
        let zeros = padding_to(self.position(), alignment) as usize;
        self.buffer.resize(self.buffer.len() + zeros, 0);
    }

    fn append(&mut self) -> Result<()> {
        self.file.append(&self.buffer).context("write", &self.path)?;
        self.appended += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Footer, sync, close. Returns the file's length.
    fn finish(mut self, metaindex: BlockHandle) -> Result<u64> {
        let zeros = padding_to(self.position() + FOOTER_BYTES as u64, PAGE_BYTES) as usize;
        self.buffer.resize(self.buffer.len() + zeros, 0);
        Footer::new(self.table_id, metaindex).append(&mut self.buffer);
        self.append()?;
        self.file.sync().context("sync", &self.path)?;
        self.file.close().context("close", &self.path)?;
        Ok(self.appended)
    }
}
