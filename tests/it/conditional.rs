//! Conditional batches: written only if every requirement holds at that moment, with no other write in between.

use crate::support::{open_in, tiny};
use siftdb::vfs::MemoryFileSystem;
use siftdb::{Db, ErrorKind, Options};

fn open(background_threads: usize) -> Db {
    open_in(&MemoryFileSystem::new(), Options { background_threads, ..tiny() }).unwrap()
}

#[test]
fn a_batch_whose_requirement_fails_writes_nothing_in_any_keyspace() {
    let db = open(0);
    let other = db.keyspace("other").unwrap();
    db.put("k", "1").unwrap();
    let before = db.snapshot().seqno();
    let mut batch = db.batch();
    batch.require("k", Some(b"1")).put("k", "2").put("new", "2");
    batch.on(&other).require("k", Some(b"not there")).put("k", "2");
    assert_eq!(batch.commit().unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!((db.get("new").unwrap(), other.get("k").unwrap()), (None, None));
    assert_eq!(db.snapshot().seqno(), before);
    let writes = db.statistics().writes;
    assert_eq!((writes.conflicts, writes.batches, writes.operations), (1, 1, 1));
}

#[test]
fn an_empty_value_is_not_an_absent_key() {
    let db = open(0);
    db.put("empty", "").unwrap();
    let outcome = |key: &str, expected: Option<&[u8]>| {
        let mut batch = db.batch();
        batch.require(key, expected);
        batch.commit().map_err(|error| error.kind())
    };
    let conflict = Err(ErrorKind::Conflict);
    assert_eq!(outcome("empty", Some(b"")), Ok(1));
    assert_eq!(outcome("empty", None), conflict);
    assert_eq!(outcome("absent", None), Ok(1));
    assert_eq!(outcome("absent", Some(b"")), conflict);
    assert_eq!(outcome("", None), Ok(1), "the empty key");
}

#[test]
fn requirements_see_memtables_tables_and_tombstones_alike() {
    let db = open(0);
    let require = |key: &str, expected: Option<&str>| {
        let mut batch = db.batch();
        batch.require(key, expected.map(str::as_bytes)).put("touched", "x");
        batch.commit().is_ok()
    };
    db.put("k", "1").unwrap();
    db.put("d", "1").unwrap();
    for step in 0..4 {
        assert!(require("k", Some("1")) && !require("k", None) && !require("k", Some("10")), "step {step}");
        match step {
            0 => db.flush().unwrap(),
            1 => db.compact().unwrap(),
            _ => db.delete("d").unwrap(),
        }
    }
    assert!(require("d", None) && !require("d", Some("1")), "deleted, in the memtable");
    db.flush().unwrap();
    assert!(require("d", None) && !require("d", Some("1")), "deleted, in a table");
}

#[test]
fn a_requirement_is_about_the_state_before_the_batch() {
    let db = open(0);
    let mut batch = db.batch();
    batch.put("k", "1").require("k", None).put("k", "2").delete("k").put("k", "3");
    assert_eq!(batch.commit().unwrap(), 4);
    assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"3"[..]), "the last operation wins");
}

#[test]
fn a_requirement_that_cannot_be_asked_is_refused_with_the_batch() {
    let (db, stranger) = (open(0), open(0));
    let mut batch = db.batch();
    batch.put("k", "1").require(vec![0; 65_536], None);
    assert_eq!(batch.commit().unwrap_err().kind(), ErrorKind::InvalidArgument);
    let mut batch = db.batch();
    batch.put("k", "1").on(&stranger).require("k", None);
    assert_eq!(batch.commit().unwrap_err().kind(), ErrorKind::InvalidArgument);
    let other = db.keyspace("other").unwrap();
    let mut batch = db.batch();
    batch.put("k", "1").on(&other).require("k", None);
    db.drop_keyspace("other").unwrap();
    assert_eq!(batch.commit().unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(db.get("k").unwrap(), None);
}

#[test]
fn no_increment_is_lost_between_threads_that_compare_and_set() {
    let db = open(2);
    let other = db.keyspace("other").unwrap();
    let threads = 4;
    let each = 250;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (db, other) = (&db, &other);
            scope.spawn(move || {
                for step in 0..each {
                    // Plain writes in between share groups with nobody's requirement.
                    db.put(format!("noise {thread}"), format!("{step}")).unwrap();
                    loop {
                        let now = db.get("counter").unwrap();
                        let count =
                            now.as_deref().map_or(0, |v| std::str::from_utf8(v).unwrap().parse::<u64>().unwrap());
                        let next = (count + 1).to_string();
                        let mut batch = db.batch();
                        batch.require("counter", now.as_deref()).put("counter", &next);
                        batch.on(other).put("counter", &next);
                        match batch.commit() {
                            Ok(_) => break,
                            Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict),
                        }
                    }
                }
            });
        }
    });
    let total = (threads * each).to_string();
    assert_eq!(db.get("counter").unwrap().unwrap(), total.as_bytes());
    assert_eq!(other.get("counter").unwrap().unwrap(), total.as_bytes());
}

#[test]
fn of_many_threads_that_require_absence_one_wins() {
    let db = open(2);
    for round in 0..50 {
        let lock = format!("lock {round}");
        let wins: usize = std::thread::scope(|scope| {
            let tries: Vec<_> = (0..4)
                .map(|thread| {
                    let (db, lock) = (&db, &lock);
                    scope.spawn(move || {
                        let mut batch = db.batch();
                        batch.require(lock, None).put(lock, format!("{thread}"));
                        usize::from(batch.commit().is_ok())
                    })
                })
                .collect();
            tries.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!(wins, 1, "round {round}");
    }
}
