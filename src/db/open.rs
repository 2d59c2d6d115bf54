//! Opening: recover the manifest, check and open what it names, replay the logs, and start a new log and a new manifest.
//! Recovery never appends to a recovered file; until CURRENT is exchanged, a crash leaves what was there before.

use crate::clock::{Clock, FixedWallClock, SystemClock};
use crate::db::engine::{Engine, KeyspaceState, ManifestRoom, Pressure, SpareLog, State, WorkCounters};
use crate::db::keyspace::{Db, Handle};
use crate::db::logs::LogSet;
use crate::db::queue::WriteQueue;
use crate::db::replay::{Replayed, replay_logs};
use crate::db::snapshot::SnapshotList;
use crate::db::write::{WritableKeyspace, Writer};
use crate::entropy::{Entropy, Purpose};
use crate::error::{Error, ErrorKind, Result};
use crate::executor::Executor;
use crate::filename::{FileName, FileNumber};
use crate::hash::HashKey;
use crate::manifest::{Manifest, ManifestState};
use crate::options::{KeyspaceOptions, Options};
use crate::sstable::{Table, TableIdentity};
use crate::stats::Counters;
use crate::sync::{Arc, AtomicBool, AtomicU64, Condvar, Mutex, Ordering};
use crate::tree::{Reclaimer, Tree};
use crate::version::Version;
use crate::version::edit::{DatabaseHeader, FileAdded, FileMeta, KeyspaceCreated, VersionEdit};
use crate::vfs::descriptors::DescriptorCache;
use crate::vfs::disk::DiskFileSystem;
use crate::vfs::{Advice, Context, FileLock, FileSystem, LockMode, RandomAccessFile};
use crate::wal::{EMPTY_LOG_BYTES, LogWriter};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The name of the keyspace that `Db` itself stands for.
pub(crate) const DEFAULT_KEYSPACE: &str = "default";

/// Opens a database with components of the caller's: another file system, another clock.
#[derive(Debug)]
#[must_use = "a builder does nothing until `open`"]
pub struct Builder {
    options: Options,
    fs: Arc<dyn FileSystem>,
    clock: Option<Arc<dyn Clock>>,
}

impl Default for Builder {
    fn default() -> Self {
        Builder { options: Options::default(), fs: Arc::new(DiskFileSystem), clock: None }
    }
}

impl Builder {
    /// What may be set.
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Where files lie. Default: the operating system's file systems.
    pub fn file_system(mut self, fs: Arc<dyn FileSystem>) -> Self {
        self.fs = fs;
        self
    }

    /// Where time comes from. Default: the operating system's clocks; with `Options::seed`, a wall clock that stands
    /// still.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Opens the database in the directory `path`.
    ///
    /// # Errors
    /// `Locked` if somebody has it open (also through a keyspace, snapshot or batch that is still held), `NotFound` without
    /// `create_if_missing` or if the parent directory is missing, `AlreadyExists` with `error_if_exists`, `Unsupported` for
    /// files of a later version or with a codec that is not compiled in, `Corruption` if a file that the database
    /// needs is missing or damaged (nothing is changed then), `InvalidArgument` for options out of range.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Db> {
        self.options.validate()?;
        let fixed = self.options.seed.is_some();
        let clock = self.clock.unwrap_or_else(|| {
            if fixed { Arc::new(FixedWallClock::default()) } else { Arc::new(SystemClock::default()) }
        });
        let dir = path.as_ref();
        if dir.as_os_str().is_empty() {
            return Err(Error::invalid_argument("the path of the database is empty"));
        }
        if self.options.read_only {
            open_read_only(self.options, self.fs, clock, dir)
        } else {
            open_read_write(self.options, self.fs, clock, dir)
        }
    }
}

impl Options {
    /// Opens the database in the directory `path` with these options. See [`Builder::open`] for errors.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Db> {
        Builder::default().options(self).open(path)
    }
}

/// What lies in the directory.
struct Found {
    tables: Vec<FileNumber>,
    logs: Vec<FileNumber>,
    manifests: Vec<FileNumber>,
    current_temp: bool,
    largest: FileNumber,
}

