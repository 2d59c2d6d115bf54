//! The one hash of user keys: XXH3-64 under a random key per database. It decides bits in files, so its output is part
//! of the format: golden vectors below, and the hash id and key of a table stand in its own filter header.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The secret of a database's hashing: drawn at creation, kept in the manifest, copied into every filter header.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct HashKey(pub(crate) [u8; 16]);

/// Which hash function a filter was built with, as stored.
pub(crate) const HASH_ID_XXH3: u8 = 1;

/// A user key's 64-bit hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeyHash(pub(crate) u64);

impl HashKey {
    /// XXH3-64 of the key seeded with the first word, mixed with the second: the seed alone must not be learnt from
    /// hashes, and promises nothing more (XXH3 is no PRF).
    #[inline]
    pub(crate) fn hash(&self, user_key: &[u8]) -> KeyHash {
        let (seed, whitener) = self.words();
        KeyHash(mix64(xxh3_64_with_seed(user_key, seed) ^ whitener))
    }

    #[inline]
    fn words(&self) -> (u64, u64) {
        let word = u128::from_le_bytes(self.0);
        (word as u64, (word >> 64) as u64)
    }
}

/// Never shown: it is as secret as the files.
impl std::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HashKey(…)")
    }
}

/// The finalizer of MurmurHash3 in its "variant 13" constants (Stafford 2011): a bijection whose every output bit
/// depends on every input bit.
#[inline]
pub(crate) fn mix64(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_an_independent_xxh3() {
        let key = HashKey(*b"0123456789abcdef");
        let (seed, whitener) = key.words();
        let bytes: Vec<u8> = (0..600_u32).map(|i| (i * 7 + 3) as u8).collect();
        for len in [0, 1, 3, 4, 8, 9, 16, 17, 128, 129, 240, 241, 600] {
            let other = twox_hash::XxHash3_64::oneshot_with_seed(seed, &bytes[..len]);
            assert_eq!(key.hash(&bytes[..len]).0, mix64(other ^ whitener), "length {len}");
        }
    }

    #[test]
    fn another_key_gives_another_hash() {
        assert_ne!(HashKey([0; 16]).hash(b"k"), HashKey([1; 16]).hash(b"k"));
        let mut high = [0; 16];
        high[15] = 1;
        assert_ne!(HashKey([0; 16]).hash(b"k"), HashKey(high).hash(b"k"));
    }
}
