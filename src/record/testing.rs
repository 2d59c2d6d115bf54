//! A file system in memory for the unit tests of records, logs and manifests: it notes every call and can fail one.
// The trait has an unsafe method; here it only ever answers "unsupported".
#![allow(unsafe_code)]

use crate::filename::FileNumber;
use crate::record::RecordWriter;
use crate::sync::{Arc, Mutex};
use crate::vfs::{
    Advice, DirectIoAlignment, FileLock, FileSystem, LockMode, MappedBytes, RandomAccessFile, SyncHandle, WritableFile,
};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<PathBuf, Vec<u8>>,
    calls: Vec<String>,
    fail: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct TestFs(Arc<Mutex<State>>);

/// A writer of records over a new file.
pub(crate) fn writer(fs: &TestFs, path: &str, number: FileNumber) -> RecordWriter {
    RecordWriter::new(fs.create_new(Path::new(path)).unwrap(), path.into(), number)
}

impl TestFs {
    pub(crate) fn bytes(&self, path: &str) -> Vec<u8> {
        self.0.lock().files.get(Path::new(path)).expect("the file exists").clone()
    }

    pub(crate) fn put(&self, path: &str, bytes: &[u8]) {
        self.0.lock().files.insert(path.into(), bytes.to_vec());
    }

    pub(crate) fn remove(&self, path: &str) {
        self.0.lock().files.remove(Path::new(path)).expect("the file exists");
    }

    pub(crate) fn snapshot(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        self.0.lock().files.clone()
    }

    /// The next call of `operation` fails for want of space; it has no effect.
    pub(crate) fn fail_next(&self, operation: &str) {
        self.0.lock().fail = Some(operation.to_owned());
    }

    /// How often an operation was called.
    pub(crate) fn calls(&self, operation: &str) -> usize {
        let prefix = format!("{operation} ");
        self.0.lock().calls.iter().filter(|call| call.starts_with(&prefix)).count()
    }

    /// Every changing call so far: operation and file name.
    pub(crate) fn all_calls(&self) -> Vec<String> {
        self.0.lock().calls.clone()
    }

    fn call(&self, operation: &str, path: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        state.calls.push(format!("{operation} {name}"));
        if state.fail.as_deref() == Some(operation) {
            state.fail = None;
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl FileSystem for TestFs {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.call("create", path)?;
        let mut state = self.0.lock();
        if state.files.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.files.insert(path.to_owned(), Vec::new());
        Ok(Box::new(TestFile { fs: self.clone(), path: path.to_owned(), written: 0 }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn RandomAccessFile>> {
        let bytes = self.0.lock().files.get(path).ok_or_else(missing)?.clone();
        Ok(Arc::new(TestReader(bytes)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call("rename", to)?;
        let mut state = self.0.lock();
        let bytes = state.files.remove(from).ok_or_else(missing)?;
        state.files.insert(to.to_owned(), bytes);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.call("remove", path)?;
        self.0.lock().files.remove(path).map(|_| ()).ok_or_else(missing)
    }

    fn remove_dir(&self, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn hard_link(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn create_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        let state = self.0.lock();
        let here = state.files.keys().filter(|path| path.parent() == Some(dir));
        Ok(here.filter_map(|path| path.file_name()).map(OsString::from).collect())
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        Ok(self.0.lock().files.get(path).ok_or_else(missing)?.len() as u64)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.0.lock().files.contains_key(path))
    }

    fn truncate(&self, path: &Path, len: u64) -> io::Result<()> {
        self.call("truncate", path)?;
        self.0.lock().files.get_mut(path).ok_or_else(missing)?.truncate(len as usize);
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.call("sync_dir", dir)
    }

    fn lock(&self, _path: &Path, _mode: LockMode) -> io::Result<Box<dyn FileLock>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn free_space(&self, _path: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}

#[derive(Debug)]
struct TestReader(Vec<u8>);

impl RandomAccessFile for TestReader {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = self.0.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn advise(&self, _advice: Advice) {}

    fn dio_alignment(&self) -> Option<DirectIoAlignment> {
        None
    }

    unsafe fn map(&self) -> io::Result<MappedBytes> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[derive(Debug)]
struct TestFile {
    fs: TestFs,
    path: PathBuf,
    written: usize,
}

impl WritableFile for TestFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.fs.call("append", &self.path)?;
        let mut state = self.fs.0.lock();
        let file = state.files.get_mut(&self.path).ok_or_else(missing)?;
        let end = self.written + bytes.len();
        file.resize(file.len().max(end), 0);
        file[self.written..end].copy_from_slice(bytes);
        self.written = end;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.fs.call("sync", &self.path)
    }

    fn allocate(&mut self, len: u64) -> io::Result<()> {
        self.fs.call("allocate", &self.path)?;
        let mut state = self.fs.0.lock();
        let file = state.files.get_mut(&self.path).ok_or_else(missing)?;
        file.resize(file.len().max(len as usize), 0);
        Ok(())
    }

    fn close(self: Box<Self>) -> io::Result<()> {
        self.fs.call("close", &self.path)?;
        self.fs.0.lock().files.get_mut(&self.path).ok_or_else(missing)?.truncate(self.written);
        Ok(())
    }

    fn sync_handle(&self) -> io::Result<Box<dyn SyncHandle>> {
        Ok(Box::new(TestSync(self.fs.clone(), self.path.clone())))
    }
}

#[derive(Debug)]
struct TestSync(TestFs, PathBuf);

impl SyncHandle for TestSync {
    fn sync(&self) -> io::Result<()> {
        self.0.call("sync", &self.1)
    }
}
