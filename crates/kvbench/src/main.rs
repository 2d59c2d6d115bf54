//! kvbench: read-amplification experiments on siftdb.
//!
//! `kvbench` alone asks the project's question, what filters avoid, and answers with one table. `kvbench run` is db_bench's
//! workloads. Exit status: 0 done, 1 failed, 2 called wrongly.

mod args;
mod environment;
mod failure;
mod filter_spec;
mod key_file;
mod keys;
mod maths;
mod output;
mod readamp;
mod run;
mod run_keys;
mod table;
mod values;
mod workdir;

use args::{Cli, Command};
use clap::Parser;
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse_from(args::normalized(std::env::args_os()));
    let outcome = match &cli.command {
        None => readamp::run(&cli.readamp),
        Some(Command::Readamp(args)) => readamp::run(args),
        Some(Command::Run(args)) => run::run(args),
    };
    match outcome {
        Ok(()) | Err(Failure::OutputClosed) => ExitCode::SUCCESS,
        Err(failure) => {
            // Not eprintln: it panics when standard error is closed.
            let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("kvbench: {failure}\n").as_bytes());
            ExitCode::from(if matches!(failure, Failure::Usage(_)) { 2 } else { 1 })
        }
    }
}
