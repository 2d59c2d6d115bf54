//! Damage: one bit per byte of every file, every file cut, missing, swapped, out of date.
//!
//! What must hold of a closed database: exact data, or an error that names a file; never other data, a panic, or a hang.
//! An opening that fails changes nothing. Of one that was not closed, the log may end early behind its last promise, at a
//! prefix, batches whole; all that was synced before a later write is exact or an error.
//!
//! `SIFTDB_CORRUPTION=all` flips every byte; otherwise of tables every few.

use crate::crash_workload::{History, KEYS, LAST, Workload, key, options};
use crate::support::{Watchdog, open_in};
use siftdb::vfs::{CrashVariant, FileSystem, MemoryFileSystem, RandomAccessFile};
use siftdb::{Db, Error, ErrorKind, Options};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

type Files = BTreeMap<String, Vec<u8>>;

pub fn files_of(fs: &MemoryFileSystem) -> Files {
    let read = |name: &str| {
        let file: Arc<dyn RandomAccessFile> = fs.open(&Path::new("db").join(name)).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
        bytes
    };
    let names = fs.list(Path::new("db")).unwrap().into_iter().map(|name| name.into_string().unwrap());
    names.map(|name| (name.clone(), read(&name))).collect()
}

pub fn fs_of(files: &Files) -> MemoryFileSystem {
    let fs = MemoryFileSystem::new();
    fs.create_dir(Path::new("db")).unwrap();
    for (name, bytes) in files {
        let mut file = fs.create_new(&Path::new("db").join(name)).unwrap();
        file.append(bytes).unwrap();
        file.close().unwrap();
    }
    fs
}

/// A database to damage.
struct Subject {
    files: Files,
    history: History,
    batches: usize,
    /// Of batches that a damaged tail of the log may not take along.
    least: usize,
}

impl Subject {
    /// Closed: two keyspaces, several levels, filters, and entries that only the log holds.
    fn closed() -> Self {
        let mut workload = Self::workload();
        workload.close();
        let batches = workload.history.states.len() - 1;
        Subject { files: files_of(&workload.fs), history: workload.history, batches, least: batches }
    }

    /// As after a kill. All but the last batches are synced, and later chunks of the log say so.
    fn unclosed() -> Self {
        let mut workload = Self::workload();
        // The last batches are to lie in one log.
        workload.db().flush().unwrap();
        workload.random_batch(true);
        let least = workload.history.states.len() - 1;
        workload.random_batch(false);
        workload.random_batch(false);
        let batches = workload.history.states.len() - 1;
        let image = workload.fs.crash_image(workload.fs.operation_count(), CrashVariant::KeepAll, 0);
        Subject { files: files_of(&image), history: workload.history, batches, least }
    }

    fn workload() -> Workload {
        let mut options = options();
        options.keyspace.table_bytes = 500;
        let mut workload = Workload::new(21, options);
        workload.open();
        workload.create("b");
        for number in 0..70 {
            workload.random_batch(number % 9 == 0);
        }
        let levels = workload.db().statistics().levels;
        assert!(levels.iter().filter(|level| level.tables > 0).count() > 1);
        workload.random_batch(false);
        workload
    }

    fn names(&self, ending: &str) -> Vec<String> {
        self.files.keys().filter(|name| name.ends_with(ending)).cloned().collect()
    }

