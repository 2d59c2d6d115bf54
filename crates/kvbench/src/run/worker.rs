//! What the threads of a workload do. As in db_bench each does all its operations, with a random stream of its own.

use super::workload::Workload;
use crate::args::RunArgs;
use crate::keys::{Random, random};
use crate::output::{PROGRESS_STEP, progress};
use crate::run_keys::RunKeys;
use crate::values::Values;
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use rand::RngExt;
use siftdb::{Db, WriteOptions};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// What threads did, added up.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) operations: u64,
    /// Key and value bytes written, or found.
    pub(super) bytes: u64,
    pub(super) found: u64,
    /// Σ over the threads of the time each took, from its first operation to its last.
    pub(super) busy: Duration,
    /// When the first operation of any thread began, and when the last one ended: starting threads, waiting for them
    /// and clearing the progress bar are not the engine's work.
    pub(super) span: Option<(Instant, Instant)>,
    /// Nanoseconds of each read, or of each batch written; if asked for.
    pub(super) latencies: Option<Histogram<u64>>,
}

impl Tally {
    fn new(histogram: bool) -> Tally {
        // Three digits, resizing itself: no latency is too long for it.
        let latencies = if histogram { Histogram::new(3).ok() } else { None };
        Tally { latencies, ..Default::default() }
    }

    fn took(&mut self, time: Duration) {
        if let Some(latencies) = &mut self.latencies {
            // It grows as needed; a latency that no memory is left to record is the least of the troubles then.
            let _ = latencies.record(time.as_nanos() as u64);
        }
    }

    /// From the first operation to the last; of one thread exactly `busy`.
    pub(super) fn elapsed(&self) -> Duration {
        self.span.map_or(Duration::ZERO, |(first, last)| last - first)
    }

    /// Counts a thread's work as from `start` until now.
    pub(super) fn worked_since(&mut self, start: Instant) {
        let end = Instant::now();
        self.busy = end - start;
        self.span = Some((start, end));
    }

    fn merge(&mut self, other: Tally) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.found += other.found;
        self.busy += other.busy;
        self.span = match (self.span, other.span) {
            (Some(ours), Some(theirs)) => Some((ours.0.min(theirs.0), ours.1.max(theirs.1))),
            (ours, theirs) => ours.or(theirs),
        };
        self.latencies = match (self.latencies.take(), other.latencies) {
            (Some(mut ours), Some(theirs)) => {
                ours += theirs;
                Some(ours)
            }
            (ours, theirs) => ours.or(theirs),
        };
    }
}

/// One thread's work.
struct Worker<'a> {
    workload: Workload,
    args: &'a RunArgs,
    keys: &'a RunKeys,
    db: &'a Db,
    random: Random,
    values: Values,
    bar: &'a ProgressBar,
    tally: Tally,
}

pub(super) fn in_threads(
    workload: Workload,
    args: &RunArgs,
    keys: &RunKeys,
    values: &Values,
    db: &Db,
) -> siftdb::Result<Tally> {
    let each = operations(workload, args, keys);
    let bar = progress(workload.name(), each.saturating_mul(u64::from(args.threads)));
    // Workloads draw from different streams, or readrandom would ask for what fillrandom wrote, in that order.
    let worker = |thread: u32| Worker {
        workload,
        args,
        keys,
        db,
        random: random(args.seed, 64 + u64::from(thread) * 64 + workload as u64),
        values: values.clone(),
        bar: &bar,
        tally: Tally::new(args.histogram),
    };
    let writers = u32::from(workload == Workload::ReadWhileWriting);
    let readers_done = AtomicBool::new(false);
    let total = std::thread::scope(|scope| {
        let (worker, readers_done) = (&worker, &readers_done);
        let writers: Vec<_> =
            (0..writers).map(|n| scope.spawn(move || worker(args.threads + n).write_until(readers_done))).collect();
        let threads: Vec<_> = (0..args.threads).map(|n| scope.spawn(move || worker(n).work(each))).collect();
        let total = joined(threads);
        readers_done.store(true, Ordering::Relaxed);
        // The writer is load, not a result: only its failure counts.
        joined(writers).and(total)
    });
    bar.finish_and_clear();
    total
}

/// The sum of what the threads did, or the first failure; all are waited for.
fn joined(threads: Vec<ScopedJoinHandle<'_, siftdb::Result<Tally>>>) -> siftdb::Result<Tally> {
    let mut total = Ok(Tally::default());
    for thread in threads {
        let tally = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        total = match (total, tally) {
            (Ok(mut total), Ok(tally)) => {
                total.merge(tally);
                Ok(total)
            }
            (Err(error), _) | (_, Err(error)) => Err(error),
        };
    }
    total
}

