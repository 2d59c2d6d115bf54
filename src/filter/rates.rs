//! Measured false-positive rates against the models of `params`, at the *built* size and as the mean over filters with
//! different fixed tweaks, so that neither rounding nor the luck of one filter is mistaken for an error. At least
//! 30,000 false positives are expected in each comparison: one standard deviation is then under 0.6 %, and 3 % are
//! allowed.

use crate::filter::{Filter, FilterBuilder, FilterInfo, FilterKind, FilterOptions, FilterSize, params};
use crate::hash::{HashKey, KeyHash};

const HASH_KEY: HashKey = HashKey(*b"rates of filters");
const ALLOWED: f64 = 0.03;
const FALSE_POSITIVES: f64 = 30_000.0;

/// Where false positives are frequent, more than enough of them cost little.
const LEAST_PROBES: f64 = 1_000_000.0;

/// The i-th key of a class. Present keys come first, absent ones follow on.
type Key = fn(u64, &mut Vec<u8>);

fn random(i: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&crate::hash::mix64(i ^ 0x5eed).to_le_bytes());
    out.extend_from_slice(&crate::hash::mix64(!i).to_le_bytes());
}

fn sequential(i: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&i.to_be_bytes());
}

fn common_prefix(i: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("/home/alice/projects/archive/2024/photo-{i:09}.jpeg").as_bytes());
}

fn hashes(key: Key, range: std::ops::Range<u64>) -> impl Iterator<Item = KeyHash> {
    let mut bytes = Vec::new();
    range.map(move |i| {
        bytes.clear();
        key(i, &mut bytes);
        HASH_KEY.hash(&bytes)
    })
}

fn filters(kind: FilterKind, bits_per_key: f64, present: &[KeyHash], count: u64) -> Vec<(Filter, FilterInfo)> {
    let build = |tweak| {
        let options = FilterOptions { kind, size: FilterSize::BitsPerKey(bits_per_key) };
        let mut builder = FilterBuilder::new(options, HASH_KEY, crate::hash::mix64(tweak));
        present.iter().for_each(|&hash| builder.add(hash));
        Filter::parse(&builder.finish().unwrap()).unwrap()
    };
    (1..=count).map(build).collect()
}

/// The model at the size that was built.
fn model(kind: FilterKind, bits_per_key: f64, keys: u64, info: &FilterInfo) -> f64 {
    match kind {
        FilterKind::Bloom => {
            let built = params::total_bits(keys, bits_per_key) as f64 / keys as f64;
            params::bloom_rate(built, params::bloom_best_k(bits_per_key))
        }
        _ if keys < 1 << 16 => {
            params::blocked_rate_of(keys, info.payload_bytes / 64, params::blocked_best_k(bits_per_key))
        }
        _ => {
            let built = (info.payload_bytes * 8) as f64 / keys as f64;
            params::blocked_rate(built, params::blocked_best_k(bits_per_key))
        }
    }
}

/// Measures one point of the grid: `count` filters of `keys` keys.
fn check(kind: FilterKind, bits_per_key: f64, name: &str, key: Key, keys: u64, count: u64) {
    let present: Vec<KeyHash> = hashes(key, 0..keys).collect();
    let filters = filters(kind, bits_per_key, &present, count);
    let expected = model(kind, bits_per_key, keys, &filters[0].1);
    let probes = ((FALSE_POSITIVES / expected).max(LEAST_PROBES) / count as f64).ceil() as u64;
    let mut false_positives = 0_u64;
    for hash in hashes(key, keys..keys + probes) {
        false_positives += filters.iter().filter(|(filter, _)| filter.may_contain(hash)).count() as u64;
    }
    let measured = false_positives as f64 / (probes * count) as f64;
    let built = filters.iter().map(|(_, info)| info.built_rate).sum::<f64>() / count as f64;
    let line = format!(
        "{kind:?}, {bits_per_key} bits, {name}, {count} x {keys} keys: measured {measured:.6}, model {expected:.6} \
         ({:+.2} %), built {built:.6} ({:+.2} %)",
        (measured / expected - 1.0) * 100.0,
        (measured / built - 1.0) * 100.0,
    );
    println!("{line}");
    assert!((measured / expected - 1.0).abs() <= ALLOWED, "model missed: {line}");
    assert!((measured / built - 1.0).abs() <= ALLOWED, "built rate missed: {line}");
}

fn grid(kind: FilterKind, name: &str, key: Key) {
    for bits_per_key in [5.0, 8.0, 9.9, 10.0, 12.0, 16.0] {
        check(kind, bits_per_key, name, key, 100_000, 10);
    }
}

#[test]
fn blocked_rates_of_random_keys_fit_the_model() {
    grid(FilterKind::Blocked, "random", random);
}

#[test]
fn blocked_rates_of_sequential_keys_fit_the_model() {
    grid(FilterKind::Blocked, "sequential", sequential);
}

#[test]
fn blocked_rates_of_common_prefix_keys_fit_the_model() {
    grid(FilterKind::Blocked, "common prefix", common_prefix);
}

#[test]
fn bloom_rates_of_random_keys_fit_the_formula() {
    grid(FilterKind::Bloom, "random", random);
}

#[test]
fn bloom_rates_of_sequential_keys_fit_the_formula() {
    grid(FilterKind::Bloom, "sequential", sequential);
}

#[test]
fn bloom_rates_of_common_prefix_keys_fit_the_formula() {
    grid(FilterKind::Bloom, "common prefix", common_prefix);
}

#[test]
fn rates_of_small_filters_fit_with_binomial_occupancy() {
    for kind in [FilterKind::Blocked, FilterKind::Bloom] {
        check(kind, 10.0, "sequential", sequential, 1_000, 1_000);
        check(kind, 10.0, "random", random, 10_000, 100);
        check(kind, 16.0, "random", random, 1_000, 1_000);
    }
}
