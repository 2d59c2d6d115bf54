//! Every file operation of a short workload fails, in every way, once or from then on.
//!
//! What must hold: no panic and no hang; the error says which file; reads go on; once a write failed for good, later
//! ones get `BackgroundFailure` with the cause; and when the faults are over, everything acknowledged is there, as a
//! prefix, batches whole.

use crate::crash_workload::{KEYS, LAST, key, options, prefix_of};
use crate::support::Watchdog;
use siftdb::vfs::{Call, CrashVariant, Effect, Failure, Fault, FaultFileSystem, MemoryFileSystem, Select};
use siftdb::{Db, Error, ErrorKind, Options, WriteOptions};
use std::error::Error as _;
use std::io;
use std::sync::Arc;

const BATCHES_PER_SESSION: u64 = 24;

fn open(fs: &FaultFileSystem, options: &Options) -> siftdb::Result<Db> {
    Db::builder().options(options.clone()).file_system(Arc::new(fs.clone())).open("db")
}

fn value(number: u64) -> Vec<u8> {
    format!("{number}-{}", "v".repeat((number % 7 * 30) as usize)).into_bytes()
}

/// The value of a key in the default keyspace and in `b` after so many batches.
fn expected(key: u64, batches: u64) -> [Option<Vec<u8>>; 2] {
    let last = |place: fn(u64) -> u64| (1..=batches).rev().find(|number| place(*number) == key);
    [last(|n| n % KEYS).map(value), last(|n| n * 7 % KEYS).filter(|n| n % 5 > 0).map(value)]
}

struct Run {
    memory: MemoryFileSystem,
    fs: FaultFileSystem,
    options: Options,
    begun: u64,
    acknowledged: u64,
    durable: u64,
    errors: Vec<Error>,
}

impl Run {
    fn new(options: Options) -> Self {
        let memory = MemoryFileSystem::recording();
        let fs = FaultFileSystem::new(Arc::new(memory.clone()));
        Run { memory, fs, options, begun: 0, acknowledged: 0, durable: 0, errors: Vec::new() }
    }

    /// An error is of a kind that says what happened, and names the file, itself or in its cause.
    fn note(&mut self, error: Error) {
        assert!(self.fs.fired() > 0, "an error without a fault: {error:?}");
        let mut cause = &error;
        if error.kind() == ErrorKind::BackgroundFailure {
            cause = error.source().and_then(|source| source.downcast_ref()).expect("the cause of a background failure");
        }
        let known = matches!(cause.kind(), ErrorKind::Io | ErrorKind::NoSpace | ErrorKind::Corruption);
        assert!(known, "of kind {:?}: {error:?}", cause.kind());
        assert!(cause.path().is_some_and(|path| path.starts_with("db") || path.as_os_str().is_empty()), "{error:?}");
        self.errors.push(error);
    }

    fn keep<T>(&mut self, result: siftdb::Result<T>) -> Option<T> {
        result.map_err(|error| self.note(error)).ok()
    }

    fn commit(&mut self, db: &Db, sync: bool) {
        let number = self.acknowledged + 1;
        let Some(b) = self.keep(db.keyspace("b")) else { return };
        let mut batch = db.batch();
        batch.put(LAST, number.to_string()).put(key(number % KEYS), value(number));
        match number % 5 {
            0 => batch.on(&b).delete(key(number * 7 % KEYS)),
            _ => batch.on(&b).put(key(number * 7 % KEYS), value(number)),
        };
        self.begun = number;
        let result = batch.commit_with(&WriteOptions { sync, ..Default::default() });
        if self.keep(result).is_some() {
            self.acknowledged = number;
            if sync {
                self.durable = number;
            }
        }
    }

    /// What was acknowledged is read, or the read names the file that could not be.
    fn read_some(&mut self, db: &Db) {
        for number in [3, 17] {
            if let Some(found) = self.keep(db.get(key(number))) {
                let (found, now) = (found.map(|value| value.to_vec()), self.acknowledged);
                assert_eq!(found, expected(number, now)[0], "key {number} after {now} batches");
            }
        }
    }

