//! Flush and compaction as jobs: what is due is decided under the `state` lock; the work runs without locks; the result is
//! appended to the manifest and then installed by one exchange of the view.

use crate::compaction::{
    self, BuildContext, Built, CompactionPlan, Reason, RunIterator, build_tables, pick, plan_range,
};
use crate::db::engine::{Engine, ManifestRoom, Obsolete, State};
use crate::error::{Error, ErrorKind, Result};
use crate::executor::Priority;
use crate::filename::{FileName, FileNumber};
use crate::iter::{InternalIterator, MergingIterator};
use crate::key::SeqNo;
use crate::manifest::Manifest;
use crate::memtable::{Memtable, MemtableIter};
use crate::options::KeyspaceOptions;
use crate::stats::LEVELS;
use crate::sync::{Arc, Ordering};
use crate::tree::Tree;
use crate::version::edit::{FileAdded, FileMeta, FileRemoved, VersionEdit};
use crate::version::{LiveTable, Version};
use crate::vfs::Context;
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

enum Job {
    Flush(Arc<Tree>),
    Compact(Arc<Tree>, CompactionPlan),
}

impl Engine {
    /// Queues every flush and compaction that is due and can run now, and sets the pressure on writers.
    pub(crate) fn schedule(self: &Arc<Self>) {
        if self.options.read_only {
            return;
        }
        let jobs = self.due_jobs();
        for job in jobs {
            let engine = Arc::clone(self);
            let priority = if matches!(job, Job::Flush(_)) { Priority::High } else { Priority::Low };
            let queued = self.executor.spawn(priority, Box::new(move || engine.run_job(job)));
            if !queued {
                self.state.lock().jobs -= 1;
                self.changed.notify_all();
            }
        }
    }

    fn due_jobs(&self) -> Vec<Job> {
        let mut jobs = Vec::new();
        let mut state = self.state.lock();
        let oldest_snapshot = self.snapshots.list().first().copied().unwrap_or(SeqNo::MAX);
        let may_run = !state.closing && state.failure.is_none();
        let mut compacting: usize = state.keyspaces.values().map(|k| k.compacting).sum();
        let most = self.options.background_threads.saturating_sub(1).max(1);
        let manual = state.manual > 0;
        for keyspace in state.keyspaces.values_mut() {
            let view = keyspace.tree.view();
            let options = keyspace.tree.options();
            if !may_run {
                continue;
            }
            if !keyspace.flushing && !view.immutable.is_empty() {
                keyspace.flushing = true;
                jobs.push(Job::Flush(Arc::clone(&keyspace.tree)));
            }
            while compacting < most && !manual {
                let Some(plan) = pick(&view.version, &options, &keyspace.busy, oldest_snapshot) else { break };
                keyspace.busy.begin(&plan);
                keyspace.compacting += 1;
                compacting += 1;
                jobs.push(Job::Compact(Arc::clone(&keyspace.tree), plan));
            }
        }
        state.jobs += jobs.len();
        self.update_pressure(&state);
        jobs
    }

    /// Sets how hard debt presses on writers: by the keyspace that is worst off, since they share log and threads.
    fn update_pressure(&self, state: &State) {
        let (mut severity, mut stopped) = (0.0_f64, 0);
        for keyspace in state.keyspaces.values() {
            let (harder, stop) = pressure(&keyspace.tree.view().version, &keyspace.tree.options());
            severity = severity.max(harder);
            stopped = stopped.max(stop);
        }
        self.pressure.severity_millionths.store((severity.clamp(0.0, 1.0) * 1e6) as u64, Ordering::Relaxed);
        self.pressure.stopped.store(stopped, Ordering::Relaxed);
    }

    fn run_job(self: &Arc<Self>, job: Job) {
        match job {
            Job::Flush(tree) => {
                let result = self.flush_job(&tree);
                self.end_job(&tree, None);
                self.judge(&tree, None, result);
            }
            Job::Compact(tree, plan) => {
                let result = self.run_plan(&tree, &plan);
                self.end_job(&tree, Some(&plan));
                self.judge(&tree, Some(&plan), result);
                drop(plan);
            }
        }
        self.schedule();
        self.collect_garbage();
        self.state.lock().jobs -= 1;
        self.changed.notify_all();
    }

