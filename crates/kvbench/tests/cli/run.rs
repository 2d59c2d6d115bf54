//! db_bench's workloads.

use crate::{failure, is_empty, json, output, stdout};

#[test]
fn every_workload_prints_its_line_and_nothing_stays() {
    let temp = tempfile::tempdir().unwrap();
    let all = "fillseq,fillrandom,overwrite,readrandom,readmissing,readwhilewriting,compact,stats";
    let text = stdout(&output(temp.path(), &["run", "--num=2000", "--histogram", &format!("--benchmarks={all}")]));
    for name in all.split(',') {
        assert!(text.lines().any(|line| line.starts_with(&format!("{name:<16} :"))), "{name} in\n{text}");
    }
    assert!(text.contains("p99.9"), "{text}");
    let missing = text.lines().find(|line| line.starts_with("readmissing")).unwrap();
    assert!(missing.ends_with(" none found"), "{missing}");
    assert!(is_empty(temp.path()));
}

#[test]
fn fillseq_makes_every_key_and_fillrandom_repeats_some() {
    let temp = tempfile::tempdir().unwrap();
    let result =
        json(temp.path(), &["run", "--num", "2000", "--benchmarks", "fillseq,readrandom,fillrandom,readrandom"]);
    assert_eq!(result["workloads"][1]["found"], 2000);
    // 1 − 1/e of the keys are there: 63.2 %, ± 5 standard deviations.
    let found = result["workloads"][3]["found"].as_u64().unwrap();
    assert!((1_150..1_380).contains(&found), "{found}");
}

#[test]
fn operations_threads_batches_and_sizes_have_db_benchs_meaning() {
    let temp = tempfile::tempdir().unwrap();
    let flags = "run --benchmarks fillseq,readrandom --num 1000 --reads 300 --threads 2 --batch_size 7 --key_size 20 \
                 --value_size 50 --write_buffer_size 65536 --cache_size 100000 --block_size 1024 --bloom_bits 9.9 \
                 --compression none";
    let args: Vec<&str> = flags.split(' ').collect();
    let result = json(temp.path(), &args);
    let (fill, read) = (&result["workloads"][0], &result["workloads"][1]);
    assert_eq!((&fill["operations"], &fill["bytes"]), (&2000.into(), &(2000 * 70).into()));
    assert_eq!((&read["operations"], &read["found"]), (&600.into(), &600.into()));
    assert_eq!(read["counters"]["reads"]["gets"], 600);
}

#[test]
fn an_existing_database_is_used_when_asked_for_and_never_overwritten() {
    let temp = tempfile::tempdir().unwrap();
    let db = temp.path().join("db");
    let run = |more: &[&'static str]| {
        [&["run", "--num", "500", "--db", db.to_str().unwrap(), "--benchmarks", "fillseq,readrandom"], more].concat()
    };
    assert!(failure(temp.path(), &run(&["--use-existing-db"]), 1).contains("no database in"));
    assert_eq!(json(temp.path(), &run(&[]))["workloads"][1]["found"], 500);
    assert!(failure(temp.path(), &run(&[]), 1).contains("add --use-existing-db"));
    let again = json(temp.path(), &run(&["--use_existing_db=1"]));
    assert_eq!((&again["workloads"][0]["skipped"], &again["workloads"][1]["found"]), (&true.into(), &500.into()));
}

#[test]
fn other_peoples_directories_are_left_alone() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("letters");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("letter"), "x").unwrap();
    let message = failure(temp.path(), &["run", "--num", "5", "--db", dir.to_str().unwrap()], 1);
    assert!(message.contains("no siftdb database"), "{message}");
    assert_eq!(std::fs::read(dir.join("letter")).unwrap(), b"x");
}

#[test]
fn a_database_that_is_open_elsewhere_is_named_as_such() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("db");
    let db = siftdb::Db::open(&dir).unwrap();
    let message = failure(temp.path(), &["run", "--use-existing-db", "--db", dir.to_str().unwrap()], 1);
    assert!(message.contains("close the program that has it open"), "{message}");
    drop(db);
}

#[test]
fn unknown_workloads_and_impossible_flags_end_with_status_2() {
    let temp = tempfile::tempdir().unwrap();
    let message = failure(temp.path(), &["run", "--benchmarks", "fillseq,fly"], 2);
    assert!(message.contains("\"fly\"") && message.contains("readwhilewriting"), "{message}");
    failure(temp.path(), &["run", "--use-existing-db"], 2);
    failure(temp.path(), &["run", "--num", "5", "--bloom-bits", "100"], 2);
    #[cfg(not(feature = "zstd"))]
    assert!(failure(temp.path(), &["run", "--compression", "zstd"], 2).contains("--features zstd"));
    assert!(is_empty(temp.path()));
}

#[test]
fn a_run_that_cannot_start_prints_no_header_and_leaves_the_json_file_alone() {
    let temp = tempfile::tempdir().unwrap();
    let (db, kept) = (temp.path().join("db"), temp.path().join("kept.json"));
    siftdb::Db::open(&db).unwrap().close().unwrap();
    std::fs::write(&kept, "{}").unwrap();
    let output = output(temp.path(), &["run", "--db", db.to_str().unwrap(), "--json", kept.to_str().unwrap()]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert_eq!(std::fs::read(&kept).unwrap(), b"{}");
}

#[test]
fn duration_ends_a_reading_workload() {
    let temp = tempfile::tempdir().unwrap();
    let args = ["run", "--num", "100", "--duration", "1", "--benchmarks", "fillseq,readwhilewriting"];
    let seconds = json(temp.path(), &args)["workloads"][1]["seconds"].as_f64().unwrap();
    assert!((1.0..10.0).contains(&seconds), "{seconds}");
}

#[test]
fn on_one_thread_the_rate_is_the_reciprocal_of_the_time_per_operation() {
    let temp = tempfile::tempdir().unwrap();
    let result = json(temp.path(), &["run", "--num", "500", "--benchmarks", "fillseq,overwrite,readrandom,compact"]);
    for workload in result["workloads"].as_array().unwrap() {
        let (micros, rate) = (&workload["micros_per_operation"], &workload["ops_per_second"]);
        let product = micros.as_f64().unwrap() * rate.as_f64().unwrap();
        assert!((product / 1e6 - 1.0).abs() < 1e-6, "{workload}");
    }
}

#[test]
fn reads_that_no_filter_had_a_part_in_are_explained() {
    let temp = tempfile::tempdir().unwrap();
    let text = |benchmarks| stdout(&output(temp.path(), &["run", "--num", "500", "--benchmarks", benchmarks]));
    for reads in ["readrandom", "readmissing"] {
        let empty = text(reads);
        assert!(empty.contains("nothing was written: put fillseq"), "{empty}");
        assert!(empty.lines().all(|line| line.chars().count() <= 80), "{empty}");
    }
    let memtable = text("fillseq,readrandom");
    assert!(memtable.contains("still in the memtable"), "{memtable}");
    assert!(memtable.lines().all(|line| line.chars().count() <= 80), "{memtable}");
    let tables = text("fillseq,compact,readrandom");
    assert!(!tables.contains("memtable") && !tables.contains("nothing was written"), "{tables}");
}
