//! One read's account: the [`Recorder`] that a read tells what it does, and [`ReadStats`], the plain form.

use super::{LEVELS, Placement};

/// What asking a table came to. The first four are outcomes of a *probe* (a filter was asked).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum BlockSource {
    /// The block cache.
    Cache,
    /// A positioned read: one system call.
    Read,
    /// A mapped file: no call, no cache.
    Map,
}

/// Is told what a point read does, as it does it.
pub(crate) trait Recorder {
    /// A memtable was asked: its filter said no, or the list was searched.
    fn memtable(&mut self, filter_said_no: bool);
    /// The key lies in no table of a sorted run of `level`.
    fn out_of_range(&mut self, level: u8);
    /// A table was asked.
    fn table(&mut self, placement: Placement, outcome: Outcome);
    /// A data block was looked into; `bytes` is its stored size.
    fn block(&mut self, placement: Placement, source: BlockSource, bytes: u32);
}

/// Tells two recorders.
pub(crate) struct Tee<'a, A, B>(pub(crate) &'a mut A, pub(crate) &'a mut B);

impl<A: Recorder, B: Recorder> Recorder for Tee<'_, A, B> {
    fn memtable(&mut self, filter_said_no: bool) {
        self.0.memtable(filter_said_no);
        self.1.memtable(filter_said_no);
    }

    fn out_of_range(&mut self, level: u8) {
        self.0.out_of_range(level);
        self.1.out_of_range(level);
    }

    fn table(&mut self, placement: Placement, outcome: Outcome) {
        self.0.table(placement, outcome);
        self.1.table(placement, outcome);
    }

    fn block(&mut self, placement: Placement, source: BlockSource, bytes: u32) {
        self.0.block(placement, source, bytes);
        self.1.block(placement, source, bytes);
    }
}

/// One level's share of one read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LevelReadStats {
    /// Sorted runs whose tables cannot hold the key.
    pub out_of_range: u32,
    /// Tables without a usable filter.
    pub no_filter: u32,
    /// Filters that said no.
    pub negatives: u32,
    /// Filters that said maybe, rightly.
    pub true_positives: u32,
    /// Filters that said maybe of a key with only hidden versions.
    pub invisible: u32,
    /// Filters that said maybe, wrongly.
    pub false_positives: u32,
    /// Data blocks looked into, from wherever they came.
    pub block_touches: u32,
    /// Data blocks read by a system call.
    pub block_reads: u32,
    /// Bytes of those reads.
    pub read_bytes: u64,
}

/// One table's part in one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TableOutcome {
    /// The level the table lies in.
    pub level: u8,
    /// What asking it came to.
    pub outcome: Outcome,
}

/// How many tables' outcomes one [`ReadStats`] keeps one by one; further ones are only counted in the levels.
const KEPT_OUTCOMES: usize = 24;

/// What one point read cost, and what it avoided.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ReadStats {
    /// Memtables whose list was searched.
    pub memtables_searched: u32,
    /// Memtables whose filter said no.
    pub memtable_filter_negatives: u32,
    /// Level by level, from 0.
    pub levels: [LevelReadStats; LEVELS],
    outcomes: [Option<TableOutcome>; KEPT_OUTCOMES],
    asked: usize,
}

impl Default for ReadStats {
    fn default() -> Self {
        ReadStats {
            memtables_searched: 0,
            memtable_filter_negatives: 0,
            levels: [LevelReadStats::default(); LEVELS],
            outcomes: [None; KEPT_OUTCOMES],
            asked: 0,
        }
    }
}

impl ReadStats {
    /// The tables asked, newest data first: the first 24.
    pub fn tables(&self) -> impl Iterator<Item = TableOutcome> + '_ {
        self.outcomes.iter().flatten().copied()
    }

    /// How many tables were asked, filters that said no included.
    pub fn tables_asked(&self) -> usize {
        self.asked
    }

    /// Data blocks looked into, over all levels.
    pub fn block_touches(&self) -> u64 {
        self.levels.iter().map(|l| u64::from(l.block_touches)).sum()
    }

    /// Data blocks read by a system call, over all levels.
    pub fn block_reads(&self) -> u64 {
        self.levels.iter().map(|l| u64::from(l.block_reads)).sum()
    }

    fn level(&mut self, level: u8) -> Option<&mut LevelReadStats> {
        self.levels.get_mut(usize::from(level))
    }
}

/// One line for the memtables and one for each level that was asked.
impl std::fmt::Display for ReadStats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "memtables: {} filters said no, {} searched",
            self.memtable_filter_negatives, self.memtables_searched
        )?;
        for (number, level) in self.levels.iter().enumerate().filter(|(_, level)| **level != LevelReadStats::default())
        {
            write!(f, "\nL{number}:")?;
            let counts = [
                (u64::from(level.out_of_range), "out of range"),
                (u64::from(level.negatives), "negative"),
                (u64::from(level.true_positives), "true positive"),
                (u64::from(level.invisible), "invisible"),
                (u64::from(level.false_positives), "false positive"),
                (u64::from(level.no_filter), "no filter"),
                (u64::from(level.block_touches), "block touches"),
                (u64::from(level.block_reads), "block reads"),
                (level.read_bytes, "bytes read"),
            ];
            let named: Vec<String> =
                counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!(" {n} {what}")).collect();
            f.write_str(&named.join(","))?;
        }
        Ok(())
    }
}

impl Recorder for ReadStats {
    fn memtable(&mut self, filter_said_no: bool) {
        if filter_said_no {
            self.memtable_filter_negatives += 1;
        } else {
            self.memtables_searched += 1;
        }
    }

    fn out_of_range(&mut self, level: u8) {
        if let Some(level) = self.level(level) {
            level.out_of_range += 1;
        }
    }

    fn table(&mut self, placement: Placement, outcome: Outcome) {
        if let Some(kept) = self.outcomes.get_mut(self.asked) {
            *kept = Some(TableOutcome { level: placement.level, outcome });
        }
        self.asked += 1;
        let Some(level) = self.level(placement.level) else { return };
        match outcome {
            Outcome::Negative => level.negatives += 1,
            Outcome::TruePositive => level.true_positives += 1,
            Outcome::Invisible => level.invisible += 1,
            Outcome::FalsePositive => level.false_positives += 1,
            Outcome::NoFilter => level.no_filter += 1,
        }
    }

    fn block(&mut self, placement: Placement, source: BlockSource, bytes: u32) {
        let Some(level) = self.level(placement.level) else { return };
        level.block_touches += 1;
        if source == BlockSource::Read {
            level.block_reads += 1;
            level.read_bytes += u64::from(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reads_account_shows_the_levels_it_asked() {
        let mut stats = ReadStats::default();
        stats.memtable(true);
        stats.table(Placement { slot: 0, level: 0 }, Outcome::Negative);
        stats.table(Placement { slot: 1, level: 6 }, Outcome::TruePositive);
        stats.block(Placement { slot: 1, level: 6 }, BlockSource::Read, 4096);
        assert_eq!(
            stats.to_string(),
            "memtables: 1 filters said no, 0 searched\nL0: 1 negative\nL6: 1 true positive, 1 block touches, 1 block reads, 4096 bytes read"
        );
        assert_eq!(stats.tables().map(|t| t.level).collect::<Vec<_>>(), [0, 6]);
    }
}
