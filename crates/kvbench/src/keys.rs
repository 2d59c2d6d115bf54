//! Which keys are loaded, and which are asked for.
//!
//! Absent keys are not alike: a filter hashes, so it treats them all the same, but the bounds of tables and the blocks
//! do not. So the classes are drawn and reported apart. Within a class all keys differ: a filter answers the same key
//! the same way for ever, and a repeated key would be no new trial.

use crate::key_file::{KeyFile, Record, Summary};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use std::collections::HashSet;

/// The generator of every random choice of this program, by name: its stream does not change with a library version.
pub(crate) type Random = Xoshiro256PlusPlus;

/// Independent streams of one seed.
pub(crate) fn random(seed: u64, stream: u64) -> Random {
    Random::seed_from_u64(seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

type Key = Box<[u8]>;

/// A kind of key to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum KeyClass {
    /// Loaded.
    Present,
    /// A loaded key plus one byte.
    AbsentNear,
    /// Uniformly drawn inside the key range; of real keys, uniformly between two loaded neighbours.
    AbsentRandom,
    /// A tenth of the key file that was not loaded.
    AbsentHeldOut,
}

impl KeyClass {
    pub(crate) const ALL: [KeyClass; 4] =
        [KeyClass::Present, KeyClass::AbsentNear, KeyClass::AbsentRandom, KeyClass::AbsentHeldOut];

    pub(crate) fn text(self) -> &'static str {
        match self {
            KeyClass::Present => "present",
            KeyClass::AbsentNear => "absent-near",
            KeyClass::AbsentRandom => "absent-random",
            KeyClass::AbsentHeldOut => "absent-held-out",
        }
    }
}

/// The keys of one experiment.
pub(crate) struct KeySet {
    /// In key order, distinct.
    pub(crate) loaded: Vec<Record>,
    held_out: Vec<Key>,
    /// What the key file held; None: the keys were made up.
    pub(crate) file: Option<Summary>,
}

impl KeySet {
    /// `count` different keys of 16 hexadecimal digits, uniform over the whole range.
    pub(crate) fn synthetic(count: u64, seed: u64) -> KeySet {
        let mut random = random(seed, 1);
        let mut numbers = HashSet::new();
        while (numbers.len() as u64) < count {
            numbers.insert(random.random::<u64>());
        }
        let mut numbers: Vec<u64> = numbers.into_iter().collect();
        numbers.sort_unstable();
        let loaded = numbers.into_iter().map(|n| Record { key: digits(n), value: None }).collect();
        KeySet { loaded, held_out: Vec::new(), file: None }
    }

    /// The keys of a file, a seeded tenth of them held out.
    pub(crate) fn from_file(file: KeyFile, seed: u64) -> KeySet {
        let mut order: Vec<usize> = (0..file.records.len()).collect();
        order.shuffle(&mut random(seed, 2));
        let held: HashSet<usize> = order.iter().copied().take(file.records.len() / 10).collect();
        let (mut loaded, mut held_out) = (Vec::new(), Vec::new());
        for (index, record) in file.records.into_iter().enumerate() {
            if held.contains(&index) { held_out.push(record.key) } else { loaded.push(record) }
        }
        KeySet { loaded, held_out, file: Some(file.summary) }
    }

    /// The loaded records in the seeded order in which they are written.
    pub(crate) fn load_order(&self, seed: u64) -> Vec<&Record> {
        let mut order: Vec<&Record> = self.loaded.iter().collect();
        order.shuffle(&mut random(seed, 3));
        order
    }

    /// Up to `count` different keys of `class`, in random order; fewer if the class has fewer, none if it has none.
    pub(crate) fn draw(&self, class: KeyClass, count: u64, seed: u64) -> Vec<Key> {
        let mut random = random(seed, 16 + class as u64);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        match class {
            KeyClass::Present => sample(self.loaded.iter().map(|record| &record.key), count, &mut random),
            KeyClass::AbsentHeldOut => sample(self.held_out.iter(), count, &mut random),
            KeyClass::AbsentNear => self.distinct_absent(count, || self.near(&mut random)),
            KeyClass::AbsentRandom => self.distinct_absent(count, || self.between(&mut random)),
        }
    }

    /// Different absent keys from `next`, until enough are found or they run dry.
    fn distinct_absent(&self, count: usize, mut next: impl FnMut() -> Option<Key>) -> Vec<Key> {
        let (mut seen, mut keys, mut misses) = (HashSet::new(), Vec::new(), 0);
        while keys.len() < count && misses < 1_000 {
            match next().filter(|key| !self.is_loaded(key) && seen.insert(key.clone())) {
                Some(key) => {
                    keys.push(key);
                    misses = 0;
                }
                None => misses += 1,
            }
        }
        keys
    }

    fn is_loaded(&self, key: &[u8]) -> bool {
        self.loaded.binary_search_by(|record| (*record.key).cmp(key)).is_ok()
    }

    fn near(&self, random: &mut Random) -> Option<Key> {
        let mut key = self.loaded[random.random_range(0..self.loaded.len())].key.to_vec();
        key.push(random.random());
        Some(key.into())
    }

    fn between(&self, random: &mut Random) -> Option<Key> {
        let last = self.loaded.len() - 1;
        if self.file.is_none() {
            let (low, high) = (number(&self.loaded[0].key), number(&self.loaded[last].key));
            return Some(digits(random.random_range(low..=high)));
        }
        if last == 0 {
            return None;
        }
        let gap = random.random_range(0..last);
        between(&self.loaded[gap].key, &self.loaded[gap + 1].key, random)
    }
}

