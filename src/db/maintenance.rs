//! Flush, compaction and waiting as the user asks for them.

use crate::compaction::{Reason, plan_range};
use crate::db::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::memtable::Memtable;
use crate::sync::Arc;
use crate::tree::Tree;
use std::time::Duration;

impl Engine {
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
        let _latch = self.latch_panics();
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
