//! Does operations to the database and to its model, and compares what they answer.

use super::data::{Bytes, Pool};
use super::op::{DEFAULT, KeyNumber, Name, Op, Present, Write};
use super::options::{OptionSet, variants};
use super::rng::Rng;
use super::tally::check_accounts;
use super::world::{Shot, World, compare, show};
use siftdb::{ErrorKind, KeyspaceOptions, ReadOptions, WriteOptions};
use std::collections::VecDeque;

/// How many operations a failure shows.
const SHOWN: usize = 40;

/// Prints what is needed to repeat a failure.
struct Report {
    what: String,
    done: usize,
    last: VecDeque<Op>,
}

impl Drop for Report {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: operation {} failed; the last ones, the newest at the end:", self.what, self.done);
            self.last.iter().for_each(|op| eprintln!("  {op:?}"));
        }
    }
}

/// Runs `operations` operations drawn from `seed` with an option set.
pub fn run(set: &OptionSet, seed: u64, operations: usize) {
    let mut rng = Rng::new(seed);
    let what = format!("seed {seed}, options \"{}\", {operations} operations", set.name);
    let mut report = Report { what, done: 0, last: VecDeque::new() };
    let pool = Pool::new(&mut rng);
    let mut runner = Runner { world: World::new(set, pool), variants: variants(), next_value: 1 };
    for _ in 0..operations {
        let world = &runner.world;
        let present = Present {
            keyspaces: world.lives.keys().copied().collect(),
            snapshots: world.handles().shots.len(),
            variants: runner.variants.len(),
            next_value: runner.next_value,
        };
        let op = Op::draw(&mut rng, &world.pool, &present);
        if report.last.len() == SHOWN {
            report.last.pop_front();
        }
        report.last.push_back(op.clone());
        report.done += 1;
        runner.next_value += 64;
        runner.perform(op);
    }
    runner.finish();
}

struct Runner {
    world: World,
    variants: Vec<KeyspaceOptions>,
    next_value: u64,
}

impl Runner {
    fn key(&self, number: KeyNumber) -> Bytes {
        self.world.pool.key(number).clone()
    }

    fn perform(&mut self, op: Op) {
        match op {
            Op::Put { on, key, value, sync } => {
                let (key, value) = (self.key(key), value.bytes());
                self.world.keyspace(on).put_with(&key, &value, &write_options(sync)).unwrap();
                self.world.apply(on, &key, Some(value));
                self.wrote(1, sync);
            }
            Op::Delete { on, key, sync } => {
                let key = self.key(key);
                self.world.keyspace(on).delete_with(&key, &write_options(sync)).unwrap();
                self.world.apply(on, &key, None);
                self.wrote(1, sync);
            }
            Op::Batch { writes, sync } => self.batch(&[], &writes, sync),
            Op::Conditional { requires, writes } => self.batch(&requires, &writes, false),
            Op::TooLong { on, in_batch } => self.too_long(on, in_batch),
            Op::Flush { on } => self.world.keyspace(on).flush().unwrap(),
            Op::Compact { on } => self.compact(on),
            Op::CompactRange { on, low, high, inclusive } => self.compact_range(on, low, high, inclusive),
            Op::WaitIdle => self.world.db().wait_idle().unwrap(),
            Op::Sync => {
                self.world.db().sync().unwrap();
                assert_eq!(self.world.db().persisted_seqno(), self.world.seqno);
            }
            Op::OpenKeyspace { name, variant } => {
                self.world.open_keyspace(name, variant.map(|at| self.variants[at].clone()));
            }
            Op::DropKeyspace { name } => self.world.drop_keyspace(name),
            Op::UseDropped { key } => self.use_dropped(key),
            Op::Compare => self.world.compare(),
            Op::Verify => self.verify(),
            Op::Close { variant, cache_bytes } => self.close(variant, cache_bytes),
            Op::DropHandles => {
                self.check_counters();
                drop(self.world.release());
                self.world.open();
            }
            Op::Kill => self.kill(),
            Op::ReadOnly => {
                self.check_counters();
                self.world.release().db.close().unwrap();
                self.world.visit_read_only();
                self.world.open();
            }
            read => self.read(read),
        }
    }

