//! Compaction: *what* to merge is decided purely ([`pick`], tested with drawn levels and no disk); *how* is done plainly
//! ([`build_tables`]: entries in, tables out). Only `db` appends the edit to the manifest and exchanges the view.

mod build;
mod leveled;
mod retain;

pub(crate) use build::{BuildContext, Built, RunIterator, build_tables};
pub(crate) use leveled::{Busy, pending_bytes, pick, plan_range};

use crate::sync::Arc;
use crate::version::LiveTable;

/// Why a compaction was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Level 0 has too many tables.
    Level0,
    /// A level is over its target.
    Size,
    /// A table consists mostly of tombstones.
    Tombstones,
    /// The user asked.
    Manual,
}

/// A decision: these tables become tables of `output_level`.
#[derive(Debug)]
pub(crate) struct CompactionPlan {
    pub(crate) reason: Reason,
    /// Per level, newest first: the tables to take.
    pub(crate) inputs: Vec<(u8, Vec<Arc<LiveTable>>)>,
    pub(crate) output_level: u8,
    /// The tables only change their level.
    pub(crate) trivial_move: bool,
}

impl CompactionPlan {
    pub(crate) fn tables(&self) -> impl Iterator<Item = (u8, &Arc<LiveTable>)> {
        self.inputs.iter().flat_map(|(level, tables)| tables.iter().map(move |t| (*level, t)))
    }

    /// The smallest and largest user key of all inputs.
    pub(crate) fn bounds(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let smallest = self.tables().map(|(_, t)| &t.meta.smallest.user_key).min()?;
        let largest = self.tables().map(|(_, t)| &t.meta.largest.user_key).max()?;
        Some((smallest.clone(), largest.clone()))
    }

    pub(crate) fn input_bytes(&self) -> u64 {
        self.tables().map(|(_, t)| t.meta.file_bytes).sum()
    }
}
