//! The header of a filter block: what the filter is, and all that probing it takes, so that a table stays readable
//! wherever it is copied, ingested or restored. Little-endian, 128 bytes, then the payload.
//!
//! ```text
//!  at  size
//!   0     8  magic "siftfltr"
//!   8     1  version of this layout, 1
//!   9     1  kind: 1 empty, 2 blocked, 3 bloom; 4 (ribbon) and 5 (cuckoo) are reserved
//!  10     1  hash id: 1 = XXH3-64 as in `hash`
//!  11     1  flags: bit 0 holds whole keys, bit 1 holds prefixes; the others are reserved
//!  12     1  k, positions per key (r of a ribbon)
//!  13     1  layers of a ribbon, else 0
//!  14     1  log2 of the keys in a ribbon's shard, else 0
//!  15     1  zero
//!  16     4  prefix-extractor id, 0 = none
//!  20     4  zero
//!  24     8  n, distinct keys
//!  32     8  distinct prefixes
//!  40     8  payload length in bytes, a multiple of 64
//!  48     8  m, bits of the payload in use; blocked: all of them
//!  56     8  tweak of this table
//!  64    16  hash key, the database's
//!  80     8  built rate, an IEEE 754 double
//!  88    36  zero
//! 124     4  masked CRC-32 of bytes 0 to 123 and the payload
//! 128     …  payload: 64-byte lines
//! ```
//!
//! Reading errs towards "maybe": whatever is not understood in full makes the filter unusable, with the reason.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use crate::checksum::Checksum;
use crate::coding::{Decoder, put_u32, put_u64};
use crate::filter::line::LINE_BYTES;
use crate::filter::{FilterKind, FilterUnusable, params};
use crate::hash::{HASH_ID_XXH3, HashKey};

/// Bytes of the header: two lines, so that the payload after it keeps the block's alignment.
pub(crate) const HEADER_BYTES: usize = 128;

const MAGIC: &[u8; 8] = b"siftfltr";
const VERSION: u8 = 1;
const FLAG_WHOLE_KEYS: u8 = 1;
const UNUSED_BYTES: usize = 36;
const CHECKSUM_AT: usize = 124;

const KIND_EMPTY: u8 = 1;
const KIND_BLOCKED: u8 = 2;
const KIND_BLOOM: u8 = 3;

/// The fields that differ between the filters this version writes; the others have one value each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Header {
    pub(crate) kind: FilterKind,
    pub(crate) k: u8,
    pub(crate) keys: u64,
    pub(crate) payload_bytes: u64,
    /// Bits of the payload in use.
    pub(crate) bits: u64,
    pub(crate) tweak: u64,
    pub(crate) hash_key: HashKey,
    pub(crate) built_rate: f64,
}

impl Header {
    /// The header's bytes, then the payload that `append` adds, then the checksum over both put in its place.
    pub(crate) fn encode(&self, append: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut block = Vec::with_capacity(HEADER_BYTES.saturating_add(self.payload_bytes as usize));
        block.extend_from_slice(MAGIC);
        block.extend_from_slice(&[VERSION, kind_to_u8(self.kind), HASH_ID_XXH3, FLAG_WHOLE_KEYS, self.k, 0, 0, 0]);
        put_u64(&mut block, 0);
        for field in [self.keys, 0, self.payload_bytes, self.bits, self.tweak] {
            put_u64(&mut block, field);
        }
        block.extend_from_slice(&self.hash_key.0);
        put_u64(&mut block, self.built_rate.to_bits());
        block.extend_from_slice(&[0; UNUSED_BYTES]);
        put_u32(&mut block, 0);
        append(&mut block);
        let checksum = block_checksum(&block).to_le_bytes();
        if let Some(place) = block.get_mut(CHECKSUM_AT..HEADER_BYTES) {
            place.copy_from_slice(&checksum);
        }
        block
    }

    /// Verifies a whole block, and gives its header and payload.
    ///
    /// The checksum comes before every field that a later version may use otherwise: damage is then reported as
    /// damage, and what is unknown in an intact block as what it is.
    pub(crate) fn decode(block: &[u8]) -> Result<(Header, &[u8]), FilterUnusable> {
        let (header, payload) = block.split_at_checked(HEADER_BYTES).ok_or(FilterUnusable::Length)?;
        let raw = Raw::read(header).ok_or(FilterUnusable::Length)?;
        raw.check_integrity(block, payload)?;
        raw.check_meaning()?;
        let header = raw.header()?;
        header.check_shape()?;
        Ok((header, payload))
    }

    /// Whether the parameters can belong together. Probing relies on it.
    fn check_shape(&self) -> Result<(), FilterUnusable> {
        let payload_bits = self.payload_bytes.checked_mul(8).ok_or(FilterUnusable::Length)?;
        let unused_bits = payload_bits.checked_sub(self.bits).ok_or(FilterUnusable::Damaged)?;
        let filled = self.keys > 0 && self.bits > 0 && (1..=params::MAX_PROBES).contains(&u32::from(self.k));
        let sound = match self.kind {
            FilterKind::Empty => self.keys == 0 && self.payload_bytes == 0 && self.k == 0,
            FilterKind::Blocked => filled && unused_bits == 0,
            FilterKind::Bloom => filled && unused_bits < 512,
            FilterKind::None => false,
        };
        let rate_is_probability = (0.0..=1.0).contains(&self.built_rate);
        if sound && rate_is_probability { Ok(()) } else { Err(FilterUnusable::Damaged) }
    }
}

