//! Internal keys: a user key and its *tag*, `seqno << 8 | kind`. Ordered by user key ascending, then tag descending, so
//! that the newest version of a key comes first. This is the only place where internal keys are ordered: comparing
//! their concatenated bytes would be wrong, and the types do not offer it.

use crate::error::{Error, Result};
use crate::hash::KeyHash;
use crate::value::Value;
use std::cmp::Ordering;

/// The number of a write. Every operation of every batch has its own; a greater one is newer.
pub type SeqNo = u64;

/// The largest sequence number: 56 bits, since a tag keeps the kind in its low byte.
pub(crate) const MAX_SEQNO: SeqNo = (1 << 56) - 1;

/// The longest user key, in bytes.
pub const MAX_KEY_BYTES: usize = 65_535;

/// The longest value, in bytes: 4 GiB less room for its key and the block around it.
pub const MAX_VALUE_BYTES: usize = u32::MAX as usize - (1 << 20);

/// What an entry does to its key. Numbered by hand, never renumbered. Reserved, and `Unsupported` when met: merge 2,
/// range delete 3, single delete 4, blob pointer 5, put with expiry 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum ValueKind {
    Delete = 0,
    Put = 1,
}

impl ValueKind {
    /// The largest kind byte, for tags that sort before every kind of the same sequence number.
    pub(crate) const MAX: u8 = 0xff;

    #[inline]
    pub(crate) fn from_u8(byte: u8) -> Result<Self> {
        match byte {
            0 => Ok(ValueKind::Delete),
            1 => Ok(ValueKind::Put),
            other => Err(Error::unsupported(format!(
                "entry kind {other} is unknown to this version; open the files with the version that wrote them"
            ))),
        }
    }
}

/// `seqno << 8 | kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tag(pub(crate) u64);

impl Tag {
    #[inline]
    pub(crate) fn new(seqno: SeqNo, kind: ValueKind) -> Self {
        Tag((seqno << 8) | kind as u64)
    }

    /// The tag that sorts before every entry visible at `snapshot` and after every newer one.
    #[inline]
    pub(crate) fn seek(snapshot: SeqNo) -> Self {
        Tag((snapshot << 8) | ValueKind::MAX as u64)
    }

    #[inline]
    pub(crate) fn seqno(self) -> SeqNo {
        self.0 >> 8
    }

    #[inline]
    pub(crate) fn kind(self) -> Result<ValueKind> {
        ValueKind::from_u8(self.0 as u8)
    }
}

/// A borrowed internal key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct InternalKey<'a> {
    pub(crate) user_key: &'a [u8],
    pub(crate) tag: Tag,
}

impl<'a> InternalKey<'a> {
    pub(crate) fn new(user_key: &'a [u8], tag: Tag) -> Self {
        InternalKey { user_key, tag }
    }

    pub(crate) fn to_owned(self) -> InternalKeyBuf {
        InternalKeyBuf { user_key: self.user_key.to_vec(), tag: self.tag }
    }
}

impl Ord for InternalKey<'_> {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.user_key.cmp(other.user_key).then_with(|| other.tag.cmp(&self.tag))
    }
}

impl PartialOrd for InternalKey<'_> {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Shows the key escaped and cut after 32 bytes: errors and logs carry no whole keys.
impl std::fmt::Debug for InternalKey<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = &self.user_key[..self.user_key.len().min(32)];
        write!(f, "{}@{}:{}", shown.escape_ascii(), self.tag.seqno(), self.tag.0 as u8)
    }
}

/// An owned internal key.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct InternalKeyBuf {
    pub(crate) user_key: Vec<u8>,
    pub(crate) tag: Tag,
}

impl InternalKeyBuf {
    pub(crate) fn as_ref(&self) -> InternalKey<'_> {
        InternalKey::new(&self.user_key, self.tag)
    }
}

impl std::fmt::Debug for InternalKeyBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_ref().fmt(f)
    }
}

/// What a point read carries down: made once at the top.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookupKey<'a> {
    pub(crate) user_key: &'a [u8],
    /// Entries with a greater sequence number are invisible.
    pub(crate) snapshot: SeqNo,
    /// The key's hash under the database's hash key.
    pub(crate) hash: KeyHash,
}

impl<'a> LookupKey<'a> {
    /// The internal key to seek to: the first one at or after it with the same user key is the newest visible.
    #[inline]
    pub(crate) fn seek_key(&self) -> InternalKey<'a> {
        InternalKey::new(self.user_key, Tag::seek(self.snapshot))
    }
}

/// What one source (a memtable, a table) knows of a key at a snapshot.
#[derive(Clone, Debug)]
pub(crate) enum PointAnswer {
    /// The newest visible version; the value is empty for a tombstone.
    Found {
        #[cfg_attr(not(test), allow(dead_code, reason = "what covering range tombstones will be compared with"))]
        seqno: SeqNo,
        kind: ValueKind,
        value: Value,
    },
    /// Only versions newer than the snapshot.
    Invisible,
    /// No version at all.
    Absent,
}

/// The first eight bytes of `bytes` as a big-endian number, zero-padded: compares like the bytes do, except that ties
/// must be settled by the bytes themselves.
#[inline]
pub(crate) fn head(bytes: &[u8]) -> u64 {
    if let Some(first) = bytes.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    let mut padded = [0_u8; 8];
    for (to, from) in padded.iter_mut().zip(bytes) {
        *to = *from;
    }
    u64::from_be_bytes(padded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_versions_of_a_key_come_first() {
        let key = |user_key, seqno| InternalKey::new(user_key, Tag::new(seqno, ValueKind::Put));
        assert!(key(b"a", 2) < key(b"a", 1));
        assert!(key(b"a", 1) < key(b"b", 9));
        assert!(key(b"a", 1) < key(b"ab", 9), "a concatenated compare would get this wrong");
        assert!(InternalKey::new(b"a", Tag::seek(2)) < key(b"a", 2));
        assert!(InternalKey::new(b"a", Tag::seek(1)) > key(b"a", 2));
    }

    #[test]
    fn reserved_and_unknown_kinds_are_unsupported() {
        for byte in 2..=255 {
            assert_eq!(ValueKind::from_u8(byte).unwrap_err().kind(), crate::error::ErrorKind::Unsupported);
        }
        assert_eq!(Tag::new(MAX_SEQNO, ValueKind::Put).seqno(), MAX_SEQNO);
    }

    #[test]
    fn heads_order_like_bytes() {
        let keys: [&[u8]; 7] =
            [b"", b"\0", b"a", b"a\0b", b"abcdefgh", b"abcdefghi", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff"];
        for pair in keys.windows(2) {
            assert!(head(pair[0]) <= head(pair[1]));
        }
    }
}
