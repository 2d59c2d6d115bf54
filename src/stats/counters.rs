//! The striped counters. Each thread adds to a stripe of its own; a snapshot adds the stripes up.
//!
//! A stripe holds a few counters of reads as such and a *row* of eight per table placement, in chunks that are made when
//! a slot in them is first used. A slot belongs to one (table, level) for as long as some version lists it there; when
//! the last such version is gone, the row is added to the level's retired totals, cleared, and the slot is used again.

use super::read::{BlockSource, Outcome, Recorder};
use super::{LEVELS, Placement};
use crate::sync::{Arc, AtomicU64, Mutex, Ordering};
use std::collections::HashMap;
use std::sync::OnceLock;

/// Counters per placement: negative, true positive, invisible, false positive, no filter, touches, reads, read bytes.
const ROW: usize = 8;
const TOUCHES: usize = 5;
const READS: usize = 6;
const READ_BYTES: usize = 7;

const ROWS_PER_CHUNK: usize = 64;
const CHUNKS: usize = 1024;

/// Threads with a stripe of their own; later ones share the last stripe and pay for atomic additions.
const STRIPES: usize = 256;

/// The counters of reads as such.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReadCounter {
    Gets = 0,
    Found = 1,
    MemtableFound = 2,
    MemtableFilterNegatives = 3,
    MemtableSearches = 4,
    /// One per level from here.
    OutOfRange = 8,
}

const READ_COUNTERS: usize = 16;

#[repr(align(64))]
struct Row([AtomicU64; ROW]);

impl Row {
    fn new() -> Self {
        Row(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

type Chunk = [Row; ROWS_PER_CHUNK];

/// One thread's counters.
#[repr(align(64))]
pub(crate) struct Stripe {
    reads: [AtomicU64; READ_COUNTERS],
    chunks: [OnceLock<Box<Chunk>>; CHUNKS],
}

impl Stripe {
    fn new() -> Self {
        Stripe { reads: std::array::from_fn(|_| AtomicU64::new(0)), chunks: std::array::from_fn(|_| OnceLock::new()) }
    }

    #[inline]
    fn row(&self, slot: u32) -> &[AtomicU64; ROW] {
        let slot = slot as usize;
        let chunk =
            self.chunks[(slot / ROWS_PER_CHUNK) % CHUNKS].get_or_init(|| Box::new(std::array::from_fn(|_| Row::new())));
        &chunk[slot % ROWS_PER_CHUNK].0
    }

    /// The row if this thread ever counted near it.
    fn existing_row(&self, slot: u32) -> Option<&[AtomicU64; ROW]> {
        let slot = slot as usize;
        self.chunks[(slot / ROWS_PER_CHUNK) % CHUNKS].get().map(|chunk| &chunk[slot % ROWS_PER_CHUNK].0)
    }

    fn heap_bytes(&self) -> usize {
        let chunks = self.chunks.iter().filter(|c| c.get().is_some()).count();
        size_of::<Self>() + chunks * ROWS_PER_CHUNK * size_of::<Row>()
    }
}

/// Adds to a stripe: by plain loads and stores if the thread has it for itself, else by atomic additions. Which one it is
/// is settled once per read.
pub(crate) struct Tally<'a, const EXCLUSIVE: bool>(&'a Stripe);

impl<const EXCLUSIVE: bool> Tally<'_, EXCLUSIVE> {
    #[inline]
    fn bump(counter: &AtomicU64, by: u64) {
        if EXCLUSIVE {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
        } else {
            counter.fetch_add(by, Ordering::Relaxed);
        }
    }

    #[inline]
    fn add(&self, counter: ReadCounter) {
        if !cfg!(siftdb_no_stats) {
            Self::bump(&self.0.reads[counter as usize], 1);
        }
    }

    /// A key was asked for.
    #[inline]
    pub(crate) fn get(&self, found: bool, from_memtable: bool) {
        self.add(ReadCounter::Gets);
        if found {
            self.add(ReadCounter::Found);
        }
        if from_memtable {
            self.add(ReadCounter::MemtableFound);
        }
    }
}

impl<const EXCLUSIVE: bool> Recorder for Tally<'_, EXCLUSIVE> {
    #[inline]
    fn memtable(&mut self, filter_said_no: bool) {
        self.add(if filter_said_no { ReadCounter::MemtableFilterNegatives } else { ReadCounter::MemtableSearches });
    }