/// Operations of each thread.
fn operations(workload: Workload, args: &RunArgs, keys: &RunKeys) -> u64 {
    if workload.reads() { args.reads.unwrap_or(keys.count()) } else { keys.count() }
}

impl Worker<'_> {
    /// All operations, or as many as --duration has room for; fill workloads have an end of their own.
    fn work(mut self, operations: u64) -> siftdb::Result<Tally> {
        let timed = self.args.duration > 0 && !self.workload.wants_fresh_database();
        let length = Duration::from_secs(self.args.duration);
        let (start, mut reported) = (Instant::now(), 0);
        while if timed { start.elapsed() < length } else { self.tally.operations < operations } {
            let left = if timed { u64::MAX } else { operations - self.tally.operations };
            self.step(left)?;
            if self.tally.operations - reported >= PROGRESS_STEP {
                self.bar.inc(self.tally.operations - reported);
                reported = self.tally.operations;
            }
        }
        self.tally.worked_since(start);
        Ok(self.tally)
    }

    fn write_until(mut self, done: &AtomicBool) -> siftdb::Result<Tally> {
        while !done.load(Ordering::Relaxed) {
            self.write(u64::MAX)?;
        }
        Ok(self.tally)
    }

    /// One read or one batch of writes, timed if asked for.
    fn step(&mut self, left: u64) -> siftdb::Result<()> {
        let start = self.args.histogram.then(Instant::now);
        match self.workload {
            Workload::ReadMissing => {
                let (keys, number) = (self.keys, self.any());
                self.read(&keys.missing(number))?;
            }
            Workload::ReadRandom | Workload::ReadWhileWriting => {
                let (keys, number) = (self.keys, self.any());
                self.read(&keys.key(number))?;
            }
            _ => self.write(left)?,
        }
        if let Some(start) = start {
            self.tally.took(start.elapsed());
        }
        Ok(())
    }

    /// The number of a random key.
    fn any(&mut self) -> u64 {
        self.random.random_range(0..self.keys.count())
    }

    fn read(&mut self, key: &[u8]) -> siftdb::Result<()> {
        self.tally.operations += 1;
        if let Some(value) = self.db.get(key)? {
            self.tally.found += 1;
            self.tally.bytes += (key.len() + value.len()) as u64;
        }
        Ok(())
    }

    /// One batch, of at most `left` puts.
    fn write(&mut self, left: u64) -> siftdb::Result<()> {
        let mut batch = self.db.batch();
        for _ in 0..left.min(u64::from(self.args.batch_size)) {
            let number = if self.workload == Workload::FillSeq { self.tally.operations } else { self.any() };
            let (key, filler) = (self.keys.key(number), self.values.next(self.args.value_size as usize));
            let value = self.keys.value(number).unwrap_or(filler);
            batch.put(&*key, value);
            self.tally.operations += 1;
            self.tally.bytes += (key.len() + value.len()) as u64;
        }
        batch.commit_with(&WriteOptions { sync: self.args.sync })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_add_up_with_their_histograms() {
        let mut total = Tally::default();
        for latency in [1_000, 3_000_000_000] {
            let mut tally = Tally::new(true);
            (tally.operations, tally.found, tally.bytes) = (2, 1, 10);
            tally.took(Duration::from_nanos(latency));
            total.merge(tally);
        }
        assert_eq!((total.operations, total.found, total.bytes), (4, 2, 20));
        let latencies = total.latencies.unwrap();
        assert!(latencies.len() == 2 && latencies.max() >= 3_000_000_000, "long latencies are not cut");
    }

    #[test]
    fn the_span_of_several_threads_is_from_the_first_operation_to_the_last() {
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        let mut total = Tally::default();
        for span in [(after(10), after(30)), (after(0), after(20)), (after(15), after(25))] {
            total.merge(Tally { span: Some(span), busy: span.1 - span.0, ..Default::default() });
        }
        assert_eq!((total.elapsed(), total.busy), (Duration::from_millis(30), Duration::from_millis(50)));
        assert_eq!(Tally::default().elapsed(), Duration::ZERO);
    }

    #[test]
    fn reads_are_counted_by_reads_and_writes_by_num() {
        use clap::Parser;
        let cli = crate::args::Cli::parse_from(["kvbench", "run", "--reads", "7"]);
        let Some(crate::args::Command::Run(args)) = cli.command else { panic!() };
        let keys = RunKeys::Numbered { count: 50, size: 16 };
        assert_eq!(operations(Workload::ReadMissing, &args, &keys), 7);
        assert_eq!(operations(Workload::Overwrite, &args, &keys), 50);
    }
}
