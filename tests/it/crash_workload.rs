//! A scripted workload in a file system that keeps a journal, and what may be found after a crash anywhere in it.
//!
//! Every batch writes its number to `~last` of the default keyspace, so that a recovered database says itself which
//! prefix of the history it is. Marks in the journal say what was promised when.

use siftdb::vfs::{FileSystem, MemoryFileSystem};
use siftdb::{Db, ErrorKind, KeyspaceOptions, Options, WriteOptions};
use std::collections::BTreeMap;
use std::path::Path;

pub type Keys = BTreeMap<Vec<u8>, Vec<u8>>;

/// The name of a keyspace, a key, and its value; None deletes it.
pub type Operation = (String, Vec<u8>, Option<Vec<u8>>);

/// Keys of each keyspace, beside `~last`.
pub const KEYS: u64 = 40;
pub const LAST: &str = "~last";

/// Contents by incarnation: a keyspace that is dropped and made again is another one.
pub type State = BTreeMap<usize, Keys>;

/// What was done, and the state after each prefix of it.
pub struct History {
    /// `states[n]`: after n batches.
    pub states: Vec<State>,
    /// `catalogs[d]`: names and incarnations after d changes of the keyspaces. Those are durable when they return.
    pub catalogs: Vec<BTreeMap<String, usize>>,
    seqnos: Vec<u64>,
    incarnations: usize,
}

/// What holds at a point of the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promise {
    /// Batches that survive a power cut.
    pub durable: usize,
    /// Batches that survive a crash of the process.
    pub acknowledged: usize,
    /// Batches that may be there.
    pub begun: usize,
    pub catalogs_done: usize,
    pub catalogs_begun: usize,
}

#[derive(Clone, Copy)]
enum Mark {
    Durable,
    Acknowledged,
    Begun,
    CatalogDone,
    CatalogBegun,
}

impl Promise {
    pub fn at(fs: &MemoryFileSystem, operation: usize) -> Self {
        let mut promise = Promise::default();
        for mark in fs.marks_up_to(operation) {
            let number = usize::try_from(mark >> 3).unwrap();
            let field = match mark & 7 {
                0 => &mut promise.durable,
                1 => &mut promise.acknowledged,
                2 => &mut promise.begun,
                3 => &mut promise.catalogs_done,
                _ => &mut promise.catalogs_begun,
            };
            *field = number.max(*field);
        }
        promise
    }
}

pub struct Workload {
    pub fs: MemoryFileSystem,
    pub history: History,
    options: Options,
    db: Option<Db>,
    random: u64,
}

/// SplitMix64.
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Memtables of a few entries: every few batches bring a flush, a new log, a compaction.
pub fn options() -> Options {
    Options {
        background_threads: 0,
        seed: Some(7),
        cache_bytes: 64 << 10,
        max_wal_bytes: 64 << 10,
        keyspace: KeyspaceOptions {
            memtable_bytes: 2500,
            block_bytes: 256,
            table_bytes: 1500,
            base_level_bytes: 4 << 10,
            level_multiplier: 3,
            l0_compaction_trigger: 2,
            ..Default::default()
        },
        ..Default::default()
    }
}

pub fn key(number: u64) -> Vec<u8> {
    format!("key{number:03}").into_bytes()
}

impl Workload {
    pub fn new(seed: u64, options: Options) -> Self {
        let catalog = BTreeMap::from([("default".to_owned(), 0)]);
        let history = History {
            states: vec![State::from([(0, Keys::new())])],
            catalogs: vec![catalog],
            seqnos: Vec::new(),
            incarnations: 1,
        };
        Workload { fs: MemoryFileSystem::recording(), history, options, db: None, random: seed }
    }

    fn mark(&self, kind: Mark, number: usize) {
        self.fs.mark((number as u64) << 3 | kind as u64);
    }

    fn draw(&mut self, below: u64) -> u64 {
        next(&mut self.random) % below
    }

    fn batches(&self) -> usize {
        self.history.seqnos.len()
    }

    fn catalog(&self) -> &BTreeMap<String, usize> {
        self.history.catalogs.last().unwrap()
    }

    pub fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    pub fn open(&mut self) {
        self.db = Some(crate::support::open_in(&self.fs, self.options.clone()).unwrap());
        self.note_durable();
    }

    pub fn close(&mut self) {
        self.db.take().unwrap().close().unwrap();
        self.mark(Mark::Durable, self.batches());
    }

    /// Notes what the database says is durable.
    pub fn note_durable(&self) -> usize {
        let persisted = self.db().persisted_seqno();
        let durable = self.history.seqnos.iter().filter(|seqno| **seqno <= persisted).count();
        self.mark(Mark::Durable, durable);
        durable
    }

    pub fn must_be_durable(&self, batches: usize) {
        assert!(self.note_durable() >= batches, "what was acknowledged as durable is over persisted_seqno");
    }

    pub fn create(&mut self, name: &str) {
        let mut catalog = self.catalog().clone();
        let begun = self.history.catalogs.len();
        catalog.insert(name.to_owned(), self.history.incarnations);
        self.history.incarnations += 1;
        self.history.catalogs.push(catalog);
        self.mark(Mark::CatalogBegun, begun);
        self.db().keyspace(name).unwrap();
        self.mark(Mark::CatalogDone, begun);
    }

    pub fn drop_keyspace(&mut self, name: &str) {
        let mut catalog = self.catalog().clone();
        let begun = self.history.catalogs.len();
        catalog.remove(name);
        self.history.catalogs.push(catalog);
        self.mark(Mark::CatalogBegun, begun);
        self.db().drop_keyspace(name).unwrap();
        self.mark(Mark::CatalogDone, begun);
    }

