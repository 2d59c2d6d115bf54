//! `kvbench run`: db_bench's workloads, by its names and meanings, one line each.

mod database;
mod report;
mod worker;
mod workload;

use crate::args::RunArgs;
use crate::environment::Environment;
use crate::failure::{Failure, Result};
use crate::output::{Output, command_line};
use crate::run_keys::RunKeys;
use crate::values::Values;
use crate::workdir::Workdir;
use database::Database;
use report::{Outcome, line};
use workload::Workload;

pub(crate) fn run(args: &RunArgs) -> Result<()> {
    let workloads = workloads(&args.benchmarks)?;
    if args.use_existing_db && args.common.db.is_none() {
        return Err(Failure::usage("--use-existing-db needs --db, the directory of that database"));
    }
    // What can be known to fail is said before the JSON file is emptied and before anything is printed.
    if let Some(dir) = &args.common.db {
        database::check(args, dir)?;
    }
    database::options(args)?;
    let keys = RunKeys::new(args)?;
    let mut output = Output::new(args.common.json.as_deref())?;
    let workdir = Workdir::new(args.common.db.as_deref())?;
    let mut database = Database::open(args, workdir.path())?;
    let environment = Environment::detect(workdir.path(), args.seed, "as the workloads before left them");
    output.print(environment.to_string())?;
    output.print(keys.text(args.value_size))?;
    let values = Values::new(args.seed, args.value_size as usize);
    let mut outcomes = Vec::new();
    for workload in workloads {
        let outcome = perform(workload, args, &keys, &values, &mut database)?;
        output.print(line(&outcome))?;
        outcomes.push(outcome);
    }
    database.close()?;
    output.json(&report::json(args, &environment, &keys, &outcomes, command_line()))
}

/// The workloads by name; all names are checked before any work is done.
fn workloads(names: &[String]) -> Result<Vec<Workload>> {
    let known = || Workload::ALL.map(Workload::name).join(", ");
    let find = |name: &String| {
        let found = Workload::ALL.into_iter().find(|workload| workload.name() == name.trim());
        found.ok_or_else(|| Failure::usage(format!("unknown workload \"{name}\"; known are {}", known())))
    };
    names.iter().map(find).collect()
}

fn perform(
    workload: Workload,
    args: &RunArgs,
    keys: &RunKeys,
    values: &Values,
    database: &mut Database,
) -> Result<Outcome> {
    if workload.wants_fresh_database() {
        if args.use_existing_db {
            return Ok(Outcome::skipped(workload));
        }
        database.renew(args)?;
    }
    let outcome = workload::perform(workload, args, keys, values, database.handle()?);
    outcome.map_err(|error| Failure::engine(&error, database.dir()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::WORKLOADS;

    #[test]
    fn an_unknown_workload_is_a_usage_error_that_lists_the_known_ones() {
        let failure = workloads(&["fillseq".into(), "fly".into()]).unwrap_err();
        let Failure::Usage(message) = &failure else { panic!("{failure}") };
        for workload in Workload::ALL {
            assert!(message.contains(workload.name()), "{message}");
            assert!(WORKLOADS.contains(&format!("  {} ", workload.name())), "{}: in the help too", workload.name());
        }
        assert_eq!(workloads(&["compact".into(), " stats".into()]).unwrap(), [Workload::Compact, Workload::Stats]);
    }
}
