//! Who may open, on a real disk: one writer, and readers where nothing may be written.

use crate::support::{key, tiny};
use siftdb::vfs::{Call, Effect, Failure, Fault, FaultFileSystem, FileSystem, MemoryFileSystem, Select};
use siftdb::{Db, ErrorKind, Options, WriteOptions};
use std::collections::BTreeMap;
use std::error::Error as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

fn read_only() -> Options {
    Options { read_only: true, ..tiny() }
}

/// Names, bytes and times of change.
fn everything(dir: &Path) -> BTreeMap<std::ffi::OsString, (Vec<u8>, std::time::SystemTime)> {
    let entry = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.unwrap();
        let modified = entry.metadata().unwrap().modified().unwrap();
        (entry.file_name(), (std::fs::read(entry.path()).unwrap(), modified))
    };
    std::fs::read_dir(dir).unwrap().map(entry).collect()
}

/// A directory as after a kill: tables, and a log with what they do not hold.
fn killed(root: &Path) -> std::path::PathBuf {
    let (live, dir) = (root.join("live"), root.join("killed"));
    let db = tiny().open(&live).unwrap();
    (0..500).for_each(|number| db.put(key(number), "x".repeat(40)).unwrap());
    std::fs::create_dir(&dir).unwrap();
    for name in everything(&live).keys() {
        std::fs::copy(live.join(name), dir.join(name)).unwrap();
    }
    dir
}

fn check(db: &Db) {
    (0..500).for_each(|number| assert!(db.contains_key(key(number)).unwrap(), "{number}"));
    db.verify().unwrap();
    assert_eq!(db.put("a", "b").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::ReadOnly);
}

#[test]
fn a_read_only_open_changes_not_one_byte() {
    let root = tempfile::tempdir().unwrap();
    let dir = killed(root.path());
    for step in 0..3 {
        match step {
            1 => std::fs::remove_file(dir.join("LOCK")).unwrap(),
            2 => {
                for name in everything(&dir).keys() {
                    std::fs::set_permissions(dir.join(name), PermissionsExt::from_mode(0o400)).unwrap();
                }
                std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o500)).unwrap();
            }
            _ => {}
        }
        let before = everything(&dir);
        let db = read_only().open(&dir).unwrap();
        let second = read_only().open(&dir).unwrap();
        check(&db);
        check(&second);
        db.close().unwrap();
        drop(second);
        assert_eq!(everything(&dir), before, "step {step}");
    }
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o700)).unwrap();
}

#[test]
fn a_writer_and_readers_exclude_each_other_at_once() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("db");
    let kind = |options: Options| options.open(&dir).unwrap_err().kind();
    let db = tiny().open(&dir).unwrap();
    assert_eq!((kind(tiny()), kind(read_only())), (ErrorKind::Locked, ErrorKind::Locked));
    db.close().unwrap();
    let reader = read_only().open(&dir).unwrap();
    assert_eq!(kind(tiny()), ErrorKind::Locked);
    drop(reader);
    tiny().open(&dir).unwrap();
}

#[test]
fn the_lock_is_free_as_soon_as_the_database_is_closed_or_dropped_a_thousand_times() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("db");
    for round in 0..1000_u64 {
        // Mostly readers: a writer's opening waits for the disk several times.
        let options = Options { read_only: !round.is_multiple_of(10), ..tiny() };
        let threads = usize::from(round.is_multiple_of(20));
        let db = Options { background_threads: threads, ..options }.open(&dir).unwrap();
        if round.is_multiple_of(50) {
            db.put(key(round), "1").unwrap();
            assert_eq!(tiny().open(&dir).unwrap_err().kind(), ErrorKind::Locked);
        }
        if round.is_multiple_of(2) {
            db.close().unwrap();
        }
    }
    let db = tiny().open(&dir).unwrap();
    (0..1000).step_by(50).for_each(|round| assert!(db.contains_key(key(round)).unwrap()));
}

#[test]
fn an_open_that_failed_leaves_no_lock_behind() {
    let fs = FaultFileSystem::new(Arc::new(MemoryFileSystem::new()));
    let open = |options: Options| Db::builder().options(options).file_system(Arc::new(fs.clone())).open("db");
    for call in [Call::Lock, Call::CreateNew, Call::Sync, Call::SyncDir, Call::Rename] {
        fs.inject(Fault::at(Select::Only(call), 0, Effect::Fail(Failure::Os(28))));
        assert_eq!(open(tiny()).unwrap_err().kind(), ErrorKind::NoSpace, "{call:?}");
        fs.clear_faults();
        open(tiny()).unwrap().put("a", "1").unwrap();
    }
    // On a full disk reading still works.
    fs.inject(Fault::at(Select::Mutating, 1, Effect::Fail(Failure::Os(28))).forever());
    assert_eq!(open(read_only()).unwrap().get("a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(open(tiny()).unwrap_err().kind(), ErrorKind::NoSpace);
}

/// What two writers know of each other after the lock file of the first was removed by hand.
fn taken_over(work: impl Fn(&Db) -> siftdb::Result<()>) {
    let fs = MemoryFileSystem::new();
    let open = || Db::builder().options(tiny()).file_system(Arc::new(fs.clone())).open("db");
    let stale = open().unwrap();
    let sync = WriteOptions { sync: true, ..Default::default() };
    stale.put_with("a", "1", &sync).unwrap();
    (0..50).for_each(|i| stale.put(key(i), [b'v'; 100]).unwrap());
    stale.flush().unwrap();
    fs.remove_file(Path::new("db/LOCK")).unwrap();
    let owner = open().unwrap();
    owner.put_with("b", "2", &sync).unwrap();
    let error = work(&stale).unwrap_err();
    let cause = match error.kind() {
        ErrorKind::BackgroundFailure => error.source().and_then(|cause| cause.downcast_ref()).unwrap(),
        _ => &error,
    };
    // The lock is gone, or the name of a new file is taken: no file is ever written over.
    let locked = cause.kind() == ErrorKind::Locked && cause.path() == Some(Path::new("db/LOCK"));
    let io_error = cause.source().and_then(|cause| cause.downcast_ref::<std::io::Error>());
    let taken = io_error.is_some_and(|cause| cause.kind() == std::io::ErrorKind::AlreadyExists);
    assert!(locked || taken, "{error:?}");
    drop(stale);
    // It has taken nothing away from the new owner.
    owner.put("c", "3").unwrap();
    owner.compact().unwrap();
    owner.verify().unwrap();
    owner.close().unwrap();
    let db = open().unwrap();
    for key in ["a", "b", "c"] {
        assert!(db.contains_key(key).unwrap(), "{key}");
    }
    assert!((0..50).all(|i| db.contains_key(key(i)).unwrap()));
}

#[test]
fn a_writer_whose_lock_file_was_removed_is_told_before_it_acknowledges_what_is_lost() {
    let sync = WriteOptions { sync: true, ..Default::default() };
    taken_over(|db| db.put_with("lost", "1", &sync));
    taken_over(|db| db.put("lost", "1").and_then(|()| db.sync()));
    taken_over(|db| db.put("lost", "1").and_then(|()| db.flush()));
    taken_over(|db| db.put("lost", "1").and_then(|()| db.compact()));
    taken_over(|db| db.keyspace("new").map(drop));
    taken_over(|db| (0..2000).try_for_each(|i| db.put(key(i), [b'w'; 100])));
    taken_over(|db| {
        let closed = db.close();
        assert_eq!(db.get("a").unwrap_err().kind(), ErrorKind::Closed);
        closed
    });
}
