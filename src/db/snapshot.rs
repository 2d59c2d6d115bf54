//! Snapshots: registered sequence numbers that compaction keeps the versions of.

use crate::db::keyspace::{Handle, Keyspace};
use crate::error::{Error, Result};
use crate::key::SeqNo;
use crate::sync::{Arc, AtomicU64, Mutex, Ordering};
use crate::value::Value;
use std::collections::BTreeMap;

/// The live snapshots' sequence numbers and how many stand at each.
#[derive(Debug, Default)]
pub(crate) struct SnapshotList(Mutex<BTreeMap<SeqNo, usize>>);

impl SnapshotList {
    /// Registers the number that is visible now: read and registered in one critical section, so that no job can list
    /// the snapshots in between.
    pub(crate) fn register(&self, visible: &AtomicU64) -> SeqNo {
        let mut list = self.0.lock();
        let seqno = visible.load(Ordering::Acquire);
        *list.entry(seqno).or_default() += 1;
        seqno
    }

    fn release(&self, seqno: SeqNo) {
        let mut list = self.0.lock();
        if let Some(count) = list.get_mut(&seqno) {
            *count -= 1;
            if *count == 0 {
                list.remove(&seqno);
            }
        }
    }

    /// Ascending.
    pub(crate) fn list(&self) -> Vec<SeqNo> {
        self.0.lock().keys().copied().collect()
    }
}

pub(crate) struct Registered {
    handle: Arc<Handle>,
    seqno: SeqNo,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.handle.engine().snapshots.release(self.seqno);
    }
}

/// All keyspaces as they were at one moment. Cheap to clone; while one lives, compaction keeps the versions it sees.
#[derive(Clone)]
pub struct Snapshot {
    registered: Arc<Registered>,
    keyspace: Keyspace,
}

impl Snapshot {
    pub(crate) fn new(handle: Arc<Handle>, keyspace: Keyspace) -> Self {
        let engine = handle.engine();
        let seqno = engine.snapshots.register(&engine.visible);
        Snapshot { registered: Arc::new(Registered { handle, seqno }), keyspace }
    }

    /// The same moment of another keyspace.
    #[must_use]
    pub fn on(&self, keyspace: &Keyspace) -> Snapshot {
        Snapshot { registered: Arc::clone(&self.registered), keyspace: keyspace.clone() }
    }

    /// The value of `key` at this moment.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.keyspace.get_at(key.as_ref(), Some(self.seqno_for(&self.keyspace)?), true)
    }

    /// The number to read `keyspace` at. Another database's numbers mean other moments.
    pub(crate) fn seqno_for(&self, keyspace: &Keyspace) -> Result<SeqNo> {
        if !Arc::ptr_eq(self.registered.handle.engine(), keyspace.engine()) {
            return Err(Error::invalid_argument("the snapshot belongs to another database than the keyspace"));
        }
        Ok(self.seqno())
    }

    /// Whether `key` had a value at this moment.
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// The last sequence number that the snapshot sees.
    pub fn seqno(&self) -> SeqNo {
        self.registered.seqno
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("seqno", &self.seqno()).field("keyspace", &self.keyspace.name()).finish()
    }
}
