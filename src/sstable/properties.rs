//! The properties: what a table says of itself. A tagged map:
//!
//! ```text
//! (tag varint | len varint | len bytes) *     ascending by tag, up to the end of the block
//!
//!  1 entries              7 smallest seqno         13 filter bytes         19 filter, for people
//!  2 distinct user keys   8 largest seqno          14 created at           20 compression, for people
//!  3 tombstones           9 raw key bytes          15 oldest entry time
//!  4 smallest key        10 raw value bytes        16 mean block bytes
//!  5 largest key         11 data bytes stored      17 data blocks
//!  6 (not given out)     12 index bytes            18 (not given out)
//! ```
//!
//! Numbers are varints; keys are the user key and then the tag as u64. A number that is missing is 0, a tag that is not
//! known is ignored.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use crate::coding::{Decoder, put_bytes, put_u64, put_varint};
use crate::error::{Error, Result};
use crate::key::{InternalKey, InternalKeyBuf, SeqNo, Tag};

/// What a table says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Properties {
    /// Versions of all kinds.
    pub(crate) entries: u64,
    pub(crate) distinct_user_keys: u64,
    /// Entries that are point tombstones.
    pub(crate) tombstones: u64,
    /// The first entry's key. None if there is no entry.
    pub(crate) smallest: Option<InternalKeyBuf>,
    /// The last entry's key. None if there is no entry.
    pub(crate) largest: Option<InternalKeyBuf>,
    pub(crate) smallest_seqno: SeqNo,
    pub(crate) largest_seqno: SeqNo,
    /// User keys of all entries, uncompressed, without tags.
    pub(crate) raw_key_bytes: u64,
    pub(crate) raw_value_bytes: u64,
    /// Data blocks as stored: compressed, with trailers, without padding between them.
    pub(crate) data_bytes: u64,
    pub(crate) data_blocks: u64,
    /// The index block without its trailer.
    pub(crate) index_bytes: u64,
    /// The filter block without its trailer; 0 if there is none.
    pub(crate) filter_bytes: u64,
    /// Seconds since 1970-01-01 UTC.
    pub(crate) created_at: u64,
    /// When the oldest entry was written, in the same seconds; 0 if that is not known.
    pub(crate) oldest_entry_time: u64,
    /// `data_bytes / data_blocks`.
    pub(crate) mean_block_bytes: u64,
    /// Filter kind and size, for people.
    pub(crate) filter: String,
    /// The compression asked for, for people: blocks name their own.
    pub(crate) compression: String,
}

const TAG_SMALLEST: u64 = 4;
const TAG_LARGEST: u64 = 5;
const TAG_FILTER: u64 = 19;
const TAG_COMPRESSION: u64 = 20;

impl Properties {
    /// The numbers under their tags, in one place for both directions.
    fn numbers(&mut self) -> [(u64, &mut u64); 14] {
        [
            (1, &mut self.entries),
            (2, &mut self.distinct_user_keys),
            (3, &mut self.tombstones),
            (7, &mut self.smallest_seqno),
            (8, &mut self.largest_seqno),
            (9, &mut self.raw_key_bytes),
            (10, &mut self.raw_value_bytes),
            (11, &mut self.data_bytes),
            (12, &mut self.index_bytes),
            (13, &mut self.filter_bytes),
            (14, &mut self.created_at),
            (15, &mut self.oldest_entry_time),
            (16, &mut self.mean_block_bytes),
            (17, &mut self.data_blocks),
        ]
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut copy = self.clone();
        let mut fields: Vec<(u64, Vec<u8>)> = copy.numbers().map(|(tag, number)| (tag, varint(*number))).into();
        let keys = [(TAG_SMALLEST, &self.smallest), (TAG_LARGEST, &self.largest)];
        fields.extend(keys.into_iter().filter_map(|(tag, key)| Some((tag, key_bytes(key.as_ref()?)))));
        fields.push((TAG_FILTER, self.filter.clone().into_bytes()));
        fields.push((TAG_COMPRESSION, self.compression.clone().into_bytes()));
        fields.sort_by_key(|(tag, _)| *tag);
        let mut out = Vec::new();
        for (tag, bytes) in fields {
            put_varint(&mut out, tag);
            put_bytes(&mut out, &bytes);
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut decoder = Decoder::new(bytes);
        let mut properties = Properties::default();
        let mut last = None;
        while !decoder.is_empty() {
            let tag = decoder.varint("tag of a table property")?;
            if last.replace(tag).is_some_and(|last| last >= tag) {
                return Err(Error::corruption("the tags of the table properties do not ascend"));
            }
            properties.set(tag, decoder.bytes("table property")?)?;
        }
        properties.check()?;
        Ok(properties)
    }

    fn set(&mut self, tag: u64, bytes: &[u8]) -> Result<()> {
        match tag {
            TAG_SMALLEST => self.smallest = Some(decode_key(bytes)?),
            TAG_LARGEST => self.largest = Some(decode_key(bytes)?),
            TAG_FILTER => self.filter = String::from_utf8_lossy(bytes).into_owned(),
            TAG_COMPRESSION => self.compression = String::from_utf8_lossy(bytes).into_owned(),
            _ => {
                if let Some((_, number)) = self.numbers().into_iter().find(|(known, _)| *known == tag) {
                    *number = Decoder::new(bytes).varint("number of a table property")?;
                }
            }
        }
        Ok(())
    }

    /// A table with entries has bounds, in order.
    fn check(&self) -> Result<()> {
        let in_order = match (&self.smallest, &self.largest) {
            (None, None) => self.entries == 0,
            (Some(smallest), Some(largest)) => self.entries > 0 && smallest.as_ref() <= largest.as_ref(),
            _ => false,
        };
        if in_order { Ok(()) } else { Err(Error::corruption("the table's bounds are missing or out of order")) }
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        let key = |key: &Option<InternalKeyBuf>| key.as_ref().map_or(0, |key| key.user_key.capacity());
        [key(&self.smallest), key(&self.largest), self.filter.capacity(), self.compression.capacity()]
            .into_iter()
            .fold(0, usize::saturating_add)
    }
}

fn varint(number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, number);
    out
}