    fn end_job(&self, tree: &Tree, plan: Option<&CompactionPlan>) {
        let mut state = self.state.lock();
        if let Some(keyspace) = state.keyspaces.get_mut(&tree.id) {
            match plan {
                None => keyspace.flushing = false,
                Some(plan) => {
                    keyspace.busy.end(plan);
                    keyspace.compacting -= 1;
                }
            }
        }
        self.changed.notify_all();
    }

    /// What a job's failure means. A table that a compaction cannot read suspends jobs on that table only; everything
    /// else makes the database read-only.
    fn judge(&self, tree: &Tree, plan: Option<&CompactionPlan>, result: Result<()>) {
        let Err(error) = result else { return };
        if error.kind() == ErrorKind::Closed || tree.is_dropped() {
            return;
        }
        let unreadable = plan.and_then(|plan| {
            let path = error.path()?;
            plan.tables().map(|(_, t)| t.meta.number).find(|n| FileName::Table(*n).in_dir(&self.dir) == path)
        });
        match unreadable {
            Some(number) => {
                let mut state = self.state.lock();
                if let Some(keyspace) = state.keyspaces.get_mut(&tree.id) {
                    keyspace.busy.tables.insert(number);
                    keyspace.suspended.insert(number, error);
                }
                self.changed.notify_all();
            }
            None => {
                self.fail(&error);
            }
        }
    }

    fn stop_if_closing(&self) -> Result<()> {
        let state = self.state.lock();
        if state.closing {
            return Err(Error::new(ErrorKind::Closed, "the database is being closed"));
        }
        Ok(())
    }

