//! The headline experiment.

use crate::{failure, is_empty, json, kvbench, output, stderr, stdout};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

const SMALL: [&str; 6] = ["--num", "3000", "--reads", "2000", "--repeats", "2"];

#[test]
fn the_default_run_prints_a_table_of_80_columns_and_leaves_nothing_behind() {
    let temp = tempfile::tempdir().unwrap();
    let output = output(temp.path(), &SMALL);
    let text = stdout(&output);
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    for class in ["present", "absent-near", "absent-random"] {
        for filter in ["none", "blocked:10"] {
            let rows = text.lines().filter(|line| line.starts_with(filter) && line.contains(&format!(" {class} ")));
            assert_eq!(rows.count(), 1, "{filter} {class} in\n{text}");
        }
    }
    assert!(text.contains("block reads without filters and"), "{text}");
    assert!(stderr(&output).is_empty(), "no progress bars in a pipe: {}", stderr(&output));
    assert!(is_empty(temp.path()));
}

#[test]
fn filters_avoid_most_reads_of_absent_keys_in_a_tree_of_three_levels() {
    let temp = tempfile::tempdir().unwrap();
    let result = json(temp.path(), &["readamp", "--num", "20000", "--reads", "5000", "--repeats", "1"]);
    let levels = result["settings"][1]["loaded"]["levels"].as_array().unwrap();
    assert!(levels.iter().filter(|level| level["tables"].as_u64() > Some(0)).count() >= 3, "{levels:?}");
    let touches = |setting: usize| result["settings"][setting]["classes"][2]["block_touches_per_key"].as_f64().unwrap();
    assert!(touches(0) >= 2.0, "without filters: {}", touches(0));
    assert!(touches(1) <= 0.03 * touches(0), "{} and {}", touches(0), touches(1));
}

#[test]
fn the_same_seed_gives_the_same_counters_and_another_one_does_not() {
    let temp = tempfile::tempdir().unwrap();
    let counters = |seed: &str| {
        let mut result = json(temp.path(), &[&SMALL[..], &["--seed", seed]].concat());
        let settings = result["settings"].as_array_mut().unwrap();
        let classes = settings.iter_mut().flat_map(|setting| setting["classes"].as_array_mut().unwrap());
        classes.map(|class| (class["counters"]["levels"].take(), class["counters"]["reads"].take())).collect::<Vec<_>>()
    };
    let first = counters("7");
    assert_eq!(first.len(), 6);
    assert_eq!(first, counters("7"));
    assert_ne!(first, counters("8"));
}

#[test]
fn json_goes_to_a_file_with_the_command_line_and_the_environment() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("result.json");
    let args = [&SMALL[..], &["--filters", "bloom:9.9,none,bloom:9.9", "--json", file.to_str().unwrap()]].concat();
    stdout(&output(temp.path(), &args));
    let result: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!((&result["schema"], &result["schema_version"]), (&"kvbench.readamp".into(), &1.into()));
    assert_eq!(result["command_line"].as_array().unwrap().len(), args.len() + 1);
    assert!(result["environment"]["kernel"].is_string());
    let filters: Vec<_> = result["settings"].as_array().unwrap().iter().map(|setting| &setting["filter"]).collect();
    assert_eq!(filters, ["bloom:9.9", "none"]);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let temp = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_kvbench"))
        .args(SMALL)
        .env("TMPDIR", temp.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("kvbench "), "{first}");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(stderr(&output), "");
    assert!(is_empty(temp.path()));
}

#[test]
fn given_directories_keep_their_databases_and_are_not_overwritten() {
    let temp = tempfile::tempdir().unwrap();
    let db = temp.path().join("dbs");
    let args = [&SMALL[..], &["--db", db.to_str().unwrap()]].concat();
    assert!(stdout(&output(temp.path(), &args)).contains("The databases stay in"));
    assert!(db.join("none/CURRENT").exists() && db.join("blocked-10/CURRENT").exists());
    assert!(failure(temp.path(), &args, 1).contains("holds a database already"));
}

#[test]
fn wrong_paths_are_named_with_what_to_do() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let message = failure(temp.path(), &["--num", "10", "--db", file.to_str().unwrap()], 1);
    assert!(message.contains("file is a file"), "{message}");
    let temp_path = temp.path().to_str().unwrap();
    let foreign = output(temp.path(), &["--num", "10", "--db", temp_path]);
    assert_eq!((foreign.status.code(), foreign.stdout.len()), (Some(1), 0), "said before anything is printed");
    assert!(stderr(&foreign).contains("no siftdb database"), "{}", stderr(&foreign));
    let message = failure(temp.path(), &["--num", "10", "--json", "/no/such/dir/x.json"], 1);
    assert!(message.contains("/no/such/dir/x.json") && message.contains("check the path"), "{message}");
    kvbench(&temp.path().join("none"), &["--num", "10"]).assert().failure().code(1);
}

#[test]
fn wrong_calls_end_with_status_2() {
    let temp = tempfile::tempdir().unwrap();
    assert!(failure(temp.path(), &["--filters", "ribbon:7"], 2).contains("known are none, blocked:BITS"));
    failure(temp.path(), &["--num", "0"], 2);
    failure(temp.path(), &["fly"], 2);
}
