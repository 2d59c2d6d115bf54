//! The index: from a user key to the one data block that may hold it.
//!
//! A data block's *separator* is a user key that is at or above every user key in the block, and below every user key
//! of the next one; where versions of one user key lie in both blocks, it is that key. So the first block whose
//! separator is at or above a key is the first that may hold it, and a further block may hold older versions only if
//! the separator *is* the key. Separators are made as short as that allows.
//!
//! ```text
//! N            u32          data blocks
//! P            u32          length of what all separators begin with
//! H            u32          length of the heap
//! reserved     u32          0
//! head         u64 × N      big-endian: the first 8 bytes of each separator after the prefix, zero-padded
//! offset       u64 × N      of each data block, ascending
//! length       u32 × N      of each data block, without its trailer
//! end          u32 × N      where each separator ends in the heap; it begins where the one before ends
//! prefix       P bytes      of all separators, stored once: else keys with a long one would tie on every head
//! heap         H bytes      the separators without the prefix, one after another
//! ```
//!
//! Searched in place: a binary search over the heads, and one in the heap only where heads tie.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use crate::block::{BlockHandle, common_prefix};
use crate::coding::{Decoder, put_u32, put_u64};
use crate::error::{Error, Result};
use crate::key::head;
use crate::value::SharedBytes;
use std::cmp::Ordering;

const HEADER_BYTES: usize = 16;
const BYTES_PER_BLOCK: usize = 24;

/// The index of an open table. Cheap to search; nothing is copied out of the verified block.
pub(super) struct Index {
    bytes: SharedBytes,
    blocks: usize,
    prefix_len: usize,
}

/// The arrays, borrowed once per search.
#[derive(Clone, Copy)]
struct Arrays<'a> {
    heads: &'a [[u8; 8]],
    offsets: &'a [[u8; 8]],
    lengths: &'a [[u8; 4]],
    ends: &'a [[u8; 4]],
    prefix: &'a [u8],
    heap: &'a [u8],
}

fn malformed(what: &str) -> Error {
    Error::corruption(format!("malformed index block: {what}; restore the file from a backup"))
}

impl Index {
    /// Checks the layout, that everything ascends, and that the blocks lie before `limit`.
    pub(super) fn parse(bytes: SharedBytes, limit: u64) -> Result<Self> {
        let mut header = Decoder::new(&bytes);
        let blocks = header.u32("number of data blocks")? as usize;
        let prefix_len = header.u32("length of the separators' prefix")? as usize;
        let heap_len = header.u32("length of the separators")? as usize;
        header.u32("reserved")?;
        let expected = blocks
            .checked_mul(BYTES_PER_BLOCK)
            .and_then(|arrays| arrays.checked_add(prefix_len)?.checked_add(heap_len));
        if expected != Some(header.rest().len()) {
            return Err(malformed("its parts are not as long as it says"));
        }
        let index = Index { bytes, blocks, prefix_len };
        index.arrays().check(limit)?;
        Ok(index)
    }

    fn arrays(&self) -> Arrays<'_> {
        let bytes: &[u8] = &self.bytes;
        let rest = bytes.get(HEADER_BYTES..).unwrap_or_default();
        let (heads, rest) = rest.split_at_checked(self.blocks.saturating_mul(8)).unwrap_or_default();
        let (offsets, rest) = rest.split_at_checked(self.blocks.saturating_mul(8)).unwrap_or_default();
        let (lengths, rest) = rest.split_at_checked(self.blocks.saturating_mul(4)).unwrap_or_default();
        let (ends, rest) = rest.split_at_checked(self.blocks.saturating_mul(4)).unwrap_or_default();
        let (prefix, heap) = rest.split_at_checked(self.prefix_len).unwrap_or_default();
        Arrays {
            heads: heads.as_chunks().0,
            offsets: offsets.as_chunks().0,
            lengths: lengths.as_chunks().0,
            ends: ends.as_chunks().0,
            prefix,
            heap,
        }
    }

    /// How many data blocks there are.
    pub(super) fn len(&self) -> usize {
        self.blocks
    }

    /// The first block that may hold `user_key`. None if every key of the table is smaller.
    #[inline]
    pub(super) fn find(&self, user_key: &[u8]) -> Option<usize> {
        let found = self.arrays().lower_bound(user_key);
        (found < self.blocks).then_some(found)
    }

    /// Whether versions of `user_key` may go on in the block after `block`.
    pub(super) fn continues_after(&self, block: usize, user_key: &[u8]) -> bool {
        let arrays = self.arrays();
        user_key.strip_prefix(arrays.prefix).is_some_and(|suffix| arrays.suffix(block) == suffix)
    }

    pub(super) fn handle(&self, block: usize) -> Result<BlockHandle> {
        self.arrays().handle(block).ok_or_else(|| malformed("there is no data block of that number"))
    }

    /// How `user_key` compares to the separator of `block`.
    pub(super) fn compare_to_separator(&self, user_key: &[u8], block: usize) -> Ordering {
        let arrays = self.arrays();
        let (front, rest) = user_key.split_at(user_key.len().min(arrays.prefix.len()));
        front.cmp(arrays.prefix).then_with(|| rest.cmp(arrays.suffix(block)))
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.heap_bytes()
    }
}

