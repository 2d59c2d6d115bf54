//! The manifest: which files the database consists of. A file of records (see `record`), each a
//! [`VersionEdit`]; the first one says everything, each later one what changes. CURRENT names the manifest.
//!
//! An edit holds once [`Manifest::append`] returns. After a failed append the manifest is finished: it is left for a new
//! one, never appended to behind a torn edit. Nor is a recovered one: recovery only reads, and the engine goes on in a
//! new manifest. Once the creation of a new manifest has begun, nothing is appended to an older one, whether it succeeds
//! or not; an older one is removed only after `create` returned. So the manifest with the highest number and a whole
//! first edit is never behind any other, which is what recovery stands on when CURRENT can't be read.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

mod current;
mod state;

pub(crate) use state::ManifestState;

use crate::error::{Error, ErrorKind, Result};
use crate::filename::{FileName, FileNumber};
use crate::record::{End, RecordReader, RecordWriter, Step, read_whole};
use crate::version::edit::VersionEdit;
use crate::vfs::{Context, FileSystem};
use crate::wal::EMPTY_LOG_BYTES;
use current::Current;
use std::path::Path;

/// The writing end of the manifest.
#[derive(Debug)]
pub(crate) struct Manifest {
    records: RecordWriter,
    number: FileNumber,
}

impl Manifest {
    /// Starts manifest `number` from a state, and makes CURRENT name it. Both are durable on return. After a failure
    /// CURRENT names this manifest or the one before, and both say the same.
    pub(crate) fn create(
        fs: &dyn FileSystem,
        dir: &Path,
        number: FileNumber,
        snapshot: &ManifestState,
    ) -> Result<Manifest> {
        if number >= snapshot.next_file_number {
            let next = snapshot.next_file_number;
            return Err(Error::invalid_argument(format!(
                "manifest number {number} must be given away first; the next file number is {next}"
            )));
        }
        let path = FileName::Manifest(number).in_dir(dir);
        let file = fs.create_new(&path).context("create", &path)?;
        let mut records = RecordWriter::new(file, path, number);
        records.add_record(&snapshot.snapshot().encode());
        records.sync()?;
        fs.sync_dir(dir).context("sync", dir)?;
        current::install(fs, dir, number)?;
        Ok(Manifest { records, number })
    }

    /// Appends an edit. It is durable on return. The first failure is final: every later call returns it.
    pub(crate) fn append(&mut self, edit: &VersionEdit) -> Result<()> {
        self.records.add_record(&edit.encode());
        self.records.sync()
    }

    pub(crate) fn number(&self) -> FileNumber {
        self.number
    }

    /// The size of the file, to start a new one when it has grown large.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.records.flushed_len()
    }

    /// Appends the session's `last` edit, which says how the logs were closed, and ends the file so that a reader can
    /// tell it is whole. Returns its final length; all of it is durable.
    pub(crate) fn close(mut self, last: &VersionEdit) -> Result<u64> {
        self.append(last)?;
        self.records.close()
    }

    /// Reads the state of the database in `dir`; changes nothing. `NotFound` if there is no database: not even the
    /// creation of one came to an end.
    ///
    /// A CURRENT that is missing or damaged is replaced by the manifest with the highest number that has a whole first
    /// edit; if that one is corrupt further on, so is the database.
    pub(crate) fn recover(fs: &dyn FileSystem, dir: &Path) -> Result<Recovered> {
        let files = DirFiles::list(fs, dir)?;
        match current::read(fs, dir)? {
            Current::Names(number) => recover_named(fs, dir, number, &files),
            Current::Damaged => recover_newest(fs, dir, &files)?.ok_or_else(|| no_manifest(dir, "is damaged")),
            Current::Missing => recover_newest(fs, dir, &files)?.ok_or_else(|| match files.has_data {
                true => no_manifest(dir, "is missing"),
                false => Error::new(ErrorKind::NotFound, "there is no database here").in_file(dir),
            }),
        }
    }
}

