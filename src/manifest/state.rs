//! The fold of a manifest's edits: what the database consists of after the last one. Each edit is checked against the
//! state it changes; what can't be is corruption, never guessed at.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use crate::error::{Error, Result};
use crate::filename::FileNumber;
use crate::key::SeqNo;
use crate::version::edit::{
    DatabaseHeader, FileAdded, FileMeta, FileRemoved, KeyspaceCreated, KeyspaceId, VersionEdit, check_keyspace_name,
};
use std::collections::{BTreeMap, BTreeSet};

/// One keyspace, as the manifest knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyspaceState {
    pub(crate) name: String,
    /// Encoded by `options`.
    pub(crate) options: Vec<u8>,
    /// Everything up to here is in tables, and nothing of it is replayed.
    pub(crate) flushed: SeqNo,
    /// The tables of each level that has any, by number.
    pub(crate) levels: BTreeMap<u8, BTreeMap<FileNumber, FileMeta>>,
}

/// What the database consists of.
///
/// Invariants: a table or log number occurs once and is below `next_file_number`; a keyspace id is below
/// `next_keyspace_id` and its name is unlike any other; counters never go back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ManifestState {
    pub(crate) database: DatabaseHeader,
    pub(crate) incompatible_features: u64,
    pub(crate) compatible_features: u64,
    pub(crate) next_file_number: FileNumber,
    pub(crate) next_keyspace_id: KeyspaceId,
    pub(crate) last_seqno: SeqNo,
    pub(crate) keyspaces: BTreeMap<KeyspaceId, KeyspaceState>,
    pub(crate) logs: BTreeSet<FileNumber>,
    /// The logs and their final lengths, if the last session was closed and nothing came after.
    pub(crate) clean_close: Option<Vec<(FileNumber, u64)>>,
    /// The numbers of all tables, to find one that is added twice.
    tables: BTreeSet<FileNumber>,
}

impl ManifestState {
    /// A database with nothing in it. The first file number is 1.
    pub(crate) fn new(database: DatabaseHeader) -> Self {
        ManifestState {
            database,
            incompatible_features: 0,
            compatible_features: 0,
            next_file_number: 1,
            next_keyspace_id: 0,
            last_seqno: 0,
            keyspaces: BTreeMap::new(),
            logs: BTreeSet::new(),
            clean_close: None,
            tables: BTreeSet::new(),
        }
    }

    /// The state after the first edit of a manifest.
    pub(crate) fn from_snapshot(edit: &VersionEdit) -> Result<Self> {
        let header = edit.database.ok_or_else(|| Error::corruption("the first edit does not name the database"))?;
        let mut state = Self::new(header);
        state.apply_changes(edit)?;
        Ok(state)
    }

    /// The edit that says everything. How the last session ended is not a part of it: it is a new one that writes this.
    pub(crate) fn snapshot(&self) -> VersionEdit {
        let mut edit = VersionEdit {
            database: Some(self.database),
            incompatible_features: Some(self.incompatible_features),
            compatible_features: Some(self.compatible_features),
            next_file_number: Some(self.next_file_number),
            next_keyspace_id: Some(self.next_keyspace_id),
            last_seqno: Some(self.last_seqno),
            logs_added: self.logs.iter().copied().collect(),
            ..Default::default()
        };
        for (&id, keyspace) in &self.keyspaces {
            edit.keyspaces_created.push(KeyspaceCreated {
                id,
                name: keyspace.name.clone(),
                options: keyspace.options.clone(),
                flushed: keyspace.flushed,
            });
            for (&level, files) in &keyspace.levels {
                let added = files.values().map(|meta| FileAdded { keyspace: id, level, meta: meta.clone() });
                edit.files_added.extend(added);
            }
        }
        edit
    }

    /// Applies an edit. If it does not fit the state, that is `Corruption`, and the state is not to be used any more.
    ///
    /// Within an edit: counters first, then what keyspaces and logs come, what files go and come, what changes in a
    /// keyspace, and last which logs and keyspaces go. So an edit may move a file from level to level.
    pub(crate) fn apply(&mut self, edit: &VersionEdit) -> Result<()> {
        if edit.database.is_some() {
            return Err(Error::corruption("expected the database's header in the first edit only, found a second one"));
        }
        self.apply_changes(edit)
    }