impl Found {
    fn list(fs: &dyn FileSystem, dir: &Path) -> Result<Self> {
        let mut found =
            Found { tables: Vec::new(), logs: Vec::new(), manifests: Vec::new(), current_temp: false, largest: 0 };
        for name in fs.list(dir).map_err(|error| cannot_list(dir, error))? {
            let Some(name) = name.to_str().and_then(FileName::parse) else { continue };
            match name {
                FileName::Table(number) => found.tables.push(number),
                FileName::Log(number) => found.logs.push(number),
                FileName::Manifest(number) => found.manifests.push(number),
                FileName::CurrentTemp => found.current_temp = true,
                FileName::Current | FileName::Lock => {}
            }
            found.largest = found.largest.max(name.number().unwrap_or(0));
        }
        Ok(found)
    }
}

fn no_database(dir: &Path) -> Error {
    Error::new(ErrorKind::NotFound, "there is no database, and none is to be created").in_file(dir)
}

fn cannot_list(dir: &Path, error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::NotADirectory => {
            Error::invalid_argument("the path is, or leads through, a file; a database is a directory").in_file(dir)
        }
        std::io::ErrorKind::NotFound => no_database(dir),
        _ => Error::io("list the directory", dir, error),
    }
}

fn take_lock(fs: &dyn FileSystem, dir: &Path, mode: LockMode) -> Result<Box<dyn FileLock>> {
    let path = FileName::Lock.in_dir(dir);
    fs.lock(&path, mode).map_err(|error| {
        if error.kind() == std::io::ErrorKind::WouldBlock {
            let message = "the database is open already, in this process or another; close it there first (a keyspace, snapshot or \
                           batch that is still held keeps it open)";
            Error::new(ErrorKind::Locked, message).in_file(&path)
        } else {
            Error::io("lock the database", &path, error)
        }
    })
}

