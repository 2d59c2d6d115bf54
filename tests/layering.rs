//! The import direction of the house: a module imports only from layers below its own, never from above or beside, so
//! that the modules form no circle. It reads text, not meaning: `crate::<module>` in `src/**/*.rs`, comments aside.

#![allow(clippy::disallowed_methods)] // reads the sources, not a database

use std::fs;
use std::path::Path;

/// From the ground up. The position in this list is the layer.
const LAYERS: &[&[&str]] = &[
    &["error", "sync", "hash"],
    &["stats", "value", "clock", "entropy"],
    &["coding", "checksum", "filename", "cache", "vfs", "executor"],
    &["key"],
    &["iter", "batch", "record", "filter"],
    &["block", "memtable"],
    &["sstable"],
    &["version", "wal"],
    &["manifest", "options"],
    &["compaction"],
    &["tree"],
    &["db"],
];

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// The top-level modules that a line names through `crate::`, grouped imports included.
fn named_modules(code: &str) -> Vec<&str> {
    let identifier = |text: &str| text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    code.split("crate::")
        .skip(1)
        .flat_map(|rest| match rest.strip_prefix('{') {
            Some(group) => group.split([',', '}']).collect::<Vec<_>>(),
            None => vec![rest],
        })
        .map(str::trim)
        .map(|name| &name[..identifier(name)])
        .filter(|name| !name.is_empty())
        .collect()
}

fn judge(file: &Path, module: &str, faults: &mut Vec<String>) {
    let here = layer_of(module).unwrap_or_else(|| panic!("{module} has no layer: add it to LAYERS"));
    let source = fs::read_to_string(file).expect("sources are UTF-8");
    for (number, line) in source.lines().enumerate() {
        let code = line.split("//").next().unwrap_or(line);
        let place = format!("{}:{}", file.display(), number + 1);
        if code.contains("super::super::") {
            faults.push(format!("{place}: climbs with super::super::; write crate::"));
        }
        for target in named_modules(code) {
            match layer_of(target) {
                _ if target == module || target == "internals" => {}
                Some(there) if there < here => {}
                Some(there) => {
                    faults.push(format!("{place}: {module} (layer {here}) imports {target} (layer {there})"))
                }
                None => faults.push(format!("{place}: crate::{target} is no module; name the one that defines it")),
            }
        }
    }
}

fn walk(dir: &Path, module: Option<&str>, faults: &mut Vec<String>) {
    for entry in fs::read_dir(dir).expect("src is readable") {
        let path = entry.expect("src is readable").path();
        let stem = path.file_stem().and_then(|s| s.to_str()).expect("file names are UTF-8");
        let module = module.unwrap_or(stem);
        if path.is_dir() {
            walk(&path, Some(module), faults);
        } else if module != "lib" {
            judge(&path, module, faults);
        }
    }
}

#[test]
fn imports_point_downwards() {
    let mut faults = Vec::new();
    walk(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), None, &mut faults);
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn an_upward_import_would_be_found() {
    assert_eq!(named_modules("use crate::{db, tree::Tree}; crate::key::Tag"), ["db", "tree", "key"]);
    assert!(layer_of("db") > layer_of("tree"));
}