    fn apply_changes(&mut self, edit: &VersionEdit) -> Result<()> {
        self.incompatible_features = edit.incompatible_features.unwrap_or(self.incompatible_features);
        self.compatible_features = edit.compatible_features.unwrap_or(self.compatible_features);
        raise(&mut self.next_file_number, edit.next_file_number, "next file number")?;
        raise(&mut self.last_seqno, edit.last_seqno, "last sequence number")?;
        edit.keyspaces_created.iter().try_for_each(|created| self.create_keyspace(created))?;
        raise(&mut self.next_keyspace_id, edit.next_keyspace_id, "next keyspace id")?;
        edit.logs_added.iter().try_for_each(|number| self.add_log(*number))?;
        edit.files_removed.iter().try_for_each(|removed| self.remove_file(removed))?;
        edit.files_added.iter().try_for_each(|added| self.add_file(added))?;
        for (id, options) in &edit.options_changed {
            self.keyspace(*id)?.options.clone_from(options);
        }
        for (id, seqno) in &edit.flushed {
            raise(&mut self.keyspace(*id)?.flushed, Some(*seqno), "flushed sequence number")?;
        }
        edit.logs_removed.iter().try_for_each(|number| self.remove_log(*number))?;
        edit.keyspaces_dropped.iter().try_for_each(|id| self.drop_keyspace(*id))?;
        self.end_session(edit.clean_close.as_deref())
    }

    fn create_keyspace(&mut self, created: &KeyspaceCreated) -> Result<()> {
        let KeyspaceCreated { id, name, options, flushed } = created;
        check_keyspace_name(name).map_err(|error| Error::corruption(error.to_string()))?;
        if *id < self.next_keyspace_id {
            return Err(Error::corruption(format!("keyspace id {id} is given away a second time")));
        }
        if self.keyspaces.values().any(|keyspace| keyspace.name == *name) {
            return Err(Error::corruption(format!("keyspace {id} has the name of another one")));
        }
        self.next_keyspace_id =
            id.checked_add(1).ok_or_else(|| Error::corruption("the ids for keyspaces are used up"))?;
        let keyspace =
            KeyspaceState { name: name.clone(), options: options.clone(), flushed: *flushed, levels: BTreeMap::new() };
        self.keyspaces.insert(*id, keyspace);
        Ok(())
    }

    fn drop_keyspace(&mut self, id: KeyspaceId) -> Result<()> {
        let dropped = self.keyspaces.remove(&id).ok_or_else(|| unknown_keyspace(id))?;
        for number in dropped.levels.values().flat_map(BTreeMap::keys) {
            self.tables.remove(number);
        }
        Ok(())
    }

    fn add_file(&mut self, added: &FileAdded) -> Result<()> {
        let number = added.meta.number;
        self.check_number(number)?;
        if let Some(side_file) = added.meta.filter_side_file {
            self.check_number(side_file)?;
        }
        if self.logs.contains(&number) || !self.tables.insert(number) {
            return Err(Error::corruption(format!("file {number} is added, but is there already")));
        }
        let levels = &mut self.keyspace(added.keyspace)?.levels;
        levels.entry(added.level).or_default().insert(number, added.meta.clone());
        Ok(())
    }

    fn remove_file(&mut self, removed: &FileRemoved) -> Result<()> {
        let FileRemoved { keyspace, level, number } = *removed;
        let levels = &mut self.keyspace(keyspace)?.levels;
        let files = levels.get_mut(&level);
        if files.and_then(|files| files.remove(&number)).is_none() {
            return Err(Error::corruption(format!(
                "file {number} is removed from level {level} of keyspace {keyspace}, but is not there"
            )));
        }
        levels.retain(|_, files| !files.is_empty());
        self.tables.remove(&number);
        Ok(())
    }

    fn add_log(&mut self, number: FileNumber) -> Result<()> {
        self.check_number(number)?;
        if self.tables.contains(&number) || !self.logs.insert(number) {
            return Err(Error::corruption(format!("log {number} is added, but is there already")));
        }
        Ok(())
    }

