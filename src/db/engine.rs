//! What all handles of a database share.
//!
//! Locks, in the order in which they are taken: leadership of the write queue → `writer` → `manifest` → `state`; `spare_log` is held with none of them. Readers
//! take none. `state` also serializes the exchange of views.

use crate::block::BlockCache;
use crate::clock::Clock;
use crate::compaction::Busy;
use crate::db::logs::LogSet;
use crate::db::queue::WriteQueue;
use crate::db::snapshot::SnapshotList;
use crate::db::write::Writer;
use crate::entropy::Entropy;
use crate::error::{Error, ErrorKind, Result};
use crate::executor::Executor;
use crate::filename::{FileName, FileNumber};
use crate::hash::HashKey;
use crate::key::SeqNo;
use crate::manifest::{Manifest, ManifestState};
use crate::options::Options;
use crate::sstable::Table;
use crate::stats::{Counters, Stalls};
use crate::sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex, OnPanic, Ordering};
use crate::tree::{Reclaimer, Tree};
use crate::vfs::descriptors::DescriptorCache;
use crate::vfs::{FileLock, FileSystem};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Weak;

/// One keyspace and the jobs on it.
pub(crate) struct KeyspaceState {
    pub(crate) tree: Arc<Tree>,
    pub(crate) busy: Busy,
    pub(crate) flushing: bool,
    pub(crate) compacting: usize,
    /// Tables that a compaction could not read, and why: jobs on them are suspended.
    pub(crate) suspended: HashMap<FileNumber, Error>,
}

impl KeyspaceState {
    pub(crate) fn new(tree: Arc<Tree>) -> Self {
        KeyspaceState { tree, busy: Busy::default(), flushing: false, compacting: 0, suspended: HashMap::new() }
    }
}

/// A table that no durable manifest names any more; its file goes when nobody reads it.
pub(crate) struct Obsolete {
    pub(crate) number: FileNumber,
    pub(crate) table: Weak<Table>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) keyspaces: BTreeMap<u32, KeyspaceState>,
    pub(crate) obsolete: Vec<Obsolete>,
    /// The failure that made the database read-only.
    pub(crate) failure: Option<Error>,
    pub(crate) closing: bool,
    pub(crate) jobs: usize,
    /// A compaction that takes everything into account is waiting or running.
    pub(crate) manual: usize,
}

/// The manifest and the state it describes.
pub(crate) struct ManifestRoom {
    /// None once closed, or opened read-only.
    pub(crate) manifest: Option<Manifest>,
    pub(crate) state: ManifestState,
}

/// The log that is written next, made beforehand: behind a lock of its own, so that no writer waits for a sync that the
/// manifest is in.
#[derive(Default)]
pub(crate) struct SpareLog {
    pub(crate) log: Option<crate::wal::LogWriter>,
    /// Somebody is making a log. One at a time: logs are replayed by number, so they must be written in that order.
    pub(crate) making: bool,
}

/// Counters of writes and of background work.
#[derive(Default)]
pub(crate) struct WorkCounters {
    pub(crate) batches: AtomicU64,
    pub(crate) operations: AtomicU64,
    pub(crate) user_bytes: AtomicU64,
    pub(crate) groups: AtomicU64,
    pub(crate) log_bytes: AtomicU64,
    pub(crate) conflicts: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) flush_bytes: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) trivial_moves: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) versions_dropped: AtomicU64,
    pub(crate) tombstones_dropped: AtomicU64,
    pub(crate) filters_built: AtomicU64,
    pub(crate) manifest_bytes: AtomicU64,
    pub(crate) builder_bytes: AtomicU64,
    pub(crate) write_buffer_bytes: AtomicU64,
    pub(crate) stalls: Mutex<Stalls>,
}

/// How hard compaction debt presses on writers.
#[derive(Default)]
pub(crate) struct Pressure {
    /// 0 at the soft limits, 1,000,000 at the hard ones: the strongest of all causes and keyspaces.
    pub(crate) severity_millionths: AtomicU64,
    /// Level-0 tables or debt have reached a hard limit.
    pub(crate) stopped: AtomicUsize,
}

