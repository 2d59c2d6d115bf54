//! [`Statistics`]: a snapshot of everything counted, as plain data, and its one-screen form.

use super::LEVELS;
use std::fmt;

/// One level's reads and shape. Reads are counted over the life of the handle, tables that have left included.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LevelStatistics {
    /// Tables now (a gauge).
    pub tables: u64,
    /// Their file bytes now (a gauge).
    pub bytes: u64,
    /// Their entries now, tombstones included (a gauge).
    pub entries: u64,
    /// Tombstones among them now (a gauge).
    pub tombstones: u64,
    /// Bytes of their filters in memory now (a gauge).
    pub filter_bytes: u64,
    /// Sorted runs in whose tables the key could not lie: no filter was asked.
    pub out_of_range: u64,
    /// Tables without a usable filter: they were read.
    pub no_filter: u64,
    /// Probes to which the filter said no: table reads avoided.
    pub negatives: u64,
    /// Probes to which it said maybe, and the table held a visible version.
    pub true_positives: u64,
    /// Probes to which it said maybe, and the table held only versions hidden from the snapshot.
    pub invisible: u64,
    /// Probes to which it said maybe, and the table held no version.
    pub false_positives: u64,
    /// Σ built rate over the probes that were not true positives: the false positives to be expected.
    pub expected_false_positives: f64,
    /// The probes which that sum is over.
    pub judged_probes: u64,
    /// Data blocks looked into, from wherever they came.
    pub block_touches: u64,
    /// Data blocks read by a system call.
    pub block_reads: u64,
    /// Bytes of those reads.
    pub read_bytes: u64,
    /// Negatives × mean stored block size: bytes that were not touched.
    pub avoided_bytes: f64,
}

impl LevelStatistics {
    /// Filters asked.
    pub fn probes(&self) -> u64 {
        self.negatives + self.true_positives + self.invisible + self.false_positives
    }

    /// False positives ÷ (false positives + negatives); None before any such probe.
    pub fn observed_rate(&self) -> Option<f64> {
        ratio(self.false_positives as f64, (self.false_positives + self.negatives) as f64)
    }

    /// The mean built rate over the probes that were not true positives; None before any.
    pub fn expected_rate(&self) -> Option<f64> {
        ratio(self.expected_false_positives, self.judged_probes as f64)
    }

    /// The share of block touches that needed a system call; None before any.
    pub fn cache_miss_ratio(&self) -> Option<f64> {
        ratio(self.block_reads as f64, self.block_touches as f64)
    }

    /// Block reads avoided: negatives times the cache-miss ratio (1 before any touch).
    pub fn avoided_reads(&self) -> f64 {
        self.negatives as f64 * self.cache_miss_ratio().unwrap_or(1.0)
    }

    fn combine(&mut self, other: &Self, gauges: bool, sign: f64) {
        let add = |to: &mut u64, from: u64| {
            *to = if sign > 0.0 { to.saturating_add(from) } else { to.saturating_sub(from) };
        };
        if gauges {
            add(&mut self.tables, other.tables);
            add(&mut self.bytes, other.bytes);
            add(&mut self.entries, other.entries);
            add(&mut self.tombstones, other.tombstones);
            add(&mut self.filter_bytes, other.filter_bytes);
        }
        add(&mut self.out_of_range, other.out_of_range);
        add(&mut self.no_filter, other.no_filter);
        add(&mut self.negatives, other.negatives);
        add(&mut self.true_positives, other.true_positives);
        add(&mut self.invisible, other.invisible);
        add(&mut self.false_positives, other.false_positives);
        self.expected_false_positives += sign * other.expected_false_positives;
        add(&mut self.judged_probes, other.judged_probes);
        add(&mut self.block_touches, other.block_touches);
        add(&mut self.block_reads, other.block_reads);
        add(&mut self.read_bytes, other.read_bytes);
        self.avoided_bytes += sign * other.avoided_bytes;
    }
}

