//! [`DescriptorCache`]: many files, few descriptors. A database of 100 GB has some 1,600 tables, a process usually
//! 1,024 descriptors.
//!
//! A read of an open file takes that file's read lock and a reference to its descriptor, nothing shared with other
//! files. Opening, evicting and forgetting happen under one lock, taken before a file's own: opens are rare once the
//! hot files are in, and so the cap is exact. What is evicted closes when the last read on it returns, so up to one
//! descriptor per reading thread comes on top.
//!
//! Which one goes is decided by a clock hand: a file read since the hand passed gets another round.

use crate::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering, RwLock};
use crate::vfs::map::{ReadFile, Unchanging, map_inner};
use crate::vfs::{Advice, DirectIoAlignment, FileSystem, MappedBytes, RandomAccessFile};
use std::io;
use std::path::{Path, PathBuf};

/// Opens files for reading and keeps at most `capacity` descriptors of them open. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct DescriptorCache(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    fs: Arc<dyn FileSystem>,
    capacity: usize,
    ring: Mutex<Ring>,
    opens: AtomicU64,
}

/// The files that have a descriptor, in the order in which the hand passes them.
#[derive(Debug, Default)]
struct Ring {
    slots: Vec<Arc<Slot>>,
    hand: usize,
}

#[derive(Debug)]
struct Slot {
    path: PathBuf,
    /// Some exactly while the slot is in the ring; changed under the ring's lock.
    file: RwLock<Option<Arc<dyn RandomAccessFile>>>,
    /// Read since the hand last passed.
    used: AtomicBool,
    /// What a new descriptor has to be told. Changed under the ring's lock.
    advice: Mutex<Option<Advice>>,
}

/// A file that is there to be read, with or without a descriptor at the moment. Its path must stay its own: it is
/// opened again by name.
#[derive(Debug)]
pub(crate) struct CachedFile {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
}

impl DescriptorCache {
    /// At least one descriptor is allowed whatever `capacity` says.
    pub(crate) fn new(fs: Arc<dyn FileSystem>, capacity: usize) -> Self {
        let ring = Mutex::default();
        DescriptorCache(Arc::new(Shared { fs, capacity: capacity.max(1), ring, opens: AtomicU64::new(0) }))
    }

    /// Opens `path`, so that a missing file is told now, not at the first read.
    pub(crate) fn open(&self, path: &Path) -> io::Result<Arc<CachedFile>> {
        let slot = Slot { path: path.to_owned(), file: RwLock::default(), used: true.into(), advice: Mutex::default() };
        let file = CachedFile { shared: Arc::clone(&self.0), slot: Arc::new(slot) };
        file.descriptor()?;
        Ok(Arc::new(file))
    }

    /// How often a file was opened, first times included.
    pub(crate) fn opens(&self) -> u64 {
        self.0.opens.load(Ordering::Relaxed)
    }

    /// Descriptors open now.
    pub(crate) fn open_descriptors(&self) -> usize {
        self.0.ring.lock().slots.len()
    }
}

impl Ring {
    /// Closes the first file that was not read since the hand passed it. The loop ends: one round clears every mark,
    /// and a reader that sets one again at the same time can delay it only while it reads.
    fn evict(&mut self) {
        while !self.slots.is_empty() {
            self.hand %= self.slots.len();
            if !self.slots[self.hand].used.swap(false, Ordering::Relaxed) {
                let victim = self.slots.swap_remove(self.hand);
                *victim.file.write() = None;
                return;
            }
            self.hand += 1;
        }
    }

    fn remove(&mut self, slot: &Arc<Slot>) {
        if let Some(at) = self.slots.iter().position(|other| Arc::ptr_eq(other, slot)) {
            self.slots.swap_remove(at);
            *slot.file.write() = None;
        }
    }
}

impl CachedFile {
    /// The file's path.
    #[cfg(test)]
    pub(crate) fn path(&self) -> &Path {
        &self.slot.path
    }

    /// Closes the descriptor; a later read opens the file again. Dropping the file does the same.
    pub(crate) fn forget(&self) {
        self.shared.ring.lock().remove(&self.slot);
    }

    fn descriptor(&self) -> io::Result<Arc<dyn RandomAccessFile>> {
        if let Some(file) = &*self.slot.file.read() {
            // Looked at first: a line that only reads touch stays shared among the cores.
            if !self.slot.used.load(Ordering::Relaxed) {
                self.slot.used.store(true, Ordering::Relaxed);
            }
            return Ok(Arc::clone(file));
        }
        self.reopen()
    }

    fn reopen(&self) -> io::Result<Arc<dyn RandomAccessFile>> {
        let mut ring = self.shared.ring.lock();
        // Somebody may have been faster.
        if let Some(file) = &*self.slot.file.read() {
            return Ok(Arc::clone(file));
        }
        while ring.slots.len() >= self.shared.capacity {
            ring.evict();
        }
        let file = self.shared.fs.open(&self.slot.path)?;
        self.shared.opens.fetch_add(1, Ordering::Relaxed);
        if let Some(advice) = *self.slot.advice.lock() {
            file.advise(advice);
        }
        *self.slot.file.write() = Some(Arc::clone(&file));
        self.slot.used.store(true, Ordering::Relaxed);
        ring.slots.push(Arc::clone(&self.slot));
        Ok(file)
    }
}

