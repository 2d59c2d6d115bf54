//! [`FaultFileSystem`]: a file system whose n-th call goes wrong. For tests.
//!
//! Every call is counted; a [`Fault`] says which of the calls it means (by kind and by the end of the path), which of
//! those is the first to fail, whether the later ones fail too, and how.

use crate::sync::{Arc, AtomicU64, Mutex, Ordering};
use crate::vfs::map::{ReadFile, Unchanging, map_inner};
use crate::vfs::{
    Advice, DirectIoAlignment, FileLock, FileSystem, LockMode, MappedBytes, RandomAccessFile, SyncHandle, WritableFile,
};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Call {
    CreateNew,
    Open,
    Rename,
    RemoveFile,
    RemoveDir,
    HardLink,
    CreateDir,
    List,
    Len,
    Exists,
    Truncate,
    SyncDir,
    Lock,
    FreeSpace,
    ReadAt,
    Map,
    Advise,
    Append,
    Sync,
    Allocate,
    Close,
    SyncHandle,
}

impl Call {
    /// Whether the call changes what is on disk, or how much of it is durable.
    pub fn is_mutating(self) -> bool {
        use Call::{Advise, Exists, FreeSpace, Len, List, Map, Open, ReadAt, SyncHandle};
        !matches!(self, Advise | Open | List | Len | Exists | FreeSpace | ReadAt | Map | SyncHandle)
    }
}

/// Which calls are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// Every call.
    Any,
    /// Those that change something.
    Mutating,
    /// Those of one kind.
    Only(Call),
}

impl Select {
    fn covers(self, call: Call) -> bool {
        match self {
            Select::Any => true,
            Select::Mutating => call.is_mutating(),
            Select::Only(only) => only == call,
        }
    }
}

/// The error that a failing call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// An error of this kind.
    Kind(io::ErrorKind),
    /// The operating system's error of this number.
    Os(i32),
}

impl Failure {
    fn error(self) -> io::Error {
        match self {
            Failure::Kind(kind) => io::Error::new(kind, "injected fault"),
            Failure::Os(code) => io::Error::from_raw_os_error(code),
        }
    }
}

/// How a call goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing is done, the call fails.
    Fail(Failure),
    /// `append` writes this many bytes, then fails. Any other call fails.
    ShortWrite(usize, Failure),
    /// `read_at` returns at most this many bytes, as if the file ended there. Other calls go well.
    ShortRead(usize),
    /// `sync` fails and what was appended since the last successful sync is gone: it reads as missing or, once more is
    /// appended, as zeros; later syncs succeed. Any other call fails.
    LoseUnsynced(Failure),
}

/// A plan for one thing to go wrong.
#[derive(Clone, Debug)]
pub struct Fault {
    select: Select,
    suffix: String,
    first: u64,
    forever: bool,
    effect: Effect,
}

impl Fault {
    /// The `nth` of the selected calls, counted from 0 and from when the fault is injected.
    pub fn at(select: Select, nth: u64, effect: Effect) -> Self {
        Fault { select, suffix: String::new(), first: nth, forever: false, effect }
    }

    /// Means only calls on paths that end so (of a rename or link, either path).
    pub fn on(self, suffix: &str) -> Self {
        Fault { suffix: suffix.to_owned(), ..self }
    }

    /// Every later selected call goes wrong, too.
    pub fn forever(self) -> Self {
        Fault { forever: true, ..self }
    }

    fn concerns(&self, call: Call, paths: &[&Path]) -> bool {
        self.select.covers(call) && paths.iter().any(|path| path.to_string_lossy().ends_with(&self.suffix))
    }
}

/// A file system that passes every call on, unless a plan says otherwise. Cheap to clone; clones share the plan.
#[derive(Clone, Debug)]
pub struct FaultFileSystem(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    inner: Arc<dyn FileSystem>,
    plan: Mutex<Plan>,
}

#[derive(Debug, Default)]
struct Plan {
    /// Each with how many of its calls were seen.
    faults: Vec<(Fault, u64)>,
    counts: BTreeMap<Call, u64>,
    fired: u64,
    delay: Duration,
}

impl FaultFileSystem {
    /// Passes everything on to `inner`, for now.
    pub fn new(inner: Arc<dyn FileSystem>) -> Self {
        FaultFileSystem(Arc::new(Shared { inner, plan: Mutex::default() }))
    }

    /// Adds a fault. If several mean the same call, the first added acts.
    pub fn inject(&self, fault: Fault) {
        self.0.plan.lock().faults.push((fault, 0));
    }