impl<'a> Arrays<'a> {
    fn check(&self, limit: u64) -> Result<()> {
        let (mut heap_end, mut file_end, mut last_head) = (0, 0, 0);
        for (block, end) in self.ends.iter().enumerate() {
            let end = u32::from_le_bytes(*end) as usize;
            if end < heap_end || end > self.heap.len() {
                return Err(malformed("the separators do not ascend within the heap"));
            }
            heap_end = end;
            let handle = self.handle(block).ok_or_else(|| malformed("a handle is missing"))?;
            let handle_end = handle.end().filter(|&end| handle.offset >= file_end && end <= limit);
            file_end = handle_end.ok_or_else(|| malformed("the data blocks do not ascend within the file"))?;
            let own_head = self.head(block).filter(|&own| own >= last_head && own == head(self.suffix(block)));
            last_head = own_head.ok_or_else(|| malformed("the heads do not ascend or belong to other separators"))?;
        }
        if heap_end == self.heap.len() { Ok(()) } else { Err(malformed("the heap is longer than the separators")) }
    }

    fn head(&self, block: usize) -> Option<u64> {
        self.heads.get(block).map(|bytes| u64::from_be_bytes(*bytes))
    }

    fn handle(&self, block: usize) -> Option<BlockHandle> {
        let offset = u64::from_le_bytes(*self.offsets.get(block)?);
        let len = u64::from(u32::from_le_bytes(*self.lengths.get(block)?));
        Some(BlockHandle { offset, len })
    }

    /// The separator of `block` without the prefix.
    fn suffix(&self, block: usize) -> &'a [u8] {
        let end = |number: usize| self.ends.get(number).map(|bytes| u32::from_le_bytes(*bytes) as usize);
        let start = block.checked_sub(1).and_then(end).unwrap_or(0);
        end(block).and_then(|end| self.heap.get(start..end)).unwrap_or_default()
    }

    /// The first block whose separator is at or above `user_key`, or the number of blocks.
    #[inline]
    fn lower_bound(&self, user_key: &[u8]) -> usize {
        let Some(suffix) = user_key.strip_prefix(self.prefix) else {
            // All separators begin with the prefix, the key does not: it is below all of them or above.
            return if user_key < self.prefix { 0 } else { self.heads.len() };
        };
        let target = head(suffix);
        let first = self.heads.partition_point(|bytes| u64::from_be_bytes(*bytes) < target);
        match self.head(first) {
            Some(tied) if tied == target => self.lower_bound_of_ties(first, target, suffix),
            _ => first,
        }
    }

    /// The same among the blocks from `first` on whose heads are `target`.
    fn lower_bound_of_ties(&self, first: usize, target: u64, suffix: &[u8]) -> usize {
        let ties = self.heads.get(first..).unwrap_or_default();
        let count = ties.partition_point(|bytes| u64::from_be_bytes(*bytes) == target);
        let (mut low, mut high) = (first, first.saturating_add(count));
        while low < high {
            let middle = low.midpoint(high);
            if self.suffix(middle) < suffix {
                low = middle.saturating_add(1);
            } else {
                high = middle;
            }
        }
        low
    }
}

/// Collects separators and handles: `add* finish`.
#[derive(Default)]
pub(super) struct IndexBuilder {
    separators: Vec<u8>,
    ends: Vec<usize>,
    handles: Vec<BlockHandle>,
}

impl IndexBuilder {
    /// Adds a block. `next_first` is the first user key of the next block, None after the last one.
    pub(super) fn add(&mut self, handle: BlockHandle, last_key: &[u8], next_first: Option<&[u8]>) {
        match next_first {
            Some(next) => append_separator(&mut self.separators, last_key, next),
            None => self.separators.extend_from_slice(last_key),
        }
        self.ends.push(self.separators.len());
        self.handles.push(handle);
    }

    /// About how large the block is by now.
    pub(super) fn estimated_bytes(&self) -> usize {
        let arrays = self.handles.len().saturating_mul(BYTES_PER_BLOCK);
        arrays.saturating_add(self.separators.len()).saturating_add(HEADER_BYTES)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let of_ends = self.ends.capacity().saturating_mul(size_of::<usize>());
        let of_handles = self.handles.capacity().saturating_mul(size_of::<BlockHandle>());
        self.separators.capacity().saturating_add(of_ends).saturating_add(of_handles)
    }

