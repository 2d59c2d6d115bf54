//! The handles: [`Db`] and [`Keyspace`].

use crate::db::batch::WriteBatch;
use crate::db::engine::{Engine, KeyspaceState};
use crate::db::open::{Builder, DEFAULT_KEYSPACE};
use crate::db::queue::Pending;
use crate::db::snapshot::Snapshot;
use crate::db::write::WritableKeyspace;
use crate::error::{Error, ErrorKind, Result};
use crate::key::SeqNo;
use crate::options::{KeyspaceOptions, Options, WriteOptions};
use crate::stats::ReadStats;
use crate::sync::{Arc, Ordering};
use crate::tree::{ReadContext, Tree};
use crate::value::Value;
use crate::version::Version;
use crate::version::edit::{KeyspaceCreated, VersionEdit, check_keyspace_name};
use std::ops::{Bound, Deref, RangeBounds};
use std::path::Path;

/// Keeps the engine alive; the last one closes it.
pub(crate) struct Handle(Arc<Engine>);

impl Handle {
    pub(crate) fn new(engine: Engine) -> Arc<Self> {
        let engine = Arc::new(engine);
        let weak = Arc::downgrade(&engine);
        engine.executor.on_panic(Arc::new(move |message| {
            if let Some(engine) = weak.upgrade() {
                engine.fail(&Error::new(ErrorKind::BackgroundFailure, format!("a background job panicked: {message}")));
            }
        }));
        engine.schedule();
        engine.executor.run_pending();
        Arc::new(Handle(engine))
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // What fails here has nobody to tell: that is what `close` is for.
        let _ = self.0.close();
    }
}

/// How a single read is made.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Read at this moment. Default: now.
    pub snapshot: Option<Snapshot>,
    /// Put the blocks read into the cache. Default: true.
    pub fill_cache: bool,
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions { snapshot: None, fill_cache: true }
    }
}

/// A database, and its default keyspace (to which it derefs). Cheap to clone; `Send`, `Sync`, `'static`.
///
/// Dropping the last handle closes it silently; keyspaces, snapshots and batches are handles, too. [`Db::close`] closes it
/// whatever is still held, and reports what failed.
///
/// Methods of [`Keyspace`] that are called on a `Db` (`put`, `get`, `flush`, `compact`, `tables`, `options`, …) concern the
/// default keyspace; `Db`'s own (`sync`, `flush_all`, `snapshot`, `statistics`, `verify`, …) concern all of them.
#[derive(Clone)]
pub struct Db {
    keyspace: Keyspace,
}

/// One keyspace: a set of keys with options of its own, sharing log, cache and threads with the others.
#[derive(Clone)]
pub struct Keyspace {
    handle: Arc<Handle>,
    tree: Arc<Tree>,
}

impl Deref for Db {
    type Target = Keyspace;

    fn deref(&self) -> &Keyspace {
        &self.keyspace
    }
}

impl Db {
    pub(crate) fn new(handle: Arc<Handle>) -> Self {
        // The manifest always has keyspace 0: it is made with the database and cannot be dropped.
        let tree = handle.engine().tree(0).unwrap_or_else(|| {
            let reclaimer = Arc::clone(&handle.engine().reclaimer);
            Arc::new(Tree::new(0, DEFAULT_KEYSPACE.into(), KeyspaceOptions::default(), Version::empty(), reclaimer))
        });
        Db { keyspace: Keyspace { handle, tree } }
    }