    fn check_status(&mut self, db: &Db) {
        let Some(failure) = db.status().failure else { return };
        assert!(failure.path().is_some(), "the status names the file: {failure:?}");
        let error = db.put("x", "y").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BackgroundFailure);
        assert_eq!(error.source().unwrap().to_string(), failure.to_string());
        for error in [db.flush().unwrap_err(), db.sync().unwrap_err(), db.keyspace("new").unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::BackgroundFailure, "{error:?}");
        }
    }

    fn session(&mut self) {
        let opened = open(&self.fs, &self.options);
        let Some(db) = self.keep(opened) else { return };
        if let Some(found) = self.keep(db.get(LAST)) {
            let found = found.map_or(0, |value| std::str::from_utf8(&value).unwrap().parse().unwrap());
            assert!((self.durable..=self.begun).contains(&found), "{found} of {}..={}", self.durable, self.begun);
            self.acknowledged = found;
            self.durable = found;
            for step in 1..=BATCHES_PER_SESSION {
                self.commit(&db, step % 4 == 0);
                match step {
                    9 | 18 => drop(self.keep(db.flush()).map(|()| self.durable = self.acknowledged)),
                    12 => drop(self.keep(db.compact())),
                    15 => drop(self.keep(db.sync()).map(|()| self.durable = self.acknowledged)),
                    _ => {}
                }
                self.read_some(&db);
            }
        }
        self.check_status(&db);
        let failed = db.status().failure.is_some();
        let closed = db.close();
        assert!(!(failed && closed.is_ok()), "closing must report what failed");
        if self.keep(closed).is_some() {
            self.durable = self.acknowledged;
        }
    }

    /// After the faults: all that was acknowledged, a prefix, whole; and it takes writes.
    fn check_after(&self, memory: &MemoryFileSystem, least: u64) {
        let fs = FaultFileSystem::new(Arc::new(memory.clone()));
        let db = open(&fs, &self.options).unwrap();
        let found = prefix_of(&db) as u64;
        assert!((least..=self.begun).contains(&found), "found {found}, acknowledged {least}, begun {}", self.begun);
        let b = db.keyspace("b").unwrap();
        for number in 0..KEYS {
            let read = [db.get(key(number)).unwrap(), b.get(key(number)).unwrap()];
            let read = read.map(|value| value.map(|value| value.to_vec()));
            assert_eq!(read, expected(number, found), "key {number} after {found} batches");
        }
        db.verify().unwrap();
        assert!(db.status().is_ok());
        b.put("after", "1").unwrap();
        db.close().unwrap();
        let db = open(&fs, &self.options).unwrap();
        assert_eq!(db.keyspace("b").unwrap().get("after").unwrap().as_deref(), Some(&b"1"[..]));
    }
}

const EIO: Failure = Failure::Os(5);
const ENOSPC: Failure = Failure::Os(28);

/// One run with one fault. Returns whether it fired, and whether anything was reported.
fn run_with(options: &Options, fault: Fault, loses: bool) -> (bool, Vec<Error>) {
    let mut run = Run::new(options.clone());
    run.fs.inject(fault);
    run.session();
    run.session();
    let fired = run.fs.fired() > 0;
    run.fs.clear_faults();
    // A power cut now, and a plain new start.
    let cut = run.memory.crash_image(run.memory.operation_count(), CrashVariant::LoseUnsynced, 0);
    run.check_after(&cut, run.durable);
    run.check_after(&run.memory, if loses { run.durable } else { run.acknowledged });
    (fired, run.errors)
}

fn operations(options: &Options, select: Select) -> u64 {
    let mut run = Run::new(options.clone());
    run.session();
    run.session();
    assert!(run.errors.is_empty());
    assert_eq!(run.durable, 2 * BATCHES_PER_SESSION);
    run.fs.operation_count(select)
}

/// Every `stride`-th operation fails once, then from there on.
fn fail_each(options: &Options, select: Select, effect: Effect, stride: usize) {
    let loses = matches!(effect, Effect::LoseUnsynced(_));
    let total = operations(options, select);
    let mut reported = 0;
    for nth in (0..total).step_by(stride) {
        for forever in [false, true] {
            let fault = Fault::at(select, nth, effect);
            let fault = if forever { fault.forever() } else { fault };
            let _watch = Watchdog::start(format!("{select:?} {nth} of {total}, forever: {forever}, {effect:?}"));
            let (fired, errors) = run_with(options, fault, loses);
            assert!(fired || options.background_threads > 0);
            reported += u64::from(!errors.is_empty());
        }
    }
    assert!(reported > 0, "no fault was ever reported");
}

#[test]
fn any_operation_may_fail_with_eio() {
    fail_each(&options(), Select::Any, Effect::Fail(EIO), 1);
}

#[test]
fn any_change_may_find_the_disk_full() {
    fail_each(&options(), Select::Mutating, Effect::Fail(ENOSPC), 1);
}

#[test]
fn any_append_may_be_cut_short_by_a_full_disk() {
    for bytes in [1, 7, 25, 100] {
        fail_each(&options(), Select::Only(Call::Append), Effect::ShortWrite(bytes, ENOSPC), 2);
    }
}