    fn read(&mut self, op: Op) {
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

    fn wrote(&mut self, operations: usize, sync: bool) {
        self.world.seqno += operations as u64;
        self.world.tally.operations += operations as u64;
        self.world.tally.batches += 1;
        if sync || self.world.options.sync_every_write {
            assert_eq!(self.world.db().persisted_seqno(), self.world.seqno, "a synced write is durable");
        }
    }

    fn batch(&mut self, requires: &[(Name, KeyNumber, bool)], writes: &[Write], sync: bool) {
        let mut batch = self.world.db().batch();
        let mut holds = true;
        for (on, number, right) in requires {
            let key = self.key(*number);
            let now = self.world.expected(on, &key).map(<[u8]>::to_vec);
            let wrong = match &now {
                Some(value) if value.len() % 2 == 0 => Some([value, &b"?"[..]].concat()),
                Some(_) => None,
                None => Some(Vec::new()),
            };
            if holds {
                // Checked in order; the first that does not hold ends it.
                self.world.tally.gets += 1;
                self.world.tally.found += u64::from(now.is_some());
            }
            holds &= right;
            let expected = if *right { now } else { wrong };
            match *on {
                DEFAULT => _ = batch.require(&key, expected.as_deref()),
                other => _ = batch.on(self.world.keyspace(other)).require(&key, expected.as_deref()),
            }
        }
        for (on, number, value) in writes {
            let key = self.key(*number);
            match (*on, value) {
                (DEFAULT, Some(value)) => _ = batch.put(&key, value.bytes()),
                (DEFAULT, None) => _ = batch.delete(&key),
                (other, Some(value)) => _ = batch.on(self.world.keyspace(other)).put(&key, value.bytes()),
                (other, None) => _ = batch.on(self.world.keyspace(other)).delete(&key),
            }
        }
        assert_eq!((batch.len(), batch.is_empty()), (writes.len(), writes.is_empty()));
        match batch.commit_with(&write_options(sync)) {
            Ok(seqno) => {
                assert!(holds, "a requirement did not hold, but the batch was committed");
                for (on, number, value) in writes {
                    let key = self.key(*number);
                    self.world.apply(on, &key, value.map(|v| v.bytes()));
                }
                self.wrote(writes.len(), sync);
                assert_eq!(seqno, self.world.seqno, "a commit returns its last operation's number");
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
                assert!(!holds, "every requirement held, but the batch was refused");
                self.world.tally.conflicts += 1;
            }
        }
    }

    fn too_long(&mut self, on: Name, in_batch: bool) {
        let long = vec![b'L'; 65_536];
        let result = if in_batch {
            let mut batch = self.world.db().batch();
            batch.put("user:", "never written").on(self.world.keyspace(on)).put(&long, "v");
            batch.commit().map(|_| ())
        } else {
            self.world.keyspace(on).put(&long, "v")
        };
        assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }

    fn use_dropped(&mut self, key: KeyNumber) {
        let key = self.key(key);
        let Some((keyspace, snapshot)) = &self.world.handles().dropped else { return };
        assert_eq!(keyspace.get(&key).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(keyspace.put(&key, "v").unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(keyspace.flush().unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(snapshot.get(&key).unwrap_err().kind(), ErrorKind::NotFound);
        let mut batch = self.world.db().batch();
        batch.put(&key, "never written").on(keyspace).delete(&key);
        assert_eq!(batch.commit().unwrap_err().kind(), ErrorKind::NotFound);
    }

    fn compact(&mut self, on: Name) {
        self.world.keyspace(on).compact().unwrap();
        let handles = self.world.handles();
        if handles.shots.is_empty() && handles.dropped.is_none() {
            let tables = self.world.keyspace(on).tables();
            let entries: u64 = tables.iter().map(|t| t.entries).sum();
            let tombstones: u64 = tables.iter().map(|t| t.tombstones).sum();
            let expected = self.world.map(on).len() as u64;
            assert_eq!((entries, tombstones), (expected, 0), "what a compaction leaves of {on}: {tables:?}");
        }
    }

    fn compact_range(&mut self, on: Name, low: Option<KeyNumber>, high: Option<KeyNumber>, inclusive: bool) {
        let (low, high) = (low.map(|n| self.key(n)), high.map(|n| self.key(n)));
        let keyspace = self.world.keyspace(on);
        match (low, high) {
            (Some(low), Some(high)) if inclusive => keyspace.compact_range(low..=high),
            (Some(low), Some(high)) => keyspace.compact_range(low..high),
            (Some(low), None) => keyspace.compact_range(low..),
            (None, Some(high)) => keyspace.compact_range(..high),
            (None, None) => keyspace.compact_range::<&[u8]>(..),
        }
        .unwrap();
    }

    fn close(&mut self, variant: Option<usize>, cache_bytes: Option<u64>) {
        self.check_counters();
        let handles = self.world.release();
        handles.db.close().unwrap();
        assert_eq!(handles.db.get("k").unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(handles.db.put("k", "v").unwrap_err().kind(), ErrorKind::Closed);
        if let Some(shot) = handles.shots.first() {
            assert_eq!(shot.snapshot.get("k").unwrap_err().kind(), ErrorKind::Closed);
        }
        handles.db.close().unwrap();
        if let Some(cache_bytes) = cache_bytes {
            self.world.options.cache_bytes = cache_bytes;
        }
        if let Some(variant) = variant {
            // For the default keyspace these replace what is stored; new keyspaces get them, others keep their own.
            self.world.options.keyspace = self.variants[variant].clone();
            self.world.stored_options.insert(DEFAULT, self.variants[variant].clone());
        } else {
            self.world.stored_options.insert(DEFAULT, self.world.options.keyspace.clone());
        }
        // The old handles are still alive: closing is what released the lock.
        self.world.open();
        drop(handles);
    }

    fn kill(&mut self) {
        let Some(image) = self.world.home.after_kill() else { return };
        self.check_counters();
        self.world.home = image;
        drop(self.world.release());
        self.world.visit_read_only();
        self.world.open();
    }

    fn check_counters(&self) {
        let options = &self.world.options;
        let mapped = options.read_mode != siftdb::ReadMode::pread();
        self.world.tally.check(&self.world.db().statistics(), mapped, options.cache_bytes);
        let status = self.world.db().status();
        assert!(status.is_ok(), "{status:?}");
    }

    fn verify(&self) {
        let db = self.world.db();
        // Nothing moves between the two looks at the tables.
        db.wait_idle().unwrap();
        let report = db.verify().unwrap();
        assert_eq!(report.unusable_filters, 0);
        let tables: Vec<_> = self.world.handles().keyspaces.values().flat_map(|k| k.tables()).collect();
        assert_eq!(report.tables, tables.len() as u64);
        assert_eq!(report.entries, tables.iter().map(|t| t.entries).sum::<u64>());
    }

    fn finish(mut self) {
        for snapshot in 0..self.world.handles().shots.len() {
            self.perform(Op::CompareSnapshot { snapshot });
        }
        self.world.compare();
        self.verify();
        self.check_counters();
        self.world.handles_mut().shots.clear();
        self.world.handles_mut().dropped = None;
        for on in self.world.lives.keys().copied().collect::<Vec<_>>() {
            self.compact(on);
        }
        self.world.compare();
        self.verify();
        self.check_counters();
        self.only_live_tables_remain();
        drop(self.world.release());
        self.world.open();
        for (name, keyspace) in &self.world.handles().keyspaces {
            compare(keyspace, self.world.map(name), &self.world.pool);
        }
    }

    /// What compactions made superfluous is removed as soon as nobody reads it.
    fn only_live_tables_remain(&self) {
        let mut live: Vec<u64> =
            self.world.handles().keyspaces.values().flat_map(|k| k.tables()).map(|t| t.file_number).collect();
        live.sort_unstable();
        let on_disk = || -> Vec<u64> {
            let names = self.world.home.names();
            names.iter().filter_map(|n| n.strip_suffix(".sst")?.parse().ok()).collect()
        };
        // Reads of other tests in this process may hold back what waits to be freed, for a moment.
        let gone = (0..100).any(|_| {
            self.world.db().wait_idle().unwrap();
            on_disk() == live
        });
        assert!(gone, "files {:?}, live {live:?}", on_disk());
    }
}

fn write_options(sync: bool) -> WriteOptions {
    WriteOptions { sync }
}
