//! Drawn levels, no disk: every table is a letter range and a size; what is picked is read off the plan.

use super::*;
use crate::filter::FilterKind;
use crate::hash::HashKey;
use crate::key::{InternalKeyBuf, Tag, ValueKind};
use crate::sstable::{Table, TableIdentity, TableWriter, TableWriterOptions};
use crate::stats::Counters;
use crate::version::edit::FileMeta;
use crate::vfs::{FileSystem, MemoryFileSystem};
use std::path::PathBuf;

const KIB: u64 = 1 << 10;
const HASH_KEY: HashKey = HashKey([0; 16]);

/// A table as drawn: (number, smallest, largest, KiB, per cent of tombstones).
type Drawn = (u64, &'static str, &'static str, u64, u64);

fn options() -> KeyspaceOptions {
    KeyspaceOptions {
        l0_compaction_trigger: 4,
        level_multiplier: 10,
        base_level_bytes: 100 * KIB,
        compression: [crate::block::compression::Compression::None; LEVELS],
        ..Default::default()
    }
}

/// One real table stands for all: its bounds and size are those drawn.
fn stand_in(filter_bits: f64) -> Arc<Table> {
    let fs = MemoryFileSystem::new();
    let path = PathBuf::from("t");
    let filter = crate::filter::FilterOptions {
        kind: FilterKind::Blocked,
        size: crate::filter::FilterSize::BitsPerKey(filter_bits),
    };
    let mut writer = TableWriter::new(
        fs.create_new(&path).unwrap(),
        path.clone(),
        TableWriterOptions {
            block_bytes: 4096,
            restart_interval: 16,
            compression: crate::block::compression::Compression::None,
            filter,
            hash_key: HASH_KEY,
            table_id: 1,
            filter_tweak: 1,
            align_blocks: false,
            block_hash_index: false,
            created_at: 0,
        },
    )
    .unwrap();
    for i in 0..1000_u32 {
        let key = i.to_be_bytes();
        writer.add(crate::key::InternalKey::new(&key, Tag::new(1, ValueKind::Put)), b"").unwrap();
    }
    let summary = writer.finish().unwrap();
    let identity = TableIdentity { table_id: 1, file_bytes: summary.file_bytes };
    Arc::new(Table::open(fs.open(&path).unwrap(), path, identity, None, false).unwrap())
}

fn draw_with(table: &Arc<Table>, levels: &[(u8, &[Drawn])]) -> Version {
    let counters = Arc::new(Counters::new());
    let mut added = Vec::new();
    for (level, tables) in levels {
        for (number, smallest, largest, kib, tombstones) in *tables {
            let key = |text: &str| InternalKeyBuf { user_key: text.into(), tag: Tag::new(*number, ValueKind::Put) };
            let meta = FileMeta {
                number: *number,
                table_id: 1,
                file_bytes: kib * KIB,
                smallest: key(smallest),
                largest: key(largest),
                tombstone_bounds: None,
                largest_exclusive: false,
                seqnos: (*number, *number),
                seqno_override: None,
                created_at: 0,
                filter_side_file: None,
                entries: 1000,
                tombstones: tombstones * 10,
            };
            added.push((*level, LiveTable::new(0, *level, Arc::new(meta), Arc::clone(table), &counters)));
        }
    }
    Version::empty().apply(&[], &added, &HASH_KEY).unwrap()
}

fn draw(levels: &[(u8, &[Drawn])]) -> Version {
    draw_with(&stand_in(10.0), levels)
}

fn picked(version: &Version, busy: &Busy) -> Option<(Vec<u64>, u8, bool)> {
    pick(version, &options(), busy, SeqNo::MAX).map(|plan| {
        let mut numbers: Vec<u64> = plan.tables().map(|(_, t)| t.meta.number).collect();
        numbers.sort_unstable();
        (numbers, plan.output_level, plan.trivial_move)
    })
}

