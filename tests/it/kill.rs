//! SIGKILL in the middle of work, fifty times on the same database: a child process writes and acknowledges over a pipe,
//! the parent kills it at a drawn moment and looks at what is there.
//!
//! What a killed process had acknowledged was in the operating system's hands, so all of it must be there, synced or not;
//! of what it had not, at most the one batch that each thread was writing, whole.
//!
//! `SIFTDB_KILL_ROUNDS=n` changes the number of rounds.

use crate::crash_workload::{Keys, next};
use crate::support::tiny;
use siftdb::{Db, Keyspace, Options, WriteOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const CHILD: &str = "SIFTDB_KILL_CHILD";
const KEYSPACES: [&str; 3] = ["default", "b", "c"];
const THREADS: usize = 2;
/// Keys per thread and keyspace.
const KEYS: u64 = 150;
/// A child that nobody kills ends.
const MOST_BATCHES: u64 = 200_000;

fn options() -> Options {
    Options { background_threads: 2, seed: None, max_wal_bytes: 64 << 10, ..tiny() }
}

fn counter(thread: usize) -> Vec<u8> {
    format!("{thread}~last").into_bytes()
}

/// Where, what, and the value or None to delete.
type Operation = (usize, Vec<u8>, Option<Vec<u8>>);

/// What batch `number` of a thread does: always the same.
fn batch_of(thread: usize, number: u64) -> Vec<Operation> {
    let mut random = number << 8 | thread as u64;
    let mut operations: Vec<Operation> = (0..1 + next(&mut random) % 8)
        .map(|index| {
            let keyspace = next(&mut random) % KEYSPACES.len() as u64;
            let key = format!("{thread}key{:04}", next(&mut random) % KEYS).into_bytes();
            let filler = "x".repeat((next(&mut random) % 120) as usize);
            let value = format!("{number}/{index}/{filler}").into_bytes();
            (keyspace as usize, key, (!next(&mut random).is_multiple_of(4)).then_some(value))
        })
        .collect();
    // In the last keyspace and in the first: a batch that is torn would show.
    for keyspace in [2, 0] {
        operations.push((keyspace, counter(thread), Some(number.to_string().into_bytes())));
    }
    operations
}

fn number_of(keyspace: &Keyspace, thread: usize) -> u64 {
    let value = keyspace.get(counter(thread)).unwrap();
    value.map_or(0, |value| std::str::from_utf8(&value).unwrap().parse().unwrap())
}

fn write_thread(db: &Db, thread: usize) {
    let keyspaces = KEYSPACES.map(|name| db.keyspace(name).unwrap());
    let first = number_of(db, thread) + 1;
    for number in first..first + MOST_BATCHES {
        let mut batch = db.batch();
        for (keyspace, key, value) in batch_of(thread, number) {
            match value {
                Some(value) => batch.on(&keyspaces[keyspace]).put(key, value),
                None => batch.on(&keyspaces[keyspace]).delete(key),
            };
        }
        let sync = number.is_multiple_of(11);
        batch.commit_with(&WriteOptions { sync, ..Default::default() }).unwrap();
        // One write, so that a kill does not split it; a parent that is gone ends the child.
        std::io::stderr().write_all(format!("ack {thread} {number}\n").as_bytes()).unwrap();
        if number % 301 == 300 {
            keyspaces[1].flush().unwrap();
        }
        if number % 997 == 996 {
            keyspaces[thread].compact().unwrap();
        }
    }
}

/// Not a test: what the parent runs in its child.
#[test]
fn child_of_the_kill_test() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    let db = options().open(PathBuf::from(dir)).unwrap();
    for name in KEYSPACES {
        db.keyspace(name).unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let db = &db;
            scope.spawn(move || write_thread(db, thread));
        }
    });
}