    /// Forgets all faults; counts and delay stay.
    pub fn clear_faults(&self) {
        self.0.plan.lock().faults.clear();
    }

    /// From now on every call takes this long before anything happens.
    pub fn set_delay(&self, delay: Duration) {
        self.0.plan.lock().delay = delay;
    }

    /// How many of the selected calls were made so far, failed ones included.
    pub fn operation_count(&self, select: Select) -> u64 {
        self.0.plan.lock().counts.iter().filter(|(call, _)| select.covers(**call)).map(|(_, count)| count).sum()
    }

    /// How many calls went wrong by plan.
    pub fn fired(&self) -> u64 {
        self.0.plan.lock().fired
    }
}

impl Plan {
    fn decide(&mut self, call: Call, paths: &[&Path]) -> Option<Effect> {
        *self.counts.entry(call).or_default() += 1;
        let mut decision = None;
        for (fault, seen) in self.faults.iter_mut().filter(|(fault, _)| fault.concerns(call, paths)) {
            let hit = *seen == fault.first || (fault.forever && *seen > fault.first);
            *seen += 1;
            if hit {
                decision = decision.or(Some(fault.effect));
            }
        }
        self.fired += u64::from(decision.is_some());
        decision
    }
}

impl Shared {
    fn enter(&self, call: Call, paths: &[&Path]) -> Option<Effect> {
        let (decision, delay) = {
            let mut plan = self.plan.lock();
            (plan.decide(call, paths), plan.delay)
        };
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
        decision
    }

    /// For calls that can only fail or not.
    fn pass(&self, call: Call, paths: &[&Path]) -> io::Result<()> {
        match self.enter(call, paths) {
            None | Some(Effect::ShortRead(_)) => Ok(()),
            Some(Effect::Fail(how) | Effect::ShortWrite(_, how) | Effect::LoseUnsynced(how)) => Err(how.error()),
        }
    }

    fn sync(&self, progress: &Progress, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let written = progress.written.load(Ordering::SeqCst);
        match self.enter(Call::Sync, &[&progress.path]) {
            None | Some(Effect::ShortRead(_)) => {
                sync()?;
                progress.synced.fetch_max(written, Ordering::SeqCst);
                Ok(())
            }
            Some(Effect::LoseUnsynced(how)) => {
                // A file that is renamed or removed by now can't be cut, and nobody will miss its end.
                let _ = self.inner.truncate(&progress.path, progress.synced.load(Ordering::SeqCst));
                Err(how.error())
            }
            Some(Effect::Fail(how) | Effect::ShortWrite(_, how)) => Err(how.error()),
        }
    }
}