    fn remove_log(&mut self, number: FileNumber) -> Result<()> {
        if self.logs.remove(&number) {
            return Ok(());
        }
        Err(Error::corruption(format!("log {number} is removed, but is not there")))
    }

    fn end_session(&mut self, closed: Option<&[(FileNumber, u64)]>) -> Result<()> {
        let unknown = closed.unwrap_or_default().iter().find(|(number, _)| !self.logs.contains(number));
        if let Some((number, _)) = unknown {
            return Err(Error::corruption(format!("log {number} is closed, but is not there")));
        }
        self.clean_close = closed.map(<[_]>::to_vec);
        Ok(())
    }

    fn keyspace(&mut self, id: KeyspaceId) -> Result<&mut KeyspaceState> {
        self.keyspaces.get_mut(&id).ok_or_else(|| unknown_keyspace(id))
    }

    fn check_number(&self, number: FileNumber) -> Result<()> {
        if number < self.next_file_number {
            return Ok(());
        }
        let next = self.next_file_number;
        Err(Error::corruption(format!("file {number} is used, but numbers from {next} on are not given away yet")))
    }
}

fn raise<T: Copy + PartialOrd + std::fmt::Display>(counter: &mut T, to: Option<T>, what: &str) -> Result<()> {
    let to = to.unwrap_or(*counter);
    if to < *counter {
        return Err(Error::corruption(format!("{what}: goes back from {counter} to {to}")));
    }
    *counter = to;
    Ok(())
}

