//! A cursor over entries in memory: what recovery replays a log into, sorted.

use super::InternalIterator;
use crate::error::Result;
use crate::key::{InternalKey, Tag};

/// An entry: user key, tag, value.
pub(crate) type OwnedEntry = (Vec<u8>, Tag, Vec<u8>);

pub(crate) struct VecIter {
    entries: Vec<OwnedEntry>,
    at: usize,
}

impl VecIter {
    /// Sorts the entries.
    pub(crate) fn new(mut entries: Vec<OwnedEntry>) -> Self {
        entries.sort_by(|a, b| InternalKey::new(&a.0, a.1).cmp(&InternalKey::new(&b.0, b.1)));
        VecIter { at: entries.len(), entries }
    }
}

impl InternalIterator for VecIter {
    fn seek_to_first(&mut self) -> Result<bool> {
        self.at = 0;
        Ok(self.valid())
    }

    fn seek(&mut self, target: InternalKey<'_>) -> Result<bool> {
        self.at = self.entries.partition_point(|e| InternalKey::new(&e.0, e.1) < target);
        Ok(self.valid())
    }

    fn next(&mut self) -> Result<bool> {
        self.at += 1;
        Ok(self.valid())
    }

    fn valid(&self) -> bool {
        self.at < self.entries.len()
    }

    fn key(&self) -> InternalKey<'_> {
        let entry = &self.entries[self.at];
        InternalKey::new(&entry.0, entry.1)
    }

    fn value(&self) -> &[u8] {
        &self.entries[self.at].2
    }
}
