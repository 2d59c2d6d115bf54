//! What opening does with what it finds: logs with holes, files left over, files of others, files that may only be read.

use crate::corruption::{files_of, fs_of};
use crate::crash_workload::{Workload, check_state, options};
use crate::support::{Watchdog, key, open_in, tiny};
use siftdb::vfs::{CrashVariant, FileSystem, MemoryFileSystem};
use siftdb::{Db, ErrorKind, KeyspaceOptions, Options, WriteOptions};
use std::collections::BTreeMap;
use std::path::Path;

type Files = BTreeMap<String, Vec<u8>>;

const SYNC: WriteOptions = WriteOptions { sync: true };
/// The header of a log, and nothing else.
const EMPTY_LOG_BYTES: usize = 31;

/// Large memtables: logs change for their size alone, every 16 KiB.
fn logs_only() -> Options {
    Options {
        background_threads: 0,
        seed: Some(1),
        max_wal_bytes: 64 << 10,
        keyspace: KeyspaceOptions { memtable_bytes: 1 << 20, ..Default::default() },
        ..Default::default()
    }
}

fn put(db: &Db, number: u64, sync: bool) {
    db.put_with(key(number), format!("{number}-{}", "x".repeat(1000)), &WriteOptions { sync }).unwrap();
}

/// As after a kill: keys 0 to `count` over several logs.
fn killed(count: u64, sync: impl Fn(u64) -> bool) -> Files {
    let fs = MemoryFileSystem::recording();
    let db = open_in(&fs, logs_only()).unwrap();
    (0..count).for_each(|number| put(&db, number, sync(number)));
    image(&fs)
}

fn image(fs: &MemoryFileSystem) -> Files {
    files_of(&fs.crash_image(fs.operation_count(), CrashVariant::KeepAll, 0))
}

fn logs(files: &Files) -> Vec<String> {
    files.keys().filter(|name| name.ends_with(".log")).cloned().collect()
}

/// How many keys there are, which must be the first ones.
fn prefix(db: &Db, count: u64) -> u64 {
    let there: Vec<bool> = (0..count).map(|number| db.contains_key(key(number)).unwrap()).collect();
    let found = there.iter().take_while(|there| **there).count();
    assert!(there[found..].iter().all(|there| !there), "a hole: {there:?}");
    found as u64
}

#[test]
fn behind_a_log_that_lost_its_end_nothing_is_replayed() {
    let files = killed(50, |_| false);
    let logs = logs(&files);
    assert!(logs.len() > 2, "{logs:?}");
    for (index, log) in logs.iter().enumerate() {
        for len in [0, 5, EMPTY_LOG_BYTES, 2000, files[log].len() - 5] {
            if len > files[log].len() {
                continue;
            }
            let mut files = files.clone();
            files.get_mut(log).unwrap().truncate(len);
            let fs = fs_of(&files);
            let read_only = open_in(&fs, Options { read_only: true, ..logs_only() }).unwrap();
            let found = prefix(&read_only, 50);
            drop(read_only);
            let db = open_in(&fs, logs_only()).unwrap();
            assert_eq!(prefix(&db, 50), found, "read-only and read-write agree");
            assert!(found < 50 && (index > 0 || len > 2000 || found < 3), "log {index} cut to {len}: {found}");
        }
    }
}

#[test]
fn a_log_cut_short_though_its_successor_was_synced_refuses() {
    let files = killed(50, |number| number > 30);
    let logs = logs(&files);
    for log in &logs[..logs.len() - 1] {
        for len in [0, EMPTY_LOG_BYTES, 2000, 5000] {
            let mut files = files.clone();
            files.get_mut(log).unwrap().truncate(len);
            let error = open_in(&fs_of(&files), logs_only()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption, "{log} cut to {len}: {error:?}");
            assert!(error.path().unwrap().to_str().unwrap().ends_with(".log"));
        }
    }
}

#[test]
fn a_manifest_that_lost_its_end_refuses_if_a_log_that_it_named_holds_data() {
    let files = killed(50, |_| true);
    let name = files.keys().find(|name| name.starts_with("MANIFEST")).unwrap();
    for len in 0..files[name].len() {
        let mut files = files.clone();
        files.get_mut(name).unwrap().truncate(len);
        let fs = fs_of(&files);
        let error = open_in(&fs, logs_only()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "cut to {len}: {error:?}");
        assert_eq!(files_of(&fs), files, "nothing is changed");
    }
}

#[test]
fn a_missing_log_refuses_and_is_named() {
    let files = killed(50, |_| false);
    for log in logs(&files) {
        let mut files = files.clone();
        files.remove(&log);
        for read_only in [true, false] {
            let error = open_in(&fs_of(&files), Options { read_only, ..logs_only() }).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption);
            assert_eq!(error.path(), Some(&*Path::new("db").join(&log)));
        }
    }
}

