//! Ctrl-C.
#![cfg(unix)]

use crate::is_empty;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn an_interrupted_run_removes_its_directory_and_says_130() {
    let temp = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_kvbench"))
        .args(["run", "--num", "1000", "--duration", "60", "--benchmarks", "fillseq,readwhilewriting"])
        .env("TMPDIR", temp.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while is_empty(temp.path()) && start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(is_empty(temp.path()), "{:?}", std::fs::read_dir(temp.path()).unwrap().collect::<Vec<_>>());
}