#[test]
fn targets_follow_the_last_level_upwards() {
    let targets = |sizes: [u64; LEVELS]| targets_of(&sizes.map(|kib| kib * KIB), &options());
    assert_eq!(targets([0; 7]).base, 6);
    assert_eq!(targets([0, 0, 0, 0, 0, 0, 90]).base, 6);
    let two = targets([0, 0, 0, 0, 0, 0, 900]);
    assert_eq!((two.base, two.bytes[5], two.bytes[6]), (5, 100 * KIB, 900 * KIB));
    let three = targets([0, 0, 0, 0, 0, 700, 9000]);
    assert_eq!((three.base, three.bytes[4], three.bytes[5], three.bytes[6]), (4, 100 * KIB, 900 * KIB, 9000 * KIB));
    assert_eq!(targets([0, 0, 0, 5, 0, 0, 90]).base, 3, "never below a level that has tables");
    assert_eq!(targets([0, u64::MAX >> 12, 0, 0, 0, 0, 0]).base, 1, "the largest sizes do not overflow");
}

#[test]
fn level_0_goes_to_the_base_with_what_it_overlaps() {
    let version = draw(&[
        (0, &[(10, "a", "m", 10, 0), (11, "c", "z", 10, 0), (12, "b", "c", 10, 0), (13, "a", "b", 10, 0)]),
        (6, &[(1, "a", "b", 40, 0), (2, "y", "zz", 40, 0), (3, "zzz", "zzzz", 10, 0)]),
    ]);
    assert_eq!(picked(&version, &Busy::default()), Some((vec![1, 2, 10, 11, 12, 13], 6, false)));
}

#[test]
fn fewer_tables_than_the_trigger_stay() {
    let version = draw(&[(0, &[(10, "a", "m", 10, 0), (11, "c", "z", 10, 0), (12, "b", "c", 10, 0)])]);
    assert_eq!(picked(&version, &Busy::default()), None);
}

#[test]
fn disjoint_tables_of_level_0_are_moved() {
    let drawn: &[Drawn] = &[(10, "a", "b", 10, 0), (11, "c", "d", 10, 0), (12, "e", "f", 10, 0), (13, "g", "h", 10, 0)];
    assert_eq!(picked(&draw(&[(0, drawn)]), &Busy::default()), Some((vec![10, 11, 12, 13], 6, true)));
}

#[test]
fn a_table_whose_filter_is_too_large_for_its_new_level_is_rewritten() {
    let drawn: &[Drawn] = &[(10, "a", "b", 10, 0), (11, "c", "d", 10, 0), (12, "e", "f", 10, 0), (13, "g", "h", 10, 0)];
    let moved = |bits| picked(&draw_with(&stand_in(bits), &[(0, drawn)]), &Busy::default()).map(|p| p.2);
    assert_eq!(moved(12.0), Some(true), "a fifth larger is near enough");
    assert_eq!(moved(16.0), Some(false));
}

#[test]
fn of_a_full_level_the_table_that_overlaps_least_goes_down() {
    let version = draw(&[
        (5, &[(10, "a", "f", 60, 0), (11, "g", "p", 60, 0)]),
        (6, &[(1, "a", "c", 300, 0), (2, "d", "e", 300, 0), (3, "h", "i", 300, 0)]),
    ]);
    assert_eq!(picked(&version, &Busy::default()), Some((vec![3, 11], 6, false)));
}

