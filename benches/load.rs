//! A large load, end to end: N records of 16 B keys and 100 B values in scattered order, settle, close, reopen, verify,
//! read every one back and compare, ask as many absent keys. Prints throughput, amplification, levels and peak memory.
//!
//! ```text
//! cargo bench --bench load -- 20000000 [directory]
//! ```

// A program that measures: it uses clocks and files directly.
#![allow(clippy::disallowed_methods)]

use siftdb::{Db, Options};
use std::path::PathBuf;
use std::time::Instant;

/// Key number i of n, each once, in scattered order: a multiplication by a number without a common factor with n.
fn key(i: u64, n: u64) -> [u8; 16] {
    let scattered = u128::from(i) * 0x9e37_79b9_7f4a_7c15 % u128::from(n);
    let mut key = [b'0'; 16];
    let mut rest = scattered as u64 * 2;
    for digit in key.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// Half of it compresses, and all of it follows from the key.
fn value(key: &[u8; 16]) -> [u8; 100] {
    let mut value = [b'v'; 100];
    let mut state =
        key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3));
    for byte in &mut value[..50] {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = state as u8;
    }
    value
}

/// The most memory this process ever held, in MiB, as the kernel counts it (file pages that are mapped included).
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn timed<T>(what: &str, operations: u64, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    let seconds = start.elapsed().as_secs_f64();
    let micros = seconds * 1e6 / operations as f64;
    println!("{what:<28} {seconds:8.1} s  {micros:8.2} us/op  {:10.0} ops/s  peak {} MiB", 1e6 / micros, peak_mib());
    result
}

fn main() -> siftdb::Result<()> {
    let mut arguments = std::env::args().skip(1).filter(|a| a != "--bench");
    let mut n: u64 = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(200_000);
    // No common factor with the multiplier, so that no key comes twice.
    n += u64::from(n.is_multiple_of(5)) + u64::from(n.is_multiple_of(3));
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let dir = arguments.next().map_or_else(|| temporary.path().join("db"), PathBuf::from);

    let db = Options::default().open(&dir)?;
    timed("load", n, || {
        (0..n).try_for_each(|i| {
            let key = key(i, n);
            db.put(key, value(&key))
        })
    })?;
    timed("settle", n, || db.wait_idle())?;
    println!("{}", db.statistics());
    timed("close", 1, || db.close())?;
    drop(db);

    let db = timed("open", 1, || Db::open(&dir))?;
    timed("settle", 1, || db.wait_idle())?;
    let before = db.statistics();
    let wrong = timed("read back all", n, || {
        (0..n).try_fold(0_u64, |wrong, i| {
            let key = key(i, n);
            Ok::<_, siftdb::Error>(wrong + u64::from(db.get(key)?.is_none_or(|found| found != value(&key))))
        })
    })?;
    println!("{wrong} of {n} keys missing or wrong");
    let found = timed("read absent keys", n, || {
        (0..n).try_fold(0_u64, |found, i| {
            let mut key = key(i, n);
            key[15] += 1;
            Ok::<_, siftdb::Error>(found + u64::from(db.get(key)?.is_some()))
        })
    })?;
    println!("{found} absent keys found");
    println!("{}", db.statistics().since(&before));
    let report = timed("verify", n, || db.verify())?;
    println!("{report:?}");
    assert_eq!((wrong, found), (0, 0), "the database lost or made up something");
    db.close()
}
