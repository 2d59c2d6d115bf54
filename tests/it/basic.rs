//! The life of keys: written, flushed, merged, read, deleted, reopened.

use crate::support::{key, open_in, tiny, value};
use siftdb::vfs::MemoryFileSystem;
use siftdb::{Db, ErrorKind, Options};

#[test]
fn keys_live_through_flush_compaction_and_reopen() {
    let fs = MemoryFileSystem::new();
    let db = open_in(&fs, tiny()).unwrap();
    for round in 0..3 {
        for i in 0..2000 {
            db.put(key(i), value(i, round)).unwrap();
        }
    }
    for i in (0..2000).step_by(7) {
        db.delete(key(i)).unwrap();
    }
    let check = |db: &Db| {
        for i in 0..2000 {
            let expected = (i % 7 != 0).then(|| value(i, 2));
            assert_eq!(db.get(key(i)).unwrap().map(|v| v.to_vec()), expected, "key {i}");
        }
        assert_eq!(db.get("key").unwrap(), None);
    };
    check(&db);
    let levels = db.statistics().levels;
    assert!(levels.iter().filter(|l| l.tables > 0).count() >= 2, "{}", db.statistics());
    db.verify().unwrap();
    db.close().unwrap();
    let db = open_in(&fs, tiny()).unwrap();
    check(&db);
    db.compact().unwrap();
    check(&db);
    let stats = db.statistics();
    assert_eq!(stats.all_levels().entries, 2000 - 2000_u64.div_ceil(7), "{stats}");
    assert_eq!(stats.all_levels().tombstones, 0);
    db.verify().unwrap();
}

#[test]
fn a_second_opener_is_refused_until_the_first_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path().join("db")).unwrap();
    assert_eq!(Db::open(dir.path().join("db")).unwrap_err().kind(), ErrorKind::Locked);
    db.put("a", "1").unwrap();
    db.close().unwrap();
    assert_eq!(db.put("a", "2").unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(db.get("a").unwrap_err().kind(), ErrorKind::Closed);
    let again = Db::open(dir.path().join("db")).unwrap();
    assert_eq!(again.get("a").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn a_database_on_disk_with_threads_keeps_everything() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = tiny();
    options.background_threads = 3;
    options.seed = None;
    let db = options.clone().open(dir.path().join("db")).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let db = db.clone();
            scope.spawn(move || {
                for i in 0..3000_u64 {
                    db.put(key(i * 4 + thread), value(i, thread)).unwrap();
                }
            });
        }
    });
    for i in 0..12_000_u64 {
        assert_eq!(db.get(key(i)).unwrap().unwrap(), value(i / 4, i % 4), "key {i}");
    }
    db.wait_idle().unwrap();
    db.verify().unwrap();
    drop(db);
    let db = options.open(dir.path().join("db")).unwrap();
    for i in 0..12_000_u64 {
        assert_eq!(db.get(key(i)).unwrap().unwrap(), value(i / 4, i % 4), "key {i}");
    }
}

#[test]
fn the_handles_are_send_sync_clone_and_static() {
    fn check<T: Send + Sync + Clone + 'static>() {}
    check::<Db>();
    check::<siftdb::Keyspace>();
    check::<siftdb::Snapshot>();
    fn send<T: Send + 'static>() {}
    send::<siftdb::WriteBatch>();
    send::<siftdb::Error>();
    assert_eq!(size_of::<siftdb::Result<Option<siftdb::Value>>>(), size_of::<Option<siftdb::Value>>());
    let _ = Options::default();
}

#[test]
fn a_path_that_cannot_hold_a_database_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let kind = |path: &std::path::Path, options: Options| options.open(path).unwrap_err().kind();
    let closed = || Options { create_if_missing: false, ..Default::default() };
    let read_only = || Options { read_only: true, ..Default::default() };
    assert_eq!(kind("".as_ref(), Options::default()), ErrorKind::InvalidArgument);
    for options in [Options::default(), closed(), read_only()] {
        assert_eq!(kind(&file, options.clone()), ErrorKind::InvalidArgument);
        assert_eq!(kind(&file.join("below"), options), ErrorKind::InvalidArgument);
    }
    for options in [closed(), read_only()] {
        assert_eq!(kind(&dir.path().join("missing"), options.clone()), ErrorKind::NotFound);
        assert_eq!(kind(dir.path(), options), ErrorKind::NotFound);
    }
    assert_eq!(kind(&dir.path().join("missing/below"), Options::default()), ErrorKind::NotFound);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was created");
}

#[test]
fn flush_all_writes_every_keyspaces_memtable_out() {
    let db = open_in(&MemoryFileSystem::new(), tiny()).unwrap();
    let other = db.keyspace("other").unwrap();
    db.put("a", "1").unwrap();
    other.put("b", "2").unwrap();
    db.flush().unwrap();
    assert_eq!((db.tables().len(), other.tables().len()), (1, 0));
    db.flush_all().unwrap();
    assert_eq!((db.tables().len(), other.tables().len()), (1, 1));
}
