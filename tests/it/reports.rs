//! Kinds of fault that other engines had in public, each tried on this one where no other module does.

use crate::support::{Watchdog, key, open_in, tiny};
use siftdb::vfs::{FaultFileSystem, MemoryFileSystem};
use siftdb::{Db, ErrorKind, KeyspaceOptions, Options};
use std::sync::Arc;
use std::time::Duration;

fn threaded(threads: usize) -> Options {
    Options { background_threads: threads, ..tiny() }
}

/// Nothing is flushed or merged but when the test asks for it.
fn by_hand() -> KeyspaceOptions {
    KeyspaceOptions {
        memtable_bytes: 1 << 20,
        l0_compaction_trigger: 1000,
        l0_slowdown: 1001,
        l0_stop: 1002,
        ..tiny().keyspace
    }
}

/// A cache that knew a file by its number or path would give the first database's blocks: with the same seed the second
/// one's files have the same numbers, names and table ids.
#[test]
fn a_database_made_anew_in_the_same_place_is_never_read_from_the_first_ones_cache() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("db");
    let fill = |db: &Db, byte: u8| {
        (0..500).for_each(|i| db.put(key(i), [byte; 50]).unwrap());
        db.compact().unwrap();
        assert!((0..500).all(|i| db.get(key(i)).unwrap().unwrap() == [byte; 50]));
    };
    let first = tiny().open(&dir).unwrap();
    fill(&first, 1);
    let held = first.get(key(7)).unwrap().unwrap();
    let numbers: Vec<u64> = first.tables().iter().map(|t| t.file_number).collect();
    first.close().unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    let second = tiny().open(&dir).unwrap();
    fill(&second, 2);
    assert_eq!(second.tables().iter().map(|t| t.file_number).collect::<Vec<_>>(), numbers);
    // The first one's handles are closed, not readers of the second one's files.
    assert_eq!(first.get(key(7)).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(held, [1; 50]);
    second.compact().unwrap();
    second.verify().unwrap();
}

#[test]
fn clean_up_between_a_compactions_end_and_its_commit_takes_none_of_its_tables() {
    let _watch = Watchdog::start("clean-up before a commit".into());
    let db = open_in(&MemoryFileSystem::new(), Options { keyspace: by_hand(), ..threaded(3) }).unwrap();
    let other = db.keyspace("other").unwrap();
    for round in 0..2 {
        (0..300).for_each(|i| db.put(key(i), format!("{round}")).unwrap());
        db.flush().unwrap();
    }
    let points = db.pause_points();
    points.hold("compaction:before_install");
    std::thread::scope(|scope| {
        let merging = scope.spawn(|| db.compact());
        assert!(points.wait_for("compaction:before_install", 1));
        // Everything that removes files.
        other.put("k", "1").unwrap();
        db.flush_all().unwrap();
        db.keyspace("third").unwrap().put("k", "1").unwrap();
        db.drop_keyspace("third").unwrap();
        points.release("compaction:before_install");
        merging.join().unwrap().unwrap();
    });
    assert!((0..300).all(|i| db.get(key(i)).unwrap().unwrap() == *b"1"));
    db.verify().unwrap();
}

#[test]
fn tombstones_of_a_mass_delete_go_without_being_asked_for() {
    for threads in [0, 2] {
        let db = open_in(&MemoryFileSystem::new(), threaded(threads)).unwrap();
        (0..5000).for_each(|i| db.put(key(i), [b'v'; 40]).unwrap());
        db.flush().unwrap();
        db.wait_idle().unwrap();
        let full = db.statistics().space.table_bytes;
        (0..5000).filter(|i| i % 100 > 0).for_each(|i| db.delete(key(i)).unwrap());
        db.flush().unwrap();
        db.wait_idle().unwrap();
        let stats = db.statistics();
        assert!(stats.all_levels().tombstones < 300, "{threads} threads: {stats}");
        assert!(stats.space.table_bytes < full / 10, "{} of {full} bytes are left", stats.space.table_bytes);
        assert!((0..5000).all(|i| db.contains_key(key(i)).unwrap() == (i % 100 == 0)));
    }
}