    /// Opens the database in the directory `path` with default options; creates it if there is none.
    ///
    /// # Errors
    /// See [`Builder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Db> {
        Options::default().open(path)
    }

    /// Opens a database with components of the caller's.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Opens a keyspace with its stored options, or creates it with the `Options::keyspace` of this opening.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that is empty, longer than 255 bytes or holds a NUL.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        self.open_keyspace(name, None)
    }

    /// Opens or creates a keyspace with these options, which are stored and hold for new memtables and tables. The default
    /// keyspace is called "default".
    pub fn keyspace_with(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        options.validate()?;
        self.open_keyspace(name, Some(options))
    }

    fn open_keyspace(&self, name: &str, options: Option<KeyspaceOptions>) -> Result<Keyspace> {
        check_keyspace_name(name)?;
        let engine = self.engine();
        engine.check_open()?;
        let existing = || engine.trees().into_iter().find(|tree| tree.name == name);
        if let Some(tree) = existing().filter(|tree| options.as_ref().is_none_or(|o| *o == *tree.options())) {
            return Ok(Keyspace { handle: Arc::clone(&self.handle), tree });
        }
        engine.check_writable()?;
        let tree = engine.exclusively(|writer| {
            if let Some(tree) = existing() {
                if let Some(options) = options {
                    engine.change_options(&tree, options)?;
                }
                return Ok(tree);
            }
            let tree = engine.create_keyspace(name, options.unwrap_or_else(|| engine.options.keyspace.clone()))?;
            let active = tree.view().active;
            writer.keyspaces.insert(tree.id, WritableKeyspace { tree: Arc::clone(&tree), active });
            Ok(tree)
        })?;
        Ok(Keyspace { handle: Arc::clone(&self.handle), tree })
    }

    /// The names of all keyspaces, sorted; "default" among them.
    pub fn keyspaces(&self) -> Vec<String> {
        let mut names: Vec<String> = self.engine().trees().iter().map(|tree| tree.name.clone()).collect();
        names.sort();
        names
    }

    /// Drops a keyspace and everything in it; durable when this returns. Handles and snapshots of it give `NotFound`
    /// from then on.
    ///
    /// # Errors
    /// `NotFound` if there is none of that name; `InvalidArgument` for the default keyspace.
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        let engine = self.engine();
        engine.check_writable()?;
        if name == DEFAULT_KEYSPACE {
            return Err(Error::invalid_argument("the default keyspace cannot be dropped"));
        }
        engine.exclusively(|writer| {
            let Some(tree) = engine.trees().into_iter().find(|tree| tree.name == name) else {
                return Err(Error::new(ErrorKind::NotFound, "there is no keyspace of that name"));
            };
            writer.keyspaces.remove(&tree.id);
            engine.forget_keyspace(&tree)
        })?;
        engine.executor.run_pending();
        engine.collect_garbage();
        Ok(())
    }

    /// An empty batch of operations that are committed together, across keyspaces.
    pub fn batch(&self) -> WriteBatch {
        WriteBatch::new(Arc::clone(&self.handle))
    }

    /// The state of all keyspaces now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(Arc::clone(&self.handle), self.keyspace.clone())
    }

    /// All acknowledged writes are durable when this returns: safe from a power cut.
    pub fn sync(&self) -> Result<()> {
        self.engine().sync()
    }

    /// Writes up to this sequence number are safe from a power cut.
    pub fn persisted_seqno(&self) -> SeqNo {
        self.engine().logs.persisted().min(self.engine().visible.load(Ordering::Acquire))
    }

    /// [`flush`](Keyspace::flush) for all keyspaces.
    pub fn flush_all(&self) -> Result<()> {
        self.engine().flush(None)
    }

    /// The directory it was opened in, as given.
    pub fn path(&self) -> &Path {
        &self.engine().dir
    }

    /// Returns when no flush or compaction is running or due, in any keyspace.
    pub fn wait_idle(&self) -> Result<()> {
        self.engine().wait_idle()
    }

    /// Closes the database: waits for what is running, syncs, ends log and manifest cleanly and releases the lock. Handles
    /// and snapshots give `Closed` from then on; values stay valid. Memtables are not flushed: the log holds them.
    ///
    /// # Errors
    /// What failed, also if it failed earlier in the background. Closing again does nothing.
    pub fn close(&self) -> Result<()> {
        self.engine().close()
    }

    /// Pause points for tests.
    #[cfg(any(test, feature = "internals"))]
    #[doc(hidden)]
    pub fn pause_points(&self) -> crate::sync::pause::PausePoints {
        self.engine().pause.clone()
    }
}

impl Engine {
    fn create_keyspace(self: &Arc<Self>, name: &str, options: KeyspaceOptions) -> Result<Arc<Tree>> {
        let id = {
            let mut room = self.manifest.lock();
            let id = room.state.next_keyspace_id;
            let edit = VersionEdit {
                next_keyspace_id: Some(id + 1),
                keyspaces_created: vec![KeyspaceCreated {
                    id,
                    name: name.to_owned(),
                    options: options.encode(),
                    // No log holds an entry of it yet.
                    flushed: self.visible.load(Ordering::Acquire),
                }],
                ..Default::default()
            };
            self.append_edit(&mut room, &edit).map_err(|error| self.fail(&error))?;
            id
        };
        let tree = Tree::new(id, name.to_owned(), options, Version::empty(), Arc::clone(&self.reclaimer));
        let tree = Arc::new(tree);
        self.state.lock().keyspaces.insert(id, KeyspaceState::new(Arc::clone(&tree)));
        Ok(tree)
    }

    fn change_options(self: &Arc<Self>, tree: &Tree, options: KeyspaceOptions) -> Result<()> {
        let mut room = self.manifest.lock();
        let edit = VersionEdit { options_changed: vec![(tree.id, options.encode())], ..Default::default() };
        self.append_edit(&mut room, &edit).map_err(|error| self.fail(&error))?;
        tree.set_options(options);
        Ok(())
    }

    fn forget_keyspace(self: &Arc<Self>, tree: &Arc<Tree>) -> Result<()> {
        let mut room = self.manifest.lock();
        let edit = VersionEdit { keyspaces_dropped: vec![tree.id], ..Default::default() };
        self.append_edit(&mut room, &edit).map_err(|error| self.fail(&error))?;
        tree.mark_dropped();
        let mut state = self.state.lock();
        state.keyspaces.remove(&tree.id);
        let tables: Vec<_> =
            tree.view().version.tables().map(|(_, t)| (t.meta.number, Arc::downgrade(&t.table))).collect();
        state.obsolete.extend(tables.into_iter().map(|(number, table)| super::engine::Obsolete { number, table }));
        tree.update(|mut view| {
            view.version = Arc::new(Version::empty());
            view.immutable.clear();
            view
        });
        self.changed.notify_all();
        Ok(())
    }
}

