//! Leveled compaction, decided purely: a version, options and what is already running in; a plan out.
//!
//! Level targets are dynamic (as in RocksDB since 2015): they follow the size of the last level upwards, each
//! `level_multiplier` times smaller, until one is at most `base_level_bytes`; that is the *base*, into which level 0 is
//! compacted. So the last level holds about (1 − 1/multiplier) of the data whatever its size.

use crate::compaction::{CompactionPlan, Reason};
use crate::filename::FileNumber;
use crate::key::SeqNo;
use crate::options::KeyspaceOptions;
use crate::stats::LEVELS;
use crate::sync::Arc;
use crate::version::{LiveTable, Version};
use std::collections::HashSet;

/// Where level 0 goes, and how large each level may get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LevelTargets {
    pub(crate) base: usize,
    pub(crate) bytes: [u64; LEVELS],
}

/// The targets for a version.
pub(crate) fn targets(version: &Version, options: &KeyspaceOptions) -> LevelTargets {
    let sizes: Vec<u64> = version.levels().map(|(_, level)| level.bytes()).collect();
    targets_of(&sizes, options)
}

fn targets_of(sizes: &[u64], options: &KeyspaceOptions) -> LevelTargets {
    let multiplier = u64::from(options.level_multiplier);
    let base_max = options.base_level_bytes.max(1);
    let largest = sizes.iter().skip(1).copied().max().unwrap_or(0);
    let first_used = sizes.iter().skip(1).position(|&bytes| bytes > 0).map_or(LEVELS - 1, |at| at + 1);
    let mut base = LEVELS - 1;
    let mut base_bytes = largest;
    while base > 1 && (base > first_used || base_bytes > base_max) {
        base -= 1;
        base_bytes /= multiplier;
    }
    // Emptied upper levels must not keep level 0 going through them: the base is as deep as sizes allow.
    let mut bytes = [0; LEVELS];
    let mut target = base_bytes.clamp(1, base_max);
    for (level, slot) in bytes.iter_mut().enumerate().skip(base) {
        if level > base {
            target = target.saturating_mul(multiplier);
        }
        *slot = target.max(base_max);
    }
    LevelTargets { base, bytes }
}

/// What is being compacted now.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    pub(crate) tables: HashSet<FileNumber>,
    /// (level, smallest, largest) that running jobs will write.
    pub(crate) outputs: Vec<(u8, Vec<u8>, Vec<u8>)>,
}

impl Busy {
    pub(crate) fn conflicts(&self, plan: &CompactionPlan) -> bool {
        let Some((smallest, largest)) = plan.bounds() else { return true };
        plan.tables().any(|(_, t)| self.tables.contains(&t.meta.number))
            || self
                .outputs
                .iter()
                .any(|(level, low, high)| *level == plan.output_level && *low <= largest && *high >= smallest)
    }

    fn has(&self, table: &LiveTable) -> bool {
        self.tables.contains(&table.meta.number)
    }

    pub(crate) fn begin(&mut self, plan: &CompactionPlan) {
        self.tables.extend(plan.tables().map(|(_, t)| t.meta.number));
        if let Some((smallest, largest)) = plan.bounds() {
            self.outputs.push((plan.output_level, smallest, largest));
        }
    }

    pub(crate) fn end(&mut self, plan: &CompactionPlan) {
        for (_, table) in plan.tables() {
            self.tables.remove(&table.meta.number);
        }
        if let Some((smallest, largest)) = plan.bounds() {
            let done = (plan.output_level, smallest, largest);
            if let Some(at) = self.outputs.iter().position(|output| *output == done) {
                self.outputs.swap_remove(at);
            }
        }
    }
}

/// Bytes that compaction still has to write until every level is within its target.
pub(crate) fn pending_bytes(version: &Version, options: &KeyspaceOptions) -> u64 {
    let targets = targets(version, options);
    let mut pending = 0_u64;
    let mut carried = 0_u64;
    let level0 = version.level(0);
    if level0.tables().len() >= options.l0_compaction_trigger {
        carried = level0.bytes();
        pending = pending.saturating_add(level0.bytes()).saturating_add(version.level(targets.base).bytes());
    }
    for number in targets.base..LEVELS - 1 {
        let bytes = version.level(number).bytes().saturating_add(carried);
        carried = bytes.saturating_sub(targets.bytes[number]);
        if carried > 0 {
            let ratio = version.level(number + 1).bytes() / bytes.max(1) + 1;
            pending = pending.saturating_add(carried.saturating_mul(ratio));
        }
    }
    pending
}