#[test]
fn what_is_written_after_a_torn_tail_survives_the_next_kill() {
    let mut files = killed(5, |_| false);
    let log = logs(&files)[0].clone();
    let len = files[&log].len();
    files.get_mut(&log).unwrap().truncate(len - 5);
    let fs = fs_of(&files);
    fs.start_recording();
    let db = open_in(&fs, logs_only()).unwrap();
    assert_eq!(prefix(&db, 5), 4);
    db.put_with("after", "1", &SYNC).unwrap();
    let again = fs.crash_image(fs.operation_count(), CrashVariant::LoseUnsynced, 0);
    let db = open_in(&again, logs_only()).unwrap();
    assert_eq!(prefix(&db, 5), 4);
    assert!(db.contains_key("after").unwrap());
}

#[test]
fn bytes_of_an_older_log_behind_the_end_or_in_the_middle_are_no_records() {
    let files = killed(50, |_| false);
    let names = logs(&files);
    let (old, last) = (&names[0], names.last().unwrap());
    let mut longer = files.clone();
    longer.get_mut(last).unwrap().extend_from_slice(&files[old][..3000]);
    assert_eq!(prefix(&open_in(&fs_of(&longer), logs_only()).unwrap(), 50), 50);

    // One record over several blocks, whose middle block is another log's.
    let fs = MemoryFileSystem::recording();
    let db = open_in(&fs, logs_only()).unwrap();
    put(&db, 0, true);
    db.put(key(1), vec![7; 100_000]).unwrap();
    let mut files = image(&fs);
    let log = logs(&files)[0].clone();
    let middle = files[&log][..32 << 10].to_vec();
    files.get_mut(&log).unwrap()[32 << 10..64 << 10].copy_from_slice(&middle);
    let _watch = Watchdog::start("a middle block of another log".into());
    assert_eq!(prefix(&open_in(&fs_of(&files), logs_only()).unwrap(), 2), 1);
}

#[test]
fn a_table_of_no_bytes_is_named() {
    let fs = MemoryFileSystem::new();
    let db = open_in(&fs, tiny()).unwrap();
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let mut files = files_of(&fs);
    let table = files.keys().find(|name| name.ends_with(".sst")).unwrap().clone();
    files.get_mut(&table).unwrap().clear();
    let error = open_in(&fs_of(&files), tiny()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(&*Path::new("db").join(&table))));
}

#[test]
fn a_pointer_full_of_zeros_or_missing_is_replaced_by_the_newest_manifest() {
    let workload = Workload::run(5, 150);
    let batches = workload.history.states.len() - 1;
    let files = files_of(&workload.fs);
    let zeros = |files: &mut Files| files.get_mut("CURRENT").unwrap().fill(0);
    let missing = |files: &mut Files| drop(files.remove("CURRENT"));
    for damage in [&zeros as &dyn Fn(&mut Files), &missing] {
        let mut files = files.clone();
        damage(&mut files);
        let db = open_in(&fs_of(&files), options()).unwrap();
        check_state(&db, &workload.history, batches, workload.history.catalogs.last().unwrap());
    }
}

#[test]
fn many_compactions_reopen_to_the_same_tables_twice() {
    let fs = MemoryFileSystem::new();
    let db = open_in(&fs, tiny()).unwrap();
    (0..3000).for_each(|number| db.put(key(number * 7919 % 1000), "x".repeat(50)).unwrap());
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let shape = |db: &Db| -> Vec<_> {
        db.tables().iter().map(|t| (t.level, t.file_number, t.entries, t.smallest_key.clone())).collect()
    };
    let before = shape(&db);
    db.close().unwrap();
    for _ in 0..2 {
        let db = open_in(&fs, tiny()).unwrap();
        assert_eq!(shape(&db), before);
        db.close().unwrap();
    }
}

#[test]
fn left_over_files_of_every_kind_are_ignored_and_removed_and_numbers_are_not_used_again() {
    let workload = Workload::run(6, 40);
    let batches = workload.history.states.len() - 1;
    let mut files = files_of(&workload.fs);
    for name in ["CURRENT.tmp", "MANIFEST-000900", "000901.log", "000902.sst"] {
        files.insert(name.into(), b"half".to_vec());
    }
    let fs = fs_of(&files);
    let db = open_in(&fs, options()).unwrap();
    check_state(&db, &workload.history, batches, workload.history.catalogs.last().unwrap());
    crate::crash_workload::check_files(&fs, &db);
    let newest = files_of(&fs).keys().filter(|name| name.starts_with("MANIFEST-")).cloned().next_back().unwrap();
    assert!(newest.as_str() > "MANIFEST-000902", "{newest}");
}

