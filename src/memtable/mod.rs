//! The memtable: crossbeam-skiplist behind a small face, with a small concurrent filter in front of it.
//!
//! Insert-only: every entry is a unique (user key, sequence number), nothing is ever removed or replaced, and the list
//! is freed as a whole (removing after a range scan leaks nodes in crossbeam-skiplist 0.1.3). Read through the `base`
//! list under the caller's epoch pin, the same pin that keeps the view alive: no reference count on a read.
//!
//! An entry is one allocation, key bytes then value bytes, and carries the first eight key bytes in the node, so that
//! most comparisons during a search do not leave the node.

mod entry;
mod iter;

use crate::filter::ConcurrentFilter;
use crate::hash::KeyHash;
use crate::key::{LookupKey, SeqNo, Tag, ValueKind};
use crate::stats::Recorder;
use crate::sync::{AtomicU64, AtomicUsize, Ordering};
use crate::value::Value;
use crossbeam_epoch::Guard;
use crossbeam_skiplist::base::SkipList;
use entry::{Entry, Probe};
use std::ops::Bound;

pub(crate) use iter::MemtableIter;

/// Bits per expected key of the filter in front of the list: about 1 % of absent keys search the list.
const FILTER_BITS_PER_KEY: f64 = 10.0;

/// A memtable's answer about a key that it holds a visible version of.
#[derive(Debug)]
pub(crate) struct MemtableHit {
    pub(crate) kind: ValueKind,
    pub(crate) value: Value,
}

pub(crate) struct Memtable {
    list: SkipList<Entry, ()>,
    filter: ConcurrentFilter,
    entry_bytes: AtomicUsize,
    entries: AtomicUsize,
    tombstones: AtomicUsize,
    first_seqno: AtomicU64,
    last_seqno: AtomicU64,
}

impl Memtable {
    /// An empty memtable whose filter is sized for `expected_keys`; more keys than that only cost speed.
    pub(crate) fn new(expected_keys: usize) -> Self {
        Memtable {
            list: SkipList::new(crossbeam_epoch::default_collector().clone()),
            filter: ConcurrentFilter::new(expected_keys.max(64), FILTER_BITS_PER_KEY),
            entry_bytes: AtomicUsize::new(0),
            entries: AtomicUsize::new(0),
            tombstones: AtomicUsize::new(0),
            first_seqno: AtomicU64::new(u64::MAX),
            last_seqno: AtomicU64::new(0),
        }
    }

    /// Adds an entry. The caller publishes its sequence number afterwards, with release ordering: whoever sees the
    /// number sees the entry and its filter bits.
    pub(crate) fn insert(&self, hash: KeyHash, user_key: &[u8], tag: Tag, value: &[u8], guard: &Guard) {
        self.filter.insert(hash);
        let entry = Entry::new(user_key, tag, value);
        let bytes = entry.memory_bytes();
        self.list.insert(entry, (), guard).release(guard);
        self.entry_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.entries.fetch_add(1, Ordering::Relaxed);
        if tag.0 as u8 == ValueKind::Delete as u8 {
            self.tombstones.fetch_add(1, Ordering::Relaxed);
        }
        self.first_seqno.fetch_min(tag.seqno(), Ordering::Relaxed);
        self.last_seqno.fetch_max(tag.seqno(), Ordering::Relaxed);
    }

    /// Brings the filter's line near.
    #[inline]
    pub(crate) fn prefetch(&self, hash: KeyHash) {
        self.filter.prefetch(hash);
    }

    /// The newest visible version: filter first, then the list.
    #[inline]
    pub(crate) fn get(
        &self,
        lookup: &LookupKey<'_>,
        guard: &Guard,
        recorder: &mut impl Recorder,
    ) -> Option<MemtableHit> {
        let no = !self.filter.may_contain(lookup.hash);
        recorder.memtable(no);
        if no { None } else { self.search(lookup, guard) }
    }

