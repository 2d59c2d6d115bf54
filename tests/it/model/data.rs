//! The keys and values of the model test: few keys, so that they are overwritten, deleted and written again; all the
//! shapes that orders and encodings get wrong.

use super::rng::Rng;
use std::sync::Arc;

pub type Bytes = Arc<[u8]>;

/// The first keys of the pool are written most.
const HOT: usize = 12;
/// The last keys of the pool have the greatest length there is, and are seldom used.
const LONG: usize = 2;

/// The keys of a run, all different.
pub struct Pool(Vec<Bytes>);

impl Pool {
    pub fn new(rng: &mut Rng) -> Self {
        let mut keys: Vec<Vec<u8>> = vec![
            vec![],
            vec![0],
            vec![0, 0],
            vec![0; 8],
            vec![0xff],
            vec![0xff; 2],
            vec![0xff; 8],
            vec![0xff; 9],
            vec![0, 0xff],
            vec![0xff, 0],
            b"user:".to_vec(),
            b"user:1".to_vec(),
            b"user:10".to_vec(),
            b"user:1\0".to_vec(),
            b"user:1\xff".to_vec(),
        ];
        // Prefixes of each other.
        keys.extend((1..40).map(|n| vec![b'p'; n]));
        // A long common prefix; fixed lengths; numbers.
        keys.extend((0..80_u32).map(|n| format!("a/common/prefix/of/many/keys/{:04}", n * 7).into_bytes()));
        keys.extend((0..100_u64).map(|n| (n * n).to_be_bytes().to_vec()));
        for _ in 0..60 {
            let len = 1 + rng.below(6);
            keys.push((0..len).map(|_| *rng.pick(&[0, 1, b'a', b'b', 0xfe, 0xff])).collect());
        }
        keys.sort();
        keys.dedup();
        for at in (1..keys.len()).rev() {
            keys.swap(at, rng.below(at + 1));
        }
        for last in 0..LONG as u8 {
            let mut long = vec![b'L'; 65_535];
            long[65_534] = last;
            keys.push(long);
        }
        Pool(keys.into_iter().map(Bytes::from).collect())
    }

    pub fn all(&self) -> impl Iterator<Item = &Bytes> {
        self.0.iter()
    }

    pub fn key(&self, number: usize) -> &Bytes {
        &self.0[number]
    }

    /// The number of a key to write or read.
    pub fn draw(&self, rng: &mut Rng) -> usize {
        match rng.below(1000) {
            0 => self.0.len() - 1 - rng.below(LONG),
            1..300 => rng.below(HOT),
            _ => rng.below(self.0.len() - LONG),
        }
    }
}

/// What a value is made of; two writes never write the same bytes (but for the empty value).
#[derive(Clone, Copy, Debug)]
pub struct ValueSpec {
    pub id: u64,
    pub len: usize,
}

impl ValueSpec {
    pub fn draw(rng: &mut Rng, id: u64) -> Self {
        let len = match rng.below(1000) {
            0..30 => 0,
            30..850 => rng.below(64),
            850..975 => rng.below(1 << 10),
            975..998 => rng.below(8 << 10),
            _ => rng.below((64 << 10) + 1),
        };
        ValueSpec { id, len }
    }

    /// Odd ids compress well, even ones do not.
    pub fn bytes(self) -> Bytes {
        let mut bytes = self.id.to_le_bytes().to_vec();
        if self.id % 2 == 1 {
            bytes.resize(self.len.max(8), b'v');
        } else {
            let mut rng = Rng::new(self.id);
            while bytes.len() < self.len {
                bytes.extend_from_slice(&rng.word().to_le_bytes());
            }
        }
        bytes.truncate(self.len);
        bytes.into()
    }
}
