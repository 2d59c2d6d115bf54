//! A power cut at every operation of a scripted workload, in every variant, and once more inside the recovery.
//!
//! What must hold: the database opens without repair; it is a prefix of what was written, batches whole, across
//! keyspaces; everything acknowledged as durable is in it; `verify` passes; no file is left that nobody names; and
//! what is written afterwards wins and stays.
//!
//! `SIFTDB_CRASH_IMAGES=n` checks about n images instead of the default number.

use crate::crash_workload::{KEYS, LAST, Promise, Workload, check_files, check_state, key, next, options, prefix_of};
use crate::support::open_in;
use siftdb::vfs::{CrashVariant, MemoryFileSystem};
use siftdb::{Db, Options};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn image_count(default: usize) -> usize {
    std::env::var("SIFTDB_CRASH_IMAGES").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Every variant that makes a difference at this operation, with its seed.
fn variants(fs: &MemoryFileSystem, at: usize, subsets: u64) -> Vec<(CrashVariant, u64)> {
    use CrashVariant::{Entries, Garbage, KeepAll, LoseUnsynced, Subset, TornAtSector, Zeros};
    let unsynced = fs.unsynced(at);
    let mut variants = vec![(KeepAll, 0)];
    if unsynced.changes == 0 && unsynced.entries == 0 {
        return variants;
    }
    variants.push((LoseUnsynced, 0));
    if unsynced.changes > 0 {
        variants.extend([(Zeros, 0), (Garbage, at as u64)]);
        variants.extend((0..unsynced.last_write_sectors).map(|sectors| (TornAtSector(sectors), 0)));
    }
    if unsynced.entries > 0 {
        let masks = 1_u64 << unsynced.entries.min(3);
        variants.extend((0..masks).map(|mask| (Entries(mask), 0)));
    }
    variants.extend((0..subsets).map(|seed| (Subset, seed)));
    variants
}

struct Checker<'a> {
    workload: &'a Workload,
    options: Options,
    images: usize,
}

impl Checker<'_> {
    /// Opens an image and checks all that can be told without writing. Returns which prefix it is.
    fn recovered(&self, db: &Db, image: &MemoryFileSystem, promise: Promise, keep_all: bool) -> usize {
        let history = &self.workload.history;
        let batches = prefix_of(db);
        let least = if keep_all { promise.acknowledged } else { promise.durable };
        assert!(
            (least..=promise.begun).contains(&batches),
            "recovered {batches} batches, promised are {least}, begun {}",
            promise.begun
        );
        let catalog = self.catalog(db, promise);
        check_state(db, history, batches, catalog);
        db.verify().unwrap();
        check_files(image, db);
        assert!(db.status().is_ok(), "{:?}", db.status());
        batches
    }

    fn catalog(&self, db: &Db, promise: Promise) -> &std::collections::BTreeMap<String, usize> {
        let names = db.keyspaces();
        let possible = &self.workload.history.catalogs[promise.catalogs_done..=promise.catalogs_begun];
        possible
            .iter()
            .find(|catalog| catalog.keys().eq(&names))
            .unwrap_or_else(|| panic!("found keyspaces {names:?}, possible are {possible:?}"))
    }

    fn check(&mut self, image: &MemoryFileSystem, promise: Promise, keep_all: bool) -> usize {
        self.images += 1;
        let db = open_in(image, self.options.clone()).unwrap();
        let batches = self.recovered(&db, image, promise, keep_all);
        // What is written now is newer than everything recovered.
        let names = db.keyspaces();
        for name in &names {
            let keyspace = db.keyspace(name).unwrap();
            keyspace.put(key(3), "new").unwrap();
            keyspace.delete(key(4)).unwrap();
        }
        db.close().unwrap();
        let db = open_in(image, self.options.clone()).unwrap();
        let catalog = self.catalog(&db, promise);
        for (name, incarnation) in catalog {
            let keyspace = db.keyspace(name).unwrap();
            let before = self.workload.history.states[batches].get(incarnation);
            for number in 0..KEYS {
                let key = key(number);
                let expected = match number {
                    3 => Some(&b"new"[..]),
                    4 => None,
                    _ => before.and_then(|keys| keys.get(&key)).map(Vec::as_slice),
                };
                assert_eq!(keyspace.get(&key).unwrap().as_deref(), expected, "key {number} of {name} after reopening");
            }
        }
        check_files(image, &db);
        batches
    }

    /// Crashes once more at operations of the recovery: the same state comes out. `stride`: of how many operations one.
    fn check_twice(&mut self, image: &MemoryFileSystem, promise: Promise, expected: usize, stride: usize) {
        image.start_recording();
        let db = open_in(image, self.options.clone()).unwrap();
        let operations = image.operation_count();
        for at in (expected % stride..=operations).step_by(stride) {
            for (variant, seed) in variants(image, at, 1) {
                let name = || format!("second crash after {at}, {}: {variant:?}", image.describe_operation(at));
                let second = image.crash_image(at, variant, seed);
                named(name, || {
                    let batches = self.check(&second, promise, false);
                    assert_eq!(batches, expected, "the second recovery finds what the first would have");
                });
            }
        }
        drop(db);
    }
}

