//! The reads of the model test: every answer is compared with the model's, every read counted.

use super::data::Bytes;
use super::op::{KeyNumber, Name, Op};
use super::run::Runner;
use super::tally::check_accounts;
use super::world::{Shot, show};
use siftdb::ReadOptions;

impl Runner {
    pub(super) fn read(&mut self, op: Op) {
        match op {
            Op::Get { on, key, neighbour, fill_cache } => {
                let mut key = self.key(key).to_vec();
                if neighbour && key.len() < 65_535 {
                    key.push(b'~');
                }
                let options = ReadOptions { snapshot: None, fill_cache };
                let value = match fill_cache {
                    true => self.world.keyspace(on).get(&key),
                    false => self.world.keyspace(on).get_with(&key, &options),
                };
                self.same(on, &key, value.unwrap().as_deref());
            }
            Op::Contains { on, key } => {
                let key = self.key(key);
                let found = self.world.keyspace(on).contains_key(&key).unwrap();
                assert_eq!(found, self.world.expected(on, &key).is_some(), "key {} of {on}", show(&key));
                self.got(found);
            }
            Op::MultiGet { on, keys } => {
                let keys: Vec<Bytes> = keys.iter().map(|number| self.key(*number)).collect();
                let values = self.world.keyspace(on).multi_get(&keys).unwrap();
                assert_eq!(values.len(), keys.len());
                for (key, value) in keys.iter().zip(values) {
                    self.same(on, key, value.as_deref());
                }
            }
            Op::Account { on, keys } => {
                let before = self.world.db().statistics();
                let mut accounts = Vec::new();
                for number in keys {
                    let key = self.key(number);
                    let (value, account) = self.world.keyspace(on).get_with_stats(&key).unwrap();
                    self.same(on, &key, value.as_deref());
                    accounts.push(account);
                }
                check_accounts(&accounts, &self.world.db().statistics().since(&before));
            }
            Op::Snapshot => {
                let snapshot = self.world.db().snapshot();
                assert_eq!(snapshot.seqno(), self.world.seqno);
                let maps = self.world.maps.clone();
                self.world.handles_mut().shots.push(Shot { snapshot, maps });
            }
            Op::GetAt { snapshot, on, key, fill_cache } => self.get_at(snapshot, on, key, fill_cache),
            Op::CompareSnapshot { snapshot } => {
                let key_numbers = 0..self.world.pool.all().count();
                for on in self.world.lives.keys().copied().collect::<Vec<_>>() {
                    key_numbers.clone().for_each(|key| self.get_at(snapshot, on, key, true));
                }
            }
            Op::DropSnapshot { snapshot } => drop(self.world.handles_mut().shots.swap_remove(snapshot)),
            other => unreachable!("{other:?} is no read"),
        }
    }

    /// A keyspace that is younger than the snapshot was empty at its moment.
    fn get_at(&mut self, snapshot: usize, on: Name, key: KeyNumber, fill_cache: bool) {
        let key = self.key(key);
        let shot = &self.world.handles().shots[snapshot];
        let keyspace = self.world.keyspace(on);
        let value = match fill_cache {
            true => shot.snapshot.on(keyspace).get(&key).unwrap(),
            false => {
                let options = ReadOptions { snapshot: Some(shot.snapshot.clone()), fill_cache };
                keyspace.get_with(&key, &options).unwrap()
            }
        };
        let expected = shot.maps.get(&self.world.lives[on]).and_then(|map| map.get(&key));
        assert_eq!(value.as_deref(), expected.map(|v| &**v), "key {} of {on} at {:?}", show(&key), shot.snapshot);
        self.got(value.is_some());
    }

    fn same(&mut self, on: Name, key: &[u8], value: Option<&[u8]>) {
        assert_eq!(value, self.world.expected(on, key), "key {} of {on}", show(key));
        self.got(value.is_some());
    }

    fn got(&mut self, found: bool) {
        self.world.tally.gets += 1;
        self.world.tally.found += u64::from(found);
    }
}
