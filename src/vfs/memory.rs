//! [`MemoryFileSystem`]: files in memory, for databases that need no disk, and for tests, which can let it crash at
//! every operation. What a crash may leave is decided in `vfs/crash.rs`; here are the calls.
//!
//! Locks are taken in this order: tree, journal, a file's bytes. A call changes its file or directory while it holds
//! the journal, so that the journal's order is the order of what happened.

use crate::sync::{Arc, AtomicU64, Mutex, MutexGuard, Ordering, RwLock};
use crate::vfs::crash::{self, Change, Entries, EntryChange, Journal, NodeId, Operation, Place, ROOT, Snapshot};
use crate::vfs::map::{ReadFile, Unchanging};
use crate::vfs::{
    Advice, DirectIoAlignment, FileLock, FileSystem, LockMode, MappedBytes, RandomAccessFile, SyncHandle, WritableFile,
};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Component, Path, PathBuf};

pub use crate::vfs::crash::{CrashVariant, Unsynced};

/// What `free_space` says: no limit of our own, and sums of it do not overflow.
const FREE_BYTES: u64 = 1 << 50;

/// A file system in memory. Cheap to clone; clones are the same file system, which lives as long as one of them.
///
/// ```text
/// let fs = MemoryFileSystem::recording();
/// run_the_workload(&fs);                                   // calls fs.mark(n) when n is acknowledged as durable
/// for at in 0..=fs.operation_count() {
///     let image = fs.crash_image(at, CrashVariant::LoseUnsynced, 0);
///     check(open(&image), fs.marks_up_to(at));             // image.start_recording() first, to crash again
/// }
/// ```
#[derive(Clone)]
pub struct MemoryFileSystem(Arc<Shared>);

struct Shared {
    tree: Mutex<Directory>,
    journal: Mutex<Option<Journal>>,
    /// Of each locked file, whether shared and by how many.
    locks: Mutex<HashMap<NodeId, (LockMode, usize)>>,
    next_node: AtomicU64,
}

#[derive(Debug)]
struct Directory {
    id: NodeId,
    entries: BTreeMap<OsString, Node>,
}

#[derive(Debug)]
enum Node {
    File(Arc<Inode>),
    Directory(Directory),
}

#[derive(Debug)]
struct Inode {
    id: NodeId,
    /// Copied when it is written while a map or an image shares it.
    bytes: RwLock<Arc<Vec<u8>>>,
}

impl Default for MemoryFileSystem {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryFileSystem {
    /// An empty file system that keeps no journal.
    pub fn new() -> Self {
        Self::from_snapshot(&Snapshot::default())
    }

    /// An empty file system that keeps a journal of every change, with the bytes written, until it is dropped.
    pub fn recording() -> Self {
        let fs = Self::new();
        fs.start_recording();
        fs
    }

    /// Begins a new journal; all that is there now counts as durable. To be called while nobody else uses it.
    pub fn start_recording(&self) {
        let tree = self.0.tree.lock();
        let (mut base, mut paths) = (Snapshot::default(), BTreeMap::new());
        snapshot(&tree, PathBuf::new(), &mut base, &mut paths);
        *self.0.journal.lock() = Some(Journal::new(base, paths));
    }

    /// How many changes the journal holds; 0 if there is none.
    pub fn operation_count(&self) -> usize {
        self.0.journal.lock().as_ref().map_or(0, Journal::operation_count)
    }

    /// What the change number `at` (from 0) did, for messages. A file is called by the name it was created with.
    pub fn describe_operation(&self, at: usize) -> String {
        let description = self.0.journal.lock().as_ref().and_then(|journal| journal.describe(at));
        description.unwrap_or_else(|| "(no operation)".to_owned())
    }

    /// Notes in the journal that the caller has reached `mark`. No change by itself.
    pub fn mark(&self, mark: u64) {
        if let Some(journal) = &mut *self.0.journal.lock() {
            journal.mark(mark);
        }
    }

    /// The marks that were noted before change number `at` began: those that a crash image at `at` has to honour.
    pub fn marks_up_to(&self, at: usize) -> Vec<u64> {
        self.0.journal.lock().as_ref().map_or_else(Vec::new, |journal| journal.marks_up_to(at))
    }