#[test]
fn a_queue_keeps_room_and_tombstones_for_what_is_in_it_only() {
    let db = open_in(&MemoryFileSystem::new(), tiny()).unwrap();
    let mut most = (0, 0);
    for i in 0..20_000 {
        db.put(key(i), [b'v'; 40]).unwrap();
        if i >= 100 {
            db.delete(key(i - 100)).unwrap();
        }
        if i % 1000 == 999 {
            let all = db.statistics().all_levels();
            most = (most.0.max(all.tombstones), most.1.max(all.bytes));
        }
    }
    assert!(most.0 < 1000 && most.1 < 200 << 10, "{most:?} tombstones and bytes for 100 live keys");
    assert!((0..20_000).all(|i| db.contains_key(key(i)).unwrap() == (i >= 19_900)));
}

/// A snapshot that ends is no write: nothing else might come to see that its tombstones can go.
#[test]
fn tombstones_that_a_snapshot_kept_go_once_it_has_ended() {
    for threads in [0, 2] {
        let db = open_in(&MemoryFileSystem::new(), threaded(threads)).unwrap();
        (0..1000).for_each(|i| db.put(key(i), [b'v'; 40]).unwrap());
        let snapshot = db.snapshot();
        (0..1000).for_each(|i| db.delete(key(i)).unwrap());
        db.flush().unwrap();
        db.wait_idle().unwrap();
        assert!((0..1000).all(|i| snapshot.get(key(i)).unwrap().is_some()));
        assert!((0..1000).all(|i| db.get(key(i)).unwrap().is_none()));
        drop(snapshot);
        db.wait_idle().unwrap();
        let all = db.statistics().all_levels();
        assert_eq!((all.tables, all.tombstones), (0, 0), "{threads} threads: {all:?}");
    }
}

#[test]
fn every_wait_ends_while_snapshots_flushes_and_merges_come_and_go() {
    for threads in [0, 1, 3] {
        let _watch = Watchdog::start(format!("waits with {threads} threads"));
        let db = open_in(&MemoryFileSystem::new(), threaded(threads)).unwrap();
        let db = &db;
        std::thread::scope(|scope| {
            scope.spawn(move || (0..3000).for_each(|i| db.put(key(i % 500), [b'v'; 60]).unwrap()));
            scope.spawn(move || {
                for i in 0..60 {
                    let snapshot = db.snapshot();
                    db.flush().unwrap();
                    snapshot.get(key(i)).unwrap();
                    drop(snapshot);
                    db.wait_idle().unwrap();
                }
            });
            scope.spawn(move || (0..20).for_each(|_| db.compact_range(key(10)..key(300)).unwrap()));
            scope.spawn(move || (0..60).for_each(|_| db.wait_idle().and_then(|()| db.sync()).unwrap()));
        });
        db.wait_idle().unwrap();
        db.verify().unwrap();
    }
}

#[test]
fn no_insert_is_lost_though_flushes_begin_with_the_opening() {
    let fs = MemoryFileSystem::new();
    for round in 0..12 {
        let db = open_in(&fs, threaded(2)).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let db = &db;
                scope.spawn(move || {
                    let first = (round * 3 + thread) * 500;
                    (first..first + 500).for_each(|i| db.put(key(i), [b'v'; 256]).unwrap());
                });
            }
            scope.spawn(|| (0..5).for_each(|_| db.flush().unwrap()));
        });
        let all = (round + 1) * 1500;
        assert!((0..all).all(|i| db.contains_key(key(i)).unwrap()), "round {round}");
        if round % 2 == 0 {
            db.close().unwrap();
        }
    }
}

#[test]
fn with_slow_files_and_one_thread_a_writer_gets_through_ten_memtables() {
    for threads in [0, 1] {
        let fs = FaultFileSystem::new(Arc::new(MemoryFileSystem::new()));
        let db = Db::builder().options(threaded(threads)).file_system(Arc::new(fs.clone())).open("db").unwrap();
        let _watch = Watchdog::start(format!("slow files, {threads} threads"));
        fs.set_delay(Duration::from_micros(200));
        (0..800).for_each(|i| db.put(key(i), [b'v'; 100]).unwrap());
        db.wait_idle().unwrap();
        fs.set_delay(Duration::ZERO);
        assert!(db.statistics().compaction.flushes >= 3, "{}", db.statistics());
        assert!((0..800).all(|i| db.contains_key(key(i)).unwrap()));
    }
}
