//! One line per workload, in db_bench's units, and all of them as JSON.

use super::worker::Tally;
use super::workload::Workload;
use crate::args::RunArgs;
use crate::environment::Environment;
use crate::run_keys::RunKeys;
use crate::table::grouped;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use siftdb::Statistics;

/// Raised when a field changes its meaning or goes; new fields do not raise it.
const SCHEMA_VERSION: u32 = 1;
const MIB: f64 = 1_048_576.0;

const EMPTY_HINT: &str = "  no table is there and nothing was written: put fillseq or fillrandom before
  the reads, or name a database with --db and --use-existing-db
";
const MEMTABLE_HINT: &str = "  all keys are still in the memtable: no table was read, no filter asked;
  raise --num, lower --write-buffer-size, or put compact before the reads
";

/// What a workload came to.
pub(super) struct Outcome {
    pub(super) workload: Workload,
    pub(super) skipped: bool,
    pub(super) threads: Tally,
    /// What the engine counted meanwhile.
    pub(super) counted: Statistics,
    /// Instead of a line of figures.
    pub(super) text: Option<String>,
    /// What a reader of the figures may not expect.
    pub(super) hint: Option<&'static str>,
}

impl Outcome {
    pub(super) fn new(workload: Workload) -> Outcome {
        Outcome {
            workload,
            skipped: false,
            threads: Tally::default(),
            counted: Statistics::default(),
            text: None,
            hint: None,
        }
    }

    pub(super) fn skipped(workload: Workload) -> Outcome {
        Outcome { skipped: true, ..Outcome::new(workload) }
    }

    /// Figures of reads that no table and no filter had a part in are explained. `now`: the database after the workload.
    pub(super) fn explain(&mut self, now: &Statistics) {
        if self.workload.reads() && now.all_levels().tables == 0 {
            let empty = now.writes.operations == 0 && self.threads.found == 0;
            self.hint = Some(if empty { EMPTY_HINT } else { MEMTABLE_HINT });
        }
    }

    /// Of one thread: threads do not make an operation shorter.
    fn micros_per_operation(&self) -> f64 {
        self.threads.busy.as_secs_f64() * 1e6 / self.threads.operations.max(1) as f64
    }

    fn operations_per_second(&self) -> f64 {
        self.threads.operations as f64 / self.threads.elapsed().as_secs_f64().max(1e-9)
    }

    fn mib_per_second(&self) -> f64 {
        self.threads.bytes as f64 / MIB / self.threads.elapsed().as_secs_f64().max(1e-9)
    }

    fn json(&self) -> Value {
        let tally = &self.threads;
        json!({
            "workload": self.workload.name(),
            "skipped": self.skipped,
            "operations": tally.operations,
            "found": self.workload.reads().then_some(tally.found),
            "bytes": tally.bytes,
            "seconds": self.threads.elapsed().as_secs_f64(),
            "micros_per_operation": self.micros_per_operation(),
            "ops_per_second": self.operations_per_second(),
            "mib_per_second": self.mib_per_second(),
            "latency_nanos": tally.latencies.as_ref().map(percentiles),
            "counters": self.counted,
        })
    }
}

/// The line that is printed; with --histogram a second one, and what explains it.
pub(super) fn line(outcome: &Outcome) -> String {
    let name = outcome.workload.name();
    if outcome.skipped {
        return format!("{name:<16} : skipped, --use-existing-db keeps what is there\n");
    }
    if let Some(text) = &outcome.text {
        return format!("{name:<16} :\n{text}\n");
    }
    let rate =
        if outcome.threads.bytes > 0 { format!("{:>6.1} MiB/s", outcome.mib_per_second()) } else { " ".repeat(12) };
    let found = if outcome.workload.reads() { found(&outcome.threads) } else { String::new() };
    let line = format!(
        "{name:<16} : {:>8} micros/op {:>9} ops/s {rate} {found:>12}",
        micros(outcome.micros_per_operation()),
        grouped(outcome.operations_per_second() as u64)
    );
    let line = line.trim_end();
    let histogram = outcome.threads.latencies.as_ref().map(|latencies| histogram_line(latencies) + "\n");
    format!("{line}\n{}{}", histogram.unwrap_or_default(), outcome.hint.unwrap_or_default())
}

/// Three decimals as long as they mean something.
fn micros(micros: f64) -> String {
    let decimals = if micros < 1_000.0 { 3 } else { 1 };
    format!("{micros:.decimals$}")
}

