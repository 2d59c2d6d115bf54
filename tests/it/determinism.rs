//! The same seed, inline work and the same calls give the same files, byte for byte, and the same counters.

use crate::model::home::Home;
use crate::model::rng::Rng;
use crate::support::{key, tiny, value};
use siftdb::{KeyspaceOptions, Options, Statistics, WriteOptions};
use std::collections::BTreeMap;

type Files = BTreeMap<String, Vec<u8>>;

/// What a run leaves: the files after each session, and its counters.
#[derive(PartialEq)]
struct Trace {
    files: Vec<Files>,
    statistics: Vec<Statistics>,
}

fn options(seed: u64) -> Options {
    Options { seed: Some(seed), max_wal_bytes: 64 << 10, ..tiny() }
}

/// Gauges of the process, not of the work: what is not freed yet, how long somebody waited.
fn comparable(mut statistics: Statistics) -> Statistics {
    statistics.memory = Default::default();
    let stalls = &mut statistics.writes.stalls;
    stalls.delay_micros = 0;
    stalls.memtable_stop_micros = 0;
    stalls.level0_stop_micros = 0;
    stalls.debt_stop_micros = 0;
    stalls.longest_micros = 0;
    statistics
}

/// Two sessions over three keyspaces: overwrites, deletes, batches, snapshots, flushes, merges, reads.
fn run(home: &Home, seed: u64) -> Trace {
    let mut trace = Trace { files: Vec::new(), statistics: Vec::new() };
    let mut rng = Rng::new(99);
    for session in 0..2 {
        let db = home.open(options(seed)).unwrap();
        let other = db.keyspace("other").unwrap();
        let small = KeyspaceOptions { memtable_bytes: 2 << 10, block_hash_index: true, ..options(seed).keyspace };
        let logs = db.keyspace_with("logs", small).unwrap();
        let mut snapshots = Vec::new();
        for step in 0..6_000_u64 {
            let i = rng.below(1500) as u64;
            match rng.below(100) {
                0..50 => db.put(key(i), value(i, step)).unwrap(),
                50..60 => db.delete(key(i)).unwrap(),
                60..70 => logs.put_with(key(step), value(i, step), &WriteOptions { sync: rng.one_in(20) }).unwrap(),
                70..75 => {
                    let mut batch = db.batch();
                    batch.put(key(i), value(i, step)).on(&other).put(key(i), "batch").delete(key(i + 1));
                    batch.require(key(i), None);
                    _ = batch.commit();
                }
                75..97 => _ = db.get(key(i * 2)).unwrap(),
                97 => snapshots.push(db.snapshot()),
                98 => _ = snapshots.pop(),
                _ => match rng.below(8) {
                    0 => other.compact().unwrap(),
                    1 => db.compact_range(key(i)..key(i + 200)).unwrap(),
                    2 => db.drop_keyspace("passing").or_else(|_| db.keyspace("passing").map(|_| ())).unwrap(),
                    3 => db.wait_idle().unwrap(),
                    _ => db.flush().unwrap(),
                },
            }
        }
        drop(snapshots);
        db.wait_idle().unwrap();
        if session == 0 {
            db.compact().unwrap();
        }
        let statistics = db.statistics();
        assert!(statistics.compaction.compactions > 3, "a run worth comparing\n{statistics}");
        trace.statistics.push(comparable(statistics));
        let keyspaces = db.keyspaces();
        let tables = keyspaces.iter().flat_map(|name| db.keyspace(name).unwrap().tables());
        let live: Vec<u64> = tables.map(|t| t.file_number).collect();
        db.close().unwrap();
        drop((db, other, logs));
        trace.files.push(needed_files(home, &live));
    }
    trace
}

/// All files but superfluous tables: when those go also depends on what other tests of this process are reading.
fn needed_files(home: &Home, live: &[u64]) -> Files {
    let mut files = home.files();
    files.retain(|name, _| table_number(name).is_none_or(|number| live.contains(&number)));
    files
}

fn table_number(name: &str) -> Option<u64> {
    name.strip_suffix(".sst")?.parse().ok()
}

/// Where a table's footer has its id: see `docs/format.md`.
fn table_id(table: &[u8]) -> u64 {
    let footer = &table[table.len() - 64..];
    u64::from_le_bytes(footer[8..16].try_into().unwrap())
}

fn assert_same(one: &Trace, other: &Trace) {
    for (one, other) in one.files.iter().zip(&other.files) {
        let names = |files: &Files| files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(one), names(other));
        for (name, bytes) in one {
            let same = bytes.iter().zip(&other[name]).take_while(|(a, b)| a == b).count();
            assert_eq!(bytes.len(), other[name].len(), "length of {name}");
            assert_eq!(same, bytes.len(), "{name} differs from byte {same} on");
        }
    }
    for (one, other) in one.statistics.iter().zip(&other.statistics) {
        assert_eq!(one, other, "counters\n{one}\n{other}");
    }
    assert!(one == other);
}

#[test]
fn the_same_seed_gives_the_same_files_and_counters_in_memory() {
    assert_same(&run(&Home::memory(), 5), &run(&Home::memory(), 5));
}

#[test]
fn the_same_seed_gives_the_same_files_and_counters_on_disk_as_in_memory() {
    let on_disk = run(&Home::disk(), 5);
    assert_same(&on_disk, &run(&Home::disk(), 5));
    let in_memory = run(&Home::memory(), 5);
    for (disk, memory) in on_disk.files.iter().zip(&in_memory.files) {
        assert!(disk == memory, "the kind of file system shows in the files");
    }
}

#[test]
fn another_seed_gives_other_table_ids_and_the_same_counts() {
    let (one, two) = (run(&Home::memory(), 5), run(&Home::memory(), 6));
    for (one, two) in one.files.iter().zip(&two.files) {
        let tables = |files: &Files| -> BTreeMap<u64, u64> {
            files.iter().filter_map(|(name, bytes)| Some((table_number(name)?, table_id(bytes)))).collect()
        };
        let (one, two) = (tables(one), tables(two));
        assert!(one.len() > 3);
        assert_eq!(one.keys().collect::<Vec<_>>(), two.keys().collect::<Vec<_>>());
        assert!(one.iter().all(|(number, id)| two[number] != *id), "a table id without the seed");
    }
    for (one, two) in one.statistics.iter().zip(&two.statistics) {
        assert_eq!(one.writes, two.writes);
        assert_eq!(one.reads.found, two.reads.found);
        assert_eq!(one.compaction.compactions, two.compaction.compactions);
    }
}
