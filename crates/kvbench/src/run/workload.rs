//! The workloads by name.

use super::report::Outcome;
use super::worker::in_threads;
use crate::args::RunArgs;
use crate::run_keys::RunKeys;
use crate::values::Values;
use siftdb::Db;
use std::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workload {
    /// All keys, in order, into a fresh database.
    FillSeq,
    /// As many random keys, some of them more than once, into a fresh database.
    FillRandom,
    /// Random keys into the database as it is.
    Overwrite,
    /// Random keys.
    ReadRandom,
    /// Random keys plus one byte: none is there.
    ReadMissing,
    /// `--threads` readers, and one writer for as long as they read.
    ReadWhileWriting,
    /// Flush, and merge everything into one level.
    Compact,
    /// Print the engine's counters.
    Stats,
}

impl Workload {
    pub(super) const ALL: [Workload; 8] = [
        Workload::FillSeq,
        Workload::FillRandom,
        Workload::Overwrite,
        Workload::ReadRandom,
        Workload::ReadMissing,
        Workload::ReadWhileWriting,
        Workload::Compact,
        Workload::Stats,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Workload::FillSeq => "fillseq",
            Workload::FillRandom => "fillrandom",
            Workload::Overwrite => "overwrite",
            Workload::ReadRandom => "readrandom",
            Workload::ReadMissing => "readmissing",
            Workload::ReadWhileWriting => "readwhilewriting",
            Workload::Compact => "compact",
            Workload::Stats => "stats",
        }
    }

    pub(super) fn reads(self) -> bool {
        matches!(self, Workload::ReadRandom | Workload::ReadMissing | Workload::ReadWhileWriting)
    }

    pub(super) fn wants_fresh_database(self) -> bool {
        matches!(self, Workload::FillSeq | Workload::FillRandom)
    }
}

pub(super) fn perform(
    workload: Workload,
    args: &RunArgs,
    keys: &RunKeys,
    values: &Values,
    db: &Db,
) -> siftdb::Result<Outcome> {
    let before = db.statistics();
    let mut outcome = Outcome::new(workload);
    match workload {
        Workload::Stats => outcome.text = Some(db.statistics().to_string()),
        Workload::Compact => {
            let start = Instant::now();
            db.compact()?;
            outcome.threads.operations = 1;
            outcome.threads.worked_since(start);
        }
        _ => outcome.threads = in_threads(workload, args, keys, values, db)?,
    }
    let after = db.statistics();
    outcome.counted = after.since(&before);
    outcome.explain(&after);
    Ok(outcome)
}
