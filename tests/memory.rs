//! Memory by owner, held against the heap: what `Statistics` says adds up to what an allocator counts.
#![allow(unsafe_code)] // a counting allocator

use siftdb::{KeyspaceOptions, Options};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

static LIVE: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is handed to the system's allocator unchanged; the counter is beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's contract is the same.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn key(i: u64) -> Vec<u8> {
    format!("key{:012}", i * 2_654_435_761 % 1_000_000_007).into_bytes()
}

#[test]
fn owners_add_up_to_the_heap() {
    let dir = tempfile::tempdir().unwrap();
    let before = LIVE.load(Ordering::Relaxed);
    let options = Options {
        cache_bytes: 8 << 20,
        background_threads: 0,
        keyspace: KeyspaceOptions {
            memtable_bytes: 8 << 20,
            table_bytes: 4 << 20,
            base_level_bytes: 8 << 20,
            ..Default::default()
        },
        ..Default::default()
    };
    let db = options.open(dir.path().join("db")).unwrap();
    let check = |what: &str| {
        let heap = LIVE.load(Ordering::Relaxed) - before;
        let memory = db.statistics().memory;
        let ratio = memory.total() as f64 / heap as f64;
        assert!((0.85..=1.15).contains(&ratio), "{what}: told {} of {heap} ({ratio:.3}): {memory:?}", memory.total());
    };
    for i in 0..60_000 {
        db.put(key(i), [7; 60]).unwrap();
    }
    check("a memtable");
    for i in 60_000..400_000 {
        db.put(key(i), [7; 60]).unwrap();
    }
    for i in 0..400_000 {
        assert!(db.get(key(i)).unwrap().is_some());
    }
    check("memtable, tables and a full cache");
    db.flush().unwrap();
    db.compact().unwrap();
    check("tables and cache");
}
