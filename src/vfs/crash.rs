//! What a power cut leaves: the journal of a file system in memory, replayed under the rules of durability.
//!
//! - A file's bytes and length are durable up to its last completed sync. What came after may be there, or not, or in
//!   part.
//! - An entry (a name made, renamed, linked or removed) is durable once its directory was synced after it. Before, it
//!   may be there or not, whatever became of other entries and of the file's bytes. Syncing a new file does not make
//!   its name durable. A rename is whole: the old binding or the new one. One from a directory to another counts as
//!   an entry of the directory it goes to.
//! - Bytes that were durable stay what they were, whatever is written beside them, in the same sector too.

use crate::hash::mix64;
use crate::sync::Arc;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// A file or directory, under whatever name.
pub(super) type NodeId = u64;
/// What names a directory holds.
pub(super) type Entries = BTreeMap<OsString, NodeId>;

pub(super) const ROOT: NodeId = 0;
const SECTOR: u64 = 512;

/// What of the unsynced work a power cut leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashVariant {
    /// Nothing: neither bytes nor entries.
    LoseUnsynced,
    /// Everything: the process died, the system went on.
    KeepAll,
    /// Everything but the last unsynced write, of which only what lies before the n-th sector boundary after its start
    /// is there (0: nothing; see `Unsynced::last_write_sectors`).
    TornAtSector(u64),
    /// All entries and lengths, but no bytes: where the file did not reach before, zeros.
    Zeros,
    /// All entries and lengths, but random bytes wherever an unsynced write went.
    Garbage,
    /// Each unsynced write, cut, reserve and entry is there or not, drawn by the seed.
    Subset,
    /// All bytes; the i-th unsynced entry, counted from the oldest, only if bit i is set (those past 64: bit i mod 64).
    Entries(u64),
}

/// How much is unsynced at some point of a journal: what a test needs to go through all variants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unsynced {
    /// Writes, cuts and reserves of files.
    pub changes: usize,
    /// Entries made, renamed, linked or removed.
    pub entries: usize,
    /// How many sectors the last unsynced write touches; 0 if there is none.
    pub last_write_sectors: u64,
}

/// A change of a file's bytes.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Write {
        offset: u64,
        bytes: Arc<[u8]>,
    },
    /// Zeros from the end up to this length, if it is beyond.
    Allocate {
        len: u64,
    },
    Cut {
        len: u64,
    },
}

/// A place for an entry.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) directory: NodeId,
    pub(super) name: OsString,
}

/// A change of directory entries.
#[derive(Clone, Debug)]
pub(super) enum EntryChange {
    Bind { place: Place, node: NodeId },
    Unbind { place: Place },
    Rename { from: Place, to: Place, node: NodeId },
}

impl EntryChange {
    /// The directory whose sync makes it durable.
    fn directory(&self) -> NodeId {
        match self {
            EntryChange::Bind { place, .. } | EntryChange::Unbind { place } => place.directory,
            EntryChange::Rename { to, .. } => to.directory,
        }
    }
}

/// One mutating call.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    CreateFile { place: Place, node: NodeId },
    CreateDirectory { place: Place, node: NodeId },
    Entry(EntryChange),
    Data { file: NodeId, change: Change },
    Sync { file: NodeId },
    SyncDirectory { directory: NodeId },
}

/// A file system at rest: all of it is durable.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) directories: BTreeMap<NodeId, Entries>,
    pub(super) files: BTreeMap<NodeId, Arc<Vec<u8>>>,
}

/// Every mutating call since the recording began.
#[derive(Debug)]
pub(super) struct Journal {
    base: Snapshot,
    operations: Vec<Operation>,
    /// (how many operations came before, mark)
    marks: Vec<(usize, u64)>,
    /// For messages only.
    paths: BTreeMap<NodeId, PathBuf>,
    /// The last replay: the next one goes on from there, so that walking through all crash points is not quadratic.
    replayed: Option<(usize, Replay)>,
}

impl Journal {
    pub(super) fn new(base: Snapshot, paths: BTreeMap<NodeId, PathBuf>) -> Self {
        Journal { base, operations: Vec::new(), marks: Vec::new(), paths, replayed: None }
    }

