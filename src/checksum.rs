//! CRC-32 (IEEE, crc32fast) as stored in files: masked as in LevelDB, since the CRC of bytes that embed their own CRC
//! is weak, and started from an identity (a block's table id and offset, a log chunk's offset), so that a misplaced block
//! fails like a damaged one.

/// An incremental checksum.
#[derive(Clone, Debug)]
pub(crate) struct Checksum(crc32fast::Hasher);

const MASK_DELTA: u32 = 0xa282_ead8;

impl Checksum {
    /// Starts from nothing but the bytes to come.
    pub(crate) fn new() -> Self {
        Checksum(crc32fast::Hasher::new())
    }

    /// Starts from a table's identity and the block's place in it.
    pub(crate) fn for_block(table_id: u64, offset: u64) -> Self {
        let mut checksum = Self::new();
        checksum.update(&table_id.to_le_bytes());
        checksum.update(&offset.to_le_bytes());
        checksum
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The masked CRC-32, as stored.
    pub(crate) fn finish(self) -> u32 {
        self.0.finalize().rotate_right(15).wrapping_add(MASK_DELTA)
    }
}

/// The masked CRC-32 of `bytes`.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    let mut checksum = Checksum::new();
    checksum.update(bytes);
    checksum.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_values() {
        // CRC-32/IEEE of "123456789" is cbf43926 (the catalogue's check value); masked: rotated right by 15, plus a282ead8.
        assert_eq!(checksum(b"123456789"), 0xcbf4_3926_u32.rotate_right(15).wrapping_add(0xa282_ead8));
        assert_eq!(checksum(b""), 0xa282_ead8);
    }

    #[test]
    fn a_block_in_another_place_or_table_has_another_checksum() {
        let sum = |id, offset| {
            let mut c = Checksum::for_block(id, offset);
            c.update(b"block");
            c.finish()
        };
        assert_eq!(sum(1, 4096), sum(1, 4096));
        assert_ne!(sum(1, 4096), sum(1, 8192));
        assert_ne!(sum(1, 4096), sum(2, 4096));
    }
}