fn key_bytes(key: &InternalKeyBuf) -> Vec<u8> {
    let mut out = key.user_key.clone();
    put_u64(&mut out, key.tag.0);
    out
}

fn decode_key(bytes: &[u8]) -> Result<InternalKeyBuf> {
    let (user_key, tag) =
        bytes.split_last_chunk::<8>().ok_or_else(|| Error::corruption("a bound of the table is shorter than a tag"))?;
    Ok(InternalKey::new(user_key, Tag(u64::from_le_bytes(*tag))).to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;
    use crate::key::ValueKind;

    fn sample() -> Properties {
        let mut properties = Properties {
            smallest: Some(InternalKey::new(b"", Tag::new(9, ValueKind::Put)).to_owned()),
            largest: Some(InternalKey::new(b"zz", Tag::new(1, ValueKind::Delete)).to_owned()),
            filter: "blocked".into(),
            compression: "lz4".into(),
            ..Properties::default()
        };
        for (tag, number) in properties.numbers() {
            *number = tag * 100;
        }
        properties
    }

    #[test]
    fn golden_bytes() {
        let expected = [
            b"\x01\x01\x64\x02\x02\xc8\x01\x03\x02\xac\x02".as_slice(),
            b"\x04\x08\x01\x09\0\0\0\0\0\0",
            b"\x05\x0azz\x00\x01\0\0\0\0\0\0",
            b"\x07\x02\xbc\x05\x08\x02\xa0\x06\x09\x02\x84\x07\x0a\x02\xe8\x07\x0b\x02\xcc\x08\x0c\x02\xb0\x09",
            b"\x0d\x02\x94\x0a\x0e\x02\xf8\x0a\x0f\x02\xdc\x0b\x10\x02\xc0\x0c\x11\x02\xa4\x0d",
            b"\x13\x07blocked\x14\x03lz4",
        ]
        .concat();
        assert_eq!(sample().encode(), expected);
        assert_eq!(Properties::decode(&expected).unwrap(), sample());
    }

    #[test]
    fn unknown_tags_are_ignored() {
        let mut bytes = sample().encode();
        bytes.extend_from_slice(b"\x63\x05later");
        assert_eq!(Properties::decode(&bytes).unwrap(), sample());
    }

    #[test]
    fn entries_without_bounds_huge_lengths_and_cut_fields_are_corruption() {
        assert!(Properties::decode(b"").is_ok());
        for bad in [&b"\x01\x01\x05"[..], b"\x01\xff\xff\xff\xff\xff\x0f", b"\x01", b"\x04\x03abc", b"\x02\0\x01\0"] {
            assert!(Properties::decode(bad).is_err(), "{bad:?}");
        }
        let reversed = Properties { smallest: sample().largest, largest: sample().smallest, ..sample() };
        assert!(Properties::decode(&reversed.encode()).is_err());
    }
}