/// The part of the keys asked for that was there. "none" and "all" are exact, what is rounded never reads like them.
fn found(threads: &Tally) -> String {
    match threads.found {
        0 => "none found".into(),
        found if found == threads.operations => "all found".into(),
        found => {
            let percent = found as f64 / threads.operations as f64 * 100.0;
            format!("{:.1} % found", percent.clamp(0.1, 99.9))
        }
    }
}

fn histogram_line(latencies: &Histogram<u64>) -> String {
    let micros = |quantile| short_micros(latencies.value_at_quantile(quantile));
    format!(
        "  micros: p50 {}  p90 {}  p99 {}  p99.9 {}  max {}",
        micros(0.5),
        micros(0.9),
        micros(0.99),
        micros(0.999),
        short_micros(latencies.max())
    )
}

fn short_micros(nanos: u64) -> String {
    let micros = nanos as f64 / 1e3;
    let decimals = if micros < 1_000.0 { 2 } else { 0 };
    format!("{micros:.decimals$}")
}

fn percentiles(latencies: &Histogram<u64>) -> Value {
    json!({
        "count": latencies.len(),
        "p50": latencies.value_at_quantile(0.5),
        "p90": latencies.value_at_quantile(0.9),
        "p99": latencies.value_at_quantile(0.99),
        "p99.9": latencies.value_at_quantile(0.999),
        "max": latencies.max(),
    })
}

pub(super) fn json(
    args: &RunArgs,
    environment: &Environment,
    keys: &RunKeys,
    outcomes: &[Outcome],
    command_line: Vec<String>,
) -> Value {
    json!({
        "schema": "kvbench.run",
        "schema_version": SCHEMA_VERSION,
        "command_line": command_line,
        "environment": environment,
        "parameters": {
            "num": keys.count(),
            "threads": args.threads,
            "duration": args.duration,
            "key_size": args.key_size,
            "value_size": args.value_size,
            "batch_size": args.batch_size,
            "bloom_bits": args.bloom_bits,
            "sync": args.sync,
            "seed": args.seed,
        },
        "key_file": keys.summary(),
        "workloads": outcomes.iter().map(Outcome::json).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn outcome(workload: Workload) -> Outcome {
        let mut latencies = Histogram::new(3).unwrap();
        for nanos in 1..=1_000 {
            latencies.record(nanos * 1_000).unwrap();
        }
        let start = Instant::now();
        let threads = Tally {
            operations: 1_000_000,
            span: Some((start, start + Duration::from_secs(2))),
            bytes: 116 << 20,
            found: 632_000,
            busy: Duration::from_secs(4),
            latencies: Some(latencies),
        };
        Outcome { threads, ..Outcome::new(workload) }
    }

    #[test]
    fn time_per_operation_is_a_threads_and_the_rate_is_everybodys() {
        let text = line(&outcome(Workload::ReadRandom));
        let first = text.lines().next().unwrap();
        assert_eq!(first, "readrandom       :    4.000 micros/op   500,000 ops/s   58.0 MiB/s 63.2 % found");
        assert!(!line(&outcome(Workload::FillSeq)).contains("found"));
    }

    #[test]
    fn lines_are_aligned_and_fit_80_columns() {
        let mut none = outcome(Workload::ReadWhileWriting);
        (none.threads.bytes, none.threads.found) = (0, 0);
        let mut slow = outcome(Workload::ReadMissing);
        (slow.threads.busy, slow.threads.found) = (Duration::from_secs(90_000), 1_000_000);
        slow.threads.latencies.as_mut().unwrap().record(100_000_000_000).unwrap();
        let lines = [outcome(Workload::ReadRandom), none, slow].map(|outcome| line(&outcome));
        for text in &lines {
            let first = text.lines().next().unwrap();
            assert!(first.ends_with(" found") && first.len() == 79, "{first}");
            assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        }
        assert!(lines[1].contains(" none found") && lines[2].contains(" all found"), "{lines:?}");
    }

    #[test]
    fn only_nothing_is_none_and_only_everything_is_all() {
        let tally = |found| Tally { operations: 1_000_000, found, ..Default::default() };
        let texts = [0, 1, 999_999, 1_000_000].map(|count| found(&tally(count)));
        assert_eq!(texts, ["none found", "0.1 % found", "99.9 % found", "all found"]);
    }

    #[test]
    fn percentiles_are_in_microseconds() {
        let text = line(&outcome(Workload::FillSeq));
        let second = text.lines().nth(1).unwrap();
        assert!(second.starts_with("  micros: p50 500.") && second.ends_with(" max 1000"), "{second}");
    }

    #[test]
    fn a_skipped_workload_says_why() {
        assert!(line(&Outcome::skipped(Workload::FillSeq)).contains("--use-existing-db"));
    }
}