    /// The file system that the next start finds if the power fails after the first `at_operation` changes. The same
    /// arguments give the same image; rising `at_operation` is the fast order. The image keeps no journal, and nobody
    /// holds a lock in it.
    ///
    /// # Panics
    /// If no journal is kept, or it is shorter than that.
    pub fn crash_image(&self, at_operation: usize, variant: CrashVariant, seed: u64) -> MemoryFileSystem {
        Self::from_snapshot(&self.journal_at(at_operation, |journal| journal.crash(at_operation, variant, seed)))
    }

    /// What is not durable after the first `at_operation` changes: how many variants there are.
    ///
    /// # Panics
    /// If no journal is kept, or it is shorter than that.
    pub fn unsynced(&self, at_operation: usize) -> Unsynced {
        self.journal_at(at_operation, |journal| journal.unsynced(at_operation))
    }

    fn journal_at<T>(&self, at: usize, ask: impl FnOnce(&mut Journal) -> T) -> T {
        let mut journal = self.0.journal.lock();
        let journal = journal.as_mut().expect("a crash needs a journal: use MemoryFileSystem::recording()");
        assert!(at <= journal.operation_count(), "the journal ends before operation {at}");
        ask(journal)
    }

    fn from_snapshot(snapshot: &Snapshot) -> Self {
        let mut inodes = BTreeMap::new();
        let root = grow_tree(ROOT, snapshot, &mut inodes);
        let highest = snapshot.directories.keys().chain(snapshot.files.keys()).max().copied().unwrap_or(ROOT);
        MemoryFileSystem(Arc::new(Shared {
            tree: Mutex::new(root),
            journal: Mutex::new(None),
            locks: Mutex::default(),
            next_node: AtomicU64::new(highest + 1),
        }))
    }
}

fn snapshot(directory: &Directory, path: PathBuf, base: &mut Snapshot, paths: &mut BTreeMap<NodeId, PathBuf>) {
    let mut entries = Entries::new();
    for (name, node) in &directory.entries {
        entries.insert(name.clone(), node.id());
        match node {
            Node::Directory(inner) => snapshot(inner, path.join(name), base, paths),
            Node::File(inode) => {
                base.files.insert(inode.id, Arc::clone(&inode.bytes.read()));
                paths.insert(inode.id, path.join(name));
            }
        }
    }
    base.directories.insert(directory.id, entries);
    paths.insert(directory.id, path);
}

fn grow_tree(id: NodeId, snapshot: &Snapshot, inodes: &mut BTreeMap<NodeId, Arc<Inode>>) -> Directory {
    let mut directory = Directory { id, entries: BTreeMap::new() };
    for (name, id) in snapshot.directories.get(&id).into_iter().flatten() {
        let node = if snapshot.directories.contains_key(id) {
            Node::Directory(grow_tree(*id, snapshot, inodes))
        } else {
            let bytes = snapshot.files.get(id).map_or_else(Arc::default, Arc::clone);
            // Two names, one file.
            let inode = inodes.entry(*id).or_insert_with(|| Arc::new(Inode { id: *id, bytes: RwLock::new(bytes) }));
            Node::File(Arc::clone(inode))
        };
        directory.entries.insert(name.clone(), node);
    }
    directory
}

impl Node {
    fn id(&self) -> NodeId {
        match self {
            Node::File(inode) => inode.id,
            Node::Directory(directory) => directory.id,
        }
    }
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

/// The names on the way to `path`, from the root; the current directory is the root.
fn names(path: &Path) -> io::Result<Vec<&OsStr>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "a file system in memory knows no '..'"));
            }
        }
    }
    Ok(names)
}

