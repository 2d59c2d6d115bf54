//! A k-way merge: one cursor over several, in internal-key order. Children are given newest data first; of equal
//! internal keys (which only a broken database has) the earlier child's comes first.

use super::InternalIterator;
use crate::error::{Error, Result};
use crate::key::{InternalKey, head};
use std::cmp::Ordering;

struct Child<I> {
    iter: I,
    /// The first eight bytes of its key: settles most comparisons.
    head: u64,
}

/// A binary heap of children by their keys.
pub(crate) struct MergingIterator<I> {
    children: Vec<Child<I>>,
    /// Indexes of valid children; the smallest key's is first.
    heap: Vec<usize>,
    failed: Option<Error>,
}

impl<I: InternalIterator> MergingIterator<I> {
    pub(crate) fn new(iters: Vec<I>) -> Self {
        let children = iters.into_iter().map(|iter| Child { iter, head: 0 }).collect();
        MergingIterator { children, heap: Vec::new(), failed: None }
    }

    fn less(&self, a: usize, b: usize) -> bool {
        let (x, y) = (&self.children[a], &self.children[b]);
        match x.head.cmp(&y.head).then_with(|| x.iter.key().cmp(&y.iter.key())) {
            Ordering::Less => true,
            Ordering::Equal => a < b,
            Ordering::Greater => false,
        }
    }

    fn start(&mut self, mut seek: impl FnMut(&mut I) -> Result<bool>) -> Result<bool> {
        self.heap.clear();
        self.failed = None;
        for at in 0..self.children.len() {
            let child = &mut self.children[at];
            match seek(&mut child.iter) {
                Ok(true) => {
                    child.head = head(child.iter.key().user_key);
                    self.heap.push(at);
                }
                Ok(false) => {}
                Err(error) => return self.fail(error),
            }
        }
        for at in (0..self.heap.len() / 2).rev() {
            self.sift_down(at);
        }
        Ok(self.valid())
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let left = 2 * at + 1;
            if left >= self.heap.len() {
                return;
            }
            let right = left + 1;
            let smaller =
                if right < self.heap.len() && self.less(self.heap[right], self.heap[left]) { right } else { left };
            if !self.less(self.heap[smaller], self.heap[at]) {
                return;
            }
            self.heap.swap(at, smaller);
            at = smaller;
        }
    }

    fn fail(&mut self, error: Error) -> Result<bool> {
        self.heap.clear();
        self.failed = Some(error.clone());
        Err(error)
    }

    fn top(&self) -> &I {
        &self.children[self.heap[0]].iter
    }
}

impl<I: InternalIterator> InternalIterator for MergingIterator<I> {
    fn seek_to_first(&mut self) -> Result<bool> {
        self.start(|iter| iter.seek_to_first())
    }

    fn seek(&mut self, target: InternalKey<'_>) -> Result<bool> {
        self.start(|iter| iter.seek(target))
    }

    fn next(&mut self) -> Result<bool> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let Some(&at) = self.heap.first() else { return Ok(false) };
        let child = &mut self.children[at];
        match child.iter.next() {
            Ok(true) => child.head = head(child.iter.key().user_key),
            Ok(false) => {
                self.heap.swap_remove(0);
            }
            Err(error) => return self.fail(error),
        }
        self.sift_down(0);
        Ok(self.valid())
    }

    fn valid(&self) -> bool {
        !self.heap.is_empty()
    }

    fn key(&self) -> InternalKey<'_> {
        self.top().key()
    }

    fn value(&self) -> &[u8] {
        self.top().value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iter::VecIter;
    use crate::key::{Tag, ValueKind};

    fn entries(keys: &[(&str, u64)]) -> VecIter {
        VecIter::new(
            keys.iter()
                .map(|(k, s)| (k.as_bytes().to_vec(), Tag::new(*s, ValueKind::Put), k.as_bytes().to_vec()))
                .collect(),
        )
    }

    fn walk(iter: &mut impl InternalIterator) -> Vec<(String, u64)> {
        let mut seen = Vec::new();
        let mut more = iter.valid();
        while more {
            seen.push((String::from_utf8(iter.key().user_key.to_vec()).unwrap(), iter.key().tag.seqno()));
            more = iter.next().unwrap();
        }
        seen
    }

    #[test]
    fn merges_in_internal_key_order() {
        let mut merge = MergingIterator::new(vec![
            entries(&[("a", 9), ("c", 7)]),
            entries(&[]),
            entries(&[("a", 3), ("b", 4), ("c", 8), ("longer than a head", 1)]),
            entries(&[("longer than a heaD", 1)]),
        ]);
        assert!(merge.seek_to_first().unwrap());
        let expected =
            [("a", 9), ("a", 3), ("b", 4), ("c", 8), ("c", 7), ("longer than a heaD", 1), ("longer than a head", 1)];
        assert_eq!(walk(&mut merge), expected.map(|(k, s)| (k.to_string(), s)));
        assert!(merge.seek(InternalKey::new(b"b", Tag::seek(3))).unwrap());
        assert_eq!(merge.key().user_key, b"c");
    }

    struct Fails;
    impl InternalIterator for Fails {
        fn seek_to_first(&mut self) -> Result<bool> {
            Ok(true)
        }
        fn seek(&mut self, _: InternalKey<'_>) -> Result<bool> {
            Ok(true)
        }
        fn next(&mut self) -> Result<bool> {
            Err(Error::corruption("planted"))
        }
        fn valid(&self) -> bool {
            true
        }
        fn key(&self) -> InternalKey<'_> {
            InternalKey::new(b"a", Tag::new(1, ValueKind::Put))
        }
        fn value(&self) -> &[u8] {
            b""
        }
    }

    #[test]
    fn a_childs_error_comes_at_once_and_sticks() {
        let mut merge = MergingIterator::new(vec![Fails, Fails]);
        assert!(merge.seek_to_first().unwrap());
        assert!(merge.next().is_err());
        assert!(!merge.valid());
        assert!(merge.next().is_err());
    }
}
