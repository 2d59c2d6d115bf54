//! The key bounds of a level's tables, laid out for search: contiguous, and apart from the tables themselves, so that a
//! read finds its candidates without touching one.
//!
//! The prefix that all bounds share is kept once and stripped (keys like `user:000123` would tie on every head
//! otherwise); of what is left, the first eight bytes are compared as a number, the rest only on ties.

use crate::key::head;
use std::cmp::Ordering;

/// Where a key lies relative to the common prefix.
enum Place<'a> {
    Before,
    After,
    /// It starts with the prefix; this is the rest, and its head.
    Within(&'a [u8], u64),
}

#[derive(Debug, Default)]
pub(crate) struct Fences {
    prefix: Vec<u8>,
    smallest_heads: Vec<u64>,
    largest_heads: Vec<u64>,
    /// Smallest 0, largest 0, smallest 1, …: where each bound ends in `heap`.
    ends: Vec<u32>,
    heap: Vec<u8>,
}

impl Fences {
    /// From the (smallest, largest) user keys of tables in their order.
    pub(crate) fn new<'a>(bounds: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone) -> Self {
        let mut prefix: Option<&[u8]> = None;
        for (smallest, largest) in bounds.clone() {
            for bound in [smallest, largest] {
                let so_far = prefix.unwrap_or(bound);
                prefix = Some(&so_far[..common_prefix(so_far, bound)]);
            }
        }
        let mut fences = Fences { prefix: prefix.unwrap_or_default().to_vec(), ..Default::default() };
        let cut = fences.prefix.len();
        for (smallest, largest) in bounds {
            fences.smallest_heads.push(head(&smallest[cut..]));
            fences.largest_heads.push(head(&largest[cut..]));
            for bound in [smallest, largest] {
                fences.heap.extend_from_slice(&bound[cut..]);
                fences.ends.push(u32::try_from(fences.heap.len()).unwrap_or(u32::MAX));
            }
        }
        fences
    }

    pub(crate) fn len(&self) -> usize {
        self.smallest_heads.len()
    }

    #[inline]
    fn place<'a>(&self, key: &'a [u8]) -> Place<'a> {
        let cut = self.prefix.len();
        match key.split_at_checked(cut) {
            Some((start, rest)) => match start.cmp(&self.prefix[..]) {
                Ordering::Less => Place::Before,
                Ordering::Greater => Place::After,
                Ordering::Equal => Place::Within(rest, head(rest)),
            },
            // Shorter than the prefix: a proper prefix of it sorts before every bound.
            None if key < &self.prefix[..key.len()] || *key == self.prefix[..key.len()] => Place::Before,
            None => Place::After,
        }
    }

    #[inline]
    fn bound(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.heap[start..self.ends[at] as usize]
    }

    #[inline]
    fn cmp_smallest(&self, table: usize, rest: &[u8], rest_head: u64) -> Ordering {
        self.smallest_heads[table].cmp(&rest_head).then_with(|| self.bound(2 * table).cmp(rest))
    }

    #[inline]
    fn cmp_largest(&self, table: usize, rest: &[u8], rest_head: u64) -> Ordering {
        self.largest_heads[table].cmp(&rest_head).then_with(|| self.bound(2 * table + 1).cmp(rest))
    }

    /// Whether `key` lies within the bounds of table number `table`.
    #[inline]
    pub(crate) fn contains(&self, table: usize, key: &[u8]) -> bool {
        match self.place(key) {
            Place::Within(rest, rest_head) => {
                self.cmp_smallest(table, rest, rest_head).is_le() && self.cmp_largest(table, rest, rest_head).is_ge()
            }
            Place::Before | Place::After => false,
        }
    }

    /// The first table whose largest key is at or after `key`; `len()` if there is none. Tables disjoint and ordered.
    #[inline]
    pub(crate) fn lower_bound(&self, key: &[u8]) -> usize {
        let (rest, rest_head) = match self.place(key) {
            Place::Before => return 0,
            Place::After => return self.len(),
            Place::Within(rest, rest_head) => (rest, rest_head),
        };
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.cmp_largest(middle, rest, rest_head).is_lt() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The one table that can hold `key`. Tables disjoint and ordered.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<usize> {
        let at = self.lower_bound(key);
        (at < self.len() && self.contains(at, key)).then_some(at)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.prefix.capacity()
            + 8 * (self.smallest_heads.capacity() + self.largest_heads.capacity())
            + 4 * self.ends.capacity()
            + self.heap.capacity()
    }
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fences(bounds: &[(Vec<u8>, Vec<u8>)]) -> Fences {
        Fences::new(bounds.iter().map(|(s, l)| (&s[..], &l[..])))
    }

    #[test]
    fn keys_around_a_shared_prefix_find_their_place() {
        let bounds: Vec<_> = [("user:0001", "user:0009"), ("user:0010", "user:0019"), ("user:0030", "user:0039")]
            .map(|(s, l)| (s.into(), l.into()))
            .to_vec();
        let fences = fences(&bounds);
        let find = |key: &str| fences.find(key.as_bytes());
        assert_eq!(find("user:0001"), Some(0));
        assert_eq!(find("user:0019"), Some(1));
        assert_eq!(find("user:0020"), None);
        assert_eq!(find("user:0030x"), Some(2));
        assert_eq!(find("user:004"), None);
        for outside in ["", "a", "us", "user:", "user:00", "z", "user;"] {
            assert_eq!(find(outside), None, "{outside}");
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_plain_search(
            mut keys in prop::collection::btree_set(prop::collection::vec(prop::sample::select(vec![0_u8, 1, 0xfe, 0xff]), 0..12), 2..20),
            prefix in prop::collection::vec(0_u8..3, 0..10),
            probes in prop::collection::vec(prop::collection::vec(prop::sample::select(vec![0_u8, 1, 0xfe, 0xff]), 0..14), 1..50),
        ) {
            if keys.len() % 2 == 1 { keys.pop_first(); }
            let keys: Vec<Vec<u8>> = keys.into_iter().map(|k| [&prefix[..], &k].concat()).collect();
            let bounds: Vec<_> = keys.chunks(2).map(|c| (c[0].clone(), c[1].clone())).collect();
            let fences = fences(&bounds);
            let with_prefix: Vec<Vec<u8>> = probes.iter().map(|p| [&prefix[..], p].concat()).collect();
            for probe in probes.iter().chain(&with_prefix).chain(&keys) {
                let expected = bounds.iter().position(|(s, l)| s <= probe && probe <= l);
                prop_assert_eq!(fences.find(probe), expected);
                for (at, (s, l)) in bounds.iter().enumerate() {
                    prop_assert_eq!(fences.contains(at, probe), s <= probe && probe <= l);
                }
                prop_assert_eq!(fences.lower_bound(probe), bounds.partition_point(|(_, l)| l < probe));
            }
        }
    }
}