/// Reads as such.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ReadStatistics {
    /// Keys asked for, by whatever call.
    pub gets: u64,
    /// Keys that had a value.
    pub found: u64,
    /// Keys settled by a memtable (a value or a tombstone).
    pub memtable_hits: u64,
    /// Memtables whose filter said no.
    pub memtable_filter_negatives: u64,
    /// Memtables whose list was searched.
    pub memtable_searches: u64,
}

/// Filters that could not be used, by reason, and their building.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct FilterStatistics {
    /// Live tables whose filter is unusable, by reason (a gauge). Such a filter says "maybe" to everything.
    pub unusable: Vec<(String, u64)>,
}

/// Writers' waits, by cause. A wait of several causes counts for the strongest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stalls {
    /// Short delays while compaction debt lies between the soft and the hard limit.
    pub delays: u64,
    /// Microseconds of those delays.
    pub delay_micros: u64,
    /// Stops because too many memtables wait for their flush.
    pub memtable_stops: u64,
    /// Microseconds of those stops.
    pub memtable_stop_micros: u64,
    /// Stops because level 0 holds too many tables.
    pub level0_stops: u64,
    /// Microseconds of those stops.
    pub level0_stop_micros: u64,
    /// Stops because too many bytes wait for compaction.
    pub debt_stops: u64,
    /// Microseconds of those stops.
    pub debt_stop_micros: u64,
    /// The longest single wait, in microseconds.
    pub longest_micros: u64,
}

/// Writes and the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct WriteStatistics {
    /// Batches committed.
    pub batches: u64,
    /// Operations in them.
    pub operations: u64,
    /// Key and value bytes in them.
    pub user_bytes: u64,
    /// Groups of batches, each one append to the log.
    pub groups: u64,
    /// Bytes appended to the log.
    pub log_bytes: u64,
    /// Times a log was synced.
    pub log_syncs: u64,
    /// Conditional batches refused.
    pub conflicts: u64,
    /// Waits by cause.
    pub stalls: Stalls,
}

/// Flushes and compactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CompactionStatistics {
    /// Memtable flushes.
    pub flushes: u64,
    /// Bytes of the tables they wrote.
    pub flush_bytes: u64,
    /// Compactions that read and wrote tables.
    pub compactions: u64,
    /// Tables moved a level down without being rewritten.
    pub trivial_moves: u64,
    /// Bytes of the tables compactions read.
    pub bytes_read: u64,
    /// Bytes of the tables compactions wrote.
    pub bytes_written: u64,
    /// Versions dropped because a newer one hides them from every snapshot.
    pub versions_dropped: u64,
    /// Tombstones dropped because nothing older was left.
    pub tombstones_dropped: u64,
    /// Filters built, by flushes and compactions.
    pub filters_built: u64,
}

/// Bytes on disk (gauges).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SpaceStatistics {
    /// Live tables.
    pub table_bytes: u64,
    /// Tables of the last level that has any.
    pub last_level_bytes: u64,
    /// Logs still needed.
    pub log_bytes: u64,
    /// The manifest.
    pub manifest_bytes: u64,
}

/// Heap bytes by owner (gauges).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryStatistics {
    /// Memtables, their entries and nodes.
    pub memtables: u64,
    /// The memtables' filters.
    pub memtable_filters: u64,
    /// Blocks in the cache.
    pub block_cache: u64,
    /// The tables' filters.
    pub filters: u64,
    /// The tables' indexes and properties.
    pub indexes: u64,
    /// Versions: fences and table lists.
    pub versions: u64,
    /// Counters.
    pub counters: u64,
    /// Log and write buffers.
    pub write_buffers: u64,
    /// Builders of running flushes and compactions.
    pub builders: u64,
}

impl MemoryStatistics {
    /// The sum over all owners.
    pub fn total(&self) -> u64 {
        self.memtables
            + self.memtable_filters
            + self.block_cache
            + self.filters
            + self.indexes
            + self.versions
            + self.counters
            + self.write_buffers
            + self.builders
    }
}

