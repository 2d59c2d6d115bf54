//! Keyspaces: one log, each its own tables; what is dropped stays dropped, what is kept is kept.

use crate::model::home::Home;
use crate::model::rng::Rng;
use crate::support::{key, open_in, tiny, value};
use siftdb::vfs::{CrashVariant, MemoryFileSystem};
use siftdb::{Db, ErrorKind, Keyspace, Options};

/// Nothing is flushed or merged but when the test asks for it.
fn by_hand() -> Options {
    let mut options = tiny();
    options.keyspace.memtable_bytes = 4 << 20;
    options.keyspace.l0_compaction_trigger = 1000;
    options.keyspace.l0_slowdown = 1001;
    options.keyspace.l0_stop = 1002;
    options.keyspace.tombstone_density_trigger = 2.0;
    options
}

fn kill(home: &Home, options: Options) -> (Home, Db) {
    let image = home.after_kill().expect("in memory");
    let db = image.open(options).unwrap();
    (image, db)
}

fn entries(keyspace: &Keyspace) -> u64 {
    keyspace.tables().iter().map(|t| t.entries).sum()
}

#[test]
fn a_dropped_keyspace_is_not_brought_back_by_replay() {
    for flushed in [false, true] {
        let home = Home::memory();
        let db = home.open(by_hand()).unwrap();
        let orders = db.keyspace("orders").unwrap();
        for i in 0..1000 {
            orders.put(key(i), value(i, 0)).unwrap();
            db.put(key(i), value(i, 0)).unwrap();
        }
        if flushed {
            orders.flush().unwrap();
        }
        db.drop_keyspace("orders").unwrap();
        let (image, after) = kill(&home, by_hand());
        assert_eq!(after.keyspaces(), ["default"]);
        let again = after.keyspace("orders").unwrap();
        assert!((0..1000).all(|i| again.get(key(i)).unwrap().is_none()));
        assert!((0..1000).all(|i| after.get(key(i)).unwrap().is_some()));
        again.put("k", "new").unwrap();
        drop((after, again));
        // Created again under the name, it is another one: the first one's records still lie in the log.
        let after = image.open(by_hand()).unwrap();
        let again = after.keyspace("orders").unwrap();
        assert_eq!(again.get("k").unwrap().as_deref(), Some(&b"new"[..]));
        assert!((0..1000).all(|i| again.get(key(i)).unwrap().is_none()));
    }
}

