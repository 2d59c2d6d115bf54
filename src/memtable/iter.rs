//! A cursor over a memtable that owns it: it copies small chunks of entries out under a short epoch pin, so that it holds
//! none between steps, however long a flush takes.

use super::Memtable;
use super::entry::Probe;
use crate::error::Result;
use crate::iter::InternalIterator;
use crate::key::{InternalKey, Tag};
use crate::sync::Arc;
use std::ops::{Bound, Range};

/// Entries per chunk: one search of the list is shared by so many steps.
const CHUNK_ENTRIES: usize = 64;

struct Copied {
    key: Range<usize>,
    value: Range<usize>,
    tag: Tag,
}

pub(crate) struct MemtableIter {
    memtable: Arc<Memtable>,
    bytes: Vec<u8>,
    chunk: Vec<Copied>,
    at: usize,
}

impl MemtableIter {
    pub(crate) fn new(memtable: Arc<Memtable>) -> Self {
        MemtableIter { memtable, bytes: Vec::new(), chunk: Vec::new(), at: 0 }
    }

    fn fill(&mut self, from: Option<(&[u8], Tag, bool)>) -> bool {
        self.bytes.clear();
        self.chunk.clear();
        self.at = 0;
        let guard = crossbeam_epoch::pin();
        let list = &self.memtable.list;
        let mut entry = match from {
            None => list.front(&guard),
            Some((user_key, tag, inclusive)) => {
                let probe = Probe::new(user_key, tag);
                let bound =
                    if inclusive { Bound::Included(probe.as_parts()) } else { Bound::Excluded(probe.as_parts()) };
                list.lower_bound(bound, &guard)
            }
        };
        while let Some(found) = entry.as_ref().filter(|_| self.chunk.len() < CHUNK_ENTRIES) {
            let (key, value) = (found.key().user_key(), found.key().value());
            let start = self.bytes.len();
            self.bytes.extend_from_slice(key);
            let middle = self.bytes.len();
            self.bytes.extend_from_slice(value);
            self.chunk.push(Copied { key: start..middle, value: middle..self.bytes.len(), tag: found.key().tag() });
            entry = found.next();
        }
        !self.chunk.is_empty()
    }
}

impl InternalIterator for MemtableIter {
    fn seek_to_first(&mut self) -> Result<bool> {
        Ok(self.fill(None))
    }

    fn seek(&mut self, target: InternalKey<'_>) -> Result<bool> {
        Ok(self.fill(Some((target.user_key, target.tag, true))))
    }

    fn next(&mut self) -> Result<bool> {
        self.at += 1;
        if self.at < self.chunk.len() {
            return Ok(true);
        }
        let Some(last) = self.chunk.last() else { return Ok(false) };
        if self.chunk.len() < CHUNK_ENTRIES {
            self.chunk.clear();
            return Ok(false);
        }
        let (key, tag) = (self.bytes[last.key.clone()].to_vec(), last.tag);
        Ok(self.fill(Some((&key, tag, false))))
    }

    fn valid(&self) -> bool {
        self.at < self.chunk.len()
    }

    fn key(&self) -> InternalKey<'_> {
        let entry = &self.chunk[self.at];
        InternalKey::new(&self.bytes[entry.key.clone()], entry.tag)
    }

    fn value(&self) -> &[u8] {
        &self.bytes[self.chunk[self.at].value.clone()]
    }
}
