//! Every file operation of the engine, behind traits: a real disk, a memory that can crash, and a wrapper that injects
//! faults. `vfs/disk.rs` is the only place that calls `std::fs`.
//!
//! The traits speak `io::Error`, as a file system does; callers add the operation and the path with `Context`.

mod crash;
pub(crate) mod descriptors;
pub(crate) mod disk;
#[cfg(any(test, feature = "internals"))]
pub(crate) mod fault;
mod map;
pub(crate) mod memory;

pub use disk::DiskFileSystem;
#[cfg(any(test, feature = "internals"))]
pub use fault::{Call, Effect, Failure, Fault, FaultFileSystem, Select};
pub use memory::{CrashVariant, MemoryFileSystem};

use crate::error::{Error, Result};
use crate::sync::Arc;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::Path;

/// A file system.
pub trait FileSystem: Send + Sync + fmt::Debug + 'static {
    /// Creates a file for writing; fails with `AlreadyExists` if there is one (`O_EXCL`), never follows a link.
    /// The file's *entry* is durable only after [`sync_dir`](Self::sync_dir) of its directory.
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn WritableFile>>;
    /// Opens a file for positioned reads.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn RandomAccessFile>>;
    /// Replaces `to` by `from`, atomically. Durable after `sync_dir`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file's entry. Durable after `sync_dir`.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes `to` a second name of `from`. Durable after `sync_dir`.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Creates a directory (mode 0700); fails with `AlreadyExists` if there is something.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// The names in a directory, sorted.
    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>>;
    /// The file's length in bytes.
    fn len(&self, path: &Path) -> io::Result<u64>;
    /// Whether there is a file or directory of that name.
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Cuts a file to `len` bytes and syncs it.
    fn truncate(&self, path: &Path, len: u64) -> io::Result<()>;
    /// Makes the entries of a directory durable: files created, renamed and removed in it before.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Takes the lock file, created if `mode` is exclusive and it is missing. Fails with `WouldBlock` when somebody
    /// else, another handle of this process included, holds it in a conflicting mode. Dropping the guard releases it.
    fn lock(&self, path: &Path, mode: LockMode) -> io::Result<Box<dyn FileLock>>;
    /// Bytes free for this user on the file system of `path`.
    fn free_space(&self, path: &Path) -> io::Result<u64>;
}

/// How a lock file is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// One holder.
    Exclusive,
    /// Many holders, none exclusive.
    Shared,
}

/// A held lock; dropping it releases it.
pub trait FileLock: Send + Sync + fmt::Debug {
    /// Whether the lock file still has its name. If somebody removed it, the next opener makes and locks another one, and
    /// the lock excludes nobody any more.
    fn still_excludes(&self) -> io::Result<bool>;
}

/// What the engine is about to do with a file, told to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Point reads: no read-ahead.
    Random,
    /// One pass from front to back.
    Sequential,
    /// These pages are not needed any more.
    DontNeed,
}

/// The alignment that direct I/O on a file demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectIoAlignment {
    /// Of the buffer's address, in bytes.
    pub memory_bytes: u32,
    /// Of offset and length, in bytes.
    pub offset_bytes: u32,
}

/// Bytes of a mapped file.
pub type MappedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A file read at given offsets, from several threads at once.
pub trait RandomAccessFile: Send + Sync + fmt::Debug {
    /// Reads at `offset` until `buffer` is full or the file ends; returns how many bytes were read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file is empty.
    fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|len| len == 0)
    }
    /// A hint; failures do not matter.
    fn advise(&self, advice: Advice);
    /// What direct I/O needs here; None where it is not offered.
    fn dio_alignment(&self) -> Option<DirectIoAlignment>;
    /// Maps the whole file for reading, advised random.
    ///
    /// # Safety
    /// Nobody, in any process, may change or shorten the file while the map lives: Rust takes the bytes for immutable,
    /// and a read past a shortened end, or a media error, kills the process with SIGBUS.
    #[allow(unsafe_code)]
    unsafe fn map(&self) -> io::Result<MappedBytes>;
}

/// A file written from front to back.
///
/// After a failed call the file is finished: its writer must not call it again (a failed `fsync` may have dropped the
/// pages it could not write, so a second, successful one proves nothing).
pub trait WritableFile: Send + fmt::Debug {
    /// Appends all of `bytes`: handed to the operating system when this returns, safe from a crash of the process.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Makes what was appended durable: safe from a power cut when this returns (if the entry was synced, too).
    fn sync(&mut self) -> io::Result<()>;
    /// Reserves space for `len` bytes from the start, which read as zeros, so that appends need not grow the file.
    /// A hint: where it is not offered, nothing happens.
    fn allocate(&mut self, len: u64) -> io::Result<()>;
    /// Cuts off what `allocate` reserved after the last append, and closes the file, reporting what the system reports.
    fn close(self: Box<Self>) -> io::Result<()>;
    /// A second handle that only syncs, for a thread other than the writer's.
    fn sync_handle(&self) -> io::Result<Box<dyn SyncHandle>>;
}

/// Syncs a file that another thread writes.
pub trait SyncHandle: Send + Sync + fmt::Debug {
    /// Makes what was appended before this call durable.
    fn sync(&self) -> io::Result<()>;
}

/// Adds operation and path to an `io::Error`.
pub(crate) trait Context<T> {
    fn context(self, operation: &str, path: &Path) -> Result<T>;
    /// For a file that the manifest names: if it is not there, the database is damaged, and `NotFound` would say
    /// something else.
    fn context_of_named(self, operation: &str, path: &Path) -> Result<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, operation: &str, path: &Path) -> Result<T> {
        self.map_err(|e| Error::io(operation, path, e))
    }

    fn context_of_named(self, operation: &str, path: &Path) -> Result<T> {
        self.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                let message = "a file that the manifest names is missing; restore it from a backup";
                Error::corruption(message).in_file(path)
            }
            _ => Error::io(operation, path, error),
        })
    }
}
