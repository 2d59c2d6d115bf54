//! Flush and compaction as jobs: what is due is decided under the `state` lock; the work runs without locks; the result is
//! appended to the manifest and then installed by one exchange of the view.

use crate::compaction::{self, BuildContext, Built, CompactionPlan, RunIterator, build_tables, pick};
use crate::db::engine::{Engine, State};
use crate::db::install::Change;
use crate::error::{Error, ErrorKind, Result};
use crate::executor::Priority;
use crate::filename::FileName;
use crate::iter::{InternalIterator, MergingIterator};
use crate::key::SeqNo;
use crate::memtable::MemtableIter;
use crate::options::KeyspaceOptions;
use crate::stats::LEVELS;
use crate::sync::{Arc, Ordering};
use crate::tree::Tree;
use crate::version::Version;
use crate::vfs::Context;

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
    pub(crate) fn update_pressure(&self, state: &State) {
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

    pub(crate) fn end_job(&self, tree: &Tree, plan: Option<&CompactionPlan>) {
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
    pub(crate) fn judge(&self, tree: &Tree, plan: Option<&CompactionPlan>, result: Result<()>) {
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
        self.sync_logs(last)?;
        self.pause_point("flush:before_install");
        // Counted before it is visible: whoever waited for the flush finds it counted.
        self.work.flushes.fetch_add(1, Ordering::Relaxed);
        self.work.flush_bytes.fetch_add(built.bytes, Ordering::Relaxed);
        let added = built.files.into_iter().map(|meta| (0, meta)).collect();
        self.install(tree, Change { added, flushed: Some((memtables, last)), ..Default::default() })
    }

    pub(crate) fn run_plan(self: &Arc<Self>, tree: &Arc<Tree>, plan: &CompactionPlan) -> Result<()> {
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
