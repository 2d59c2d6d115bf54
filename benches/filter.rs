//! Filters alone: building, and probing when the payload is in the processor's caches and when it is not.
//!
//! `cargo bench --bench filter`. Times are per key. The filter's files are compiled into this program, since what they
//! offer is private to the crate.
#![allow(dead_code, unused_imports)]

#[path = "../src/checksum.rs"]
mod checksum;
#[path = "../src/coding.rs"]
mod coding;
#[path = "../src/error.rs"]
mod error;
#[path = "../src/filter/mod.rs"]
mod filter;
#[path = "../src/hash.rs"]
mod hash;
#[path = "../src/sync.rs"]
mod sync;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use filter::{ConcurrentFilter, Filter, FilterBuilder, FilterKind, FilterOptions, FilterSize};
use hash::{HashKey, KeyHash, mix64};
use std::hint::black_box;

const KINDS: [FilterKind; 2] = [FilterKind::Blocked, FilterKind::Bloom];
const BITS_PER_KEY: f64 = 10.0;

/// 12.5 KB of filter: in the first-level cache.
const HOT_KEYS: u64 = 10_000;

/// 84 MB of filter: beyond most last-level caches.
const COLD_KEYS: u64 = 1 << 26;

/// Keys per measured batch.
const PROBES: u64 = 4096;

/// How many keys ahead `prefetch` is called, as a batched read does.
const AHEAD: usize = 16;

fn builder(kind: FilterKind, keys: u64) -> FilterBuilder {
    let options = FilterOptions { kind, size: FilterSize::BitsPerKey(BITS_PER_KEY) };
    let mut builder = FilterBuilder::new(options, HashKey([7; 16]), 42);
    (0..keys).for_each(|i| builder.add(KeyHash(mix64(i))));
    builder
}

fn filter(kind: FilterKind, keys: u64) -> Filter {
    Filter::parse(&builder(kind, keys).finish().expect("a filter of this kind")).expect("an intact block").0
}

/// The hashes of one batch; `round` makes each batch touch other lines.
fn hashes(first: u64) -> Vec<KeyHash> {
    (first..first + PROBES).map(|i| KeyHash(mix64(i))).collect()
}

fn build(c: &mut Criterion) {
    let mut group = c.benchmark_group("filter/build");
    group.sample_size(20);
    for keys in [10_000, 1_000_000] {
        group.throughput(Throughput::Elements(keys));
        for kind in KINDS {
            group.bench_function(format!("{kind:?}/{keys}"), |b| {
                b.iter_batched(|| builder(kind, keys), |builder| builder.finish(), BatchSize::LargeInput);
            });
        }
    }
}

fn probe_hot(c: &mut Criterion) {
    let mut group = c.benchmark_group("filter/probe-hot");
    group.throughput(Throughput::Elements(PROBES));
    for kind in KINDS {
        let filter = filter(kind, HOT_KEYS);
        for (name, hashes) in [("present", hashes(0)), ("absent", hashes(1 << 40))] {
            group.bench_function(format!("{kind:?}/{name}"), |b| {
                b.iter(|| hashes.iter().filter(|&&hash| filter.may_contain(black_box(hash))).count());
            });
        }
    }
}

fn probe_cold(c: &mut Criterion) {
    let mut group = c.benchmark_group("filter/probe-cold");
    group.throughput(Throughput::Elements(PROBES)).sample_size(30);
    for kind in KINDS {
        let filter = filter(kind, COLD_KEYS);
        let mut round = 1 << 40;
        let mut next = move || {
            round += PROBES;
            hashes(round)
        };
        group.bench_function(format!("{kind:?}/absent"), |b| {
            b.iter_batched(&mut next, |hashes| count_one_by_one(&filter, &hashes), BatchSize::SmallInput);
        });
        group.bench_function(format!("{kind:?}/absent-prefetched"), |b| {
            b.iter_batched(&mut next, |hashes| count_prefetched(&filter, &hashes), BatchSize::SmallInput);
        });
    }
}

/// Each probe takes its key from the one before it, as separate reads do. (A Bloom filter's answer is a branch, which
/// the processor may guess and so run ahead; a blocked filter's is not.)
fn count_one_by_one(filter: &Filter, hashes: &[KeyHash]) -> u64 {
    hashes.iter().fold(0, |count, hash| {
        let waits = black_box(count) & (1 << 63);
        count + u64::from(filter.may_contain(KeyHash(hash.0 ^ waits)))
    })
}

fn count_prefetched(filter: &Filter, hashes: &[KeyHash]) -> u64 {
    let mut count = 0;
    for (at, &hash) in hashes.iter().enumerate() {
        if let Some(&ahead) = hashes.get(at + AHEAD) {
            filter.prefetch(ahead);
        }
        count += u64::from(filter.may_contain(hash));
    }
    count
}

fn concurrent(c: &mut Criterion) {
    let mut group = c.benchmark_group("filter/concurrent");
    group.throughput(Throughput::Elements(PROBES));
    let filter = ConcurrentFilter::new(1_000_000, BITS_PER_KEY);
    let (present, absent) = (hashes(0), hashes(1 << 40));
    group.bench_function("insert", |b| b.iter(|| present.iter().for_each(|&hash| filter.insert(hash))));
    group.bench_function("absent", |b| {
        b.iter(|| absent.iter().filter(|&&hash| filter.may_contain(black_box(hash))).count());
    });
}

criterion_group!(benches, build, probe_hot, probe_cold, concurrent);
criterion_main!(benches);
