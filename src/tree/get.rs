//! The point read: memtables, then candidates, then their filters, then (only where a filter says maybe) tables.
//!
//! Candidates first, then probes: the fences and filters of a level lie in contiguous arrays of the version, so all
//! candidates are found and all filter lines prefetched without touching a table; the probes then wait for memory once
//! instead of once per level.

use crate::error::Result;
use crate::hash::KeyHash;
use crate::key::{LookupKey, PointAnswer, ValueKind};
use crate::memtable::MemtableHit;
use crate::stats::{Outcome, Recorder};
use crate::tree::{SuperVersion, Tree};
use crate::value::Value;
use crate::version::{Level, Version};
use crossbeam_epoch::Guard;

/// What holds for all tables of a read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadContext {
    pub(crate) fill_cache: bool,
}

/// What a lookup came to.
#[derive(Debug)]
pub(crate) struct Lookup {
    /// The value; None if absent or deleted.
    pub(crate) value: Option<Value>,
    /// Whether a memtable settled it.
    pub(crate) from_memtable: bool,
}

/// Candidates kept at a time. A tree has at most one per level, and one per table of level 0.
const WINDOW: usize = 12;

#[derive(Clone, Copy, Default)]
struct Candidate {
    level: u8,
    table: u32,
}

impl Tree {
    /// The view to read from, for as long as `guard` is pinned. Load it *before* reading the visible sequence number:
    /// the other way round, a flush in between could drop the version that the number asks for.
    #[inline]
    pub(crate) fn pinned<'g>(&self, guard: &'g Guard) -> &'g SuperVersion {
        self.view_cell().load(guard)
    }
}

impl SuperVersion {
    /// The newest version of the key that is visible at the lookup's snapshot.
    #[inline]
    pub(crate) fn get(
        &self,
        lookup: &LookupKey<'_>,
        context: ReadContext,
        guard: &Guard,
        recorder: &mut impl Recorder,
    ) -> Result<Lookup> {
        self.active.prefetch(lookup.hash);
        if let Some(hit) = self.active.get(lookup, guard, recorder) {
            return Ok(memtable_hit(hit));
        }
        for memtable in &self.immutable {
            if let Some(hit) = memtable.get(lookup, guard, recorder) {
                return Ok(memtable_hit(hit));
            }
        }
        let value = self.version.get(lookup, context, recorder)?;
        Ok(Lookup { value, from_memtable: false })
    }
}

fn memtable_hit(hit: MemtableHit) -> Lookup {
    Lookup { value: (hit.kind == ValueKind::Put).then_some(hit.value), from_memtable: true }
}

impl Version {
    /// The value in the tables; None if absent or deleted.
    #[inline]
    pub(crate) fn get(
        &self,
        lookup: &LookupKey<'_>,
        context: ReadContext,
        recorder: &mut impl Recorder,
    ) -> Result<Option<Value>> {
        let mut window = [Candidate::default(); WINDOW];
        let mut filled = 0;
        for (number, level) in self.levels() {
            // Level 0: every table may hold the key. Below: one at most.
            let (first, last) = match number {
                0 => (0, level.tables().len()),
                _ if level.is_empty() => continue,
                _ => match level.fences().find(lookup.user_key) {
                    Some(table) => (table, table + 1),
                    None => {
                        recorder.out_of_range(number as u8);
                        continue;
                    }
                },
            };
            for table in first..last {
                if number == 0 && !level.fences().contains(table, lookup.user_key) {
                    recorder.out_of_range(0);
                    continue;
                }
                if filled == WINDOW {
                    if let Some(answer) = self.probe(&window, lookup, context, recorder)? {
                        return Ok(answer);
                    }
                    filled = 0;
                }
                level.filter(table).prefetch(lookup.hash);
                window[filled] = Candidate { level: number as u8, table: table as u32 };
                filled += 1;
            }
        }
        Ok(self.probe(&window[..filled], lookup, context, recorder)?.flatten())
    }

    /// Probes the candidates in order, newest data first. `Some` settles the read.
    #[inline]
    fn probe(
        &self,
        candidates: &[Candidate],
        lookup: &LookupKey<'_>,
        context: ReadContext,
        recorder: &mut impl Recorder,
    ) -> Result<Option<Option<Value>>> {
        for candidate in candidates {
            let level = self.level(usize::from(candidate.level));
            let table = candidate.table as usize;
            let filter = level.filter(table);
            if !filter.may_contain(table_hash(level, table, lookup)) {
                recorder.table(level.placement(table), Outcome::Negative);
                continue;
            }
            let answer = read_table(level, table, lookup, context, recorder)?;
            if answer.is_some() {
                return Ok(answer);
            }
        }
        Ok(None)
    }
}

/// The hash that the table's filter was built with: nearly always the lookup's own.
#[inline]
fn table_hash(level: &Level, table: usize, lookup: &LookupKey<'_>) -> KeyHash {
    match level.foreign_key(table) {
        None => lookup.hash,
        Some(key) => key.hash(lookup.user_key),
    }
}

#[inline(never)]
fn read_table(
    level: &Level,
    table: usize,
    lookup: &LookupKey<'_>,
    context: ReadContext,
    recorder: &mut impl Recorder,
) -> Result<Option<Option<Value>>> {
    let placement = level.placement(table);
    let live = level.table(table);
    #[cfg(test)]
    test_hooks::count_dereference();
    let answer = live.table.get(lookup.user_key, lookup.snapshot, context.fill_cache, placement, recorder)?;
    let no_filter = level.filter(table).is_none();
    let outcome = match &answer {
        _ if no_filter => Outcome::NoFilter,
        PointAnswer::Found { .. } => Outcome::TruePositive,
        PointAnswer::Invisible => Outcome::Invisible,
        PointAnswer::Absent => Outcome::FalsePositive,
    };
    recorder.table(placement, outcome);
    Ok(match answer {
        PointAnswer::Found { kind, value, .. } => Some((kind == ValueKind::Put).then_some(value)),
        PointAnswer::Invisible | PointAnswer::Absent => None,
    })
}

/// Counts the tables that this thread's reads touched.
#[cfg(test)]
pub(crate) mod test_hooks {
    use std::cell::Cell;

    thread_local! {
        static DEREFERENCES: Cell<u64> = const { Cell::new(0) };
    }

    pub(crate) fn count_dereference() {
        DEREFERENCES.set(DEREFERENCES.get() + 1);
    }

    pub(crate) fn dereferences() -> u64 {
        DEREFERENCES.get()
    }
}