/// The most urgent compaction that does not touch what is running; None if there is nothing to do.
pub(crate) fn pick(
    version: &Version,
    options: &KeyspaceOptions,
    busy: &Busy,
    oldest_snapshot: SeqNo,
) -> Option<CompactionPlan> {
    let targets = targets(version, options);
    let mut scores = scores(version, options, &targets, busy);
    scores.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    scores
        .into_iter()
        .filter(|(score, _)| *score >= 1.0)
        .find_map(|(_, level)| match level {
            0 => plan_level0(version, options, targets.base, busy),
            _ => plan_level(version, options, level, busy),
        })
        .or_else(|| plan_tombstones(version, options, &targets, busy, oldest_snapshot))
}

/// (score, level): at 1 and above a level wants compaction.
fn scores(version: &Version, options: &KeyspaceOptions, targets: &LevelTargets, busy: &Busy) -> Vec<(f64, usize)> {
    let level0 = version.level(0);
    let count = level0.tables().iter().filter(|t| !busy.has(t)).count();
    let by_count = count as f64 / options.l0_compaction_trigger as f64;
    let mut scores = vec![(by_count, 0)];
    for number in 1..LEVELS - 1 {
        let idle: u64 = version.level(number).tables().iter().filter(|t| !busy.has(t)).map(|t| t.meta.file_bytes).sum();
        // A level above the base is being given up: whatever it holds goes down.
        let score = match (idle, targets.bytes[number]) {
            (0, _) => 0.0,
            (_, 0) => 1.5,
            (idle, target) => idle as f64 / target as f64,
        };
        scores.push((score, number));
    }
    scores
}

/// All of level 0 into the base level, or, if nothing overlaps, moved there.
fn plan_level0(version: &Version, options: &KeyspaceOptions, base: usize, busy: &Busy) -> Option<CompactionPlan> {
    let tables = version.level(0).tables().to_vec();
    if tables.is_empty() || tables.iter().any(|t| busy.has(t)) {
        return None;
    }
    finish(version, options, vec![(0, tables)], base, Reason::Level0, busy)
}

/// The table of a level whose merge costs least per byte that it moves down.
fn plan_level(version: &Version, options: &KeyspaceOptions, number: usize, busy: &Busy) -> Option<CompactionPlan> {
    let below = version.level(number + 1);
    let mut choices: Vec<(f64, FileNumber, &Arc<LiveTable>)> = version
        .level(number)
        .tables()
        .iter()
        .filter(|t| !busy.has(t))
        .map(|t| {
            let overlap: u64 = below
                .overlapping(&t.meta.smallest.user_key, &t.meta.largest.user_key)
                .map(|other| other.meta.file_bytes)
                .sum();
            (overlap as f64 / t.meta.file_bytes.max(1) as f64, t.meta.number, t)
        })
        .collect();
    choices.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    choices.into_iter().find_map(|(_, _, table)| {
        finish(version, options, vec![(number as u8, vec![Arc::clone(table)])], number + 1, Reason::Size, busy)
    })
}

/// A table that is mostly tombstones, taken down one level; in the last level, rewritten once no snapshot needs them.
fn plan_tombstones(
    version: &Version,
    options: &KeyspaceOptions,
    targets: &LevelTargets,
    busy: &Busy,
    oldest_snapshot: SeqNo,
) -> Option<CompactionPlan> {
    let last = version.last_level()?;
    version.tables().find_map(|(number, table)| {
        let density = table.meta.tombstones as f64 / table.meta.entries.max(1) as f64;
        if table.meta.tombstones == 0 || density < options.tombstone_density_trigger || busy.has(table) {
            return None;
        }
        if number == 0 {
            return plan_level0(version, options, targets.base, busy)
                .map(|p| CompactionPlan { reason: Reason::Tombstones, ..p });
        }
        let output = if number < last { number + 1 } else { number };
        // In place it only pays when every tombstone can go; else it would be picked again at once.
        if output == number && table.meta.seqnos.1 > oldest_snapshot {
            return None;
        }
        let inputs = vec![(number as u8, vec![Arc::clone(table)])];
        finish(version, options, inputs, output, Reason::Tombstones, busy)
    })
}

