//! The operating system's files. The only place that calls `std::fs`.
//!
//! What a call leaves behind:
//! - `append` returned: the bytes are in the page cache, safe from a crash of the process;
//! - `sync` returned: they are on the device, if the file's entry is (`sync_dir` of its directory);
//! - a call of a writer failed: that writer, and its sync handles, refuse every further call. A failed `fdatasync` may
//!   have dropped the pages that it could not write; a second one would report success over the hole.
//!
//! Files are private (0600, directories 0700) and never opened through a link, and a pipe or device under the name of
//! a file is refused rather than waited for. A *directory* on the way may be a link: where the database lies is the
//! user's choice.
#![allow(clippy::disallowed_methods)]

#[cfg(not(unix))]
compile_error!("siftdb needs flock, positioned reads and writes, and the sync of directories: it builds on Unix only");

use crate::sync::{Arc, AtomicBool, Mutex, Ordering};
use crate::vfs::map::{ReadFile, Unchanging, map_file};
use crate::vfs::{
    Advice, DirectIoAlignment, FileLock, FileSystem, LockMode, MappedBytes, RandomAccessFile, SyncHandle, WritableFile,
};
use rustix::fs::OFlags;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The file system of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFileSystem;

impl FileSystem for DiskFileSystem {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        // `create_new` is O_CREAT | O_EXCL; std adds O_CLOEXEC to every open.
        let file = open_regular(OpenOptions::new().write(true).create_new(true).mode(0o600), path)?;
        Ok(Box::new(DiskWriter { file, position: 0, reserved: 0, failed: Arc::default() }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn RandomAccessFile>> {
        Ok(Arc::new(DiskReader(open_regular(OpenOptions::new().read(true), path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        let names: io::Result<Vec<_>> = fs::read_dir(or_here(dir))?.map(|entry| Ok(entry?.file_name())).collect();
        let mut names = names?;
        names.sort();
        Ok(names)
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        let metadata = fs::symlink_metadata(path)?;
        if metadata.is_file() { Ok(metadata.len()) } else { Err(not_a_file()) }
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        match fs::symlink_metadata(or_here(path)) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn truncate(&self, path: &Path, len: u64) -> io::Result<()> {
        let file = open_regular(OpenOptions::new().write(true), path)?;
        if file.metadata()?.len() < len {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the file is shorter than what it is to be cut to",
            ));
        }
        file.set_len(len)?;
        file.sync_all()
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let flags = OFlags::DIRECTORY.bits().cast_signed();
        OpenOptions::new().read(true).custom_flags(flags).open(or_here(dir))?.sync_all()
    }

    fn lock(&self, path: &Path, mode: LockMode) -> io::Result<Box<dyn FileLock>> {
        DiskLock::take(path, mode).map(|lock| Box::new(lock) as Box<dyn FileLock>)
    }

    fn free_space(&self, path: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(or_here(path))?;
        // Blocks free to unprivileged users, not the reserve of root.
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

/// The directory of a bare file name is the current one.
fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

fn not_a_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "expected a regular file, found something else under its name")
}

/// Opens without following a link. O_NONBLOCK changes nothing for a file, and keeps a planted pipe from hanging us.
fn open_regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = options.custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_a_file()) }
}

#[derive(Debug)]
struct DiskReader(File);

impl ReadFile for DiskReader {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.0.read_at(rest, offset.saturating_add(filled as u64)) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(filled)
    }

    fn len(&self) -> io::Result<u64> {
        self.0.metadata().map(|metadata| metadata.len())
    }

    fn advise(&self, advice: Advice) {
        system::advise(&self.0, advice);
    }

    fn dio_alignment(&self) -> Option<DirectIoAlignment> {
        system::dio_alignment(&self.0)
    }

    fn map(&self, promise: &Unchanging) -> io::Result<MappedBytes> {
        map_file(&self.0, promise)
    }
}

/// Writes at its own position, not at the file's end: behind the position may lie a reserve of zeros.
#[derive(Debug)]
struct DiskWriter {
    file: File,
    position: u64,
    /// The file's length if `allocate` made it longer than `position`.
    reserved: u64,
    failed: Arc<AtomicBool>,
}

/// Runs `call` unless an earlier one failed, and remembers whether it failed.
fn unless_failed(failed: &AtomicBool, call: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    if failed.load(Ordering::Acquire) {
        return Err(io::Error::other("an earlier write or sync of this file failed; it is not used any more"));
    }
    call().inspect_err(|_| failed.store(true, Ordering::Release))
}

impl WritableFile for DiskWriter {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        unless_failed(&self.failed, || {
            self.file.write_all_at(bytes, self.position)?;
            self.position += bytes.len() as u64;
            Ok(())
        })
    }

