//! An entry of the skiplist, and the borrowed form that searches use without allocating.

use crate::key::{Tag, head};
use std::borrow::Borrow;
use std::cmp::Ordering;

/// Key bytes, then value bytes, in one allocation; the key's first eight bytes and its tag beside it.
pub(super) struct Entry {
    head: u64,
    tag: Tag,
    key_len: u32,
    data: Box<[u8]>,
}

/// A node: the entry, its reference count and height, and on average two levels of the tower (p = 1/2).
const NODE_BYTES: usize = size_of::<Entry>() + 8 + 2 * 8;

impl Entry {
    pub(super) fn new(user_key: &[u8], tag: Tag, value: &[u8]) -> Self {
        let mut data = Vec::with_capacity(user_key.len() + value.len());
        data.extend_from_slice(user_key);
        data.extend_from_slice(value);
        Entry { head: head(user_key), tag, key_len: user_key.len() as u32, data: data.into_boxed_slice() }
    }

    pub(super) fn user_key(&self) -> &[u8] {
        &self.data[..self.key_len as usize]
    }

    pub(super) fn value(&self) -> &[u8] {
        &self.data[self.key_len as usize..]
    }

    pub(super) fn tag(&self) -> Tag {
        self.tag
    }

    pub(super) fn memory_bytes(&self) -> usize {
        NODE_BYTES + self.data.len()
    }
}

/// What an entry and a probe have in common: all that an order needs.
pub(super) trait Parts {
    fn parts(&self) -> (u64, &[u8], Tag);
}

impl Parts for Entry {
    #[inline]
    fn parts(&self) -> (u64, &[u8], Tag) {
        (self.head, self.user_key(), self.tag)
    }
}

/// A borrowed internal key to search for.
pub(super) struct Probe<'a> {
    head: u64,
    user_key: &'a [u8],
    tag: Tag,
}

impl<'a> Probe<'a> {
    pub(super) fn new(user_key: &'a [u8], tag: Tag) -> Self {
        Probe { head: head(user_key), user_key, tag }
    }

    pub(super) fn as_parts<'b>(&'b self) -> &'b (dyn Parts + 'b)
    where
        'a: 'b,
    {
        self
    }
}

impl Parts for Probe<'_> {
    #[inline]
    fn parts(&self) -> (u64, &[u8], Tag) {
        (self.head, self.user_key, self.tag)
    }
}

/// Heads first: they settle most comparisons without touching the key bytes.
#[inline]
fn compare(a: (u64, &[u8], Tag), b: (u64, &[u8], Tag)) -> Ordering {
    a.0.cmp(&b.0).then_with(|| a.1.cmp(b.1)).then_with(|| b.2.cmp(&a.2))
}

impl<'a> Borrow<dyn Parts + 'a> for Entry {
    fn borrow(&self) -> &(dyn Parts + 'a) {
        self
    }
}

impl Ord for dyn Parts + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(self.parts(), other.parts())
    }
}

impl PartialOrd for dyn Parts + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Parts + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for dyn Parts + '_ {}

impl Ord for Entry {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        compare(self.parts(), other.parts())
    }
}

impl PartialOrd for Entry {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}