    #[inline]
    fn out_of_range(&mut self, level: u8) {
        if !cfg!(siftdb_no_stats) {
            let at = (ReadCounter::OutOfRange as usize + usize::from(level)) % READ_COUNTERS;
            Self::bump(&self.0.reads[at], 1);
        }
    }

    #[inline]
    fn table(&mut self, placement: Placement, outcome: Outcome) {
        if !cfg!(siftdb_no_stats) {
            Self::bump(&self.0.row(placement.slot)[outcome as usize], 1);
        }
    }

    #[inline]
    fn block(&mut self, placement: Placement, source: BlockSource, bytes: u32) {
        if cfg!(siftdb_no_stats) {
            return;
        }
        let row = self.0.row(placement.slot);
        Self::bump(&row[TOUCHES], 1);
        if source == BlockSource::Read {
            Self::bump(&row[READS], 1);
            Self::bump(&row[READ_BYTES], u64::from(bytes));
        }
    }
}

/// The calling thread's way to count.
pub(crate) enum Counting<'a> {
    Exclusive(Tally<'a, true>),
    Shared(Tally<'a, false>),
}

/// The number of this thread among the living ones; given back when the thread ends.
struct ThreadIndex(usize);

static FREE_INDEXES: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), 0));

impl ThreadIndex {
    fn take() -> Self {
        let mut state = FREE_INDEXES.lock();
        let index = state.0.pop().unwrap_or_else(|| {
            state.1 += 1;
            state.1 - 1
        });
        ThreadIndex(index)
    }
}

impl Drop for ThreadIndex {
    fn drop(&mut self) {
        FREE_INDEXES.lock().0.push(self.0);
    }
}

thread_local! {
    static THREAD_INDEX: ThreadIndex = ThreadIndex::take();
}

/// What a slot stands for.
#[derive(Clone, Debug)]
pub(crate) struct SlotInfo {
    pub(crate) keyspace: u32,
    pub(crate) level: u8,
    pub(crate) file: u64,
    /// Stored bytes of a mean data block: the price of one avoided touch.
    pub(crate) mean_block_bytes: f64,
    /// The filter's built rate; None without a filter.
    pub(crate) built_rate: Option<f64>,
}

/// The eight counters of one table or level, and what follows from them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct TableCounts {
    pub(crate) row: [u64; ROW],
    /// Σ built rate × probes that were not true positives.
    pub(crate) expected_false_positives: f64,
    /// Probes that were not true positives and had a known built rate.
    pub(crate) judged: u64,
    pub(crate) avoided_bytes: f64,
}

impl TableCounts {
    fn new(row: [u64; ROW], info: &SlotInfo) -> Self {
        let not_true = row[0] + row[2] + row[3];
        TableCounts {
            row,
            expected_false_positives: info.built_rate.map_or(0.0, |rate| rate * not_true as f64),
            judged: if info.built_rate.is_some() { not_true } else { 0 },
            avoided_bytes: info.mean_block_bytes * row[0] as f64,
        }
    }

    pub(crate) fn add(&mut self, other: &TableCounts) {
        for (to, from) in self.row.iter_mut().zip(other.row) {
            *to += from;
        }
        self.expected_false_positives += other.expected_false_positives;
        self.judged += other.judged;
        self.avoided_bytes += other.avoided_bytes;
    }

    pub(crate) fn outcome(&self, outcome: Outcome) -> u64 {
        self.row[outcome as usize]
    }

    pub(crate) fn touches(&self) -> u64 {
        self.row[TOUCHES]
    }

    pub(crate) fn reads(&self) -> u64 {
        self.row[READS]
    }

    pub(crate) fn read_bytes(&self) -> u64 {
        self.row[READ_BYTES]
    }
}

#[derive(Default)]
struct Registry {
    slots: Vec<Option<SlotInfo>>,
    free: Vec<u32>,
    /// By keyspace: what tables counted in a level before they left it.
    retired: HashMap<u32, [TableCounts; LEVELS]>,
    /// By file: what a table counted before it was moved to where it is now.
    moved: HashMap<u64, TableCounts>,
}