    /// Builds tables of `level` from `input`, durable with their directory entries when this returns.
    pub(crate) fn build(
        &self,
        options: &KeyspaceOptions,
        level: u8,
        snapshots: &[SeqNo],
        input: &mut dyn InternalIterator,
        older_exists: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<Built> {
        let context = BuildContext {
            fs: &*self.fs,
            dir: &self.dir,
            next_number: &|| self.next_number(),
            entropy: &self.entropy,
            hash_key: self.hash_key,
            created_at: self.clock.unix_seconds(),
            options,
            level,
            table_bytes: if level == 0 { u64::MAX } else { options.table_bytes },
            snapshots,
            builder_bytes: &self.work.builder_bytes,
            keep_going: &|| self.stop_if_closing(),
        };
        let built = build_tables(&context, input, older_exists)?;
        if !built.files.is_empty() {
            self.fs.sync_dir(&self.dir).context("sync the directory", &self.dir)?;
        }
        self.work.filters_built.fetch_add(built.files.len() as u64, Ordering::Relaxed);
        self.work.versions_dropped.fetch_add(built.versions_dropped, Ordering::Relaxed);
        self.work.tombstones_dropped.fetch_add(built.tombstones_dropped, Ordering::Relaxed);
        Ok(built)
    }

    /// All immutable memtables of a keyspace into one table of level 0.
    fn flush_job(self: &Arc<Self>, tree: &Arc<Tree>) -> Result<()> {
        let memtables = tree.view().immutable;
        // The snapshots after the memtables: a later snapshot sees the newest version of everything in them.
        let snapshots = self.snapshots.list();
        let Some(last) = memtables.iter().filter_map(|m| m.seqnos().map(|s| s.1)).max() else { return Ok(()) };
        self.pause_point("flush:begin");
        let mut input =
            MergingIterator::new(memtables.iter().map(|m| MemtableIter::new(Arc::clone(m))).collect::<Vec<_>>());
        let built = self.build(&tree.options(), 0, &snapshots, &mut input, &mut |_| true)?;
        // Log before table: else a power cut could keep one keyspace's half of a batch and lose the other's.
        self.logs.sync_through(last)?;
        self.pause_point("flush:before_install");
        // Counted before it is visible: whoever waited for the flush finds it counted.
        self.work.flushes.fetch_add(1, Ordering::Relaxed);
        self.work.flush_bytes.fetch_add(built.bytes, Ordering::Relaxed);
        let added = built.files.into_iter().map(|meta| (0, meta)).collect();
        self.install(tree, Change { added, flushed: Some((memtables, last)), ..Default::default() })
    }

    fn run_plan(self: &Arc<Self>, tree: &Arc<Tree>, plan: &CompactionPlan) -> Result<()> {
        self.stop_if_closing()?;
        if plan.trivial_move {
            let moved = plan.tables().map(|(level, t)| (level, plan.output_level, Arc::clone(t))).collect::<Vec<_>>();
            self.work.trivial_moves.fetch_add(moved.len() as u64, Ordering::Relaxed);
            return self.install(tree, Change { moved, ..Default::default() });
        }
        let snapshots = self.snapshots.list();
        let version = tree.view().version;
        let mut input = MergingIterator::new(inputs_of(plan));
        let below = usize::from(plan.output_level) + 1;
        let mut older_exists = |key: &[u8]| (below..LEVELS).any(|n| version.level(n).fences().find(key).is_some());
        self.pause_point("compaction:begin");
        let options = tree.options();
        let built = self.build(&options, plan.output_level, &snapshots, &mut input, &mut older_exists)?;
        drop(input);
        self.pause_point("compaction:before_install");
        self.work.compactions.fetch_add(1, Ordering::Relaxed);
        self.work.bytes_read.fetch_add(plan.input_bytes(), Ordering::Relaxed);
        self.work.bytes_written.fetch_add(built.bytes, Ordering::Relaxed);
        let added = built.files.into_iter().map(|meta| (plan.output_level, meta)).collect();
        let removed = plan.tables().map(|(level, t)| (level, Arc::clone(t))).collect();
        self.install(tree, Change { added, removed, ..Default::default() })
    }

    /// Opens a table and gives it its place and counters.
    pub(crate) fn live_table(&self, keyspace: u32, level: u8, meta: FileMeta) -> Result<Arc<LiveTable>> {
        let table = self.open_table(&meta)?;
        Ok(LiveTable::new(keyspace, level, Arc::new(meta), table, &self.counters))
    }

    /// Manifest first, then the view: when this returns, the change is durable and visible, and the inputs' files go as
    /// soon as no read needs them.
    fn install(self: &Arc<Self>, tree: &Arc<Tree>, change: Change) -> Result<()> {
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
        let ManifestRoom { manifest, state, .. } = room;
        let Some(open) = manifest else {
            return Err(Error::new(ErrorKind::Closed, "the database was closed"));
        };
        state.apply(edit)?;
        open.append(edit)?;
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
    fn prepare_log(self: &Arc<Self>) {
        if self.executor.is_inline() {
            return;
        }
        {
            let mut room = self.manifest.lock();
            if room.prepared_log.is_some() || room.preparing_log || room.manifest.is_none() {
                return;
            }
            room.preparing_log = true;
        }
        let current = self.logs.current_number();
        let result = self.create_log(current);
        let mut room = self.manifest.lock();
        room.preparing_log = false;
        self.log_made.notify_all();
        match result {
            Ok(log) => room.prepared_log = Some(log),
            Err(error) => {
                drop(room);
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

    /// Flushes one keyspace (or all), and returns when what was written before the call is in tables.
    pub(crate) fn flush(self: &Arc<Self>, keyspace: Option<u32>) -> Result<()> {
        self.check_writable()?;
        let ids = self.exclusively(|writer| {
            let ids: Vec<u32> =
                writer.keyspaces.keys().copied().filter(|id| keyspace.is_none_or(|k| k == *id)).collect();
            for id in &ids {
                self.exchange_memtable(writer, *id)?;
            }
            Ok(ids)
        })?;
        let waiting: Vec<(Arc<Tree>, Vec<Arc<Memtable>>)> = ids
            .into_iter()
            .filter_map(|id| self.tree(id))
            .map(|tree| (Arc::clone(&tree), tree.view().immutable))
            .collect();
        self.wait_until(|| {
            waiting.iter().all(|(tree, memtables)| {
                tree.is_dropped() || {
                    let now = tree.view().immutable;
                    memtables.iter().all(|m| !now.iter().any(|n| Arc::ptr_eq(m, n)))
                }
            })
        })
    }

    /// Waits for jobs until `done`; fails if the database fails or closes meanwhile.
    fn wait_until(self: &Arc<Self>, done: impl Fn() -> bool) -> Result<()> {
        loop {
            self.executor.run_pending();
            if done() {
                return Ok(());
            }
            self.check_writable()?;
            self.schedule();
            if !self.executor.is_inline() {
                let mut state = self.state.lock();
                self.changed.wait_for(&mut state, Duration::from_millis(50));
            }
        }
    }

    /// Returns when no flush or compaction is running or due, and the files they made superfluous are gone.
    pub(crate) fn wait_idle(self: &Arc<Self>) -> Result<()> {
        self.check_open()?;
        if self.options.read_only {
            return Ok(());
        }
        self.schedule();
        self.wait_until(|| {
            let state = self.state.lock();
            state.jobs == 0 && state.keyspaces.values().all(|k| k.tree.view().immutable.is_empty())
        })?;
        self.collect_garbage();
        Ok(())
    }

    /// Merges everything of a keyspace that overlaps the range into its last level: old versions, spent tombstones and
    /// the room they took are gone when this returns (those that snapshots see stay).
    pub(crate) fn compact(
        self: &Arc<Self>,
        tree: &Arc<Tree>,
        smallest: Option<&[u8]>,
        largest: Option<&[u8]>,
    ) -> Result<()> {
        self.flush(Some(tree.id))?;
        self.state.lock().manual += 1;
        let result = self.compact_now(tree, smallest, largest);
        self.state.lock().manual -= 1;
        self.changed.notify_all();
        self.schedule();
        self.executor.run_pending();
        self.collect_garbage();
        result
    }

    fn compact_now(self: &Arc<Self>, tree: &Arc<Tree>, smallest: Option<&[u8]>, largest: Option<&[u8]>) -> Result<()> {
        let plan = loop {
            self.executor.run_pending();
            self.check_writable()?;
            let mut state = self.state.lock();
            let Some(keyspace) = state.keyspaces.get_mut(&tree.id) else {
                return Err(Error::new(ErrorKind::NotFound, "the keyspace was dropped"));
            };
            let Some(plan) = plan_range(&tree.view().version, &tree.options(), smallest, largest) else {
                return Ok(());
            };
            if !keyspace.busy.conflicts(&plan) {
                keyspace.busy.begin(&plan);
                keyspace.compacting += 1;
                state.jobs += 1;
                break plan;
            }
            let blocked = plan.tables().find_map(|(_, t)| keyspace.suspended.get(&t.meta.number));
            if let Some(error) = blocked {
                return Err(error.clone());
            }
            if !self.executor.is_inline() {
                self.changed.wait_for(&mut state, Duration::from_millis(50));
            }
        };
        debug_assert_eq!(plan.reason, Reason::Manual);
        let result = self.run_plan(tree, &plan);
        self.end_job(tree, Some(&plan));
        self.judge(tree, Some(&plan), result.clone());
        self.state.lock().jobs -= 1;
        self.changed.notify_all();
        result
    }
}

fn inputs_of(plan: &CompactionPlan) -> Vec<RunIterator> {
    let mut inputs = Vec::new();
    for (level, tables) in &plan.inputs {
        if *level == 0 {
            inputs.extend(tables.iter().map(|t| RunIterator::new(vec![Arc::clone(t)])));
        } else {
            inputs.push(RunIterator::new(tables.clone()));
        }
    }
    inputs
}

/// How far debt has come between the soft and the hard limit, and whether it has reached the hard one (1: level 0, 2: bytes).
fn pressure(version: &Version, options: &KeyspaceOptions) -> (f64, usize) {
    let tables = version.level(0).tables().len();
    let pending = compaction::pending_bytes(version, options);
    let between = |value: f64, soft: f64, hard: f64| ((value - soft) / (hard - soft)).max(0.0);
    let by_tables = between(tables as f64, options.l0_slowdown as f64, options.l0_stop as f64);
    let (soft, hard) = (options.soft_pending_compaction_bytes, options.hard_pending_compaction_bytes);
    let by_bytes = between(pending as f64, soft as f64, hard as f64);
    let stopped = if tables >= options.l0_stop { 1 } else { usize::from(pending >= hard) * 2 };
    (by_tables.max(by_bytes), stopped)
}
