//! The write path: a leader joins the waiting batches into one append to the log, syncs if asked, inserts them into the
//! memtables, and publishes their sequence numbers.

use crate::batch::Batch;
use crate::db::engine::Engine;
use crate::db::queue::{Pending, Turn, Waiter};
use crate::error::{Error, ErrorKind, Result};
use crate::hash::HashKey;
use crate::key::{MAX_SEQNO, SeqNo, Tag};
use crate::memtable::Memtable;
use crate::sync::{Arc, AtomicU64, Ordering};
use crate::tree::{ReadContext, Tree};
use crate::wal::LogWriter;
use std::collections::{BTreeMap, VecDeque};

/// Batch bytes that one leader takes along at most.
const MAX_GROUP_BYTES: usize = 1 << 20;

/// What only the leader touches.
#[derive(Default)]
pub(crate) struct Writer {
    /// None when closed or read-only.
    pub(crate) log: Option<LogWriter>,
    pub(crate) last_seqno: SeqNo,
    pub(crate) keyspaces: BTreeMap<u32, WritableKeyspace>,
    /// Microseconds of delay owed for bytes written under compaction debt, not yet slept.
    pub(crate) owed_micros: u64,
    /// Bytes written since the memory and log limits were last looked at.
    pub(crate) unchecked_bytes: u64,
}

pub(crate) struct WritableKeyspace {
    pub(crate) tree: Arc<Tree>,
    pub(crate) active: Arc<Memtable>,
}

/// Writers whose batches a leader took along, in their order. Each gets its answer, even if the leader panics.
struct Followers(VecDeque<Arc<Waiter>>);

impl Followers {
    fn answer(&mut self, result: Result<SeqNo>) {
        if let Some(waiter) = self.0.pop_front() {
            waiter.finish(result);
        }
    }
}

impl Drop for Followers {
    fn drop(&mut self) {
        while !self.0.is_empty() {
            let message = "the thread that wrote this batch with its own panicked; it may be there after reopening";
            self.answer(Err(Error::new(ErrorKind::BackgroundFailure, message)));
        }
    }
}

impl Engine {
    /// Commits a batch: alone, in a group, or as the leader of one. Returns the sequence number of its last operation.
    pub(crate) fn commit(self: &Arc<Self>, pending: Pending) -> Result<SeqNo> {
        self.check_open()?;
        let result = match self.queue.enter(Some(pending)) {
            Turn::Done(result) => result,
            Turn::Lead(own) => {
                let leadership = self.queue.leadership();
                let result = match own {
                    Some(own) => self.lead(own),
                    None => Err(Error::new(ErrorKind::InvalidArgument, "a batch was lost in the write queue")),
                };
                drop(leadership);
                result
            }
        };
        self.executor.run_pending();
        result
    }

    /// Runs `work` while no writer writes.
    pub(crate) fn exclusively<T>(self: &Arc<Self>, work: impl FnOnce(&mut Writer) -> Result<T>) -> Result<T> {
        match self.queue.enter(None) {
            Turn::Done(_) => Err(Error::new(ErrorKind::Closed, "the database was closed")),
            Turn::Lead(_) => {
                let leadership = self.queue.leadership();
                let _latch = self.latch_panics();
                let result = work(&mut self.writer.lock());
                drop(leadership);
                result
            }
        }
    }

    fn lead(self: &Arc<Self>, own: Pending) -> Result<SeqNo> {
        let conditional = !own.requirements.is_empty();
        let _latch = self.latch_panics();
        let mut writer = self.writer.lock();
        let ready = self.prepare(&mut writer, &own);
        // Only now: whoever came while this waited for room goes along.
        let followers = if conditional { Vec::new() } else { self.queue.followers(MAX_GROUP_BYTES) };
        let ready = ready.and_then(|()| self.check_requirements(&own));
        let (waiters, batches): (VecDeque<Arc<Waiter>>, Vec<Pending>) = followers.into_iter().unzip();
        let mut waiters = Followers(waiters);
        let mut group = Vec::with_capacity(1 + batches.len());
        group.push(own);
        group.extend(batches);
        let results = match ready {
            Ok(()) => self.write_group(&mut writer, &mut group),
            Err(error) if group.len() == 1 => vec![Err(error)],
            Err(error) => {
                // The leader's own batch was refused; the others still get their turn.
                let mut rest = group.split_off(1);
                let mut results = vec![Err(error)];
                let room = rest.iter().try_for_each(|pending| self.prepare(&mut writer, pending));
                results.extend(match room {
                    Ok(()) => self.write_group(&mut writer, &mut rest),
                    Err(error) => rest.iter().map(|_| Err(error.clone())).collect(),
                });
                results
            }
        };
        drop(writer);
        let mut results = results.into_iter();
        let mine = results.next().unwrap_or_else(|| Err(Error::new(ErrorKind::Closed, "the database was closed")));
        results.for_each(|result| waiters.answer(result));
        mine
    }

    /// All that may refuse or delay a batch before anything is written.
    fn prepare(self: &Arc<Self>, writer: &mut Writer, pending: &Pending) -> Result<()> {
        self.check_writable()?;
        for id in &pending.keyspaces {
            if !writer.keyspaces.contains_key(id) {
                return Err(Error::new(
                    ErrorKind::NotFound,
                    "the keyspace was dropped; nothing of the batch was written",
                ));
            }
        }
        self.make_room(writer, &pending.keyspaces, pending.batch.byte_size() as u64)
    }

