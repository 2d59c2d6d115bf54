//! (to come)

/// Where a table stands in a version: the row of its counters, and its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) slot: u32,
    pub(crate) level: u8,
}

/// What asking a table came to. The first four are outcomes of a *probe* (a filter was asked).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The filter said no: one table read avoided.
    Negative,
    /// The filter said maybe, and the table held a visible version.
    TruePositive,
    /// The filter said maybe, and the table held only versions hidden from the snapshot.
    Invisible,
    /// The filter said maybe, and the table held no version of the key.
    FalsePositive,
    /// There was no filter (none built, or unusable): the table was read.
    NoFilter,
}

/// Where a data block came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BlockSource {
    /// The block cache.
    Cache,
    /// A positioned read: one system call.
    Read,
    /// A mapped file: no call, no cache.
    Map,
}

/// Is told what a point read does, as it does it. Implemented by the counters and by the trace of `explain`; with
/// `cfg(siftdb_no_stats)` the counters' methods are empty.
pub(crate) trait Recorder {
    fn table(&mut self, placement: Placement, outcome: Outcome);
    /// A data block was looked into; `bytes` is its stored size.
    fn block(&mut self, placement: Placement, source: BlockSource, bytes: u32);
}
