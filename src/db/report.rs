//! What the engine tells of itself: statistics, tables, status, verification.

use crate::db::engine::Engine;
use crate::db::keyspace::{Db, Keyspace};
use crate::error::{Error, ErrorKind, Result};
use crate::filter::FilterKind;
use crate::manifest::Manifest;
use crate::stats::{
    CompactionStatistics, LevelStatistics, Outcome, ReadCounter, SpaceStatistics, Statistics, TableCounts,
    WriteStatistics,
};
use crate::sync::{Arc, AtomicU64, Ordering};
use crate::tree::Tree;
use crate::vfs::Context;
use crate::wal::replay;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// One table, as the engine sees it.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TableInfo {
    /// The file's number: `000123.sst`.
    pub file_number: u64,
    /// The level it lies in.
    pub level: u8,
    /// Smallest user key.
    pub smallest_key: Vec<u8>,
    /// Largest user key.
    pub largest_key: Vec<u8>,
    /// Entries, tombstones included.
    pub entries: u64,
    /// Tombstones among them.
    pub tombstones: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// The filter's kind; `None` without a usable filter.
    pub filter_kind: Option<FilterKind>,
    /// Filter bits per distinct key.
    pub filter_bits_per_key: Option<f64>,
    /// The false-positive rate of the filter as built.
    pub built_rate: Option<f64>,
    /// False positives ÷ (false positives + negatives) since the table was opened; `None` before any such probe.
    pub observed_rate: Option<f64>,
    /// Why the filter cannot be used, if it cannot.
    pub filter_unusable: Option<String>,
}

/// Whether the database takes writes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The failure that made the database read-only; `None` while all is well.
    pub failure: Option<Error>,
    /// Tables that a compaction could not read, and why: they are read as far as they can be, but not merged.
    pub suspended: Vec<(PathBuf, Error)>,
    /// Tables found at open that the manifest does not name. Its tail was cut by a crash, so they are kept.
    pub orphans: Vec<PathBuf>,
}

impl Status {
    /// Whether writes are possible and nothing is suspended.
    pub fn is_ok(&self) -> bool {
        self.failure.is_none() && self.suspended.is_empty()
    }
}

/// What [`Db::verify`] read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct VerifyReport {
    /// Tables read.
    pub tables: u64,
    /// Blocks whose checksums were compared.
    pub blocks: u64,
    /// Entries whose order was checked and whose keys their filter was asked for.
    pub entries: u64,
    /// Logs read.
    pub logs: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Tables whose filter is damaged or unknown, and answers "maybe" to everything.
    pub unusable_filters: u64,
}

impl Db {
    /// Everything counted so far, over all keyspaces.
    pub fn statistics(&self) -> Statistics {
        self.engine().statistics(None)
    }

    /// Whether the database takes writes, and what stands in the way.
    pub fn status(&self) -> Status {
        self.engine().status()
    }

    /// Reads every byte of manifest, logs and tables, compares checksums, order, bounds and counts, and asks every filter for every
    /// key of its table.
    ///
    /// # Errors
    /// `Corruption` for the first fault, naming file and offset; a filter that denies a key of its table is one. A
    /// filter that is merely unusable is counted, not an error.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.engine().verify()
    }
}

impl Keyspace {
    /// This keyspace's tables, level by level, newest first in level 0, by key below.
    pub fn tables(&self) -> Vec<TableInfo> {
        self.engine().table_infos(self.tree())
    }

    /// Everything counted so far for this keyspace's tables; what is not kept apart by keyspace is the database's.
    pub fn keyspace_statistics(&self) -> Statistics {
        self.engine().statistics(Some(self.tree().id))
    }
}