impl FileSystem for FaultFileSystem {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.0.pass(Call::CreateNew, &[path])?;
        let inner = self.0.inner.create_new(path)?;
        let progress = Progress { path: path.to_owned(), written: AtomicU64::new(0), synced: AtomicU64::new(0) };
        Ok(Box::new(FaultWriter { shared: Arc::clone(&self.0), inner, progress: Arc::new(progress) }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn RandomAccessFile>> {
        self.0.pass(Call::Open, &[path])?;
        let inner = self.0.inner.open(path)?;
        Ok(Arc::new(FaultReader { shared: Arc::clone(&self.0), inner, path: path.to_owned() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.pass(Call::Rename, &[from, to])?;
        self.0.inner.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.pass(Call::RemoveFile, &[path])?;
        self.0.inner.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.0.pass(Call::RemoveDir, &[path])?;
        self.0.inner.remove_dir(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.pass(Call::HardLink, &[from, to])?;
        self.0.inner.hard_link(from, to)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.0.pass(Call::CreateDir, &[path])?;
        self.0.inner.create_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.0.pass(Call::List, &[dir])?;
        self.0.inner.list(dir)
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        self.0.pass(Call::Len, &[path])?;
        self.0.inner.len(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.0.pass(Call::Exists, &[path])?;
        self.0.inner.exists(path)
    }

    fn truncate(&self, path: &Path, len: u64) -> io::Result<()> {
        self.0.pass(Call::Truncate, &[path])?;
        self.0.inner.truncate(path, len)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.pass(Call::SyncDir, &[dir])?;
        self.0.inner.sync_dir(dir)
    }

    fn lock(&self, path: &Path, mode: LockMode) -> io::Result<Box<dyn FileLock>> {
        self.0.pass(Call::Lock, &[path])?;
        self.0.inner.lock(path, mode)
    }

    fn free_space(&self, path: &Path) -> io::Result<u64> {
        self.0.pass(Call::FreeSpace, &[path])?;
        self.0.inner.free_space(path)
    }
}

#[derive(Debug)]
struct FaultReader {
    shared: Arc<Shared>,
    inner: Arc<dyn RandomAccessFile>,
    path: PathBuf,
}

impl ReadFile for FaultReader {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self.shared.enter(Call::ReadAt, &[&self.path]) {
            None => self.inner.read_at(buffer, offset),
            Some(Effect::ShortRead(bytes)) => {
                let short = bytes.min(buffer.len());
                self.inner.read_at(&mut buffer[..short], offset)
            }
            Some(Effect::Fail(how) | Effect::ShortWrite(_, how) | Effect::LoseUnsynced(how)) => Err(how.error()),
        }
    }

    fn len(&self) -> io::Result<u64> {
        self.shared.pass(Call::Len, &[&self.path])?;
        self.inner.len()
    }

    /// Counted, but a hint can't fail.
    fn advise(&self, advice: Advice) {
        let _ = self.shared.enter(Call::Advise, &[&self.path]);
        self.inner.advise(advice);
    }

    fn dio_alignment(&self) -> Option<DirectIoAlignment> {
        self.inner.dio_alignment()
    }

    fn map(&self, promise: &Unchanging) -> io::Result<MappedBytes> {
        self.shared.pass(Call::Map, &[&self.path])?;
        map_inner(&*self.inner, promise)
    }
}

/// How far a file was written and synced, for its writer and its sync handles.
#[derive(Debug)]
struct Progress {
    path: PathBuf,
    written: AtomicU64,
    synced: AtomicU64,
}

#[derive(Debug)]
struct FaultWriter {
    shared: Arc<Shared>,
    inner: Box<dyn WritableFile>,
    progress: Arc<Progress>,
}

impl FaultWriter {
    fn append_inner(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.inner.append(bytes)?;
        self.progress.written.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        Ok(())
    }
}

impl WritableFile for FaultWriter {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.shared.enter(Call::Append, &[&self.progress.path]) {
            None | Some(Effect::ShortRead(_)) => self.append_inner(bytes),
            Some(Effect::ShortWrite(kept, how)) => {
                self.append_inner(&bytes[..kept.min(bytes.len())])?;
                Err(how.error())
            }
            Some(Effect::Fail(how) | Effect::LoseUnsynced(how)) => Err(how.error()),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.shared.sync(&self.progress, || self.inner.sync())
    }

    fn allocate(&mut self, len: u64) -> io::Result<()> {
        self.shared.pass(Call::Allocate, &[&self.progress.path])?;
        self.inner.allocate(len)
    }

    fn close(self: Box<Self>) -> io::Result<()> {
        self.shared.pass(Call::Close, &[&self.progress.path])?;
        self.inner.close()
    }

    fn sync_handle(&self) -> io::Result<Box<dyn SyncHandle>> {
        self.shared.pass(Call::SyncHandle, &[&self.progress.path])?;
        let inner = self.inner.sync_handle()?;
        let (shared, progress) = (Arc::clone(&self.shared), Arc::clone(&self.progress));
        Ok(Box::new(FaultSyncHandle { shared, inner, progress }))
    }
}

#[derive(Debug)]
struct FaultSyncHandle {
    shared: Arc<Shared>,
    inner: Box<dyn SyncHandle>,
    progress: Arc<Progress>,
}

impl SyncHandle for FaultSyncHandle {
    fn sync(&self) -> io::Result<()> {
        self.shared.sync(&self.progress, || self.inner.sync())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::memory::{CrashVariant, MemoryFileSystem};

    const FULL: Failure = Failure::Kind(io::ErrorKind::StorageFull);
    const EIO: Failure = Failure::Os(5);

    fn fault_fs() -> (FaultFileSystem, MemoryFileSystem) {
        let memory = MemoryFileSystem::recording();
        (FaultFileSystem::new(Arc::new(memory.clone())), memory)
    }

    fn content(fs: &dyn FileSystem, path: &str) -> Vec<u8> {
        let file = fs.open(Path::new(path)).unwrap();
        let mut bytes = vec![0; 100];
        let read = file.read_at(&mut bytes, 0).unwrap();
        bytes.truncate(read);
        bytes
    }

    #[test]
    fn the_nth_call_fails_once_and_the_next_goes_well() {
        let (fs, _) = fault_fs();
        fs.inject(Fault::at(Select::Only(Call::Append), 1, Effect::Fail(EIO)));
        let mut file = fs.create_new(Path::new("f")).unwrap();
        file.append(b"a").unwrap();
        assert_eq!(file.append(b"b").unwrap_err().raw_os_error(), Some(5));
        file.append(b"c").unwrap();
        assert_eq!(content(&fs, "f"), b"ac");
        assert_eq!((fs.fired(), fs.operation_count(Select::Only(Call::Append))), (1, 3));
    }

    #[test]
    fn a_fault_for_ever_stays_until_it_is_cleared() {
        let (fs, _) = fault_fs();
        fs.inject(Fault::at(Select::Mutating, 1, Effect::Fail(FULL)).forever());
        let create = |name: &str| fs.create_new(Path::new(name)).map(drop).map_err(|e| e.kind());
        assert_eq!(create("a"), Ok(()));
        assert_eq!(create("b"), Err(io::ErrorKind::StorageFull));
        assert!(fs.exists(Path::new("a")).unwrap());
        assert!(fs.sync_dir(Path::new("")).is_err());
        fs.clear_faults();
        assert_eq!(create("b"), Ok(()));
    }

    #[test]
    fn only_paths_with_the_suffix_are_meant() {
        let (fs, _) = fault_fs();
        fs.inject(Fault::at(Select::Any, 0, Effect::Fail(EIO)).on("CURRENT"));
        drop(fs.create_new(Path::new("CURRENT.tmp")).unwrap());
        assert!(fs.rename(Path::new("CURRENT.tmp"), Path::new("CURRENT")).is_err());
        assert!(fs.exists(Path::new("CURRENT.tmp")).unwrap());
    }

    #[test]
    fn a_short_write_leaves_a_prefix() {
        let (fs, _) = fault_fs();
        fs.inject(Fault::at(Select::Only(Call::Append), 0, Effect::ShortWrite(3, FULL)));
        let mut file = fs.create_new(Path::new("f")).unwrap();
        assert_eq!(file.append(b"abcdef").unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(content(&fs, "f"), b"abc");
    }

    #[test]
    fn a_short_read_looks_like_the_end_of_the_file() {
        let (fs, _) = fault_fs();
        fs.create_new(Path::new("f")).unwrap().append(b"abcdef").unwrap();
        fs.inject(Fault::at(Select::Only(Call::ReadAt), 0, Effect::ShortRead(2)));
        assert_eq!(content(&fs, "f"), b"ab");
        assert_eq!(content(&fs, "f"), b"abcdef");
    }

    #[test]
    fn a_failed_sync_loses_the_data_though_the_next_one_succeeds() {
        for by_handle in [false, true] {
            let (fs, memory) = fault_fs();
            fs.inject(Fault::at(Select::Only(Call::Sync), 1, Effect::LoseUnsynced(EIO)));
            let mut file = fs.create_new(Path::new("f")).unwrap();
            fs.sync_dir(Path::new("")).unwrap();
            let handle = file.sync_handle().unwrap();
            file.append(b"ab").unwrap();
            file.sync().unwrap();
            file.append(b"cd").unwrap();
            let failed = if by_handle { handle.sync() } else { file.sync() };
            assert!(failed.is_err());
            assert_eq!(content(&fs, "f"), b"ab");
            file.append(b"e").unwrap();
            file.sync().unwrap();
            let image = memory.crash_image(memory.operation_count(), CrashVariant::LoseUnsynced, 0);
            assert_eq!(content(&image, "f"), b"ab\0\0e");
        }
    }

    #[test]
    fn every_call_is_counted_by_kind() {
        let (fs, _) = fault_fs();
        let file = fs.create_new(Path::new("f")).unwrap();
        file.close().unwrap();
        drop(fs.lock(Path::new("LOCK"), LockMode::Exclusive).unwrap());
        fs.list(Path::new("")).unwrap();
        assert_eq!(fs.operation_count(Select::Any), 4);
        assert_eq!(fs.operation_count(Select::Mutating), 3);
    }

    #[test]
    fn a_delay_holds_every_call() {
        let (fs, _) = fault_fs();
        fs.set_delay(Duration::from_millis(5));
        let clock = crate::clock::SystemClock::default();
        fs.list(Path::new("")).unwrap();
        assert!(crate::clock::Clock::monotonic_micros(&clock) >= 5_000);
    }
}
