//! Values as db_bench makes them: half random, half repetition, so that a codec has something to do but not too much.

use crate::keys::{Random, random};
use rand::RngExt;
use std::sync::Arc;

/// Bytes of the pattern that values are cut from.
const POOL: usize = 1 << 20;
/// Every piece is half random bytes, then the same bytes again.
const PIECE: usize = 100;

/// Cuts values from a seeded pool. Clones share it, and start where the original stands.
#[derive(Clone)]
pub(crate) struct Values {
    pool: Arc<[u8]>,
    at: usize,
}

impl Values {
    /// For values of at most `longest` bytes.
    pub(crate) fn new(seed: u64, longest: usize) -> Values {
        let mut random = random(seed, 4);
        let mut pool = Vec::with_capacity(POOL.max(longest) + PIECE);
        while pool.len() < POOL.max(longest) {
            pool.extend(piece(&mut random));
        }
        Values { pool: pool.into(), at: 0 }
    }

    pub(crate) fn next(&mut self, length: usize) -> &[u8] {
        if self.at + length > self.pool.len() {
            self.at = 0;
        }
        let start = self.at;
        self.at += length;
        &self.pool[start..start + length]
    }
}

/// Printable, so that a value can be looked at.
fn piece(random: &mut Random) -> Vec<u8> {
    let half: Vec<u8> = (0..PIECE / 2).map(|_| random.random_range(b' '..=b'~')).collect();
    [half.clone(), half].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_length_and_repeat_with_the_seed() {
        let (mut a, mut b) = (Values::new(1, 100), Values::new(1, 100));
        for length in [0, 1, 100, 77] {
            assert_eq!(a.next(length), b.next(length));
            assert_eq!(a.next(length).len(), length);
            b.next(length);
        }
        assert_ne!(Values::new(1, 100).next(100), Values::new(2, 100).next(100));
    }

    #[test]
    fn half_of_a_value_repeats() {
        let mut values = Values::new(1, 100);
        let value = values.next(100);
        assert_eq!(value[..50], value[50..]);
    }

    #[test]
    fn values_may_be_longer_than_the_pool() {
        let mut values = Values::new(1, 3 << 20);
        assert_eq!(values.next(3 << 20).len(), 3 << 20);
        assert_eq!(values.next(3 << 20).len(), 3 << 20);
    }
}