    fn with(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Files {
        let mut files = self.files.clone();
        change(files.get_mut(name).unwrap());
        files
    }

    /// Checks a damaged copy. `tail_may_go`: the damage is where a prefix may be what is left.
    fn check(&self, files: &Files, tail_may_go: bool, read_only: bool) -> Outcome {
        let fs = fs_of(files);
        let options = Options { read_only, ..options() };
        match open_in(&fs, options) {
            Ok(db) => self.check_open(&db, tail_may_go),
            Err(error) => {
                check_error(&error);
                let after = files_of(&fs);
                for (name, bytes) in files {
                    assert!(after.get(name) == Some(bytes), "{name} was changed though the opening failed: {error}");
                }
                Outcome::Refused
            }
        }
    }

    fn check_open(&self, db: &Db, tail_may_go: bool) -> Outcome {
        let mut outcome = Outcome::Exact;
        let batches = match db.get(LAST) {
            Ok(found) => found.map_or(0, |value| std::str::from_utf8(&value).unwrap().parse().unwrap()),
            Err(error) => {
                check_error(&error);
                outcome = Outcome::SomeRefused;
                self.batches
            }
        };
        let least = if tail_may_go { self.least } else { self.batches };
        assert!((least..=self.batches).contains(&batches), "{batches} batches, must be {least}..={}", self.batches);
        assert_eq!(db.keyspaces(), ["b", "default"]);
        for (incarnation, name) in ["default", "b"].iter().enumerate() {
            let keyspace = db.keyspace(name).unwrap();
            let expected = &self.history.states[batches][&incarnation];
            for key in (0..KEYS).map(key) {
                match keyspace.get(&key) {
                    Ok(found) => assert_eq!(found.as_deref(), expected.get(&key).map(Vec::as_slice), "other data"),
                    Err(error) => {
                        check_error(&error);
                        outcome = Outcome::SomeRefused;
                    }
                }
            }
        }
        match db.verify() {
            Ok(report) if report.unusable_filters > 0 => {
                assert!(!db.statistics().filters.unusable.is_empty());
                Outcome::UnusableFilter
            }
            Ok(_) => {
                assert_eq!(outcome, Outcome::Exact, "verify must find what a read met");
                outcome
            }
            Err(error) => {
                check_error(&error);
                Outcome::SomeRefused
            }
        }
    }

    /// One bit of every byte, or of every few.
    fn flip_all(&self, name: &str, stride: usize, tail_may_go: bool) -> BTreeMap<Outcome, usize> {
        let mut outcomes = BTreeMap::new();
        for at in (0..self.files[name].len()).step_by(stride) {
            let case = format!("bit {} of byte {at} of {name}", at % 8);
            let _watch = at.is_multiple_of(64).then(|| Watchdog::start(case.clone()));
            let files = self.with(name, |bytes| bytes[at] ^= 1 << (at % 8));
            let outcome = named(&case, || self.check(&files, tail_may_go, !(at / stride).is_multiple_of(8)));
            *outcomes.entry(outcome).or_default() += 1;
        }
        eprintln!("{name}: {outcomes:?}");
        outcomes
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Exact,
    UnusableFilter,
    SomeRefused,
    Refused,
}

fn check_error(error: &Error) {
    let kind = matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported);
    assert!(kind, "{error:?}");
    assert!(error.path().is_some_and(|path| path.starts_with("db/")), "names no file: {error:?}");
}

fn named<T>(case: &str, check: impl FnOnce() -> T) -> T {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)) {
        Ok(value) => value,
        Err(cause) => {
            eprintln!("with {case}");
            std::panic::resume_unwind(cause)
        }
    }
}

fn table_stride() -> usize {
    if std::env::var("SIFTDB_CORRUPTION").is_ok_and(|what| what == "all") { 1 } else { 5 }
}

#[test]
fn a_flipped_bit_in_a_closed_database_gives_exact_data_or_an_error() {
    let subject = Subject::closed();
    let mut total: BTreeMap<Outcome, usize> = BTreeMap::new();
    for name in subject.files.keys() {
        let stride = if name.ends_with(".sst") { table_stride() } else { 1 };
        for (outcome, count) in subject.flip_all(name, stride, false) {
            *total.entry(outcome).or_default() += count;
        }
    }
    assert!(total[&Outcome::UnusableFilter] > 0, "{total:?}");
    assert!(total[&Outcome::SomeRefused] > 0 && total[&Outcome::Refused] > 0, "{total:?}");
}

