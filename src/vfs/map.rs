//! Mapped files, and the one unsafe method of [`RandomAccessFile`].
//!
//! The file types of `vfs` implement [`ReadFile`], which has no unsafe method: instead of the caller's promise itself,
//! its `map` takes an [`Unchanging`], which only this file can make, out of that promise. So all unsafe code of `vfs`
//! stands here.
#![allow(unsafe_code)]

use crate::sync::Arc;
use crate::vfs::{Advice, DirectIoAlignment, MappedBytes, RandomAccessFile};
use std::fmt;
use std::fs::File;
use std::io;

/// Stands for the promise of [`RandomAccessFile::map`]'s caller: nobody changes or shortens the file while the map
/// lives.
#[derive(Debug)]
pub struct Unchanging(());

/// [`RandomAccessFile`] without an unsafe method; whoever implements this gets that.
pub trait ReadFile: Send + Sync + fmt::Debug {
    /// See [`RandomAccessFile::read_at`].
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// See [`RandomAccessFile::len`].
    fn len(&self) -> io::Result<u64>;
    /// See [`RandomAccessFile::advise`].
    fn advise(&self, advice: Advice);
    /// See [`RandomAccessFile::dio_alignment`].
    fn dio_alignment(&self) -> Option<DirectIoAlignment>;
    /// See [`RandomAccessFile::map`]; `promise` tells that its caller promised.
    fn map(&self, promise: &Unchanging) -> io::Result<MappedBytes>;
}

impl<T: ReadFile> RandomAccessFile for T {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        ReadFile::read_at(self, buffer, offset)
    }

    fn len(&self) -> io::Result<u64> {
        ReadFile::len(self)
    }

    fn advise(&self, advice: Advice) {
        ReadFile::advise(self, advice);
    }

    fn dio_alignment(&self) -> Option<DirectIoAlignment> {
        ReadFile::dio_alignment(self)
    }

    unsafe fn map(&self) -> io::Result<MappedBytes> {
        ReadFile::map(self, &Unchanging(()))
    }
}

/// Maps a file of the operating system, advised random: without that the kernel reads 128 KiB around each fault.
pub(super) fn map_file(file: &File, _promise: &Unchanging) -> io::Result<MappedBytes> {
    if file.metadata()?.len() == 0 {
        return Ok(Arc::new([0_u8; 0]));
    }
    // SAFETY: an `Unchanging` exists only inside a call of `RandomAccessFile::map`, whose caller promised that nobody
    // changes or shortens the file while the map lives.
    let map = unsafe { memmap2::Mmap::map(file) }?;
    // A hint; the map works without.
    let _ = map.advise(memmap2::Advice::Random);
    Ok(Arc::new(map))
}

/// Hands the promise on to a file that lies behind another.
pub(super) fn map_inner(file: &dyn RandomAccessFile, _promise: &Unchanging) -> io::Result<MappedBytes> {
    // SAFETY: as in `map_file`; the promise was made about the very file that `file` reads.
    unsafe { file.map() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn mapped(bytes: &[u8]) -> MappedBytes {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        map_file(&file, &Unchanging(())).unwrap()
    }

    #[test]
    fn a_map_shows_the_bytes_after_the_descriptor_is_closed() {
        let bytes: Vec<u8> = (0..10_000_u32).flat_map(u32::to_le_bytes).collect();
        assert_eq!((*mapped(&bytes)).as_ref(), &bytes[..]);
    }

    #[test]
    fn an_empty_file_maps_to_no_bytes() {
        assert!((*mapped(b"")).as_ref().is_empty());
    }
}
