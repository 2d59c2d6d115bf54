//! How tables are read. Apart, since one constructor is `unsafe`.
#![allow(unsafe_code)]

/// How tables are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadMode {
    mapped: bool,
}

impl ReadMode {
    /// Positioned reads into the block cache: the default. A damaged medium gives an error.
    pub fn pread() -> Self {
        ReadMode { mapped: false }
    }

    /// Reads in place through a map of each table, advised random. Values keep the map, not a copy.
    ///
    /// # Safety
    /// Nobody, in any process, may change or shorten a table file while the database is open or a value read from it is
    /// held: the bytes are taken for immutable. A media error, or a file cut short, kills the process with SIGBUS instead
    /// of giving an error.
    pub unsafe fn mmap() -> Self {
        ReadMode { mapped: true }
    }

    pub(crate) fn is_mapped(self) -> bool {
        self.mapped
    }
}
