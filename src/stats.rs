//! What is counted, and the meaning of every filter counter (the only place where it is defined).
//!
//! **A probe** is one question to one table's filter. It has four outcomes: *negative* (the filter said no: one table
//! read avoided), *true positive* (it said maybe, and the table held a visible version), *invisible* (maybe, and the
//! table held only versions hidden from the snapshot) and *false positive* (maybe, and it held none). Apart from them:
//! *out of range* (a sorted run in whose tables the key cannot lie: no filter was asked) and *no filter* (the table has
//! none, or an unusable one, and was read).
//!
//! **Observed rate** = false positives ÷ (false positives + negatives): the share of *absent* keys that passed. `None`
//! before any such probe, never 0 or 1. **Expected rate** = the mean built rate of the filters over the probes that were
//! not true positives.
//!
//! **Avoided bytes** = negatives × the table's mean stored block size: what the reads that did not happen would have
//! touched. An avoided *touch* would have been a *read* only where the cache missed.
//!
//! Counters are always on. A reader writes only to its own thread's stripe (plain loads and stores, no lock prefix; from the 256th thread on they share one), one
//! row of eight counters per table placement, so no counter lies in a cache line that two threads write. What
//! `cfg(siftdb_no_stats)` empties is in `stats/counters.rs` alone; it serves to measure the counters' cost in instructions.

mod counters;
mod read;
mod report;

pub(crate) use counters::{Counters, Counting, Placed, ReadCounter, SlotInfo, TableCounts, Tally};
pub use read::{BlockSource, LevelReadStats, Outcome, ReadStats, TableOutcome};
pub(crate) use read::{Recorder, Tee};
pub use report::{
    CompactionStatistics, FilterStatistics, LevelStatistics, MemoryStatistics, ReadStatistics, ResourceStatistics,
    SpaceStatistics, Stalls, Statistics, WriteStatistics,
};

/// Levels of a tree: 0 to 6.
pub(crate) const LEVELS: usize = 7;

/// Where a table stands in a version: the row of its counters, and its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) slot: u32,
    pub(crate) level: u8,
}