    fn separator(&self, block: usize) -> &[u8] {
        let end = |number: usize| self.ends.get(number).copied();
        let start = block.checked_sub(1).and_then(end).unwrap_or(0);
        end(block).and_then(|end| self.separators.get(start..end)).unwrap_or_default()
    }

    /// The block's bytes. Fails if the table is too large for 32-bit lengths.
    pub(super) fn finish(&self) -> Result<Vec<u8>> {
        let blocks = self.handles.len();
        // Separators ascend: what the first and the last have in common, all have.
        let prefix_len = common_prefix(self.separator(0), self.separator(blocks.saturating_sub(1)));
        let suffix = |block: usize| self.separator(block).get(prefix_len..).unwrap_or_default();
        let heap_len: usize = (0..blocks).map(|block| suffix(block).len()).sum();
        let mut out = Vec::with_capacity(self.estimated_bytes());
        for len in [blocks, prefix_len, heap_len, 0] {
            put_u32(&mut out, narrow(len as u64)?);
        }
        (0..blocks).for_each(|block| out.extend_from_slice(&head(suffix(block)).to_be_bytes()));
        self.handles.iter().for_each(|handle| put_u64(&mut out, handle.offset));
        for handle in &self.handles {
            put_u32(&mut out, narrow(handle.len)?);
        }
        let mut end = 0_u64;
        for block in 0..blocks {
            end = end.saturating_add(suffix(block).len() as u64);
            put_u32(&mut out, narrow(end)?);
        }
        out.extend_from_slice(self.separator(0).get(..prefix_len).unwrap_or_default());
        (0..blocks).for_each(|block| out.extend_from_slice(suffix(block)));
        Ok(out)
    }
}

fn narrow(number: u64) -> Result<u32> {
    u32::try_from(number).map_err(|_| {
        Error::invalid_argument(format!("a table's index holds numbers below 4 GiB, not {number}: use smaller tables"))
    })
}

/// Appends a short key that is at or above `last` and below `next`; `last` itself where the two are equal.
fn append_separator(out: &mut Vec<u8>, last: &[u8], next: &[u8]) {
    let common = common_prefix(last, next);
    let (Some(&a), Some(&b)) = (last.get(common), next.get(common)) else {
        // `last` is a prefix of `next`, or they are equal.
        return out.extend_from_slice(last);
    };
    out.extend_from_slice(last.get(..common).unwrap_or_default());
    let after = common.saturating_add(1);
    if after < next.len() {
        out.push(b);
    } else if a.saturating_add(1) < b {
        out.push(a.saturating_add(1));
    } else {
        // `next` is `last[..common]` and one byte that is greater by one: go past `last` after that byte.
        out.push(a);
        append_successor(out, last.get(after..).unwrap_or_default());
    }
}