    /// fdatasync: the data, and of the metadata what reading it back needs (the length; not the times).
    fn sync(&mut self) -> io::Result<()> {
        unless_failed(&self.failed, || self.file.sync_data())
    }

    /// The length grows with the reserve, so that an append into it changes no metadata, and the next `fdatasync`
    /// writes no journal.
    fn allocate(&mut self, len: u64) -> io::Result<()> {
        let from = self.position.max(self.reserved);
        if len <= from {
            return Ok(());
        }
        unless_failed(&self.failed, || {
            if system::allocate(&self.file, from, len - from)? {
                self.reserved = len;
            }
            Ok(())
        })
    }

    /// The cut is not synced: a reader that finds the reserve after a power cut must take the zeros for the end.
    ///
    /// What `close(2)` itself reports is lost, as std closes files in `drop`. It could only be about bytes that no
    /// `sync` covered (NFS and FUSE write back at close), and nothing may rest on those.
    fn close(self: Box<Self>) -> io::Result<()> {
        unless_failed(&self.failed, || {
            if self.reserved > self.position {
                self.file.set_len(self.position)?;
            }
            Ok(())
        })
    }

    fn sync_handle(&self) -> io::Result<Box<dyn SyncHandle>> {
        Ok(Box::new(DiskSyncHandle { file: self.file.try_clone()?, failed: Arc::clone(&self.failed) }))
    }
}

/// A duplicate of the descriptor: it works after the writer is closed, too.
#[derive(Debug)]
struct DiskSyncHandle {
    file: File,
    failed: Arc<AtomicBool>,
}

impl SyncHandle for DiskSyncHandle {
    fn sync(&self) -> io::Result<()> {
        unless_failed(&self.failed, || self.file.sync_data())
    }
}

/// Device and inode: what a file is, under whatever name.
type Identity = (u64, u64);

fn identity(metadata: &fs::Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// A lock that this process holds.
#[derive(Debug)]
struct Held {
    file: Identity,
    /// Of the directory, and the name in it: somebody may have removed the lock file, and then the next opener creates
    /// a new one, on which `flock` sees no conflict.
    place: (Identity, OsString),
    mode: LockMode,
    /// A forked child inherits the list, but what is in it was locked by the parent.
    pid: u32,
}

/// The locks of this process. `flock` alone would do where it works; over some network file systems it is a POSIX
/// lock, which lets one process in twice.
static HELD: Mutex<Vec<Held>> = Mutex::new(Vec::new());

/// How often a lock file that was replaced between open and lock is tried anew.
const LOCK_ATTEMPTS: usize = 8;

#[derive(Debug)]
struct DiskLock {
    file: File,
    path: PathBuf,
    id: Identity,
    pid: u32,
}

impl FileLock for DiskLock {
    fn still_excludes(&self) -> io::Result<bool> {
        still_named(&self.path, self.id)
    }
}

impl DiskLock {
    fn take(path: &Path, mode: LockMode) -> io::Result<Self> {
        for _ in 0..LOCK_ATTEMPTS {
            if let Some(lock) = Self::attempt(path, mode)? {
                return Ok(lock);
            }
        }
        Err(io::Error::new(io::ErrorKind::WouldBlock, "the lock file is replaced again and again"))
    }

    /// None if the file was replaced before the lock was ours. An error leaves nothing behind: the entry is made last,
    /// and the descriptor, closed on the way out, takes its lock along.
    fn attempt(path: &Path, mode: LockMode) -> io::Result<Option<Self>> {
        let file = open_lock_file(path, mode)?;
        let id = identity(&file.metadata()?);
        let name = path.file_name().unwrap_or_default().to_owned();
        let place = (identity(&fs::metadata(or_here(path.parent().unwrap_or(path)))?), name);
        let pid = std::process::id();

        let mut held = HELD.lock();
        let conflict = |other: &Held| {
            other.pid == pid
                && (other.file == id || other.place == place)
                && (mode == LockMode::Exclusive || other.mode == LockMode::Exclusive)
        };
        if held.iter().any(conflict) {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "another handle of this process holds the lock"));
        }
        match mode {
            LockMode::Exclusive => file.try_lock()?,
            LockMode::Shared => file.try_lock_shared()?,
        }
        if !still_named(path, id)? {
            return Ok(None);
        }
        held.push(Held { file: id, place, mode, pid });
        Ok(Some(DiskLock { file, path: path.to_owned(), id, pid }))
    }
}

