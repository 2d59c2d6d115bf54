//! Many threads that write with and without sync, while others flush, sync and merge; then a crash at any moment.

use crate::support::{key, open_in, tiny};
use siftdb::vfs::{CrashVariant, MemoryFileSystem};
use siftdb::{Db, Keyspace, Options, WriteOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const WRITERS: u64 = 5;
const KEYSPACES: [&str; 2] = ["default", "other"];

fn options() -> Options {
    Options { background_threads: 2, max_wal_bytes: 256 << 10, ..tiny() }
}

/// What a writer has had acknowledged, and of that what is surely durable.
#[derive(Default)]
struct Progress {
    acknowledged: AtomicU64,
    durable: AtomicU64,
}

fn last(writer: u64) -> Vec<u8> {
    format!("last of {writer}").into_bytes()
}

fn entry(writer: u64, number: u64) -> Vec<u8> {
    [key(writer), key(number)].concat()
}

/// Batch after batch, each over both keyspaces and with its number: a hole or half a batch would show.
fn write(db: &Db, other: &Keyspace, writer: u64, progress: &Progress, stop: &AtomicBool) {
    for number in 1.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let mut batch = db.batch();
        let filler = "x".repeat((number * 31 % 150) as usize);
        batch.put(last(writer), number.to_string()).put(entry(writer, number), &filler);
        batch.on(other).put(entry(writer, number), &filler).put(last(writer), number.to_string());
        // The writers with odd numbers never sync.
        let sync = writer.is_multiple_of(2) && number.is_multiple_of(3);
        batch.commit_with(&WriteOptions { sync, ..Default::default() }).unwrap();
        progress.acknowledged.store(number, Ordering::SeqCst);
        if sync {
            progress.durable.fetch_max(number, Ordering::SeqCst);
        }
    }
}

/// Each a promise about everything that was acknowledged before the call.
fn keep_durable(db: &Db, progress: &[Progress], stop: &AtomicBool) {
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let before: Vec<u64> = progress.iter().map(|p| p.acknowledged.load(Ordering::SeqCst)).collect();
        match round % 4 {
            0 => db.flush_all().unwrap(),
            3 => db.keyspace("other").unwrap().compact().unwrap(),
            _ => db.sync().unwrap(),
        }
        // Merging one keyspace makes only that one durable, and batches are whole: it says nothing of the other.
        if round % 4 < 3 {
            for (number, progress) in before.iter().zip(progress) {
                progress.durable.fetch_max(*number, Ordering::SeqCst);
            }
        }
        std::thread::sleep(Duration::from_millis(3));
    }
}

fn check(image: &MemoryFileSystem, least: &[u64], begun: &[u64], case: &str) {
    let db = open_in(image, options()).unwrap_or_else(|error| panic!("{case}: {error}"));
    let other = db.keyspace("other").unwrap();
    for writer in 0..WRITERS {
        let number = |keyspace: &Keyspace| -> u64 {
            let value = keyspace.get(last(writer)).unwrap();
            value.map_or(0, |value| std::str::from_utf8(&value).unwrap().parse().unwrap())
        };
        let found = number(&db);
        let range = least[writer as usize]..=begun[writer as usize];
        assert!(range.contains(&found), "{case}: writer {writer} has {found} of {range:?}");
        assert_eq!(number(&other), found, "{case}: half a batch of writer {writer}");
        for number in 1..=found + 3 {
            for keyspace in [&*db, &other] {
                let there = keyspace.contains_key(entry(writer, number)).unwrap();
                assert_eq!(there, number <= found, "{case}: entry {number} of writer {writer}, {found} in all");
            }
        }
    }
    db.verify().unwrap();
}

#[test]
fn a_crash_in_a_storm_of_synced_and_unsynced_writers_leaves_every_promise_kept() {
    let fs = MemoryFileSystem::recording();
    let db = open_in(&fs, options()).unwrap();
    let other = db.keyspace(KEYSPACES[1]).unwrap();
    let progress: Arc<Vec<Progress>> = Arc::new((0..WRITERS).map(|_| Progress::default()).collect());
    let stop = AtomicBool::new(false);
    let mut moments = Vec::new();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (db, other, progress, stop) = (&db, &other, &progress, &stop);
            scope.spawn(move || write(db, other, writer, &progress[writer as usize], stop));
        }
        scope.spawn(|| keep_durable(&db, &progress, &stop));
        let end = Instant::now() + Duration::from_millis(900);
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(100));
            // What was promised before this moment; what came later is allowed, not asked for.
            let read = |of: fn(&Progress) -> &AtomicU64| -> Vec<u64> {
                progress.iter().map(|p| of(p).load(Ordering::SeqCst)).collect()
            };
            let durable = read(|p| &p.durable);
            let acknowledged = read(|p| &p.acknowledged);
            moments.push((fs.operation_count(), durable, acknowledged));
        }
        stop.store(true, Ordering::SeqCst);
    });
    let written: Vec<u64> = progress.iter().map(|p| p.acknowledged.load(Ordering::SeqCst)).collect();
    assert!(written.iter().all(|n| *n > 50), "{written:?}");
    for (number, (at, durable, acknowledged)) in moments.iter().enumerate() {
        let check_image = |variant, least: &[u64]| {
            let image = fs.crash_image(*at, variant, number as u64);
            check(&image, least, &written, &format!("moment {number}, {variant:?}"));
        };
        check_image(CrashVariant::LoseUnsynced, durable);
        check_image(CrashVariant::KeepAll, acknowledged);
        check_image(CrashVariant::Subset, durable);
    }
}
