//! What can only be seen from inside: table dereferences, schedules of jobs.

use crate::block::compression::Compression;
use crate::db::Db;
use crate::options::{KeyspaceOptions, Options};
use crate::stats::Outcome;
use crate::sync::Arc;
use crate::tree::test_hooks;
use crate::vfs::{FileSystem, MemoryFileSystem};

fn options(threads: usize) -> Options {
    Options {
        background_threads: threads,
        seed: Some(5),
        keyspace: KeyspaceOptions {
            memtable_bytes: 16 << 10,
            block_bytes: 512,
            table_bytes: 8 << 10,
            base_level_bytes: 32 << 10,
            level_multiplier: 4,
            l0_compaction_trigger: 3,
            compression: [Compression::None; 7],
            ..Default::default()
        },
        ..Default::default()
    }
}

fn open(options: Options) -> Db {
    let fs: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
    Db::builder().options(options).file_system(fs).open("db").unwrap()
}

fn key(i: u64) -> Vec<u8> {
    format!("key{i:08}").into_bytes()
}

#[test]
fn an_absent_read_that_the_filters_answer_dereferences_no_table() {
    let db = open(options(0));
    for round in 0..3 {
        for i in 0..3000 {
            db.put(key(i * 2), format!("{round}")).unwrap();
        }
    }
    db.flush().unwrap();
    assert!(db.tables().len() > 5);
    let mut answered = 0;
    for i in 0..3000 {
        let before = test_hooks::dereferences();
        let (value, stats) = db.get_with_stats(key(i * 2 + 1)).unwrap();
        assert!(value.is_none());
        let passed = stats.tables().filter(|t| t.outcome != Outcome::Negative).count() as u64;
        assert_eq!(test_hooks::dereferences() - before, passed, "a table was touched without its filter's maybe");
        answered += u64::from(passed == 0 && stats.tables_asked() > 0);
    }
    assert!(answered > 2800, "{answered} of 3000 absent reads were answered by filters alone");
}

#[test]
fn two_disjoint_compactions_are_open_while_a_flush_commits() {
    let db = open(Options {
        keyspace: KeyspaceOptions { tombstone_density_trigger: 2.0, ..options(4).keyspace },
        ..options(4)
    });
    let pause = db.pause_points();
    let left = db.keyspace("left").unwrap();
    let right = db.keyspace("right").unwrap();
    pause.hold("compaction:before_install");
    for keyspace in [&left, &right] {
        for round in 0..3 {
            for i in 0..50 {
                keyspace.put(key(i), format!("{round}")).unwrap();
            }
            keyspace.flush().unwrap();
        }
    }
    assert!(pause.wait_for("compaction:before_install", 2), "two compactions should be open at once");
    let flushes = db.statistics().compaction.flushes;
    db.put("during", "compaction").unwrap();
    db.flush().unwrap();
    assert_eq!(db.statistics().compaction.flushes, flushes + 1, "the flush committed while both were open");
    assert_eq!(db.statistics().compaction.compactions, 0);
    pause.release("compaction:before_install");
    db.wait_idle().unwrap();
    assert_eq!(db.statistics().compaction.compactions, 2);
    assert_eq!(db.get("during").unwrap().as_deref(), Some(&b"compaction"[..]));
    for keyspace in [&left, &right] {
        assert_eq!(keyspace.get(key(7)).unwrap().as_deref(), Some(&b"2"[..]));
    }
}

#[test]
fn two_compactions_of_disjoint_ranges_of_one_keyspace_are_open_while_a_flush_commits() {
    let db = open(Options {
        keyspace: KeyspaceOptions {
            memtable_bytes: 1 << 20,
            base_level_bytes: 64 << 10,
            l0_compaction_trigger: 2,
            ..options(4).keyspace
        },
        ..options(4)
    });
    let fill = |range: std::ops::Range<u64>, step| {
        range.step_by(step).for_each(|i| db.put(key(i), [b'v'; 60]).unwrap());
        db.flush().unwrap();
    };
    fill(0..3000, 1);
    db.compact().unwrap();
    fill(0..3000, 6);
    fill(1..3000, 6);
    db.wait_idle().unwrap();
    let middle = db.tables().iter().filter(|t| t.level == 5).count();
    assert!(middle >= 4, "{middle} tables in level 5");
    // From now on level 5 is far over its target.
    let pause = db.pause_points();
    pause.hold("compaction:before_install");
    let narrow = KeyspaceOptions { base_level_bytes: 8 << 10, level_multiplier: 100, ..db.options() };
    db.keyspace_with("default", narrow).unwrap();
    let before = db.statistics().compaction;
    fill(5000..5001, 1);
    assert!(pause.wait_for("compaction:before_install", 2), "two compactions should be open at once");
    fill(5001..5002, 1);
    let now = db.statistics().compaction;
    assert_eq!((now.flushes, now.compactions), (before.flushes + 2, before.compactions));
    pause.release("compaction:before_install");
    db.wait_idle().unwrap();
    assert!(db.statistics().compaction.compactions >= before.compactions + 2);
    assert!((0..3000).all(|i| db.contains_key(key(i)).unwrap()));
    db.verify().unwrap();
}

#[test]
fn a_flush_that_ends_during_a_compaction_is_not_lost() {
    let db = open(options(3));
    let pause = db.pause_points();
    pause.hold("compaction:before_install");
    for round in 0..3 {
        for i in 0..50 {
            db.put(key(i), format!("{round}")).unwrap();
        }
        db.flush().unwrap();
    }
    assert!(pause.wait_for("compaction:before_install", 1));
    db.put(key(7), "newer").unwrap();
    db.put("only here", "x").unwrap();
    db.flush().unwrap();
    pause.release("compaction:before_install");
    db.wait_idle().unwrap();
    assert_eq!(db.get(key(7)).unwrap().as_deref(), Some(&b"newer"[..]));
    assert_eq!(db.get("only here").unwrap().as_deref(), Some(&b"x"[..]));
    assert_eq!(db.get(key(8)).unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn what_a_later_version_says_of_a_table_is_unsupported_not_passed_over() {
    let db = open(options(0));
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    let version = db.tree().view().version;
    let (_, table) = version.tables().next().unwrap();
    let refused = |change: fn(&mut crate::version::edit::FileMeta)| {
        let mut meta = (*table.meta).clone();
        change(&mut meta);
        super::open::check_understood(&meta).is_err_and(|e| e.kind() == crate::error::ErrorKind::Unsupported)
    };
    assert!(!refused(|_| ()));
    assert!(refused(|meta| meta.seqno_override = Some(9)));
    assert!(refused(|meta| meta.tombstone_bounds = Some((b"a".to_vec(), b"b".to_vec()))));
    assert!(refused(|meta| meta.largest_exclusive = true));
    assert!(refused(|meta| meta.filter_side_file = Some(7)));
}
