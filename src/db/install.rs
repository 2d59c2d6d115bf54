//! Installing what a job made: manifest first, then one exchange of the view; then what became superfluous goes.

use crate::db::engine::{Engine, ManifestRoom, Obsolete};
use crate::db::room::LogInTheMaking;
use crate::error::{Error, ErrorKind, Result};
use crate::filename::{FileName, FileNumber};
use crate::key::SeqNo;
use crate::manifest::Manifest;
use crate::memtable::Memtable;
use crate::sync::{Arc, Ordering};
use crate::tree::Tree;
use crate::version::LiveTable;
use crate::version::edit::{FileAdded, FileMeta, FileRemoved, VersionEdit};
use std::time::Duration;

/// The manifest starts anew, from a snapshot of the state, when it has grown over this and over four times what a
/// snapshot takes.
const MANIFEST_ROLL_BYTES: u64 = 1 << 20;
/// What a finished job changes in one keyspace.
#[derive(Default)]
pub(crate) struct Change {
    pub(crate) added: Vec<(u8, FileMeta)>,
    pub(crate) moved: Vec<(u8, u8, Arc<LiveTable>)>,
    pub(crate) removed: Vec<(u8, Arc<LiveTable>)>,
    /// Memtables that are in tables now, and the newest sequence number in them.
    pub(crate) flushed: Option<(Vec<Arc<Memtable>>, SeqNo)>,
}
impl Engine {
    /// Opens a table and gives it its place and counters.
    pub(crate) fn live_table(&self, keyspace: u32, level: u8, meta: FileMeta) -> Result<Arc<LiveTable>> {
        let table = self.open_table(&meta)?;
        Ok(LiveTable::new(keyspace, level, Arc::new(meta), table, &self.counters))
    }

    /// Manifest first, then the view: when this returns, the change is durable and visible, and the inputs' files go as
    /// soon as no read needs them.
    pub(crate) fn install(self: &Arc<Self>, tree: &Arc<Tree>, change: Change) -> Result<()> {
        let mut added = Vec::new();
        for (level, meta) in change.added {
            added.push((level, self.live_table(tree.id, level, meta)?));
        }
        for (_, to, table) in &change.moved {
            let placed =
                LiveTable::new(tree.id, *to, Arc::clone(&table.meta), Arc::clone(&table.table), &self.counters);
            added.push((*to, placed));
        }
        let mut room = self.manifest.lock();
        if tree.is_dropped() {
            drop(room);
            self.remove_tables(added.iter().map(|(_, t)| t.meta.number));
            return Ok(());
        }
        let (gone, flushed) = match &change.flushed {
            Some((memtables, last)) => (memtables.clone(), vec![(tree.id, *last)]),
            None => (Vec::new(), Vec::new()),
        };
        let logs_removed = match flushed.is_empty() {
            true => Vec::new(),
            false => self.logs.removable(|| self.oldest_unflushed(tree.id, &gone)),
        };
        let taken =
            |level: u8, table: &Arc<LiveTable>| FileRemoved { keyspace: tree.id, level, number: table.meta.number };
        let edit = VersionEdit {
            next_file_number: Some(self.next_file.load(Ordering::Relaxed)),
            last_seqno: Some(self.visible.load(Ordering::Acquire)),
            files_added: added
                .iter()
                .map(|(level, t)| FileAdded { keyspace: tree.id, level: *level, meta: (*t.meta).clone() })
                .collect(),
            files_removed: change
                .removed
                .iter()
                .map(|(level, t)| taken(*level, t))
                .chain(change.moved.iter().map(|(from, _, t)| taken(*from, t)))
                .collect(),
            flushed,
            logs_removed: logs_removed.clone(),
            ..Default::default()
        };
        self.append_edit(&mut room, &edit)?;
        self.pause_point("install:before_view");
        let removed: Vec<(u8, FileNumber)> = edit.files_removed.iter().map(|r| (r.level, r.number)).collect();
        {
            let mut state = self.state.lock();
            let version = tree.view().version.apply(&removed, &added, &self.hash_key)?;
            // One exchange: no read finds an entry both in the memtable and in its table, or in neither.
            tree.update(|mut view| {
                view.immutable.retain(|m| !gone.iter().any(|g| Arc::ptr_eq(g, m)));
                view.version = Arc::new(version);
                view
            });
            state.obsolete.extend(
                change.removed.iter().map(|(_, t)| Obsolete { number: t.meta.number, table: Arc::downgrade(&t.table) }),
            );
            self.update_pressure(&state);
            self.changed.notify_all();
        }
        // Before the next job may ask which logs can go.
        self.logs.forget(&logs_removed);
        drop(room);
        for number in logs_removed {
            // Best effort: what stays behind is not named by the manifest and goes at the next open.
            let _ = self.fs.remove_file(&FileName::Log(number).in_dir(&self.dir));
        }
        self.prepare_log();
        Ok(())
    }