fn sample<'a>(keys: impl Iterator<Item = &'a Key>, count: usize, random: &mut Random) -> Vec<Key> {
    let mut keys: Vec<&Key> = keys.collect();
    keys.shuffle(random);
    keys.truncate(count);
    keys.into_iter().cloned().collect()
}

fn digits(number: u64) -> Key {
    format!("{number:016x}").into_bytes().into()
}

fn number(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |n, digit| n << 4 | u64::from((*digit as char).to_digit(16).unwrap_or(0)))
}

/// A key strictly between `low` and `high`: what they have in common, then eight bytes drawn uniformly between what
/// follows. None if too little room is left there.
fn between(low: &[u8], high: &[u8], random: &mut Random) -> Option<Key> {
    let common = low.iter().zip(high).take_while(|(a, b)| a == b).count();
    let (floor, ceiling) = (fraction(&low[common..]), fraction(&high[common..]));
    if ceiling.saturating_sub(floor) < 2 {
        return None;
    }
    let mut key = low[..common].to_vec();
    key.extend_from_slice(&random.random_range(floor + 1..ceiling).to_be_bytes());
    Some(key.into())
}

/// The first eight bytes as a number that orders as they do.
fn fraction(bytes: &[u8]) -> u64 {
    let mut first = [0; 8];
    let length = bytes.len().min(8);
    first[..length].copy_from_slice(&bytes[..length]);
    u64::from_be_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> KeySet {
        let mut loaded: Vec<Record> =
            list.iter().map(|word| Record { key: word.as_bytes().into(), value: None }).collect();
        loaded.sort_by(|a, b| a.key.cmp(&b.key));
        KeySet { loaded, held_out: Vec::new(), file: Some(Summary::default()) }
    }

    fn distinct(keys: &[Key]) -> usize {
        keys.iter().collect::<HashSet<_>>().len()
    }

    #[test]
    fn synthetic_keys_are_16_bytes_distinct_sorted_and_repeat_with_the_seed() {
        let set = KeySet::synthetic(1_000, 7);
        assert!(set.loaded.iter().all(|record| record.key.len() == 16));
        assert!(set.loaded.windows(2).all(|pair| pair[0].key < pair[1].key));
        assert_eq!(set.loaded, KeySet::synthetic(1_000, 7).loaded);
        assert_ne!(set.loaded, KeySet::synthetic(1_000, 8).loaded);
    }

    #[test]
    fn absent_keys_are_absent_distinct_and_inside_the_range() {
        let set = KeySet::synthetic(500, 1);
        let (first, last) = (&set.loaded[0].key, &set.loaded[499].key);
        for class in [KeyClass::AbsentNear, KeyClass::AbsentRandom] {
            let keys = set.draw(class, 2_000, 1);
            assert_eq!(distinct(&keys), 2_000);
            assert!(keys.iter().all(|key| !set.is_loaded(key)));
            assert_eq!(keys, set.draw(class, 2_000, 1));
        }
        assert!(set.draw(KeyClass::AbsentRandom, 2_000, 1).iter().all(|key| first <= key && key <= last));
    }

    #[test]
    fn present_keys_are_each_asked_once() {
        let set = KeySet::synthetic(300, 1);
        let keys = set.draw(KeyClass::Present, 1_000, 1);
        assert_eq!((keys.len(), distinct(&keys)), (300, 300));
        assert_eq!(set.draw(KeyClass::Present, 10, 1).len(), 10);
    }

    #[test]
    fn made_up_keys_lie_between_their_neighbours() {
        let mut random = random(1, 1);
        for (low, high) in [("apple", "banana"), ("", "a"), ("a", "a\u{1}"), ("usr/lib/a", "usr/lib/b"), ("ab", "abc")]
        {
            let key = between(low.as_bytes(), high.as_bytes(), &mut random).unwrap();
            assert!(low.as_bytes() < &*key && &*key < high.as_bytes(), "{low:?} {high:?} {key:?}");
        }
        assert_eq!(between(b"a", b"a\0", &mut random), None);
    }

    #[test]
    fn absent_keys_of_real_keys_are_absent_though_the_neighbour_is_there() {
        let set = words(&["a", "ab", "abc", "b", "zebra"]);
        for class in [KeyClass::AbsentNear, KeyClass::AbsentRandom] {
            let keys = set.draw(class, 500, 3);
            assert_eq!(distinct(&keys), 500);
            assert!(keys.iter().all(|key| !set.is_loaded(key)), "{class:?}");
        }
    }

    #[test]
    fn one_key_has_no_gap_and_near_keys_run_dry_at_256() {
        let set = words(&["only"]);
        assert!(set.draw(KeyClass::AbsentRandom, 10, 1).is_empty());
        assert_eq!(set.draw(KeyClass::AbsentNear, 10_000, 1).len(), 256);
        assert!(set.draw(KeyClass::AbsentHeldOut, 10, 1).is_empty());
    }

    #[test]
    fn a_seeded_tenth_of_a_file_is_held_out() {
        let set = |seed| {
            let records = (0..100).map(|n| Record { key: digits(n), value: None }).collect();
            KeySet::from_file(KeyFile { records, summary: Summary::default() }, seed)
        };
        let keys = set(1).draw(KeyClass::AbsentHeldOut, 100, 1);
        assert_eq!((keys.len(), set(1).loaded.len()), (10, 90));
        assert!(keys.iter().all(|key| !set(1).is_loaded(key)));
        assert_ne!(set(1).held_out, set(2).held_out);
    }

    #[test]
    fn the_load_order_is_seeded_and_not_sorted() {
        let set = KeySet::synthetic(100, 1);
        let order = set.load_order(1);
        assert_eq!(order, set.load_order(1));
        assert!(order.windows(2).any(|pair| pair[0].key > pair[1].key));
    }
}
