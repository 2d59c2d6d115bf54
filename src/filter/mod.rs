//! The filter of a table: a small set of its distinct user keys that answers "no" or "maybe", asked before anything
//! else of the table is touched. This file: the builder and the reader.
//!
//! - [`params`]: the mathematics of sizes and rates
//! - `options`: kinds and sizes, and what is refused
//! - `line`, `blocked`, `bloom`: payloads and their probes
//! - `header`: the block on disk
//! - `concurrent`: the filter in front of a memtable
//!
//! Invariants: a key that was added is never answered "no". A block that is not understood in full says "maybe" to
//! everything, and why. Tombstones are keys like others; range tombstones are no filter's business and must be
//! consulted whatever it says.
//!
//! The key hash that comes in does not depend on the table. Each table mixes in its own random tweak, so that a key
//! which is a false positive in one table is no likelier to be one in the next, or after a compaction.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

mod blocked;
mod bloom;
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "reads nothing from disk")]
mod concurrent;
mod header;
mod line;
mod options;
#[allow(clippy::arithmetic_side_effects, reason = "sizes of filters to be built; reads nothing from disk")]
pub mod params;
mod prefetch;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod rates;

#[allow(unused_imports, reason = "its user, the memtable, is being written")]
pub(crate) use concurrent::ConcurrentFilter;
pub use options::{FilterKind, FilterOptions, FilterSize};

use crate::filter::blocked::Blocked;
use crate::filter::bloom::Bloom;
use crate::filter::header::Header;
use crate::filter::line::{CacheLine, LINE_BITS, LINE_BYTES, lines_from};
use crate::hash::{HashKey, KeyHash, mix64};
use std::fmt;

/// Why a filter block cannot be used; it then answers "maybe", and this is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FilterUnusable {
    /// The block could not be read, or its parameters contradict each other although its checksum is right.
    Damaged,
    /// It does not begin like a filter block.
    Magic,
    /// A version of the block's layout that this build does not know.
    Version,
    /// A kind of filter that this build does not know.
    Kind,
    /// Built with a hash function that this build does not know.
    Hash,
    /// Bits or bytes that must be zero are not: a later version gave them a meaning.
    ReservedBits,
    /// The block is shorter or longer than it says.
    Length,
    /// The checksum is wrong.
    Checksum,
    /// Built with a prefix extractor that is not in use.
    Extractor,
}

impl FilterUnusable {
    /// Every reason, in the order of their discriminants: `ALL[reason as usize] == reason`.
    #[cfg(test)]
    pub const ALL: [FilterUnusable; 9] = [
        FilterUnusable::Damaged,
        FilterUnusable::Magic,
        FilterUnusable::Version,
        FilterUnusable::Kind,
        FilterUnusable::Hash,
        FilterUnusable::ReservedBits,
        FilterUnusable::Length,
        FilterUnusable::Checksum,
        FilterUnusable::Extractor,
    ];
}

/// A short name, as counters and events show it.
impl fmt::Display for FilterUnusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FilterUnusable::Damaged => "damaged",
            FilterUnusable::Magic => "unknown magic",
            FilterUnusable::Version => "unknown version",
            FilterUnusable::Kind => "unknown kind",
            FilterUnusable::Hash => "unknown hash",
            FilterUnusable::ReservedBits => "reserved bits",
            FilterUnusable::Length => "bad length",
            FilterUnusable::Checksum => "bad checksum",
            FilterUnusable::Extractor => "another extractor",
        })
    }
}

/// Collects the hashes of a table's distinct user keys, 8 bytes each, so that the filter is sized by their exact number
/// when the table is finished.
pub(crate) struct FilterBuilder {
    options: FilterOptions,
    hash_key: HashKey,
    tweak: u64,
    hashes: Vec<u64>,
}

impl FilterBuilder {
    /// `tweak` is the table's own random number.
    pub(crate) fn new(options: FilterOptions, hash_key: HashKey, tweak: u64) -> Self {
        FilterBuilder { options, hash_key, tweak, hashes: Vec::new() }
    }

    /// Call once per distinct user key. (A key added twice is counted twice, and nothing worse.)
    pub(crate) fn add(&mut self, hash: KeyHash) {
        if self.options.kind != FilterKind::None {
            self.hashes.push(hash.0);
        }
    }