impl Keyspace {
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        self.handle.engine()
    }

    pub(crate) fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    fn check(&self) -> Result<()> {
        self.engine().check_open()?;
        if self.tree.is_dropped() {
            return Err(Error::new(ErrorKind::NotFound, "the keyspace was dropped"));
        }
        Ok(())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.tree.name
    }

    /// Its options.
    pub fn options(&self) -> KeyspaceOptions {
        (*self.tree.options()).clone()
    }

    /// The value of `key`. A key over the limit is simply absent.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_at(key.as_ref(), None, true)
    }

    /// The value of `key`, read as `options` say.
    pub fn get_with(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Option<Value>> {
        let snapshot = options.snapshot.as_ref().map(|snapshot| snapshot.seqno_for(self)).transpose()?;
        self.get_at(key.as_ref(), snapshot, options.fill_cache)
    }

    /// Whether `key` has a value. Exact: a filter's "maybe" is followed up.
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    pub(crate) fn get_at(&self, key: &[u8], snapshot: Option<SeqNo>, fill_cache: bool) -> Result<Option<Value>> {
        self.check()?;
        self.engine().read(&self.tree, key, snapshot, ReadContext { fill_cache })
    }

    /// The value of `key`, and what the read cost and avoided.
    pub fn get_with_stats(&self, key: impl AsRef<[u8]>) -> Result<(Option<Value>, ReadStats)> {
        self.check()?;
        let mut stats = ReadStats::default();
        let value = self.engine().read_recorded(&self.tree, key.as_ref(), &mut stats)?;
        Ok((value, stats))
    }

    /// The values of `keys`, in their order, all at one moment.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Result<Vec<Option<Value>>> {
        self.check()?;
        let keys: Vec<K> = keys.into_iter().collect();
        self.engine().read_many(&self.tree, &keys)
    }

    /// Sets `key` to `value`. Safe from a crash of the process when this returns; from a power cut after
    /// [`Db::sync`], or with [`put_with`](Self::put_with) and `sync`.
    ///
    /// # Errors
    /// `InvalidArgument` for a key over 65,535 bytes or a value over [`MAX_VALUE_BYTES`](crate::MAX_VALUE_BYTES), before anything is written. After an
    /// `Io` error the write may or may not be there when the database is opened again, never in part.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, &WriteOptions::default())
    }

    /// [`put`](Self::put) with options.
    pub fn put_with(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, options: &WriteOptions) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.write(options, (key.len() + value.len()) as u64, |batch| batch.put(self.tree.id, key, value))
    }

    /// Removes `key`; nothing happens if it is absent.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_with(key, &WriteOptions::default())
    }

    /// [`delete`](Self::delete) with options.
    pub fn delete_with(&self, key: impl AsRef<[u8]>, options: &WriteOptions) -> Result<()> {
        let key = key.as_ref();
        self.write(options, key.len() as u64, |batch| batch.delete(self.tree.id, key))
    }

    fn write(
        &self,
        options: &WriteOptions,
        user_bytes: u64,
        fill: impl FnOnce(&mut crate::batch::Batch) -> Result<()>,
    ) -> Result<()> {
        self.check()?;
        let mut batch = crate::batch::Batch::new();
        fill(&mut batch)?;
        let pending = Pending {
            batch,
            keyspaces: vec![self.tree.id],
            requirements: Vec::new(),
            sync: options.sync || self.engine().options.sync_every_write,
            user_bytes,
        };
        self.engine().commit(pending).map(|_| ())
    }

    /// Writes this keyspace's memtable out ([`Db::flush_all`]: all of them); what was written before the call is in tables, and durable, when this returns.
    pub fn flush(&self) -> Result<()> {
        self.check()?;
        self.engine().flush(Some(self.tree.id))
    }

    /// Merges everything of this keyspace into the last level: old versions, tombstones and the room they took are gone when this returns.
    pub fn compact(&self) -> Result<()> {
        self.check()?;
        self.engine().compact(&self.tree, None, None)
    }

    /// [`compact`](Self::compact) for the tables that overlap a range of keys, such as `"a".."m"`.
    pub fn compact_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.check()?;
        // Whole tables are merged, so it does not matter whether a bound is included.
        let bytes = |bound: Bound<&K>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => Some(key.as_ref().to_vec()),
            Bound::Unbounded => None,
        };
        let (low, high) = (bytes(range.start_bound()), bytes(range.end_bound()));
        if let (Some(low), Some(high)) = (&low, &high)
            && low > high
        {
            return Ok(());
        }
        self.engine().compact(&self.tree, low.as_deref(), high.as_deref())
    }
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Db").field("dir", &self.engine().dir).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyspace").field("name", &self.name()).finish_non_exhaustive()
    }
}