/// What recovery found.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) state: ManifestState,
    #[cfg_attr(not(test), allow(dead_code, reason = "for tests and messages"))]
    pub(crate) manifest_number: FileNumber,
    /// How the manifest ended. `Torn` also if nothing but zeros follow: a manifest reserves no space.
    pub(crate) tail: End,
    /// CURRENT was missing or damaged, and the newest manifest was taken instead.
    pub(crate) current_damaged: bool,
}

impl Recovered {
    /// Whether what the manifest does not name was really never, or no longer, a part of the database. If not, files
    /// that seem to be orphans are kept.
    pub(crate) fn is_whole(&self) -> bool {
        !self.current_damaged && !matches!(self.tail, End::Torn { .. })
    }
}

/// What lies in the directory.
struct DirFiles {
    /// Ascending.
    manifests: Vec<FileNumber>,
    /// There are tables, or logs with more than their header: the very first log is made before the first manifest, and a
    /// creation that a crash broke off there is begun anew.
    has_data: bool,
}

impl DirFiles {
    fn list(fs: &dyn FileSystem, dir: &Path) -> Result<Self> {
        let mut files = DirFiles { manifests: Vec::new(), has_data: false };
        for name in fs.list(dir).context("list", dir)? {
            match name.to_str().and_then(FileName::parse) {
                Some(FileName::Manifest(number)) => files.manifests.push(number),
                Some(FileName::Table(_)) => files.has_data = true,
                Some(log @ FileName::Log(_)) if !files.has_data => {
                    let path = log.in_dir(dir);
                    files.has_data = fs.len(&path).context("measure", &path)? > EMPTY_LOG_BYTES;
                }
                _ => {}
            }
        }
        files.manifests.sort_unstable();
        Ok(files)
    }
}

fn recover_named(fs: &dyn FileSystem, dir: &Path, number: FileNumber, files: &DirFiles) -> Result<Recovered> {
    let path = FileName::Manifest(number).in_dir(dir);
    if !files.manifests.contains(&number) {
        let message = "CURRENT names a manifest that is missing; restore it from a backup";
        return Err(Error::corruption(message).in_file(&path));
    }
    let loaded = Loaded::load(fs, dir, number)?;
    for newer in files.manifests.iter().copied().filter(|newer| *newer > number) {
        if Loaded::load(fs, dir, newer)?.was_in_use() {
            let message = format!(
                "CURRENT names manifest {number}, but this newer one was in use; CURRENT is a stale copy: remove it to \
                 open with the newest manifest"
            );
            return Err(Error::corruption(message).in_file(&FileName::Manifest(newer).in_dir(dir)));
        }
    }
    loaded.recovered(number, false).ok_or_else(|| {
        let message = "expected the database's state in the first record, found no whole record; restore the manifest \
                       from a backup";
        Error::corruption(message).in_file(&path)
    })
}

/// From the newest manifest with a whole first edit: CURRENT never named one without.
fn recover_newest(fs: &dyn FileSystem, dir: &Path, files: &DirFiles) -> Result<Option<Recovered>> {
    for number in files.manifests.iter().rev().copied() {
        if let Some(recovered) = Loaded::load(fs, dir, number)?.recovered(number, true) {
            return Ok(Some(recovered));
        }
    }
    Ok(None)
}

fn no_manifest(dir: &Path, why: &str) -> Error {
    let message = format!("CURRENT {why}, and no manifest can take its place; restore the database from a backup");
    Error::corruption(message).in_file(&FileName::Current.in_dir(dir))
}

/// A manifest, read to its end.
struct Loaded {
    /// None if it has no whole record.
    state: Option<ManifestState>,
    records: u64,
    tail: End,
}

impl Loaded {
    fn load(fs: &dyn FileSystem, dir: &Path, number: FileNumber) -> Result<Self> {
        let path = FileName::Manifest(number).in_dir(dir);
        let bytes = read_whole(fs, &path)?;
        Self::read(&bytes, number).map_err(|error| error.in_file(&path))
    }