fn unknown_keyspace(id: KeyspaceId) -> Error {
    Error::corruption(format!("keyspace {id} is changed, but is not there"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
pub(super) mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::hash::HashKey;
    use crate::key::{InternalKey, Tag, ValueKind};

    pub(in crate::manifest) fn new_state() -> ManifestState {
        ManifestState::new(DatabaseHeader { id: 77, hash_key: HashKey([7; 16]) })
    }

    pub(in crate::manifest) fn created(id: KeyspaceId, name: &str) -> KeyspaceCreated {
        KeyspaceCreated { id, name: name.into(), options: vec![1, 2], flushed: 0 }
    }

    pub(in crate::manifest) fn added(level: u8, number: FileNumber) -> FileAdded {
        let key = |user_key| InternalKey::new(user_key, Tag::new(number, ValueKind::Put)).to_owned();
        let meta = FileMeta {
            number,
            table_id: number * 1000,
            file_bytes: 4096,
            smallest: key(b"a"),
            largest: key(b"b"),
            tombstone_bounds: None,
            largest_exclusive: false,
            seqnos: (number, number),
            seqno_override: None,
            created_at: 0,
            filter_side_file: None,
            entries: 2,
            tombstones: 0,
        };
        FileAdded { keyspace: 0, level, meta }
    }

    /// Keyspace 0 with file 3 in level 0 and file 4 in level 6, log 5.
    pub(in crate::manifest) fn sample() -> ManifestState {
        let mut state = new_state();
        let edit = VersionEdit {
            next_file_number: Some(10),
            last_seqno: Some(100),
            logs_added: vec![5],
            keyspaces_created: vec![created(0, "default")],
            files_added: vec![added(0, 3), added(6, 4)],
            ..Default::default()
        };
        state.apply(&edit).unwrap();
        state
    }

    #[test]
    fn a_snapshot_says_everything() {
        let mut state = sample();
        state.apply(&VersionEdit { keyspaces_created: vec![created(1, "gone")], ..Default::default() }).unwrap();
        state.apply(&VersionEdit { keyspaces_dropped: vec![1], ..Default::default() }).unwrap();
        let edit = VersionEdit::decode(&state.snapshot().encode()).unwrap();
        assert_eq!(ManifestState::from_snapshot(&edit).unwrap(), state);
        assert_eq!(state.next_keyspace_id, 2, "the id of a dropped keyspace is not used again");
    }

    #[test]
    fn an_edit_moves_files_and_changes_keyspaces() {
        let mut state = sample();
        let edit = VersionEdit {
            next_file_number: Some(11),
            logs_added: vec![10],
            logs_removed: vec![5],
            files_removed: vec![FileRemoved { keyspace: 0, level: 0, number: 3 }],
            files_added: vec![added(6, 3)],
            flushed: vec![(0, 42)],
            options_changed: vec![(0, vec![9])],
            ..Default::default()
        };
        state.apply(&edit).unwrap();
        let keyspace = &state.keyspaces[&0];
        assert_eq!(keyspace.levels.keys().collect::<Vec<_>>(), [&6]);
        assert_eq!(keyspace.levels[&6].keys().collect::<Vec<_>>(), [&3, &4]);
        assert_eq!((keyspace.flushed, &keyspace.options[..]), (42, &[9][..]));
        assert_eq!(state.logs, BTreeSet::from([10]));
    }

    #[test]
    fn a_dropped_keyspace_takes_its_files_along() {
        let mut state = sample();
        state.apply(&VersionEdit { keyspaces_dropped: vec![0], ..Default::default() }).unwrap();
        assert!(state.keyspaces.is_empty() && state.tables.is_empty());
    }

    #[test]
    fn anything_after_a_clean_close_undoes_it() {
        let mut state = sample();
        state.apply(&VersionEdit { clean_close: Some(vec![(5, 99)]), ..Default::default() }).unwrap();
        assert_eq!(state.clean_close, Some(vec![(5, 99)]));
        assert_eq!(state.snapshot().clean_close, None);
        state.apply(&VersionEdit::default()).unwrap();
        assert_eq!(state.clean_close, None);
    }

    #[test]
    fn edits_that_do_not_fit_are_corruption() {
        let removed = |level, number| vec![FileRemoved { keyspace: 0, level, number }];
        let none = VersionEdit::default;
        let mut of_unknown_keyspace = added(0, 9);
        of_unknown_keyspace.keyspace = 4;
        let mut with_side_file = added(0, 9);
        with_side_file.meta.filter_side_file = Some(10);
        for (what, edit) in [
            ("file added twice", VersionEdit { files_added: vec![added(1, 3)], ..none() }),
            ("file added twice at once", VersionEdit { files_added: vec![added(1, 9), added(2, 9)], ..none() }),
            ("file with the number of a log", VersionEdit { files_added: vec![added(1, 5)], ..none() }),
            ("file number not given away", VersionEdit { files_added: vec![added(1, 10)], ..none() }),
            ("side file number not given away", VersionEdit { files_added: vec![with_side_file], ..none() }),
            ("file of no keyspace", VersionEdit { files_added: vec![of_unknown_keyspace], ..none() }),
            ("file removed but absent", VersionEdit { files_removed: removed(0, 8), ..none() }),
            ("file removed from another level", VersionEdit { files_removed: removed(6, 3), ..none() }),
            ("log added twice", VersionEdit { logs_added: vec![5], ..none() }),
            ("log with the number of a table", VersionEdit { logs_added: vec![3], ..none() }),
            ("log number not given away", VersionEdit { logs_added: vec![10], ..none() }),
            ("log removed but absent", VersionEdit { logs_removed: vec![6], ..none() }),
            ("absent log closed", VersionEdit { clean_close: Some(vec![(6, 1)]), ..none() }),
            ("keyspace id used again", VersionEdit { keyspaces_created: vec![created(0, "x")], ..none() }),
            ("keyspace name used again", VersionEdit { keyspaces_created: vec![created(1, "default")], ..none() }),
            ("last keyspace id", VersionEdit { keyspaces_created: vec![created(u32::MAX, "x")], ..none() }),
            ("absent keyspace dropped", VersionEdit { keyspaces_dropped: vec![1], ..none() }),
            ("absent keyspace flushed", VersionEdit { flushed: vec![(1, 1)], ..none() }),
            ("absent keyspace changed", VersionEdit { options_changed: vec![(1, vec![])], ..none() }),
            ("file numbers go back", VersionEdit { next_file_number: Some(9), ..none() }),
            ("sequence numbers go back", VersionEdit { last_seqno: Some(99), ..none() }),
            ("second header", VersionEdit { database: Some(new_state().database), ..none() }),
        ] {
            let outcome = sample().apply(&edit);
            assert!(outcome.is_err_and(|e| e.kind() == ErrorKind::Corruption), "{what}");
        }
        let headless = ManifestState::from_snapshot(&VersionEdit::default());
        assert_eq!(headless.unwrap_err().kind(), ErrorKind::Corruption);
    }
}
