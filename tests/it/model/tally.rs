//! What a run did, counted by hand, and held against the engine's counters.

use siftdb::{LevelReadStats, LevelStatistics, ReadStats, Statistics};

/// Counted since the database was opened.
#[derive(Default)]
pub struct Tally {
    pub gets: u64,
    pub found: u64,
    pub batches: u64,
    pub operations: u64,
    pub conflicts: u64,
}

impl Tally {
    /// The engine counted the same, and its counters agree with each other.
    pub fn check(&self, stats: &Statistics, mapped: bool, cache_bytes: u64) {
        assert_eq!(stats.reads.gets, self.gets, "gets\n{stats}");
        assert_eq!(stats.reads.found, self.found, "found\n{stats}");
        assert_eq!(stats.writes.batches, self.batches, "batches\n{stats}");
        assert_eq!(stats.writes.operations, self.operations, "operations\n{stats}");
        assert_eq!(stats.writes.conflicts, self.conflicts, "conflicts\n{stats}");
        assert!(stats.reads.memtable_hits <= stats.reads.gets);
        let all = stats.all_levels();
        let in_tables = all.true_positives + all.no_filter;
        assert!(stats.reads.found <= stats.reads.memtable_hits + in_tables, "{stats}");
        assert!(all.true_positives <= stats.reads.gets, "a read ends at its first hit\n{stats}");
        for (number, level) in stats.levels.iter().enumerate() {
            let judged = level.negatives + level.invisible + level.false_positives;
            assert_eq!(level.judged_probes, judged, "level {number}\n{stats}");
            assert!(level.expected_false_positives <= judged as f64 + 1e-6, "level {number}\n{stats}");
            assert!(level.block_touches >= level.true_positives + level.invisible, "level {number}\n{stats}");
            assert!(level.block_reads <= level.block_touches, "level {number}\n{stats}");
            assert!(level.read_bytes >= level.block_reads, "level {number}\n{stats}");
            if mapped {
                assert_eq!(level.block_reads, 0, "level {number}\n{stats}");
            } else if cache_bytes == 0 {
                assert_eq!(level.block_reads, level.block_touches, "level {number}\n{stats}");
            }
        }
    }
}

/// The accounts of single reads add up to what the counters counted meanwhile, level by level.
pub fn check_accounts(accounts: &[ReadStats], counted: &Statistics) {
    assert_eq!(counted.reads.gets, accounts.len() as u64);
    let sum = |part: fn(&ReadStats) -> u64| accounts.iter().map(part).sum::<u64>();
    assert_eq!(counted.reads.memtable_searches, sum(|a| u64::from(a.memtables_searched)));
    assert_eq!(counted.reads.memtable_filter_negatives, sum(|a| u64::from(a.memtable_filter_negatives)));
    for (number, level) in counted.levels.iter().enumerate() {
        let mut added = [0; 9];
        for account in accounts {
            added.iter_mut().zip(parts(&account.levels[number])).for_each(|(to, part)| *to += part);
        }
        assert_eq!(counters(level), added, "level {number}: accounts {accounts:?}\ncounted {level:?}");
    }
    for account in accounts {
        let asked: u64 = account.levels.iter().map(|l| parts(l)[1..6].iter().sum::<u64>()).sum();
        assert_eq!(account.tables_asked() as u64, asked);
        assert_eq!(account.tables().count(), account.tables_asked().min(24));
    }
}

fn parts(level: &LevelReadStats) -> [u64; 9] {
    [
        level.out_of_range.into(),
        level.no_filter.into(),
        level.negatives.into(),
        level.true_positives.into(),
        level.invisible.into(),
        level.false_positives.into(),
        level.block_touches.into(),
        level.block_reads.into(),
        level.read_bytes,
    ]
}

fn counters(level: &LevelStatistics) -> [u64; 9] {
    [
        level.out_of_range,
        level.no_filter,
        level.negatives,
        level.true_positives,
        level.invisible,
        level.false_positives,
        level.block_touches,
        level.block_reads,
        level.read_bytes,
    ]
}