/// Cache and descriptors (gauges, but for the two counters).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ResourceStatistics {
    /// Blocks in the cache now.
    pub cached_blocks: u64,
    /// Blocks that were too large for a part of the cache and were not kept (a counter).
    pub cache_refusals: u64,
    /// Table files open now.
    pub open_tables: u64,
    /// Times a table file was opened, again or for the first time (a counter).
    pub table_opens: u64,
}

/// Everything counted, at one moment. `Display` is one 80-column screen.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Statistics {
    /// Reads as such.
    pub reads: ReadStatistics,
    /// Level by level, from 0.
    pub levels: [LevelStatistics; LEVELS],
    /// Filters as such.
    pub filters: FilterStatistics,
    /// Writes and the log.
    pub writes: WriteStatistics,
    /// Flushes and compactions.
    pub compaction: CompactionStatistics,
    /// Bytes on disk.
    pub space: SpaceStatistics,
    /// Heap bytes by owner.
    pub memory: MemoryStatistics,
    /// Cache and descriptors.
    pub resources: ResourceStatistics,
}

impl Statistics {
    /// What was counted since `earlier`. Gauges (shape, space, memory, unusable filters) stay as they are now.
    #[must_use]
    pub fn since(&self, earlier: &Statistics) -> Statistics {
        let mut delta = self.clone();
        let sub = |to: &mut u64, from: u64| *to = to.saturating_sub(from);
        let (reads, before) = (&mut delta.reads, &earlier.reads);
        sub(&mut reads.gets, before.gets);
        sub(&mut reads.found, before.found);
        sub(&mut reads.memtable_hits, before.memtable_hits);
        sub(&mut reads.memtable_filter_negatives, before.memtable_filter_negatives);
        sub(&mut reads.memtable_searches, before.memtable_searches);
        for (level, before) in delta.levels.iter_mut().zip(&earlier.levels) {
            level.combine(before, false, -1.0);
        }
        let (writes, before) = (&mut delta.writes, &earlier.writes);
        sub(&mut writes.batches, before.batches);
        sub(&mut writes.operations, before.operations);
        sub(&mut writes.user_bytes, before.user_bytes);
        sub(&mut writes.groups, before.groups);
        sub(&mut writes.log_bytes, before.log_bytes);
        sub(&mut writes.log_syncs, before.log_syncs);
        sub(&mut writes.conflicts, before.conflicts);
        let (stalls, before) = (&mut writes.stalls, &before.stalls);
        sub(&mut stalls.delays, before.delays);
        sub(&mut stalls.delay_micros, before.delay_micros);
        sub(&mut stalls.memtable_stops, before.memtable_stops);
        sub(&mut stalls.memtable_stop_micros, before.memtable_stop_micros);
        sub(&mut stalls.level0_stops, before.level0_stops);
        sub(&mut stalls.level0_stop_micros, before.level0_stop_micros);
        sub(&mut stalls.debt_stops, before.debt_stops);
        sub(&mut stalls.debt_stop_micros, before.debt_stop_micros);
        let (work, before) = (&mut delta.compaction, &earlier.compaction);
        sub(&mut work.flushes, before.flushes);
        sub(&mut work.flush_bytes, before.flush_bytes);
        sub(&mut work.compactions, before.compactions);
        sub(&mut work.trivial_moves, before.trivial_moves);
        sub(&mut work.bytes_read, before.bytes_read);
        sub(&mut work.bytes_written, before.bytes_written);
        sub(&mut work.versions_dropped, before.versions_dropped);
        sub(&mut work.tombstones_dropped, before.tombstones_dropped);
        sub(&mut work.filters_built, before.filters_built);
        sub(&mut delta.resources.cache_refusals, earlier.resources.cache_refusals);
        sub(&mut delta.resources.table_opens, earlier.resources.table_opens);
        delta
    }

    /// All levels together.
    pub fn all_levels(&self) -> LevelStatistics {
        let mut sum = LevelStatistics::default();
        for level in &self.levels {
            sum.combine(level, true, 1.0);
        }
        sum
    }

