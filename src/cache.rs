//! The generic part of the block cache: a thin face over `quick_cache`, keyed by place (which file, which offset) and
//! bounded in bytes.
//!
//! `quick_cache` silently refuses an item that is near the capacity of one shard, so the number of shards follows from
//! the capacity: each holds at least [`MIN_SHARD_BYTES`] where the capacity allows, and refusals are counted. The
//! hasher is our own and unseeded (file ids and offsets are not chosen by an attacker), so that a run can be repeated.

use crate::hash::mix64;
use crate::sync::{AtomicU64, Ordering};
use quick_cache::sync::{Cache as Inner, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};
use std::hash::{BuildHasher, Hash, Hasher};

/// A shard admits items up to 97 % of its share: with 2 MiB a 1 MiB block always fits, beside others.
const MIN_SHARD_BYTES: u64 = 2 << 20;

/// Enough to keep 16 threads mostly apart; more only cuts the capacity into smaller parts.
const MAX_SHARDS: u64 = 64;

/// What the map keeps for each item beside its key and value: hash slot, links, ghosts, spare capacity. 86 bytes by
/// `quick_cache`'s own `memory_used`, for a full cache of 4 KiB blocks.
const MAP_OVERHEAD_BYTES: u64 = 88;

/// For sizing the list of ghosts (recently evicted keys): the usual block.
const USUAL_ITEM_BYTES: u64 = 4096;

/// Where a cached item comes from: a number that [`Cache::next_id`] gave to an opened file, and an offset in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheKey {
    pub(crate) cache_id: u64,
    pub(crate) offset: u64,
}

impl Hash for CacheKey {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.cache_id);
        state.write_u64(self.offset);
    }
}

/// A concurrent cache of `V`, which should be cheap to clone, holding up to a number of bytes.
pub(crate) struct Cache<V> {
    inner: Inner<CacheKey, Weighed<V>, ByWeight, PlaceHasher>,
    capacity_bytes: u64,
    refused: AtomicU64,
    next_id: AtomicU64,
}

#[derive(Clone)]
struct Weighed<V> {
    value: V,
    bytes: u64,
}

impl<V: Clone> Cache<V> {
    /// A cache of `capacity_bytes`, which is above 0 (a caller without a cache has none).
    pub(crate) fn new(capacity_bytes: u64) -> Self {
        let estimated = usize::try_from(capacity_bytes / USUAL_ITEM_BYTES).unwrap_or(usize::MAX).max(1);
        let shards = shards_for(capacity_bytes);
        let options = OptionsBuilder::new()
            .shards(usize::try_from(shards).unwrap_or(1))
            .estimated_items_capacity(estimated)
            .weight_capacity(capacity_bytes)
            .build()
            .unwrap_or_else(|_| unreachable!("both required fields are set above"));
        let inner = Inner::with_options(options, ByWeight, PlaceHasher(0), DefaultLifecycle::default());
        Cache { inner, capacity_bytes, refused: AtomicU64::new(0), next_id: AtomicU64::new(1) }
    }

    /// A number that no other file opened with this cache has had: file numbers may come back under another database.
    /// Counted per cache, so that the same calls put the same blocks into the same shards.
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn get(&self, key: CacheKey) -> Option<V> {
        self.inner.get(&key).map(|found| found.value)
    }

    /// Keeps `value`, which holds `heap_bytes` on the heap (the allocation's own overhead included); refuses it, and
    /// counts that, if it is larger than a shard admits.
    pub(crate) fn insert(&self, key: CacheKey, value: V, heap_bytes: usize) {
        let own = size_of::<(CacheKey, Weighed<V>)>() as u64 + MAP_OVERHEAD_BYTES;
        let bytes = own + heap_bytes as u64;
        if bytes > self.largest_item_bytes() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.inner.insert(key, Weighed { value, bytes });
    }

    /// Items above this are refused: 97 % of a shard, as `quick_cache` has it by default, less one for its rounding.
    fn largest_item_bytes(&self) -> u64 {
        (self.inner.shard_capacity() / 100 * 97).saturating_sub(1)
    }

    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Bytes held now, overhead included.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.inner.weight()
    }

    /// Items held now.
    pub(crate) fn len(&self) -> usize {
        self.inner.len()
    }

    /// How many items were too large to be kept.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl<V> std::fmt::Debug for Cache<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("capacity_bytes", &self.capacity_bytes).finish_non_exhaustive()
    }
}

/// A power of two, so that every shard really has `capacity_bytes / shards`.
fn shards_for(capacity_bytes: u64) -> u64 {
    match (capacity_bytes / MIN_SHARD_BYTES).min(MAX_SHARDS) {
        0 => 1,
        most => 1 << most.ilog2(),
    }
}

#[derive(Clone)]
struct ByWeight;

impl<V> Weighter<CacheKey, Weighed<V>> for ByWeight {
    #[inline]
    fn weight(&self, _: &CacheKey, item: &Weighed<V>) -> u64 {
        item.bytes
    }
}

/// Two words in, one mixed word out; SipHash would cost as much as the whole look-up.
#[derive(Clone, Default)]
struct PlaceHasher(u64);

impl BuildHasher for PlaceHasher {
    type Hasher = Self;

    #[inline]
    fn build_hasher(&self) -> Self {
        PlaceHasher(0)
    }
}

impl Hasher for PlaceHasher {
    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = mix64(self.0.rotate_left(32) ^ word);
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(offset: u64) -> CacheKey {
        CacheKey { cache_id: 1, offset }
    }

    #[test]
    fn cached_bytes_never_exceed_the_capacity() {
        let cache = Cache::new(8 << 20);
        for i in 0..10_000 {
            cache.insert(key(i * 4096), i, 4096);
        }
        assert!(cache.used_bytes() <= cache.capacity_bytes());
        assert!(cache.used_bytes() > cache.capacity_bytes() / 2);
        assert!(cache.len() < 2_048, "entries weigh more than their payload");
        assert_eq!(cache.refused(), 0);
    }

    #[test]
    fn an_item_of_one_mebibyte_is_kept_where_capacity_allows() {
        for mebibytes in [2, 3, 8, 64, 100, 1024] {
            let cache = Cache::new(mebibytes << 20);
            cache.insert(key(7), "big", 1 << 20);
            assert_eq!(cache.get(key(7)), Some("big"), "{mebibytes} MiB");
            assert_eq!(cache.refused(), 0);
        }
    }

    #[test]
    fn an_item_larger_than_a_shard_is_refused_and_counted() {
        let cache = Cache::new(1 << 20);
        cache.insert(key(0), "too big", 1 << 20);
        assert_eq!(cache.get(key(0)), None);
        assert_eq!((cache.refused(), cache.len()), (1, 0));
        cache.insert(key(0), "fits", 1 << 19);
        assert_eq!(cache.get(key(0)), Some("fits"));
    }

    #[test]
    fn equal_offsets_of_two_files_do_not_meet() {
        let cache = Cache::new(1 << 20);
        let (a, b) = (cache.next_id(), cache.next_id());
        assert_ne!(a, b);
        cache.insert(CacheKey { cache_id: a, offset: 0 }, "a", 10);
        assert_eq!(cache.get(CacheKey { cache_id: b, offset: 0 }), None);
    }

    #[test]
    fn block_aligned_offsets_spread_over_all_shards() {
        let shards: std::collections::HashSet<u64> =
            (0..256_u64).map(|i| PlaceHasher(0).hash_one(key(i * 4096)).rotate_right(32) % 32).collect();
        assert_eq!(shards.len(), 32);
    }
}
