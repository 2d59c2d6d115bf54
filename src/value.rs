//! [`Value`]: bytes that a read returned, shared with the block they lie in; and [`SharedBytes`], what a block is made of.

use crate::sync::Arc;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, Range};

/// An immutable view of bytes that keeps its owner alive: a heap buffer, or a map of a file.
#[derive(Clone)]
pub(crate) struct SharedBytes {
    owner: Owner,
    range: Range<usize>,
}

#[derive(Clone)]
enum Owner {
    Heap(Arc<[u8]>),
    Map(Arc<dyn AsRef<[u8]> + Send + Sync>),
}

impl SharedBytes {
    /// Takes over a buffer, without copying it.
    pub(crate) fn from_arc(bytes: Arc<[u8]>) -> Self {
        let range = 0..bytes.len();
        SharedBytes { owner: Owner::Heap(bytes), range }
    }

    /// Copies `bytes` into a buffer of their own.
    pub(crate) fn copy_of(bytes: &[u8]) -> Self {
        Self::from_arc(Arc::from(bytes))
    }

    /// A part of a mapped file. None if the map does not reach that far.
    pub(crate) fn of_map(map: Arc<dyn AsRef<[u8]> + Send + Sync>, range: Range<usize>) -> Option<Self> {
        (*map).as_ref().get(range.clone())?;
        Some(SharedBytes { owner: Owner::Map(map), range })
    }

    /// A part of these bytes, sharing the owner. None if `range` does not lie within.
    pub(crate) fn slice(&self, range: Range<usize>) -> Option<Self> {
        self.get(range.clone())?;
        let start = self.range.start + range.start;
        Some(SharedBytes { owner: self.owner.clone(), range: start..start + range.len() })
    }

    /// Bytes on the heap that this view keeps alive; 0 for a map.
    pub(crate) fn heap_bytes(&self) -> usize {
        match &self.owner {
            Owner::Heap(bytes) => bytes.len(),
            Owner::Map(_) => 0,
        }
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &self.owner {
            Owner::Heap(bytes) => bytes,
            Owner::Map(map) => (**map).as_ref(),
        };
        &all[self.range.clone()]
    }
}

/// A value that a read returned: cheap to clone, `Deref<[u8]>`, valid for as long as it is held, also after the
/// database is closed.
///
/// It shares the block of the table it was read from and keeps that block (about `block_bytes`) in memory: copy the
/// bytes out with [`to_vec`](slice::to_vec) to keep a small value for long. A value that was read from a memtable is a
/// copy and keeps nothing else.
#[derive(Clone)]
pub struct Value(SharedBytes);

impl Value {
    pub(crate) fn new(bytes: SharedBytes) -> Self {
        Value(bytes)
    }

    pub(crate) fn copy_of(bytes: &[u8]) -> Self {
        Value(SharedBytes::copy_of(bytes))
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for Value {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl From<Value> for Vec<u8> {
    fn from(value: Value) -> Self {
        value.to_vec()
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Value {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl Eq for Value {}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

/// Escaped, and cut after 64 bytes.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self[..self.len().min(64)];
        write!(f, "b\"{}\"", shown.escape_ascii())?;
        if self.len() > shown.len() {
            write!(f, "… ({} bytes)", self.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_shares_its_owner_and_stays_within() {
        let whole = SharedBytes::copy_of(b"0123456789");
        let part = whole.slice(2..6).unwrap();
        assert_eq!(&*part.slice(1..3).unwrap(), b"34");
        assert!(part.slice(3..5).is_none());
        drop(whole);
        assert_eq!(&*part, b"2345");
    }

    #[test]
    fn values_compare_and_show_as_bytes() {
        let value = Value::copy_of(b"a\xff");
        assert!(value == b"a\xff"[..]);
        assert_eq!(format!("{value:?}"), r#"b"a\xff""#);
        assert!(format!("{:?}", Value::copy_of(&[b'x'; 65])).ends_with("… (65 bytes)"));
        assert!(Value::copy_of(b"a") < Value::copy_of(b"b"));
    }
}
