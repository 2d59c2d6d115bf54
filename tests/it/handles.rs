//! Handles and how they end: closed by several at once, dropped in every order, and what outlives them.

use crate::support::{Watchdog, key, open_in, tiny};
use siftdb::vfs::MemoryFileSystem;
use siftdb::{ErrorKind, Options, ReadMode, Value};

fn threaded(threads: usize) -> Options {
    Options { background_threads: threads, ..tiny() }
}

#[test]
fn closing_at_once_after_files_became_superfluous_returns() {
    let _watch = Watchdog::start("close with obsolete files".into());
    let fs = MemoryFileSystem::new();
    for round in 0..150_u64 {
        let db = open_in(&fs, threaded(2)).unwrap();
        let snapshot = db.snapshot();
        (0..120).for_each(|i| db.put(key(i), [b'v'; 80]).unwrap());
        if round.is_multiple_of(3) {
            db.compact().unwrap();
        }
        drop(snapshot);
        db.close().unwrap();
    }
    open_in(&fs, tiny()).unwrap().verify().unwrap();
}

#[test]
fn whoever_closes_finds_it_closed_though_somebody_else_is_closing_it() {
    let fs = MemoryFileSystem::new();
    for round in 0..200 {
        let _watch = Watchdog::start(format!("round {round}"));
        let db = open_in(&fs, threaded(2)).unwrap();
        (0..100).for_each(|i| db.put(key(i), [b'v'; 90]).unwrap());
        std::thread::scope(|scope| {
            let closers: Vec<_> = (0..3)
                .map(|_| {
                    let db = &db;
                    let fs = &fs;
                    scope.spawn(move || {
                        db.close().unwrap();
                        // The lock is free, unless another closer was faster and has opened it again.
                        match open_in(fs, Options { read_only: true, ..tiny() }) {
                            Ok(db) => assert!(db.contains_key(key(99)).unwrap()),
                            Err(error) => panic!("round {round}: {error:?}"),
                        }
                    })
                })
                .collect();
            closers.into_iter().for_each(|closer| closer.join().unwrap());
        });
    }
}

#[test]
fn handles_may_be_dropped_while_another_thread_closes() {
    let fs = MemoryFileSystem::new();
    for round in 0..200_u64 {
        let _watch = Watchdog::start(format!("round {round}"));
        let db = open_in(&fs, threaded(1 + (round % 3) as usize)).unwrap();
        let keyspace = db.keyspace("other").unwrap();
        (0..60).for_each(|i| keyspace.put(key(i), [b'v'; 150]).unwrap());
        let snapshot = db.snapshot();
        let clone = db.clone();
        std::thread::scope(|scope| {
            scope.spawn(move || drop((snapshot, keyspace)));
            scope.spawn(move || clone.close().unwrap());
        });
        assert_eq!(db.get("k").unwrap_err().kind(), ErrorKind::Closed);
    }
    open_in(&fs, tiny()).unwrap().verify().unwrap();
}

/// Values read through a map, their tables merged away, their files removed, the database gone.
#[test]
#[allow(unsafe_code)]
fn a_mapped_value_outlives_its_file_and_its_database() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("db");
    // SAFETY: nobody else knows of this directory, and the engine never changes a table.
    let mut options = Options { read_mode: unsafe { ReadMode::mmap() }, ..threaded(2) };
    options.keyspace.compression = [siftdb::Compression::None; 7];
    let db = options.open(&dir).unwrap();
    let value = |i: u64| vec![i as u8; 100];
    (0..1000).for_each(|i| db.put(key(i), value(i)).unwrap());
    db.compact().unwrap();
    let tables = || std::fs::read_dir(&dir).unwrap().filter(|e| table_number(e).is_some()).count();
    let old = db.tables().iter().map(|t| t.file_number).max().unwrap();
    let held: Vec<Value> = (0..1000).map(|i| db.get(key(i)).unwrap().unwrap()).collect();
    (0..1000).for_each(|i| db.delete(key(i)).unwrap());
    db.compact().unwrap();
    let gone = (0..200).any(|_| {
        db.wait_idle().unwrap();
        std::fs::read_dir(&dir).unwrap().filter_map(|e| table_number(&e)).all(|number| number > old)
    });
    assert!(gone, "{} table files are left, values or not", tables());
    let check = |held: &[Value]| (0..).zip(held).for_each(|(i, held)| assert_eq!(*held, value(i)));
    check(&held);
    db.close().unwrap();
    drop(db);
    std::fs::remove_dir_all(&dir).unwrap();
    check(&held);
}

fn table_number(entry: &std::io::Result<std::fs::DirEntry>) -> Option<u64> {
    let name = entry.as_ref().unwrap().file_name().into_string().unwrap();
    name.strip_suffix(".sst")?.parse().ok()
}

/// All 120 orders of dropping five kinds of handle; each of those left still works.
#[test]
fn handles_may_be_dropped_in_every_order() {
    let fs = MemoryFileSystem::new();
    let mut order = [0, 1, 2, 3, 4];
    let mut rounds = 0;
    permutations(&mut order, 0, &mut |order| {
        rounds += 1;
        let db = open_in(&fs, tiny()).unwrap();
        let keyspace = db.keyspace("other").unwrap();
        db.put("k", "1").unwrap();
        keyspace.put("k", "2").unwrap();
        db.flush().unwrap();
        let (snapshot, mut batch) = (db.snapshot(), db.batch());
        batch.put("b", "3");
        let value = db.get("k").unwrap().unwrap();
        let mut handles = (Some(db), Some(keyspace), Some(snapshot), Some(batch), Some(value));
        for dropped in order {
            match dropped {
                0 => drop(handles.0.take()),
                1 => drop(handles.1.take()),
                2 => drop(handles.2.take()),
                3 => drop(handles.3.take().map(|batch| batch.commit().unwrap())),
                _ => drop(handles.4.take()),
            }
            if let Some(db) = &handles.0 {
                assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"1"[..]));
            }
            if let Some(keyspace) = &handles.1 {
                keyspace.put("k", "2").unwrap();
                assert_eq!(keyspace.get("k").unwrap().as_deref(), Some(&b"2"[..]));
            }
            if let Some(snapshot) = &handles.2 {
                assert_eq!(snapshot.get("k").unwrap().as_deref(), Some(&b"1"[..]));
            }
            assert!(handles.4.as_ref().is_none_or(|value| *value == *b"1"));
            let engine_held = handles.0.is_some() || handles.1.is_some() || handles.2.is_some() || handles.3.is_some();
            let opened = open_in(&fs, Options { read_only: true, ..tiny() });
            assert_eq!(opened.is_err(), engine_held, "{order:?} after {dropped}");
        }
        assert_eq!(open_in(&fs, tiny()).unwrap().get("b").unwrap().as_deref(), Some(&b"3"[..]));
    });
    assert_eq!(rounds, 120);
}

fn permutations(order: &mut [usize; 5], from: usize, visit: &mut impl FnMut([usize; 5])) {
    if from == order.len() {
        visit(*order);
        return;
    }
    for at in from..order.len() {
        order.swap(from, at);
        permutations(order, from + 1, visit);
        order.swap(from, at);
    }
}
