//! The blocked Bloom filter: the high bits of a key's hash choose one 64-byte line, and k positions within that line
//! stand for the key. One probe is one cache miss at most.
//!
//! ```text
//! hash ──mulhi(·, lines)──► line          (high bits decide)
//!      ──remix──► 9 bits │ 9 bits │ … ► k positions in the line, seven from each 64-bit word
//! ```
//!
//! The positions are disjoint bit groups of a remixed hash, so they are independent of each other, which is what the
//! sizing model of `params` assumes; overlapping patterns would miss it.
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

/// 2^64 divided by the golden ratio: odd, and its bits follow no pattern.
const PHI: u64 = 0x9e37_79b9_7f4a_7c15;

/// How many 9-bit positions one 64-bit word gives.
const POSITIONS_PER_WORD: u32 = 7;

/// How far ahead of its insertion a line is prefetched: about a memory latency's worth of insertions.
const BUILD_AHEAD: usize = 16;

/// A finished blocked filter. Hashes passed to it carry the table's tweak already.
#[derive(Clone, Debug)]
pub(crate) struct Blocked {
    lines: Arc<[CacheLine]>,
    k: u32,
}

impl Blocked {
    pub(crate) fn new(lines: Arc<[CacheLine]>, k: u32) -> Self {
        Blocked { lines, k }
    }

    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        // No such line is impossible; a filter that does not know says "maybe".
        let Some(line) = self.lines.get(line_index(hash, self.lines.len())) else { return true };
        let mut all = u64::MAX;
        for_each_position(hash, self.k, |position| all &= line.shifted(position));
        all & 1 == 1
    }

    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Some(line) = self.lines.get(line_index(hash, self.lines.len())) {
            prefetch(line);
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }
}

/// The lines of a filter over `hashes`, with k positions for each.
pub(crate) fn build(hashes: impl Iterator<Item = u64> + Clone, line_count: usize, k: u32) -> Vec<CacheLine> {
    let mut lines = vec![CacheLine::default(); line_count];
    let mut ahead = hashes.clone().skip(BUILD_AHEAD);
    for hash in hashes {
        if let Some(line) = ahead.next().and_then(|next| lines.get(line_index(next, line_count))) {
            prefetch(line);
        }
        if let Some(line) = lines.get_mut(line_index(hash, line_count)) {
            for_each_position(hash, k, |position| line.set(position));
        }
    }
    lines
}

/// The false-positive rate that these very lines have: the mean over lines of (ones ÷ 512)^k.
pub(crate) fn built_rate(lines: &[CacheLine], k: u32) -> f64 {
    let sum: f64 = lines.iter().map(|line| power(f64::from(line.ones()) / LINE_BITS as f64, k)).sum();
    sum / lines.len() as f64
}

/// The line of `hash` among `line_count`, which need not be a power of two.
#[inline(always)]
pub(crate) fn line_index(hash: u64, line_count: usize) -> usize {
    mulhi(hash, line_count as u64) as usize
}

/// Visits the k positions of `hash` in its line. Only the low nine bits of what `visit` gets count.
#[inline(always)]
pub(crate) fn for_each_position(hash: u64, k: u32, mut visit: impl FnMut(u64)) {
    let mut word = remix(hash);
    let mut left = k;
    loop {
        let mut positions = word;
        for _ in 0..left.min(POSITIONS_PER_WORD) {
            visit(positions);
            positions >>= 9;
        }
        if left <= POSITIONS_PER_WORD {
            return;
        }
        left = left.wrapping_sub(POSITIONS_PER_WORD);
        word = mix64(word.wrapping_add(PHI));
    }
}

/// A bijection that spreads the low bits, which did not choose the line, over the whole word. The high half is folded
/// in first so that no bit is lost, and the product's good high half is folded down last.
#[inline(always)]
fn remix(hash: u64) -> u64 {
    let product = (hash ^ (hash >> 32)).wrapping_mul(PHI);
    product ^ (product >> 32)
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)]
mod tests {
    use super::*;

    fn positions(hash: u64, k: u32) -> Vec<u64> {
        let mut all = Vec::new();
        for_each_position(hash, k, |position| all.push(position & 511));
        all
    }

    #[test]
    fn golden_positions() {
        let hash = mix64(1);
        assert_eq!(line_index(hash, 1000), 338);
        assert_eq!(positions(hash, 9), [160, 415, 347, 263, 479, 47, 2, 487, 308]);
    }

    #[test]
    fn a_clone_shares_the_lines() {
        let filter = Blocked::new(build([1, 2, 3].into_iter(), 2, 6).into(), 6);
        assert!(Arc::ptr_eq(&filter.lines, &filter.clone().lines));
    }

    #[test]
    fn fewer_probes_are_a_prefix_of_more() {
        for k in 1..=64 {
            assert_eq!(positions(mix64(7), k), positions(mix64(7), 64)[..k as usize]);
        }
    }

    #[test]
    fn positions_are_uniform_and_independent_within_one_line() {
        // Hashes that share their 20 highest bits, as the keys of one line of a large filter do.
        let trials = 512 * 400;
        let mut pairs = vec![0_u32; 64 * 64];
        for i in 0..trials {
            let p = positions((0xabcde << 44) | (mix64(i) >> 20), 8);
            pairs[((p[0] >> 3) * 64 + (p[7] >> 3)) as usize] += 1;
        }
        let expected = trials as f64 / pairs.len() as f64;
        let chi_square: f64 = pairs.iter().map(|&seen| (f64::from(seen) - expected).powi(2) / expected).sum();
        // 4095 degrees of freedom: mean 4095, standard deviation 90.5; six of them allowed.
        assert!((chi_square - 4095.0).abs() < 543.0, "{chi_square}");
    }

    #[test]
    fn more_than_2_to_the_32_bits_are_used_to_the_end() {
        let lines = (1_usize << 27) + 3;
        assert_eq!(line_index(u64::MAX, lines), lines - 1);
        assert!(line_index(mix64(5) | 1 << 63, lines) >= lines / 2);
    }

    #[test]
    fn built_rate_is_the_mean_over_lines() {
        let mut half = CacheLine::default();
        (0..256).for_each(|position| half.set(position));
        let lines = [half, CacheLine::default()];
        assert_eq!(built_rate(&lines, 2), 0.125);
    }
}