#[test]
fn handles_of_a_dropped_keyspace_give_not_found_and_a_batch_with_it_writes_nothing() {
    let db = open_in(&MemoryFileSystem::new(), tiny()).unwrap();
    let orders = db.keyspace("orders").unwrap();
    orders.put("k", "1").unwrap();
    let mut batch = db.batch();
    batch.put("k", "1").on(&orders).put("k", "2");
    db.drop_keyspace("orders").unwrap();
    let again = db.keyspace("orders").unwrap();
    assert_eq!(batch.commit().unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!((db.get("k").unwrap(), again.get("k").unwrap()), (None, None));
    for result in [orders.put("k", "3"), orders.delete("k"), orders.flush(), orders.compact()] {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::NotFound);
    }
    assert_eq!(orders.get("k").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(orders.multi_get(["k"]).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(db.drop_keyspace("nobody").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(db.drop_keyspace("default").unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_keyspace_dropped_while_its_flush_or_compaction_runs_leaves_no_table() {
    for point in ["flush:begin", "flush:before_install", "compaction:begin", "compaction:before_install"] {
        let home = Home::memory();
        let db = home.open(Options { background_threads: 3, ..by_hand() }).unwrap();
        let orders = db.keyspace("orders").unwrap();
        for version in 0..2 {
            orders.put("k", format!("{version}")).unwrap();
            if point.starts_with("compaction") {
                orders.flush().unwrap();
            }
        }
        let points = db.pause_points();
        points.hold(point);
        std::thread::scope(|scope| {
            let job = scope.spawn(|| orders.compact());
            assert!(points.wait_for(point, 1), "{point}");
            db.drop_keyspace("orders").unwrap();
            points.release(point);
            // It may have noticed or not; it must end, and harm nothing.
            _ = job.join().unwrap();
        });
        db.put("k", "still writable").unwrap();
        db.flush().unwrap();
        assert!(db.status().is_ok(), "{point}: {:?}", db.status());
        let number = db.tables()[0].file_number;
        drop(orders);
        let tables = || home.names().into_iter().filter(|n| n.ends_with(".sst")).collect::<Vec<_>>();
        let clean = (0..100).any(|_| {
            db.wait_idle().unwrap();
            tables() == [format!("{number:06}.sst")]
        });
        assert!(clean, "{point}: {:?}", tables());
    }
}

#[test]
fn an_idle_keyspace_does_not_pin_the_logs() {
    for background_threads in [0, 2] {
        let limit = 256 << 10;
        let options = Options { max_wal_bytes: limit, background_threads, ..by_hand() };
        let home = Home::memory();
        let db = home.open(options.clone()).unwrap();
        let idle = db.keyspace("idle").unwrap();
        idle.put("k", "1").unwrap();
        for i in 0..6000 {
            db.put(key(i), [b'v'; 1000]).unwrap();
            if i % 500 == 499 {
                // With threads, what is written while a flush runs comes on top, until writers next look at the limit.
                db.wait_idle().unwrap();
                (0..50).for_each(|_| db.put("nudge", [b'v'; 1000]).unwrap());
                db.wait_idle().unwrap();
                let live = db.statistics().space.log_bytes;
                assert!(live <= 2 * limit, "{live} bytes of log live after {i} writes");
            }
        }
        assert_eq!(entries(&idle), 1, "the idle keyspace was flushed");
        db.wait_idle().unwrap();
        let files = home.files();
        let on_disk: usize = files.iter().filter(|(n, _)| n.ends_with(".log")).map(|(_, bytes)| bytes.len()).sum();
        assert!(on_disk as u64 <= 3 * limit, "{on_disk} bytes in log files");
        let (_, after) = kill(&home, options);
        assert_eq!(after.keyspace("idle").unwrap().get("k").unwrap().as_deref(), Some(&b"1"[..]));
        assert!((0..6000).all(|i| after.contains_key(key(i)).unwrap()));
    }
}

#[test]
fn a_flush_of_one_keyspace_keeps_the_others_part_of_the_log() {
    let home = Home::memory();
    let db = home.open(by_hand()).unwrap();
    let (a, b) = (db.keyspace("a").unwrap(), db.keyspace("b").unwrap());
    for i in 0..3000 {
        a.put(key(i), value(i, 1)).unwrap();
        b.put(key(i), value(i, 2)).unwrap();
        if i % 500 == 0 {
            a.flush().unwrap();
        }
    }
    a.flush().unwrap();
    let (_, after) = kill(&home, by_hand());
    let (a, b) = (after.keyspace("a").unwrap(), after.keyspace("b").unwrap());
    for i in 0..3000 {
        assert_eq!(a.get(key(i)).unwrap().unwrap(), value(i, 1));
        assert_eq!(b.get(key(i)).unwrap().unwrap(), value(i, 2));
    }
    assert_eq!((entries(&a), entries(&b)), (3000, 3000), "nothing twice, nothing lost");
}

#[test]
fn a_log_pinned_by_another_keyspace_does_not_revive_what_was_deleted() {
    let home = Home::memory();
    let db = home.open(by_hand()).unwrap();
    let idle = db.keyspace("idle").unwrap();
    idle.put("pin", "1").unwrap();
    for i in 0..100 {
        db.put(key(i), "old").unwrap();
        db.delete(key(i)).unwrap();
    }
    db.compact().unwrap();
    assert!(db.tables().is_empty(), "the tombstones are spent");
    let (image, after) = kill(&home, by_hand());
    assert!((0..100).all(|i| after.get(key(i)).unwrap().is_none()));
    assert_eq!(after.keyspace("idle").unwrap().get("pin").unwrap().as_deref(), Some(&b"1"[..]));
    after.close().unwrap();
    let read_only = image.open(Options { read_only: true, ..by_hand() }).unwrap();
    assert!((0..100).all(|i| read_only.get(key(i)).unwrap().is_none()));
}

#[test]
fn a_tombstone_outlives_its_merge_while_what_it_hides_is_in_a_memtable_or_deeper() {
    // In a memtable whose flush is held up: the merge must not overtake it.
    let db = Home::memory().open(Options { background_threads: 3, ..by_hand() }).unwrap();
    db.put("k", "old").unwrap();
    let points = db.pause_points();
    points.hold("flush:before_install");
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| db.flush().unwrap());
        assert!(points.wait_for("flush:before_install", 1));
        db.delete("k").unwrap();
        let merge = scope.spawn(|| db.compact().unwrap());
        assert_eq!(db.get("k").unwrap(), None);
        points.release("flush:before_install");
        flush.join().unwrap();
        merge.join().unwrap();
    });
    assert_eq!(db.get("k").unwrap(), None);
    assert!(db.tables().is_empty());

    // Deeper, level by level: absent from the moment of the deletion to the last merge.
    let mut options = tiny();
    options.keyspace.level_multiplier = 2;
    options.keyspace.base_level_bytes = 8 << 10;
    let db = Home::memory().open(options).unwrap();
    for i in 0..4000 {
        db.put(key(i * 7 % 4000), value(i, 0)).unwrap();
    }
    let levels = |db: &Db| db.statistics().levels.iter().filter(|l| l.tables > 0).count();
    assert!(levels(&db) >= 3, "{}", db.statistics());
    for i in (0..4000).step_by(3) {
        db.delete(key(i)).unwrap();
        if i % 30 == 0 {
            assert!((0..i).step_by(3).all(|i| db.get(key(i)).unwrap().is_none()), "after {i}");
        }
    }
    for i in 0..4000 {
        assert_eq!(db.contains_key(key(i)).unwrap(), i % 3 != 0, "key {i}");
    }
}

#[test]
fn a_log_whose_records_are_all_in_tables_is_replayed_without_doubling_anything() {
    let home = Home::memory();
    let db = home.open(Options { background_threads: 2, ..by_hand() }).unwrap();
    for i in 0..500 {
        db.put(key(i), value(i, 0)).unwrap();
    }
    // The manifest has the table already, the log is still there.
    let points = db.pause_points();
    points.hold("install:before_view");
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| db.flush());
        assert!(points.wait_for("install:before_view", 1));
        let image = home.after_kill().expect("in memory");
        points.release("install:before_view");
        flush.join().unwrap().unwrap();
        for read_only in [true, false, false, true] {
            let db = image.open(Options { read_only, ..by_hand() }).unwrap();
            assert!((0..500).all(|i| db.get(key(i)).unwrap().unwrap() == value(i, 0)));
            assert_eq!(entries(&db), 500);
            db.verify().unwrap();
            db.close().unwrap();
        }
    });
}

