//! Point reads of a keyspace, counted.

use crate::db::engine::Engine;
use crate::error::Result;
use crate::hash::KeyHash;
use crate::key::{LookupKey, SeqNo};
use crate::stats::{Counting, ReadStats, Tally, Tee};
use crate::sync::Ordering;
use crate::tree::{ReadContext, SuperVersion, Tree};
use crate::value::Value;
use crossbeam_epoch::Guard;

/// One read, or one of many at the same moment.
struct Reading<'a> {
    view: &'a SuperVersion,
    snapshot: SeqNo,
    context: ReadContext,
    guard: &'a Guard,
}

impl Engine {
    /// The view first, then the number: see [`Tree::pinned`].
    #[inline]
    fn begin<'a>(
        &self,
        tree: &'a Tree,
        snapshot: Option<SeqNo>,
        context: ReadContext,
        guard: &'a Guard,
    ) -> Reading<'a> {
        let view = tree.pinned(guard);
        let snapshot = snapshot.unwrap_or_else(|| self.visible.load(Ordering::Acquire));
        Reading { view, snapshot, context, guard }
    }

    /// The value of `key` at a snapshot, or now.
    pub(crate) fn read(
        &self,
        tree: &Tree,
        key: &[u8],
        snapshot: Option<SeqNo>,
        context: ReadContext,
    ) -> Result<Option<Value>> {
        let hash = self.hash_key.hash(key);
        let guard = crossbeam_epoch::pin();
        let reading = self.begin(tree, snapshot, context, &guard);
        match self.counters.counting() {
            Counting::Exclusive(mut tally) => reading.get(key, hash, &mut tally),
            Counting::Shared(mut tally) => reading.get(key, hash, &mut tally),
        }
    }

    /// The value of `key` now, its cost added to `stats` as well as to the database's counters.
    pub(crate) fn read_recorded(&self, tree: &Tree, key: &[u8], stats: &mut ReadStats) -> Result<Option<Value>> {
        let hash = self.hash_key.hash(key);
        let guard = crossbeam_epoch::pin();
        let reading = self.begin(tree, None, ReadContext { fill_cache: true }, &guard);
        match self.counters.counting() {
            Counting::Exclusive(mut tally) => reading.get_recorded(key, hash, &mut tally, stats),
            Counting::Shared(mut tally) => reading.get_recorded(key, hash, &mut tally, stats),
        }
    }

    /// The values of `keys`, all at one moment.
    pub(crate) fn read_many<K: AsRef<[u8]>>(&self, tree: &Tree, keys: &[K]) -> Result<Vec<Option<Value>>> {
        let guard = crossbeam_epoch::pin();
        let reading = self.begin(tree, None, ReadContext { fill_cache: true }, &guard);
        match self.counters.counting() {
            Counting::Exclusive(mut tally) => reading.get_many(self, keys, &mut tally),
            Counting::Shared(mut tally) => reading.get_many(self, keys, &mut tally),
        }
    }
}

impl Reading<'_> {
    #[inline]
    fn get<const E: bool>(&self, key: &[u8], hash: KeyHash, tally: &mut Tally<'_, E>) -> Result<Option<Value>> {
        let lookup = LookupKey { user_key: key, snapshot: self.snapshot, hash };
        let found = self.view.get(&lookup, self.context, self.guard, tally)?;
        tally.get(found.value.is_some(), found.from_memtable);
        Ok(found.value)
    }

    fn get_recorded<const E: bool>(
        &self,
        key: &[u8],
        hash: KeyHash,
        tally: &mut Tally<'_, E>,
        stats: &mut ReadStats,
    ) -> Result<Option<Value>> {
        let lookup = LookupKey { user_key: key, snapshot: self.snapshot, hash };
        let found = self.view.get(&lookup, self.context, self.guard, &mut Tee(tally, stats))?;
        tally.get(found.value.is_some(), found.from_memtable);
        Ok(found.value)
    }

    /// All hashes first, and the memtable filter's lines asked for, so that the look-ups do not wait one by one.
    fn get_many<K: AsRef<[u8]>, const E: bool>(
        &self,
        engine: &Engine,
        keys: &[K],
        tally: &mut Tally<'_, E>,
    ) -> Result<Vec<Option<Value>>> {
        let hashes: Vec<KeyHash> = keys.iter().map(|key| engine.hash_key.hash(key.as_ref())).collect();
        hashes.iter().for_each(|hash| self.view.active.prefetch(*hash));
        keys.iter().zip(hashes).map(|(key, hash)| self.get(key.as_ref(), hash, tally)).collect()
    }
}
