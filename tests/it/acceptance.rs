//! What the engine promises in figures, by its own counters.

use crate::support::{key, open_in, tiny, value};
use siftdb::vfs::MemoryFileSystem;
use siftdb::{Compression, FilterKind, FilterOptions, FilterSize, KeyspaceOptions, Options};

const N: u64 = 10_000;

/// LevelDB's old test of its Bloom filter: all keys in the bottom level, every hundredth again above it, no cache.
fn classic(filter: FilterOptions) -> siftdb::Db {
    let options = Options {
        cache_bytes: 0,
        background_threads: 0,
        seed: Some(3),
        keyspace: KeyspaceOptions { filter, l0_compaction_trigger: 8, ..Default::default() },
        ..Default::default()
    };
    let db = open_in(&MemoryFileSystem::new(), options).unwrap();
    for i in 0..N {
        db.put(key(i * 2), key(i * 2)).unwrap();
    }
    db.flush().unwrap();
    db.compact().unwrap();
    for i in (0..N).step_by(100) {
        db.put(key(i * 2), key(i * 2)).unwrap();
    }
    db.flush().unwrap();
    let levels = db.statistics().levels;
    assert_eq!((levels[0].tables, levels[0].entries), (1, N / 100));
    assert_eq!(levels[6].entries, N);
    db
}

#[test]
fn a_present_key_costs_one_block_read_and_an_absent_one_next_to_none() {
    for kind in [FilterKind::Blocked, FilterKind::Bloom] {
        let db = classic(FilterOptions { kind, size: FilterSize::BitsPerKey(10.0) });
        let before = db.statistics();
        for i in 0..N {
            assert_eq!(db.get(key(i * 2)).unwrap().unwrap(), key(i * 2));
        }
        let present = db.statistics().since(&before);
        assert!(present.all_levels().block_reads <= N + N / 50, "{kind:?}: {present}");
        assert!(present.all_levels().block_reads >= N, "every present key needs its block");

        let before = db.statistics();
        for i in 0..N {
            assert_eq!(db.get(key(i * 2 + 1)).unwrap(), None);
        }
        let absent = db.statistics().since(&before);
        let all = absent.all_levels();
        assert!(all.block_reads <= N * 3 / 100, "{kind:?}: {absent}");
        assert_eq!(all.block_reads, all.false_positives, "without a cache, each false positive is one read");
        assert_eq!(absent.reads.gets, N);
    }
}

#[test]
fn without_filters_every_absent_key_costs_a_read_in_each_level() {
    let db = classic(FilterOptions { kind: FilterKind::None, ..Default::default() });
    let before = db.statistics();
    for i in 0..N - 100 {
        assert_eq!(db.get(key(i * 2 + 1)).unwrap(), None);
    }
    let all = db.statistics().since(&before).all_levels();
    assert_eq!((all.no_filter, all.block_reads), (2 * (N - 100), 2 * (N - 100)));
    assert_eq!((all.probes(), all.observed_rate()), (0, None));
}

#[test]
fn the_counters_of_single_reads_add_up_to_the_databases() {
    let db = open_in(&MemoryFileSystem::new(), tiny()).unwrap();
    for i in 0..4000 {
        db.put(key(i * 3 % 4000), value(i, 0)).unwrap();
    }
    let before = db.statistics();
    let mut sums = [[0_u64; 7]; 7];
    let mut memtables = (0, 0);
    for i in 0..4000 {
        let name = if i % 2 == 0 { key(i) } else { [key(i), b"x".to_vec()].concat() };
        let (found, stats) = db.get_with_stats(name).unwrap();
        assert_eq!(found.is_some(), i % 2 == 0);
        memtables.0 += u64::from(stats.memtables_searched);
        memtables.1 += u64::from(stats.memtable_filter_negatives);
        for (sum, level) in sums.iter_mut().zip(&stats.levels) {
            let counts = [
                level.negatives,
                level.true_positives,
                level.invisible,
                level.false_positives,
                level.no_filter,
                level.block_touches,
                level.block_reads,
            ];
            for (to, from) in sum.iter_mut().zip(counts) {
                *to += u64::from(from);
            }
        }
    }
    let delta = db.statistics().since(&before);
    assert_eq!(delta.reads.gets, 4000);
    assert_eq!((delta.reads.memtable_searches, delta.reads.memtable_filter_negatives), memtables);
    for (sum, level) in sums.iter().zip(&delta.levels) {
        let counted = [
            level.negatives,
            level.true_positives,
            level.invisible,
            level.false_positives,
            level.no_filter,
            level.block_touches,
            level.block_reads,
        ];
        assert_eq!(*sum, counted);
    }
    let by_table: Vec<_> = db.tables().into_iter().filter(|t| t.observed_rate.is_some()).collect();
    assert!(!by_table.is_empty());
}

