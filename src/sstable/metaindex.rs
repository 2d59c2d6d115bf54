//! The metaindex: which named blocks a table has beside its data, and where.
//!
//! ```text
//! (name_len varint | name | offset varint | length varint) *     ascending by name, up to the end of the block
//! ```
//!
//! Readers ignore names that they don't know; what must not be ignored is announced in the footer's feature words.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use crate::block::BlockHandle;
use crate::coding::{Decoder, put_bytes};
use crate::error::{Error, Result};
use std::collections::BTreeMap;

pub(super) const FILTER: &str = "filter";
pub(super) const INDEX: &str = "index";
pub(super) const PROPERTIES: &str = "properties";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Metaindex {
    blocks: BTreeMap<Vec<u8>, BlockHandle>,
}

impl Metaindex {
    pub(super) fn insert(&mut self, name: &str, handle: BlockHandle) {
        self.blocks.insert(name.as_bytes().to_vec(), handle);
    }

    pub(super) fn get(&self, name: &str) -> Option<BlockHandle> {
        self.blocks.get(name.as_bytes()).copied()
    }

    /// A block that no table is without.
    pub(super) fn require(&self, name: &str) -> Result<BlockHandle> {
        self.get(name).ok_or_else(|| Error::corruption(format!("the table's metaindex names no `{name}` block")))
    }

    pub(super) fn handles(&self) -> impl Iterator<Item = BlockHandle> + '_ {
        self.blocks.values().copied()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, handle) in &self.blocks {
            put_bytes(&mut out, name);
            handle.encode(&mut out);
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut decoder = Decoder::new(bytes);
        let mut blocks = BTreeMap::new();
        while !decoder.is_empty() {
            let name = decoder.bytes("name of a block")?.to_vec();
            let handle = BlockHandle::decode(&mut decoder)?;
            if blocks.last_key_value().is_some_and(|(last, _)| *last >= name) {
                return Err(Error::corruption("the names in the metaindex do not ascend"));
            }
            blocks.insert(name, handle);
        }
        Ok(Metaindex { blocks })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_and_unknown_names() {
        let mut metaindex = Metaindex::default();
        metaindex.insert(INDEX, BlockHandle { offset: 300, len: 7 });
        metaindex.insert("a later thing", BlockHandle { offset: 1, len: 2 });
        let bytes = metaindex.encode();
        assert_eq!(bytes, b"\x0da later thing\x01\x02\x05index\xac\x02\x07");
        let decoded = Metaindex::decode(&bytes).unwrap();
        assert_eq!(decoded, metaindex);
        assert_eq!(decoded.require(INDEX).unwrap(), BlockHandle { offset: 300, len: 7 });
        assert_eq!(decoded.get(FILTER), None);
        assert_eq!(decoded.require(PROPERTIES).unwrap_err().kind(), crate::error::ErrorKind::Corruption);
    }

    #[test]
    fn names_out_of_order_and_cut_entries_are_corruption() {
        assert!(Metaindex::decode(b"\x01b\x01\x02\x01a\x01\x02").is_err());
        assert!(Metaindex::decode(b"\x01a\x01\x02\x01a\x01\x02").is_err());
        assert!(Metaindex::decode(b"\x01a\x01").is_err());
        assert!(Metaindex::decode(b"\xff\xff\xff\xff\x0fa").is_err());
    }
}
