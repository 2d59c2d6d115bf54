//! A panic in the middle of the engine's work, from a file system of the embedder's own: nobody waits for ever, the
//! database is read-only from there on, closing returns and says so, and the next opening recovers.

use crate::support::{Watchdog, key, tiny};
use siftdb::vfs::{FileLock, FileSystem, LockMode, MemoryFileSystem, RandomAccessFile, SyncHandle, WritableFile};
use siftdb::{Db, ErrorKind, Options, WriteOptions};
use std::ffi::OsString;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

/// A call that panics, once, when it is made for the n-th time on a file whose name ends or begins so.
#[derive(Debug)]
struct Trap {
    call: &'static str,
    name: &'static str,
    left: AtomicI64,
}

#[derive(Clone, Debug, Default)]
struct TrappedFileSystem {
    inner: MemoryFileSystem,
    trap: Arc<Mutex<Option<Arc<Trap>>>>,
}

impl TrappedFileSystem {
    fn set(&self, call: &'static str, name: &'static str, nth: i64) {
        *self.trap.lock().unwrap() = Some(Arc::new(Trap { call, name, left: AtomicI64::new(nth) }));
    }

    /// Whether the trap was stepped on.
    fn sprang(&self) -> bool {
        self.trap.lock().unwrap().as_ref().is_some_and(|trap| trap.left.load(Ordering::SeqCst) < 0)
    }

    fn step(&self, call: &str, path: &Path) {
        let trap = self.trap.lock().unwrap().clone();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if let Some(trap) = trap.filter(|trap| trap.call == call && name.contains(trap.name))
            && trap.left.fetch_sub(1, Ordering::SeqCst) == 0
        {
            // Not `panic!`: no message on every run.
            std::panic::resume_unwind(Box::new(format!("a trap in {call} of {name}")));
        }
    }
}

impl FileSystem for TrappedFileSystem {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.step("create", path);
        let inner = self.inner.create_new(path)?;
        Ok(Box::new(TrappedWriter { fs: self.clone(), path: path.to_owned(), inner }))
    }
    fn open(&self, path: &Path) -> io::Result<Arc<dyn RandomAccessFile>> {
        self.step("open", path);
        self.inner.open(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.step("remove", path);
        self.inner.remove_file(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_dir(path)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.hard_link(from, to)
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.inner.list(dir)
    }
    fn len(&self, path: &Path) -> io::Result<u64> {
        self.inner.len(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }
    fn truncate(&self, path: &Path, len: u64) -> io::Result<()> {
        self.inner.truncate(path, len)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.step("sync_dir", dir);
        self.inner.sync_dir(dir)
    }
    fn lock(&self, path: &Path, mode: LockMode) -> io::Result<Box<dyn FileLock>> {
        self.inner.lock(path, mode)
    }
    fn free_space(&self, path: &Path) -> io::Result<u64> {
        self.inner.free_space(path)
    }
}

#[derive(Debug)]
struct TrappedWriter {
    fs: TrappedFileSystem,
    path: std::path::PathBuf,
    inner: Box<dyn WritableFile>,
}

impl WritableFile for TrappedWriter {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.fs.step("append", &self.path);
        self.inner.append(bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.fs.step("sync", &self.path);
        self.inner.sync()
    }
    fn allocate(&mut self, len: u64) -> io::Result<()> {
        self.inner.allocate(len)
    }
    fn close(self: Box<Self>) -> io::Result<()> {
        self.fs.step("close", &self.path);
        self.inner.close()
    }
    fn sync_handle(&self) -> io::Result<Box<dyn SyncHandle>> {
        Ok(Box::new(TrappedSync { fs: self.fs.clone(), path: self.path.clone(), inner: self.inner.sync_handle()? }))
    }
}

#[derive(Debug)]
struct TrappedSync {
    fs: TrappedFileSystem,
    path: std::path::PathBuf,
    inner: Box<dyn SyncHandle>,
}

impl SyncHandle for TrappedSync {
    fn sync(&self) -> io::Result<()> {
        self.fs.step("sync", &self.path);
        self.inner.sync()
    }
}

fn open(fs: &TrappedFileSystem, threads: usize) -> siftdb::Result<Db> {
    let options = Options { background_threads: threads, ..tiny() };
    Db::builder().options(options).file_system(Arc::new(fs.clone())).open("db")
}

/// Every kind of work, by two writers, until both hear of a failure. Returns what each thread had acknowledged.
fn work(db: &Db) -> [u64; 2] {
    let write = |thread: u64| {
        for i in 0..4000_u64 {
            // The panic may come on this very thread: then it is this call that fails.
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                let sync = WriteOptions { sync: i % 16 == 0 };
                db.put_with(key(i * 2 + thread), [b'v'; 60], &sync)?;
                match i % 400 {
                    100 => db.flush(),
                    200 => db.compact(),
                    300 => db.wait_idle(),
                    _ => Ok(()),
                }
            }));
            match outcome {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    assert_eq!(error.kind(), ErrorKind::BackgroundFailure, "{error:?}");
                    return i;
                }
                Err(_) => return i,
            }
        }
        4000
    };
    std::thread::scope(|scope| {
        [0, 1].map(|thread| scope.spawn(move || write(thread))).map(|writer| writer.join().unwrap())
    })
}

