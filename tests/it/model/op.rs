//! The operations of the model test, as data: drawn first, remembered, then done, so that a failure can show them.

use super::data::{Pool, ValueSpec};
use super::rng::Rng;

/// A key by its number in the pool.
pub type KeyNumber = usize;
/// A keyspace by its name.
pub type Name = &'static str;

pub const DEFAULT: Name = "default";
/// The keyspaces that a run creates and drops.
pub const NAMES: [Name; 4] = ["a", "orders", "b/c", "\u{e4}\u{20ac}"];

/// One write of a batch: `None` deletes.
pub type Write = (Name, KeyNumber, Option<ValueSpec>);

#[derive(Clone, Debug)]
pub enum Op {
    Put {
        on: Name,
        key: KeyNumber,
        value: ValueSpec,
        sync: bool,
    },
    Delete {
        on: Name,
        key: KeyNumber,
        sync: bool,
    },
    Batch {
        writes: Vec<Write>,
        sync: bool,
    },
    /// Requires of each key the value it has, or, where `false`, another one.
    Conditional {
        requires: Vec<(Name, KeyNumber, bool)>,
        writes: Vec<Write>,
    },
    TooLong {
        on: Name,
        in_batch: bool,
    },
    Get {
        on: Name,
        key: KeyNumber,
        neighbour: bool,
        fill_cache: bool,
    },
    Contains {
        on: Name,
        key: KeyNumber,
    },
    MultiGet {
        on: Name,
        keys: Vec<KeyNumber>,
    },
    /// Reads with their statistics, held against what the counters count meanwhile.
    Account {
        on: Name,
        keys: Vec<KeyNumber>,
    },
    Snapshot,
    GetAt {
        snapshot: usize,
        on: Name,
        key: KeyNumber,
        fill_cache: bool,
    },
    CompareSnapshot {
        snapshot: usize,
    },
    DropSnapshot {
        snapshot: usize,
    },
    Flush {
        on: Name,
    },
    Compact {
        on: Name,
    },
    CompactRange {
        on: Name,
        low: Option<KeyNumber>,
        high: Option<KeyNumber>,
        inclusive: bool,
    },
    WaitIdle,
    Sync,
    OpenKeyspace {
        name: Name,
        variant: Option<usize>,
    },
    DropKeyspace {
        name: Name,
    },
    UseDropped {
        key: KeyNumber,
    },
    Compare,
    Verify,
    Close {
        variant: Option<usize>,
        cache_bytes: Option<u64>,
    },
    DropHandles,
    Kill,
    ReadOnly,
}

/// What the next operation may refer to.
pub struct Present {
    pub keyspaces: Vec<Name>,
    pub snapshots: usize,
    pub variants: usize,
    pub next_value: u64,
}

impl Op {
    pub fn draw(rng: &mut Rng, pool: &Pool, present: &Present) -> Op {
        let on = *rng.pick(&present.keyspaces);
        let key = pool.draw(rng);
        let fill_cache = !rng.one_in(4);
        match rng.below(10_000) {
            0..2600 => {
                let value = ValueSpec::draw(rng, present.next_value);
                Op::Put { on, key, value, sync: rng.one_in(50) }
            }
            2600..3500 => Op::Delete { on, key, sync: rng.one_in(50) },
            3500..4000 => Op::Batch { writes: writes(rng, pool, present), sync: rng.one_in(50) },
            4000..4400 => {
                let requires = (0..1 + rng.below(3))
                    .map(|_| (*rng.pick(&present.keyspaces), pool.draw(rng), !rng.one_in(4)))
                    .collect();
                Op::Conditional { requires, writes: writes(rng, pool, present) }
            }
            4400..4420 => Op::TooLong { on, in_batch: rng.one_in(2) },
            4420..7000 => Op::Get { on, key, neighbour: rng.one_in(4), fill_cache },
            7000..7400 => Op::Contains { on, key },
            7400..7700 => Op::MultiGet { on, keys: (0..rng.below(8)).map(|_| pool.draw(rng)).collect() },
            7700..8000 => Op::Account { on, keys: (0..1 + rng.below(6)).map(|_| pool.draw(rng)).collect() },
            8000..8100 if present.snapshots < 6 => Op::Snapshot,
            8100..9250 if present.snapshots > 0 => {
                Op::GetAt { snapshot: rng.below(present.snapshots), on, key, fill_cache }
            }
            9250..9260 if present.snapshots > 0 => Op::CompareSnapshot { snapshot: rng.below(present.snapshots) },
            9260..9360 if present.snapshots > 0 => Op::DropSnapshot { snapshot: rng.below(present.snapshots) },
            9360..9440 => Op::Flush { on },
            9440..9460 => Op::Compact { on },
            9460..9500 => {
                let mut bound = || (!rng.one_in(4)).then(|| pool.draw(rng));
                let (low, high) = (bound(), bound());
                Op::CompactRange { on, low, high, inclusive: rng.one_in(2) }
            }
            9500..9550 => Op::WaitIdle,
            9550..9600 => Op::Sync,
            9600..9650 => {
                let variant = rng.one_in(2).then(|| rng.below(present.variants));
                Op::OpenKeyspace { name: *rng.pick(&NAMES), variant }
            }
            9650..9665 => Op::DropKeyspace { name: *rng.pick(&NAMES) },
            9665..9670 => Op::UseDropped { key },
            9670..9674 => Op::Compare,
            9674..9678 => Op::Verify,
            9678..9684 => {
                let variant = rng.one_in(3).then(|| rng.below(present.variants));
                Op::Close { variant, cache_bytes: rng.one_in(2).then(|| *rng.pick(&[0, 4096, 1 << 20])) }
            }
            9684..9690 => Op::DropHandles,
            9690..9695 => Op::Kill,
            9695..9700 => Op::ReadOnly,
            _ => Op::Get { on, key, neighbour: false, fill_cache },
        }
    }
}

fn writes(rng: &mut Rng, pool: &Pool, present: &Present) -> Vec<Write> {
    // Sometimes many, sometimes none; a key may come twice, and the later write wins.
    let count = if rng.one_in(20) { 60 } else { rng.below(6) };
    (0..count as u64)
        .map(|n| {
            let value = ValueSpec::draw(rng, present.next_value + n);
            (*rng.pick(&present.keyspaces), pool.draw(rng), (!rng.one_in(4)).then_some(value))
        })
        .collect()
}