impl Drop for CachedFile {
    fn drop(&mut self) {
        self.forget();
    }
}

impl ReadFile for CachedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.descriptor()?.read_at(buffer, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.descriptor()?.len()
    }

    /// `Random` and `Sequential` describe the descriptor and are told to every later one; `DontNeed` is about the
    /// pages that are there now.
    fn advise(&self, advice: Advice) {
        let ring = self.shared.ring.lock();
        if advice != Advice::DontNeed {
            *self.slot.advice.lock() = Some(advice);
        }
        let file = self.slot.file.read().clone();
        drop(ring);
        if let Some(file) = file {
            file.advise(advice);
        }
    }

    fn dio_alignment(&self) -> Option<DirectIoAlignment> {
        self.descriptor().ok()?.dio_alignment()
    }

    /// The map does not need the descriptor once it stands.
    fn map(&self, promise: &Unchanging) -> io::Result<MappedBytes> {
        map_inner(&*self.descriptor()?, promise)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::spawn;
    use crate::vfs::fault::{Call, FaultFileSystem, Select};
    use crate::vfs::memory::MemoryFileSystem;

    fn cache(files: u8, capacity: usize) -> (DescriptorCache, Vec<Arc<CachedFile>>, Arc<FaultFileSystem>) {
        let fs = Arc::new(FaultFileSystem::new(Arc::new(MemoryFileSystem::new())));
        let cache = DescriptorCache::new(Arc::clone(&fs) as Arc<dyn FileSystem>, capacity);
        let open = |number: u8| {
            let path = PathBuf::from(number.to_string());
            fs.create_new(&path).unwrap().append(&[number; 4]).unwrap();
            cache.open(&path).unwrap()
        };
        let files = (0..files).map(open).collect();
        (cache, files, fs)
    }

    fn first_byte(file: &CachedFile) -> u8 {
        let mut byte = [0];
        assert_eq!(RandomAccessFile::read_at(file, &mut byte, 0).unwrap(), 1);
        byte[0]
    }

    #[test]
    fn every_file_can_be_read_and_no_more_than_the_capacity_is_open() {
        let (cache, files, _) = cache(20, 3);
        for round in 0..3 {
            for (number, file) in files.iter().enumerate() {
                assert_eq!(usize::from(first_byte(file)), number, "round {round}");
                assert!(cache.open_descriptors() <= 3);
            }
        }
        assert!(cache.opens() > 20);
    }

    #[test]
    fn files_that_fit_are_opened_once() {
        let (cache, files, fs) = cache(4, 4);
        for _ in 0..10 {
            files.iter().for_each(|file| {
                first_byte(file);
            });
        }
        assert_eq!((cache.opens(), fs.operation_count(Select::Only(Call::Open))), (4, 4));
    }

    #[test]
    fn a_file_read_all_the_time_keeps_its_descriptor() {
        let (cache, files, _) = cache(9, 3);
        first_byte(&files[0]);
        let before = cache.opens();
        for file in &files[1..] {
            first_byte(&files[0]);
            first_byte(file);
        }
        assert!(cache.opens() - before <= 8 + 3, "{}", cache.opens() - before);
    }

    #[test]
    fn a_missing_file_is_told_at_once_and_holds_no_place() {
        let (cache, _files, _) = cache(1, 2);
        assert_eq!(cache.open(Path::new("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(cache.open_descriptors(), 1);
    }

    #[test]
    fn forgetting_and_dropping_close_the_descriptor() {
        let (cache, mut files, _) = cache(2, 2);
        files[0].forget();
        assert_eq!(cache.open_descriptors(), 1);
        assert_eq!(first_byte(&files[0]), 0);
        files.pop();
        assert_eq!(cache.open_descriptors(), 1);
        assert_eq!(files[0].path(), Path::new("0"));
    }

    #[test]
    fn advice_is_given_again_to_a_new_descriptor() {
        let (_cache, files, fs) = cache(1, 1);
        let told = || fs.operation_count(Select::Only(Call::Advise));
        RandomAccessFile::advise(&*files[0], Advice::Random);
        RandomAccessFile::advise(&*files[0], Advice::DontNeed);
        assert_eq!(told(), 2);
        files[0].forget();
        RandomAccessFile::advise(&*files[0], Advice::DontNeed);
        assert_eq!(told(), 2);
        first_byte(&files[0]);
        assert_eq!((told(), *files[0].slot.advice.lock()), (3, Some(Advice::Random)));
    }

    #[test]
    fn threads_read_the_right_bytes_while_descriptors_come_and_go() {
        let (cache, files, _) = cache(8, 2);
        let readers: Vec<_> = (0..3_usize)
            .map(|thread| {
                let files = files.clone();
                let read = move || {
                    for step in 0..500 {
                        let number = (step * (thread + 1) + thread) % files.len();
                        assert_eq!(usize::from(first_byte(&files[number])), number);
                    }
                };
                spawn("reader", read).unwrap()
            })
            .collect();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert!(cache.open_descriptors() <= 2);
    }
}