/// Runs a check; a failure says where.
fn named<T>(name: impl Fn() -> String, check: impl FnOnce() -> T) -> T {
    match catch_unwind(AssertUnwindSafe(check)) {
        Ok(value) => value,
        Err(cause) => {
            eprintln!("in the image of {}", name());
            std::panic::resume_unwind(cause)
        }
    }
}

/// All images of a workload, or every so many that `wanted` are left; of one in `second` also those of its recovery.
fn enumerate(workload: &Workload, options: Options, wanted: usize, second: usize) -> usize {
    let fs = &workload.fs;
    let operations = fs.operation_count();
    let subsets = (wanted / operations / 4).clamp(1, 64) as u64;
    let total: usize = (0..=operations).map(|at| variants(fs, at, subsets).len()).sum();
    let mut checker = Checker { workload, options, images: 0 };
    let mut drawn = 11;
    for at in 0..=operations {
        let promise = Promise::at(fs, at);
        for (variant, seed) in variants(fs, at, subsets) {
            if next(&mut drawn) % (total as u64) >= wanted as u64 {
                continue;
            }
            let name = || {
                let last = if at == 0 { "the start".to_owned() } else { fs.describe_operation(at - 1) };
                format!("operation {at} (after {last}), {variant:?}, seed {seed}, {promise:?}")
            };
            let image = fs.crash_image(at, variant, seed);
            let batches = named(name, || checker.check(&image, promise, variant == CrashVariant::KeepAll));
            if next(&mut drawn).is_multiple_of(second as u64) {
                let image = fs.crash_image(at, variant, seed);
                named(name, || checker.check_twice(&image, promise, batches, 5));
            }
        }
    }
    checker.images
}

#[test]
fn a_power_cut_at_any_operation_leaves_a_prefix_with_everything_that_was_promised() {
    let workload = Workload::run(1, 240);
    let wanted = image_count(10_000);
    let images = enumerate(&workload, options(), wanted, 100);
    eprintln!("{images} images of {} operations", workload.fs.operation_count());
    assert!(images >= wanted.min(5000), "only {images} images");
}

#[test]
fn a_power_cut_while_the_manifest_is_exchanged_leaves_the_old_one_or_the_new() {
    // Bounds of tables are in the manifest: keys of the longest kind fill it to the point where it starts anew.
    let mut workload = Workload::new(3, options());
    workload.open();
    workload.create("b");
    let manifests = |workload: &Workload| {
        let count = workload.fs.operation_count();
        let created = |at: &usize| workload.fs.describe_operation(*at).starts_with("create db/MANIFEST");
        (0..count).filter(created).collect::<Vec<_>>()
    };
    for round in 0..40_u64 {
        let long = format!("{}{round}", "k".repeat(65_000)).into_bytes();
        workload.commit(&[("b".into(), long.clone(), Some(b"1".to_vec())), ("b".into(), key(round), Some(long))], true);
        workload.db().keyspace("b").unwrap().compact().unwrap();
        workload.commit(&[("b".into(), format!("{}{round}", "k".repeat(65_000)).into_bytes(), None)], false);
        workload.note_durable();
        if manifests(&workload).len() > 1 {
            break;
        }
    }
    let begun = *manifests(&workload).get(1).expect("the manifest must have started anew");
    workload.random_batch(true);
    workload.random_batch(false);
    let mut checker = Checker { workload: &workload, options: options(), images: 0 };
    for at in begun - 2..=workload.fs.operation_count() {
        let promise = Promise::at(&workload.fs, at);
        for (variant, seed) in variants(&workload.fs, at, 2) {
            let sectors = match variant {
                CrashVariant::TornAtSector(sectors) => sectors,
                _ => 0,
            };
            if sectors % 64 != 0 {
                continue;
            }
            let name = || format!("operation {at}, {variant:?}, seed {seed}, {promise:?}");
            let image = workload.fs.crash_image(at, variant, seed);
            named(name, || checker.check(&image, promise, variant == CrashVariant::KeepAll));
        }
    }
    assert!(checker.images > 30, "only {} images", checker.images);
}

#[test]
fn a_power_cut_over_several_unsynced_logs_leaves_no_hole() {
    // Memtables never fill: logs are exchanged for their size, and nothing syncs the old one for a while.
    let mut options = options();
    options.keyspace.memtable_bytes = 1 << 20;
    let mut workload = Workload::new(4, options.clone());
    workload.open();
    workload.create("b");
    for step in 0..160 {
        workload.random_batch(step == 100);
    }
    workload.close();
    let logs = (0..workload.fs.operation_count()).filter(|at| {
        let done = workload.fs.describe_operation(*at);
        done.starts_with("create") && done.ends_with(".log")
    });
    assert!(logs.count() > 2);
    let images = enumerate(&workload, options, image_count(2000), 100);
    assert!(images > 1000, "only {images} images");
}

#[test]
fn a_directory_made_by_somebody_else_is_durable_once_a_write_in_it_is() {
    use siftdb::WriteOptions;
    use siftdb::vfs::FileSystem;
    let fs = MemoryFileSystem::recording();
    fs.create_dir(std::path::Path::new("db")).unwrap();
    let db = open_in(&fs, options()).unwrap();
    db.put_with(LAST, "1", &WriteOptions { sync: true, ..Default::default() }).unwrap();
    let image = fs.crash_image(fs.operation_count(), CrashVariant::LoseUnsynced, 0);
    let db = open_in(&image, options()).unwrap();
    assert_eq!(prefix_of(&db), 1);
}