    fn check_requirements(&self, pending: &Pending) -> Result<()> {
        for requirement in &pending.requirements {
            let Some(tree) = self.tree(requirement.keyspace) else {
                return Err(Error::new(ErrorKind::NotFound, "the keyspace of a requirement was dropped"));
            };
            let found = self.read(&tree, &requirement.key, None, ReadContext { fill_cache: true })?;
            if !requirement.holds(found.as_ref()) {
                self.work.conflicts.fetch_add(1, Ordering::Relaxed);
                return Err(Error::new(
                    ErrorKind::Conflict,
                    "a requirement of the batch does not hold; nothing was written; read again and retry",
                ));
            }
        }
        Ok(())
    }

    fn write_group(self: &Arc<Self>, writer: &mut Writer, group: &mut [Pending]) -> Vec<Result<SeqNo>> {
        let usable =
            |writer: &Writer, pending: &Pending| pending.keyspaces.iter().all(|id| writer.keyspaces.contains_key(id));
        let mut last = writer.last_seqno;
        let mut results = Vec::with_capacity(group.len());
        for pending in group.iter_mut() {
            if !usable(writer, pending) {
                results.push(Err(Error::new(ErrorKind::NotFound, "the keyspace was dropped; nothing was written")));
                continue;
            }
            let count = u64::from(pending.batch.len());
            if last + count > MAX_SEQNO {
                results
                    .push(Err(Error::new(ErrorKind::InvalidArgument, "the database has used up its sequence numbers")));
                continue;
            }
            pending.batch.set_seqno(last + 1);
            last += count;
            results.push(Ok(last));
        }
        let accepted = |results: &[Result<SeqNo>]| results.iter().map(Result::is_ok).collect::<Vec<_>>();
        let accepted = accepted(&results);
        let chosen = || group.iter().zip(&accepted).filter(|(_, ok)| **ok).map(|(pending, _)| pending);
        if let Err(error) = self.append(writer, chosen().map(|p| &p.batch), last, chosen().any(|p| p.sync)) {
            let error = self.fail(&error);
            return results.into_iter().map(|result| result.and_then(|_| Err(error.clone()))).collect();
        }
        for pending in chosen() {
            if let Err(error) = insert(writer, &self.hash_key, &pending.batch) {
                let error = self.fail(&error);
                return results.into_iter().map(|result| result.and_then(|_| Err(error.clone()))).collect();
            }
            self.count(pending);
        }
        self.work.groups.fetch_add(1, Ordering::Relaxed);
        writer.last_seqno = last;
        self.visible.store(last, Ordering::Release);
        results
    }

    /// Hands the group to the operating system, and makes it durable if `sync`.
    fn append<'a>(
        &self,
        writer: &mut Writer,
        batches: impl Iterator<Item = &'a Batch>,
        last: SeqNo,
        sync: bool,
    ) -> Result<()> {
        let batches: Vec<&Batch> = batches.filter(|batch| !batch.is_empty()).collect();
        let Some(log) = &mut writer.log else {
            return Err(Error::new(ErrorKind::Closed, "the database was closed"));
        };
        if let Some(error) = self.logs.failure() {
            log.fail(&error);
        }
        if !batches.is_empty() {
            if let Some(offset) = self.logs.synced_offset(log.number()) {
                log.set_synced_offset(offset);
            }
            let before = log.len();
            log.append(batches)?;
            self.work.log_bytes.fetch_add(log.len() - before, Ordering::Relaxed);
            self.work.write_buffer_bytes.store(log.buffer_bytes() as u64, Ordering::Relaxed);
            self.logs.appended(log.len(), last);
        }
        if sync {
            self.pause_point("write:before_sync");
            self.sync_logs(last)?;
        }
        Ok(())
    }

    fn count(&self, pending: &Pending) {
        let add = |counter: &AtomicU64, by: u64| counter.fetch_add(by, Ordering::Relaxed);
        add(&self.work.batches, 1);
        add(&self.work.operations, u64::from(pending.batch.len()));
        add(&self.work.user_bytes, pending.user_bytes);
    }

    /// All acknowledged writes are durable when this returns.
    pub(crate) fn sync(self: &Arc<Self>) -> Result<()> {
        self.check_writable()?;
        let through = self.visible.load(Ordering::Acquire);
        let _latch = self.latch_panics();
        self.sync_logs(through).map_err(|error| self.fail(&error))
    }
}

fn insert(writer: &Writer, hash_key: &HashKey, batch: &Batch) -> Result<()> {
    let guard = crossbeam_epoch::pin();
    let mut keyspace: Option<(u32, &WritableKeyspace)> = None;
    for (seqno, operation) in (batch.seqno()..).zip(batch.iter()) {
        let operation = operation?;
        let target = match keyspace {
            Some((id, target)) if id == operation.keyspace => target,
            _ => {
                let Some(target) = writer.keyspaces.get(&operation.keyspace) else {
                    return Err(Error::corruption("a batch names a keyspace it did not announce"));
                };
                keyspace = Some((operation.keyspace, target));
                target
            }
        };
        let hash = hash_key.hash(operation.key);
        target.active.insert(hash, operation.key, Tag::new(seqno, operation.kind), operation.value, &guard);
    }
    Ok(())
}
