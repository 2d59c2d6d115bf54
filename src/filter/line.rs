//! The 64-byte line that every filter payload is made of, in memory and on disk.
//!
//! ```text
//! position p (0 to 511)  =  bit p % 64 of little-endian word p / 64  =  bit p % 8 of byte p / 8
//! ```
//!
//! Read with `from_le_bytes`, never transmuted, so that the bytes mean the same on every machine.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use crate::sync::Arc;

/// Bytes of a line: one cache line of the processors we know.
pub(crate) const LINE_BYTES: usize = 64;

/// Bits of a line.
pub(crate) const LINE_BITS: u64 = 512;

/// A line, at a cache-line boundary: a probe of one line misses the cache at most once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(64))]
pub(crate) struct CacheLine([u64; 8]);

impl CacheLine {
    /// The bit at `position` modulo 512 in the lowest place, with other bits above it: several positions are `&`-ed
    /// together before one look at the lowest place.
    #[inline(always)]
    pub(crate) fn shifted(&self, position: u64) -> u64 {
        // The index is below 8: the compiler drops the check.
        let word = self.0.get(word_of(position)).copied().unwrap_or(u64::MAX);
        word >> (position & 63)
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, position: u64) {
        if let Some(word) = self.0.get_mut(word_of(position)) {
            *word |= 1_u64 << (position & 63);
        }
    }

    pub(crate) fn ones(&self) -> u32 {
        self.0.iter().fold(0, |ones, word| ones.wrapping_add(word.count_ones()))
    }

    pub(crate) fn from_bytes(bytes: &[u8; LINE_BYTES]) -> Self {
        let mut words = [0; 8];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        CacheLine(words)
    }

    pub(crate) fn append_to(&self, out: &mut Vec<u8>) {
        for word in self.0 {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }
}

/// Which of a line's eight words holds `position`.
#[inline(always)]
pub(crate) fn word_of(position: u64) -> usize {
    ((position >> 6) & 7) as usize
}

/// The lines of a payload whose length is a multiple of 64; a rest would be left out.
pub(crate) fn lines_from(payload: &[u8]) -> Arc<[CacheLine]> {
    payload.as_chunks::<LINE_BYTES>().0.iter().map(CacheLine::from_bytes).collect()
}

/// The high word of the product: a uniform 64-bit `hash` becomes a uniform number below `n`, whatever `n` is.
#[inline(always)]
pub(crate) fn mulhi(hash: u64, n: u64) -> u64 {
    (u128::from(hash).wrapping_mul(u128::from(n)) >> 64) as u64
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_the_same_bit_in_memory_and_in_bytes() {
        for position in 0..LINE_BITS {
            let mut line = CacheLine::default();
            line.set(position);
            let mut bytes = Vec::new();
            line.append_to(&mut bytes);
            assert_eq!(bytes[(position / 8) as usize], 1 << (position % 8));
            assert_eq!(line.ones(), 1);
            assert_eq!(line.shifted(position) & 1, 1);
            assert_eq!(*lines_from(&bytes), [line]);
        }
    }

    #[test]
    fn lines_lie_at_cache_line_boundaries() {
        let lines = lines_from(&[0; 64 * 3]);
        assert_eq!(lines.len(), 3);
        assert_eq!(lines.as_ptr().addr() % 64, 0);
        assert_eq!(size_of::<CacheLine>(), 64);
    }

    #[test]
    fn mulhi_reaches_the_whole_range_beyond_32_bits() {
        let n = (1 << 40) + 17;
        assert_eq!(mulhi(0, n), 0);
        assert_eq!(mulhi(u64::MAX, n), n - 1);
        assert_eq!(mulhi(1 << 63, n), n / 2);
    }
}
