//! Writers under compaction debt: short delays that grow, stops only at the hard limit, and no wait without an end.

use crate::support::{key, tiny};
use siftdb::vfs::{FileSystem, MemoryFileSystem};
use siftdb::{Clock, Db, SystemClock};
use std::sync::Mutex as StdMutex;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// A clock that notes its sleeps and returns from them at once.
#[derive(Debug, Default)]
#[allow(clippy::disallowed_types)] // the crate's own locks are not public
struct NotingClock {
    system: SystemClock,
    sleeps: StdMutex<Vec<Duration>>,
}

impl NotingClock {
    fn take(&self) -> Vec<Duration> {
        std::mem::take(&mut self.sleeps.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Clock for NotingClock {
    fn monotonic_micros(&self) -> u64 {
        self.system.monotonic_micros()
    }

    fn unix_seconds(&self) -> u64 {
        self.system.unix_seconds()
    }

    fn sleep(&self, duration: Duration) {
        // The background's own short waits are not a writer's.
        if duration >= Duration::from_millis(1) {
            self.sleeps.lock().unwrap_or_else(PoisonError::into_inner).push(duration);
        } else {
            std::thread::sleep(duration);
        }
    }
}

fn open(clock: Arc<NotingClock>) -> Db {
    let mut options = tiny();
    options.background_threads = 2;
    options.keyspace.memtable_bytes = 16 << 20;
    options.keyspace.l0_compaction_trigger = 2;
    options.keyspace.l0_slowdown = 4;
    options.keyspace.l0_stop = 12;
    let fs: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
    Db::builder().options(options).file_system(fs).clock(clock).open("db").unwrap()
}

#[test]
fn delays_grow_with_the_debt_and_none_is_over_50_ms() {
    let clock = Arc::new(NotingClock::default());
    let db = open(Arc::clone(&clock));
    let pause = db.pause_points();
    pause.hold("compaction:begin");
    let mut slept = Vec::new();
    for tables in 1..12_u64 {
        db.put(key(tables), "v").unwrap();
        db.flush().unwrap();
        clock.take();
        // The same work under each debt.
        for i in 0..200 {
            db.put(key(i), [7; 1000]).unwrap();
        }
        let sleeps = clock.take();
        assert!(sleeps.iter().all(|s| *s <= Duration::from_millis(50)), "{sleeps:?}");
        slept.push(sleeps.iter().sum::<Duration>());
    }
    assert_eq!(slept[..4], [Duration::ZERO; 4], "no delay up to the soft limit: {slept:?}");
    assert!(slept[5..].windows(2).all(|pair| pair[0] < pair[1]), "more debt, more delay: {slept:?}");
    let stalls = db.statistics().writes.stalls;
    assert!(stalls.delays > 0);
    assert_eq!(stalls.level0_stops, 0, "the hard limit was not reached");
    pause.release("compaction:begin");
    db.wait_idle().unwrap();
    assert!(db.statistics().levels[0].tables < 2);
}

#[test]
fn a_writer_at_the_hard_limit_goes_on_when_the_compaction_does() {
    let db = open(Arc::new(NotingClock::default()));
    let pause = db.pause_points();
    pause.hold("compaction:begin");
    for tables in 0..12 {
        db.put(key(tables), "v").unwrap();
        db.flush().unwrap();
    }
    let writer = {
        let db = db.clone();
        std::thread::spawn(move || db.put("stopped", "v"))
    };
    std::thread::sleep(Duration::from_millis(200));
    assert!(!writer.is_finished(), "level 0 is full");
    pause.release("compaction:begin");
    writer.join().unwrap().unwrap();
    let stalls = db.statistics().writes.stalls;
    assert_eq!((stalls.level0_stops, stalls.memtable_stops, stalls.debt_stops), (1, 0, 0));
    assert!(stalls.longest_micros > 0);
}

#[test]
fn closing_ends_a_writers_stop() {
    let db = open(Arc::new(NotingClock::default()));
    let pause = db.pause_points();
    pause.hold("compaction:begin");
    for tables in 0..12 {
        db.put(key(tables), "v").unwrap();
        db.flush().unwrap();
    }
    let writer = {
        let db = db.clone();
        std::thread::spawn(move || db.put("stopped", "v"))
    };
    let closer = {
        let db = db.clone();
        std::thread::spawn(move || db.close())
    };
    std::thread::sleep(Duration::from_millis(50));
    pause.release("compaction:begin");
    closer.join().unwrap().unwrap();
    let outcome = writer.join().unwrap();
    assert!(outcome.is_ok() || outcome.unwrap_err().kind() == siftdb::ErrorKind::Closed);
}