fn open_lock_file(path: &Path, mode: LockMode) -> io::Result<File> {
    match mode {
        LockMode::Exclusive => open_regular(OpenOptions::new().read(true).write(true).create(true).mode(0o600), path),
        LockMode::Shared => open_regular(OpenOptions::new().read(true), path),
    }
}

/// Whether `path` is still the file that was locked: a lock on a removed file excludes nobody.
fn still_named(path: &Path, id: Identity) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(identity(&metadata) == id),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

impl Drop for DiskLock {
    /// Unlocks by hand, since a child forked meanwhile may hold a copy of the descriptor. In that child it does
    /// nothing: the lock is its parent's.
    fn drop(&mut self) {
        if std::process::id() != self.pid {
            return;
        }
        let mut held = HELD.lock();
        let _ = self.file.unlock();
        if let Some(at) = held.iter().position(|other| other.pid == self.pid && other.file == self.id) {
            held.swap_remove(at);
        }
    }
}

/// What only Linux offers.
#[cfg(target_os = "linux")]
mod system {
    use crate::vfs::{Advice, DirectIoAlignment};
    use rustix::fs::{AtFlags, FallocateFlags, StatxFlags};
    use rustix::io::Errno;
    use std::fs::File;
    use std::io;

    /// Whether there is space reserved now; false where the file system does not offer it.
    pub(super) fn allocate(file: &File, from: u64, len: u64) -> io::Result<bool> {
        loop {
            match rustix::fs::fallocate(file, FallocateFlags::empty(), from, len) {
                Ok(()) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(false),
                Err(e) => return Err(e.into()),
            }
        }
    }

    pub(super) fn advise(file: &File, advice: Advice) {
        let advice = match advice {
            Advice::Random => rustix::fs::Advice::Random,
            Advice::Sequential => rustix::fs::Advice::Sequential,
            Advice::DontNeed => rustix::fs::Advice::DontNeed,
        };
        let _ = rustix::fs::fadvise(file, 0, None, advice);
    }

    /// Linux tells since 6.1, for ext4, XFS, F2FS and block devices.
    pub(super) fn dio_alignment(file: &File) -> Option<DirectIoAlignment> {
        let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
        // A zero says: not for this file.
        let told = stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0 && stat.stx_dio_offset_align != 0;
        told.then_some(DirectIoAlignment {
            memory_bytes: stat.stx_dio_mem_align,
            offset_bytes: stat.stx_dio_offset_align,
        })
    }
}

/// Elsewhere the hints are none.
#[cfg(not(target_os = "linux"))]
mod system {
    use crate::vfs::{Advice, DirectIoAlignment};
    use std::fs::File;
    use std::io;

    pub(super) fn allocate(_file: &File, _from: u64, _len: u64) -> io::Result<bool> {
        Ok(false)
    }

    pub(super) fn advise(_file: &File, _advice: Advice) {}

    pub(super) fn dio_alignment(_file: &File) -> Option<DirectIoAlignment> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    const FS: DiskFileSystem = DiskFileSystem;

    fn dir() -> (tempfile::TempDir, impl Fn(&str) -> PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_owned();
        (dir, move |name: &str| root.join(name))
    }

    fn read_all(path: &Path) -> Vec<u8> {
        let file = FS.open(path).unwrap();
        let mut bytes = vec![0xee; usize::try_from(file.len().unwrap()).unwrap() + 10];
        let read = file.read_at(&mut bytes, 0).unwrap();
        bytes.truncate(read);
        bytes
    }

    fn kind<T>(result: io::Result<T>) -> io::ErrorKind {
        result.err().unwrap().kind()
    }

    #[test]
    fn what_is_appended_reads_back_at_any_offset_and_stops_at_the_end() {
        let (_dir, at) = dir();
        let mut file = FS.create_new(&at("f")).unwrap();
        file.append(b"hello ").unwrap();
        file.append(b"world").unwrap();
        file.sync().unwrap();
        file.sync_handle().unwrap().sync().unwrap();
        file.close().unwrap();
        assert_eq!(read_all(&at("f")), b"hello world");
        let mut buffer = [0; 8];
        assert_eq!(FS.open(&at("f")).unwrap().read_at(&mut buffer, 6).unwrap(), 5);
        assert_eq!(&buffer[..5], b"world");
        assert_eq!(FS.open(&at("f")).unwrap().read_at(&mut buffer, 99).unwrap(), 0);
        assert_eq!(FS.len(&at("f")).unwrap(), 11);
    }