impl Engine {
    fn table_infos(&self, tree: &Tree) -> Vec<TableInfo> {
        let version = tree.view().version;
        let info = |level: usize, t: &Arc<crate::version::LiveTable>| {
            let counts = self.counters.table(t.meta.number);
            let filter = t.table.filter_info().ok();
            TableInfo {
                file_number: t.meta.number,
                level: level as u8,
                smallest_key: t.meta.smallest.user_key.clone(),
                largest_key: t.meta.largest.user_key.clone(),
                entries: t.meta.entries,
                tombstones: t.meta.tombstones,
                file_bytes: t.meta.file_bytes,
                filter_kind: filter.map(|f| f.kind),
                filter_bits_per_key: filter.map(|f| f.payload_bytes as f64 * 8.0 / f.keys.max(1) as f64),
                built_rate: filter.map(|f| f.built_rate),
                observed_rate: level_statistics(&counts).observed_rate(),
                filter_unusable: t.table.filter_info().err().flatten().map(|reason| reason.to_string()),
            }
        };
        version.tables().map(|(level, t)| info(level, t)).collect()
    }

    pub(crate) fn statistics(&self, keyspace: Option<u32>) -> Statistics {
        let trees: Vec<_> = self.trees().into_iter().filter(|tree| keyspace.is_none_or(|id| id == tree.id)).collect();
        let mut stats = Statistics::default();
        let read = |counter| self.counters.read_counter(counter);
        stats.reads.gets = read(ReadCounter::Gets);
        stats.reads.found = read(ReadCounter::Found);
        stats.reads.memtable_hits = read(ReadCounter::MemtableFound);
        stats.reads.memtable_filter_negatives = read(ReadCounter::MemtableFilterNegatives);
        stats.reads.memtable_searches = read(ReadCounter::MemtableSearches);
        for (number, (level, counts)) in stats.levels.iter_mut().zip(self.counters.levels(keyspace)).enumerate() {
            *level = level_statistics(&counts);
            level.out_of_range = self.counters.out_of_range(number);
        }
        let mut unusable: BTreeMap<String, u64> = BTreeMap::new();
        for tree in &trees {
            self.add_shape(tree, &mut stats, &mut unusable);
        }
        stats.filters.unusable = unusable.into_iter().collect();
        stats.writes = self.write_statistics();
        stats.compaction = self.compaction_statistics();
        stats.space = SpaceStatistics {
            log_bytes: self.logs.live_bytes(),
            manifest_bytes: load(&self.work.manifest_bytes),
            ..stats.space
        };
        let memory = &mut stats.memory;
        memory.counters = self.counters.heap_bytes() as u64;
        memory.block_cache = self.cache.as_ref().map_or(0, |cache| cache.used_bytes());
        stats.resources.open_tables = self.descriptors.open_descriptors() as u64;
        stats.resources.table_opens = self.descriptors.opens();
        if let Some(cache) = &self.cache {
            stats.resources.cached_blocks = cache.len() as u64;
            stats.resources.cache_refusals = cache.refused();
        }
        memory.write_buffers = load(&self.work.write_buffer_bytes);
        memory.builders = load(&self.work.builder_bytes);
        stats
    }

    fn add_shape(&self, tree: &Tree, stats: &mut Statistics, unusable: &mut BTreeMap<String, u64>) {
        let view = tree.view();
        for (number, t) in view.version.tables() {
            let level = &mut stats.levels[number];
            let filter = t.table.filter().memory_bytes() as u64;
            level.tables += 1;
            level.bytes += t.meta.file_bytes;
            level.entries += t.meta.entries;
            level.tombstones += t.meta.tombstones;
            level.filter_bytes += filter;
            stats.memory.filters += filter;
            stats.memory.indexes += (t.table.pinned_bytes() as u64).saturating_sub(filter);
            stats.space.table_bytes += t.meta.file_bytes;
            if let Err(Some(reason)) = t.table.filter_info() {
                *unusable.entry(reason.to_string()).or_default() += 1;
            }
        }
        if let Some(last) = view.version.last_level() {
            stats.space.last_level_bytes += view.version.level(last).bytes();
        }
        stats.memory.versions += view.version.heap_bytes() as u64;
        for memtable in view.immutable.iter().chain([&view.active]) {
            stats.memory.memtables += memtable.entry_bytes() as u64;
            stats.memory.memtable_filters += memtable.filter_bytes() as u64;
        }
    }

