//! The command line.
//!
//! Options of `run` have db_bench's names and meanings. Both spellings are taken, `--key-size` and `--key_size`, and
//! its way of writing flags, `--histogram=1`. Options that both commands have mean the same in both.

use crate::filter_spec::FilterSpec;
use clap::builder::BoolishValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// Read-amplification experiments on the siftdb engine.
///
/// Without a command: `readamp` with its defaults, in a temporary directory.
#[derive(Debug, Parser)]
#[command(name = "kvbench", version, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) readamp: ReadampArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// What do filters avoid? Block reads per key with and without them, for keys that are there and keys that are not.
    Readamp(ReadampArgs),
    /// Workloads by db_bench's names and meanings.
    Run(RunArgs),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ReadampArgs {
    /// Keys to load. With --keys-from: at most this many lines are read [default: 200000, or the whole file].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) num: Option<u64>,
    /// Bytes of each value that does not come from the key file.
    #[arg(long, default_value_t = 100)]
    pub(crate) value_size: u32,
    /// Filter settings to compare, one database each: none, blocked:BITS, bloom:BITS (bits per key, fractions allowed).
    #[arg(long, value_delimiter = ',', default_value = "none,blocked:10")]
    pub(crate) filters: Vec<FilterSpec>,
    /// Keys to ask for, per key class: all different, so fewer where a class has fewer.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
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
    /// Real keys: one a line, or key TAB value. "-" is standard input.
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
    /// Workloads, run in this order.
    #[arg(long, value_delimiter = ',', default_value = "fillrandom,readrandom,readmissing,stats")]
    pub(crate) benchmarks: Vec<String>,
    /// Keys of the database, and operations of a writing workload [default: 1000000, or the whole key file].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) num: Option<u64>,
    /// Operations of each reading thread [default: --num].
    #[arg(long)]
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
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true",
          value_parser = BoolishValueParser::new())]
    pub(crate) use_existing_db: bool,
    /// Sync the log at every commit.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true",
          value_parser = BoolishValueParser::new())]
    pub(crate) sync: bool,
    /// Time every operation and print percentiles.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true",
          value_parser = BoolishValueParser::new())]
    pub(crate) histogram: bool,
    /// Fixes keys, values and order.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Codec of all levels [default: the engine's, none for levels 0 and 1, LZ4 below].
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
    fn underscores_in_values_stay() {
        let args = normalized(["--db_path=a_b", "c_d", "--", "--e_f"].map(OsString::from));
        assert_eq!(args, ["--db-path=a_b", "c_d", "--", "--e_f"]);
    }

    #[test]
    fn nonsense_is_refused() {
        for line in ["kvbench --num 0", "kvbench --filters ribbon:7", "kvbench run --key-size 0", "kvbench fly"] {
            assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }
}
