//! Data blocks: sorted entries, restart points, and optionally a small hash index.
//!
//! ```text
//! entry *                               entries, the first and every 16th (`block_restart_interval`) at a restart point
//! restart     u32 × R                   offsets of the entries at restart points: the first 0, ascending
//! bucket      u8 × B     ┐ only with    restart number, 254 = several restarts, 255 = no key
//! B           u16        ┘ the flag
//! R | flag    u32                       the top bit says that there is a hash index
//!
//! entry:
//! shared      varint                    bytes of the user key taken over from the entry before; 0 at a restart point
//! unshared    varint                    bytes of the user key that follow here
//! value_len   varint
//! tag         varint                    seqno << 8 | kind; at the bottom level the sequence number is 0: one byte
//! key delta   unshared bytes
//! value       value_len bytes
//! ```
//!
//! Entries ascend by internal key. A block holds at least one (an empty one can be represented and is met in tests).
//!
//! The hash index is that of RocksDB's data blocks: a user key's hash chooses a bucket, which names the one restart
//! interval that all its versions in this block lie in. Two keys of different intervals, or versions of one key in
//! several, make the bucket 254: search as if there were no index. 255: the key is not in this block. Buckets are made
//! for a load of 3/4; over 253 restart points there is no index.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

mod builder;
pub(crate) mod compression;
mod iter;
mod physical;
#[cfg(test)]
pub(crate) mod testing;

pub(crate) use builder::BlockBuilder;
pub use compression::Compression;
pub(crate) use compression::Compressor;
pub(crate) use iter::BlockIter;
pub(crate) use physical::{
    BlockHandle, TRAILER_BYTES, append_block, is_compressed, open_stored, read_block, read_exact, verify_stored,
};

use crate::cache::Cache;
use crate::coding::get_varint;
use crate::error::{Error, Result};
use crate::hash::HashKey;
use crate::key::{InternalKey, SeqNo, Tag, head};
use crate::sync::Arc;
use crate::value::{SharedBytes, Value};
use std::cmp::Ordering;
use std::ops::Range;

/// The cache of data blocks: verified, decompressed, parsed.
pub(crate) type BlockCache = Cache<Block>;

const HASH_INDEX_FLAG: u32 = 1 << 31;
const BUCKET_COLLISION: u8 = 254;
const BUCKET_EMPTY: u8 = 255;
const MAX_INDEXED_RESTARTS: usize = 253;

/// The hash index needs no secret: keys chosen to collide only make their own look-ups search.
const BUCKET_HASH_KEY: HashKey = HashKey(*b"block hash index");

/// Two reference counts and, rounded up, what an allocator adds to a buffer.
const ARC_OVERHEAD_BYTES: usize = 32;

/// A data block whose layout has been checked. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Block {
    bytes: SharedBytes,
    entries_end: u32,
    restarts: u32,
    buckets: u16,
}

/// What a block knows of a key at a snapshot.
#[derive(Debug)]
pub(crate) enum BlockAnswer {
    /// The newest visible version; the value is empty for a tombstone.
    Found { tag: Tag, value: Value },
    /// Versions that are all newer than the snapshot, and then a greater key.
    NewerOnly,
    /// No version: a greater key follows where it would be, or the hash index says no.
    Absent,
    /// Every entry is before the key at the snapshot, so that an older version may open the next block. `newer` says
    /// whether versions newer than the snapshot end this one.
    PastEnd { newer: bool },
}

/// The three parts of a block, borrowed once per operation.
#[derive(Clone, Copy)]
struct Parts<'a> {
    entries: &'a [u8],
    restarts: &'a [[u8; 4]],
    buckets: &'a [u8],
}

/// A decoded entry: its key but for the bytes it shares with its predecessor, and where its value lies.
struct Entry<'a> {
    shared: usize,
    delta: &'a [u8],
    tag: Tag,
    value: Range<usize>,
    /// Where the next entry begins, in the entries.
    next: usize,
}

/// What the hash index says of a key.
enum Bucket {
    /// There is no index, or it cannot tell.
    Search,
    /// The key is not in the block.
    Nowhere,
    /// All versions lie in this restart interval, if anywhere.
    Restart(usize),
}

fn malformed(what: &str) -> Error {
    Error::corruption(format!("malformed data block: {what}; restore the file from a backup"))
}

