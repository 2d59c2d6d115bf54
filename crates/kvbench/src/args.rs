//! The command line.
//!
//! Options of `run` have db_bench's names and meanings. Both spellings are taken, `--key-size` and `--key_size`, and
//! its way of writing flags, `--histogram=1`. Options that both commands have mean the same in both.

use crate::filter_spec::FilterSpec;
use clap::builder::BoolishValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// What the rows of readamp's table asked for.
const KEY_CLASSES: &str = "\
Key classes:
  present          loaded keys
  absent-near      a loaded key plus one byte
  absent-random    drawn inside the range of the loaded keys
  absent-held-out  a tenth of the keys of --keys-from, which is not loaded";

/// What `run` can do.
pub(crate) const WORKLOADS: &str = "\
Workloads of --benchmarks:
  fillseq           all keys, in order, into a fresh database
  fillrandom        as many random keys, some more than once, into a fresh one
  overwrite         random keys into the database as it is
  readrandom        random keys
  readmissing       random keys plus one byte: none is there
  readwhilewriting  --threads readers, and one writer while they read
  compact           flush, and merge everything into one level
  stats             print the engine's counters";

/// Read-amplification experiments on the siftdb engine.
///
/// Without a command: `readamp` with its defaults, in a temporary directory.
#[derive(Debug, Parser)]
#[command(name = "kvbench", version, args_conflicts_with_subcommands = true, max_term_width = 80,
          after_help = KEY_CLASSES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) readamp: ReadampArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// What do filters avoid? Block reads per key with and without them, for keys that are there and keys that are not.
    #[command(after_help = KEY_CLASSES)]
    Readamp(ReadampArgs),
    /// Workloads by db_bench's names and meanings.
    #[command(after_help = WORKLOADS)]
    Run(RunArgs),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ReadampArgs {
    /// Keys to load. With --keys-from: at most this many lines are read [default: 200000, or the whole file].
    #[arg(long, value_parser = count)]
    pub(crate) num: Option<u64>,
    /// Bytes of each value that does not come from the key file.
    #[arg(long, default_value_t = 100)]
    pub(crate) value_size: u32,
    /// Filter settings to compare, one database each: none, blocked:BITS, bloom:BITS (bits per key, fractions allowed).
    #[arg(long, value_delimiter = ',', default_value = "none,blocked:10")]
    pub(crate) filters: Vec<FilterSpec>,
    /// Keys to ask for, per key class: all different, so fewer where a class has fewer.
    #[arg(long, default_value_t = 100_000, value_parser = count)]
    pub(crate) reads: u64,
    /// Fixes all random choices: the same seed gives the same counters.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Times each class is read; ops/s is the median.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeats: u32,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct CommonArgs {
    /// Real keys: one a line, or key TAB value. "-" is standard input. readamp holds a tenth of them out, not loaded,
    /// and asks for them as absent-held-out; run loads them all.
    #[arg(long, value_name = "FILE")]
    pub(crate) keys_from: Option<PathBuf>,
    /// Where the database goes, and stays [default: a temporary directory, removed at the end].
    #[arg(long, value_name = "DIR")]
    pub(crate) db: Option<PathBuf>,
    /// Write everything as JSON to this file. "-": to standard output, the text then goes to standard error.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct RunArgs {
    /// Workloads, run in this order; they are listed below.
    #[arg(long, value_delimiter = ',', default_value = "fillrandom,readrandom,readmissing,stats")]
    pub(crate) benchmarks: Vec<String>,
    /// Keys of the database, and operations of a writing workload [default: 1000000, or the whole key file].
    #[arg(long, value_parser = count)]
    pub(crate) num: Option<u64>,
    /// Operations of each reading thread [default: --num].
    #[arg(long, value_parser = count)]
    pub(crate) reads: Option<u64>,
    /// Threads of each workload; each does all its operations.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: u32,
    /// Seconds that each reading or overwriting workload lasts, instead of a number of operations.
    #[arg(long, default_value_t = 0)]
    pub(crate) duration: u64,
    /// Bytes of a key: the number in 8 bytes, big-endian, padded with "0".
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub(crate) key_size: u32,
    /// Bytes of a value; half of it compresses.
    #[arg(long, default_value_t = 100)]
    pub(crate) value_size: u32,
    /// Puts in one batch.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch_size: u32,
    /// Filter bits per key, of the cache-line Bloom filter. 0: no filter. Negative: the engine's default.
    #[arg(long, default_value_t = -1.0, allow_negative_numbers = true)]
    pub(crate) bloom_bits: f64,
    /// Target size of a data block in bytes.
    #[arg(long)]
    pub(crate) block_size: Option<usize>,
    /// Bytes of the block cache. 0: none.
    #[arg(long)]
    pub(crate) cache_size: Option<u64>,
    /// Bytes of a memtable.
    #[arg(long)]
    pub(crate) write_buffer_size: Option<u64>,
    /// Use the database in --db as it is: fill workloads are skipped.
    #[arg(long, num_args = 0..=1, default_value = "false", default_missing_value = "true",
          value_parser = BoolishValueParser::new())]
    pub(crate) use_existing_db: bool,
    /// Sync the log at every commit.
    #[arg(long, num_args = 0..=1, default_value = "false", default_missing_value = "true",
          value_parser = BoolishValueParser::new())]
    pub(crate) sync: bool,
    /// Time every operation and print percentiles.
    #[arg(long, num_args = 0..=1, default_value = "false", default_missing_value = "true",
          value_parser = BoolishValueParser::new())]
    pub(crate) histogram: bool,
    /// Fixes keys, values and order.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Codec of all levels [default: the engine's, none for levels 0 and 1, LZ4 below]. zstd needs a kvbench built with --features zstd.
    #[arg(long, value_enum)]
    pub(crate) compression: Option<Codec>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Codec {
    None,
    Lz4,
    Zstd,
}