    fn read(bytes: &[u8], number: FileNumber) -> Result<Self> {
        let mut reader = RecordReader::new(bytes, number);
        let mut loaded = Loaded { state: None, records: 0, tail: End::EndOfFile };
        loop {
            let start = reader.valid_len();
            match reader.read()? {
                Step::Record(record) => loaded.apply(&record).map_err(|error| error.at(start))?,
                Step::End(End::EndOfFile) if reader.valid_len() < bytes.len() as u64 => {
                    loaded.tail = End::Torn { offset: reader.valid_len() };
                    return Ok(loaded);
                }
                Step::End(end) => {
                    loaded.tail = end;
                    return Ok(loaded);
                }
            }
        }
    }

    fn apply(&mut self, record: &[u8]) -> Result<()> {
        let edit = VersionEdit::decode(record)?;
        match &mut self.state {
            Some(state) => state.apply(&edit)?,
            none => *none = Some(ManifestState::from_snapshot(&edit)?),
        }
        self.records = self.records.saturating_add(1);
        Ok(())
    }

    /// Whether it was appended to, or closed: that happens only once CURRENT names it for good.
    fn was_in_use(&self) -> bool {
        self.records > 1 || self.tail == End::CleanClose
    }

    fn recovered(self, manifest_number: FileNumber, current_damaged: bool) -> Option<Recovered> {
        let mut state = self.state?;
        state.next_file_number = state.next_file_number.max(manifest_number.saturating_add(1));
        Some(Recovered { state, manifest_number, tail: self.tail, current_damaged })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;
    use crate::manifest::state::tests::{added, new_state, sample};
    use crate::record::testing::{TestFs, writer};

    const DIR: &str = "d";

    fn create(fs: &TestFs, number: FileNumber, state: &ManifestState) -> Result<Manifest> {
        Manifest::create(fs, Path::new(DIR), number, state)
    }

    fn recover(fs: &TestFs) -> Result<Recovered> {
        Manifest::recover(fs, Path::new(DIR))
    }

    fn kind(outcome: Result<Recovered>) -> ErrorKind {
        outcome.unwrap_err().kind()
    }

    fn edit(seqno: u64) -> VersionEdit {
        VersionEdit { last_seqno: Some(seqno), ..Default::default() }
    }

    /// A manifest that was in use: its snapshot, three edits.
    fn used(fs: &TestFs, number: FileNumber) -> Manifest {
        let mut manifest = create(fs, number, &sample()).unwrap();
        manifest.append(&edit(101)).unwrap();
        manifest.append(&VersionEdit { files_added: vec![added(1, 9)], ..Default::default() }).unwrap();
        manifest.append(&edit(102)).unwrap();
        manifest
    }

    #[test]
    fn what_was_appended_is_recovered_and_nothing_is_changed() {
        let fs = TestFs::default();
        let manifest = used(&fs, 6);
        assert_eq!(manifest.file_bytes(), fs.bytes("d/MANIFEST-000006").len() as u64);
        let (before, calls) = (fs.snapshot(), fs.all_calls());
        let found = recover(&fs).unwrap();
        assert_eq!((found.manifest_number, found.tail, found.is_whole()), (6, End::EndOfFile, true));
        assert_eq!(found.state.last_seqno, 102);
        assert!(found.state.keyspaces[&0].levels[&1].contains_key(&9));
        assert_eq!((fs.snapshot(), fs.all_calls()), (before, calls));
    }

    #[test]
    fn a_closed_manifest_tells_how_the_logs_ended() {
        let fs = TestFs::default();
        let last = VersionEdit { clean_close: Some(vec![(5, 4711)]), ..Default::default() };
        let len = used(&fs, 6).close(&last).unwrap();
        assert_eq!(len, fs.bytes("d/MANIFEST-000006").len() as u64);
        let found = recover(&fs).unwrap();
        assert_eq!((found.tail, found.state.clean_close), (End::CleanClose, Some(vec![(5, 4711)])));
    }

    #[test]
    fn current_is_switched_by_rename_after_the_manifest_is_durable() {
        let fs = TestFs::default();
        create(&fs, 6, &sample()).unwrap();
        let calls = [
            "create MANIFEST-000006",
            "append MANIFEST-000006",
            "sync MANIFEST-000006",
            "sync_dir d",
            "remove CURRENT.tmp",
            "create CURRENT.tmp",
            "append CURRENT.tmp",
            "sync CURRENT.tmp",
            "close CURRENT.tmp",
            "rename CURRENT",
            "sync_dir d",
        ];
        assert_eq!(fs.all_calls(), calls);
    }

    #[test]
    fn a_manifest_is_never_created_over_another_or_under_a_free_number() {
        let fs = TestFs::default();
        used(&fs, 6);
        let before = fs.snapshot();
        assert!(create(&fs, 6, &sample()).is_err());
        assert_eq!(create(&fs, 10, &sample()).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(fs.snapshot(), before);
    }

    #[test]
    fn a_failed_switch_leaves_a_database_that_opens() {
        for operation in ["create", "append", "sync", "sync_dir", "remove", "close", "rename"] {
            let fs = TestFs::default();
            used(&fs, 6);
            let state = recover(&fs).unwrap().state;
            fs.fail_next(operation);
            assert_eq!(create(&fs, 7, &state).unwrap_err().kind(), ErrorKind::NoSpace);
            assert_eq!(recover(&fs).unwrap().state, state, "{operation}");
            create(&fs, 8, &state).unwrap();
            assert_eq!(recover(&fs).unwrap().manifest_number, 8);
        }
    }

    #[test]
    fn after_a_failed_append_nothing_more_is_appended() {
        for operation in ["append", "sync"] {
            let fs = TestFs::default();
            let mut manifest = used(&fs, 6);
            fs.fail_next(operation);
            let first = manifest.append(&edit(103)).unwrap_err();
            let calls = fs.all_calls();
            assert_eq!(manifest.append(&edit(104)).unwrap_err().to_string(), first.to_string());
            assert!(manifest.close(&edit(104)).is_err());
            assert_eq!(fs.all_calls(), calls);
        }
    }

    #[test]
    fn a_torn_last_edit_is_cut_and_makes_orphans_doubtful() {
        let fs = TestFs::default();
        let mut manifest = used(&fs, 6);
        let len = manifest.file_bytes();
        manifest.append(&edit(103)).unwrap();
        let mut bytes = fs.bytes("d/MANIFEST-000006");
        bytes.pop();
        fs.put("d/MANIFEST-000006", &bytes);
        let found = recover(&fs).unwrap();
        assert_eq!((found.tail, found.state.last_seqno), (End::Torn { offset: len }, 102));
        assert!(!found.is_whole());
        bytes[len as usize..].fill(0);
        fs.put("d/MANIFEST-000006", &bytes);
        assert_eq!(recover(&fs).unwrap().tail, End::Torn { offset: len }, "the size grew, the data did not come");
    }

    #[test]
    fn every_flipped_byte_of_a_closed_manifest_is_corruption_or_costs_nothing() {
        let fs = TestFs::default();
        used(&fs, 6).close(&edit(103)).unwrap();
        let whole = fs.bytes("d/MANIFEST-000006");
        let state = recover(&fs).unwrap().state;
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            fs.put("d/MANIFEST-000006", &bytes);
            match recover(&fs) {
                Ok(found) => assert_eq!((found.is_whole(), found.state), (false, state.clone()), "{at}"),
                Err(error) => assert_eq!((error.kind(), error.path().is_some()), (ErrorKind::Corruption, true)),
            }
        }
    }

    #[test]
    fn an_edit_that_does_not_fit_is_corruption_at_its_offset() {
        let fs = TestFs::default();
        let mut manifest = used(&fs, 6);
        let offset = manifest.file_bytes();
        manifest.append(&edit(1)).unwrap();
        let error = recover(&fs).unwrap_err();
        assert_eq!((error.kind(), error.offset()), (ErrorKind::Corruption, Some(offset)));
        assert_eq!(error.path(), Some(Path::new("d/MANIFEST-000006")));
    }

    #[test]
    fn a_current_that_is_zeroed_or_missing_gives_way_to_the_newest_whole_manifest() {
        let fs = TestFs::default();
        used(&fs, 6);
        let state = recover(&fs).unwrap().state;
        create(&fs, 7, &state).unwrap();
        drop(writer(&fs, "d/MANIFEST-000008", 8));
        for current in [Some(&[0_u8; 29][..]), Some(b""), Some(b"MANIFEST-000006\n"), None] {
            match current {
                Some(bytes) => fs.put("d/CURRENT", bytes),
                None => fs.remove("d/CURRENT"),
            }
            let found = recover(&fs).unwrap();
            assert_eq!((found.manifest_number, found.current_damaged, found.is_whole()), (7, true, false));
            assert_eq!(found.state, state);
        }
    }

    #[test]
    fn without_current_a_corrupt_newest_manifest_refuses() {
        let fs = TestFs::default();
        create(&fs, 6, &sample()).unwrap();
        used(&fs, 7);
        fs.remove("d/CURRENT");
        let mut bytes = fs.bytes("d/MANIFEST-000007");
        bytes[30] ^= 1;
        fs.put("d/MANIFEST-000007", &bytes);
        assert_eq!(kind(recover(&fs)), ErrorKind::Corruption);
    }

    #[test]
    fn a_missing_manifest_and_a_stale_current_refuse() {
        let fs = TestFs::default();
        used(&fs, 6);
        let stale = fs.bytes("d/CURRENT");
        let mut manifest = create(&fs, 7, &recover(&fs).unwrap().state).unwrap();
        fs.put("d/CURRENT", &stale);
        assert_eq!(recover(&fs).unwrap().manifest_number, 6, "7 may have been on its way when power went");
        manifest.append(&edit(103)).unwrap();
        assert_eq!(kind(recover(&fs)), ErrorKind::Corruption);
        fs.remove("d/MANIFEST-000006");
        assert_eq!(kind(recover(&fs)), ErrorKind::Corruption);
        fs.remove("d/CURRENT");
        assert_eq!(recover(&fs).unwrap().state.last_seqno, 103);
    }

    #[test]
    fn an_empty_directory_or_an_unfinished_creation_is_no_database() {
        let fs = TestFs::default();
        fs.put("d/LOCK", b"");
        fs.put("d/notes.txt", b"not ours");
        assert_eq!(kind(recover(&fs)), ErrorKind::NotFound);
        drop(writer(&fs, "d/MANIFEST-000001", 1));
        assert_eq!(kind(recover(&fs)), ErrorKind::NotFound);
        fs.put("d/000002.sst", b"data");
        assert_eq!(kind(recover(&fs)), ErrorKind::Corruption, "something was here");
        let fs = TestFs::default();
        let mut state = new_state();
        state.next_file_number = 2;
        create(&fs, 1, &state).unwrap();
        fs.remove("d/CURRENT");
        assert_eq!(recover(&fs).unwrap().state, state, "created, but for the last step");
    }

    #[test]
    fn a_manifest_without_a_whole_first_edit_refuses() {
        let fs = TestFs::default();
        create(&fs, 6, &sample()).unwrap();
        let mut bytes = fs.bytes("d/MANIFEST-000006");
        bytes.pop();
        fs.put("d/MANIFEST-000006", &bytes);
        assert_eq!(kind(recover(&fs)), ErrorKind::Corruption);
        fs.put("d/CURRENT", b"");
        assert_eq!(kind(recover(&fs)), ErrorKind::Corruption);
    }

    #[test]
    fn file_numbers_go_on_above_the_manifest() {
        let fs = TestFs::default();
        let mut log = writer(&fs, "d/MANIFEST-000050", 50);
        log.add_record(&sample().snapshot().encode());
        log.flush().unwrap();
        assert_eq!(recover(&fs).unwrap().state.next_file_number, 51);
    }
}
