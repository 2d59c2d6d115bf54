//! Files that cannot be opened: a table that somebody removed under a running database, and no descriptors left.

use crate::support::{Watchdog, key, open_in, tiny};
use siftdb::vfs::{Call, Effect, Failure, Fault, FaultFileSystem, FileSystem, MemoryFileSystem, Select};
use siftdb::{Db, Error, ErrorKind, Options, WriteOptions};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const CHILD: &str = "SIFTDB_DESCRIPTOR_CHILD";
const EMFILE: Failure = Failure::Os(24);

/// Some fifty tables, of which sixteen are open at a time; no cache, so that each read needs its file.
fn few_descriptors() -> Options {
    let mut options = tiny();
    options.max_open_files = 16;
    options.cache_bytes = 0;
    options.keyspace.compression = [siftdb::Compression::None; 7];
    options.keyspace.table_bytes = 4 << 10;
    options
}

fn fill(db: &Db) {
    (0..2000).for_each(|i| db.put(key(i), [b'v'; 100]).unwrap());
    db.compact().unwrap();
    assert!(db.tables().len() > 40, "{}", db.tables().len());
}

/// Leaves only the table of `key` without a descriptor: the others are read until it is out.
fn push_out(db: &Db, smallest: &[u8]) {
    for _ in 0..3 {
        for table in db.tables() {
            if table.smallest_key != smallest {
                db.get(&table.smallest_key).unwrap();
            }
        }
    }
}

#[test]
fn a_table_removed_under_a_running_database_is_named_and_other_keys_go_on() {
    let fs = MemoryFileSystem::new();
    let db = open_in(&fs, few_descriptors()).unwrap();
    fill(&db);
    let lost = db.tables()[20].clone();
    let path = Path::new("db").join(format!("{:06}.sst", lost.file_number));
    push_out(&db, &lost.smallest_key);
    fs.remove_file(&path).unwrap();
    for _ in 0..2 {
        let errors = [
            db.get(&lost.smallest_key).unwrap_err(),
            db.contains_key(&lost.largest_key).unwrap_err(),
            db.multi_get([&key(0), &lost.smallest_key]).unwrap_err(),
            db.snapshot().get(&lost.smallest_key).unwrap_err(),
            db.verify().unwrap_err(),
        ];
        for error in errors {
            // Not `NotFound`: that would be the database or the keyspace.
            assert_eq!(error.kind(), ErrorKind::Corruption, "{error:?}");
            assert_eq!(error.path(), Some(&*path), "{error:?}");
        }
        let elsewhere = |key: &[u8]| key < &lost.smallest_key[..] || key > &lost.largest_key[..];
        assert!((0..2000).map(key).filter(|key| elsewhere(key)).all(|key| db.contains_key(key).unwrap()));
    }
    // Its filter and bounds are still there.
    assert_eq!(db.get([&lost.smallest_key[..], b"?"].concat()).unwrap(), None);
    // Merging it is what cannot be done; writing goes on.
    db.put(&lost.largest_key, "newer").unwrap();
    assert_eq!(db.compact().unwrap_err().path(), Some(&*path));
    assert_eq!(db.status().suspended.len(), 1, "{:?}", db.status());
    assert_eq!(db.status().suspended[0].0, path);
    (0..200).for_each(|i| db.put(key(i), "new").unwrap());
    db.close().unwrap();
    let error = open_in(&fs, few_descriptors()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(&*path)));
}

#[test]
fn verify_finds_a_removed_table_that_is_still_open() {
    let fs = MemoryFileSystem::new();
    let db = open_in(&fs, tiny()).unwrap();
    db.put("k", "1").unwrap();
    db.flush().unwrap();
    let path = Path::new("db").join(format!("{:06}.sst", db.tables()[0].file_number));
    fs.remove_file(&path).unwrap();
    assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"1"[..]), "through its descriptor it can be read");
    let error = db.verify().unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(&*path)));
}

#[test]
fn without_descriptors_a_read_says_so_and_goes_well_later() {
    let fs = FaultFileSystem::new(Arc::new(MemoryFileSystem::new()));
    let db = Db::builder().options(few_descriptors()).file_system(Arc::new(fs.clone())).open("db").unwrap();
    fill(&db);
    fs.inject(Fault::at(Select::Only(Call::Open), 0, Effect::Fail(EMFILE)).forever());
    let (mut good, mut bad) = (0, 0);
    for i in 0..2000 {
        match db.get(key(i)) {
            Ok(found) => good += u64::from(found.is_some()),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Io, "{error:?}");
                assert!(error.path().is_some_and(|path| path.extension().is_some_and(|e| e == "sst")), "{error:?}");
                bad += 1;
            }
        }
    }
    assert_eq!(good + bad, 2000);
    assert!(bad > 0);
    assert!(good > 200, "what has a descriptor keeps it: {good}");
    fs.clear_faults();
    assert!((0..2000).all(|i| db.contains_key(key(i)).unwrap()));
    assert!(db.status().is_ok());
    db.put("k", "1").unwrap();
    db.compact().unwrap();
    db.verify().unwrap();
}

fn is_out_of_descriptors(error: &Error) -> bool {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error) == Some(24) {
            return true;
        }
        source = error.source();
    }
    false
}

fn child_options() -> Options {
    // More than the process may have.
    Options { max_open_files: 512, background_threads: 1, seed: None, ..few_descriptors() }
}

/// Not a test: what runs with few descriptors. Says how far it came.
#[test]
fn child_of_the_descriptor_test() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    let opened = child_options().open(dir);
    let mut count = 0;
    let error = match opened {
        Err(error) => Some(error),
        Ok(db) => {
            let count = &mut count;
            let mut write = |i: u64| -> siftdb::Result<()> {
                db.put_with(key(i), [b'v'; 100], &WriteOptions { sync: i.is_multiple_of(50) })?;
                *count = i + 1;
                if i % 500 == 499 { db.compact() } else { Ok(()) }
            };
            let error = (0..20_000).find_map(|i| write(i).err());
            _ = db.close();
            error
        }
    };
    let error = error.expect("it must come to an end");
    assert!(is_out_of_descriptors(&error), "{error:?}");
    eprintln!("wrote {count}");
}

#[test]
fn a_process_that_runs_out_of_descriptors_loses_nothing_it_acknowledged() {
    let _watch = Watchdog::start("few descriptors".into());
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("db");
    let mut most = 0;
    // Fewer and fewer: the last ones cannot even open it, and must leave it as it is.
    for limit in [60, 40, 32, 24, 16, 12, 10, 8] {
        let output = Command::new("sh")
            .arg("-c")
            .arg(format!(
                "ulimit -n {limit} && exec \"$0\" --exact descriptors::child_of_the_descriptor_test --nocapture"
            ))
            .arg(std::env::current_exe().unwrap())
            .env(CHILD, &dir)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{limit} descriptors: {said}");
        let wrote = said.lines().find_map(|line| line.strip_prefix("wrote ")).expect("how far it came");
        most = most.max(wrote.parse::<u64>().unwrap());
        if !dir.join("CURRENT").exists() {
            continue;
        }
        let db = Options { max_open_files: 512, ..few_descriptors() }.open(&dir).unwrap();
        for i in 0..most {
            assert!(db.contains_key(key(i)).unwrap(), "{limit} descriptors: key {i} of {most}");
        }
        db.verify().unwrap();
        db.close().unwrap();
    }
    assert!(most >= 500, "{most}");
}