/// Before anything is written: what the path is, and whether there may be a database.
fn make_directory(fs: &dyn FileSystem, dir: &Path, options: &Options) -> Result<()> {
    match fs.list(dir) {
        Ok(names) => {
            let ours = names.iter().filter_map(|name| name.to_str().and_then(FileName::parse));
            let database = ours.into_iter().any(|name| name != FileName::Lock);
            return if database || options.create_if_missing { Ok(()) } else { Err(no_database(dir)) };
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(cannot_list(dir, error)),
    }
    if !options.create_if_missing {
        return Err(no_database(dir));
    }
    fs.create_dir(dir).map_err(|error| {
        let operation = "create the database directory (its parent must exist and be writable)";
        Error::io(operation, dir, error)
    })?;
    Ok(())
}

/// Makes the directory's own entry durable, whoever made it: without it, nothing in it is. Called before the first
/// CURRENT, so that a creation that came to an end needs it never again.
fn sync_parent(fs: &dyn FileSystem, dir: &Path) -> Result<()> {
    let parent = dir.parent().unwrap_or(Path::new(""));
    match fs.sync_dir(parent) {
        // A directory that was given to us in one that we may not read.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(()),
        outcome => outcome.context("sync the parent directory", parent),
    }
}

/// What recovery starts from: a manifest's state, and whether files it does not name are surely superfluous.
fn recover_or_create(
    fs: &dyn FileSystem,
    dir: &Path,
    options: &Options,
    entropy: &Entropy,
    found: &Found,
) -> Result<(ManifestState, bool)> {
    match Manifest::recover(fs, dir) {
        Ok(recovered) => {
            if options.error_if_exists {
                let message = "the database exists and error_if_exists is on";
                return Err(Error::new(ErrorKind::AlreadyExists, message).in_file(dir));
            }
            refuse_unnamed_logs(fs, dir, &recovered.state, found)?;
            let whole = recovered.is_whole();
            Ok((recovered.state, whole))
        }
        Err(error) if error.kind() == ErrorKind::NotFound && options.create_if_missing && !options.read_only => {
            sync_parent(fs, dir)?;
            Ok((new_state(options, entropy, found)?, true))
        }
        Err(error) => Err(error),
    }
}

fn new_state(options: &Options, entropy: &Entropy, found: &Found) -> Result<ManifestState> {
    let word = |purpose| entropy.word(purpose, 0);
    let mut hash_key = [0; 16];
    hash_key[..8].copy_from_slice(&word(Purpose::HashKeyLow)?.to_le_bytes());
    hash_key[8..].copy_from_slice(&word(Purpose::HashKeyHigh)?.to_le_bytes());
    let database = DatabaseHeader { id: word(Purpose::DatabaseId)?, hash_key: HashKey(hash_key) };
    let mut state = ManifestState::new(database);
    state.apply(&VersionEdit {
        next_file_number: Some(found.largest + 1),
        next_keyspace_id: Some(1),
        keyspaces_created: vec![KeyspaceCreated {
            id: 0,
            name: DEFAULT_KEYSPACE.into(),
            options: options.keyspace.encode(),
            flushed: 0,
        }],
        ..Default::default()
    })?;
    Ok(state)
}

/// An engine around a recovered state, its tables open, nothing replayed yet.
fn build_engine(
    options: Options,
    fs: Arc<dyn FileSystem>,
    clock: Arc<dyn Clock>,
    dir: &Path,
    manifest_state: ManifestState,
    found: &Found,
    whole: bool,
) -> Result<Engine> {
    let cache_bytes = match options.memory_budget {
        Some(budget) => options.cache_bytes.min(budget / 2),
        None => options.cache_bytes,
    };
    let threads = if options.read_only { 0 } else { options.background_threads };
    let named = |number: &FileNumber| {
        manifest_state.keyspaces.values().any(|k| k.levels.values().any(|files| files.contains_key(number)))
    };
    let orphans: Vec<PathBuf> = if whole {
        Vec::new()
    } else {
        found.tables.iter().filter(|n| !named(n)).map(|n| FileName::Table(*n).in_dir(dir)).collect()
    };
    let engine = Engine {
        dir: dir.to_owned(),
        descriptors: DescriptorCache::new(Arc::clone(&fs), options.max_open_files),
        fs,
        clock,
        entropy: Entropy::new(options.seed),
        hash_key: manifest_state.database.hash_key,
        counters: Arc::new(Counters::new()),
        cache: (cache_bytes > 0).then(|| Arc::new(crate::block::BlockCache::new(cache_bytes))),
        executor: Executor::new(threads)?,
        reclaimer: Arc::new(Reclaimer::default()),
        visible: AtomicU64::new(0),
        next_file: AtomicU64::new(manifest_state.next_file_number.max(found.largest.saturating_add(1))),
        closed: AtomicBool::new(false),
        snapshots: SnapshotList::default(),
        queue: WriteQueue::default(),
        writer: Mutex::new(Writer::default()),
        logs: LogSet::default(),
        manifest: Mutex::new(ManifestRoom { manifest: None, state: manifest_state }),
        spare_log: Mutex::new(SpareLog::default()),
        log_made: Condvar::new(),
        state: Mutex::new(State::default()),
        changed: Condvar::new(),
        pressure: Pressure::default(),
        work: WorkCounters::default(),
        lock: Mutex::new(None),
        orphans,
        pid: std::process::id(),
        options,
        #[cfg(any(test, feature = "internals"))]
        pause: crate::sync::pause::PausePoints::default(),
    };
    Ok(engine)
}

impl Engine {
    /// Opens a table that the manifest names and checks that it is the one.
    pub(crate) fn open_table(&self, meta: &FileMeta) -> Result<Arc<Table>> {
        let path = FileName::Table(meta.number).in_dir(&self.dir);
        let file: Arc<dyn RandomAccessFile> = self.descriptors.open(&path).context_of_named("open the table", &path)?;
        file.advise(Advice::Random);
        let identity = TableIdentity { table_id: meta.table_id, file_bytes: meta.file_bytes };
        let mapped = self.options.read_mode.is_mapped();
        Ok(Arc::new(Table::open(file, path, identity, self.cache.clone(), mapped)?))
    }

    /// Opens every table of every keyspace, with what the manifest says of them.
    fn load_keyspaces(&self) -> Result<BTreeMap<u32, Arc<Tree>>> {
        let room = self.manifest.lock();
        let mut trees = BTreeMap::new();
        for (id, keyspace) in &room.state.keyspaces {
            let options = KeyspaceOptions::decode(&keyspace.options)?;
            let mut added = Vec::new();
            for (level, files) in &keyspace.levels {
                if usize::from(*level) >= crate::stats::LEVELS {
                    return Err(Error::corruption(format!("the manifest names a table in level {level}; there are 7")));
                }
                for meta in files.values() {
                    check_understood(meta)?;
                    added.push((*level, self.live_table(*id, *level, meta.clone())?));
                }
            }
            let version = Version::empty().apply(&[], &added, &self.hash_key)?;
            let tree = Tree::new(*id, keyspace.name.clone(), options, version, Arc::clone(&self.reclaimer));
            trees.insert(*id, Arc::new(tree));
        }
        Ok(trees)
    }

    /// The newest sequence number in the manifest, its tables and what was replayed.
    fn last_seqno(&self, replayed: &Replayed) -> u64 {
        let state = &self.manifest.lock().state;
        let files = state.keyspaces.values().flat_map(|k| k.levels.values().flat_map(|files| files.values()));
        let in_tables = files.map(|meta| meta.seqnos.1).max().unwrap_or(0);
        let flushed = state.keyspaces.values().map(|k| k.flushed).max().unwrap_or(0);
        state.last_seqno.max(in_tables).max(flushed).max(replayed.last_seqno)
    }
}

fn open_read_write(options: Options, fs: Arc<dyn FileSystem>, clock: Arc<dyn Clock>, dir: &Path) -> Result<Db> {
    make_directory(&*fs, dir, &options)?;
    let lock = take_lock(&*fs, dir, LockMode::Exclusive)?;
    let found = Found::list(&*fs, dir)?;
    let entropy = Entropy::new(options.seed);
    let (mut state, whole) = recover_or_create(&*fs, dir, &options, &entropy, &found)?;
    adopt_options(&mut state, &options)?;
    let engine = build_engine(options, fs, clock, dir, state, &found, whole)?;
    *engine.lock.lock() = Some(lock);
    let trees = engine.load_keyspaces()?;
    let mut replayed = replay_logs(&engine, &trees, true)?;
    let last_seqno = engine.last_seqno(&replayed);

    let log_number = engine.next_number();
    let log = LogWriter::create(&*engine.fs, &engine.dir, log_number, 0, None)?;
    let manifest_number = engine.next_number();
    let manifest = {
        let mut room = engine.manifest.lock();
        let edit = VersionEdit {
            next_file_number: Some(engine.next_file.load(Ordering::Relaxed)),
            last_seqno: Some(last_seqno),
            logs_removed: room.state.logs.iter().copied().collect(),
            logs_added: vec![log_number],
            flushed: room.state.keyspaces.keys().map(|id| (*id, last_seqno)).collect(),
            files_added: replayed
                .tables
                .iter()
                .map(|(keyspace, t)| FileAdded { keyspace: *keyspace, level: 0, meta: (*t.meta).clone() })
                .collect(),
            ..Default::default()
        };
        room.state.apply(&edit)?;
        let manifest = Manifest::create(&*engine.fs, &engine.dir, manifest_number, &room.state)?;
        engine.work.manifest_bytes.store(manifest.file_bytes(), Ordering::Relaxed);
        manifest
    };
    engine.manifest.lock().manifest = Some(manifest);
    engine.start(trees, std::mem::take(&mut replayed.tables), log, last_seqno)?;
    remove_superfluous(&engine, &found, whole);
    Ok(Db::new(Handle::new(engine)))
}

/// A log is named in the manifest before the first batch goes into it. So a newer one that holds something means that the
/// manifest lost its end after that was durable.
fn refuse_unnamed_logs(fs: &dyn FileSystem, dir: &Path, state: &ManifestState, found: &Found) -> Result<()> {
    let newest = state.logs.iter().copied().max().unwrap_or(0);
    for number in found.logs.iter().copied().filter(|number| *number > newest) {
        let path = FileName::Log(number).in_dir(dir);
        if fs.len(&path).context("measure", &path)? > EMPTY_LOG_BYTES {
            let message = "a log that holds data is newer than any that the manifest names: the manifest has lost its end; \
                           restore it from a backup";
            return Err(Error::corruption(message).in_file(&path));
        }
    }
    Ok(())
}

/// The manifest has room for what a later version will say of a table. To pass over it would give wrong answers.
pub(crate) fn check_understood(meta: &FileMeta) -> Result<()> {
    let later = meta.tombstone_bounds.is_some()
        || meta.largest_exclusive
        || meta.seqno_override.is_some()
        || meta.filter_side_file.is_some();
    if later {
        let message =
            format!("table {} has range tombstones, another sequence number or a filter beside it", meta.number);
        return Err(Error::unsupported(format!("{message}: open the database with the version that wrote it")));
    }
    Ok(())
}

/// Options given for the default keyspace replace the stored ones, unless they are the defaults.
fn adopt_options(state: &mut ManifestState, options: &Options) -> Result<()> {
    let encoded = options.keyspace.encode();
    let stored = state.keyspaces.get(&0).map(|k| &k.options);
    if options.keyspace == KeyspaceOptions::default() || stored == Some(&encoded) {
        return Ok(());
    }
    // An edit in a session undoes its clean close; this one is not of the session that closed the logs.
    let clean_close = state.clean_close.take();
    state.apply(&VersionEdit { options_changed: vec![(0, encoded)], ..Default::default() })?;
    state.clean_close = clean_close;
    Ok(())
}

impl Engine {
    /// Puts the trees, the tables made of the logs, and the new log in their places.
    fn start(
        &self,
        trees: BTreeMap<u32, Arc<Tree>>,
        new_tables: Vec<(u32, Arc<crate::version::LiveTable>)>,
        log: LogWriter,
        last_seqno: u64,
    ) -> Result<()> {
        for (id, tree) in &trees {
            let added: Vec<_> = new_tables.iter().filter(|(k, _)| k == id).map(|(_, t)| (0, Arc::clone(t))).collect();
            if !added.is_empty() {
                let version = tree.view().version.apply(&[], &added, &self.hash_key)?;
                tree.update(|mut view| {
                    view.version = Arc::new(version);
                    view
                });
            }
        }
        self.visible.store(last_seqno, Ordering::Release);
        self.logs.start(last_seqno);
        self.logs.register(log.number());
        self.logs.switch_to(&log, None)?;
        let mut writer = self.writer.lock();
        writer.log = Some(log);
        writer.last_seqno = last_seqno;
        for (id, tree) in &trees {
            let active = tree.view().active;
            writer.keyspaces.insert(*id, WritableKeyspace { tree: Arc::clone(tree), active });
        }
        let mut state = self.state.lock();
        state.keyspaces = trees.into_iter().map(|(id, tree)| (id, KeyspaceState::new(tree))).collect();
        Ok(())
    }
}

/// Removes, best effort, what the new manifest does not name: logs that were replayed, older manifests, a temporary
/// pointer, and tables, unless the old manifest's tail was cut and they might be the only trace of something. Names that
/// are not ours were never listed.
fn remove_superfluous(engine: &Engine, found: &Found, whole: bool) {
    let remove = |name: FileName| {
        let _ = engine.fs.remove_file(&name.in_dir(&engine.dir));
    };
    if found.current_temp {
        remove(FileName::CurrentTemp);
    }
    found.logs.iter().for_each(|n| remove(FileName::Log(*n)));
    found.manifests.iter().for_each(|n| remove(FileName::Manifest(*n)));
    if whole {
        let room = engine.manifest.lock();
        let named = |number: &FileNumber| {
            room.state.keyspaces.values().any(|k| k.levels.values().any(|files| files.contains_key(number)))
        };
        found.tables.iter().filter(|n| !named(n)).for_each(|n| remove(FileName::Table(*n)));
    }
}

fn open_read_only(options: Options, fs: Arc<dyn FileSystem>, clock: Arc<dyn Clock>, dir: &Path) -> Result<Db> {
    let lock = match take_lock(&*fs, dir, LockMode::Shared) {
        Ok(lock) => Some(lock),
        Err(error) if error.kind() == ErrorKind::Locked => return Err(error),
        // A read-only medium, or somebody else's files: where no lock can be taken, nobody can write either.
        Err(_) => None,
    };
    let found = Found::list(&*fs, dir)?;
    let entropy = Entropy::new(options.seed);
    let (state, whole) = recover_or_create(&*fs, dir, &options, &entropy, &found)?;
    let engine = build_engine(options, fs, clock, dir, state, &found, whole)?;
    *engine.lock.lock() = lock;
    let trees = engine.load_keyspaces()?;
    let replayed = replay_logs(&engine, &trees, false)?;
    engine.visible.store(engine.last_seqno(&replayed), Ordering::Release);
    engine.state.lock().keyspaces = trees.into_iter().map(|(id, tree)| (id, KeyspaceState::new(tree))).collect();
    Ok(Db::new(Handle::new(engine)))
}
