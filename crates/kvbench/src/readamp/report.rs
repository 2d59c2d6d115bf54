//! The result of `readamp` as text of at most 80 columns, and as JSON.

use super::{ClassResult, Geometry, SettingResult};
use crate::args::ReadampArgs;
use crate::environment::Environment;
use crate::filter_spec::FilterSpec;
use crate::keys::{KeyClass, KeySet};
use crate::maths::{Verdict, median, verdict, wilson};
use crate::table::{bytes, grouped, percent, table, wrapped};
use serde_json::{Value, json};
use siftdb::{LevelStatistics, Statistics};

/// Raised when a field changes its meaning or goes; new fields do not raise it.
const SCHEMA_VERSION: u32 = 1;

const SHAPE_LEGEND: &str = "\
A filter is whole lines of 64 bytes: small tables get more bits/key.
Levels fill from the last upwards: those that are missing are empty by design.
";

const LEGEND: [&str; 3] = [
    "keys: present: loaded; absent-near: a loaded key plus one byte; absent-random: drawn inside the key range; \
     absent-held-out: a tenth of the file's keys, not loaded",
    "reads: data blocks looked into, cached or not; avoided: tables whose filter said no",
    "verdict: expected rate against the 95 % Wilson interval of the observed one; by chance alone about 5 rows in 100 \
     lie outside, above (\"too high\") or below; \"few data\": fewer than 5 false positives were to be expected",
];

pub(super) struct Report<'a> {
    pub(super) args: &'a ReadampArgs,
    pub(super) environment: Environment,
    pub(super) keys: &'a KeySet,
    pub(super) geometry: Geometry,
    pub(super) settings: &'a [SettingResult],
}

/// What is loaded, said before the work starts.
pub(super) fn keys_text(keys: &KeySet, args: &ReadampArgs) -> String {
    let loaded = grouped(keys.loaded.len() as u64);
    match &keys.file {
        None => format!("keys         {loaded} of 16 B, random, with {} B values\n", args.value_size),
        Some(file) => {
            let held_out = grouped(file.distinct_keys - keys.loaded.len() as u64);
            format!(
                "{file}             loaded {loaded}, held out {held_out}; values without TAB: {} B\n",
                args.value_size
            )
        }
    }
}

impl ClassResult {
    fn all(&self) -> LevelStatistics {
        self.counted.all_levels()
    }

    fn per_key(&self, count: u64) -> f64 {
        count as f64 / self.asked as f64
    }

    /// Data blocks looked into, per key.
    fn reads_per_key(&self) -> f64 {
        self.per_key(self.all().block_touches)
    }

    fn avoided_per_key(&self) -> f64 {
        self.per_key(self.all().negatives)
    }

    fn verdict(&self) -> Verdict {
        let all = self.all();
        verdict(all.false_positives, all.false_positives + all.negatives, all.expected_rate())
    }

    fn ops_per_second(&self) -> f64 {
        let rates: Vec<f64> = self.seconds.iter().map(|seconds| self.asked as f64 / seconds.max(1e-9)).collect();
        median(&rates)
    }

    fn row(&self, filter: FilterSpec) -> Vec<String> {
        let all = self.all();
        let filtered = filter != FilterSpec::None;
        vec![
            filter.to_string(),
            self.class.text().to_owned(),
            format!("{:.3}", self.reads_per_key()),
            format!("{:.3}", self.avoided_per_key()),
            percent(all.expected_rate().filter(|_| filtered)),
            percent(all.observed_rate()),
            if filtered { self.verdict().text() } else { "-" }.to_owned(),
            grouped(self.ops_per_second() as u64),
        ]
    }

    fn json(&self) -> Value {
        let all = self.all();
        json!({
            "class": self.class,
            "keys_asked": self.asked,
            "keys_found": self.found,
            "block_touches_per_key": self.reads_per_key(),
            "tables_avoided_per_key": self.avoided_per_key(),
            "false_positive_rate": {
                "expected": all.expected_rate(),
                "observed": all.observed_rate(),
                "interval_95": wilson(all.false_positives, all.false_positives + all.negatives),
                "false_positives": all.false_positives,
                "trials": all.false_positives + all.negatives,
                "verdict": self.verdict(),
            },
            "ops_per_second": self.ops_per_second(),
            "seconds": self.seconds,
            "counters": self.counted,
        })
    }
}

impl SettingResult {
    fn class(&self, class: KeyClass) -> Option<&ClassResult> {
        self.classes.iter().find(|result| result.class == class)
    }

