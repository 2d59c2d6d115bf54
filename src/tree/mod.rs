//! One keyspace's LSM tree: what a read needs, and the point read.

mod get;
mod super_version;

use crate::memtable::Memtable;
use crate::options::KeyspaceOptions;
use crate::sync::{Arc, AtomicBool, Ordering, RwLock};
use crate::version::Version;

pub(crate) use get::ReadContext;
#[cfg(test)]
pub(crate) use get::test_hooks;
pub(crate) use super_version::{Reclaimer, SuperVersion, ViewCell};

pub(crate) struct Tree {
    pub(crate) id: u32,
    pub(crate) name: String,
    options: RwLock<Arc<KeyspaceOptions>>,
    view: ViewCell,
    dropped: AtomicBool,
}

impl Tree {
    pub(crate) fn new(
        id: u32,
        name: String,
        options: KeyspaceOptions,
        version: Version,
        reclaimer: Arc<Reclaimer>,
    ) -> Self {
        let view = SuperVersion {
            active: Arc::new(Memtable::new(expected_keys(&options, None))),
            immutable: Vec::new(),
            version: Arc::new(version),
        };
        Tree {
            id,
            name,
            options: RwLock::new(Arc::new(options)),
            view: ViewCell::new(view, reclaimer),
            dropped: AtomicBool::new(false),
        }
    }

    pub(crate) fn options(&self) -> Arc<KeyspaceOptions> {
        Arc::clone(&self.options.read())
    }

    pub(crate) fn set_options(&self, options: KeyspaceOptions) {
        *self.options.write() = Arc::new(options);
    }

    fn view_cell(&self) -> &ViewCell {
        &self.view
    }

    /// A view with references of its own, for jobs and reports (not for reads).
    pub(crate) fn view(&self) -> SuperVersion {
        self.view.load(&crossbeam_epoch::pin()).clone()
    }

    /// Exchanges the view for one made from the current one. The caller holds the lock that serializes exchanges.
    pub(crate) fn update(&self, change: impl FnOnce(SuperVersion) -> SuperVersion) {
        let next = change(self.view());
        self.view.replace(next);
    }

    /// Makes the active memtable immutable and starts a new one, its filter sized by the keys of the last. The caller
    /// keeps writers out and holds the lock that serializes exchanges.
    pub(crate) fn rotate(&self) -> Arc<Memtable> {
        let fresh = Arc::new(Memtable::new(expected_keys(&self.options(), Some(&self.view().active))));
        let active = Arc::clone(&fresh);
        self.update(|mut view| {
            let full = std::mem::replace(&mut view.active, active);
            view.immutable.insert(0, full);
            view
        });
        fresh
    }

    /// Marks the keyspace as dropped: reads and writes through old handles fail.
    pub(crate) fn mark_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Heap bytes of all its memtables, their filters included.
    pub(crate) fn memtable_bytes(&self) -> u64 {
        let view = self.view();
        let bytes = |m: &Arc<Memtable>| (m.entry_bytes() + m.filter_bytes()) as u64;
        view.immutable.iter().chain([&view.active]).map(bytes).sum()
    }

    /// Heap bytes of its tables' filters and indexes.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.view().version.tables().map(|(_, t)| t.table.pinned_bytes() as u64).sum()
    }
}

/// How many keys a memtable will hold: as many as the last one per byte, a tenth more; about 200 bytes each before that
/// is known.
fn expected_keys(options: &KeyspaceOptions, last: Option<&Memtable>) -> usize {
    let guess = usize::try_from(options.memtable_bytes / 200).unwrap_or(usize::MAX);
    match last {
        Some(last) if !last.is_empty() => {
            let per_key = (last.entry_bytes() / last.len()).max(1) as u64;
            let keys = usize::try_from(options.memtable_bytes / per_key).unwrap_or(usize::MAX);
            (keys + keys / 10).min(last.len().saturating_mul(4)).max(64)
        }
        _ => guess.clamp(64, 1 << 20),
    }
}
