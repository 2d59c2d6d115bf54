//! One level of a version: its tables, and beside them, contiguous, what a read needs before it touches one.

use crate::error::{Error, Result};
use crate::filter::Filter;
use crate::hash::HashKey;
use crate::sstable::Table;
use crate::stats::{Counters, Placed, Placement, SlotInfo};
use crate::sync::Arc;
use crate::version::edit::FileMeta;
use crate::version::fences::Fences;

/// A table at its place: the file, the open table, and its row of counters at this level.
#[derive(Debug)]
pub(crate) struct LiveTable {
    pub(crate) meta: Arc<FileMeta>,
    pub(crate) table: Arc<Table>,
    pub(crate) placed: Placed,
}

impl LiveTable {
    pub(crate) fn new(
        keyspace: u32,
        level: u8,
        meta: Arc<FileMeta>,
        table: Arc<Table>,
        counters: &Arc<Counters>,
    ) -> Arc<Self> {
        let properties = table.properties();
        let info = SlotInfo {
            keyspace,
            level,
            file: meta.number,
            mean_block_bytes: properties.mean_block_bytes as f64,
            built_rate: table.filter_info().ok().map(|info| info.built_rate),
        };
        Arc::new(LiveTable { meta, table, placed: counters.place(info) })
    }
}

/// The tables of a level and the arrays beside them. Level 0: any overlap, newest data first. Others: disjoint by user
/// key, ascending.
#[derive(Debug, Default)]
pub(crate) struct Level {
    tables: Vec<Arc<LiveTable>>,
    fences: Fences,
    filters: Vec<Filter>,
    placements: Vec<Placement>,
    /// Each table's filter is probed with its own hash key; None where it is the database's, as it nearly always is.
    foreign_keys: Vec<Option<HashKey>>,
    bytes: u64,
    /// Disjoint and ascending: every level but 0.
    sorted: bool,
}

impl Level {
    /// Sorts the tables and checks what the level promises.
    pub(crate) fn new(number: usize, mut tables: Vec<Arc<LiveTable>>, hash_key: &HashKey) -> Result<Self> {
        if number == 0 {
            tables.sort_by_key(|t| std::cmp::Reverse((t.meta.seqnos.1, t.meta.number)));
        } else {
            tables.sort_by(|a, b| a.meta.smallest.user_key.cmp(&b.meta.smallest.user_key));
            for pair in tables.windows(2) {
                if pair[0].meta.largest.user_key >= pair[1].meta.smallest.user_key {
                    return Err(Error::corruption(format!(
                        "tables {} and {} of level {number} overlap",
                        pair[0].meta.number, pair[1].meta.number
                    )));
                }
            }
        }
        let fences = Fences::new(tables.iter().map(|t| (&t.meta.smallest.user_key[..], &t.meta.largest.user_key[..])));
        let filters = tables.iter().map(|t| t.table.filter().clone()).collect();
        let placements = tables.iter().map(|t| t.placed.placement()).collect();
        let foreign_keys = tables
            .iter()
            .map(|t| t.table.filter_info().ok().map(|i| i.hash_key).filter(|key| key != hash_key))
            .collect();
        let bytes = tables.iter().map(|t| t.meta.file_bytes).sum();
        Ok(Level { tables, fences, filters, placements, foreign_keys, bytes, sorted: number > 0 })
    }

    pub(crate) fn tables(&self) -> &[Arc<LiveTable>] {
        &self.tables
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    pub(crate) fn fences(&self) -> &Fences {
        &self.fences
    }

    #[inline]
    pub(crate) fn filter(&self, table: usize) -> &Filter {
        &self.filters[table]
    }

    #[inline]
    pub(crate) fn placement(&self, table: usize) -> Placement {
        self.placements[table]
    }

    #[inline]
    pub(crate) fn foreign_key(&self, table: usize) -> Option<&HashKey> {
        self.foreign_keys[table].as_ref()
    }

    #[inline]
    pub(crate) fn table(&self, table: usize) -> &Arc<LiveTable> {
        &self.tables[table]
    }

    /// File bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The tables that share a user key with `smallest..=largest`.
    pub(crate) fn overlapping<'a>(
        &'a self,
        smallest: &'a [u8],
        largest: &'a [u8],
    ) -> impl Iterator<Item = &'a Arc<LiveTable>> {
        let start = if self.sorted { self.fences.lower_bound(smallest) } else { 0 };
        self.tables[start..]
            .iter()
            .take_while(move |t| !self.sorted || &t.meta.smallest.user_key[..] <= largest)
            .filter(move |t| &t.meta.smallest.user_key[..] <= largest && &t.meta.largest.user_key[..] >= smallest)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.fences.heap_bytes()
            + self.tables.capacity() * size_of::<Arc<LiveTable>>()
            + self.filters.capacity() * size_of::<Filter>()
            + self.placements.capacity() * size_of::<Placement>()
            + self.foreign_keys.capacity() * size_of::<Option<HashKey>>()
            + self.tables.len() * (size_of::<LiveTable>() + 16)
            + self
                .tables
                .iter()
                .map(|t| {
                    size_of::<FileMeta>()
                        + 16
                        + t.meta.smallest.user_key.capacity()
                        + t.meta.largest.user_key.capacity()
                })
                .sum::<usize>()
    }
}