    fn json(&self) -> Value {
        json!({
            "filter": self.filter.to_string(),
            "load_seconds": self.load_seconds,
            "loaded": self.loaded,
            "classes": self.classes.iter().map(ClassResult::json).collect::<Vec<_>>(),
        })
    }
}

impl Report<'_> {
    pub(super) fn text(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .settings
            .iter()
            .flat_map(|setting| setting.classes.iter().map(|class| class.row(setting.filter)))
            .collect();
        let header = [
            "filter",
            "keys asked",
            "reads\n/key",
            "avoided\n/key",
            "FP rate\nexpected",
            "FP rate\nobserved",
            "verdict",
            "ops/s",
        ];
        format!(
            "{}{SHAPE_LEGEND}\n{}{}{}\n{}",
            self.shape(),
            table(&header, 2, &rows),
            wrapped(&self.asked()),
            LEGEND.map(wrapped).concat(),
            self.sentences().iter().map(|text| wrapped(text)).collect::<String>()
        )
    }

    /// How many keys each class asked for. Every setting was asked the same.
    fn asked(&self) -> String {
        let classes = self.settings.first().map_or(&[][..], |setting| &setting.classes);
        let counts = classes.iter().map(|class| format!("{} {}", grouped(class.asked), class.class.text()));
        format!("asked, each key once: {}", counts.collect::<Vec<_>>().join(", "))
    }

    /// The levels of each database: filters lie inside the table files, so bytes differ even where entries do not.
    fn shape(&self) -> String {
        let rows =
            self.settings.iter().flat_map(|setting| shape_rows(setting.filter, &setting.loaded)).collect::<Vec<_>>();
        let header = ["filter", "level", "tables", "entries", "bytes", "filters", "bits/key"];
        let geometry = &self.geometry;
        format!(
            "tree         memtables {}, tables {}, multiplier {}\n\n{}",
            bytes(geometry.memtable_bytes),
            bytes(geometry.table_bytes),
            geometry.level_multiplier,
            table(&header, 2, &rows)
        )
    }

    /// What the table says, in words.
    fn sentences(&self) -> Vec<String> {
        let none = self.settings.iter().find(|setting| setting.filter == FilterSpec::None);
        let filtered = self.settings.iter().filter(|setting| setting.filter != FilterSpec::None).collect::<Vec<_>>();
        let mut sentences = Vec::new();
        for class in [KeyClass::AbsentRandom, KeyClass::AbsentHeldOut, KeyClass::Present] {
            sentences.extend(filtered.first().and_then(|with| sentence(class, none, with)));
        }
        sentences.extend(filtered.first().and_then(|with| self.price(with)));
        sentences
    }

    fn price(&self, with: &SettingResult) -> Option<String> {
        let all = with.loaded.all_levels();
        let bits = all.filter_bytes as f64 * 8.0 / (all.entries > 0).then_some(all.entries)? as f64;
        Some(format!("The price: {} of filters in memory, {bits:.1} bits per key.", bytes(all.filter_bytes)))
    }

    pub(super) fn json(&self, command_line: Vec<String>) -> Value {
        json!({
            "schema": "kvbench.readamp",
            "schema_version": SCHEMA_VERSION,
            "command_line": command_line,
            "environment": self.environment,
            "parameters": {
                "keys_loaded": self.keys.loaded.len(),
                "value_size": self.args.value_size,
                "reads": self.args.reads,
                "repeats": self.args.repeats,
                "seed": self.args.seed,
                "memtable_bytes": self.geometry.memtable_bytes,
                "table_bytes": self.geometry.table_bytes,
                "base_level_bytes": self.geometry.base_level_bytes,
                "level_multiplier": self.geometry.level_multiplier,
            },
            "key_file": self.keys.file,
            "settings": self.settings.iter().map(SettingResult::json).collect::<Vec<_>>(),
            "sentences": self.sentences(),
        })
    }
}

fn shape_rows(filter: FilterSpec, loaded: &Statistics) -> Vec<Vec<String>> {
    let levels = loaded.levels.iter().enumerate().filter(|(_, level)| level.tables > 0);
    levels
        .map(|(number, level)| {
            vec![
                filter.to_string(),
                format!("L{number}"),
                grouped(level.tables),
                grouped(level.entries),
                bytes(level.bytes),
                bytes(level.filter_bytes),
                format!("{:.1}", level.filter_bytes as f64 * 8.0 / level.entries.max(1) as f64),
            ]
        })
        .collect()
}