    /// Bytes this builder holds now. `finish` takes twice the filter's size on top for a moment.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.hashes.capacity().saturating_mul(size_of::<u64>())
    }

    /// The whole block (128-byte header and payload), or None for kind `None`.
    pub(crate) fn finish(self) -> Option<Vec<u8>> {
        let (bits_per_key, keys) = (self.options.bits_per_key(), self.hashes.len() as u64);
        match self.options.kind {
            FilterKind::None | FilterKind::Empty => None,
            _ if keys == 0 => Some(self.seal(FilterKind::Empty, 0, 0, 0.0, &[])),
            FilterKind::Blocked => {
                let k = params::blocked_best_k(bits_per_key);
                let lines = blocked::build(self.tweaked(), params::blocked_lines(keys, bits_per_key) as usize, k);
                let bits = (lines.len() as u64).saturating_mul(LINE_BITS);
                Some(self.seal(FilterKind::Blocked, k, bits, blocked::built_rate(&lines, k), &lines))
            }
            FilterKind::Bloom => {
                let (k, bits) = (params::bloom_best_k(bits_per_key), params::total_bits(keys, bits_per_key));
                let lines = bloom::build(self.tweaked(), bits, k);
                Some(self.seal(FilterKind::Bloom, k, bits, bloom::built_rate(&lines, bits, k), &lines))
            }
        }
    }

    fn tweaked(&self) -> impl Iterator<Item = u64> + Clone {
        self.hashes.iter().map(|&hash| tweaked(KeyHash(hash), self.tweak))
    }

    fn seal(&self, kind: FilterKind, k: u32, bits: u64, built_rate: f64, lines: &[CacheLine]) -> Vec<u8> {
        let header = Header {
            kind,
            k: k as u8,
            keys: self.hashes.len() as u64,
            payload_bytes: (lines.len() as u64).saturating_mul(LINE_BYTES as u64),
            bits,
            tweak: self.tweak,
            hash_key: self.hash_key,
            built_rate,
        };
        header.encode(|out| lines.iter().for_each(|line| line.append_to(out)))
    }
}

/// A parsed filter: small, cheap to clone, payload shared. Arrays of these are probed without touching their tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    payload: Payload,
    tweak: u64,
}

#[derive(Clone, Debug, Default)]
enum Payload {
    /// Says "maybe" to everything.
    #[default]
    Unknown,
    /// Says "no" to everything.
    Empty,
    Blocked(Blocked),
    Bloom(Bloom),
}

/// What a filter block says of itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FilterInfo {
    /// `Empty` when there are no keys.
    pub(crate) kind: FilterKind,
    /// What keys must be hashed with before this filter is asked.
    pub(crate) hash_key: HashKey,
    pub(crate) keys: u64,
    pub(crate) payload_bytes: u64,
    /// The false-positive rate of the finished payload.
    pub(crate) built_rate: f64,
}

impl Filter {
    /// Parses and verifies a whole filter block.
    pub(crate) fn parse(block: &[u8]) -> Result<(Filter, FilterInfo), FilterUnusable> {
        let (header, payload) = Header::decode(block)?;
        let (lines, k) = (lines_from(payload), u32::from(header.k));
        let payload = match header.kind {
            FilterKind::None => return Err(FilterUnusable::Kind),
            FilterKind::Empty => Payload::Empty,
            FilterKind::Blocked => Payload::Blocked(Blocked::new(lines, k)),
            FilterKind::Bloom if bloom::padding_is_zero(&lines, header.bits) => {
                Payload::Bloom(Bloom::new(lines, header.bits, k))
            }
            FilterKind::Bloom => return Err(FilterUnusable::ReservedBits),
        };
        let info = FilterInfo {
            kind: header.kind,
            hash_key: header.hash_key,
            keys: header.keys,
            payload_bytes: header.payload_bytes,
            built_rate: header.built_rate,
        };
        Ok((Filter { payload, tweak: header.tweak }, info))
    }

    /// The filter that answers "maybe" to everything (none built, or unusable).
    pub(crate) fn none() -> Self {
        Filter::default()
    }

