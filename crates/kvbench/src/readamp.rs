//! The headline experiment: the same keys in databases that differ only in their filters, the same questions to each.
//!
//! Counters come from the engine and repeat exactly with the seed: background work runs inline, one thread reads, all
//! keys of a class differ. Throughput is the median over the repeats and does not repeat exactly.

mod report;

use crate::args::ReadampArgs;
use crate::environment::Environment;
use crate::failure::{Failure, Result};
use crate::filter_spec::FilterSpec;
use crate::key_file::KeyFile;
use crate::keys::{KeyClass, KeySet};
use crate::output::{Output, PROGRESS_STEP, command_line, progress};
use crate::table::bytes;
use crate::values::Values;
use crate::workdir::{Workdir, room_for};
use siftdb::{Db, KeyspaceOptions, Options, Statistics};
use std::path::Path;
use std::time::Instant;

/// Puts in one batch while loading.
const LOAD_BATCH: usize = 64;
const CACHE_BYTES: u64 = 64 << 20;

/// Shape of the databases, derived from the data so that every size gives the same levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Geometry {
    memtable_bytes: u64,
    table_bytes: u64,
    base_level_bytes: u64,
    level_multiplier: u32,
}

/// One setting, loaded and read.
struct SettingResult {
    filter: FilterSpec,
    load_seconds: f64,
    /// After loading: the shape of the levels, and what loading cost.
    loaded: Statistics,
    classes: Vec<ClassResult>,
}

/// One key class of one setting.
struct ClassResult {
    class: KeyClass,
    asked: u64,
    found: u64,
    /// Wall time of each repeat.
    seconds: Vec<f64>,
    /// What the first repeat counted.
    counted: Statistics,
}

pub(crate) fn run(args: &ReadampArgs) -> Result<()> {
    let filters = distinct(&args.filters);
    // What can be known to fail is said before the JSON file is emptied and before anything is printed.
    if let Some(dir) = &args.common.db {
        room_for(dir, &filters.iter().map(|filter| dir.join(filter.directory())).collect::<Vec<_>>())?;
    }
    let keys = key_set(args)?;
    let mut output = Output::new(args.common.json.as_deref())?;
    let workdir = Workdir::new(args.common.db.as_deref())?;
    let data_bytes = data_bytes(&keys, args.value_size);
    let geometry = Geometry::of(data_bytes);
    let environment = Environment::detect(workdir.path(), args.seed, cache_state(data_bytes));
    output.print(environment.to_string())?;
    output.print(report::keys_text(&keys, args))?;
    let mut settings = Vec::new();
    for filter in filters {
        let dir = workdir.path().join(filter.directory());
        settings.push(measure(filter, &dir, &keys, geometry, args)?);
    }
    let report = report::Report { args, environment, keys: &keys, geometry, settings: &settings };
    output.print(report.text())?;
    if let Workdir::Given(dir) = &workdir {
        output.print(format!("The databases stay in {}.", dir.display()))?;
    }
    output.json(&report.json(command_line()))
}

fn key_set(args: &ReadampArgs) -> Result<KeySet> {
    match &args.common.keys_from {
        Some(path) => Ok(KeySet::from_file(KeyFile::read(path, args.num)?, args.seed)),
        None => Ok(KeySet::synthetic(args.num.unwrap_or(200_000), args.seed)),
    }
}

/// The settings, each once.
fn distinct(filters: &[FilterSpec]) -> Vec<FilterSpec> {
    let mut settings = Vec::new();
    for filter in filters {
        if !settings.contains(filter) {
            settings.push(*filter);
        }
    }
    settings
}

fn data_bytes(keys: &KeySet, value_size: u32) -> u64 {
    let value = |value: &Option<Box<[u8]>>| value.as_ref().map_or(u64::from(value_size), |value| value.len() as u64);
    keys.loaded.iter().map(|record| record.key.len() as u64 + value(&record.value)).sum()
}

fn cache_state(data_bytes: u64) -> String {
    let fits = if data_bytes < CACHE_BYTES { "fits" } else { "larger" };
    format!(
        "warm: each loaded key read once before the measured reads; {} cache, {} data ({fits})",
        bytes(CACHE_BYTES),
        bytes(data_bytes)
    )
}

impl Geometry {
    /// A table holds about 1/512 of the data, a memtable twice that. The last level gets most of the data, and with
    /// multiplier 8 the two above it an eighth and a 64th: three levels, and what was flushed last in level 0.
    fn of(data_bytes: u64) -> Geometry {
        let table_bytes = (data_bytes / 512).max(1).next_power_of_two().clamp(4 << 10, 64 << 20);
        let memtable_bytes = 2 * table_bytes;
        Geometry { memtable_bytes, table_bytes, base_level_bytes: 4 * table_bytes, level_multiplier: 8 }
    }

    fn options(self, filter: FilterSpec, seed: u64) -> Options {
        Options {
            error_if_exists: true,
            cache_bytes: CACHE_BYTES,
            background_threads: 0,
            seed: Some(seed),
            keyspace: KeyspaceOptions {
                memtable_bytes: self.memtable_bytes,
                table_bytes: self.table_bytes,
                base_level_bytes: self.base_level_bytes,
                level_multiplier: self.level_multiplier,
                filter: filter.options(),
                ..Default::default()
            },
            ..Default::default()
        }
    }
}