#[test]
fn any_sync_may_fail_and_lose_what_it_should_have_saved() {
    fail_each(&options(), Select::Only(Call::Sync), Effect::LoseUnsynced(EIO), 1);
}

#[test]
fn any_read_may_come_back_short() {
    fail_each(&options(), Select::Only(Call::ReadAt), Effect::ShortRead(3), 1);
}

#[test]
fn with_threads_any_operation_may_fail_and_nobody_waits_for_ever() {
    let options = Options { background_threads: 2, ..options() };
    fail_each(&options, Select::Mutating, Effect::Fail(EIO), 5);
    fail_each(&options, Select::Only(Call::Sync), Effect::LoseUnsynced(EIO), 3);
}

#[test]
fn an_append_or_sync_that_fails_is_final() {
    for call in [Call::Append, Call::Sync] {
        let mut run = Run::new(options());
        let db = open(&run.fs, &run.options).unwrap();
        db.keyspace("b").unwrap();
        run.commit(&db, true);
        run.fs.inject(Fault::at(Select::Only(call), 0, Effect::Fail(EIO)).on(".log"));
        let syncs = run.fs.operation_count(Select::Only(Call::Sync));
        run.commit(&db, true);
        run.commit(&db, true);
        assert_eq!(run.errors.len(), 2);
        assert_eq!(run.fs.operation_count(Select::Only(Call::Sync)) - syncs, u64::from(call == Call::Sync));
        run.check_status(&db);
        assert_eq!(prefix_of(&db), 1, "reads go on");
    }
}

/// Tables in level 0 that cannot be read, and writers that must stop until they are merged.
fn stalled(threads: usize) -> (FaultFileSystem, Db) {
    let mut options = Options { background_threads: threads, cache_bytes: 0, ..options() };
    options.keyspace.l0_slowdown = 3;
    options.keyspace.l0_stop = 4;
    let fs = FaultFileSystem::new(Arc::new(MemoryFileSystem::new()));
    let db = open(&fs, &options).unwrap();
    db.put(key(1), value(6)).unwrap();
    db.flush().unwrap();
    let name = format!("{:06}.sst", db.tables()[0].file_number);
    let eio = Failure::Kind(io::ErrorKind::Other);
    fs.inject(Fault::at(Select::Only(Call::ReadAt), 0, Effect::Fail(eio)).on(&name).forever());
    (fs, db)
}

#[test]
fn a_table_that_a_compaction_cannot_read_is_suspended_and_the_writer_behind_it_gets_the_error() {
    for threads in [0, 1, 2] {
        let _watch = Watchdog::start(format!("{threads} threads"));
        let (fs, db) = stalled(threads);
        let other = db.keyspace("other").unwrap();
        let error = (0..500).find_map(|number| db.put(key(number % KEYS), value(number)).err());
        let error = error.expect("a writer must hear of it");
        assert_eq!(error.kind(), ErrorKind::Io, "{error:?}");
        let status = db.status();
        assert!(status.failure.is_none(), "{status:?}");
        assert_eq!(status.suspended.len(), 1, "{status:?}");
        assert_eq!(error.path(), Some(&*status.suspended[0].0));
        assert!(db.compact().is_err());
        // Reads go on, and what the table does not hold back.
        assert!(other.get("nothing").unwrap().is_none());
        assert!(db.get(key(2)).unwrap().is_some());
        db.close().unwrap();
        fs.clear_faults();
        let db = open(&fs, &options()).unwrap();
        db.compact().unwrap();
        db.verify().unwrap();
    }
}

#[test]
fn closing_gives_a_stopped_writer_closed_though_no_job_will_help_it() {
    let _watch = Watchdog::start("close while a writer is stopped".into());
    let mut options = Options { background_threads: 2, ..options() };
    options.keyspace.l0_slowdown = 3;
    options.keyspace.l0_stop = 4;
    let fs = FaultFileSystem::new(Arc::new(MemoryFileSystem::new()));
    let db = open(&fs, &options).unwrap();
    let points = db.pause_points();
    points.hold("compaction:begin");
    for number in 0..6 {
        if db.tables().len() < 4 {
            db.put(key(number), "v").unwrap();
            db.flush().unwrap();
        }
    }
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (0..100).find_map(|_| db.put("stopped", "v").err()));
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(!writer.is_finished());
        let closer = scope.spawn(|| db.close());
        // The compaction is still held: it is the closing that ends the writer's wait.
        assert_eq!(writer.join().unwrap().unwrap().kind(), ErrorKind::Closed);
        points.release("compaction:begin");
        closer.join().unwrap().unwrap();
    });
    open(&fs, &options).unwrap().verify().unwrap();
}
