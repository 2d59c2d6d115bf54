//! The contract of internal cursors: what a memtable, a table, a run and a merge of them have in common.

use crate::error::Result;
use crate::key::InternalKey;

/// A cursor over internal keys in order.
///
/// Every step returns whether the cursor stands on an entry afterwards. An error leaves it on none, and sticks: later
/// steps fail again until the next seek succeeds. A loop that ended with `Ok(false)` has therefore seen everything.
pub(crate) trait InternalIterator {
    /// Stands on the first entry.
    fn seek_to_first(&mut self) -> Result<bool>;
    /// Stands on the first entry at or after `target`.
    fn seek(&mut self, target: InternalKey<'_>) -> Result<bool>;
    /// Moves on. Only while `valid`.
    fn next(&mut self) -> Result<bool>;
    /// Whether `key` and `value` may be called.
    fn valid(&self) -> bool;
    /// The entry's key. Only while `valid`.
    fn key(&self) -> InternalKey<'_>;
    /// The entry's value; empty for a tombstone. Only while `valid`.
    fn value(&self) -> &[u8];
}

mod merging;
mod vec;
pub(crate) use merging::MergingIterator;
pub(crate) use vec::VecIter;

impl<I: InternalIterator + ?Sized> InternalIterator for Box<I> {
    fn seek_to_first(&mut self) -> Result<bool> {
        (**self).seek_to_first()
    }

    fn seek(&mut self, target: InternalKey<'_>) -> Result<bool> {
        (**self).seek(target)
    }

    fn next(&mut self) -> Result<bool> {
        (**self).next()
    }

    fn valid(&self) -> bool {
        (**self).valid()
    }

    fn key(&self) -> InternalKey<'_> {
        (**self).key()
    }

    fn value(&self) -> &[u8] {
        (**self).value()
    }
}