#[test]
fn an_observed_rate_agrees_with_the_expected_one() {
    let mut options = tiny();
    options.keyspace.memtable_bytes = 1 << 20;
    options.keyspace.table_bytes = 1 << 20;
    options.keyspace.filter.size = FilterSize::BitsPerKey(6.0);
    options.keyspace.compression = [Compression::None; 7];
    let db = open_in(&MemoryFileSystem::new(), options).unwrap();
    for i in 0..20_000 {
        db.put(key(i * 2), "v").unwrap();
    }
    db.compact().unwrap();
    for i in 0..40_000 {
        assert_eq!(db.get([key(i), b"?".to_vec()].concat()).unwrap(), None);
    }
    let all = db.statistics().all_levels();
    let (observed, expected) = (all.observed_rate().unwrap(), all.expected_rate().unwrap());
    // About 2,000 false positives: three standard deviations are 7 %.
    assert!((observed / expected - 1.0).abs() < 0.07, "observed {observed}, expected {expected}");
    assert!(all.avoided_bytes > 0.9 * 40_000.0 * 256.0);
}

#[test]
fn many_tables_share_few_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = tiny();
    options.max_open_files = 16;
    options.cache_bytes = 0;
    options.keyspace.compression = [Compression::None; 7];
    let db = options.open(dir.path().join("db")).unwrap();
    for i in 0..8000 {
        db.put(key(i * 7 % 8000), value(i, 1)).unwrap();
    }
    db.flush().unwrap();
    let stats = db.statistics();
    assert!(stats.all_levels().tables > 40, "{stats}");
    for i in 0..8000 {
        assert!(db.contains_key(key(i)).unwrap());
    }
    let stats = db.statistics();
    assert!(stats.resources.open_tables <= 16, "{} are open", stats.resources.open_tables);
    assert!(stats.resources.table_opens > stats.all_levels().tables);
    db.verify().unwrap();
}

#[test]
fn memtables_of_many_keyspaces_stay_under_the_memory_budget() {
    let budget = 8 << 20;
    let options = Options {
        memory_budget: Some(budget),
        background_threads: 0,
        seed: Some(1),
        keyspace: KeyspaceOptions { memtable_bytes: 4 << 20, ..Default::default() },
        ..Default::default()
    };
    let db = open_in(&MemoryFileSystem::new(), options).unwrap();
    let keyspaces: Vec<_> = (0..8).map(|i| db.keyspace(&format!("k{i}")).unwrap()).collect();
    let mut most = 0;
    for i in 0..60_000 {
        keyspaces[i as usize % 8].put(key(i), [7; 300]).unwrap();
        if i % 500 == 0 {
            most = most.max(db.statistics().memory.total());
        }
    }
    assert!(most <= budget, "{most} bytes of {budget}");
    assert!(db.statistics().compaction.flushes > 2);
    for i in 0..60_000 {
        assert!(keyspaces[i as usize % 8].contains_key(key(i)).unwrap());
    }
}

#[test]
fn a_value_outlives_cache_and_database() {
    let mut options = tiny();
    options.cache_bytes = 64 << 10;
    let db = open_in(&MemoryFileSystem::new(), options).unwrap();
    for i in 0..2000 {
        db.put(key(i), value(i, 3)).unwrap();
    }
    db.compact().unwrap();
    let held: Vec<_> = (0..2000).step_by(100).map(|i| db.get(key(i)).unwrap().unwrap()).collect();
    for i in 0..2000 {
        db.put(key(i), "other").unwrap();
    }
    db.compact().unwrap();
    db.close().unwrap();
    drop(db);
    for (at, held) in held.iter().enumerate() {
        assert_eq!(*held, value(at as u64 * 100, 3));
    }
}