#[test]
fn files_of_others_are_never_touched() {
    let workload = Workload::run(6, 40);
    let mut files = files_of(&workload.fs);
    let others = ["notes.txt", "000001.sst.bak", "1.sst", "MANIFEST-", "current", "000001.log~"];
    others.iter().for_each(|name| drop(files.insert((*name).into(), b"mine".to_vec())));
    let fs = fs_of(&files);
    fs.create_dir(Path::new("db/sub")).unwrap();
    for _ in 0..2 {
        let db = open_in(&fs, options()).unwrap();
        db.put("x", "y").unwrap();
        db.compact().unwrap();
        db.close().unwrap();
    }
    for name in others {
        assert_eq!(fs.len(&Path::new("db").join(name)).unwrap(), 4, "{name}");
    }
    assert!(fs.exists(Path::new("db/sub")).unwrap());
}

#[test]
fn unnamed_tables_stay_and_are_told_of_when_the_manifest_was_cut() {
    let workload = Workload::run(6, 40);
    let mut files = files_of(&workload.fs);
    let table = files.iter().find(|(name, _)| name.ends_with(".sst")).unwrap().1.clone();
    files.insert("000900.sst".into(), table);
    files.remove("CURRENT");
    let fs = fs_of(&files);
    let db = open_in(&fs, options()).unwrap();
    assert_eq!(db.status().orphans, [Path::new("db/000900.sst")]);
    db.close().unwrap();
    assert!(fs.exists(Path::new("db/000900.sst")).unwrap());
    // The new manifest is whole: now it is known that nobody needs it.
    open_in(&fs, options()).unwrap();
    assert!(!fs.exists(Path::new("db/000900.sst")).unwrap());
}

#[test]
fn a_batch_larger_than_a_memtable_and_what_follows_replay_alike_read_only_and_read_write() {
    let fs = MemoryFileSystem::recording();
    let db = open_in(&fs, options()).unwrap();
    let mut batch = db.batch();
    (0..500).for_each(|number| {
        batch.put(key(number), format!("{number}"));
    });
    batch.commit().unwrap();
    (0..10).for_each(|number| db.put(key(number), "later").unwrap());
    let files = image(&fs);
    for read_only in [true, false] {
        let fs = fs_of(&files);
        let db = open_in(&fs, Options { read_only, ..options() }).unwrap();
        for number in 0..500 {
            let expected = if number < 10 { "later".to_owned() } else { format!("{number}") };
            assert_eq!(db.get(key(number)).unwrap().as_deref(), Some(expected.as_bytes()));
        }
        drop(db);
        assert_eq!(read_only, files_of(&fs) == files, "read-only changes nothing");
    }
}

#[test]
fn writes_go_on_after_a_kill_with_many_sealed_memtables() {
    for threads in [0, 1, 2] {
        let _watch = Watchdog::start(format!("{threads} threads"));
        let fs = MemoryFileSystem::recording();
        let db = open_in(&fs, Options { background_threads: 2, ..options() }).unwrap();
        let points = db.pause_points();
        points.hold("flush:begin");
        let names = ["a", "b", "c", "d", "e"];
        for name in names {
            let keyspace = db.keyspace(name).unwrap();
            (0..60).for_each(|number| keyspace.put(key(number), "x".repeat(80)).unwrap());
        }
        let files = image(&fs);
        points.release("flush:begin");
        let fs = fs_of(&files);
        let db = open_in(&fs, Options { background_threads: threads, ..options() }).unwrap();
        for name in names {
            let keyspace = db.keyspace(name).unwrap();
            (0..60).for_each(|number| assert!(keyspace.contains_key(key(number)).unwrap()));
            (0..300).for_each(|number| keyspace.put(key(number), "y".repeat(80)).unwrap());
        }
        db.wait_idle().unwrap();
        db.verify().unwrap();
    }
}

#[test]
fn a_log_that_is_being_prepared_is_written_before_one_that_is_made_later() {
    let fs = MemoryFileSystem::recording();
    let db = open_in(&fs, Options { background_threads: 2, ..logs_only() }).unwrap();
    let points = db.pause_points();
    put(&db, 0, false);
    points.hold("log:numbered");
    let flusher = db.clone();
    std::thread::scope(|scope| {
        scope.spawn(move || flusher.flush().unwrap());
        assert!(points.wait_for("log:numbered", 1));
        let writer = db.clone();
        let writing = scope.spawn(move || (1..60).for_each(|number| put(&writer, number, false)));
        // Long enough for the writer to come to the end of its log.
        let mut rounds = 0;
        while !writing.is_finished() && rounds < 100 {
            std::thread::sleep(std::time::Duration::from_millis(2));
            rounds += 1;
        }
        points.release("log:numbered");
    });
    let db = open_in(&fs_of(&image(&fs)), logs_only()).unwrap();
    assert_eq!(prefix(&db, 60), 60);
}
