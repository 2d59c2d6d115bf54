//! Snapshots against flushes and compactions: what one sees never changes, and what none sees goes.

use crate::support::{open_in, tiny};
use siftdb::vfs::MemoryFileSystem;
use siftdb::{Db, ErrorKind, KeyspaceOptions, Options, ReadOptions, Snapshot};

fn open(options: Options) -> Db {
    open_in(&MemoryFileSystem::new(), options).unwrap()
}

/// Nothing is flushed or merged but when the test asks for it.
fn by_hand() -> Options {
    let mut options = tiny();
    options.keyspace =
        KeyspaceOptions { l0_compaction_trigger: 1000, l0_slowdown: 1001, l0_stop: 1002, ..options.keyspace };
    options.keyspace.memtable_bytes = 1 << 20;
    options.keyspace.tombstone_density_trigger = 2.0;
    options
}

fn threaded(mut options: Options) -> Options {
    options.background_threads = 3;
    options
}

fn at(snapshot: &Snapshot, key: &str) -> Option<String> {
    snapshot.get(key).unwrap().map(|value| String::from_utf8(value.to_vec()).unwrap())
}

fn now(db: &Db, key: &str) -> Option<String> {
    db.get(key).unwrap().map(|value| String::from_utf8(value.to_vec()).unwrap())
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn a_snapshot_taken_while_a_flush_runs_keeps_its_version() {
    for point in ["flush:begin", "flush:before_install", "install:before_view"] {
        let db = open(threaded(by_hand()));
        db.put("k", "1").unwrap();
        let points = db.pause_points();
        points.hold(point);
        std::thread::scope(|scope| {
            let flush = scope.spawn(|| db.flush().unwrap());
            assert!(points.wait_for(point, 1), "{point}");
            let snapshot = db.snapshot();
            db.put("k", "2").unwrap();
            db.delete("k2").unwrap();
            points.release(point);
            flush.join().unwrap();
            db.flush().unwrap();
            assert_eq!(at(&snapshot, "k"), some("1"), "{point}");
            db.compact().unwrap();
            assert_eq!((at(&snapshot, "k"), now(&db, "k")), (some("1"), some("2")), "{point}");
        });
    }
}

#[test]
fn a_snapshot_taken_while_a_compaction_runs_keeps_its_version() {
    for point in ["compaction:begin", "compaction:before_install", "install:before_view"] {
        let db = open(threaded(by_hand()));
        for version in ["1", "2"] {
            db.put("k", version).unwrap();
            db.put("gone", version).unwrap();
            db.flush().unwrap();
        }
        let points = db.pause_points();
        points.hold(point);
        std::thread::scope(|scope| {
            let merge = scope.spawn(|| db.compact().unwrap());
            assert!(points.wait_for(point, 1), "{point}");
            let snapshot = db.snapshot();
            db.put("k", "3").unwrap();
            db.delete("gone").unwrap();
            assert_eq!((at(&snapshot, "k"), now(&db, "k")), (some("2"), some("3")), "{point}");
            points.release(point);
            merge.join().unwrap();
            db.compact().unwrap();
            assert_eq!((at(&snapshot, "k"), at(&snapshot, "gone")), (some("2"), some("2")), "{point}");
            assert_eq!((now(&db, "k"), now(&db, "gone")), (some("3"), None), "{point}");
        });
    }
}

#[test]
fn versions_that_a_snapshot_keeps_are_never_read_in_place_of_the_newest() {
    // Tables of one byte: every key has a table of its own, and all of its versions lie in it.
    let mut options = tiny();
    options.keyspace.table_bytes = 1;
    options.keyspace.block_bytes = 1;
    options.keyspace.base_level_bytes = 1;
    options.keyspace.level_multiplier = 2;
    let db = open(options);
    let mut snapshots = Vec::new();
    for version in 0..40 {
        for key in ["a", "k", "z"] {
            db.put(key, format!("{version}")).unwrap();
        }
        snapshots.push(db.snapshot());
        match version % 4 {
            0 => db.flush().unwrap(),
            1 => db.compact_range("k"..="k").unwrap(),
            2 => db.compact_range("a"..="a").unwrap(),
            _ => {}
        }
        assert_eq!(now(&db, "k"), Some(format!("{version}")));
    }
    db.compact().unwrap();
    for key in ["a", "k", "z"] {
        assert_eq!(now(&db, key), some("39"));
        for (version, snapshot) in snapshots.iter().enumerate() {
            assert_eq!(at(snapshot, key), Some(format!("{version}")));
        }
    }
    let mut bounds: Vec<_> =
        db.tables().iter().map(|t| (t.level, t.smallest_key.clone(), t.largest_key.clone())).collect();
    bounds.sort();
    for pair in bounds.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        assert!(pair[0].2 < pair[1].1, "a key's versions lie in two tables of a level: {bounds:?}");
    }
}

#[test]
fn a_snapshot_of_an_empty_database_sees_nothing_and_harms_nothing() {
    let db = open(by_hand());
    let empty = db.snapshot();
    assert_eq!(empty.seqno(), 0);
    db.put("k", "1").unwrap();
    db.compact().unwrap();
    assert_eq!((at(&empty, "k"), now(&db, "k")), (None, some("1")));
    // Its only version has lost its number by now, and a snapshot of this moment still sees it.
    drop(empty);
    db.put("k2", "1").unwrap();
    db.compact().unwrap();
    let one = db.snapshot();
    db.put("k", "2").unwrap();
    db.compact().unwrap();
    assert_eq!((at(&one, "k"), now(&db, "k")), (some("1"), some("2")));
}