/// Everything that overlaps `smallest..=largest` (None: no bound), from every level, into the last: what the user asks
/// for by `compact_range`. None if there is nothing, or it is in its final form already.
pub(crate) fn plan_range(
    version: &Version,
    options: &KeyspaceOptions,
    smallest: Option<&[u8]>,
    largest: Option<&[u8]>,
) -> Option<CompactionPlan> {
    let mut low = smallest.map(<[u8]>::to_vec);
    let mut high = largest.map(<[u8]>::to_vec);
    let output = version.last_level()?.max(targets(version, options).base);
    // Level 0 tables overlap each other: taking one means taking those that share keys with it, until none is added.
    let mut inputs = collect(version, low.as_deref(), high.as_deref());
    loop {
        let plan = CompactionPlan { reason: Reason::Manual, inputs, output_level: output as u8, trivial_move: false };
        let (first, last) = plan.bounds()?;
        let count = plan.tables().count();
        low = low.map(|l| l.min(first));
        high = high.map(|h| h.max(last));
        inputs = collect(version, low.as_deref(), high.as_deref());
        if inputs.iter().map(|(_, tables)| tables.len()).sum::<usize>() == count {
            let settled = inputs
                .iter()
                .all(|(level, tables)| usize::from(*level) == output && tables.iter().all(|t| is_settled(t)));
            return (!settled).then_some(plan);
        }
    }
}

/// Neither tombstones nor, since snapshots that have ended may have kept them, several versions of a key.
fn is_settled(table: &LiveTable) -> bool {
    table.meta.tombstones == 0 && table.meta.entries == table.table.properties().distinct_user_keys
}

fn collect(version: &Version, low: Option<&[u8]>, high: Option<&[u8]>) -> Vec<(u8, Vec<Arc<LiveTable>>)> {
    version
        .levels()
        .map(|(number, level)| {
            let inside = level.tables().iter().filter(|t| {
                low.is_none_or(|low| &t.meta.largest.user_key[..] >= low)
                    && high.is_none_or(|high| &t.meta.smallest.user_key[..] <= high)
            });
            (number as u8, inside.cloned().collect::<Vec<_>>())
        })
        .filter(|(_, tables)| !tables.is_empty())
        .collect()
}

/// Adds what overlaps in the output level, and decides whether a move is enough.
fn finish(
    version: &Version,
    options: &KeyspaceOptions,
    mut inputs: Vec<(u8, Vec<Arc<LiveTable>>)>,
    output: usize,
    reason: Reason,
    busy: &Busy,
) -> Option<CompactionPlan> {
    let draft = CompactionPlan { reason, inputs, output_level: output as u8, trivial_move: false };
    let (smallest, largest) = draft.bounds()?;
    inputs = draft.inputs;
    let from = usize::from(inputs[0].0);
    let mut below = Vec::new();
    if from != output {
        below = version.level(output).overlapping(&smallest, &largest).cloned().collect();
    }
    let trivial_move = below.is_empty()
        && from != output
        && reason != Reason::Tombstones
        && disjoint(&inputs[0].1)
        && inputs[0].1.iter().all(|t| may_move(t, options, output));
    if !below.is_empty() {
        inputs.push((output as u8, below));
    }
    let plan = CompactionPlan { reason, inputs, output_level: output as u8, trivial_move };
    (!busy.conflicts(&plan)).then_some(plan)
}

fn disjoint(tables: &[Arc<LiveTable>]) -> bool {
    let mut bounds: Vec<_> = tables.iter().map(|t| (&t.meta.smallest.user_key, &t.meta.largest.user_key)).collect();
    bounds.sort();
    bounds.windows(2).all(|pair| pair[0].1 < pair[1].0)
}

/// A moved table keeps its filter and its codec: it may move only where both are what a new table would get there, the
/// filter at most a quarter larger.
fn may_move(table: &LiveTable, options: &KeyspaceOptions, output: usize) -> bool {
    if table.table.properties().compression != options.compression[output].name() {
        return false;
    }
    let Ok(info) = table.table.filter_info() else { return true };
    let built = info.payload_bytes as f64 * 8.0 / info.keys.max(1) as f64;
    let wanted = options.filter.bits_per_key();
    // Small filters are rounded up to whole lines.
    built <= wanted * 1.25 || info.payload_bytes <= 128
}