    pub(super) fn push(&mut self, operation: Operation) {
        if let Operation::CreateFile { place, node } | Operation::CreateDirectory { place, node } = &operation {
            self.paths.insert(*node, self.path_of(place));
        }
        self.operations.push(operation);
    }

    pub(super) fn mark(&mut self, mark: u64) {
        self.marks.push((self.operations.len(), mark));
    }

    pub(super) fn operation_count(&self) -> usize {
        self.operations.len()
    }

    pub(super) fn marks_up_to(&self, at: usize) -> Vec<u64> {
        self.marks.iter().take_while(|(position, _)| *position <= at).map(|(_, mark)| *mark).collect()
    }

    pub(super) fn crash(&mut self, at: usize, variant: CrashVariant, seed: u64) -> Snapshot {
        self.replay(at).crash(variant, seed)
    }

    pub(super) fn unsynced(&mut self, at: usize) -> Unsynced {
        self.replay(at).unsynced()
    }

    fn replay(&mut self, at: usize) -> &Replay {
        let (from, mut replay) = match self.replayed.take() {
            Some((position, replay)) if position <= at => (position, replay),
            _ => (0, Replay::new(&self.base)),
        };
        for (number, operation) in self.operations.iter().enumerate().take(at).skip(from) {
            replay.apply(number, operation);
        }
        &self.replayed.insert((at, replay)).1
    }

    fn path_of(&self, place: &Place) -> PathBuf {
        self.paths.get(&place.directory).map_or_else(|| PathBuf::from("?"), Clone::clone).join(&place.name)
    }

    /// A file under the name that it was created with.
    pub(super) fn describe(&self, at: usize) -> Option<String> {
        let path = |place| self.path_of(place).display().to_string();
        let name = |node| self.paths.get(node).map_or(Path::new("?"), PathBuf::as_path).display();
        Some(match self.operations.get(at)? {
            Operation::CreateFile { place, .. } => format!("create {}", path(place)),
            Operation::CreateDirectory { place, .. } => format!("create directory {}", path(place)),
            Operation::Entry(EntryChange::Bind { place, node }) => format!("link {} to {}", path(place), name(node)),
            Operation::Entry(EntryChange::Unbind { place }) => format!("remove {}", path(place)),
            Operation::Entry(EntryChange::Rename { from, to, .. }) => format!("rename {} to {}", path(from), path(to)),
            Operation::Data { file, change } => format!("{} {}", change.describe(), name(file)),
            Operation::Sync { file } => format!("sync {}", name(file)),
            Operation::SyncDirectory { directory } => format!("sync directory {}", name(directory)),
        })
    }
}

/// A file system in the middle of a replay: what is durable, and what is not yet.
#[derive(Debug)]
struct Replay {
    durable: Snapshot,
    /// By file, and by number of the operation.
    changes: BTreeMap<NodeId, Vec<(usize, Change)>>,
    entries: Vec<(usize, EntryChange)>,
}

impl Replay {
    fn new(base: &Snapshot) -> Self {
        Replay { durable: base.clone(), changes: BTreeMap::new(), entries: Vec::new() }
    }

    fn apply(&mut self, number: usize, operation: &Operation) {
        match operation {
            Operation::CreateFile { place, node } => {
                self.durable.files.insert(*node, Arc::default());
                self.entries.push((number, EntryChange::Bind { place: place.clone(), node: *node }));
            }
            Operation::CreateDirectory { place, node } => {
                self.durable.directories.insert(*node, Entries::new());
                self.entries.push((number, EntryChange::Bind { place: place.clone(), node: *node }));
            }
            Operation::Entry(change) => self.entries.push((number, change.clone())),
            Operation::Data { file, change } => {
                self.changes.entry(*file).or_default().push((number, change.clone()));
            }
            Operation::Sync { file } => self.sync(*file),
            Operation::SyncDirectory { directory } => self.sync_directory(*directory),
        }
    }

