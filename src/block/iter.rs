//! A cursor over one data block, in both directions.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use crate::block::{Block, Entry, malformed};
use crate::error::{Error, Result};
use crate::iter::InternalIterator;
use crate::key::{InternalKey, MAX_KEY_BYTES, Tag};
use std::ops::Range;

/// Stands on an entry of a block, which it keeps alive. Every step forward consumes bytes, so a malformed block ends in
/// an error and never in a loop.
pub(crate) struct BlockIter {
    block: Block,
    /// The user key of the entry at `at`. When a step forward meets the end, the last entry's key stays.
    key: Vec<u8>,
    tag: Tag,
    value: Range<usize>,
    at: usize,
    next: usize,
    valid: bool,
    failed: Option<Error>,
}

impl BlockIter {
    /// On no entry, before a seek.
    pub(crate) fn new(block: Block) -> Self {
        BlockIter { block, key: Vec::new(), tag: Tag(0), value: 0..0, at: 0, next: 0, valid: false, failed: None }
    }

    /// Goes over to another block, on no entry; keeps its buffers.
    pub(crate) fn set_block(&mut self, block: Block) {
        self.block = block;
        self.rewind(0);
        self.valid = false;
        self.failed = None;
    }

    /// The key of the entry stood on, or of the last entry after a step or seek that met the end.
    pub(crate) fn last_seen(&self) -> InternalKey<'_> {
        InternalKey::new(&self.key, self.tag)
    }

    /// Stands on the last entry.
    #[cfg_attr(not(test), allow(dead_code, reason = "what reverse cursors will stand on"))]
    pub(crate) fn seek_to_last(&mut self) -> Result<bool> {
        let end = self.block.parts().entries.len();
        let found = self.stand_before(end);
        self.settle(found)
    }

    /// Moves back. Only while valid. The entries before it are decoded from their restart point.
    #[cfg_attr(not(test), allow(dead_code, reason = "what reverse cursors will stand on"))]
    pub(crate) fn prev(&mut self) -> Result<bool> {
        if !self.valid {
            return self.failed.clone().map_or(Ok(false), Err);
        }
        let found = self.stand_before(self.at);
        self.settle(found)
    }

    /// Stands on the entry that ends where `end` is: at a later entry's beginning, or at the entries' end.
    #[cfg_attr(not(test), allow(dead_code, reason = "what reverse cursors will stand on"))]
    fn stand_before(&mut self, end: usize) -> Result<bool> {
        if end == 0 {
            return Ok(false);
        }
        let restart = self.block.parts().restart_before(end);
        self.rewind(restart);
        while self.advance()? {
            match self.next.cmp(&end) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => return Ok(true),
                std::cmp::Ordering::Greater => break,
            }
        }
        Err(malformed("an entry reaches into the one after it"))
    }

    /// Prepares for `advance` to stand on the entry at restart point `offset`.
    fn rewind(&mut self, offset: usize) {
        self.key.clear();
        self.next = offset;
    }

    /// Stands on the entry at `next`.
    #[inline]
    fn advance(&mut self) -> Result<bool> {
        let entries = self.block.parts().entries;
        if self.next >= entries.len() {
            return Ok(false);
        }
        let entry = Entry::decode(entries, self.next)?;
        if entry.shared > self.key.len() {
            return Err(malformed("an entry shares more than its predecessor has"));
        }
        if entry.shared.saturating_add(entry.delta.len()) > MAX_KEY_BYTES {
            return Err(malformed("a key is longer than keys may be"));
        }
        self.key.truncate(entry.shared);
        self.key.extend_from_slice(entry.delta);
        self.at = self.next;
        (self.tag, self.value, self.next) = (entry.tag, entry.value, entry.next);
        Ok(true)
    }

    #[cfg_attr(not(test), allow(dead_code, reason = "what reverse cursors will stand on"))]
    fn advance_to(&mut self, target: InternalKey<'_>) -> Result<bool> {
        let restart = self.block.parts().seek_restart(target)?;
        self.rewind(restart);
        while self.advance()? {
            if self.last_seen() >= target {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn settle(&mut self, outcome: Result<bool>) -> Result<bool> {
        self.valid = matches!(outcome, Ok(true));
        self.failed = outcome.as_ref().err().cloned();
        outcome
    }
}

impl InternalIterator for BlockIter {
    fn seek_to_first(&mut self) -> Result<bool> {
        self.rewind(0);
        let found = self.advance();
        self.settle(found)
    }

    fn seek(&mut self, target: InternalKey<'_>) -> Result<bool> {
        let found = self.advance_to(target);
        self.settle(found)
    }

    #[inline]
    fn next(&mut self) -> Result<bool> {
        if !self.valid {
            return self.failed.clone().map_or(Ok(false), Err);
        }
        match self.advance() {
            Ok(true) => Ok(true),
            other => self.settle(other),
        }
    }

    fn valid(&self) -> bool {
        self.valid
    }

    fn key(&self) -> InternalKey<'_> {
        self.last_seen()
    }

    fn value(&self) -> &[u8] {
        self.block.bytes.get(self.value.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;
    use crate::block::{BlockAnswer, BlockBuilder};
    use crate::key::{InternalKeyBuf, ValueKind};
    use crate::value::SharedBytes;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// (user key, inverted sequence number) → value: ordered like internal keys.
    type Model = BTreeMap<(Vec<u8>, u64), Vec<u8>>;

    fn put(user_key: &[u8], seqno: u64) -> InternalKey<'_> {
        InternalKey::new(user_key, Tag::new(seqno, ValueKind::Put))
    }

    fn build(model: &Model, interval: usize, hash_index: bool) -> Block {
        let mut builder = BlockBuilder::new(interval, hash_index);
        for ((user_key, inverted), value) in model {
            builder.add(put(user_key, 1000 - inverted), value);
        }
        let block = Block::parse(SharedBytes::copy_of(builder.finish())).unwrap();
        block.check_restarts().unwrap();
        block
    }

    fn listed(model: &Model) -> Vec<(InternalKeyBuf, Vec<u8>)> {
        model.iter().map(|((k, inverted), v)| (put(k, 1000 - inverted).to_owned(), v.clone())).collect()
    }

    fn current(iter: &BlockIter) -> (InternalKeyBuf, Vec<u8>) {
        (iter.key().to_owned(), iter.value().to_vec())
    }

    fn models() -> impl Strategy<Value = Model> {
        let key = prop_oneof![
            proptest::collection::vec(0_u8..3, 0..4),
            proptest::collection::vec(prop_oneof![Just(0_u8), Just(255)], 0..12),
            (0_u8..20).prop_map(|n| [vec![b'p'; 200], vec![n]].concat()),
        ];
        let value = prop_oneof![
            9 => proptest::collection::vec(any::<u8>(), 0..9),
            1 => Just(vec![7; 70_000]),
        ];
        proptest::collection::btree_map((key, 0_u64..6), value, 1..80)
    }

    /// What a read of `user_key` at `snapshot` may answer, given that this block is all there is.
    fn expected(model: &Model, user_key: &[u8], snapshot: u64) -> (Option<(u64, Vec<u8>)>, bool) {
        let mut versions = model.range((user_key.to_vec(), 0)..=(user_key.to_vec(), u64::MAX));
        let newer = versions.clone().any(|((_, inverted), _)| 1000 - inverted > snapshot);
        let found = versions.find(|((_, inverted), _)| 1000 - inverted <= snapshot);
        (found.map(|((_, inverted), value)| (1000 - inverted, value.clone())), newer)
    }

    fn check_get(block: &Block, model: &Model, user_key: &[u8], snapshot: u64) {
        let (found, newer) = expected(model, user_key, snapshot);
        match block.get(user_key, snapshot).unwrap() {
            BlockAnswer::Found { tag, value } => assert_eq!(Some((tag.seqno(), value.to_vec())), found),
            BlockAnswer::NewerOnly => assert!(found.is_none() && newer),
            BlockAnswer::Absent => assert!(found.is_none() && !newer),
            BlockAnswer::PastEnd { newer: said } => {
                assert!(found.is_none());
                assert_eq!(said, newer);
                let last = model.last_key_value().unwrap().0;
                assert!((last.0.as_slice(), 1000 - last.1) <= (user_key, u64::MAX));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn cursor_and_get_agree_with_a_sorted_map(
            model in models(),
            interval in 1_usize..20,
            hash_index: bool,
            probes in proptest::collection::vec((proptest::collection::vec(0_u8..3, 0..4), 990_u64..1005), 20),
        ) {
            let block = build(&model, interval, hash_index);
            prop_assert_eq!(block.has_hash_index(), hash_index);
            let all = listed(&model);
            let mut iter = BlockIter::new(block.clone());

            let mut forwards = Vec::new();
            let mut more = iter.seek_to_first().unwrap();
            while more {
                forwards.push(current(&iter));
                more = iter.next().unwrap();
            }
            prop_assert!(forwards == all);
            let mut backwards = Vec::new();
            let mut more = iter.seek_to_last().unwrap();
            while more {
                backwards.push(current(&iter));
                more = iter.prev().unwrap();
            }
            backwards.reverse();
            prop_assert!(backwards == all);

            let stored = all.iter().map(|(key, _)| (key.user_key.clone(), key.tag.seqno()));
            for (user_key, seqno) in probes.into_iter().chain(stored) {
                for seqno in [seqno - 1, seqno] {
                    check_get(&block, &model, &user_key, seqno);
                    let target = put(&user_key, seqno);
                    let at = all.partition_point(|(key, _)| key.as_ref() < target);
                    prop_assert_eq!(iter.seek(target).unwrap(), at < all.len());
                    if at < all.len() {
                        prop_assert!(current(&iter) == all[at]);
                        prop_assert_eq!(iter.prev().unwrap(), at > 0);
                    }
                }
            }
        }

        #[test]
        fn malformed_bytes_end_in_errors(mut bytes in proptest::collection::vec(any::<u8>(), 0..60), at: usize, byte: u8) {
            // Either noise, or a good block with one byte changed.
            if at % 2 == 0 {
                let model = Model::from([((b"aa".to_vec(), 1), vec![1]), ((b"ab".to_vec(), 2), vec![2; 3])]);
                bytes = build(&model, 1, at % 4 == 0).bytes.to_vec();
                let len = bytes.len();
                bytes[(at / 4) % len] = byte;
            }
            let Ok(block) = Block::parse(SharedBytes::copy_of(&bytes)) else { return Ok(()) };
            let mut iter = BlockIter::new(block.clone());
            let mut steps = 0;
            let mut more = iter.seek_to_first();
            while let Ok(true) = more {
                steps += 1;
                more = iter.next();
            }
            prop_assert!(steps <= bytes.len());
            let mut more = iter.seek_to_last();
            while let Ok(true) = more {
                steps += 1;
                more = iter.prev();
            }
            prop_assert!(steps <= 2 * bytes.len());
            let _ = (iter.seek(put(b"ab", 5)), block.get(b"ab", 5));
        }
    }

    #[test]
    fn versions_over_many_restart_points_are_found_from_the_right_one() {
        let model: Model = (0..100).map(|inverted| ((b"hot".to_vec(), inverted), vec![inverted as u8])).collect();
        for hash_index in [false, true] {
            let block = build(&model, 4, hash_index);
            for snapshot in 895..=1001 {
                check_get(&block, &model, b"hot", snapshot);
            }
            assert!(matches!(block.get(b"hot", 900).unwrap(), BlockAnswer::PastEnd { newer: true }));
            assert!(matches!(block.get(b"hov", 900).unwrap(), BlockAnswer::PastEnd { .. } | BlockAnswer::Absent));
        }
    }

    #[test]
    fn an_error_sticks_until_the_next_good_seek() {
        let good = build(&Model::from([((b"a".to_vec(), 0), vec![])]), 1, false);
        // Two entries, of which the second claims to share nine bytes of a one-byte key.
        let bad = Block::parse(SharedBytes::copy_of(b"\0\x01\0\x01a\x09\x01\0\x01b\0\0\0\0\x01\0\0\0")).unwrap();
        let mut iter = BlockIter::new(bad);
        assert!(iter.seek_to_first().unwrap());
        let error = iter.next().unwrap_err();
        assert_eq!(error.kind(), crate::error::ErrorKind::Corruption);
        assert!(!iter.valid());
        assert!(iter.next().is_err() && iter.prev().is_err());
        iter.set_block(good);
        assert!(iter.seek_to_first().unwrap());
        assert!(!iter.next().unwrap());
    }

    #[test]
    fn a_value_shares_the_block() {
        let block = build(&Model::from([((b"a".to_vec(), 0), vec![9; 50])]), 1, false);
        let BlockAnswer::Found { value, .. } = block.get(b"a", 1000).unwrap() else { unreachable!() };
        // Three lengths of one byte, a tag of three, a key of one.
        assert!(std::ptr::eq(&raw const value[0], &raw const block.bytes[7]));
    }
}