    /// The oldest entry that only memtables hold, those `gone` of one keyspace aside.
    fn oldest_unflushed(&self, keyspace: u32, gone: &[Arc<Memtable>]) -> Option<SeqNo> {
        let mut oldest = None;
        for tree in self.trees() {
            let view = tree.view();
            let kept = view
                .immutable
                .iter()
                .chain([&view.active])
                .filter(|m| tree.id != keyspace || !gone.iter().any(|g| Arc::ptr_eq(g, m)));
            oldest = kept.filter_map(|m| m.seqnos().map(|s| s.0)).chain(oldest).min();
        }
        oldest
    }

    /// Appends an edit to the manifest, durable when this returns; starts a new manifest when the old one has grown large.
    pub(crate) fn append_edit(&self, room: &mut ManifestRoom, edit: &VersionEdit) -> Result<()> {
        // The state is changed before the file: what ends in between leaves them apart.
        let _latch = self.latch_panics();
        if let Some(cause) = &self.state.lock().failure {
            return Err(Error::background(cause));
        }
        if room.manifest.is_none() {
            return Err(Error::new(ErrorKind::Closed, "the database was closed"));
        }
        // Latched before anybody else gets at the manifest: from here on state and file may say different things.
        self.append_to_manifest(room, edit).inspect_err(|error| {
            self.fail(error);
        })
    }

    fn append_to_manifest(&self, room: &mut ManifestRoom, edit: &VersionEdit) -> Result<()> {
        let ManifestRoom { manifest: Some(open), state } = room else { return Ok(()) };
        state.apply(edit)?;
        open.append(edit)?;
        // Before files go that another process may have taken over, and before CURRENT is exchanged.
        self.check_lock()?;
        self.work.manifest_bytes.store(open.file_bytes(), Ordering::Relaxed);
        if open.file_bytes() > MANIFEST_ROLL_BYTES && open.file_bytes() > 4 * state.snapshot().encode().len() as u64 {
            let old = open.number();
            let number = self.next_number();
            state.next_file_number = state.next_file_number.max(self.next_file.load(Ordering::Relaxed));
            *open = Manifest::create(&*self.fs, &self.dir, number, state)?;
            let _ = self.fs.remove_file(&FileName::Manifest(old).in_dir(&self.dir));
        }
        Ok(())
    }

    /// Makes the next log ready, so that no writer waits for its creation.
    pub(crate) fn prepare_log(self: &Arc<Self>) {
        if self.executor.is_inline() || self.manifest.lock().manifest.is_none() {
            return;
        }
        {
            let mut spare = self.spare_log.lock();
            if spare.log.is_some() || spare.making {
                return;
            }
            spare.making = true;
        }
        let mut making = LogInTheMaking { engine: self, prepared: None };
        match self.create_log(self.logs.current_number()) {
            Ok(log) => making.prepared = Some(log),
            Err(error) => {
                drop(making);
                if error.kind() != ErrorKind::Closed {
                    self.fail(&error);
                }
            }
        }
    }

    pub(crate) fn remove_tables(&self, numbers: impl Iterator<Item = FileNumber>) {
        for number in numbers {
            let _ = self.fs.remove_file(&FileName::Table(number).in_dir(&self.dir));
        }
    }

    /// Frees replaced views and unlinks the files of tables that nobody reads any more. Never on a reader's thread.
    pub(crate) fn collect_garbage(&self) {
        let rounds = if self.executor.is_inline() { 20_000 } else { 200 };
        for round in 0..rounds {
            if self.reclaimer.collect() == 0 {
                break;
            }
            if round > 10 {
                self.clock.sleep(Duration::from_micros(100));
            }
        }
        let mut free = Vec::new();
        self.state.lock().obsolete.retain(|obsolete| {
            let unused = obsolete.table.strong_count() == 0;
            if unused {
                free.push(obsolete.number);
            }
            !unused
        });
        self.remove_tables(free.into_iter());
    }
}
