//! Files in memory for the tests of blocks and tables.
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use crate::sync::{Arc, AtomicUsize, Mutex, Ordering};
use crate::vfs::{Advice, DirectIoAlignment, MappedBytes, RandomAccessFile, SyncHandle, WritableFile};
use std::io;

/// Bytes that are read like a file, and count the reads.
#[derive(Debug)]
pub(crate) struct MemoryFile {
    bytes: Arc<Vec<u8>>,
    reads: AtomicUsize,
}

impl MemoryFile {
    pub(crate) fn new(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(MemoryFile { bytes: Arc::new(bytes), reads: AtomicUsize::new(0) })
    }

    pub(crate) fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }
}

impl RandomAccessFile for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.bytes.len());
        let len = buffer.len().min(self.bytes.len() - start);
        buffer[..len].copy_from_slice(&self.bytes[start..start + len]);
        Ok(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    fn advise(&self, _: Advice) {}

    fn dio_alignment(&self) -> Option<DirectIoAlignment> {
        None
    }

    #[allow(unsafe_code)]
    unsafe fn map(&self) -> io::Result<MappedBytes> {
        Ok(self.bytes.clone() as MappedBytes)
    }
}

/// What was appended to a [`MemoryWriter`], and how often.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) bytes: Vec<u8>,
    pub(crate) appends: usize,
    /// How many bytes the last sync made durable.
    pub(crate) synced: usize,
    pub(crate) closed: bool,
}

/// A file written to memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryWriter(pub(crate) Arc<Mutex<Written>>);

impl WritableFile for MemoryWriter {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut written = self.0.lock();
        written.bytes.extend_from_slice(bytes);
        written.appends += 1;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut written = self.0.lock();
        written.synced = written.bytes.len();
        Ok(())
    }

    fn allocate(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn close(self: Box<Self>) -> io::Result<()> {
        self.0.lock().closed = true;
        Ok(())
    }

    fn sync_handle(&self) -> io::Result<Box<dyn SyncHandle>> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }
}