    /// Whether this is [`none`](Self::none): asking it is no probe.
    pub(crate) fn is_none(&self) -> bool {
        matches!(self.payload, Payload::Unknown)
    }

    /// Asks the processor for the line that `may_contain(hash)` will read.
    #[inline]
    pub(crate) fn prefetch(&self, hash: KeyHash) {
        match &self.payload {
            Payload::Unknown | Payload::Empty => {}
            Payload::Blocked(blocked) => blocked.prefetch(tweaked(hash, self.tweak)),
            Payload::Bloom(bloom) => bloom.prefetch(tweaked(hash, self.tweak)),
        }
    }

    /// False: the key was not added. True: it may have been. `hash` must be under the hash key of this filter's
    /// [`FilterInfo`].
    #[inline]
    pub(crate) fn may_contain(&self, hash: KeyHash) -> bool {
        match &self.payload {
            Payload::Unknown => true,
            Payload::Empty => false,
            Payload::Blocked(blocked) => blocked.may_contain(tweaked(hash, self.tweak)),
            Payload::Bloom(bloom) => bloom.may_contain(tweaked(hash, self.tweak)),
        }
    }

    /// Heap bytes of the payload.
    pub(crate) fn memory_bytes(&self) -> usize {
        match &self.payload {
            Payload::Unknown | Payload::Empty => 0,
            Payload::Blocked(blocked) => blocked.memory_bytes(),
            Payload::Bloom(bloom) => bloom.memory_bytes(),
        }
    }
}