/// Every field as it stands in the file.
struct Raw<'a> {
    magic: &'a [u8],
    version: u8,
    kind: u8,
    hash_id: u8,
    flags: u8,
    k: u8,
    layers: u8,
    log2_shard_keys: u8,
    pad: u8,
    extractor: u32,
    pad_after_extractor: u32,
    keys: u64,
    prefixes: u64,
    payload_bytes: u64,
    bits: u64,
    tweak: u64,
    hash_key: [u8; 16],
    built_rate: u64,
    unused: &'a [u8],
    checksum: u32,
}

impl<'a> Raw<'a> {
    /// None if `header` is too short.
    fn read(header: &'a [u8]) -> Option<Self> {
        let mut from = Decoder::new(header);
        // Struct fields are evaluated in the order they are written here: the order of the file.
        Some(Raw {
            magic: from.take(MAGIC.len(), "magic").ok()?,
            version: from.u8("version").ok()?,
            kind: from.u8("kind").ok()?,
            hash_id: from.u8("hash id").ok()?,
            flags: from.u8("flags").ok()?,
            k: from.u8("k").ok()?,
            layers: from.u8("layers").ok()?,
            log2_shard_keys: from.u8("log2 of shard keys").ok()?,
            pad: from.u8("padding").ok()?,
            extractor: from.u32("extractor").ok()?,
            pad_after_extractor: from.u32("padding").ok()?,
            keys: from.u64("keys").ok()?,
            prefixes: from.u64("prefixes").ok()?,
            payload_bytes: from.u64("payload length").ok()?,
            bits: from.u64("bits").ok()?,
            tweak: from.u64("tweak").ok()?,
            hash_key: from.take(16, "hash key").ok()?.try_into().ok()?,
            built_rate: from.u64("built rate").ok()?,
            unused: from.take(UNUSED_BYTES, "unused bytes").ok()?,
            checksum: from.u32("checksum").ok()?,
        })
    }

    /// Are these the bytes that were written?
    fn check_integrity(&self, block: &[u8], payload: &[u8]) -> Result<(), FilterUnusable> {
        if self.magic != MAGIC {
            return Err(FilterUnusable::Magic);
        }
        if self.version != VERSION {
            return Err(FilterUnusable::Version);
        }
        let whole_lines = payload.len().checked_rem(LINE_BYTES) == Some(0);
        if self.payload_bytes != payload.len() as u64 || !whole_lines {
            return Err(FilterUnusable::Length);
        }
        if self.checksum != block_checksum(block) {
            return Err(FilterUnusable::Checksum);
        }
        Ok(())
    }

    /// Do we know what they say?
    fn check_meaning(&self) -> Result<(), FilterUnusable> {
        kind_from_u8(self.kind)?;
        if self.hash_id != HASH_ID_XXH3 {
            return Err(FilterUnusable::Hash);
        }
        if self.extractor != 0 {
            return Err(FilterUnusable::Extractor);
        }
        let reserved = [self.layers, self.log2_shard_keys, self.pad];
        let zero = reserved == [0; 3]
            && self.pad_after_extractor == 0
            && self.prefixes == 0
            && self.unused.iter().all(|&byte| byte == 0);
        if self.flags != FLAG_WHOLE_KEYS || !zero {
            return Err(FilterUnusable::ReservedBits);
        }
        Ok(())
    }

    fn header(&self) -> Result<Header, FilterUnusable> {
        Ok(Header {
            kind: kind_from_u8(self.kind)?,
            k: self.k,
            keys: self.keys,
            payload_bytes: self.payload_bytes,
            bits: self.bits,
            tweak: self.tweak,
            hash_key: HashKey(self.hash_key),
            built_rate: f64::from_bits(self.built_rate),
        })
    }
}

fn kind_to_u8(kind: FilterKind) -> u8 {
    match kind {
        // A filter of kind `None` is never written; 0 would be read as an unknown kind.
        FilterKind::None => 0,
        FilterKind::Empty => KIND_EMPTY,
        FilterKind::Blocked => KIND_BLOCKED,
        FilterKind::Bloom => KIND_BLOOM,
    }
}

fn kind_from_u8(byte: u8) -> Result<FilterKind, FilterUnusable> {
    match byte {
        KIND_EMPTY => Ok(FilterKind::Empty),
        KIND_BLOCKED => Ok(FilterKind::Blocked),
        KIND_BLOOM => Ok(FilterKind::Bloom),
        _ => Err(FilterUnusable::Kind),
    }
}