impl Block {
    /// Reads the layout off the end of `bytes`: constant time, and all that memory safety or termination ask for.
    pub(crate) fn parse(bytes: SharedBytes) -> Result<Self> {
        Self::parse_layout(&bytes)
            .map(|(entries_end, restarts, buckets)| Block { bytes, entries_end, restarts, buckets })
            .ok_or_else(|| malformed("restart points or hash index are longer than the block"))
    }

    /// A block of no entries.
    pub(crate) fn empty() -> Self {
        Block { bytes: SharedBytes::copy_of(&[0; 4]), entries_end: 0, restarts: 0, buckets: 0 }
    }

    fn parse_layout(bytes: &[u8]) -> Option<(u32, u32, u16)> {
        let (rest, footer) = bytes.split_last_chunk::<4>()?;
        let footer = u32::from_le_bytes(*footer);
        let restarts = footer & !HASH_INDEX_FLAG;
        let (rest, buckets) = if footer & HASH_INDEX_FLAG == 0 {
            (rest.len(), 0)
        } else {
            let (rest, count) = rest.split_last_chunk::<2>()?;
            let count = u16::from_le_bytes(*count);
            (rest.len().checked_sub(usize::from(count)).filter(|_| count > 0)?, count)
        };
        let entries_end = rest.checked_sub(usize::try_from(restarts).ok()?.checked_mul(4)?)?;
        // A block has entries just when it has restart points.
        let consistent = (entries_end == 0) == (restarts == 0);
        Some((u32::try_from(entries_end).ok().filter(|_| consistent)?, restarts, buckets))
    }

    /// Checks that restart points ascend from 0 within the entries: once for each block that comes from a file.
    pub(crate) fn check_restarts(&self) -> Result<()> {
        let parts = self.parts();
        let mut offsets = parts.restarts.iter().map(|bytes| u32::from_le_bytes(*bytes));
        let ascending = offsets.clone().zip(offsets.clone().skip(1)).all(|(a, b)| a < b);
        let first_and_last = offsets.clone().next().unwrap_or(0) == 0
            && offsets
                .next_back()
                .is_none_or(|last| usize::try_from(last).is_ok_and(|last| last < parts.entries.len()));
        if ascending && first_and_last { Ok(()) } else { Err(malformed("restart points do not ascend within it")) }
    }

    /// Bytes on the heap that this block keeps alive, for the cache.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self.bytes.heap_bytes() {
            0 => 0,
            held => held.saturating_add(ARC_OVERHEAD_BYTES),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries_end == 0
    }

    pub(crate) fn has_hash_index(&self) -> bool {
        self.buckets > 0
    }

    fn parts(&self) -> Parts<'_> {
        let bytes: &[u8] = &self.bytes;
        let (entries, rest) = bytes.split_at_checked(self.entries_end as usize).unwrap_or((bytes, &[]));
        let (restarts, rest) = rest.split_at_checked((self.restarts as usize).saturating_mul(4)).unwrap_or_default();
        let buckets = rest.get(..usize::from(self.buckets)).unwrap_or_default();
        Parts { entries, restarts: restarts.as_chunks::<4>().0, buckets }
    }

    /// The newest version of `user_key` that is visible at `snapshot`, without building any key: a restart point is
    /// found, and from there each entry is compared only where it can differ from the last one.
    pub(crate) fn get(&self, user_key: &[u8], snapshot: SeqNo) -> Result<BlockAnswer> {
        let parts = self.parts();
        let target = InternalKey::new(user_key, Tag::seek(snapshot));
        let (start, end) = match parts.bucket(user_key) {
            Bucket::Nowhere => return Ok(BlockAnswer::Absent),
            Bucket::Restart(restart) => (parts.restart(restart)?, parts.interval_end(restart)),
            Bucket::Search => (parts.seek_restart(target)?, parts.entries.len()),
        };
        match scan(parts.entries, start..end, target)? {
            Scan::Found(tag, value) => {
                let value = self.bytes.slice(value).ok_or_else(|| malformed("a value ends after it"))?;
                Ok(BlockAnswer::Found { tag, value: Value::new(value) })
            }
            Scan::Passed { newer: true } => Ok(BlockAnswer::NewerOnly),
            Scan::Passed { newer: false } => Ok(BlockAnswer::Absent),
            Scan::End { newer } if end == parts.entries.len() => Ok(BlockAnswer::PastEnd { newer }),
            // The hash index promised that no other interval holds the key.
            Scan::End { newer: true } => Ok(BlockAnswer::NewerOnly),
            Scan::End { newer: false } => Ok(BlockAnswer::Absent),
        }
    }
}