#[test]
fn a_keyspace_name_is_refused_before_anything_is_written_or_fully_supported() {
    let home = Home::memory();
    let db = home.open(tiny()).unwrap();
    let before = home.files();
    for bad in ["", "\0", "a\0b", &"n".repeat(256)] {
        assert_eq!(db.keyspace(bad).unwrap_err().kind(), ErrorKind::InvalidArgument, "{bad:?}");
        assert_eq!(db.keyspace_with(bad, tiny().keyspace).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    assert!(home.files() == before, "a refused name was written");
    let longest = "n".repeat(255);
    let good = [".", "..", "a/b", "/", " ", "Default", "\n", "\u{e4}\u{1f980}", &longest];
    for name in good {
        db.keyspace(name).unwrap().put("name", name).unwrap();
    }
    db.close().unwrap();
    let db = home.open(tiny()).unwrap();
    let mut expected: Vec<&str> = good.into_iter().chain(["default"]).collect();
    expected.sort_unstable();
    assert_eq!(db.keyspaces(), expected);
    for name in good {
        assert_eq!(db.keyspace(name).unwrap().get("name").unwrap().unwrap(), name.as_bytes());
    }
}

#[test]
fn batches_across_keyspaces_are_whole_in_every_crash_of_two_writers() {
    const PARTS: u64 = 5;
    let fs = MemoryFileSystem::recording();
    let options = Options { background_threads: 2, max_wal_bytes: 64 << 10, ..tiny() };
    let db = open_in(&fs, options.clone()).unwrap();
    let other = db.keyspace("other").unwrap();
    let created = fs.operation_count();
    let part = |writer: u64, batch: u64, part: u64| format!("{writer}/{batch:04}/{part}");
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (db, other) = (&db, &other);
            scope.spawn(move || {
                for number in 0..150 {
                    let mut batch = db.batch();
                    for p in 0..PARTS {
                        let value = value(number * 7 + p, number).repeat(1 + p as usize);
                        match p % 2 {
                            0 => _ = batch.put(part(writer, number, p), value),
                            _ => _ = batch.on(other).put(part(writer, number, p), value),
                        }
                    }
                    batch.commit().unwrap();
                }
            });
        }
    });
    let end = fs.operation_count();
    let mut rng = Rng::new(3);
    let mut points: Vec<usize> = (0..40).map(|_| created + rng.below(end - created + 1)).collect();
    points.sort_unstable();
    for (round, at) in points.into_iter().enumerate() {
        let variant = [CrashVariant::KeepAll, CrashVariant::LoseUnsynced, CrashVariant::TornAtSector(0)][round % 3];
        let image = fs.crash_image(at, variant, round as u64);
        let db = open_in(&image, options.clone()).unwrap_or_else(|e| panic!("{variant:?} at {at}: {e:?}"));
        let other = db.keyspace("other").unwrap();
        for writer in 0..2 {
            let mut ended = false;
            for number in 0..150 {
                let keyspace = |p| if p % 2 == 0 { &*db } else { &other };
                let there =
                    (0..PARTS).filter(|p| keyspace(*p).contains_key(part(writer, number, *p)).unwrap()).count() as u64;
                assert!(there == 0 || there == PARTS, "{variant:?} at {at}: {there} parts of {writer}/{number}");
                assert!(there == 0 || !ended, "{variant:?} at {at}: a gap before {writer}/{number}");
                ended |= there == 0;
            }
        }
    }
}