    /// Bytes written to log and tables ÷ user bytes; None before any write.
    pub fn write_amplification(&self) -> Option<f64> {
        let written = self.writes.log_bytes + self.compaction.flush_bytes + self.compaction.bytes_written;
        ratio(written as f64, self.writes.user_bytes as f64)
    }

    /// Bytes in tables ÷ bytes in the last level, which holds each key once: how much room old versions take. None
    /// without tables.
    pub fn space_amplification(&self) -> Option<f64> {
        ratio(self.space.table_bytes as f64, self.space.last_level_bytes as f64)
    }

    /// Data blocks touched per key asked for; None before any read.
    pub fn touches_per_get(&self) -> Option<f64> {
        ratio(self.all_levels().block_touches as f64, self.reads.gets as f64)
    }
}

fn ratio(a: f64, b: f64) -> Option<f64> {
    (b > 0.0).then(|| a / b)
}

/// A count in at most seven characters, up to a million million.
fn count(n: u64) -> String {
    match n {
        0..=999_999 => n.to_string(),
        1_000_000..=999_949_999 => format!("{:.1} M", n as f64 / 1e6),
        999_950_000..=999_949_999_999 => format!("{:.1} G", n as f64 / 1e9),
        _ => format!("{:.1} T", n as f64 / 1e12),
    }
}

/// A number of bytes in at most nine characters, up to a million TiB.
fn bytes(n: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value < 1000.0 { format!("{value:.1} {}", UNITS[unit]) } else { format!("{value:.0} {}", UNITS[unit]) }
}

