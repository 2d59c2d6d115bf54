//! The write queue: who may write now. One leader at a time; a writer that finds nobody leading leads at once (an
//! uncontended commit is never handed to another thread); the others wait, and the leader takes their batches along in
//! its group. When it is done, the first still waiting leads.

use crate::batch::Batch;
use crate::error::Result;
use crate::key::SeqNo;
use crate::sync::{Arc, Condvar, Mutex};
use crate::value::Value;
use std::collections::VecDeque;

/// What must hold when a conditional batch commits.
#[derive(Debug)]
pub(crate) struct Requirement {
    pub(crate) keyspace: u32,
    pub(crate) key: Vec<u8>,
    /// The value it must have; None: it must be absent.
    pub(crate) expected: Option<Vec<u8>>,
}

impl Requirement {
    pub(crate) fn holds(&self, found: Option<&Value>) -> bool {
        self.expected.as_deref() == found.map(|value| &**value)
    }
}

/// A batch on its way in.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) batch: Batch,
    pub(crate) keyspaces: Vec<u32>,
    pub(crate) requirements: Vec<Requirement>,
    pub(crate) sync: bool,
    pub(crate) user_bytes: u64,
}

enum Slot {
    /// None: it wants to lead, and has no batch to take along.
    Waiting(Option<Pending>),
    Lead(Option<Pending>),
    Done(Result<SeqNo>),
    Empty,
}

/// A writer that waits.
pub(crate) struct Waiter {
    slot: Mutex<Slot>,
    wake: Condvar,
}

impl Waiter {
    fn wait(&self) -> Turn {
        let mut slot = self.slot.lock();
        loop {
            match std::mem::replace(&mut *slot, Slot::Empty) {
                Slot::Done(result) => return Turn::Done(result),
                Slot::Lead(pending) => return Turn::Lead(pending),
                waiting => *slot = waiting,
            }
            self.wake.wait(&mut slot);
        }
    }

    /// Tells a follower what became of its batch.
    pub(crate) fn finish(&self, result: Result<SeqNo>) {
        *self.slot.lock() = Slot::Done(result);
        self.wake.notify_one();
    }

    fn promote(&self) {
        let mut slot = self.slot.lock();
        if let Slot::Waiting(pending) = std::mem::replace(&mut *slot, Slot::Empty) {
            *slot = Slot::Lead(pending);
        }
        self.wake.notify_one();
    }

    fn size_if_groupable(&self) -> Option<usize> {
        match &*self.slot.lock() {
            Slot::Waiting(Some(pending)) if pending.requirements.is_empty() => Some(pending.batch.byte_size()),
            _ => None,
        }
    }

    fn take(&self) -> Option<Pending> {
        match &mut *self.slot.lock() {
            Slot::Waiting(pending) => pending.take(),
            _ => None,
        }
    }
}

#[derive(Default)]
struct Inner {
    busy: bool,
    waiting: VecDeque<Arc<Waiter>>,
}

#[derive(Default)]
pub(crate) struct WriteQueue {
    inner: Mutex<Inner>,
}

/// What a writer comes to.
pub(crate) enum Turn {
    /// It leads, with its own batch if it brought one. It must call [`WriteQueue::hand_over`] (or drop a [`Leadership`]).
    Lead(Option<Pending>),
    /// A leader took its batch along.
    Done(Result<SeqNo>),
}

/// The right to write, given on when dropped.
pub(crate) struct Leadership<'a>(&'a WriteQueue);

impl Drop for Leadership<'_> {
    fn drop(&mut self) {
        let mut inner = self.0.inner.lock();
        match inner.waiting.pop_front() {
            Some(next) => {
                drop(inner);
                next.promote();
            }
            None => inner.busy = false,
        }
    }
}

impl WriteQueue {
    /// Waits for a turn; `pending` may be committed by another leader meanwhile.
    pub(crate) fn enter(&self, pending: Option<Pending>) -> Turn {
        let mut inner = self.inner.lock();
        if !inner.busy {
            inner.busy = true;
            return Turn::Lead(pending);
        }
        let waiter = Arc::new(Waiter { slot: Mutex::new(Slot::Waiting(pending)), wake: Condvar::new() });
        inner.waiting.push_back(Arc::clone(&waiter));
        drop(inner);
        waiter.wait()
    }

    /// To be taken by whoever got `Turn::Lead`.
    pub(crate) fn leadership(&self) -> Leadership<'_> {
        Leadership(self)
    }

    /// The batches that wait next in line and may share a group, up to `max_bytes`: not behind a conditional batch, nor
    /// behind a writer that wants to lead for itself.
    pub(crate) fn followers(&self, max_bytes: usize) -> Vec<(Arc<Waiter>, Pending)> {
        let mut inner = self.inner.lock();
        let mut group = Vec::new();
        let mut bytes = 0;
        while let Some(size) = inner.waiting.front().and_then(|w| w.size_if_groupable()) {
            bytes += size;
            if bytes > max_bytes {
                break;
            }
            let Some(waiter) = inner.waiting.pop_front() else { break };
            if let Some(pending) = waiter.take() {
                group.push((waiter, pending));
            }
        }
        group
    }
}