#[test]
fn a_flipped_bit_in_an_unclosed_log_ends_it_behind_its_last_promise_or_is_an_error() {
    let subject = Subject::unclosed();
    for name in subject.names(".log") {
        let outcomes = subject.flip_all(&name, 1, true);
        assert!(outcomes.contains_key(&Outcome::Refused) || subject.files[&name].len() < 200, "{outcomes:?}");
    }
}

#[test]
fn a_flipped_bit_in_an_unclosed_manifest_loses_nothing_silently() {
    let subject = Subject::unclosed();
    let name = subject.files.keys().find(|name| name.starts_with("MANIFEST")).unwrap().clone();
    subject.flip_all(&name, 1, false);
}

#[test]
fn a_file_cut_anywhere_gives_exact_data_or_an_error() {
    let subject = Subject::closed();
    for (name, bytes) in &subject.files {
        for len in (0..bytes.len()).step_by((bytes.len() / 60).max(1)) {
            let case = format!("{name} cut to {len}");
            let _watch = Watchdog::start(case.clone());
            named(&case, || subject.check(&subject.with(name, |bytes| bytes.truncate(len)), false, len % 2 == 0));
        }
    }
}

#[test]
fn a_missing_file_gives_exact_data_or_an_error() {
    let subject = Subject::closed();
    for name in subject.files.keys() {
        for read_only in [true, false] {
            let mut files = subject.files.clone();
            files.remove(name);
            let outcome = named(name, || subject.check(&files, false, read_only));
            let needed = !matches!(name.as_str(), "CURRENT" | "LOCK");
            assert_eq!(outcome, if needed { Outcome::Refused } else { Outcome::Exact }, "{name} missing");
        }
    }
}

#[test]
fn swapped_tables_are_an_error() {
    let subject = Subject::closed();
    let tables = subject.names(".sst");
    assert!(tables.len() > 3);
    for pair in tables.windows(2) {
        let mut files = subject.files.clone();
        files.insert(pair[0].clone(), subject.files[&pair[1]].clone());
        files.insert(pair[1].clone(), subject.files[&pair[0]].clone());
        assert_eq!(subject.check(&files, false, false), Outcome::Refused, "{pair:?}");
        // A copy under the name of another.
        let files = subject.with(&pair[0], |bytes| bytes.clone_from(&subject.files[&pair[1]]));
        assert_eq!(subject.check(&files, false, true), Outcome::Refused, "{pair:?}");
    }
}

#[test]
fn a_file_of_an_earlier_time_is_an_error_or_changes_nothing() {
    let mut workload = Subject::workload();
    workload.close();
    let old = files_of(&workload.fs);
    workload.open();
    for _ in 0..20 {
        workload.random_batch(false);
    }
    workload.close();
    let batches = workload.history.states.len() - 1;
    let subject = Subject { files: files_of(&workload.fs), history: workload.history, batches, least: batches };
    for (name, bytes) in &old {
        let mut files = subject.files.clone();
        files.insert(name.clone(), bytes.clone());
        named(name, || subject.check(&files, false, false));
    }
    // The pointer together with what it names.
    let mut files = subject.files.clone();
    files.extend(
        old.iter()
            .filter(|(name, _)| name.starts_with("MANIFEST") || *name == "CURRENT")
            .map(|(n, b)| (n.clone(), b.clone())),
    );
    assert_eq!(subject.check(&files, false, false), Outcome::Refused);
}

#[test]
fn a_sector_overwritten_in_any_file_is_no_panic() {
    let subject = Subject::closed();
    let mut random = 9;
    for (name, bytes) in &subject.files {
        for start in (0..bytes.len()).step_by(512) {
            let case = format!("{name} overwritten at {start}");
            let _watch = Watchdog::start(case.clone());
            for zeros in [true, false] {
                let files = subject.with(name, |bytes| {
                    let end = bytes.len().min(start + 512);
                    bytes[start..end].iter_mut().for_each(|byte| {
                        *byte = if zeros { 0 } else { crate::crash_workload::next(&mut random) as u8 };
                    });
                });
                named(&case, || subject.check(&files, false, zeros));
            }
        }
    }
}