#[test]
fn a_snapshot_between_two_versions_keeps_the_older_one() {
    // Versions at 3, 5 and 60, snapshot at 50, whatever was merged before and after.
    for flushes in 0..8 {
        let db = open(by_hand());
        let fill_to = |seqno: u64| {
            while db.snapshot().seqno() < seqno {
                db.put("other", "x").unwrap();
            }
        };
        let maybe_flush = |bit: u32| {
            if flushes & (1 << bit) != 0 {
                db.flush().unwrap()
            }
        };
        fill_to(2);
        db.put("k", "3").unwrap();
        maybe_flush(0);
        fill_to(4);
        db.put("k", "5").unwrap();
        maybe_flush(1);
        fill_to(50);
        let snapshot = db.snapshot();
        fill_to(59);
        maybe_flush(2);
        db.put("k", "60").unwrap();
        db.compact().unwrap();
        assert_eq!((at(&snapshot, "k"), now(&db, "k")), (some("5"), some("60")), "flushes {flushes:03b}");
        let entries: u64 = db.tables().iter().map(|t| t.entries).sum();
        assert_eq!(entries, 4, "two versions of two keys");
    }
}

#[test]
fn a_key_that_is_always_there_is_there_in_every_read_while_flushes_go_on() {
    let db = open(threaded(by_hand()));
    db.put("k", "0").unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut last = 0;
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        let pair = db.multi_get(["k", "k"]).unwrap();
                        assert_eq!(pair[0], pair[1], "one moment");
                        let read = now(&db, "k").expect("v1 or v2, never absent").parse::<u64>().unwrap();
                        assert!(read >= last, "a read went back from {last} to {read}");
                        last = read;
                        let snapshot = db.snapshot();
                        let first = at(&snapshot, "k").expect("a snapshot sees it");
                        assert_eq!(at(&snapshot, "k"), Some(first));
                    }
                })
            })
            .collect();
        for version in 1..400 {
            db.put("k", format!("{version}")).unwrap();
            if version % 4 == 0 {
                db.flush().unwrap();
            }
            if version % 40 == 0 {
                db.compact().unwrap();
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

#[test]
fn a_compaction_drops_the_versions_of_snapshots_that_have_ended() {
    let db = open(by_hand());
    db.put("k", "1").unwrap();
    let snapshot = db.snapshot();
    db.put("k", "2").unwrap();
    db.compact().unwrap();
    assert_eq!(db.tables().iter().map(|t| t.entries).sum::<u64>(), 2);
    drop(snapshot);
    db.compact().unwrap();
    assert_eq!(db.tables().iter().map(|t| t.entries).sum::<u64>(), 1, "the old version is gone");
}

#[test]
fn a_tombstone_stays_while_a_snapshot_sees_what_it_hides_and_goes_afterwards() {
    let db = open(by_hand());
    db.put("k", "1").unwrap();
    let snapshot = db.snapshot();
    db.delete("k").unwrap();
    db.compact().unwrap();
    assert_eq!((at(&snapshot, "k"), now(&db, "k")), (some("1"), None));
    let clone = snapshot.clone();
    drop(snapshot);
    db.compact().unwrap();
    assert_eq!(at(&clone, "k"), some("1"), "a clone keeps it");
    drop(clone);
    db.compact().unwrap();
    assert!(db.tables().is_empty(), "{:?}", db.tables());
}

#[test]
fn a_snapshot_sees_all_keyspaces_at_one_moment() {
    let db = open(by_hand());
    let other = db.keyspace("other").unwrap();
    let mut batch = db.batch();
    batch.put("k", "1").on(&other).put("k", "1");
    batch.commit().unwrap();
    let snapshot = db.snapshot();
    let younger = db.keyspace("younger").unwrap();
    other.put("k", "2").unwrap();
    younger.put("k", "2").unwrap();
    for keyspace in [&other, &younger] {
        keyspace.compact().unwrap();
    }
    assert_eq!(at(&snapshot, "k"), some("1"));
    assert_eq!(at(&snapshot.on(&other), "k"), some("1"));
    assert_eq!(at(&snapshot.on(&younger), "k"), None, "created later");
    db.drop_keyspace("other").unwrap();
    assert_eq!(snapshot.on(&other).get("k").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(at(&snapshot, "k"), some("1"));
}

#[test]
fn a_snapshot_of_another_database_is_refused() {
    let (one, two) = (open(by_hand()), open(by_hand()));
    one.put("k", "1").unwrap();
    two.put("k", "2").unwrap();
    let options = ReadOptions { snapshot: Some(two.snapshot()), fill_cache: true };
    assert_eq!(one.get_with("k", &options).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(two.snapshot().on(&one).get("k").unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_snapshot_keeps_the_database_open_until_it_is_dropped() {
    let fs = MemoryFileSystem::new();
    let db = open_in(&fs, by_hand()).unwrap();
    db.put("k", "1").unwrap();
    let snapshot = db.snapshot();
    drop(db);
    assert_eq!(at(&snapshot, "k"), some("1"));
    assert_eq!(open_in(&fs, by_hand()).unwrap_err().kind(), ErrorKind::Locked);
    drop(snapshot);
    assert_eq!(now(&open_in(&fs, by_hand()).unwrap(), "k"), some("1"));
}