/// The counters of one database.
pub(crate) struct Counters {
    stripes: [OnceLock<Box<Stripe>>; STRIPES],
    registry: Mutex<Registry>,
}

impl Counters {
    pub(crate) fn new() -> Self {
        Counters { stripes: std::array::from_fn(|_| OnceLock::new()), registry: Mutex::new(Registry::default()) }
    }

    /// The calling thread's stripe, with the way to add to it.
    #[inline]
    pub(crate) fn counting(&self) -> Counting<'_> {
        let index = THREAD_INDEX.try_with(|index| index.0).unwrap_or(STRIPES - 1).min(STRIPES - 1);
        let stripe = self.stripes[index].get_or_init(|| Box::new(Stripe::new()));
        if index < STRIPES - 1 { Counting::Exclusive(Tally(stripe)) } else { Counting::Shared(Tally(stripe)) }
    }

    /// Gives a table at a level a row of its own until the result is dropped.
    pub(crate) fn place(self: &Arc<Self>, info: SlotInfo) -> Placed {
        let mut registry = self.registry.lock();
        let level = info.level;
        let slot = registry.free.pop().unwrap_or(registry.slots.len() as u32);
        if slot as usize == registry.slots.len() {
            registry.slots.push(None);
        }
        registry.slots[slot as usize] = Some(info);
        drop(registry);
        Placed { counters: Arc::clone(self), placement: Placement { slot, level } }
    }

    fn stripes(&self) -> impl Iterator<Item = &Stripe> {
        self.stripes.iter().filter_map(|s| s.get().map(|s| &**s))
    }

    fn sum_row(&self, slot: u32) -> [u64; ROW] {
        let mut sum = [0; ROW];
        for stripe in self.stripes() {
            for (to, from) in sum.iter_mut().zip(stripe.existing_row(slot).into_iter().flatten()) {
                *to += from.load(Ordering::Relaxed);
            }
        }
        sum
    }

    /// Called when no version lists the placement any more: no reader can be adding to its row.
    fn retire(&self, slot: u32) {
        let mut registry = self.registry.lock();
        let Some(info) = registry.slots[slot as usize].take() else { return };
        let counts = TableCounts::new(self.sum_row(slot), &info);
        for stripe in self.stripes() {
            for counter in stripe.existing_row(slot).into_iter().flatten() {
                counter.store(0, Ordering::Relaxed);
            }
        }
        registry.retired.entry(info.keyspace).or_default()[usize::from(info.level) % LEVELS].add(&counts);
        if registry.slots.iter().flatten().any(|other| other.file == info.file) {
            registry.moved.entry(info.file).or_default().add(&counts);
        } else {
            registry.moved.remove(&info.file);
        }
        registry.free.push(slot);
    }

    /// A counter of reads as such.
    pub(crate) fn read_counter(&self, counter: ReadCounter) -> u64 {
        self.stripes().map(|s| s.reads[counter as usize].load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn out_of_range(&self, level: usize) -> u64 {
        let at = (ReadCounter::OutOfRange as usize + level) % READ_COUNTERS;
        self.stripes().map(|s| s.reads[at].load(Ordering::Relaxed)).sum()
    }

    /// Level by level: live tables and those that left, of one keyspace or of all.
    pub(crate) fn levels(&self, keyspace: Option<u32>) -> [TableCounts; LEVELS] {
        let registry = self.registry.lock();
        let mut levels = [TableCounts::default(); LEVELS];
        for (id, retired) in &registry.retired {
            if keyspace.is_none_or(|k| k == *id) {
                for (to, from) in levels.iter_mut().zip(retired) {
                    to.add(from);
                }
            }
        }
        for (slot, info) in registry.slots.iter().enumerate() {
            if let Some(info) = info.as_ref().filter(|info| keyspace.is_none_or(|k| k == info.keyspace)) {
                levels[usize::from(info.level) % LEVELS].add(&TableCounts::new(self.sum_row(slot as u32), info));
            }
        }
        levels
    }

    /// What one table counted, in all the levels it has lain in.
    pub(crate) fn table(&self, file: u64) -> TableCounts {
        let registry = self.registry.lock();
        let mut counts = registry.moved.get(&file).copied().unwrap_or_default();
        for (slot, info) in registry.slots.iter().enumerate() {
            if let Some(info) = info.as_ref().filter(|info| info.file == file) {
                counts.add(&TableCounts::new(self.sum_row(slot as u32), info));
            }
        }
        counts
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let registry = self.registry.lock();
        size_of::<Self>()
            + self.stripes().map(Stripe::heap_bytes).sum::<usize>()
            + registry.slots.capacity() * size_of::<Option<SlotInfo>>()
    }
}

impl std::fmt::Debug for Counters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Counters(…)")
    }
}