    fn sync(&mut self, file: NodeId) {
        let changes = self.changes.remove(&file).unwrap_or_default();
        if let Some(bytes) = self.durable.files.get_mut(&file).filter(|_| !changes.is_empty()) {
            let bytes = Arc::make_mut(bytes);
            changes.iter().for_each(|(_, change)| change.apply(bytes));
        }
    }

    fn sync_directory(&mut self, directory: NodeId) {
        let (synced, rest) =
            std::mem::take(&mut self.entries).into_iter().partition(|(_, e)| e.directory() == directory);
        self.entries = rest;
        let synced: Vec<(usize, EntryChange)> = synced;
        synced.iter().for_each(|(_, change)| change.apply(&mut self.durable.directories));
    }

    fn unsynced(&self) -> Unsynced {
        Unsynced {
            changes: self.changes.values().map(Vec::len).sum(),
            entries: self.entries.len(),
            last_write_sectors: self.last_write().map_or(0, |(_, change)| change.sectors()),
        }
    }

    fn last_write(&self) -> Option<&(usize, Change)> {
        let writes = self.changes.values().flatten().filter(|(_, change)| matches!(change, Change::Write { .. }));
        writes.max_by_key(|(number, _)| *number)
    }

    /// The file system that the next start finds, without what no name leads to.
    fn crash(&self, variant: CrashVariant, seed: u64) -> Snapshot {
        let mut directories = self.durable.directories.clone();
        for (index, (number, change)) in self.entries.iter().enumerate() {
            if keeps_entry(variant, seed, index, *number) {
                change.apply(&mut directories);
            }
        }
        let torn = self.last_write().map(|(number, _)| *number);
        let mut image = Snapshot::default();
        let mut reachable = vec![ROOT];
        while let Some(node) = reachable.pop() {
            if let Some(entries) = directories.get(&node) {
                reachable.extend(entries.values());
                image.directories.insert(node, entries.clone());
            } else if let Some(bytes) = self.durable.files.get(&node) {
                image.files.insert(node, self.survivor(node, bytes, variant, seed, torn));
            }
        }
        image
    }

    fn survivor(
        &self,
        file: NodeId,
        durable: &Arc<Vec<u8>>,
        variant: CrashVariant,
        seed: u64,
        torn: Option<usize>,
    ) -> Arc<Vec<u8>> {
        let mut survivor = Arc::clone(durable);
        let changes = self.changes.get(&file).filter(|_| variant != CrashVariant::LoseUnsynced);
        for (number, change) in changes.into_iter().flatten() {
            let bytes = Arc::make_mut(&mut survivor);
            match variant {
                CrashVariant::TornAtSector(sectors) if torn == Some(*number) => change.apply_torn(bytes, sectors),
                CrashVariant::Zeros => change.apply_filled(bytes, |_| {}),
                CrashVariant::Garbage => change.apply_filled(bytes, |hit| fill_random(hit, draw(seed, *number))),
                CrashVariant::Subset if draw(seed, *number) & 1 == 0 => {}
                _ => change.apply(bytes),
            }
        }
        survivor
    }
}

fn keeps_entry(variant: CrashVariant, seed: u64, index: usize, number: usize) -> bool {
    match variant {
        CrashVariant::LoseUnsynced => false,
        CrashVariant::Subset => draw(seed, number) & 1 == 1,
        CrashVariant::Entries(mask) => mask >> (index % 64) & 1 == 1,
        _ => true,
    }
}

impl EntryChange {
    fn apply(&self, directories: &mut BTreeMap<NodeId, Entries>) {
        match self {
            EntryChange::Bind { place, node } => bind(directories, place, *node),
            EntryChange::Unbind { place } => {
                if let Some(entries) = directories.get_mut(&place.directory) {
                    entries.remove::<OsStr>(&place.name);
                }
            }
            EntryChange::Rename { from, to, node } => {
                // The old name may belong to a later file by now.
                if let Some(entries) = directories.get_mut(&from.directory)
                    && entries.get::<OsStr>(&from.name) == Some(node)
                {
                    entries.remove::<OsStr>(&from.name);
                }
                bind(directories, to, *node);
            }
        }
    }
}