/// One trap, from opening to opening.
fn fall_into(call: &'static str, name: &'static str, nth: i64, threads: usize) {
    let case = format!("{call} of {name:?} number {nth}, {threads} threads");
    let _watch = Watchdog::start(case.clone());
    let fs = TrappedFileSystem::default();
    let db = open(&fs, threads).unwrap();
    db.put("before", "1").unwrap();
    fs.set(call, name, nth);
    let acknowledged = work(&db);
    assert!(fs.sprang(), "{case}: the workload never came there");
    // Whoever was hit, all writers are told, and reads go on.
    let failure = db.status().failure.unwrap_or_else(|| panic!("{case}: nothing was latched"));
    assert!(failure.to_string().contains("panicked"), "{case}: {failure}");
    assert_eq!(db.put("x", "y").unwrap_err().kind(), ErrorKind::BackgroundFailure, "{case}");
    for result in [db.flush(), db.compact(), db.sync()] {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::BackgroundFailure, "{case}");
    }
    // Idle it may be; it must not wait.
    let _ = db.wait_idle();
    assert_eq!(db.get("before").unwrap().as_deref(), Some(&b"1"[..]), "{case}");
    assert_eq!(db.close().unwrap_err().kind(), ErrorKind::BackgroundFailure, "{case}");
    drop(db);
    let db = open(&fs, threads).unwrap_or_else(|error| panic!("{case}: {error}"));
    for (thread, count) in acknowledged.into_iter().enumerate() {
        for i in 0..count {
            assert!(db.contains_key(key(i * 2 + thread as u64)).unwrap(), "{case}: {i} of thread {thread}");
        }
    }
    db.verify().unwrap();
    db.compact().unwrap();
    db.close().unwrap();
}

/// Where, and which of the calls at least come within the workload.
const PLACES: [(&str, &str, i64); 11] = [
    ("create", ".sst", 8),
    ("append", ".sst", 20),
    ("sync", ".sst", 12),
    ("open", ".sst", 12),
    ("create", ".log", 4),
    ("append", ".log", 300),
    ("sync", ".log", 12),
    ("append", "MANIFEST", 12),
    ("sync", "MANIFEST", 12),
    ("sync_dir", "db", 12),
    ("close", ".log", 2),
];

#[test]
fn a_panic_in_a_job_or_a_writer_is_latched_and_closing_returns() {
    for threads in [0, 1, 3] {
        for (call, name, most) in PLACES {
            for nth in [0, most / 3, most / 2, most - 1] {
                fall_into(call, name, nth, threads);
            }
        }
    }
}
