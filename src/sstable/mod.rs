//! Tables: immutable sorted files with a filter and an index of their own.
//!
//! ```text
//! data block *        sorted entries                                    block/mod.rs
//! filter block        at a multiple of 64; none for FilterKind::None    filter/
//! index block         which data block may hold a key                   sstable/index.rs
//! properties block    counts, bounds, sizes: a tagged map               sstable/properties.rs
//! metaindex block     names and handles of the three before it          sstable/metaindex.rs
//! zeros               up to 64 bytes before a multiple of 4 KiB
//! footer              64 bytes                                          sstable/footer.rs
//! ```
//!
//! Each block carries codec and checksum (`block/physical.rs`); bytes between blocks are zero. With `align_blocks` no
//! block that fits a 4 KiB page crosses a page boundary. A table is never written after its final sync.

mod footer;
mod index;
mod iter;
mod mapped;
mod metaindex;
mod properties;
mod reader;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

pub(crate) use iter::{Purpose, TableIter};
pub(crate) use reader::{Table, TableIdentity};
pub(crate) use writer::{TableSummary, TableWriter, TableWriterOptions};

/// Files end, and padding reaches, at multiples of this: the usual page and sector.
const PAGE_BYTES: u64 = 4096;

/// How many zeros go at `offset` so that what follows begins at a multiple of `alignment`.
fn padding_to(offset: u64, alignment: u64) -> u64 {
    offset.next_multiple_of(alignment) - offset
}
