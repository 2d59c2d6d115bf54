//! A database beside its model: what it must answer, now and at every snapshot.

use super::data::{Bytes, Pool};
use super::home::Home;
use super::op::{DEFAULT, Name};
use super::options::OptionSet;
use super::tally::Tally;
use siftdb::{Db, ErrorKind, Keyspace, KeyspaceOptions, Options, Snapshot};
use std::collections::BTreeMap;

pub type Map = BTreeMap<Bytes, Bytes>;

/// A keyspace from its creation to its end: one that is dropped and created again is another one.
pub type Life = u64;

pub struct Shot {
    pub snapshot: Snapshot,
    pub maps: BTreeMap<Life, Map>,
}

/// All that holds the database open.
pub struct Handles {
    pub db: Db,
    pub keyspaces: BTreeMap<Name, Keyspace>,
    pub shots: Vec<Shot>,
    /// A keyspace that was dropped, and a snapshot of it.
    pub dropped: Option<(Keyspace, Snapshot)>,
}

pub struct World {
    pub pool: Pool,
    pub home: Home,
    pub options: Options,
    /// None only while the database is closed.
    handles: Option<Handles>,
    pub lives: BTreeMap<Name, Life>,
    pub maps: BTreeMap<Life, Map>,
    pub stored_options: BTreeMap<Name, KeyspaceOptions>,
    pub seqno: u64,
    pub tally: Tally,
    next_life: Life,
}

impl World {
    pub fn new(set: &OptionSet, pool: Pool) -> Self {
        let mut world = World {
            pool,
            home: if set.on_disk { Home::disk() } else { Home::memory() },
            options: set.options.clone(),
            handles: None,
            lives: BTreeMap::from([(DEFAULT, 0)]),
            maps: BTreeMap::from([(0, Map::new())]),
            stored_options: BTreeMap::from([(DEFAULT, set.options.keyspace.clone())]),
            seqno: 0,
            tally: Tally::default(),
            next_life: 1,
        };
        world.open();
        world
    }

    pub fn handles(&self) -> &Handles {
        self.handles.as_ref().expect("the database is open")
    }

    pub fn handles_mut(&mut self) -> &mut Handles {
        self.handles.as_mut().expect("the database is open")
    }

    pub fn db(&self) -> &Db {
        &self.handles().db
    }

    pub fn keyspace(&self, name: Name) -> &Keyspace {
        &self.handles().keyspaces[name]
    }

    pub fn map(&self, name: Name) -> &Map {
        &self.maps[&self.lives[name]]
    }

    pub fn expected(&self, name: Name, key: &[u8]) -> Option<&[u8]> {
        self.map(name).get(key).map(|value| &**value)
    }

    pub fn apply(&mut self, name: Name, key: &Bytes, value: Option<Bytes>) {
        let map = self.maps.get_mut(&self.lives[name]).expect("a map for every life");
        match value {
            Some(value) => map.insert(key.clone(), value),
            None => map.remove(key),
        };
    }

    pub fn open_keyspace(&mut self, name: Name, options: Option<KeyspaceOptions>) {
        let handle = match options.clone() {
            None => self.db().keyspace(name).unwrap(),
            Some(options) => self.db().keyspace_with(name, options).unwrap(),
        };
        self.handles_mut().keyspaces.insert(name, handle);
        if !self.lives.contains_key(name) {
            self.lives.insert(name, self.next_life);
            self.maps.insert(self.next_life, Map::new());
            self.stored_options.insert(name, self.options.keyspace.clone());
            self.next_life += 1;
        }
        if let Some(options) = options {
            self.stored_options.insert(name, options);
        }
        self.check_shape();
    }

    pub fn drop_keyspace(&mut self, name: Name) {
        let Some(life) = self.lives.remove(name) else {
            assert_eq!(self.db().drop_keyspace(name).unwrap_err().kind(), ErrorKind::NotFound);
            return;
        };
        let handle = self.handles_mut().keyspaces.remove(name).expect("a handle for every life");
        let snapshot = self.db().snapshot().on(&handle);
        self.db().drop_keyspace(name).unwrap();
        self.maps.remove(&life);
        self.stored_options.remove(name);
        self.handles_mut().dropped = Some((handle, snapshot));
        self.check_shape();
    }

    /// Names and options of the keyspaces are the model's.
    pub fn check_shape(&self) {
        let names: Vec<&str> = self.lives.keys().copied().collect();
        assert_eq!(self.db().keyspaces(), names);
        for (name, handle) in &self.handles().keyspaces {
            assert_eq!(handle.name(), *name);
            assert_eq!(handle.options(), self.stored_options[name], "options of {name}");
        }
    }

    /// Every key of the pool in every keyspace.
    pub fn compare(&mut self) {
        let mut found = 0;
        for (name, handle) in &self.handles().keyspaces {
            found += compare(handle, self.map(name), &self.pool);
        }
        self.tally.gets += (self.pool.all().count() * self.lives.len()) as u64;
        self.tally.found += found;
    }

    /// Gives up everything that holds the database.
    pub fn release(&mut self) -> Handles {
        self.handles.take().expect("the database is open")
    }

    /// Opens the database and compares everything. The model knows what must be there.
    pub fn open(&mut self) {
        assert!(self.handles.is_none());
        let db = self.home.open(self.options.clone()).unwrap_or_else(|error| panic!("opening: {error:?}"));
        self.tally = Tally::default();
        let keyspaces = self.lives.keys().map(|name| (*name, db.keyspace(name).unwrap())).collect();
        self.handles = Some(Handles { db, keyspaces, shots: Vec::new(), dropped: None });
        self.check_shape();
        assert_eq!(self.db().snapshot().seqno(), self.seqno, "sequence numbers go on where they ended");
        self.compare();
    }

    /// Opens the database, which is closed, read-only: it has everything, and not one byte changes.
    pub fn visit_read_only(&self) {
        let before = self.home.files();
        let db = self.home.open(Options { read_only: true, ..self.options.clone() }).unwrap();
        assert_eq!(db.keyspaces(), self.lives.keys().copied().collect::<Vec<_>>());
        assert_eq!(db.snapshot().seqno(), self.seqno);
        for name in self.lives.keys() {
            compare(&db.keyspace(name).unwrap(), self.map(name), &self.pool);
        }
        assert_eq!(db.put("k", "v").unwrap_err().kind(), ErrorKind::ReadOnly);
        assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::ReadOnly);
        assert_eq!(db.keyspace("a new one").unwrap_err().kind(), ErrorKind::ReadOnly);
        db.verify().unwrap();
        db.close().unwrap();
        assert!(self.home.files() == before, "a read-only visit changed files");
    }
}

/// Compares every key of the pool; returns how many have a value.
pub fn compare(keyspace: &Keyspace, map: &Map, pool: &Pool) -> u64 {
    let mut found = 0;
    for key in pool.all() {
        let value = keyspace.get(key).unwrap();
        assert_eq!(value.as_deref(), map.get(key).map(|v| &**v), "key {} of {}", show(key), keyspace.name());
        found += u64::from(value.is_some());
    }
    found
}

/// A key for people.
pub fn show(key: &[u8]) -> String {
    let shown: String = key.iter().take(40).flat_map(|b| std::ascii::escape_default(*b)).map(char::from).collect();
    format!("\"{shown}\" ({} bytes)", key.len())
}
