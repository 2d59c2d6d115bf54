//! Builds data blocks: `(add+ finish reset)*`. The picture of their bytes is in [`crate::block`].
// Nothing here reads bytes from disk.
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use crate::block::{BUCKET_COLLISION, BUCKET_EMPTY, HASH_INDEX_FLAG, MAX_INDEXED_RESTARTS, bucket_of, common_prefix};
use crate::coding::{put_u16, put_u32, put_varint, varint_len};
use crate::key::InternalKey;

pub(crate) struct BlockBuilder {
    buffer: Vec<u8>,
    restarts: Vec<u32>,
    restart_interval: usize,
    since_restart: usize,
    /// The last key added; kept over `reset`, since a table's writer wants it for order and separators.
    last_key: Vec<u8>,
    hashed: Option<HashedKeys>,
}

/// The user keys of a block, for its hash index: one after another in `keys`, with the restart interval of each.
#[derive(Default)]
struct HashedKeys {
    keys: Vec<u8>,
    ends: Vec<(usize, usize)>,
}

impl BlockBuilder {
    /// A restart point every `restart_interval` entries (at least 1); with a hash index if asked.
    pub(crate) fn new(restart_interval: usize, hash_index: bool) -> Self {
        BlockBuilder {
            buffer: Vec::new(),
            restarts: Vec::new(),
            restart_interval: restart_interval.max(1),
            since_restart: 0,
            last_key: Vec::new(),
            hashed: hash_index.then(HashedKeys::default),
        }
    }

    /// Adds an entry that sorts after every one before it.
    pub(crate) fn add(&mut self, key: InternalKey<'_>, value: &[u8]) {
        let at_restart = self.is_empty() || self.since_restart == self.restart_interval;
        let same_key = !self.is_empty() && self.last_key == key.user_key;
        if at_restart {
            self.restarts.push(u32::try_from(self.buffer.len()).expect("a block is cut long before 4 GiB"));
            self.since_restart = 0;
        }
        if let Some(hashed) = self.hashed.as_mut().filter(|_| at_restart || !same_key) {
            hashed.keys.extend_from_slice(key.user_key);
            hashed.ends.push((hashed.keys.len(), self.restarts.len() - 1));
        }
        let shared = if at_restart { 0 } else { common_prefix(&self.last_key, key.user_key) };
        self.append(shared, key, value);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key.user_key[shared..]);
        self.since_restart += 1;
    }

    fn append(&mut self, shared: usize, key: InternalKey<'_>, value: &[u8]) {
        let delta = &key.user_key[shared..];
        put_varint(&mut self.buffer, shared as u64);
        put_varint(&mut self.buffer, delta.len() as u64);
        put_varint(&mut self.buffer, value.len() as u64);
        put_varint(&mut self.buffer, key.tag.0);
        self.buffer.extend_from_slice(delta);
        self.buffer.extend_from_slice(value);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.restarts.is_empty()
    }

    /// The last user key added, also after `reset`.
    pub(crate) fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Bytes of the entries so far.
    pub(crate) fn entry_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// At most how large the block would be with this entry, too.
    pub(crate) fn size_with(&self, key: InternalKey<'_>, value: &[u8]) -> usize {
        let lengths = 1 + varint_len(key.user_key.len() as u64) + varint_len(value.len() as u64);
        let entry = lengths + varint_len(key.tag.0) + key.user_key.len() + value.len();
        // One restart point more, its count, and 4/3 of a bucket for each hashed key.
        let restarts = 4 * (self.restarts.len() + 2);
        let buckets = self.hashed.as_ref().map_or(0, |hashed| bucket_count(hashed.ends.len() + 1) + 2);
        self.buffer.len() + entry + restarts + buckets
    }

    /// Completes the block; `reset` comes next.
    pub(crate) fn finish(&mut self) -> &[u8] {
        for &restart in &self.restarts {
            put_u32(&mut self.buffer, restart);
        }
        let restarts = u32::try_from(self.restarts.len()).expect("a block is cut long before 4 GiB");
        let indexed = self.append_hash_index();
        put_u32(&mut self.buffer, restarts | if indexed { HASH_INDEX_FLAG } else { 0 });
        &self.buffer
    }

    fn append_hash_index(&mut self) -> bool {
        let Some(hashed) = &self.hashed else { return false };
        let count = bucket_count(hashed.ends.len());
        let Ok(stored_count) = u16::try_from(count) else { return false };
        if self.restarts.is_empty() || self.restarts.len() > MAX_INDEXED_RESTARTS {
            return false;
        }
        let buckets_at = self.buffer.len();
        self.buffer.resize(buckets_at + count, BUCKET_EMPTY);
        let buckets = &mut self.buffer[buckets_at..];
        let mut start = 0;
        for &(end, restart) in &hashed.ends {
            let bucket = &mut buckets[bucket_of(&hashed.keys[start..end], count)];
            let restart = restart as u8;
            *bucket = if *bucket == BUCKET_EMPTY || *bucket == restart { restart } else { BUCKET_COLLISION };
            start = end;
        }
        put_u16(&mut self.buffer, stored_count);
        true
    }

    /// Begins the next block. Only the last key stays.
    pub(crate) fn reset(&mut self) {
        self.buffer.clear();
        self.restarts.clear();
        self.since_restart = 0;
        if let Some(hashed) = &mut self.hashed {
            hashed.keys.clear();
            hashed.ends.clear();
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let hashed = self.hashed.as_ref().map_or(0, |h| h.keys.capacity() + h.ends.capacity() * 16);
        self.buffer.capacity() + self.restarts.capacity() * 4 + self.last_key.capacity() + hashed
    }
}

