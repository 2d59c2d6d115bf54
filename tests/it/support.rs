//! What the tests share.

use siftdb::vfs::{FileSystem, MemoryFileSystem};
use siftdb::{Db, FilterKind, FilterOptions, FilterSize, KeyspaceOptions, Options};
use std::io::Write;
use std::sync::Arc;

/// Tiny tables and memtables, inline work, a fixed seed: many levels from few keys, the same every time.
pub fn tiny() -> Options {
    Options {
        background_threads: 0,
        seed: Some(1),
        cache_bytes: 1 << 20,
        keyspace: KeyspaceOptions {
            memtable_bytes: 8 << 10,
            block_bytes: 512,
            table_bytes: 8 << 10,
            base_level_bytes: 32 << 10,
            level_multiplier: 4,
            l0_compaction_trigger: 2,
            filter: FilterOptions { kind: FilterKind::Blocked, size: FilterSize::BitsPerKey(10.0) },
            ..Default::default()
        },
        ..Default::default()
    }
}

/// A database in memory.
pub fn open_in(fs: &MemoryFileSystem, options: Options) -> siftdb::Result<Db> {
    let fs: Arc<dyn FileSystem> = Arc::new(fs.clone());
    Db::builder().options(options).file_system(fs).open("db")
}

pub fn key(i: u64) -> Vec<u8> {
    format!("key{i:08}").into_bytes()
}

pub fn value(i: u64, version: u64) -> Vec<u8> {
    format!("value-{i}-{version}-{}", "x".repeat((i % 50) as usize)).into_bytes()
}

/// Ends the test process with a message when a case takes longer than 5 seconds: a hang would say nothing.
pub struct Watchdog(Option<std::sync::mpsc::Sender<()>>, Option<std::thread::JoinHandle<()>>);

impl Watchdog {
    pub fn start(case: String) -> Self {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let watch = std::thread::spawn(move || {
            let timeout = std::sync::mpsc::RecvTimeoutError::Timeout;
            if receiver.recv_timeout(std::time::Duration::from_secs(5)) == Err(timeout) {
                // Past the capture of the test's output, which would be lost.
                let _ = std::io::stderr().write_all(format!("hangs: {case}\n").as_bytes());
                std::process::exit(101);
            }
        });
        Watchdog(Some(sender), Some(watch))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.0.take());
        let _ = self.1.take().map(std::thread::JoinHandle::join);
    }
}