enum Scan {
    Found(Tag, Range<usize>),
    /// A greater user key was met.
    Passed {
        newer: bool,
    },
    /// The range ended before that.
    End {
        newer: bool,
    },
}

/// Looks for the first entry at or after `target` among the entries that begin in `range`, at a restart point.
///
/// While every entry so far was smaller, let `matched` be how many bytes the last one has in common with the target.
/// An entry that shares more than that with its predecessor differs from the target where the predecessor did: it is
/// smaller, too. One that shares no more begins with as much of the target, and its delta decides.
fn scan(entries: &[u8], range: Range<usize>, target: InternalKey<'_>) -> Result<Scan> {
    let (mut at, mut matched, mut key_len) = (range.start, 0_usize, 0_usize);
    let mut newer = false;
    while at < range.end {
        let entry = Entry::decode(entries, at)?;
        if entry.shared > key_len {
            return Err(malformed("an entry shares more than its predecessor has"));
        }
        key_len = entry.shared.saturating_add(entry.delta.len());
        at = entry.next;
        if entry.shared > matched {
            continue;
        }
        let rest = target.user_key.get(entry.shared..).unwrap_or_default();
        match entry.delta.cmp(rest) {
            Ordering::Less => matched = entry.shared.saturating_add(common_prefix(entry.delta, rest)),
            Ordering::Greater => return Ok(Scan::Passed { newer }),
            Ordering::Equal if entry.tag <= target.tag => return Ok(Scan::Found(entry.tag, entry.value)),
            Ordering::Equal => (newer, matched) = (true, target.user_key.len()),
        }
    }
    Ok(Scan::End { newer })
}

impl<'a> Parts<'a> {
    /// Where the entries of restart interval `number` begin.
    fn restart(&self, number: usize) -> Result<usize> {
        let bytes = self.restarts.get(number).ok_or_else(|| malformed("the hash index names no restart point"))?;
        Ok(u32::from_le_bytes(*bytes) as usize)
    }

    /// Where the next interval begins, or the entries end.
    fn interval_end(&self, number: usize) -> usize {
        let next = self.restarts.get(number.saturating_add(1));
        next.map_or(self.entries.len(), |bytes| (u32::from_le_bytes(*bytes) as usize).min(self.entries.len()))
    }

    fn bucket(&self, user_key: &[u8]) -> Bucket {
        match self.buckets.get(bucket_of(user_key, self.buckets.len())) {
            None | Some(&BUCKET_COLLISION) => Bucket::Search,
            Some(&BUCKET_EMPTY) => Bucket::Nowhere,
            Some(&restart) => Bucket::Restart(usize::from(restart)),
        }
    }

    /// The last restart point before `target`, or the first one: no entry before it can be what a search wants.
    fn seek_restart(&self, target: InternalKey<'_>) -> Result<usize> {
        let target_head = head(target.user_key);
        let (mut low, mut high) = (0, self.restarts.len());
        while low < high {
            let middle = low.midpoint(high);
            let entry = Entry::decode(self.entries, self.restart(middle)?)?;
            if entry.shared != 0 {
                return Err(malformed("the entry at a restart point is not whole"));
            }
            if entry.is_before(target, target_head) {
                low = middle.saturating_add(1);
            } else {
                high = middle;
            }
        }
        if self.restarts.is_empty() { Ok(0) } else { self.restart(low.saturating_sub(1)) }
    }

    /// The last restart point that is at a smaller offset than `at`.
    #[cfg_attr(not(test), allow(dead_code, reason = "what reverse cursors will stand on"))]
    fn restart_before(&self, at: usize) -> usize {
        let count = self.restarts.partition_point(|bytes| (u32::from_le_bytes(*bytes) as usize) < at);
        let last = self.restarts.get(count.saturating_sub(1));
        last.map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize)
    }
}

impl<'a> Entry<'a> {
    #[inline]
    fn decode(entries: &'a [u8], at: usize) -> Result<Self> {
        Self::try_decode(entries, at).ok_or_else(|| malformed("an entry is cut short"))
    }

