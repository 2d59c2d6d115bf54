//! The standard Bloom filter: k positions anywhere in m bits, each from its own mixed hash, so that the measured rate
//! is the textbook's. (Double hashing, h1 + i·h2, costs less and misses the formula at small m.)
//!
//! ```text
//! position i  =  mulhi(mix64(hash + i·φ64), m)        0 ≤ i < k
//! ```
//!
//! m need not be a multiple of 512: the last line's bits from m on are zero.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use crate::filter::line::{CacheLine, LINE_BITS, mulhi};
use crate::filter::params::power;
use crate::filter::prefetch::prefetch;
use crate::hash::mix64;
use crate::sync::Arc;

/// 2^64 divided by the golden ratio.
const PHI: u64 = 0x9e37_79b9_7f4a_7c15;

/// A finished Bloom filter of `bits` bits. Hashes passed to it carry the table's tweak already.
#[derive(Clone, Debug)]
pub(crate) struct Bloom {
    lines: Arc<[CacheLine]>,
    bits: u64,
    k: u32,
}

impl Bloom {
    pub(crate) fn new(lines: Arc<[CacheLine]>, bits: u64, k: u32) -> Self {
        Bloom { lines, bits, k }
    }

    /// Stops at the first zero: every position lies in a line of its own, and most absent keys end after two.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        (0..self.k).all(|i| {
            let position = position(hash, i, self.bits);
            // No such line is impossible; a filter that does not know says "maybe".
            self.lines.get(line_of(position)).is_none_or(|line| line.shifted(position) & 1 == 1)
        })
    }

    /// Fetches the first position's line: half of the absent keys need no other.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Some(line) = self.lines.get(line_of(position(hash, 0, self.bits))) {
            prefetch(line);
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }
}

/// The lines of a filter of `bits` bits over `hashes`, with k positions for each.
pub(crate) fn build(hashes: impl Iterator<Item = u64>, bits: u64, k: u32) -> Vec<CacheLine> {
    let mut lines = vec![CacheLine::default(); bits.div_ceil(LINE_BITS) as usize];
    for hash in hashes {
        for i in 0..k {
            let position = position(hash, i, bits);
            if let Some(line) = lines.get_mut(line_of(position)) {
                line.set(position);
            }
        }
    }
    lines
}

/// The false-positive rate that these very lines have: (ones ÷ m)^k.
pub(crate) fn built_rate(lines: &[CacheLine], bits: u64, k: u32) -> f64 {
    let ones: u64 = lines.iter().map(|line| u64::from(line.ones())).sum();
    power(ones as f64 / bits as f64, k)
}

/// Whether the bits from `bits` on are zero, as [`build`] leaves them.
pub(crate) fn padding_is_zero(lines: &[CacheLine], bits: u64) -> bool {
    let unused = (lines.len() as u64).wrapping_mul(LINE_BITS).saturating_sub(bits).min(LINE_BITS);
    let Some(last) = lines.last() else { return true };
    (0..unused).all(|from_end| last.shifted(LINE_BITS.wrapping_sub(from_end).wrapping_sub(1)) & 1 == 0)
}

#[inline(always)]
fn position(hash: u64, i: u32, bits: u64) -> u64 {
    mulhi(mix64(hash.wrapping_add(u64::from(i).wrapping_mul(PHI))), bits)
}

#[inline(always)]
fn line_of(position: u64) -> usize {
    (position >> 9) as usize
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn golden_positions() {
        let all: Vec<u64> = (0..7).map(|i| position(1, i, 9_585_059)).collect();
        assert_eq!(all, [3241346, 5430526, 7148362, 9307118, 4259209, 4258303, 7312387]);
    }

    #[test]
    fn positions_of_a_filter_of_2_to_the_36_bits_lie_everywhere_in_it() {
        let bits = 1_u64 << 36;
        let above = (0..1000).filter(|&hash| position(mix64(hash), 3, bits) >= bits / 2).count();
        assert!((430..570).contains(&above), "{above} of 1000 in the upper half");
    }

    #[test]
    fn the_bits_after_m_stay_zero() {
        let lines = build((0..4000).map(mix64), 700, 3);
        assert_eq!(lines.len(), 2);
        assert!(padding_is_zero(&lines, 700));
        assert_eq!(built_rate(&lines, 700, 3), 1.0, "4000 keys fill all of 700 bits");
        let mut dirty = lines.clone();
        dirty[1].set(700 - 512);
        assert!(!padding_is_zero(&dirty, 700));
    }
}
