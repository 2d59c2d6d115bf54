//! Random operations against a `BTreeMap`: whatever is written, flushed, merged, dropped, closed, killed and opened
//! again, every read gives what the model gives, and the counters what was counted by hand.
//!
//! 300,000 operations over all option sets, always the same. `SIFTDB_MODEL_OPS` sets another number, and
//! `SIFTDB_MODEL_SEED` another seed.

mod data;
pub mod home;
mod op;
mod options;
pub mod rng;
mod run;
mod tally;
mod world;

use options::OptionSet;

const SEED: u64 = 20_260;
const OPERATIONS: usize = 300_000;

fn run(set: OptionSet) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    let seed = number("SIFTDB_MODEL_SEED").unwrap_or(SEED);
    let operations = match number("SIFTDB_MODEL_OPS") {
        Some(total) => set.operations * usize::try_from(total).unwrap() / OPERATIONS,
        None => set.operations,
    };
    run::run(&set, seed, operations);
}

macro_rules! runs {
    ($($test:ident: $set:ident),* $(,)?) => {
        $(#[test]
        fn $test() {
            run(options::$set());
        })*

        #[test]
        fn the_option_sets_make_300_000_operations_together() {
            let total: usize = [$(options::$set().operations),*].iter().sum();
            assert!(total >= OPERATIONS, "{total}");
        }
    };
}

runs! {
    one_byte_of_everything_answers_as_the_model: one_byte,
    tiny_tables_answer_as_the_model: tiny_tables,
    bloom_hash_index_and_lz4_answer_as_the_model: bloom_hash_index_lz4,
    aligned_blocks_and_a_filter_by_rate_answer_as_the_model: aligned_rate,
    a_cache_of_one_page_answers_as_the_model: tiny_cache,
    tables_without_filter_answer_as_the_model: no_filter,
    large_blocks_answer_as_the_model: large_blocks,
    a_large_memtable_answers_as_the_model: large_memtable,
    a_small_memory_budget_answers_as_the_model: small_budget,
    short_logs_answer_as_the_model: short_logs,
    a_poor_filter_answers_as_the_model: poor_filter,
    background_threads_answer_as_the_model: threads,
    background_threads_that_stall_answer_as_the_model: threads_that_stall,
    few_descriptors_on_disk_answer_as_the_model: few_descriptors_on_disk,
    mapped_tables_answer_as_the_model: mapped_on_disk,
}