fn bind(directories: &mut BTreeMap<NodeId, Entries>, place: &Place, node: NodeId) {
    if let Some(entries) = directories.get_mut(&place.directory) {
        entries.insert(place.name.clone(), node);
    }
}

impl Change {
    pub(super) fn apply(&self, file: &mut Vec<u8>) {
        match self {
            Change::Write { offset, bytes } => write_at(file, *offset, bytes),
            Change::Allocate { len } => grow(file, *len),
            Change::Cut { len } => file.truncate(index(*len)),
        }
    }

    /// Writes only what lies before the given sector boundary.
    fn apply_torn(&self, file: &mut Vec<u8>, sectors: u64) {
        if let Change::Write { offset, bytes } = self {
            let boundary = (offset / SECTOR).saturating_add(sectors).saturating_mul(SECTOR);
            let kept = index(boundary.saturating_sub(*offset)).min(bytes.len());
            if kept > 0 {
                write_at(file, *offset, &bytes[..kept]);
            }
        }
    }

    /// The length that the change leaves; the bytes of a write are what `fill` makes of them.
    fn apply_filled(&self, file: &mut Vec<u8>, fill: impl FnOnce(&mut [u8])) {
        if let Change::Write { offset, bytes } = self {
            grow(file, offset + bytes.len() as u64);
            fill(&mut file[index(*offset)..][..bytes.len()]);
        } else {
            self.apply(file);
        }
    }

    fn sectors(&self) -> u64 {
        match self {
            Change::Write { offset, bytes } => (offset + bytes.len() as u64).div_ceil(SECTOR) - offset / SECTOR,
            Change::Allocate { .. } | Change::Cut { .. } => 0,
        }
    }

    fn describe(&self) -> String {
        match self {
            Change::Write { offset, bytes } => format!("write {} bytes at {offset} of", bytes.len()),
            Change::Allocate { len } => format!("allocate {len} bytes of"),
            Change::Cut { len } => format!("cut to {len} bytes"),
        }
    }
}

/// Writes into memory can't lie past what memory can hold.
fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

fn grow(file: &mut Vec<u8>, len: u64) {
    if index(len) > file.len() {
        file.resize(index(len), 0);
    }
}

pub(super) fn write_at(file: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    grow(file, offset);
    let start = index(offset);
    let overlap = bytes.len().min(file.len() - start);
    file[start..start + overlap].copy_from_slice(&bytes[..overlap]);
    file.extend_from_slice(&bytes[overlap..]);
}

/// A word for the operation of this number, the same whatever else is drawn.
fn draw(seed: u64, number: usize) -> u64 {
    split_mix(split_mix(seed).wrapping_add(number as u64))
}

fn fill_random(bytes: &mut [u8], seed: u64) {
    for (number, chunk) in bytes.chunks_mut(8).enumerate() {
        chunk.copy_from_slice(&draw(seed, number).to_le_bytes()[..chunk.len()]);
    }
}