/// Buckets for a load of 3/4; odd, as RocksDB has it.
fn bucket_count(keys: usize) -> usize {
    (keys * 4 / 3) | 1
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::key::{Tag, ValueKind};

    fn key(user_key: &[u8], seqno: u64) -> InternalKey<'_> {
        InternalKey::new(user_key, Tag::new(seqno, ValueKind::Put))
    }

    #[test]
    fn golden_bytes() {
        let mut builder = BlockBuilder::new(2, false);
        builder.add(key(b"apple", 0), b"1");
        builder.add(InternalKey::new(b"apply", Tag::new(3, ValueKind::Delete)), b"");
        builder.add(key(b"apply", 1), b"22");
        let expected = [
            b"\x00\x05\x01\x01apple1".as_slice(), // at 0: whole key, tag 0 << 8 | 1
            b"\x04\x01\x00\x80\x06y",             // at 10: shares "appl", tag 3 << 8 | 0 = 768
            b"\x00\x05\x02\x81\x02apply22",       // at 16: a restart point, tag 1 << 8 | 1 = 257
            b"\x00\0\0\0\x10\0\0\0",              // restart points 0 and 16
            b"\x02\0\0\0",                        // two of them, no hash index
        ]
        .concat();
        assert_eq!(builder.finish(), expected);
    }

    #[test]
    fn golden_bytes_of_the_hash_index() {
        let mut builder = BlockBuilder::new(1, true);
        builder.add(key(b"a", 0), b"");
        builder.add(key(b"b", 0), b"");
        let mut expected = b"\x00\x01\x00\x01a\x00\x01\x00\x01b\0\0\0\0\x05\0\0\0".to_vec();
        let mut buckets = [BUCKET_EMPTY; 3];
        buckets[bucket_of(b"a", 3)] = 0;
        buckets[bucket_of(b"b", 3)] = 1;
        expected.extend_from_slice(&buckets);
        expected.extend_from_slice(b"\x03\0\x02\0\0\x80");
        assert_eq!(builder.finish(), expected);
        // The hash itself is part of the format.
        assert_eq!((bucket_of(b"a", 3), bucket_of(b"b", 3)), (2, 1));
    }

    #[test]
    fn the_size_estimate_is_never_below_the_block() {
        for hash_index in [false, true] {
            let mut builder = BlockBuilder::new(3, hash_index);
            for i in 0..500_u32 {
                let user_key = format!("{:04}", i / 3).into_bytes();
                let key = key(&user_key, u64::from(1000 - i));
                let estimate = builder.size_with(key, b"value");
                builder.add(key, b"value");
                let mut copy = BlockBuilder::new(3, hash_index);
                (copy.buffer, copy.restarts) = (builder.buffer.clone(), builder.restarts.clone());
                if let (Some(to), Some(from)) = (&mut copy.hashed, &builder.hashed) {
                    (to.keys, to.ends) = (from.keys.clone(), from.ends.clone());
                }
                assert!(copy.finish().len() <= estimate);
            }
        }
    }

    #[test]
    fn over_253_restart_points_there_is_no_hash_index() {
        for (entries, indexed) in [(253_u32, true), (254, false)] {
            let mut builder = BlockBuilder::new(1, true);
            for i in 0..entries {
                builder.add(key(&i.to_be_bytes(), 0), b"");
            }
            let flag = builder.finish().last().unwrap() >> 7;
            assert_eq!(flag == 1, indexed);
        }
    }
}
