//! (interface; to be filled)

use crate::hash::{HashKey, KeyHash};
use crate::sync::Arc;

/// Which filter a table carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum FilterKind {
    /// No filter: every candidate table is read.
    None,
    /// A standard Bloom filter.
    Bloom,
    /// A cache-line Bloom filter.
    #[default]
    Blocked,
}

/// How large a filter is made.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum FilterSize {
    /// Bits per distinct user key; above 0, at most 64.
    BitsPerKey(f64),
    /// The false-positive rate to reach; between 0 and 1, both excluded.
    Rate(f64),
}

/// The filter that new tables get.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FilterOptions {
    /// Which kind.
    pub kind: FilterKind,
    /// How large.
    pub size: FilterSize,
}

impl Default for FilterOptions {
    fn default() -> Self {
        FilterOptions { kind: FilterKind::Blocked, size: FilterSize::BitsPerKey(10.0) }
    }
}

impl FilterOptions {
    pub(crate) fn validate(&self) -> crate::error::Result<()> {
        Ok(())
    }
}

/// Why a filter block cannot be used; it then answers "maybe", and this is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FilterUnusable {
    /// The checksum, magic or a length is wrong.
    Damaged,
}

/// Collects the hashes of a table's distinct user keys.
pub(crate) struct FilterBuilder {}

impl FilterBuilder {
    pub(crate) fn new(_options: FilterOptions, _hash_key: HashKey, _tweak: u64) -> Self {
        FilterBuilder {}
    }
    /// Call once per distinct user key.
    pub(crate) fn add(&mut self, _hash: KeyHash) {}
    /// Bytes this builder holds now.
    pub(crate) fn memory_bytes(&self) -> usize {
        0
    }
    /// The whole block (128-byte header and payload), or None for kind `None`.
    pub(crate) fn finish(self) -> Option<Vec<u8>> {
        None
    }
}

/// A parsed filter: small, cheap to clone, payload shared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    _payload: Option<Arc<[u64]>>,
}

/// What a filter block says of itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FilterInfo {
    pub(crate) kind: FilterKind,
    pub(crate) hash_key: HashKey,
    pub(crate) keys: u64,
    pub(crate) payload_bytes: u64,
    /// The false-positive rate of the finished payload.
    pub(crate) built_rate: f64,
}

impl Filter {
    /// Parses and verifies a whole filter block.
    pub(crate) fn parse(_block: &[u8]) -> Result<(Filter, FilterInfo), FilterUnusable> {
        Err(FilterUnusable::Damaged)
    }
    /// The filter that answers "maybe" to everything (none built, or unusable).
    pub(crate) fn none() -> Self {
        Filter::default()
    }
    pub(crate) fn is_none(&self) -> bool {
        true
    }
    /// Asks the processor for the line that `may_contain(hash)` will read.
    #[inline]
    pub(crate) fn prefetch(&self, _hash: KeyHash) {}
    /// False: the key was not added. True: it may have been.
    #[inline]
    pub(crate) fn may_contain(&self, _hash: KeyHash) -> bool {
        true
    }
    /// Heap bytes of the payload.
    pub(crate) fn memory_bytes(&self) -> usize {
        0
    }
}