    fn write_statistics(&self) -> WriteStatistics {
        WriteStatistics {
            batches: load(&self.work.batches),
            operations: load(&self.work.operations),
            user_bytes: load(&self.work.user_bytes),
            groups: load(&self.work.groups),
            log_bytes: load(&self.work.log_bytes),
            log_syncs: self.logs.syncs(),
            conflicts: load(&self.work.conflicts),
            stalls: *self.work.stalls.lock(),
        }
    }

    fn compaction_statistics(&self) -> CompactionStatistics {
        CompactionStatistics {
            flushes: load(&self.work.flushes),
            flush_bytes: load(&self.work.flush_bytes),
            compactions: load(&self.work.compactions),
            trivial_moves: load(&self.work.trivial_moves),
            bytes_read: load(&self.work.bytes_read),
            bytes_written: load(&self.work.bytes_written),
            versions_dropped: load(&self.work.versions_dropped),
            tombstones_dropped: load(&self.work.tombstones_dropped),
            filters_built: load(&self.work.filters_built),
        }
    }

    fn status(&self) -> Status {
        let state = self.state.lock();
        let suspended = state
            .keyspaces
            .values()
            .flat_map(|k| &k.suspended)
            .map(|(number, error)| (crate::filename::FileName::Table(*number).in_dir(&self.dir), error.clone()));
        Status { failure: state.failure.clone(), suspended: suspended.collect(), orphans: self.orphans.clone() }
    }

    fn verify(&self) -> Result<VerifyReport> {
        self.check_open()?;
        let mut report = VerifyReport::default();
        self.verify_logs(&mut report)?;
        for tree in self.trees() {
            let version = tree.view().version;
            for (_, live) in version.tables() {
                // Its descriptor would still read a file that somebody removed.
                self.fs.len(live.table.path()).context_of_named("measure the table", live.table.path())?;
                let found = live.table.verify(&self.hash_key)?;
                if found.filter_false_negatives > 0 {
                    return Err(Error::new(
                        ErrorKind::Corruption,
                        format!(
                            "the filter denies {} keys that the table holds; compact the table to rebuild it",
                            found.filter_false_negatives
                        ),
                    )
                    .in_file(live.table.path()));
                }
                report.tables += 1;
                report.blocks += found.blocks;
                report.entries += found.entries;
                report.bytes += found.bytes;
                report.unusable_filters += u64::from(found.filter_unusable.is_some());
            }
        }
        Ok(report)
    }
}

impl Engine {
    /// The manifest must read back as the state it describes, and every log it names up to where it was synced.
    fn verify_logs(&self, report: &mut VerifyReport) -> Result<()> {
        let room = self.manifest.lock();
        let recovered = Manifest::recover(&*self.fs, &self.dir)?;
        // Read-only, the file is what there is; otherwise the last edit is in both.
        if room.manifest.is_some() && recovered.state != room.state {
            return Err(Error::corruption("the manifest does not say what was written to it").in_file(&self.dir));
        }
        report.bytes += load(&self.work.manifest_bytes);
        for number in &room.state.logs {
            let end = replay(&*self.fs, &self.dir, *number, None, |_| Ok(()))?;
            report.logs += 1;
            report.bytes += end.valid_len;
        }
        Ok(())
    }
}

fn level_statistics(counts: &TableCounts) -> LevelStatistics {
    LevelStatistics {
        no_filter: counts.outcome(Outcome::NoFilter),
        negatives: counts.outcome(Outcome::Negative),
        true_positives: counts.outcome(Outcome::TruePositive),
        invisible: counts.outcome(Outcome::Invisible),
        false_positives: counts.outcome(Outcome::FalsePositive),
        expected_false_positives: counts.expected_false_positives,
        judged_probes: counts.judged,
        block_touches: counts.touches(),
        block_reads: counts.reads(),
        read_bytes: counts.read_bytes(),
        avoided_bytes: counts.avoided_bytes,
        ..LevelStatistics::default()
    }
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
