//! Randomness, behind a seam: the database's hash key, table ids and filter tweaks. `Options::seed` fixes all of it.

use crate::error::{Error, ErrorKind, Result};
use crate::hash::mix64;

/// A source of random words. Each word is named by a purpose and a number, so that under a seed the same file gets the
/// same words whatever else happened before.
#[derive(Clone, Debug)]
pub(crate) enum Entropy {
    /// The operating system's generator.
    System,
    /// SplitMix64 over (seed, purpose, number).
    Seeded(u64),
}

/// What a random word is for.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(crate) enum Purpose {
    DatabaseId = 1,
    HashKeyLow = 2,
    HashKeyHigh = 3,
    TableId = 4,
    FilterTweak = 5,
}

impl Entropy {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        seed.map_or(Entropy::System, Entropy::Seeded)
    }

    /// A random 64-bit word for `purpose` number `number`.
    pub(crate) fn word(&self, purpose: Purpose, number: u64) -> Result<u64> {
        match self {
            Entropy::System => {
                let mut bytes = [0_u8; 8];
                let filled = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())
                    .map_err(|e| Error::new(ErrorKind::Io, format!("the system gives no random bytes: {e}")))?;
                if filled != bytes.len() {
                    return Err(Error::new(ErrorKind::Io, "the system gave fewer random bytes than asked"));
                }
                Ok(u64::from_le_bytes(bytes))
            }
            Entropy::Seeded(seed) => Ok(mix(mix(mix(*seed).wrapping_add(purpose as u64)).wrapping_add(number))),
        }
    }
}

/// One step of SplitMix64 (Steele, Lea, Flood 2014).
fn mix(word: u64) -> u64 {
    mix64(word.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_fixes_every_word_and_no_seed_fixes_none() {
        let word = |seed, purpose, number| Entropy::new(seed).word(purpose, number).unwrap();
        assert_eq!(word(Some(7), Purpose::TableId, 1), word(Some(7), Purpose::TableId, 1));
        assert_ne!(word(Some(7), Purpose::TableId, 1), word(Some(7), Purpose::TableId, 2));
        assert_ne!(word(Some(7), Purpose::TableId, 1), word(Some(7), Purpose::FilterTweak, 1));
        assert_ne!(word(Some(7), Purpose::TableId, 1), word(Some(8), Purpose::TableId, 1));
        assert_ne!(word(None, Purpose::TableId, 1), word(None, Purpose::TableId, 1));
    }
}
