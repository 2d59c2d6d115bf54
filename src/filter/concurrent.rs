//! A blocked Bloom filter that many threads fill while others ask it: what stands in front of a memtable's skiplist.
//! Never written to disk. Lines and positions are those of `blocked`.

use crate::filter::blocked::{for_each_position, line_index};
use crate::filter::line::word_of;
use crate::filter::params;
use crate::filter::prefetch::prefetch;
use crate::hash::KeyHash;
use crate::sync::{AtomicU64, Ordering};

/// A line whose bits are set one by one, at a cache-line boundary.
#[derive(Default)]
#[repr(align(64))]
struct AtomicLine([AtomicU64; 8]);

/// A growing set of key hashes: never a false negative for an insertion that *happens before* the question.
///
/// Bits are set and read with relaxed ordering: the filter itself publishes nothing. The caller must order them, by
/// inserting before it publishes (with release) the sequence number that makes the key visible; a reader that loaded
/// that number (with acquire) then finds the bits.
///
/// It never grows. More keys than expected make it answer "maybe" more often, and cost nothing else.
pub(crate) struct ConcurrentFilter {
    lines: Box<[AtomicLine]>,
    k: u32,
}

impl ConcurrentFilter {
    /// A filter for about `expected_keys` distinct keys, of at least one line. `bits_per_key` is brought into the range
    /// that options may have.
    pub(crate) fn new(expected_keys: usize, bits_per_key: f64) -> Self {
        let bits_per_key = params::clamp_bits_per_key(bits_per_key);
        let lines = params::blocked_lines(expected_keys as u64, bits_per_key) as usize;
        ConcurrentFilter {
            lines: (0..lines).map(|_| AtomicLine::default()).collect(),
            k: params::blocked_best_k(bits_per_key),
        }
    }

    #[inline]
    pub(crate) fn insert(&self, hash: KeyHash) {
        let line = self.line(hash);
        for_each_position(hash.0, self.k, |position| {
            line.0[word_of(position)].fetch_or(1 << (position & 63), Ordering::Relaxed);
        });
    }

    /// False: no insertion of `hash` happened before. True: one may have.
    #[inline]
    pub(crate) fn may_contain(&self, hash: KeyHash) -> bool {
        let line = self.line(hash);
        let mut all = u64::MAX;
        for_each_position(hash.0, self.k, |position| {
            all &= line.0[word_of(position)].load(Ordering::Relaxed) >> (position & 63);
        });
        all & 1 == 1
    }

    /// Asks the processor for the line that the other two methods will touch.
    #[inline]
    pub(crate) fn prefetch(&self, hash: KeyHash) {
        prefetch(self.line(hash));
    }

    /// Heap bytes of the lines.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }

    #[inline(always)]
    fn line(&self, hash: KeyHash) -> &AtomicLine {
        &self.lines[line_index(hash.0, self.lines.len())]
    }
}

impl std::fmt::Debug for ConcurrentFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConcurrentFilter").field("lines", &self.lines.len()).field("k", &self.k).finish()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::hash::mix64;
    use crate::sync::Arc;

    fn false_positives(filter: &ConcurrentFilter) -> usize {
        (0..100_000).filter(|&i| filter.may_contain(KeyHash(mix64((1 << 40) + i)))).count()
    }

    #[test]
    fn what_several_threads_inserted_is_found_after_they_are_joined() {
        let filter = Arc::new(ConcurrentFilter::new(40_000, 10.0));
        let threads: Vec<_> = (0..4_u64)
            .map(|thread| {
                let filter = filter.clone();
                let fill = move || (0..10_000).for_each(|i| filter.insert(KeyHash(mix64(thread * 10_000 + i))));
                crate::sync::spawn("fill", fill).unwrap()
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!((0..40_000).all(|i| filter.may_contain(KeyHash(mix64(i)))));
        // The blocked model at 10 bits per key says 0.957 %.
        assert!((800..1200).contains(&false_positives(&filter)), "{}", false_positives(&filter));
    }

    #[test]
    fn an_overfull_filter_forgets_nothing() {
        let filter = ConcurrentFilter::new(100, 10.0);
        (0..50_000).for_each(|i| filter.insert(KeyHash(mix64(i))));
        assert!((0..50_000).all(|i| filter.may_contain(KeyHash(mix64(i)))));
    }

    #[test]
    fn an_empty_filter_says_no_and_has_a_line_even_for_no_keys() {
        let filter = ConcurrentFilter::new(0, f64::NAN);
        assert_eq!(filter.memory_bytes(), 64);
        assert_eq!(false_positives(&filter), 0);
        filter.prefetch(KeyHash(1));
        assert_eq!(ConcurrentFilter::new(1000, 9.9).memory_bytes(), 20 * 64, "9,900 bits are 19.3 lines");
    }
}