impl Directory {
    fn directory(&mut self, names: &[&OsStr]) -> io::Result<&mut Directory> {
        let mut here = self;
        for name in names {
            here = match here.entries.get_mut(*name) {
                Some(Node::Directory(directory)) => directory,
                Some(Node::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                None => return Err(not_found()),
            };
        }
        Ok(here)
    }

    /// The directory that holds `path`, and the name in it.
    fn parent(&mut self, path: &Path) -> io::Result<(&mut Directory, OsString)> {
        let names = names(path)?;
        let (name, above) = names.split_last().ok_or(io::ErrorKind::InvalidInput)?;
        Ok((self.directory(above)?, (*name).to_owned()))
    }

    fn file(&mut self, path: &Path) -> io::Result<Arc<Inode>> {
        let (directory, name) = self.parent(path)?;
        match directory.entries.get(&name) {
            Some(Node::File(inode)) => Ok(Arc::clone(inode)),
            Some(Node::Directory(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(not_found()),
        }
    }

    /// What renaming would do, as POSIX has it. None if nothing: both are names of one file.
    fn check_rename(&mut self, from: &Path, to: &Path) -> io::Result<Option<EntryChange>> {
        let into_itself = names(to)?.len() > names(from)?.len() && names(to)?.starts_with(&names(from)?);
        let (source, name) = self.parent(from)?;
        let moved = source.entries.get(&name).ok_or_else(not_found)?;
        let (node, is_directory, from) = (moved.id(), matches!(moved, Node::Directory(_)), source.place(&name));
        if into_itself {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (target, name) = self.parent(to)?;
        match target.entries.get(&name) {
            Some(old) if old.id() == node => return Ok(None),
            Some(Node::File(_)) if is_directory => return Err(io::ErrorKind::NotADirectory.into()),
            Some(Node::Directory(_)) if !is_directory => return Err(io::ErrorKind::IsADirectory.into()),
            Some(Node::Directory(old)) if !old.entries.is_empty() => {
                return Err(io::ErrorKind::DirectoryNotEmpty.into());
            }
            _ => {}
        }
        Ok(Some(EntryChange::Rename { from, to: target.place(&name), node }))
    }

    fn place(&self, name: &OsStr) -> Place {
        Place { directory: self.id, name: name.to_owned() }
    }

    /// Fails if the name is taken.
    fn free_place(&self, name: &OsStr) -> io::Result<Place> {
        if self.entries.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Ok(self.place(name))
    }
}

impl Shared {
    /// Writes the operation down, if a journal is kept, and keeps it locked until the caller has carried it out.
    fn log(&self, operation: impl FnOnce() -> Operation) -> MutexGuard<'_, Option<Journal>> {
        let mut journal = self.journal.lock();
        if let Some(journal) = &mut *journal {
            journal.push(operation());
        }
        journal
    }

    fn next_node(&self) -> NodeId {
        self.next_node.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes the name durable only with the directory, but shows it at once.
    fn create_file(&self, directory: &mut Directory, name: OsString) -> io::Result<Arc<Inode>> {
        let place = directory.free_place(&name)?;
        let inode = Arc::new(Inode { id: self.next_node(), bytes: RwLock::default() });
        let _journal = self.log(|| Operation::CreateFile { place, node: inode.id });
        directory.entries.insert(name, Node::File(Arc::clone(&inode)));
        Ok(inode)
    }

    fn write(&self, inode: &Inode, offset: u64, bytes: &[u8]) {
        let change = || Change::Write { offset, bytes: bytes.into() };
        let _journal = self.log(|| Operation::Data { file: inode.id, change: change() });
        crash::write_at(Arc::make_mut(&mut *inode.bytes.write()), offset, bytes);
    }

    fn change(&self, inode: &Inode, change: &Change) {
        let _journal = self.log(|| Operation::Data { file: inode.id, change: change.clone() });
        change.apply(Arc::make_mut(&mut *inode.bytes.write()));
    }

    fn sync(&self, inode: &Inode) {
        drop(self.log(|| Operation::Sync { file: inode.id }));
    }

    fn unbind(&self, directory: &mut Directory, name: &OsStr) {
        let place = directory.place(name);
        let _journal = self.log(|| Operation::Entry(EntryChange::Unbind { place }));
        directory.entries.remove(name);
    }
}

impl FileSystem for MemoryFileSystem {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let mut tree = self.0.tree.lock();
        let (directory, name) = tree.parent(path)?;
        let inode = self.0.create_file(directory, name)?;
        Ok(Box::new(MemoryWriter { shared: Arc::clone(&self.0), inode, position: 0, reserved: 0 }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn RandomAccessFile>> {
        Ok(Arc::new(MemoryReader(self.0.tree.lock().file(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut tree = self.0.tree.lock();
        let Some(change) = tree.check_rename(from, to)? else { return Ok(()) };
        let _journal = self.0.log(|| Operation::Entry(change));
        let (source, from_name) = tree.parent(from)?;
        let moved = source.entries.remove(&from_name).ok_or_else(not_found)?;
        let (target, to_name) = tree.parent(to)?;
        target.entries.insert(to_name, moved);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut tree = self.0.tree.lock();
        tree.file(path)?;
        let (directory, name) = tree.parent(path)?;
        self.0.unbind(directory, &name);
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut tree = self.0.tree.lock();
        if !tree.directory(&names(path)?)?.entries.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        let (directory, name) = tree.parent(path)?;
        self.0.unbind(directory, &name);
        Ok(())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut tree = self.0.tree.lock();
        let inode = tree.file(from)?;
        let (directory, name) = tree.parent(to)?;
        let change = EntryChange::Bind { place: directory.free_place(&name)?, node: inode.id };
        let _journal = self.0.log(|| Operation::Entry(change));
        directory.entries.insert(name, Node::File(inode));
        Ok(())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut tree = self.0.tree.lock();
        if names(path)?.is_empty() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let (directory, name) = tree.parent(path)?;
        let place = directory.free_place(&name)?;
        let id = self.0.next_node();
        let _journal = self.0.log(|| Operation::CreateDirectory { place, node: id });
        directory.entries.insert(name, Node::Directory(Directory { id, entries: BTreeMap::new() }));
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        Ok(self.0.tree.lock().directory(&names(dir)?)?.entries.keys().cloned().collect())
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        Ok(self.0.tree.lock().file(path)?.bytes.read().len() as u64)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let mut tree = self.0.tree.lock();
        let names = names(path)?;
        let Some((name, above)) = names.split_last() else { return Ok(true) };
        match tree.directory(above) {
            Ok(directory) => Ok(directory.entries.contains_key(*name)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn truncate(&self, path: &Path, len: u64) -> io::Result<()> {
        let inode = self.0.tree.lock().file(path)?;
        if (inode.bytes.read().len() as u64) < len {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the file is shorter than what it is to be cut to",
            ));
        }
        self.0.change(&inode, &Change::Cut { len });
        self.0.sync(&inode);
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut tree = self.0.tree.lock();
        let directory = tree.directory(&names(dir)?)?.id;
        drop(self.0.log(|| Operation::SyncDirectory { directory }));
        Ok(())
    }

    fn lock(&self, path: &Path, mode: LockMode) -> io::Result<Box<dyn FileLock>> {
        let mut tree = self.0.tree.lock();
        let file = match tree.file(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && mode == LockMode::Exclusive => {
                let (directory, name) = tree.parent(path)?;
                self.0.create_file(directory, name)?
            }
            found => found?,
        };
        drop(tree);
        let mut locks = self.0.locks.lock();
        let (held, holders) = locks.entry(file.id).or_insert((mode, 0));
        if *holders > 0 && (mode == LockMode::Exclusive || *held == LockMode::Exclusive) {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "another handle holds the lock"));
        }
        *holders += 1;
        Ok(Box::new(MemoryLock { shared: Arc::clone(&self.0), path: path.to_owned(), id: file.id }))
    }

    fn free_space(&self, _path: &Path) -> io::Result<u64> {
        Ok(FREE_BYTES)
    }
}

struct MemoryLock {
    shared: Arc<Shared>,
    path: PathBuf,
    id: NodeId,
}

impl FileLock for MemoryLock {
    fn still_excludes(&self) -> io::Result<bool> {
        match self.shared.tree.lock().file(&self.path) {
            Ok(file) => Ok(file.id == self.id),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }
}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        let mut locks = self.shared.locks.lock();
        if let Some((_, holders)) = locks.get_mut(&self.id) {
            *holders -= 1;
            if *holders == 0 {
                locks.remove(&self.id);
            }
        }
    }
}

#[derive(Debug)]
struct MemoryReader(Arc<Inode>);

impl ReadFile for MemoryReader {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = self.0.bytes.read();
        let rest = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)).unwrap_or_default();
        let read = rest.len().min(buffer.len());
        buffer[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.bytes.read().len() as u64)
    }

    fn advise(&self, _advice: Advice) {}

    fn dio_alignment(&self) -> Option<DirectIoAlignment> {
        None
    }

    /// Shares the bytes; a later write goes to a copy.
    fn map(&self, _promise: &Unchanging) -> io::Result<MappedBytes> {
        let bytes = Arc::clone(&self.0.bytes.read());
        Ok(bytes)
    }
}

struct MemoryWriter {
    shared: Arc<Shared>,
    inode: Arc<Inode>,
    position: u64,
    reserved: u64,
}

impl WritableFile for MemoryWriter {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !bytes.is_empty() {
            self.shared.write(&self.inode, self.position, bytes);
            self.position += bytes.len() as u64;
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.shared.sync(&self.inode);
        Ok(())
    }

    fn allocate(&mut self, len: u64) -> io::Result<()> {
        if len > self.position.max(self.reserved) {
            self.shared.change(&self.inode, &Change::Allocate { len });
            self.reserved = len;
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> io::Result<()> {
        if self.reserved > self.position {
            self.shared.change(&self.inode, &Change::Cut { len: self.position });
        }
        Ok(())
    }

    fn sync_handle(&self) -> io::Result<Box<dyn SyncHandle>> {
        Ok(Box::new(MemorySyncHandle { shared: Arc::clone(&self.shared), inode: Arc::clone(&self.inode) }))
    }
}

struct MemorySyncHandle {
    shared: Arc<Shared>,
    inode: Arc<Inode>,
}

impl SyncHandle for MemorySyncHandle {
    fn sync(&self) -> io::Result<()> {
        self.shared.sync(&self.inode);
        Ok(())
    }
}

macro_rules! short_debug {
    ($($handle:ident),*) => {$(
        impl fmt::Debug for $handle {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($handle)).finish_non_exhaustive()
            }
        }
    )*};
}
short_debug!(MemoryFileSystem, MemoryLock, MemoryWriter, MemorySyncHandle);

#[cfg(test)]
mod tests {
    use super::*;

    fn fs_with(files: &[&str]) -> MemoryFileSystem {
        let fs = MemoryFileSystem::new();
        fs.create_dir(Path::new("d")).unwrap();
        for file in files {
            fs.create_new(Path::new(file)).unwrap().append(file.as_bytes()).unwrap();
        }
        fs
    }

    fn read(fs: &MemoryFileSystem, path: &str) -> Vec<u8> {
        let file = fs.open(Path::new(path)).unwrap();
        let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap() + 3];
        let read = file.read_at(&mut bytes, 0).unwrap();
        bytes.truncate(read);
        bytes
    }

    fn kind<T>(result: io::Result<T>) -> io::ErrorKind {
        result.err().unwrap().kind()
    }

    #[test]
    fn reads_stop_at_the_end_and_see_later_writes() {
        let fs = fs_with(&[]);
        let mut writer = fs.create_new(Path::new("/d/f")).unwrap();
        let reader = fs.open(Path::new("d/f")).unwrap();
        writer.append(b"abc").unwrap();
        let mut buffer = [0; 2];
        assert_eq!((reader.read_at(&mut buffer, 2).unwrap(), buffer[0]), (1, b'c'));
        assert_eq!(reader.read_at(&mut buffer, 3).unwrap(), 0);
        assert_eq!(reader.read_at(&mut buffer, u64::MAX).unwrap(), 0);
    }

    #[test]
    fn the_reserve_is_zeros_until_close_cuts_it() {
        let fs = fs_with(&[]);
        let mut writer = fs.create_new(Path::new("f")).unwrap();
        writer.append(b"ab").unwrap();
        writer.allocate(6).unwrap();
        writer.append(b"c").unwrap();
        assert_eq!(read(&fs, "f"), b"abc\0\0\0");
        writer.close().unwrap();
        assert_eq!(read(&fs, "f"), b"abc");
    }

    #[test]
    fn an_open_file_outlives_its_name() {
        let fs = fs_with(&["d/a", "d/b"]);
        let (a, b) = (fs.open(Path::new("d/a")).unwrap(), fs.open(Path::new("d/b")).unwrap());
        fs.rename(Path::new("d/a"), Path::new("d/b")).unwrap();
        fs.remove_file(Path::new("d/b")).unwrap();
        let mut buffer = [0; 3];
        a.read_at(&mut buffer, 0).unwrap();
        assert_eq!(&buffer, b"d/a");
        b.read_at(&mut buffer, 0).unwrap();
        assert_eq!(&buffer, b"d/b");
        assert!(fs.list(Path::new("d")).unwrap().is_empty());
    }

    #[test]
    fn names_are_refused_as_a_disk_refuses_them() {
        let fs = fs_with(&["d/a", "b"]);
        let path = Path::new;
        assert_eq!(kind(fs.create_new(path("b"))), io::ErrorKind::AlreadyExists);
        assert_eq!(kind(fs.create_new(path("none/f"))), io::ErrorKind::NotFound);
        assert_eq!(kind(fs.create_new(path("b/f"))), io::ErrorKind::NotADirectory);
        assert_eq!(kind(fs.open(path("../b"))), io::ErrorKind::InvalidInput);
        assert_eq!(kind(fs.open(path("none"))), io::ErrorKind::NotFound);
        assert_eq!(kind(fs.remove_dir(path("d"))), io::ErrorKind::DirectoryNotEmpty);
        assert_eq!(kind(fs.remove_file(path("d"))), io::ErrorKind::IsADirectory);
        assert_eq!(kind(fs.rename(path("d"), path("d/e"))), io::ErrorKind::InvalidInput);
        assert_eq!(kind(fs.rename(path("b"), path("d"))), io::ErrorKind::IsADirectory);
        assert_eq!(kind(fs.rename(path("none"), path("c"))), io::ErrorKind::NotFound);
        assert_eq!(kind(fs.hard_link(path("b"), path("d/a"))), io::ErrorKind::AlreadyExists);
        assert_eq!(kind(fs.create_dir(path("d"))), io::ErrorKind::AlreadyExists);
        assert_eq!(kind(fs.truncate(path("b"), 9)), io::ErrorKind::InvalidInput);
        assert!(fs.exists(path("")).unwrap() && fs.exists(path("d")).unwrap() && !fs.exists(path("none/f")).unwrap());
    }

    #[test]
    fn a_directory_is_renamed_with_what_is_in_it() {
        let fs = fs_with(&["d/a"]);
        fs.rename(Path::new("d"), Path::new("e")).unwrap();
        assert_eq!(read(&fs, "e/a"), b"d/a");
        assert_eq!(fs.list(Path::new("")).unwrap(), ["e"]);
    }

    #[test]
    fn a_hard_link_shares_the_bytes() {
        let fs = fs_with(&["a"]);
        fs.hard_link(Path::new("a"), Path::new("b")).unwrap();
        fs.truncate(Path::new("a"), 0).unwrap();
        assert_eq!(fs.len(Path::new("b")).unwrap(), 0);
        fs.rename(Path::new("a"), Path::new("b")).unwrap();
        assert_eq!(fs.list(Path::new("")).unwrap(), ["a", "b", "d"]);
    }

    #[test]
    fn locks_exclude_each_other_and_shared_ones_do_not_create_the_file() {
        let fs = fs_with(&[]);
        let path = Path::new("LOCK");
        assert_eq!(kind(fs.lock(path, LockMode::Shared)), io::ErrorKind::NotFound);
        let lock = fs.lock(path, LockMode::Exclusive).unwrap();
        assert_eq!(kind(fs.clone().lock(path, LockMode::Exclusive)), io::ErrorKind::WouldBlock);
        assert_eq!(kind(fs.lock(path, LockMode::Shared)), io::ErrorKind::WouldBlock);
        drop(lock);
        let shared = [fs.lock(path, LockMode::Shared).unwrap(), fs.lock(path, LockMode::Shared).unwrap()];
        assert_eq!(kind(fs.lock(path, LockMode::Exclusive)), io::ErrorKind::WouldBlock);
        drop(shared);
        fs.lock(path, LockMode::Exclusive).unwrap();
    }

    #[test]
    fn without_a_journal_nothing_is_counted() {
        let fs = fs_with(&["a"]);
        fs.mark(1);
        assert_eq!((fs.operation_count(), fs.marks_up_to(9)), (0, vec![]));
    }
}