pub(crate) struct Engine {
    pub(crate) dir: PathBuf,
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Entropy,
    pub(crate) options: Options,
    pub(crate) hash_key: HashKey,
    pub(crate) counters: Arc<Counters>,
    pub(crate) cache: Option<Arc<BlockCache>>,
    pub(crate) descriptors: DescriptorCache,
    pub(crate) executor: Arc<Executor>,
    pub(crate) reclaimer: Arc<Reclaimer>,
    /// The newest sequence number that reads see. Stored with release ordering after everything up to it is in the
    /// memtables.
    pub(crate) visible: AtomicU64,
    pub(crate) next_file: AtomicU64,
    pub(crate) closed: AtomicBool,
    pub(crate) snapshots: SnapshotList,
    pub(crate) queue: WriteQueue,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) logs: LogSet,
    pub(crate) manifest: Mutex<ManifestRoom>,
    pub(crate) spare_log: Mutex<SpareLog>,
    /// Signalled, with `spare_log`, when a log was made, or could not be.
    pub(crate) log_made: Condvar,
    pub(crate) state: Mutex<State>,
    /// Signalled whenever a job ends, a view is exchanged, or the database fails or closes.
    pub(crate) changed: Condvar,
    pub(crate) pressure: Pressure,
    pub(crate) work: WorkCounters,
    pub(crate) lock: Mutex<Option<Box<dyn FileLock>>>,
    /// Tables found at open that the manifest does not name, kept because its tail was cut.
    pub(crate) orphans: Vec<PathBuf>,
    pub(crate) pid: u32,
    #[cfg(any(test, feature = "internals"))]
    pub(crate) pause: crate::sync::pause::PausePoints,
}

impl Engine {
    /// A number that no file of this database ever had.
    pub(crate) fn next_number(&self) -> FileNumber {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "the database was closed"));
        }
        Ok(())
    }

    /// Whether writes are possible, and why not.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        if self.options.read_only {
            return Err(Error::new(ErrorKind::ReadOnly, "the database was opened read-only"));
        }
        match &self.state.lock().failure {
            Some(cause) => Err(Error::background(cause)),
            None => Ok(()),
        }
    }

    /// The first failure of log, flush or manifest is final: the database is read-only from here on. Returns what later
    /// writers get.
    pub(crate) fn fail(&self, cause: &Error) -> Error {
        let mut state = self.state.lock();
        let first = state.failure.get_or_insert_with(|| cause.clone()).clone();
        self.changed.notify_all();
        Error::background(&first)
    }

    /// Makes the database read-only if the caller's thread panics while the result lives: a change that ends halfway must
    /// not be built upon. (Jobs are caught by the executor, which tells of it, too, but only later.)
    pub(crate) fn latch_panics(&self) -> OnPanic<impl FnMut()> {
        OnPanic::new(|| {
            self.fail(&Error::new(ErrorKind::BackgroundFailure, "a thread panicked in the middle of a change"));
        })
    }

    /// Whether the database is still this process's own. Whoever removes LOCK by hand lets another process in, which
    /// recovers what was written so far and nothing that comes later. So this is asked *after* a write became durable
    /// and before it is acknowledged: if it still holds, the other one will find the write.
    pub(crate) fn check_lock(&self) -> Result<()> {
        let lock = self.lock.lock();
        let path = FileName::Lock.in_dir(&self.dir);
        match lock.as_ref().map_or(Ok(true), |lock| lock.still_excludes()) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let message = "the lock file was removed or replaced: somebody else may have opened the database";
                Err(Error::new(ErrorKind::Locked, message).in_file(&path))
            }
            Err(error) => Err(Error::io("look at the lock", &path, error)),
        }
    }

    /// Everything up to `seqno` is durable, and whoever opens the database next will find it, when this returns.
    pub(crate) fn sync_logs(&self, seqno: SeqNo) -> Result<()> {
        self.logs.sync_through(seqno)?;
        self.check_lock()
    }

    /// A named point at which a test may hold this thread.
    #[inline]
    pub(crate) fn pause_point(&self, _name: &str) {
        #[cfg(any(test, feature = "internals"))]
        self.pause.reach(_name);
    }

    pub(crate) fn tree(&self, id: u32) -> Option<Arc<Tree>> {
        self.state.lock().keyspaces.get(&id).map(|k| Arc::clone(&k.tree))
    }

    /// Every keyspace's tree, by id.
    pub(crate) fn trees(&self) -> Vec<Arc<Tree>> {
        self.state.lock().keyspaces.values().map(|k| Arc::clone(&k.tree)).collect()
    }
}

/// A forked child must not touch its parent's files or threads.
impl Engine {
    pub(crate) fn is_forked(&self) -> bool {
        std::process::id() != self.pid
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("dir", &self.dir).finish_non_exhaustive()
    }
}
