//! The program as a user runs it: what it prints, what it leaves behind, how it fails.

mod interrupt;
mod keys_from;
mod readamp;
mod run;

use assert_cmd::Command;
use serde_json::Value;
use std::path::Path;
use std::process::Output;

/// kvbench with its temporary files under `temp`.
fn kvbench(temp: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvbench"));
    command.env("TMPDIR", temp).args(args);
    command
}

fn output(temp: &Path, args: &[&str]) -> Output {
    kvbench(temp, args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The failure's message, after checking that it ended with `status`.
fn failure(temp: &Path, args: &[&str], status: i32) -> String {
    let output = output(temp, args);
    assert_eq!(output.status.code(), Some(status), "{}", stderr(&output));
    stderr(&output)
}

/// The JSON that `--json -` prints.
fn json(temp: &Path, args: &[&str]) -> Value {
    let output = output(temp, &[args, &["--json", "-"]].concat());
    serde_json::from_str(&stdout(&output)).unwrap()
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().count() == 0
}