/// The hash that one table's filter works with. A bijection for each tweak, so no two keys fall together here.
#[inline(always)]
fn tweaked(hash: KeyHash, tweak: u64) -> u64 {
    mix64(hash.0 ^ tweak)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HASH_KEY: HashKey = HashKey(*b"0123456789abcdef");

    fn options(kind: FilterKind, size: FilterSize) -> FilterOptions {
        FilterOptions { kind, size }
    }

    fn build(kind: FilterKind, bits_per_key: f64, tweak: u64, hashes: impl IntoIterator<Item = u64>) -> Vec<u8> {
        let mut builder = FilterBuilder::new(options(kind, FilterSize::BitsPerKey(bits_per_key)), HASH_KEY, tweak);
        hashes.into_iter().for_each(|hash| builder.add(KeyHash(hash)));
        builder.finish().unwrap()
    }

    #[test]
    fn a_rate_is_reached() {
        for kind in [FilterKind::Bloom, FilterKind::Blocked] {
            for rate in [0.3, 0.01, 0.001] {
                let mut builder = FilterBuilder::new(options(kind, FilterSize::Rate(rate)), HASH_KEY, 3);
                (0..200_000).for_each(|i| builder.add(KeyHash(mix64(i))));
                let (_, info) = Filter::parse(&builder.finish().unwrap()).unwrap();
                assert!((info.built_rate / rate - 1.0).abs() < 0.03, "{kind:?} {rate}: {}", info.built_rate);
            }
        }
    }

    #[test]
    fn fractional_bits_are_honoured() {
        let payload = |kind, bits_per_key| build(kind, bits_per_key, 1, 0..10_000).len() - header::HEADER_BYTES;
        assert_eq!(payload(FilterKind::Blocked, 9.9), 194 * 64, "99,000 bits are 193.4 lines");
        assert_eq!(payload(FilterKind::Bloom, 9.9), 194 * 64);
        assert_eq!(payload(FilterKind::Blocked, 0.5), 10 * 64);
        assert_eq!(payload(FilterKind::Blocked, 9.0), 176 * 64);
    }

    #[test]
    fn golden_filters() {
        let checksums = [FilterKind::Blocked, FilterKind::Bloom]
            .map(|kind| crate::checksum::checksum(&build(kind, 10.0, 42, (0..1000).map(mix64))));
        // From an independent implementation of the formulas and the layout.
        assert_eq!(checksums, [0x4865_aa09, 0xdecb_2bf5]);
    }

    #[test]
    fn no_keys_give_an_empty_filter_that_says_no() {
        for kind in [FilterKind::Blocked, FilterKind::Bloom] {
            let block = build(kind, 10.0, 1, []);
            assert_eq!(block.len(), header::HEADER_BYTES);
            let (filter, info) = Filter::parse(&block).unwrap();
            assert_eq!((info.kind, info.keys, info.built_rate), (FilterKind::Empty, 0, 0.0));
            assert!(!filter.is_none());
            assert!((0..1000).all(|i| !filter.may_contain(KeyHash(mix64(i)))));
        }
    }

    #[test]
    fn no_filter_says_maybe() {
        let mut builder = FilterBuilder::new(options(FilterKind::None, FilterSize::BitsPerKey(10.0)), HASH_KEY, 1);
        builder.add(KeyHash(1));
        assert_eq!(builder.memory_bytes(), 0);
        assert_eq!(builder.finish(), None);
        assert!(Filter::none().is_none());
        Filter::none().prefetch(KeyHash(5));
        assert!(Filter::none().may_contain(KeyHash(5)));
    }

    #[test]
    fn a_filter_is_small_beside_its_payload() {
        assert!(size_of::<Filter>() <= 64);
        let (filter, info) = Filter::parse(&build(FilterKind::Blocked, 10.0, 1, 0..1000)).unwrap();
        assert_eq!(filter.memory_bytes() as u64, info.payload_bytes);
    }

    #[test]
    fn a_false_positive_of_one_table_is_drawn_anew_in_the_next() {
        let filters: Vec<Filter> = (0..2)
            .map(|tweak| Filter::parse(&build(FilterKind::Blocked, 5.0, tweak, (0..20_000).map(mix64))).unwrap().0)
            .collect();
        let absent = || (1 << 40..).map(|i| KeyHash(mix64(i))).take(200_000);
        let both = absent().filter(|&hash| filters.iter().all(|filter| filter.may_contain(hash))).count();
        // 9.3 % of 9.3 % of 200,000 is 1,726; without the tweak it would be 18,600.
        assert!((1_450..2_000).contains(&both), "{both}");
    }

    #[test]
    fn bits_beyond_the_end_of_a_bloom_filter_make_it_unusable() {
        let mut block = build(FilterKind::Bloom, 10.0, 1, 0..100);
        *block.last_mut().unwrap() |= 0x80;
        header::reseal(&mut block);
        assert_eq!(Filter::parse(&block).unwrap_err(), FilterUnusable::ReservedBits);
    }

    #[test]
    fn reasons_are_listed_by_their_discriminants() {
        assert!(FilterUnusable::ALL.iter().enumerate().all(|(at, &reason)| reason as usize == at));
    }

    fn kinds() -> impl Strategy<Value = FilterKind> {
        prop_oneof![Just(FilterKind::Blocked), Just(FilterKind::Bloom)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn never_a_false_negative(
            kind in kinds(),
            bits_per_key in 0.01..=64.0_f64,
            tweak: u64,
            distinct in prop::collection::vec(any::<u64>(), 0..600),
            repeats in 1..3_usize,
        ) {
            let all = distinct.iter().cycle().take(distinct.len() * repeats).copied();
            let (filter, info) = Filter::parse(&build(kind, bits_per_key, tweak, all)).unwrap();
            prop_assert_eq!(info.keys as usize, distinct.len() * repeats);
            for &hash in &distinct {
                filter.prefetch(KeyHash(hash));
                prop_assert!(filter.may_contain(KeyHash(hash)));
            }
        }

        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(Filter::parse(&bytes).is_err());
        }

        /// With a checksum that fits, so that the checks behind it are reached.
        #[test]
        fn any_damage_leaves_a_filter_that_answers_or_a_reason(
            kind in kinds(),
            changes in prop::collection::vec((0..HEADER_FIELDS, any::<u8>()), 1..4),
            length in 128..400_usize,
            hash: u64,
        ) {
            let mut block = build(kind, 10.0, 9, 0..200);
            changes.iter().for_each(|&(at, value)| block[at] = value);
            block.truncate(length);
            header::reseal(&mut block);
            if let Ok((filter, _)) = Filter::parse(&block) {
                filter.prefetch(KeyHash(hash));
                filter.may_contain(KeyHash(hash));
            }
        }
    }
    const HEADER_FIELDS: usize = 88;
}
