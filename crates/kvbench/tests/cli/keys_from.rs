//! Real keys: what is read from files and standard input, and what is said about it.

use crate::{failure, json, kvbench, output, stdout};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn file(dir: &Path, bytes: &[u8]) -> PathBuf {
    let path = dir.join("keys");
    std::fs::write(&path, bytes).unwrap();
    path
}

fn read(bytes: &[u8]) -> Value {
    let temp = tempfile::tempdir().unwrap();
    let path = file(temp.path(), bytes);
    json(temp.path(), &["--keys-from", path.to_str().unwrap(), "--reads", "50", "--repeats", "1"])
}

fn many(end: &str) -> Vec<u8> {
    (0..200).map(|n| format!("user:{:05}{end}", n * 37)).collect::<String>().into_bytes()
}

#[test]
fn lf_and_crlf_files_hold_the_same_keys() {
    let (lf, crlf) = (read(&many("\n")), read(&many("\r\n")));
    assert_eq!(lf["key_file"]["distinct_keys"], 200);
    assert_eq!(lf["key_file"]["mean_key_bytes"], crlf["key_file"]["mean_key_bytes"]);
    assert_eq!(lf["parameters"]["keys_loaded"], 180);
}

#[test]
fn a_tenth_is_held_out_and_asked_for() {
    let result = read(&many("\n"));
    for setting in result["settings"].as_array().unwrap() {
        let class = &setting["classes"][3];
        assert_eq!((&class["class"], &class["keys_asked"]), (&"absent-held-out".into(), &20.into()));
        assert_eq!(class["keys_found"], 0);
    }
}

#[test]
fn duplicates_empty_lines_and_over_long_keys_are_counted() {
    let mut bytes = b"a\n\na\tvalue\nb\n\xff\xfe\n".to_vec();
    bytes.extend(vec![b'x'; 70_000]);
    let result = read(&bytes);
    let expected = [
        ("lines", 6),
        ("distinct_keys", 3),
        ("duplicate_keys", 1),
        ("skipped_empty", 1),
        ("skipped_over_long", 1),
        ("with_value", 1),
    ];
    for (field, count) in expected {
        assert_eq!(result["key_file"][field], count, "{field}");
    }
}

#[test]
fn what_was_read_is_printed() {
    let temp = tempfile::tempdir().unwrap();
    let path = file(temp.path(), b"a\nb\nb\n\n");
    let text = stdout(&output(temp.path(), &["--keys-from", path.to_str().unwrap()]));
    assert!(text.contains("4 lines, 2 distinct keys, mean length 1.0 B"), "{text}");
    assert!(text.contains("1 duplicates") && text.contains("1 empty lines"), "{text}");
    assert!(text.lines().filter(|line| !line.contains("keys  ")).all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn standard_input_is_a_source() {
    let temp = tempfile::tempdir().unwrap();
    let output = kvbench(temp.path(), &["--keys-from", "-", "--json", "-"]).write_stdin("x\ty\nz").output().unwrap();
    let result: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(
        (&result["key_file"]["source"], &result["key_file"]["distinct_keys"]),
        (&"standard input".into(), &2.into())
    );
}

#[test]
fn empty_and_missing_files_are_clear_failures() {
    let temp = tempfile::tempdir().unwrap();
    let path = file(temp.path(), b"\n\n");
    assert!(failure(temp.path(), &["--keys-from", path.to_str().unwrap()], 2).contains("no keys in"));
    for command in ["run", "readamp"] {
        let message = failure(temp.path(), &[command, "--keys-from", "/no/such/file"], 2);
        assert!(message.contains("/no/such/file") && message.contains("check the path"), "{message}");
        failure(temp.path(), &[command, "--keys-from", "/"], 2);
    }
}

#[test]
fn run_takes_real_keys_and_their_values() {
    let temp = tempfile::tempdir().unwrap();
    let path = file(temp.path(), b"one\t1\ntwo\t22\nthree\t333\n");
    let args = ["run", "--keys-from", path.to_str().unwrap(), "--benchmarks", "fillseq,readrandom,readmissing"];
    let result = json(temp.path(), &args);
    let workloads = &result["workloads"];
    assert_eq!(workloads[0]["bytes"], 3 + 3 + 5 + 1 + 2 + 3);
    assert_eq!((&workloads[1]["found"], &workloads[2]["found"]), (&3.into(), &0.into()));
}
