//! Where a run's database lies: in memory or in a directory of its own.

use siftdb::vfs::{CrashVariant, DiskFileSystem, FileSystem, MemoryFileSystem};
use siftdb::{Db, Options};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub enum Home {
    Memory(MemoryFileSystem),
    Disk(tempfile::TempDir),
}

impl Home {
    pub fn memory() -> Self {
        Home::Memory(MemoryFileSystem::new())
    }

    pub fn disk() -> Self {
        Home::Disk(tempfile::tempdir().unwrap())
    }

    fn parts(&self) -> (Arc<dyn FileSystem>, PathBuf) {
        match self {
            Home::Memory(fs) => (Arc::new(fs.clone()), PathBuf::from("db")),
            Home::Disk(dir) => (Arc::new(DiskFileSystem), dir.path().join("db")),
        }
    }

    pub fn open(&self, options: Options) -> siftdb::Result<Db> {
        let (fs, dir) = self.parts();
        Db::builder().options(options).file_system(fs).open(dir)
    }

    /// What the next start finds if the process dies now. `None` on disk, where that takes a process to kill.
    pub fn after_kill(&self) -> Option<Home> {
        let Home::Memory(fs) = self else { return None };
        fs.start_recording();
        Some(Home::Memory(fs.crash_image(0, CrashVariant::KeepAll, 0)))
    }

    /// The names of all files.
    pub fn names(&self) -> Vec<String> {
        let (fs, dir) = self.parts();
        fs.list(&dir).unwrap().into_iter().map(|name| name.into_string().unwrap()).collect()
    }

    /// Every file with its bytes.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let (fs, dir) = self.parts();
        self.names().into_iter().map(|name| (name.clone(), read(&*fs, &dir.join(&name)))).collect()
    }
}

fn read(fs: &dyn FileSystem, path: &Path) -> Vec<u8> {
    let file = fs.open(path).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    let read = file.read_at(&mut bytes, 0).unwrap();
    assert_eq!(read, bytes.len(), "{}", path.display());
    bytes
}
