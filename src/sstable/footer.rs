//! The footer: the last 64 bytes of a table, the only part at a known place.
//!
//! ```text
//!  0  format version         u32     0 until the first release
//!  4  reserved               u32     0
//!  8  table id               u64     random; the manifest has it, too
//! 16  incompatible features  u64     a bit unknown to the reader: Unsupported, nothing is read
//! 24  compatible features    u64     a bit unknown to the reader: ignored
//! 32  metaindex offset       u64
//! 40  metaindex length       u64     without its trailer
//! 48  reserved               u32     0
//! 52  checksum               u32     masked CRC-32 of bytes 0..52
//! 56  magic                  8 bytes
//! ```
//!
//! Size, magic, checksum and version stay where they are in every version to come.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use crate::block::BlockHandle;
use crate::checksum::checksum;
use crate::coding::{Decoder, put_u32, put_u64};
use crate::error::{Error, Result};

pub(super) const FOOTER_BYTES: usize = 64;
const MAGIC: [u8; 8] = *b"sift.sst";
const FORMAT_VERSION: u32 = 0;
const CHECKED_BYTES: usize = 52;

/// Bits that this version understands. None are given out yet.
const KNOWN_INCOMPATIBLE: u64 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) table_id: u64,
    pub(super) incompatible: u64,
    pub(super) compatible: u64,
    pub(super) metaindex: BlockHandle,
}

impl Footer {
    pub(super) fn new(table_id: u64, metaindex: BlockHandle) -> Self {
        Footer { table_id, incompatible: 0, compatible: 0, metaindex }
    }

    pub(super) fn append(&self, out: &mut Vec<u8>) {
        let mut bytes = Vec::with_capacity(FOOTER_BYTES);
        put_u32(&mut bytes, FORMAT_VERSION);
        put_u32(&mut bytes, 0);
        for word in [self.table_id, self.incompatible, self.compatible, self.metaindex.offset, self.metaindex.len] {
            put_u64(&mut bytes, word);
        }
        put_u32(&mut bytes, 0);
        let sum = checksum(&bytes);
        put_u32(&mut bytes, sum);
        bytes.extend_from_slice(&MAGIC);
        out.extend_from_slice(&bytes);
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut decoder = Decoder::new(bytes);
        let checked = decoder.take(CHECKED_BYTES, "table footer")?;
        let expected = decoder.u32("footer checksum")?;
        if decoder.rest() != MAGIC {
            return Err(Error::corruption(
                "the file does not end as a table does: it is no table, or cut short; restore it from a backup",
            ));
        }
        let found = checksum(checked);
        if found != expected {
            return Err(Error::corruption(format!(
                "footer checksum is {found:08x}, expected {expected:08x}; restore the file from a backup"
            )));
        }
        Self::decode_checked(Decoder::new(checked))
    }

    fn decode_checked(mut decoder: Decoder<'_>) -> Result<Self> {
        let version = decoder.u32("format version")?;
        let _reserved = decoder.u32("reserved")?;
        let table_id = decoder.u64("table id")?;
        let incompatible = decoder.u64("incompatible features")?;
        let compatible = decoder.u64("compatible features")?;
        let metaindex = BlockHandle { offset: decoder.u64("metaindex offset")?, len: decoder.u64("metaindex length")? };
        let unknown = incompatible & !KNOWN_INCOMPATIBLE;
        if version != FORMAT_VERSION || unknown != 0 {
            return Err(Error::unsupported(format!(
                "table format version {version} with incompatible features {unknown:#x}: this version reads \
                 {FORMAT_VERSION} without them; open the database with the version that wrote it"
            )));
        }
        Ok(Footer { table_id, incompatible, compatible, metaindex })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn bytes_of(footer: Footer) -> Vec<u8> {
        let mut bytes = Vec::new();
        footer.append(&mut bytes);
        bytes
    }

    fn footer() -> Footer {
        Footer::new(0x0102_0304_0506_0708, BlockHandle { offset: 0x1000, len: 0x22 })
    }

    #[test]
    fn golden_bytes() {
        let expected = [
            b"\0\0\0\0\0\0\0\0".as_slice(),
            b"\x08\x07\x06\x05\x04\x03\x02\x01",
            b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            b"\x00\x10\0\0\0\0\0\0\x22\0\0\0\0\0\0\0",
            b"\0\0\0\0\xf6\xae\x29\xc2", // the CRC-32 by zlib, masked
            b"sift.sst",
        ]
        .concat();
        assert_eq!(bytes_of(footer()), expected);
    }

    #[test]
    fn every_flipped_bit_and_every_length_is_corruption() {
        let good = bytes_of(footer());
        assert_eq!(Footer::decode(&good).unwrap(), footer());
        for bit in 0..FOOTER_BYTES * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Footer::decode(&bytes).unwrap_err().kind(), ErrorKind::Corruption, "bit {bit}");
        }
        for len in 0..FOOTER_BYTES {
            assert_eq!(Footer::decode(&good[..len]).unwrap_err().kind(), ErrorKind::Corruption);
        }
    }

    #[test]
    fn an_unknown_incompatible_feature_or_version_is_unsupported_and_a_compatible_one_is_not() {
        let error = Footer::decode(&bytes_of(Footer { incompatible: 1 << 63, ..footer() })).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let newer = Footer { compatible: u64::MAX, ..footer() };
        assert_eq!(Footer::decode(&bytes_of(newer)).unwrap(), newer);
        let mut bytes = bytes_of(footer());
        bytes[0] = 1;
        let sum = checksum(&bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..56].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Footer::decode(&bytes).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