/// None if the class was not read.
fn sentence(class: KeyClass, none: Option<&SettingResult>, with: &SettingResult) -> Option<String> {
    let result = with.class(class)?;
    let (name, filter, reads) = (class.text(), with.filter, result.reads_per_key());
    let Some(without) = none.and_then(|none| none.class(class)).map(ClassResult::reads_per_key) else {
        return Some(format!(
            "{name} keys cost {reads:.3} block reads with {filter}: {:.3} table reads a key never happened.",
            result.avoided_per_key()
        ));
    };
    let share = if without > 0.0 { (1.0 - reads / without) * 100.0 } else { 0.0 };
    Some(format!(
        "{name} keys cost {without:.3} block reads without filters and {reads:.3} with {filter}: \
         {share:.1} % of the reads never happened."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(filter: FilterSpec) -> SettingResult {
        let mut counted = Statistics::default();
        let mut loaded = Statistics::default();
        for level in &mut loaded.levels {
            (level.tables, level.entries, level.bytes, level.filter_bytes) =
                (123_456, 1_234_567_890, 987 << 30, 987 << 20);
        }
        if filter == FilterSpec::None {
            counted.levels[1].block_touches = 300;
        } else {
            let level = &mut counted.levels[1];
            (level.block_touches, level.negatives, level.false_positives) = (3, 297, 3);
            (level.expected_false_positives, level.judged_probes) = (2.9, 300);
        }
        let classes = KeyClass::ALL.map(|class| ClassResult {
            class,
            asked: 100,
            found: 0,
            seconds: vec![2e-5],
            counted: counted.clone(),
        });
        SettingResult { filter, load_seconds: 1.0, loaded, classes: classes.into() }
    }

    fn with_report<T>(filters: &[FilterSpec], look: impl FnOnce(&Report<'_>) -> T) -> T {
        use clap::Parser;
        let args = crate::args::Cli::parse_from(["kvbench"]).readamp;
        let settings: Vec<SettingResult> = filters.iter().map(|filter| setting(*filter)).collect();
        let keys = KeySet::synthetic(100, 1);
        let environment = Environment::detect(std::path::Path::new("."), 1, "warm");
        look(&Report { args: &args, environment, keys: &keys, geometry: Geometry::of(0), settings: &settings })
    }

    #[test]
    fn text_fits_80_columns_and_rows_are_single_lines() {
        with_report(&[FilterSpec::None, FilterSpec::Blocked(10.0), FilterSpec::Blocked(12.25)], |report| {
            let text = report.text();
            for line in text.lines() {
                assert!(line.chars().count() <= 80, "{line}");
            }
            let rows = text.lines().filter(|line| line.contains(" absent-held-out ") && line.ends_with("5,000,000"));
            assert_eq!(rows.count(), 3, "{text}");
            assert!(text.contains("asked, each key once: 100 present, 100 absent-near, 100 absent-random"), "{text}");
        });
    }

    #[test]
    fn sentences_compare_with_no_filters_and_name_the_figures() {
        with_report(&[FilterSpec::None, FilterSpec::Blocked(10.0)], |report| {
            let first = report.sentences().remove(0);
            assert!(
                first.starts_with(
                    "absent-random keys cost 3.000 block reads without filters and 0.030 with blocked:10: 99.0 %"
                ),
                "{first}"
            );
        });
        with_report(&[FilterSpec::Bloom(9.9)], |report| {
            assert!(
                report.sentences()[0]
                    .starts_with("absent-random keys cost 0.030 block reads with bloom:9.9: 2.970 table"),
                "{:?}",
                report.sentences()
            );
        });
        with_report(&[FilterSpec::None], |report| assert!(report.sentences().is_empty()));
    }

    #[test]
    fn json_carries_schema_environment_and_raw_counters() {
        with_report(&[FilterSpec::Blocked(10.0)], |report| {
            let json = report.json(vec!["kvbench".into()]);
            assert_eq!((json["schema"].as_str(), json["schema_version"].as_u64()), (Some("kvbench.readamp"), Some(1)));
            let class = &json["settings"][0]["classes"][2];
            assert_eq!(class["class"], "absent-random");
            assert_eq!(class["counters"]["levels"][1]["negatives"], 297);
            assert_eq!(class["false_positive_rate"]["verdict"], "few_data");
            assert!(json["environment"]["cpus"].as_u64().is_some());
        });
    }
}