/// Appends a short string that is at or above `bytes`: up to the first byte that can be raised, raised.
fn append_successor(out: &mut Vec<u8>, bytes: &[u8]) {
    let raisable = bytes.iter().position(|&byte| byte < 0xff);
    match raisable.filter(|at| at.saturating_add(1) < bytes.len()) {
        Some(at) => {
            out.extend_from_slice(bytes.get(..at).unwrap_or_default());
            out.extend(bytes.get(at).map(|byte| byte.saturating_add(1)));
        }
        None => out.extend_from_slice(bytes),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use proptest::prelude::*;

    fn handle(block: usize) -> BlockHandle {
        BlockHandle { offset: block as u64 * 100, len: 95 }
    }

    fn separator(last: &[u8], next: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        append_separator(&mut out, last, next);
        out
    }

    /// The index of blocks given by their first and last keys.
    fn index(blocks: &[(Vec<u8>, Vec<u8>)]) -> Index {
        let mut builder = IndexBuilder::default();
        for (block, (_, last)) in blocks.iter().enumerate() {
            builder.add(handle(block), last, blocks.get(block + 1).map(|(first, _)| &first[..]));
        }
        let limit = blocks.len() as u64 * 100;
        Index::parse(SharedBytes::copy_of(&builder.finish().unwrap()), limit).ok().unwrap()
    }

    #[test]
    fn golden_bytes() {
        let mut builder = IndexBuilder::default();
        builder.add(BlockHandle { offset: 0, len: 4000 }, b"user:apple", Some(b"user:carrot"));
        builder.add(BlockHandle { offset: 0x1_0000_0000, len: 5 }, b"user:dill", None);
        let expected = [
            b"\x02\0\0\0\x05\0\0\0\x05\0\0\0\0\0\0\0".as_slice(),
            b"c\0\0\0\0\0\0\0dill\0\0\0\0",
            b"\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0",
            b"\xa0\x0f\0\0\x05\0\0\0",
            b"\x01\0\0\0\x05\0\0\0",
            b"user:",
            b"cdill",
        ]
        .concat();
        assert_eq!(builder.finish().unwrap(), expected);
    }

    #[test]
    fn separators_are_short() {
        let cases: [(&[u8], &[u8], &[u8]); 10] = [
            (b"apple", b"carrot", b"c"),
            (b"apple", b"c", b"b"),
            (b"apple", b"b", b"aq"),
            (b"a\xff\xffx1", b"b", b"a\xff\xffy"),
            (b"a\xff", b"b", b"a\xff"),
            (b"abc", b"abcd", b"abc"),
            (b"", b"a", b""),
            (b"same", b"same", b"same"),
            (b"key00015", b"key00016", b"key00015"),
            (b"key1999", b"key2000", b"key2"),
        ];
        for (last, next, expected) in cases {
            assert_eq!(separator(last, next), expected, "{} | {}", last.escape_ascii(), next.escape_ascii());
        }
    }

    #[test]
    fn versions_over_several_blocks_are_found_in_the_first_of_them() {
        let of = |first: &[u8], last: &[u8]| (first.to_vec(), last.to_vec());
        let index = index(&[of(b"a", b"k"), of(b"k", b"k"), of(b"k", b"p"), of(b"q", b"z")]);
        assert_eq!(index.find(b"k"), Some(0));
        assert!(index.continues_after(0, b"k"));
        assert!(index.continues_after(1, b"k"));
        assert!(!index.continues_after(2, b"k"));
        assert_eq!(index.find(b"l"), Some(2));
        assert_eq!(index.find(b"z"), Some(3));
        assert_eq!(index.find(b"za"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn separators_separate(a in bytes(), b in bytes()) {
            let (last, next) = if a <= b { (a, b) } else { (b, a) };
            let separator = separator(&last, &next);
            prop_assert!(separator >= last);
            prop_assert!(separator < next || (last == next && separator == last));
            prop_assert!(separator.len() <= last.len().max(1));
        }

        #[test]
        fn find_agrees_with_a_linear_search(
            mut keys in proptest::collection::vec(bytes(), 2..80),
            prefix in prop_oneof![Just(vec![]), Just(b"shared/prefix/longer/than/a/head/".to_vec())],
            probes in proptest::collection::vec(bytes(), 30),
        ) {
            keys.sort();
            let with_prefix = |key: &[u8]| [&prefix[..], key].concat();
            let blocks: Vec<_> = keys.as_chunks::<2>().0.iter().map(|[a, b]| (with_prefix(a), with_prefix(b))).collect();
            let index = index(&blocks);
            prop_assert_eq!(index.len(), blocks.len());
            let bare = probes.iter().cloned().chain([prefix.get(..3).unwrap_or_default().to_vec()]);
            for probe in keys.iter().chain(&probes).map(|key| with_prefix(key)).chain(bare) {
                let found = index.find(&probe);
                let holding = blocks.iter().position(|(first, last)| *first <= probe && probe <= *last);
                if holding.is_some() {
                    prop_assert_eq!(found, holding, "a block whose range holds the key is found");
                }
                let linear = (0..blocks.len()).find(|&b| index.compare_to_separator(&probe, b) != Ordering::Greater);
                prop_assert_eq!(found, linear);
            }
        }

        #[test]
        fn changed_bytes_never_panic(at: usize, byte: u8, probe in bytes()) {
            let of = |last: &[u8]| (last.to_vec(), last.to_vec());
            let mut bytes = index(&[of(b"k1"), of(b"k2"), of(b"k3longer")]).bytes.to_vec();
            let len = bytes.len();
            bytes[at % len] = byte;
            if let Ok(index) = Index::parse(SharedBytes::copy_of(&bytes), 300) {
                let _ = index.find(&probe).map(|found| index.handle(found).unwrap());
            }
        }
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0_u8), Just(1), Just(0xfe), Just(0xff), any::<u8>()];
        proptest::collection::vec(byte, 0..14)
    }

    #[test]
    fn huge_counts_and_blocks_outside_the_file_are_corruption() {
        let refused = |bytes: &[u8], limit| {
            Index::parse(SharedBytes::copy_of(bytes), limit).err().map(|e| e.kind()) == Some(ErrorKind::Corruption)
        };
        let of = |last: &[u8]| (last.to_vec(), last.to_vec());
        let good = index(&[of(b"a"), of(b"b")]).bytes.to_vec();
        assert!(!refused(&good, 200));
        assert!(refused(&good, 199), "the last block reaches over the limit");
        for at in [0, 4, 8] {
            let mut bytes = good.clone();
            bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
            assert!(refused(&bytes, 200));
        }
        for len in 0..good.len() {
            assert!(refused(&good[..len], 200));
        }
        let mut swapped = good.clone();
        swapped[32..40].copy_from_slice(&good[40..48]);
        assert!(refused(&swapped, 200), "offsets that do not ascend");
    }
}