    /// One batch of these operations on keyspaces by name.
    pub fn commit(&mut self, operations: &[Operation], sync: bool) {
        let number = self.batches() + 1;
        let mut state = self.history.states.last().unwrap().clone();
        let mut batch = self.db().batch();
        let last = (String::from("default"), LAST.as_bytes().to_vec(), Some(number.to_string().into_bytes()));
        for (name, key, value) in operations.iter().chain([&last]) {
            let keyspace = self.db().keyspace(name).unwrap();
            let keys = state.entry(self.catalog()[name]).or_default();
            match value {
                Some(value) => {
                    batch.on(&keyspace).put(key, value);
                    keys.insert(key.clone(), value.clone());
                }
                None => {
                    batch.on(&keyspace).delete(key);
                    keys.remove(key);
                }
            }
        }
        if number.is_multiple_of(7) {
            let before = (number > 1).then(|| (number - 1).to_string().into_bytes());
            batch.require(LAST, before.as_deref());
        }
        self.history.states.push(state);
        self.mark(Mark::Begun, number);
        let seqno = batch.commit_with(&WriteOptions { sync, ..Default::default() }).unwrap();
        self.history.seqnos.push(seqno);
        self.mark(Mark::Acknowledged, number);
        if sync {
            self.must_be_durable(number);
        }
        self.note_durable();
    }

    /// Some puts and deletes over all keyspaces.
    pub fn random_batch(&mut self, sync: bool) {
        let names: Vec<String> = self.catalog().keys().cloned().collect();
        let number = self.batches() + 1;
        let operations: Vec<_> = (0..1 + self.draw(5))
            .map(|index| {
                let name = names[self.draw(names.len() as u64) as usize].clone();
                let key = key(self.draw(KEYS));
                let filler = "x".repeat(self.draw(150) as usize);
                let value = format!("{number}/{index}/{filler}").into_bytes();
                (name, key, (self.draw(4) > 0).then_some(value))
            })
            .collect();
        self.commit(&operations, sync);
    }

    fn conflict(&self) {
        let mut batch = self.db().batch();
        batch.put(key(0), "never").require(LAST, Some(b"not this"));
        assert_eq!(batch.commit().unwrap_err().kind(), ErrorKind::Conflict);
    }

    pub fn random_step(&mut self) {
        match self.draw(100) {
            0..60 => self.random_batch(false),
            60..72 => self.random_batch(true),
            72..77 => {
                self.db().sync().unwrap();
                self.must_be_durable(self.batches());
            }
            77..84 => {
                self.db().flush().unwrap();
                self.must_be_durable(self.batches());
            }
            84..88 => {
                self.db().keyspace("b").unwrap().flush().unwrap();
                self.note_durable();
            }
            88..90 => self.db().compact().unwrap(),
            90..92 => self.db().keyspace("b").unwrap().compact_range(key(5)..key(20)).unwrap(),
            92..94 => self.conflict(),
            _ if self.catalog().contains_key("temp") => self.drop_keyspace("temp"),
            _ => self.create("temp"),
        }
    }

    /// The whole script: `steps` random ones in three sessions.
    pub fn run(seed: u64, steps: usize) -> Self {
        let mut workload = Workload::new(seed, options());
        workload.open();
        workload.create("b");
        for step in 0..steps {
            if step == steps / 3 || step == steps * 2 / 3 {
                workload.close();
                workload.open();
            }
            workload.random_step();
        }
        let levels = workload.db().statistics().levels;
        assert!(levels.iter().filter(|level| level.tables > 0).count() > 1, "the script must fill several levels");
        workload.close();
        workload
    }
}

/// The number of the batch that the database ends with.
pub fn prefix_of(db: &Db) -> usize {
    let last = db.get(LAST).unwrap();
    last.map_or(0, |value| std::str::from_utf8(&value).unwrap().parse().unwrap())
}

/// Every key of every keyspace is as after `batches` batches, under the names of `catalog`.
pub fn check_state(db: &Db, history: &History, batches: usize, catalog: &BTreeMap<String, usize>) {
    let empty = Keys::new();
    for (name, incarnation) in catalog {
        let keyspace = db.keyspace(name).unwrap();
        let expected = history.states[batches].get(incarnation).unwrap_or(&empty);
        for key in (0..KEYS).map(key) {
            let found = keyspace.get(&key).unwrap();
            assert_eq!(
                found.as_deref(),
                expected.get(&key).map(Vec::as_slice),
                "{} of {name} after {batches} batches",
                String::from_utf8_lossy(&key)
            );
        }
    }
}

/// Every file is one that the engine knows; the lists of tables agree.
pub fn check_files(fs: &MemoryFileSystem, db: &Db) {
    let mut listed: Vec<String> = db
        .keyspaces()
        .iter()
        .flat_map(|name| db.keyspace(name).unwrap().tables())
        .map(|table| format!("{:06}.sst", table.file_number))
        .collect();
    listed.extend(db.status().orphans.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()));
    listed.sort();
    let names: Vec<String> =
        fs.list(Path::new("db")).unwrap().into_iter().map(|name| name.into_string().unwrap()).collect();
    let tables: Vec<String> = names.iter().filter(|name| name.ends_with(".sst")).cloned().collect();
    assert_eq!(tables, listed, "tables on disk and in the manifest");
    let count = |is: fn(&String) -> bool| names.iter().filter(|name| is(name)).count();
    assert_eq!(count(|name| name.starts_with("MANIFEST-")), 1, "{names:?}");
    assert_eq!(count(|name| name.ends_with(".log")), 1, "{names:?}");
    assert_eq!(names.len(), tables.len() + 4, "beside tables: CURRENT, LOCK, a log, a manifest: {names:?}");
}