    #[inline(never)]
    fn search(&self, lookup: &LookupKey<'_>, guard: &Guard) -> Option<MemtableHit> {
        let seek = lookup.seek_key();
        let probe = Probe::new(seek.user_key, seek.tag);
        let entry = self.list.lower_bound(Bound::Included(probe.as_parts()), guard)?;
        let found = entry.key();
        if found.user_key() != lookup.user_key {
            return None;
        }
        // Only kinds that were checked when the batch was made get in here.
        let kind = found.tag().kind().ok()?;
        Some(MemtableHit { kind, value: Value::copy_of(found.value()) })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// Heap bytes of entries and nodes, without the filter.
    pub(crate) fn entry_bytes(&self) -> usize {
        self.entry_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn filter_bytes(&self) -> usize {
        self.filter.memory_bytes()
    }

    /// The smallest and largest sequence number held; None while empty.
    pub(crate) fn seqnos(&self) -> Option<(SeqNo, SeqNo)> {
        (!self.is_empty()).then(|| (self.first_seqno.load(Ordering::Relaxed), self.last_seqno.load(Ordering::Relaxed)))
    }
}

impl std::fmt::Debug for Memtable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memtable({} entries, {} bytes)", self.len(), self.entry_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::HashKey;
    use crate::iter::InternalIterator;
    use crate::stats::ReadStats;
    use crate::sync::Arc;

    const KEY: HashKey = HashKey([7; 16]);

    fn put(memtable: &Memtable, key: &[u8], seqno: SeqNo, value: &[u8]) {
        let guard = crossbeam_epoch::pin();
        memtable.insert(KEY.hash(key), key, Tag::new(seqno, ValueKind::Put), value, &guard);
    }

    fn get(memtable: &Memtable, key: &[u8], snapshot: SeqNo) -> Option<Vec<u8>> {
        let guard = crossbeam_epoch::pin();
        let lookup = LookupKey { user_key: key, snapshot, hash: KEY.hash(key) };
        memtable.get(&lookup, &guard, &mut ReadStats::default()).map(|hit| hit.value.to_vec())
    }

    #[test]
    fn a_read_sees_the_newest_version_at_its_snapshot() {
        let memtable = Memtable::new(0);
        put(&memtable, b"k", 3, b"three");
        put(&memtable, b"k", 5, b"five");
        put(&memtable, b"ka", 4, b"longer");
        put(&memtable, b"", 1, b"empty");
        assert_eq!(get(&memtable, b"k", 2), None);
        assert_eq!(get(&memtable, b"k", 3).unwrap(), b"three");
        assert_eq!(get(&memtable, b"k", 4).unwrap(), b"three");
        assert_eq!(get(&memtable, b"k", 9).unwrap(), b"five");
        assert_eq!(get(&memtable, b"", 9).unwrap(), b"empty");
        assert_eq!(get(&memtable, b"j", 9), None);
        assert_eq!(memtable.seqnos(), Some((1, 5)));
    }

    #[test]
    fn the_filter_answers_for_most_absent_keys() {
        let memtable = Memtable::new(1000);
        for i in 0..1000_u64 {
            put(&memtable, &i.to_be_bytes(), i + 1, b"v");
        }
        let guard = crossbeam_epoch::pin();
        let mut stats = ReadStats::default();
        for i in 1000..2000_u64 {
            let key = i.to_be_bytes();
            let lookup = LookupKey { user_key: &key, snapshot: 5000, hash: KEY.hash(&key) };
            assert!(memtable.get(&lookup, &guard, &mut stats).is_none());
        }
        assert_eq!(stats.memtable_filter_negatives + stats.memtables_searched, 1000);
        assert!(stats.memtables_searched < 50, "{} of 1000 searched the list", stats.memtables_searched);
    }

    #[test]
    fn the_iterator_yields_every_entry_in_order_across_its_chunks() {
        let memtable = Arc::new(Memtable::new(0));
        for i in (0..500_u64).rev() {
            put(&memtable, format!("{i:05}").as_bytes(), i + 1, &i.to_le_bytes());
        }
        let mut iter = MemtableIter::new(Arc::clone(&memtable));
        let mut more = iter.seek_to_first().unwrap();
        for i in 0..500_u64 {
            assert!(more);
            assert_eq!(iter.key().user_key, format!("{i:05}").as_bytes());
            assert_eq!(iter.value(), i.to_le_bytes());
            more = iter.next().unwrap();
        }
        assert!(!more);
        assert!(iter.seek(crate::key::InternalKey::new(b"00123x", Tag::seek(9999))).unwrap());
        assert_eq!(iter.key().user_key, b"00124");
    }
}