/// A table's row at a level; dropping it retires the row.
#[derive(Debug)]
pub(crate) struct Placed {
    counters: Arc<Counters>,
    placement: Placement,
}

impl Placed {
    #[inline]
    pub(crate) fn placement(&self) -> Placement {
        self.placement
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        self.counters.retire(self.placement.slot);
    }
}

#[cfg(all(test, not(siftdb_no_stats)))]
mod tests {
    use super::*;

    fn count(counters: &Counters, placement: Placement, outcome: Outcome) {
        match counters.counting() {
            Counting::Exclusive(mut tally) => tally.table(placement, outcome),
            Counting::Shared(mut tally) => tally.table(placement, outcome),
        }
    }

    #[test]
    fn more_threads_than_stripes_lose_no_count() {
        let counters = Arc::new(Counters::new());
        let placed = counters.place(info(1, 7));
        let placement = placed.placement();
        let barrier = Arc::new(std::sync::Barrier::new(STRIPES + 40));
        let threads: Vec<_> = (0..STRIPES + 40)
            .map(|_| {
                let (counters, barrier) = (Arc::clone(&counters), Arc::clone(&barrier));
                crate::sync::spawn("count", move || {
                    barrier.wait();
                    (0..100).for_each(|_| count(&counters, placement, Outcome::Negative));
                    barrier.wait();
                })
                .unwrap()
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(counters.table(7).row[0], 100 * (STRIPES as u64 + 40));
    }

    fn info(level: u8, file: u64) -> SlotInfo {
        SlotInfo { keyspace: 0, level, file, mean_block_bytes: 4096.0, built_rate: Some(0.01) }
    }

    #[test]
    fn counts_survive_the_table_and_the_thread_that_made_them() {
        let counters = Arc::new(Counters::new());
        let placed = counters.place(info(1, 7));
        let placement = placed.placement();
        let other = Arc::clone(&counters);
        crate::sync::spawn("count", move || count(&other, placement, Outcome::Negative)).unwrap().join().unwrap();
        count(&counters, placement, Outcome::FalsePositive);
        assert_eq!(counters.table(7).row[..4], [1, 0, 0, 1]);
        drop(placed);
        let level = counters.levels(None)[1];
        assert_eq!(level.row[..4], [1, 0, 0, 1]);
        assert!((level.expected_false_positives - 0.02).abs() < 1e-12);
        assert_eq!(level.avoided_bytes, 4096.0);
    }

    #[test]
    fn a_moved_table_keeps_its_counts_and_each_level_its_own() {
        let counters = Arc::new(Counters::new());
        let above = counters.place(info(1, 7));
        count(&counters, above.placement(), Outcome::Negative);
        let below = counters.place(info(2, 7));
        drop(above);
        count(&counters, below.placement(), Outcome::Negative);
        assert_eq!(counters.table(7).row[0], 2);
        assert_eq!(counters.levels(None)[1].row[0], 1);
        assert_eq!(counters.levels(None)[2].row[0], 1);
    }

    #[test]
    fn a_slot_is_used_again_with_clean_counters() {
        let counters = Arc::new(Counters::new());
        let first = counters.place(info(0, 1));
        count(&counters, first.placement(), Outcome::Negative);
        let slot = first.placement().slot;
        drop(first);
        let second = counters.place(info(0, 2));
        assert_eq!(second.placement().slot, slot);
        assert_eq!(counters.table(2).row, [0; ROW]);
    }
}