    #[inline]
    fn try_decode(entries: &'a [u8], at: usize) -> Option<Self> {
        let rest = entries.get(at..)?;
        let (shared, unshared, value_len, rest) = match rest {
            // Nearly every entry: three lengths of one byte each.
            &[shared, unshared, value_len, ref rest @ ..] if (shared | unshared | value_len) < 0x80 => {
                (usize::from(shared), usize::from(unshared), usize::from(value_len), rest)
            }
            _ => {
                let (shared, rest) = length(rest)?;
                let (unshared, rest) = length(rest)?;
                let (value_len, rest) = length(rest)?;
                (shared, unshared, value_len, rest)
            }
        };
        let (tag, used) = get_varint(rest)?;
        let (delta, rest) = rest.get(used..)?.split_at_checked(unshared)?;
        let value_start = entries.len().checked_sub(rest.len())?;
        let next = value_start.checked_add(value_len).filter(|&next| next <= entries.len())?;
        Some(Entry { shared, delta, tag: Tag(tag), value: value_start..next, next })
    }

    /// Whether the entry, which is whole, sorts before `target`. Heads first: two registers instead of a call.
    #[inline]
    fn is_before(&self, target: InternalKey<'_>, target_head: u64) -> bool {
        let own = head(self.delta);
        if own != target_head {
            return own < target_head;
        }
        InternalKey::new(self.delta, self.tag) < target
    }
}

fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (value, used) = get_varint(bytes)?;
    Some((usize::try_from(value).ok()?, bytes.get(used..)?))
}

/// The bucket of `user_key` among `buckets`: the high bits of its hash, scaled. 0 when there are none.
fn bucket_of(user_key: &[u8], buckets: usize) -> usize {
    if buckets == 0 {
        return 0;
    }
    let scaled = (BUCKET_HASH_KEY.hash(user_key).0 >> 32).wrapping_mul(buckets as u64);
    (scaled >> 32) as usize
}

/// How many bytes `a` and `b` have in common at the front.
#[inline]
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let mut common = 0_usize;
    for (x, y) in a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0) {
        let differing = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differing != 0 {
            return common.saturating_add((differing.trailing_zeros() / 8) as usize);
        }
        common = common.saturating_add(8);
    }
    let tails = a.get(common..).unwrap_or_default().iter().zip(b.get(common..).unwrap_or_default());
    common.saturating_add(tails.take_while(|(x, y)| x == y).count())
}

/// A shared buffer of `len` bytes, allocated once and filled in place.
pub(crate) fn filled(len: usize, fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<SharedBytes> {
    let mut buffer: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
    match Arc::get_mut(&mut buffer) {
        Some(bytes) => fill(bytes)?,
        None => return Err(Error::corruption("a new buffer is shared")),
    }
    Ok(SharedBytes::from_arc(buffer))
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Block").field("bytes", &self.bytes.len()).field("restarts", &self.restarts).finish()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    #[test]
    fn common_prefix_agrees_with_its_plain_definition() {
        let a: Vec<u8> = (0..40).collect();
        for differ in 0..=40 {
            for len in 0..=40 {
                let mut b = a[..len].to_vec();
                if let Some(byte) = b.get_mut(differ) {
                    *byte ^= 0x80;
                }
                assert_eq!(common_prefix(&a, &b), differ.min(len));
                assert_eq!(common_prefix(&b, &a), differ.min(len));
            }
        }
    }

    #[test]
    fn layouts_longer_than_the_block_are_corruption() {
        let parse = |bytes: &[u8]| Block::parse(SharedBytes::copy_of(bytes)).and_then(|b| b.check_restarts());
        assert!(parse(&[0, 0, 0, 0]).is_ok(), "no entries, no restart points");
        let bad: [&[u8]; 10] = [
            b"",
            b"\0\0\0",
            b"\x01\0\0\0",
            b"\xff\xff\xff\x7f",
            b"\xff\xff\xff\xff",
            b"\0\0\0\0\0\0\0\x80",
            b"\x01\0\0\0\0\x80",
            b"entries\0\0\0\0",
            b"entries\x01\0\0\0\x01\0\0\0",
            b"entries\0\0\0\0\x07\0\0\0\x02\0\0\0",
        ];
        for bytes in bad {
            assert_eq!(parse(bytes).unwrap_err().kind(), crate::error::ErrorKind::Corruption, "{bytes:?}");
        }
    }
}