/// Over everything but the checksum itself.
fn block_checksum(block: &[u8]) -> u32 {
    let mut checksum = Checksum::new();
    checksum.update(block.get(..CHECKSUM_AT).unwrap_or_default());
    checksum.update(block.get(HEADER_BYTES..).unwrap_or_default());
    checksum.finish()
}

/// Puts right the checksum of a block that a test has changed.
#[cfg(test)]
pub(crate) fn reseal(block: &mut [u8]) {
    let checksum = block_checksum(block).to_le_bytes();
    if let Some(place) = block.get_mut(CHECKSUM_AT..HEADER_BYTES) {
        place.copy_from_slice(&checksum);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    const PAYLOAD: [u8; 64] = [0xa5; 64];

    fn sample() -> Header {
        Header {
            kind: FilterKind::Bloom,
            k: 7,
            keys: 50,
            payload_bytes: 64,
            bits: 500,
            tweak: 0x1122_3344_5566_7788,
            hash_key: HashKey(*b"0123456789abcdef"),
            built_rate: 0.0078125,
        }
    }

    fn block(header: Header) -> Vec<u8> {
        header.encode(|out| out.extend_from_slice(&PAYLOAD[..header.payload_bytes as usize]))
    }

    #[test]
    fn golden_bytes() {
        let mut expected = b"siftfltr\x01\x03\x01\x01\x07\0\0\0".to_vec();
        expected.extend_from_slice(&[0; 8]);
        expected.extend_from_slice(&[50, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend_from_slice(&[0; 8]);
        expected.extend_from_slice(&[64, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend_from_slice(&[0xf4, 1, 0, 0, 0, 0, 0, 0]);
        expected.extend_from_slice(&[0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
        expected.extend_from_slice(b"0123456789abcdef");
        expected.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0x80, 0x3f]);
        expected.extend_from_slice(&[0; 36]);
        assert_eq!(expected.len(), CHECKSUM_AT);
        let mut summed = expected.clone();
        summed.extend_from_slice(&PAYLOAD);
        expected.extend_from_slice(&crate::checksum::checksum(&summed).to_le_bytes());
        expected.extend_from_slice(&PAYLOAD);
        assert_eq!(block(sample()), expected);
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        let bytes = block(sample());
        assert_eq!(Header::decode(&bytes).unwrap(), (sample(), &PAYLOAD[..]));
    }

    /// The reason for a block with `value` at `at` and a checksum that fits.
    fn reason(at: usize, value: u8) -> FilterUnusable {
        let mut bytes = block(sample());
        bytes[at] = value;
        reseal(&mut bytes);
        Header::decode(&bytes).unwrap_err()
    }

    #[test]
    fn what_an_intact_block_says_and_we_do_not_know_is_named() {
        assert_eq!(reason(0, b'S'), FilterUnusable::Magic);
        assert_eq!(reason(8, 2), FilterUnusable::Version);
        for kind in [0, 4, 5, 255] {
            assert_eq!(reason(9, kind), FilterUnusable::Kind);
        }
        assert_eq!(reason(10, 2), FilterUnusable::Hash);
        for flags in [0, 3, 5, 0x81] {
            assert_eq!(reason(11, flags), FilterUnusable::ReservedBits);
        }
        assert_eq!(reason(16, 1), FilterUnusable::Extractor);
        assert_eq!(reason(40, 65), FilterUnusable::Length);
        for unused in [13, 14, 15, 20, 23, 32, 39, 88, 123] {
            assert_eq!(reason(unused, 1), FilterUnusable::ReservedBits);
        }
    }

    #[test]
    fn parameters_that_contradict_each_other_are_damage() {
        assert_eq!(reason(12, 0), FilterUnusable::Damaged);
        assert_eq!(reason(12, 65), FilterUnusable::Damaged);
        assert_eq!(reason(24, 0), FilterUnusable::Damaged, "no keys, but a payload");
        assert_eq!(reason(49, 3), FilterUnusable::Damaged, "more bits than the payload has");
        assert_eq!(reason(9, KIND_BLOCKED), FilterUnusable::Damaged, "a blocked filter uses every bit");
        assert_eq!(reason(9, KIND_EMPTY), FilterUnusable::Damaged, "an empty filter has no payload");
        assert_eq!(reason(87, 0xbf), FilterUnusable::Damaged, "a negative rate");
        assert_eq!(reason(87, 0x7f), FilterUnusable::Damaged, "a huge rate");
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let good = block(sample());
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&bytes).is_err(), "bit {bit}");
        }
        for len in 0..good.len() {
            assert_eq!(Header::decode(&good[..len]).unwrap_err(), FilterUnusable::Length, "length {len}");
        }
        let longer = [good, vec![0; 64]].concat();
        assert_eq!(Header::decode(&longer).unwrap_err(), FilterUnusable::Length);
    }

    #[test]
    fn flipped_fields_of_a_damaged_block_are_reported_as_a_bad_checksum() {
        let mut bytes = block(sample());
        bytes[9] = 77;
        assert_eq!(Header::decode(&bytes).unwrap_err(), FilterUnusable::Checksum);
    }
}