fn spawn_child(dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::child_of_the_kill_test", "--nocapture"])
        .env(CHILD, dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Lets a child work for a while, kills it, and returns the last batch that each thread acknowledged, if any. What else it
/// said is an error.
fn one_round(dir: &Path, life: Duration) -> [Option<u64>; THREADS] {
    let mut child = spawn_child(dir);
    let pipe = child.stderr.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut acknowledged = [None; THREADS];
        let mut other = String::new();
        for line in BufReader::new(pipe).lines() {
            let line = line.unwrap();
            let mut words = line.split(' ');
            match (words.next(), words.next(), words.next()) {
                (Some("ack"), Some(thread), Some(number)) => {
                    acknowledged[thread.parse::<usize>().unwrap()] = Some(number.parse().unwrap());
                }
                _ => other.push_str(&(line + "\n")),
            }
        }
        (acknowledged, other)
    });
    std::thread::sleep(life);
    child.kill().unwrap();
    child.wait().unwrap();
    let (acknowledged, other) = reader.join().unwrap();
    assert!(other.is_empty(), "the child failed:\n{other}");
    acknowledged
}

/// What the parent knows should be there.
#[derive(Default)]
struct Ledger {
    keyspaces: [Keys; KEYSPACES.len()],
    /// The last batch of each thread that is in it.
    numbers: [u64; THREADS],
}

impl Ledger {
    fn apply_up_to(&mut self, thread: usize, number: u64) {
        for number in self.numbers[thread] + 1..=number {
            for (keyspace, key, value) in batch_of(thread, number) {
                match value {
                    Some(value) => self.keyspaces[keyspace].insert(key, value),
                    None => self.keyspaces[keyspace].remove(&key),
                };
            }
        }
        self.numbers[thread] = number;
    }

    /// Takes over what was found, after looking whether it may be so.
    fn check(&mut self, db: &Db, acknowledged: [Option<u64>; THREADS]) {
        for (thread, acknowledged) in acknowledged.into_iter().enumerate() {
            let least = acknowledged.unwrap_or(0).max(self.numbers[thread]);
            let found = number_of(db, thread);
            assert!((least..=least + 1).contains(&found), "thread {thread}: found {found}, acknowledged {least}");
            self.apply_up_to(thread, found);
        }
        for (name, expected) in KEYSPACES.iter().zip(&self.keyspaces) {
            if !db.keyspaces().iter().any(|known| known == name) {
                assert!(expected.is_empty(), "keyspace {name} is gone");
                continue;
            }
            let keyspace = db.keyspace(name).unwrap();
            for thread in 0..THREADS {
                let keys = (0..KEYS).map(|key| format!("{thread}key{key:04}").into_bytes());
                for key in keys.chain([counter(thread)]) {
                    let found = keyspace.get(&key).unwrap();
                    let key_name = String::from_utf8_lossy(&key);
                    assert_eq!(found.as_deref(), expected.get(&key).map(Vec::as_slice), "{key_name} of {name}");
                }
            }
        }
    }
}

#[test]
fn a_killed_process_loses_nothing_it_acknowledged() {
    let rounds = std::env::var("SIFTDB_KILL_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(50);
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("db");
    let mut ledger = Ledger::default();
    let mut random = 5;
    for round in 0..rounds {
        let life = Duration::from_millis(10 + next(&mut random) % 150);
        let acknowledged = one_round(&dir, life);
        eprintln!("round {round}: {life:?}, {acknowledged:?}");
        if !dir.join("CURRENT").exists() {
            assert_eq!(acknowledged, [None; THREADS]);
            continue;
        }
        // Mostly read-only, which changes nothing: then it is the next child that recovers.
        let db = Options { read_only: round % 5 > 0, ..options() }.open(&dir).unwrap();
        ledger.check(&db, acknowledged);
        if round % 5 == 0 {
            db.verify().unwrap();
        }
        db.close().unwrap();
    }
    let db = options().open(&dir).unwrap();
    ledger.check(&db, [None; THREADS]);
    db.wait_idle().unwrap();
    ledger.check(&db, [None; THREADS]);
    db.verify().unwrap();
    assert!(ledger.numbers.iter().all(|number| *number > 1000), "too little was written: {:?}", ledger.numbers);
}
