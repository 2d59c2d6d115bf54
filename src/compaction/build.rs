//! Entries in, tables out: what flush, compaction and recovery share. Filters are built from the hashes of exactly the
//! distinct keys that are kept.

use crate::compaction::retain::{Retention, Verdict};
use crate::entropy::{Entropy, Purpose};
use crate::error::{Error, Result};
use crate::filename::{FileName, FileNumber};
use crate::hash::HashKey;
use crate::iter::InternalIterator;
use crate::key::{InternalKey, SeqNo};
use crate::options::KeyspaceOptions;
use crate::sstable::{Purpose as IterPurpose, TableIter, TableSummary, TableWriter, TableWriterOptions};
use crate::stats::LEVELS;
use crate::sync::{Arc, AtomicU64, Ordering};
use crate::version::LiveTable;
use crate::version::edit::FileMeta;
use crate::vfs::{Context, FileSystem};
use std::path::Path;

/// What building tables needs to know.
pub(crate) struct BuildContext<'a> {
    pub(crate) fs: &'a dyn FileSystem,
    pub(crate) dir: &'a Path,
    /// Gives a number that no file ever had.
    pub(crate) next_number: &'a (dyn Fn() -> FileNumber + 'a),
    pub(crate) entropy: &'a Entropy,
    pub(crate) hash_key: HashKey,
    pub(crate) created_at: u64,
    pub(crate) options: &'a KeyspaceOptions,
    pub(crate) level: u8,
    /// A table is closed at the next user key once it has this many bytes.
    pub(crate) table_bytes: u64,
    /// Live snapshots, ascending.
    pub(crate) snapshots: &'a [SeqNo],
    /// Where the builders' heap bytes are added while they live.
    pub(crate) builder_bytes: &'a AtomicU64,
    /// Called now and then; an error stops the work.
    pub(crate) keep_going: &'a (dyn Fn() -> Result<()> + 'a),
}

/// What was built: tables written and synced. Safe from a power cut once their directory is synced.
#[derive(Debug, Default)]
pub(crate) struct Built {
    pub(crate) files: Vec<FileMeta>,
    pub(crate) bytes: u64,
    pub(crate) versions_dropped: u64,
    pub(crate) tombstones_dropped: u64,
}

/// Writes what `input` yields and retention keeps. `older_exists` tells whether an entry of a key older than the input
/// can exist elsewhere; it is asked in ascending key order. On an error the files begun are removed.
pub(crate) fn build_tables(
    context: &BuildContext<'_>,
    input: &mut dyn InternalIterator,
    older_exists: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<Built> {
    let mut built = Built::default();
    let mut begun = Vec::new();
    let result = run(context, input, older_exists, &mut built, &mut begun);
    if let Err(error) = result {
        for number in begun {
            // Best effort: what stays behind is an orphan, removed at the next open.
            let _ = context.fs.remove_file(&FileName::Table(number).in_dir(context.dir));
        }
        return Err(error);
    }
    Ok(built)
}

/// How many entries pass between two calls of `keep_going`.
const CHECK_EVERY: u64 = 4096;

fn run(
    context: &BuildContext<'_>,
    input: &mut dyn InternalIterator,
    older_exists: &mut dyn FnMut(&[u8]) -> bool,
    built: &mut Built,
    begun: &mut Vec<FileNumber>,
) -> Result<()> {
    let mut retention = Retention::new(context.snapshots);
    let mut gauge = Gauge { counter: context.builder_bytes, held: 0 };
    let mut open: Option<OpenTable> = None;
    let mut last_key: Vec<u8> = Vec::new();
    let mut entries = 0_u64;
    let mut more = input.seek_to_first()?;
    while more {
        entries += 1;
        if entries.is_multiple_of(CHECK_EVERY) {
            (context.keep_going)()?;
            gauge.set(open.as_ref().map_or(0, |t| t.writer.memory_bytes() as u64));
        }
        let key = input.key();
        match retention.judge(key, key.tag.kind()?, &mut *older_exists) {
            Verdict::Shadowed => built.versions_dropped += 1,
            Verdict::SpentTombstone => built.tombstones_dropped += 1,
            Verdict::Keep(tag) => {
                // Only between two user keys: versions of one key are never split over two tables of a level.
                if let Some(full) =
                    open.take_if(|t| t.writer.estimated_file_bytes() >= context.table_bytes && last_key != key.user_key)
                {
                    full.finish(built)?;
                }
                let table = match &mut open {
                    Some(table) => table,
                    None => open.insert(OpenTable::create(context, begun)?),
                };
                table.writer.add(InternalKey::new(key.user_key, tag), input.value())?;
                last_key.clear();
                last_key.extend_from_slice(key.user_key);
            }
        }
        more = input.next()?;
    }
    match open {
        Some(table) => table.finish(built),
        None => Ok(()),
    }
}

/// One builder's share of a counter, taken back when it is done.
struct Gauge<'a> {
    counter: &'a AtomicU64,
    held: u64,
}