#[test]
fn running_jobs_are_left_alone_and_disjoint_ones_start_beside_them() {
    let version = draw(&[
        (5, &[(10, "a", "f", 160, 0), (11, "g", "p", 160, 0), (12, "q", "t", 160, 0)]),
        (6, &[(1, "a", "c", 600, 0), (2, "d", "e", 300, 0), (3, "h", "i", 100, 0), (4, "r", "zz", 200, 0)]),
    ]);
    let mut busy = Busy::default();
    let mut taken = Vec::new();
    while let Some(plan) = pick(&version, &options(), &busy, SeqNo::MAX) {
        let numbers: Vec<u64> = plan.tables().map(|(_, t)| t.meta.number).collect();
        assert!(numbers.iter().all(|n| !taken.contains(n)), "{numbers:?} again, after {taken:?}");
        taken.extend(numbers);
        busy.begin(&plan);
    }
    assert!(taken.contains(&11) && taken.contains(&12), "{taken:?}");
}

#[test]
fn a_job_that_will_write_into_a_gap_keeps_others_out_of_it() {
    let version =
        draw(&[(4, &[(10, "a", "z", 200, 0)]), (5, &[(11, "c", "d", 10, 0)]), (6, &[(1, "a", "b", 9000, 0)])]);
    let plan = pick(&version, &options(), &Busy::default(), SeqNo::MAX).unwrap();
    let mut busy = Busy::default();
    busy.begin(&plan);
    let same = pick(&version, &options(), &Busy::default(), SeqNo::MAX).unwrap();
    assert!(busy.conflicts(&same));
    busy.end(&plan);
    assert!(!busy.conflicts(&same));
    assert!(busy.tables.is_empty() && busy.outputs.is_empty());
}

#[test]
fn a_table_of_tombstones_goes_down_though_no_level_is_full() {
    let version = draw(&[(5, &[(10, "a", "f", 1, 60)]), (6, &[(1, "b", "c", 50, 0), (2, "x", "z", 50, 0)])]);
    assert_eq!(picked(&version, &Busy::default()), Some((vec![1, 10], 6, false)));
    let few = draw(&[(5, &[(10, "a", "f", 1, 40)]), (6, &[(1, "b", "c", 50, 0)])]);
    assert_eq!(picked(&few, &Busy::default()), None);
}

#[test]
fn in_the_last_level_tombstones_wait_for_the_snapshot_that_needs_them() {
    let version = draw(&[(6, &[(10, "a", "f", 1, 60)])]);
    let plan = |oldest| pick(&version, &options(), &Busy::default(), oldest).map(|p| p.output_level);
    assert_eq!(plan(9), None);
    assert_eq!(plan(10), Some(6));
}

#[test]
fn a_manual_range_takes_all_levels_and_what_shares_keys_with_them() {
    let version = draw(&[
        (0, &[(20, "a", "d", 1, 0)]),
        (5, &[(10, "d", "f", 1, 0), (11, "g", "h", 1, 0)]),
        (6, &[(1, "f", "fz", 50, 0), (2, "x", "z", 50, 0)]),
    ]);
    let numbers = |low: &[u8], high: &[u8]| {
        plan_range(&version, &options(), Some(low), Some(high)).map(|plan| {
            assert_eq!(plan.output_level, 6);
            plan.tables().map(|(_, t)| t.meta.number).collect::<Vec<_>>()
        })
    };
    assert_eq!(numbers(b"a", b"b"), Some(vec![20, 10, 1]));
    assert_eq!(numbers(b"g", b"g"), Some(vec![11]));
    assert_eq!(numbers(b"x", b"z"), None, "it is in its final form already");
    assert_eq!(numbers(b"i", b"j"), None);
}

#[test]
fn debt_grows_with_what_lies_above_its_level() {
    let none = draw(&[(6, &[(1, "a", "b", 900, 0)])]);
    assert_eq!(pending_bytes(&none, &options()), 0);
    let some = draw(&[(5, &[(10, "a", "b", 300, 0)]), (6, &[(1, "a", "b", 900, 0)])]);
    let more = draw(&[(5, &[(10, "a", "b", 600, 0)]), (6, &[(1, "a", "b", 900, 0)])]);
    assert!(pending_bytes(&some, &options()) >= 200 * KIB);
    assert!(pending_bytes(&more, &options()) > pending_bytes(&some, &options()));
}