    #[test]
    fn the_reserve_reads_as_zeros_until_close_cuts_it() {
        let (_dir, at) = dir();
        let mut file = FS.create_new(&at("log")).unwrap();
        file.append(b"ab").unwrap();
        file.allocate(4096).unwrap();
        file.append(b"cd").unwrap();
        let bytes = read_all(&at("log"));
        assert_eq!(&bytes[..4], b"abcd");
        assert!(bytes[4..].iter().all(|&b| b == 0));
        assert!(bytes.len() == 4096 || bytes.len() == 4, "{}", bytes.len());
        file.close().unwrap();
        assert_eq!(read_all(&at("log")), b"abcd");
    }

    #[test]
    fn files_and_directories_are_private() {
        let (_dir, at) = dir();
        FS.create_dir(&at("d")).unwrap();
        drop(FS.create_new(&at("d/f")).unwrap());
        let mode = |name| fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("d"), mode("d/f")), (0o700, 0o600));
    }

    #[test]
    fn a_second_create_is_refused_and_a_planted_link_is_not_followed() {
        let (_dir, at) = dir();
        drop(FS.create_new(&at("f")).unwrap());
        assert_eq!(kind(FS.create_new(&at("f"))), io::ErrorKind::AlreadyExists);
        symlink(at("target"), at("link")).unwrap();
        assert_eq!(kind(FS.create_new(&at("link"))), io::ErrorKind::AlreadyExists);
        assert!(FS.lock(&at("link"), LockMode::Exclusive).is_err());
        symlink(at("f"), at("to_f")).unwrap();
        assert!(FS.open(&at("to_f")).is_err());
        assert!(FS.truncate(&at("to_f"), 0).is_err());
        assert!(!FS.exists(&at("target")).unwrap());
    }

    #[test]
    fn a_directory_is_no_file() {
        let (_dir, at) = dir();
        FS.create_dir(&at("d")).unwrap();
        assert_eq!(kind(FS.open(&at("d"))), io::ErrorKind::InvalidInput);
        assert_eq!(kind(FS.len(&at("d"))), io::ErrorKind::InvalidInput);
        assert_eq!(kind(FS.create_dir(&at("d"))), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn names_are_listed_linked_renamed_removed() {
        let (_dir, at) = dir();
        drop(FS.create_new(&at("b")).unwrap());
        drop(FS.create_new(&at("a")).unwrap());
        FS.hard_link(&at("a"), &at("c")).unwrap();
        FS.rename(&at("a"), &at("b")).unwrap();
        FS.sync_dir(&at("")).unwrap();
        assert_eq!(FS.list(&at("")).unwrap(), ["b", "c"]);
        FS.remove_file(&at("b")).unwrap();
        assert!(!FS.exists(&at("b")).unwrap() && FS.exists(&at("c")).unwrap());
        FS.create_dir(&at("d")).unwrap();
        FS.remove_dir(&at("d")).unwrap();
        assert_eq!(kind(FS.sync_dir(&at("d"))), io::ErrorKind::NotFound);
        assert!(FS.free_space(&at("")).unwrap() > 0);
        assert!(FS.list(Path::new("")).is_ok());
    }

    #[test]
    fn truncate_cuts_and_does_not_grow() {
        let (_dir, at) = dir();
        let mut file = FS.create_new(&at("f")).unwrap();
        file.append(b"abcdef").unwrap();
        FS.truncate(&at("f"), 2).unwrap();
        assert_eq!(read_all(&at("f")), b"ab");
        assert_eq!(kind(FS.truncate(&at("f"), 3)), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_writer_that_failed_refuses_every_further_call() {
        let (_dir, at) = dir();
        drop(FS.create_new(&at("f")).unwrap());
        // A descriptor that may not write stands in for a broken disk.
        let file = File::open(at("f")).unwrap();
        let mut file = Box::new(DiskWriter { file, position: 0, reserved: 0, failed: Arc::default() });
        let handle = file.sync_handle().unwrap();
        handle.sync().unwrap();
        assert!(file.append(b"x").is_err());
        assert!(file.sync().is_err());
        assert!(handle.sync().is_err());
        assert!(file.close().is_err());
    }

    #[test]
    fn hints_and_alignment_do_no_harm() {
        let (_dir, at) = dir();
        let mut writer = FS.create_new(&at("f")).unwrap();
        writer.append(b"abc").unwrap();
        let file = FS.open(&at("f")).unwrap();
        for advice in [Advice::Random, Advice::Sequential, Advice::DontNeed] {
            file.advise(advice);
        }
        if let Some(alignment) = file.dio_alignment() {
            assert!(alignment.offset_bytes.is_power_of_two() && alignment.memory_bytes.is_power_of_two());
        }
        assert!(!file.is_empty().unwrap());
    }

    #[test]
    fn an_exclusive_lock_shuts_everybody_out_until_it_is_dropped() {
        let (_dir, at) = dir();
        let lock = FS.lock(&at("LOCK"), LockMode::Exclusive).unwrap();
        for mode in [LockMode::Exclusive, LockMode::Shared] {
            assert_eq!(kind(FS.lock(&at("LOCK"), mode)), io::ErrorKind::WouldBlock);
        }
        drop(lock);
        for _ in 0..1000 {
            drop(FS.lock(&at("LOCK"), LockMode::Exclusive).unwrap());
        }
    }

    #[test]
    fn shared_locks_go_together_and_do_not_create_the_file() {
        let (_dir, at) = dir();
        assert_eq!(kind(FS.lock(&at("LOCK"), LockMode::Shared)), io::ErrorKind::NotFound);
        assert!(!FS.exists(&at("LOCK")).unwrap());
        drop(FS.lock(&at("LOCK"), LockMode::Exclusive).unwrap());
        let first = FS.lock(&at("LOCK"), LockMode::Shared).unwrap();
        let second = FS.lock(&at("LOCK"), LockMode::Shared).unwrap();
        drop(first);
        assert_eq!(kind(FS.lock(&at("LOCK"), LockMode::Exclusive)), io::ErrorKind::WouldBlock);
        drop(second);
        FS.lock(&at("LOCK"), LockMode::Exclusive).unwrap();
    }

    #[test]
    fn a_lock_file_removed_by_hand_still_guards_within_the_process() {
        let (_dir, at) = dir();
        let lock = FS.lock(&at("LOCK"), LockMode::Exclusive).unwrap();
        assert!(lock.still_excludes().unwrap());
        fs::remove_file(at("LOCK")).unwrap();
        assert!(!lock.still_excludes().unwrap());
        drop(FS.create_new(&at("LOCK")).unwrap());
        assert!(!lock.still_excludes().unwrap());
        assert_eq!(kind(FS.lock(&at("LOCK"), LockMode::Exclusive)), io::ErrorKind::WouldBlock);
        drop(lock);
        FS.lock(&at("LOCK"), LockMode::Exclusive).unwrap();
    }

    #[test]
    fn a_lock_refused_by_another_process_leaves_no_entry() {
        let (_dir, at) = dir();
        drop(FS.create_new(&at("LOCK")).unwrap());
        // Another open file description is, to flock, another process.
        let other = File::open(at("LOCK")).unwrap();
        other.try_lock().unwrap();
        assert_eq!(kind(FS.lock(&at("LOCK"), LockMode::Exclusive)), io::ErrorKind::WouldBlock);
        let id = identity(&other.metadata().unwrap());
        assert!(HELD.lock().iter().all(|held| held.file != id));
        drop(other);
        FS.lock(&at("LOCK"), LockMode::Exclusive).unwrap();
    }

    #[test]
    fn a_forked_child_does_not_release_its_parents_lock() {
        let (_dir, at) = dir();
        drop(FS.create_new(&at("LOCK")).unwrap());
        let mut lock = DiskLock::take(&at("LOCK"), LockMode::Exclusive).unwrap();
        let parents_copy = lock.file.try_clone().unwrap();
        let pid = lock.pid;
        lock.pid ^= 1;
        let id = lock.id;
        drop(lock);
        assert!(HELD.lock().iter().any(|held| held.file == id));
        assert!(File::open(at("LOCK")).unwrap().try_lock().is_err());
        drop(DiskLock { file: parents_copy, path: at("LOCK"), id, pid });
        FS.lock(&at("LOCK"), LockMode::Exclusive).unwrap();
    }
}