impl Gauge<'_> {
    fn set(&mut self, bytes: u64) {
        self.counter.fetch_add(bytes.wrapping_sub(self.held), Ordering::Relaxed);
        self.held = bytes;
    }
}

impl Drop for Gauge<'_> {
    fn drop(&mut self) {
        self.set(0);
    }
}

struct OpenTable {
    number: FileNumber,
    table_id: u64,
    created_at: u64,
    writer: TableWriter,
}

impl OpenTable {
    fn create(context: &BuildContext<'_>, begun: &mut Vec<FileNumber>) -> Result<Self> {
        let number = (context.next_number)();
        let path = FileName::Table(number).in_dir(context.dir);
        let file = context.fs.create_new(&path).context("create table", &path)?;
        begun.push(number);
        let table_id = context.entropy.word(Purpose::TableId, number)?;
        let options = context.options;
        let writer = TableWriter::new(
            file,
            path,
            TableWriterOptions {
                block_bytes: options.block_bytes,
                restart_interval: options.block_restart_interval,
                compression: options.compression[usize::from(context.level) % LEVELS],
                filter: options.filter,
                hash_key: context.hash_key,
                table_id,
                filter_tweak: context.entropy.word(Purpose::FilterTweak, number)?,
                align_blocks: options.align_blocks,
                block_hash_index: options.block_hash_index,
                created_at: context.created_at,
            },
        )?;
        Ok(OpenTable { number, table_id, created_at: context.created_at, writer })
    }

    fn finish(self, built: &mut Built) -> Result<()> {
        let summary = self.writer.finish()?;
        built.bytes += summary.file_bytes;
        built.files.push(file_meta(self.number, self.table_id, self.created_at, summary)?);
        Ok(())
    }
}

fn file_meta(number: FileNumber, table_id: u64, created_at: u64, summary: TableSummary) -> Result<FileMeta> {
    let properties = summary.properties;
    let (Some(smallest), Some(largest)) = (properties.smallest, properties.largest) else {
        return Err(Error::corruption(format!("table {number} was finished without an entry")));
    };
    Ok(FileMeta {
        number,
        table_id,
        file_bytes: summary.file_bytes,
        smallest,
        largest,
        tombstone_bounds: None,
        largest_exclusive: false,
        seqnos: (properties.smallest_seqno, properties.largest_seqno),
        seqno_override: None,
        created_at,
        filter_side_file: None,
        entries: properties.entries,
        tombstones: properties.tombstones,
    })
}

/// A cursor over the tables of a sorted run, one after the other.
pub(crate) struct RunIterator {
    tables: Vec<Arc<LiveTable>>,
    at: usize,
    current: Option<TableIter>,
}

impl RunIterator {
    /// The tables, disjoint and ascending, read past the cache.
    pub(crate) fn new(tables: Vec<Arc<LiveTable>>) -> Self {
        RunIterator { tables, at: 0, current: None }
    }

    fn open(&mut self, at: usize) -> Option<&mut TableIter> {
        self.at = at;
        let table = self.tables.get(at)?;
        Some(self.current.insert(table.table.iter(IterPurpose::Compaction)))
    }

    /// Goes to the first entry of the table at `at` or of a later one.
    fn enter(&mut self, mut at: usize) -> Result<bool> {
        loop {
            let Some(iter) = self.open(at) else {
                self.current = None;
                return Ok(false);
            };
            if iter.seek_to_first()? {
                return Ok(true);
            }
            at += 1;
        }
    }
}

impl InternalIterator for RunIterator {
    fn seek_to_first(&mut self) -> Result<bool> {
        self.enter(0)
    }

    fn seek(&mut self, target: InternalKey<'_>) -> Result<bool> {
        let at = self.tables.partition_point(|t| t.meta.largest.as_ref() < target);
        let Some(iter) = self.open(at) else {
            self.current = None;
            return Ok(false);
        };
        if iter.seek(target)? { Ok(true) } else { self.enter(at + 1) }
    }

    fn next(&mut self) -> Result<bool> {
        let Some(iter) = &mut self.current else { return Ok(false) };
        if iter.next()? { Ok(true) } else { self.enter(self.at + 1) }
    }

    fn valid(&self) -> bool {
        self.current.as_ref().is_some_and(InternalIterator::valid)
    }

    #[allow(clippy::expect_used)]
    fn key(&self) -> InternalKey<'_> {
        self.current.as_ref().expect("the contract: key only while valid").key()
    }

    #[allow(clippy::expect_used)]
    fn value(&self) -> &[u8] {
        self.current.as_ref().expect("the contract: value only while valid").value()
    }
}
