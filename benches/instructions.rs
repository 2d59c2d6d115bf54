//! What one operation costs in instructions: run under callgrind, with and without `--cfg siftdb_no_stats`, to see what
//! the counters cost.
//!
//! ```text
//! cargo bench --bench instructions --no-run
//! valgrind --tool=callgrind --toggle-collect='*measured*' target/release/deps/instructions-… hit 20000
//! ```

use siftdb::vfs::{FileSystem, MemoryFileSystem};
use siftdb::{Compression, Db, KeyspaceOptions, Options};
use std::hint::black_box;
use std::sync::Arc;

const KEYS: u64 = 100_000;

fn key(i: u64) -> [u8; 16] {
    let mut key = *b"user000000000000";
    for (at, digit) in key.iter_mut().rev().zip(std::iter::successors(Some(i), |i| Some(i / 10))) {
        if digit == 0 {
            break;
        }
        *at = b'0' + (digit % 10) as u8;
    }
    key
}

fn load() -> Db {
    let options = Options {
        background_threads: 0,
        seed: Some(1),
        keyspace: KeyspaceOptions {
            memtable_bytes: 2 << 20,
            table_bytes: 1 << 20,
            base_level_bytes: 2 << 20,
            level_multiplier: 4,
            compression: [Compression::None; 7],
            ..Default::default()
        },
        ..Default::default()
    };
    let fs: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
    let db = Db::builder().options(options).file_system(fs).open("db").expect("a new database in memory opens");
    for i in 0..KEYS {
        db.put(key(i * 7919 % KEYS * 2), [7; 100]).expect("memory takes writes");
    }
    db.flush().expect("memory takes writes");
    db
}

#[inline(never)]
fn measured_get(db: &Db, first: u64, count: u64) -> u64 {
    let mut found = 0;
    for i in 0..count {
        let value = db.get(key((i * 6151 % KEYS) * 2 + first)).expect("memory can be read");
        found += u64::from(black_box(value).is_some());
    }
    found
}

#[inline(never)]
fn measured_put(db: &Db, count: u64) {
    for i in 0..count {
        db.put(key(i * 6151 % KEYS * 2), [8; 100]).expect("memory takes writes");
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|a| a != "--bench");
    let operation = arguments.next().unwrap_or_else(|| "hit".into());
    let count: u64 = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(20_000);
    let db = load();
    let found = match &*operation {
        "hit" => {
            // Once before, so that every block is in the cache.
            black_box(db.multi_get((0..KEYS).map(|i| key(i * 2))).expect("memory can be read"));
            measured_get(&db, 0, count)
        }
        "miss" => measured_get(&db, 1, count),
        "put" => {
            measured_put(&db, count);
            count
        }
        other => panic!("unknown operation {other}: hit, miss or put"),
    };
    let levels = db.statistics().levels.iter().filter(|l| l.tables > 0).count();
    println!("{operation}: {count} operations, {found} found, {levels} levels");
}