/// A number of keys or operations: at least one; 1e6 is a million.
fn count(text: &str) -> Result<u64, String> {
    let number = match text.split_once(['e', 'E']) {
        Some((digits, zeros)) => zeros.parse().ok().and_then(|zeros| {
            let digits: u64 = digits.parse().ok()?;
            digits.checked_mul(10u64.checked_pow(zeros)?)
        }),
        None => text.parse().ok(),
    };
    match number {
        Some(0) => Err("must be at least 1".into()),
        Some(number) => Ok(number),
        None => Err("not a whole number, as in 1000000 or 1e6".into()),
    }
}

/// The arguments with db_bench's underscores in option names turned into hyphens; values stay as they are.
pub(crate) fn normalized(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut options_ended = false;
    args.into_iter()
        .map(|arg| {
            options_ended |= arg == "--";
            match arg.to_str().filter(|text| !options_ended && text.starts_with("--")) {
                Some(text) => hyphenated(text).into(),
                None => arg,
            }
        })
        .collect()
}

fn hyphenated(option: &str) -> String {
    match option.split_once('=') {
        Some((name, value)) => format!("{}={value}", name.replace('_', "-")),
        None => option.replace('_', "-"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(normalized(line.split(' ').map(OsString::from)))
    }

    fn run_args(line: &str) -> RunArgs {
        match parse(line).unwrap().command {
            Some(Command::Run(args)) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn without_a_command_the_options_are_those_of_readamp() {
        let cli = parse("kvbench --num 5 --filters none,bloom:9.9").unwrap();
        assert!(cli.command.is_none());
        assert_eq!((cli.readamp.num, cli.readamp.filters.len()), (Some(5), 2));
        assert!(matches!(parse("kvbench readamp --num 5").unwrap().command, Some(Command::Readamp(_))));
    }

    #[test]
    fn underscores_and_db_bench_flags_are_taken() {
        let args = run_args(
            "kvbench run --benchmarks=fillseq,stats --key_size=20 --use_existing_db=1 --histogram --sync=false \
             --bloom_bits=-1 --cache_size 7",
        );
        assert_eq!(args.benchmarks, ["fillseq", "stats"]);
        assert_eq!((args.key_size, args.cache_size, args.bloom_bits), (20, Some(7), -1.0));
        assert!(args.use_existing_db && args.histogram && !args.sync);
    }

    #[test]
    fn flags_take_their_value_with_and_without_an_equals_sign() {
        let args = run_args("kvbench run --sync true --histogram false --use-existing-db --num 5");
        assert!(args.sync && !args.histogram && args.use_existing_db);
        assert_eq!(args.num, Some(5));
    }

    #[test]
    fn counts_may_have_an_exponent() {
        assert_eq!(["7", "1e6", "25E2"].map(count), [Ok(7), Ok(1_000_000), Ok(2_500)]);
        for text in ["", "0", "0e3", "e6", "1e", "1e20", "1.5e1", "-1", "many"] {
            assert!(count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn help_fits_80_columns_and_explains_key_classes_and_workloads() {
        for (line, words) in [
            ("kvbench --help", ["absent-held-out  a tenth", "absent-near      a loaded key plus one byte"]),
            ("kvbench run --help", ["  fillseq  ", "  readwhilewriting  "]),
        ] {
            let help = parse(line).unwrap_err().to_string();
            assert!(words.iter().all(|word| help.contains(word)), "{help}");
            assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
        }
    }

    #[test]
    fn underscores_in_values_stay() {
        let args = normalized(["--db_path=a_b", "c_d", "--", "--e_f"].map(OsString::from));
        assert_eq!(args, ["--db-path=a_b", "c_d", "--", "--e_f"]);
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "kvbench --num 0",
            "kvbench run --reads 0",
            "kvbench --filters ribbon:7",
            "kvbench run --key-size 0",
            "kvbench fly",
        ] {
            assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }
}
