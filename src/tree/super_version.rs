//! The view that reads start from, and its exchange.
//!
//! A `SuperVersion` is pinned by the epoch pin that the memtable's list needs anyway: a read writes no shared reference
//! count. A replaced view is handed, once no pin can see it, to the [`Reclaimer`], whose owner frees memtables, versions
//! and tables in the background, never on a reader's thread.
#![allow(unsafe_code)]

use crate::memtable::Memtable;
use crate::sync::{Arc, AtomicUsize, Mutex, Ordering};
use crate::version::Version;
use crossbeam_epoch::{Atomic, Guard, Owned};

/// One keyspace at one moment: the active memtable, the immutable ones, newest first, and the tables.
#[derive(Debug, Clone)]
pub(crate) struct SuperVersion {
    pub(crate) active: Arc<Memtable>,
    pub(crate) immutable: Vec<Arc<Memtable>>,
    pub(crate) version: Arc<Version>,
}

/// Where replaced views wait to be freed.
#[derive(Default)]
pub(crate) struct Reclaimer {
    ripe: Mutex<Vec<SuperVersion>>,
    outstanding: AtomicUsize,
}

impl Reclaimer {
    /// Frees every replaced view that no read can see any more. Returns how many are still outstanding.
    pub(crate) fn collect(&self) -> usize {
        for _ in 0..4 {
            crossbeam_epoch::pin().flush();
        }
        let ripe = std::mem::take(&mut *self.ripe.lock());
        let count = ripe.len();
        drop(ripe);
        self.outstanding.fetch_sub(count, Ordering::AcqRel) - count
    }
}

/// The current view of a keyspace.
pub(crate) struct ViewCell {
    current: Atomic<SuperVersion>,
    reclaimer: Arc<Reclaimer>,
}

impl ViewCell {
    pub(crate) fn new(view: SuperVersion, reclaimer: Arc<Reclaimer>) -> Self {
        ViewCell { current: Atomic::new(view), reclaimer }
    }

    /// The view, for as long as `guard` is pinned.
    #[inline]
    pub(crate) fn load<'g>(&self, guard: &'g Guard) -> &'g SuperVersion {
        // SAFETY: `current` is never null (set in `new`, exchanged in `replace`, taken only in `drop`, which has the cell
        // for itself). What it points to is freed only through `defer` below, so not before `guard` is unpinned.
        unsafe { self.current.load(Ordering::Acquire, guard).deref() }
    }

    /// Exchanges the view. The caller serializes exchanges.
    pub(crate) fn replace(&self, next: SuperVersion) {
        let guard = crossbeam_epoch::pin();
        let old = self.current.swap(Owned::new(next), Ordering::AcqRel, &guard);
        let reclaimer = Arc::clone(&self.reclaimer);
        reclaimer.outstanding.fetch_add(1, Ordering::AcqRel);
        // SAFETY: `old` was swapped out, so no later load returns it, and only this call owns it; the closure runs after
        // every guard that could have loaded it is unpinned. SuperVersion is Send + Sync.
        unsafe {
            guard.defer_unchecked(move || {
                let old = *old.into_owned().into_box();
                reclaimer.ripe.lock().push(old);
            });
        }
        guard.flush();
    }
}

impl Drop for ViewCell {
    fn drop(&mut self) {
        // SAFETY: `&mut self`: no load can be going on, and the pointer is not used again.
        unsafe {
            drop(std::mem::replace(&mut self.current, Atomic::null()).into_owned());
        }
    }
}