/// One step of SplitMix64 (Steele, Lea, Flood 2014).
fn split_mix(word: u64) -> u64 {
    mix64(word.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::memory::MemoryFileSystem;
    use crate::vfs::{FileSystem, WritableFile};
    use CrashVariant::{Entries, Garbage, KeepAll, LoseUnsynced, Subset, TornAtSector, Zeros};

    const DIR: &str = "";

    fn path(name: &str) -> &Path {
        Path::new(name)
    }

    fn create(fs: &MemoryFileSystem, name: &str, bytes: &[u8]) -> Box<dyn WritableFile> {
        let mut file = fs.create_new(path(name)).unwrap();
        file.append(bytes).unwrap();
        file
    }

    /// A file whose bytes and name are durable.
    fn durable(fs: &MemoryFileSystem, name: &str, bytes: &[u8]) -> Box<dyn WritableFile> {
        let mut file = create(fs, name, bytes);
        file.sync().unwrap();
        fs.sync_dir(path(DIR)).unwrap();
        file
    }

    fn now(fs: &MemoryFileSystem, variant: CrashVariant) -> MemoryFileSystem {
        fs.crash_image(fs.operation_count(), variant, 1)
    }

    fn content(fs: &MemoryFileSystem, name: &str) -> Option<Vec<u8>> {
        let file = fs.open(path(name)).ok()?;
        let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        file.read_at(&mut bytes, 0).unwrap();
        Some(bytes)
    }

    /// All that can be told of a file system.
    fn everything(fs: &MemoryFileSystem) -> Vec<(OsString, Option<Vec<u8>>)> {
        let names = fs.list(path(DIR)).unwrap();
        names.into_iter().map(|name| (name.clone(), content(fs, name.to_str().unwrap()))).collect()
    }

    #[test]
    fn bytes_are_durable_up_to_the_last_sync() {
        let fs = MemoryFileSystem::recording();
        let mut file = durable(&fs, "f", b"abc");
        file.append(b"def").unwrap();
        assert_eq!(content(&now(&fs, LoseUnsynced), "f").unwrap(), b"abc");
        assert_eq!(content(&now(&fs, KeepAll), "f").unwrap(), b"abcdef");
        file.sync_handle().unwrap().sync().unwrap();
        assert_eq!(content(&now(&fs, LoseUnsynced), "f").unwrap(), b"abcdef");
    }

    #[test]
    fn syncing_a_new_file_does_not_make_its_name_durable() {
        let fs = MemoryFileSystem::recording();
        create(&fs, "f", b"abc").sync().unwrap();
        assert_eq!(content(&now(&fs, LoseUnsynced), "f"), None);
        assert_eq!(content(&now(&fs, Entries(1)), "f").unwrap(), b"abc");
        fs.sync_dir(path(DIR)).unwrap();
        assert_eq!(content(&now(&fs, LoseUnsynced), "f").unwrap(), b"abc");
    }

    #[test]
    fn a_name_may_be_durable_before_the_bytes() {
        let fs = MemoryFileSystem::recording();
        create(&fs, "f", b"abc");
        fs.sync_dir(path(DIR)).unwrap();
        assert_eq!(content(&now(&fs, LoseUnsynced), "f").unwrap(), b"");
    }

    #[test]
    fn a_new_directory_takes_its_files_along_when_it_is_lost() {
        let fs = MemoryFileSystem::recording();
        fs.create_dir(path("d")).unwrap();
        create(&fs, "d/f", b"abc").sync().unwrap();
        fs.sync_dir(path("d")).unwrap();
        assert!(!now(&fs, LoseUnsynced).exists(path("d")).unwrap());
        fs.sync_dir(path(DIR)).unwrap();
        assert_eq!(content(&now(&fs, LoseUnsynced), "d/f").unwrap(), b"abc");
    }

    #[test]
    fn a_rename_is_the_old_or_the_new_binding_until_the_directory_is_synced() {
        let fs = MemoryFileSystem::recording();
        durable(&fs, "CURRENT", b"old");
        durable(&fs, "tmp", b"new");
        fs.rename(path("tmp"), path("CURRENT")).unwrap();
        assert_eq!(content(&now(&fs, LoseUnsynced), "CURRENT").unwrap(), b"old");
        assert_eq!(content(&now(&fs, LoseUnsynced), "tmp").unwrap(), b"new");
        assert_eq!(content(&now(&fs, KeepAll), "CURRENT").unwrap(), b"new");
        assert_eq!(content(&now(&fs, KeepAll), "tmp"), None);
        fs.sync_dir(path(DIR)).unwrap();
        assert_eq!(content(&now(&fs, LoseUnsynced), "CURRENT").unwrap(), b"new");
    }

    #[test]
    fn unsynced_entries_survive_in_any_combination() {
        let fs = MemoryFileSystem::recording();
        durable(&fs, "CURRENT", b"old");
        durable(&fs, "tmp", b"new");
        durable(&fs, "manifest", b"m");
        fs.rename(path("tmp"), path("CURRENT")).unwrap();
        fs.remove_file(path("manifest")).unwrap();
        fs.hard_link(path("CURRENT"), path("link")).unwrap();
        assert_eq!(fs.unsynced(fs.operation_count()).entries, 3);
        for mask in 0..8 {
            let image = now(&fs, Entries(mask));
            let current: &[u8] = if mask & 1 == 1 { b"new" } else { b"old" };
            assert_eq!(content(&image, "CURRENT").unwrap(), current);
            assert_eq!(content(&image, "manifest").is_none(), mask & 2 == 2);
            assert_eq!(content(&image, "link"), (mask & 4 == 4).then(|| b"new".to_vec()));
        }
        let drawn = |seed| everything(&fs.crash_image(fs.operation_count(), Subset, seed));
        let distinct: std::collections::BTreeSet<_> = (0..100).map(drawn).collect();
        assert_eq!(distinct.len(), 8);
    }

    #[test]
    fn a_removed_file_may_come_back_whole() {
        let fs = MemoryFileSystem::recording();
        durable(&fs, "f", b"abc");
        fs.remove_file(path("f")).unwrap();
        assert_eq!(content(&now(&fs, LoseUnsynced), "f").unwrap(), b"abc");
        assert_eq!(content(&now(&fs, KeepAll), "f"), None);
    }

    #[test]
    fn the_last_write_is_torn_at_a_sector_and_the_others_are_kept() {
        let fs = MemoryFileSystem::recording();
        let mut file = durable(&fs, "f", &[1; 500]);
        file.append(&[2; 100]).unwrap();
        file.append(&[3; 1000]).unwrap();
        // The last write is 600..1600: it touches sectors 1, 2 and 3.
        assert_eq!(fs.unsynced(fs.operation_count()).last_write_sectors, 3);
        for (sectors, len) in [(0, 600), (1, 1024), (2, 1536), (3, 1600), (4, 1600)] {
            let bytes = content(&now(&fs, TornAtSector(sectors)), "f").unwrap();
            assert_eq!(bytes.len(), len, "{sectors}");
            assert!(bytes[500..600].iter().all(|&b| b == 2) && bytes[600..].iter().all(|&b| b == 3));
        }
    }

    #[test]
    fn lengths_may_grow_without_the_bytes() {
        let fs = MemoryFileSystem::recording();
        let mut file = durable(&fs, "f", b"abc");
        file.append(b"def").unwrap();
        create(&fs, "new", b"xy");
        assert_eq!(content(&now(&fs, Zeros), "f").unwrap(), b"abc\0\0\0");
        assert_eq!(content(&now(&fs, Zeros), "new").unwrap(), b"\0\0");
    }

    #[test]
    fn garbage_comes_where_unsynced_writes_went_and_is_drawn_by_the_seed() {
        let fs = MemoryFileSystem::recording();
        let mut file = durable(&fs, "f", &[7; 10]);
        file.append(&[8; 20]).unwrap();
        let image = |seed| content(&fs.crash_image(fs.operation_count(), Garbage, seed), "f").unwrap();
        assert_eq!(image(1).len(), 30);
        assert_eq!(image(1)[..10], [7; 10]);
        assert_ne!(image(1)[10..], [8; 20]);
        assert_ne!(image(1), image(2));
        assert_eq!(image(1), image(1));
    }

    #[test]
    fn a_subset_may_lose_a_write_and_keep_the_one_after() {
        let fs = MemoryFileSystem::recording();
        let mut file = durable(&fs, "f", b"a");
        file.append(b"b").unwrap();
        file.append(b"c").unwrap();
        let drawn = |seed| content(&fs.crash_image(fs.operation_count(), Subset, seed), "f").unwrap();
        let seen: std::collections::BTreeSet<_> = (0..50).map(drawn).collect();
        let expected: [&[u8]; 4] = [b"a", b"a\0c", b"ab", b"abc"];
        assert_eq!(seen.iter().map(Vec::as_slice).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_cut_of_a_reserve_may_be_lost_and_leaves_zeros() {
        let fs = MemoryFileSystem::recording();
        let mut file = fs.create_new(path("log")).unwrap();
        fs.sync_dir(path(DIR)).unwrap();
        file.allocate(6).unwrap();
        file.append(b"ab").unwrap();
        assert_eq!(content(&now(&fs, LoseUnsynced), "log").unwrap(), b"");
        file.sync().unwrap();
        file.close().unwrap();
        assert_eq!(content(&now(&fs, LoseUnsynced), "log").unwrap(), b"ab\0\0\0\0");
        assert_eq!(content(&now(&fs, KeepAll), "log").unwrap(), b"ab");
        fs.truncate(path("log"), 1).unwrap();
        assert_eq!(content(&now(&fs, LoseUnsynced), "log").unwrap(), b"a");
    }

    #[test]
    fn every_point_of_the_journal_has_its_image_in_any_order() {
        let fs = MemoryFileSystem::recording();
        for number in 0..20_u8 {
            let mut file = create(&fs, &format!("{number}"), &[number; 700]);
            file.sync().unwrap();
            fs.sync_dir(path(DIR)).unwrap();
            if number > 3 {
                fs.remove_file(path(&format!("{}", number - 3))).unwrap();
            }
        }
        let image = |at, variant| everything(&fs.crash_image(at, variant, 5));
        let last = fs.operation_count();
        let variants = [LoseUnsynced, KeepAll, TornAtSector(1), Zeros, Garbage, Subset, Entries(2)];
        let forward: Vec<_> = (0..=last).map(|at| variants.map(|variant| image(at, variant))).collect();
        let backward: Vec<_> = (0..=last).rev().map(|at| variants.map(|variant| image(at, variant))).collect();
        assert!(forward.iter().eq(backward.iter().rev()));
        assert_eq!(image(last, KeepAll), everything(&fs));
        assert!(image(0, KeepAll).is_empty());
    }

    #[test]
    fn an_image_can_be_recorded_and_crash_again() {
        let fs = MemoryFileSystem::recording();
        durable(&fs, "a", b"1");
        let image = now(&fs, KeepAll);
        image.start_recording();
        create(&image, "b", b"2").sync().unwrap();
        let second = now(&image, LoseUnsynced);
        assert_eq!(everything(&second), [("a".into(), Some(b"1".to_vec()))]);
        assert_eq!(everything(&now(&image, KeepAll)).len(), 2);
        // The first journal knows nothing of it.
        assert_eq!(everything(&now(&fs, KeepAll)).len(), 1);
    }

    #[test]
    fn a_lock_does_not_survive_a_crash() {
        use crate::vfs::LockMode::Exclusive;
        let fs = MemoryFileSystem::recording();
        let _lock = fs.lock(path("LOCK"), Exclusive).unwrap();
        assert!(now(&fs, KeepAll).lock(path("LOCK"), Exclusive).is_ok());
        assert!(now(&fs, LoseUnsynced).lock(path("LOCK"), Exclusive).is_ok());
    }

    #[test]
    fn marks_count_for_the_images_after_them() {
        let fs = MemoryFileSystem::recording();
        fs.mark(1);
        create(&fs, "f", b"x");
        fs.mark(2);
        fs.sync_dir(path(DIR)).unwrap();
        fs.mark(3);
        assert_eq!(fs.operation_count(), 3);
        assert_eq!([0, 1, 2, 3].map(|at| fs.marks_up_to(at)), [vec![1], vec![1], vec![1, 2], vec![1, 2, 3]]);
    }

    #[test]
    fn operations_are_described_for_messages() {
        let fs = MemoryFileSystem::recording();
        fs.create_dir(path("d")).unwrap();
        create(&fs, "d/f", b"abc").sync().unwrap();
        fs.rename(path("d/f"), path("d/g")).unwrap();
        fs.sync_dir(path("d")).unwrap();
        let all: Vec<_> = (0..=fs.operation_count()).map(|at| fs.describe_operation(at)).collect();
        let expected = [
            "create directory d",
            "create d/f",
            "write 3 bytes at 0 of d/f",
            "sync d/f",
            "rename d/f to d/g",
            "sync directory d",
            "(no operation)",
        ];
        assert_eq!(all, expected);
    }
}