fn measure(
    filter: FilterSpec,
    dir: &Path,
    keys: &KeySet,
    geometry: Geometry,
    args: &ReadampArgs,
) -> Result<SettingResult> {
    if let Some(parent) = dir.parent() {
        std::fs::create_dir_all(parent).map_err(|e| Failure::io("create directory", parent, &e))?;
    }
    let engine = |error: siftdb::Error| Failure::engine(&error, dir);
    let db = geometry.options(filter, args.seed).open(dir).map_err(engine)?;
    let start = Instant::now();
    load(&db, filter, keys, args).map_err(engine)?;
    let load_seconds = start.elapsed().as_secs_f64();
    let loaded = db.statistics();
    warm(&db, filter, keys).map_err(engine)?;
    let mut classes = Vec::new();
    for class in KeyClass::ALL {
        classes.extend(read_class(&db, filter, class, keys, args).map_err(engine)??);
    }
    db.close().map_err(engine)?;
    Ok(SettingResult { filter, load_seconds, loaded, classes })
}

/// Writes every key once, in random order, and lets the tree settle; nothing stays in a memtable.
fn load(db: &Db, filter: FilterSpec, keys: &KeySet, args: &ReadampArgs) -> siftdb::Result<()> {
    let mut values = Values::new(args.seed, args.value_size as usize);
    let bar = progress(format!("{filter}: load"), keys.loaded.len() as u64);
    for chunk in keys.load_order(args.seed).chunks(LOAD_BATCH) {
        let mut batch = db.batch();
        for record in chunk {
            let filler = values.next(args.value_size as usize);
            batch.put(&record.key, record.value.as_deref().unwrap_or(filler));
        }
        batch.commit()?;
        bar.inc(chunk.len() as u64);
    }
    bar.finish_and_clear();
    db.flush()?;
    db.wait_idle()
}

fn warm(db: &Db, filter: FilterSpec, keys: &KeySet) -> siftdb::Result<()> {
    let bar = progress(format!("{filter}: warm the caches"), keys.loaded.len() as u64);
    for (index, record) in keys.loaded.iter().enumerate() {
        db.get(&record.key)?;
        if (index as u64).is_multiple_of(PROGRESS_STEP) {
            bar.set_position(index as u64);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// None if there are no such keys. The inner error: the engine found what is not there, or the other way round.
fn read_class(
    db: &Db,
    filter: FilterSpec,
    class: KeyClass,
    keys: &KeySet,
    args: &ReadampArgs,
) -> siftdb::Result<Result<Option<ClassResult>>> {
    let asked = keys.draw(class, args.reads, args.seed);
    if asked.is_empty() {
        return Ok(Ok(None));
    }
    let bar = progress(format!("{filter}: {}", class.text()), u64::from(args.repeats));
    let mut result =
        ClassResult { class, asked: asked.len() as u64, found: 0, seconds: Vec::new(), counted: Statistics::default() };
    for repeat in 0..args.repeats {
        let before = db.statistics();
        let start = Instant::now();
        result.found = read_all(db, &asked)?;
        result.seconds.push(start.elapsed().as_secs_f64());
        if repeat == 0 {
            result.counted = db.statistics().since(&before);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let expected = if class == KeyClass::Present { result.asked } else { 0 };
    if result.found != expected {
        return Ok(Err(Failure::failed(format!(
            "the engine is wrong: with filter {filter}, {} of {} {} keys were found, not {expected}; report this",
            result.found,
            result.asked,
            class.text()
        ))));
    }
    Ok(Ok(Some(result)))
}

fn read_all(db: &Db, keys: &[Box<[u8]>]) -> siftdb::Result<u64> {
    let mut found = 0;
    for key in keys {
        found += u64::from(std::hint::black_box(db.get(key)?).is_some());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geometry_follows_the_data_and_stays_within_bounds() {
        assert_eq!(Geometry::of(200_000 * 116).table_bytes, 64 << 10);
        assert_eq!(Geometry::of(0).table_bytes, 4 << 10);
        assert_eq!(Geometry::of(1 << 50).table_bytes, 64 << 20);
    }

    #[test]
    fn the_cache_state_fits_its_lines() {
        let widest = cache_state(1_000 << 30).split("; ").map(str::len).max();
        assert!(widest.unwrap() + "caches       ".len() <= 80);
        assert!(cache_state(1).contains("(fits)") && cache_state(CACHE_BYTES).contains("(larger)"));
    }

    #[test]
    fn data_bytes_count_filler_and_given_values() {
        assert_eq!(data_bytes(&KeySet::synthetic(10, 1), 100), 1_160);
    }

    #[test]
    fn a_setting_given_twice_is_measured_once() {
        assert_eq!(distinct(&[FilterSpec::None, FilterSpec::None, FilterSpec::Bloom(9.0)]).len(), 2);
    }
}