fn percent(rate: Option<f64>) -> String {
    rate.map_or_else(|| "no data".into(), |r| format!("{:.3} %", r * 100.0))
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "no data".into(), |r| format!("{r:.2}"))
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.all_levels();
        writeln!(
            f,
            "reads    {} keys asked, {} found, {} settled by a memtable",
            count(self.reads.gets),
            count(self.reads.found),
            count(self.reads.memtable_hits)
        )?;
        writeln!(
            f,
            "         block touches a key: {}; {} touches, {} avoided by filters",
            times(self.touches_per_get()),
            count(all.negatives),
            bytes(all.avoided_bytes as u64)
        )?;
        writeln!(
            f,
            "         {} runs out of range, {} tables without a filter, {} invisible",
            count(all.out_of_range),
            count(all.no_filter),
            count(all.invisible)
        )?;
        writeln!(
            f,
            "L  {:>8} {:>9} {:>8} {:>8} {:>9} {:>10} {:>9} {:>8}",
            "tables", "bytes", "negative", "true pos", "false pos", "observed", "expected", "reads"
        )?;
        for (number, level) in self.levels.iter().enumerate() {
            if level.tables == 0 && level.probes() == 0 && level.no_filter == 0 {
                continue;
            }
            writeln!(
                f,
                "L{number} {:>8} {:>9} {:>8} {:>8} {:>9} {:>10} {:>9} {:>8}",
                count(level.tables),
                bytes(level.bytes),
                count(level.negatives),
                count(level.true_positives),
                count(level.false_positives),
                percent(level.observed_rate()),
                percent(level.expected_rate()),
                count(level.block_reads)
            )?;
        }
        for (reason, tables) in &self.filters.unusable {
            writeln!(f, "filters  UNUSABLE, tables {tables}: {reason}")?;
        }
        writeln!(
            f,
            "writes   {} in {} batches, {} groups, {} log syncs",
            count(self.writes.operations),
            count(self.writes.batches),
            count(self.writes.groups),
            count(self.writes.log_syncs)
        )?;
        let stalls = &self.writes.stalls;
        writeln!(
            f,
            "stalls   {} delays {:.1} s\n         stops: flush {} {:.1} s, L0 {} {:.1} s, debt {} {:.1} s",
            count(stalls.delays),
            stalls.delay_micros as f64 / 1e6,
            count(stalls.memtable_stops),
            stalls.memtable_stop_micros as f64 / 1e6,
            count(stalls.level0_stops),
            stalls.level0_stop_micros as f64 / 1e6,
            count(stalls.debt_stops),
            stalls.debt_stop_micros as f64 / 1e6
        )?;
        writeln!(
            f,
            "work     {} flushes wrote {}\n         {} compactions read {}, wrote {}; {} moves",
            count(self.compaction.flushes),
            bytes(self.compaction.flush_bytes),
            count(self.compaction.compactions),
            bytes(self.compaction.bytes_read),
            bytes(self.compaction.bytes_written),
            count(self.compaction.trivial_moves)
        )?;
        writeln!(
            f,
            "amplify  write {}, space {}; tables {}, logs {}",
            times(self.write_amplification()),
            times(self.space_amplification()),
            bytes(self.space.table_bytes),
            bytes(self.space.log_bytes)
        )?;
        let memory = &self.memory;
        writeln!(
            f,
            "memory   {}: memtables {}, cache {}, filters {}",
            bytes(memory.total()),
            bytes(memory.memtables + memory.memtable_filters),
            bytes(memory.block_cache),
            bytes(memory.filters)
        )?;
        write!(
            f,
            "         indexes {}, versions {}, counters {}, buffers {}",
            bytes(memory.indexes),
            bytes(memory.versions),
            bytes(memory.counters),
            bytes(memory.write_buffers + memory.builders)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy() -> Statistics {
        let mut stats = Statistics::default();
        stats.reads.gets = 123_456_789_012;
        stats.reads.found = 99_999_999_999;
        stats.reads.memtable_hits = 98_765_432_101;
        for level in &mut stats.levels {
            *level = LevelStatistics {
                tables: 123_456,
                bytes: 987_654_321_098,
                negatives: 987_654_321,
                true_positives: 987_654_321,
                false_positives: 9_876_543,
                expected_false_positives: 9e6,
                judged_probes: 997_530_864,
                block_reads: 987_654_321,
                block_touches: 987_654_321,
                avoided_bytes: 4e12,
                ..Default::default()
            };
        }
        stats.writes.operations = 999_999_999_999;
        stats.writes.batches = 999_999_999_999;
        stats.writes.groups = 999_999_999_999;
        stats.writes.log_syncs = 999_999_999_999;
        stats.writes.stalls.delays = 999_999;
        stats.writes.stalls.delay_micros = 999_999_999;
        stats.compaction.flushes = 999_999_999_999;
        stats.compaction.compactions = 999_999_999_999;
        stats.compaction.trivial_moves = 999_999_999_999;
        stats.writes.stalls.memtable_stops = 999_999;
        stats.writes.stalls.level0_stops = 999_999;
        stats.writes.stalls.debt_stops = 999_999;
        stats.memory.filters = 999_999_999_999;
        stats.memory.block_cache = 999_999_999_999;
        stats.memory.indexes = 999_999_999_999;
        stats.compaction.flush_bytes = 999_999_999_999;
        stats.compaction.bytes_read = 999_999_999_999;
        stats.compaction.bytes_written = 999_999_999_999;
        stats.memory.memtables = 999_999_999_999;
        stats
    }

    #[test]
    fn a_busy_database_shows_on_one_80_column_screen() {
        let text = busy().to_string();
        assert!(text.lines().count() <= 24, "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
        }
    }

    #[test]
    fn a_rate_without_probes_is_no_data() {
        let mut level = LevelStatistics::default();
        assert_eq!(level.observed_rate(), None);
        assert_eq!(level.expected_rate(), None);
        level.true_positives = 5;
        assert_eq!(level.observed_rate(), None, "true positives say nothing of the rate");
        level.negatives = 99;
        level.false_positives = 1;
        assert_eq!(level.observed_rate(), Some(0.01));
    }

    #[test]
    fn since_subtracts_counters_and_keeps_gauges() {
        let earlier = busy();
        let mut now = earlier.clone();
        now.reads.gets += 5;
        now.levels[3].negatives += 2;
        let delta = now.since(&earlier);
        assert_eq!(delta.reads.gets, 5);
        assert_eq!(delta.levels[3].negatives, 2);
        assert_eq!(delta.levels[3].tables, now.levels[3].tables);
        assert_eq!(delta.writes.operations, 0);
    }
}
