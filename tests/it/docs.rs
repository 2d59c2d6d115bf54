//! The README and the pages in `docs` say what is: their example is one that runs, their links lead somewhere, their
//! lists leave nothing out.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).expect("docs is a directory");
    let pages = docs.map(|entry| entry.expect("docs is readable").path());
    let pages = pages.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.chain(["README.md", "CHANGELOG.md"].map(|name| root().join(name))).collect()
}

/// The lines outside fenced blocks.
fn prose(page: &str) -> Vec<&str> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            lines.push(line);
        }
    }
    lines
}

/// The first block that is fenced by a line `fence`.
fn fenced_block<'a>(page: &'a str, fence: &str) -> Vec<&'a str> {
    let inside = page.lines().skip_while(|line| *line != fence).skip(1);
    inside.take_while(|line| *line != "```").collect()
}

/// The targets of `[text](target)`.
fn links(page: &str) -> Vec<String> {
    let prose = prose(page).join("\n");
    let after = prose.split("](").skip(1);
    after.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned()).collect()
}

/// The anchors that headings get.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = prose(page).into_iter().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

/// What is wrong with a link on `page`, if anything is.
fn fault(page: &Path, target: &str) -> Option<String> {
    if target.starts_with("https://") {
        return None;
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let path = if file.is_empty() { page.to_owned() } else { page.parent()?.join(file) };
    if !path.exists() {
        return Some(format!("{}: {target} is no file", page.display()));
    }
    let known = anchor.is_none_or(|anchor| anchors(&text(&path)).contains(anchor));
    (!known).then(|| format!("{}: {target} is no heading", page.display()))
}

#[test]
fn every_link_of_the_pages_leads_somewhere() {
    let mut checked = 0;
    let mut faults = Vec::new();
    for page in pages() {
        for target in links(&text(&page)) {
            checked += 1;
            faults.extend(fault(&page, &target));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    assert!(checked > 50, "only {checked} links were found");
}

#[test]
fn a_broken_link_would_be_found() {
    let page = root().join("README.md");
    assert_eq!(links("see [a](b.md), [c](d.md#e)\n```text\n[f](g.md)\n```"), ["b.md", "d.md#e"]);
    assert!(fault(&page, "docs/missing.md").is_some());
    assert!(fault(&page, "docs/format.md#no-such-heading").is_some());
    assert!(fault(&page, "#durability").is_none());
}

/// The example in the crate's documentation is compiled and run with the other examples; so what is the same as it is
/// known to work.
#[test]
fn the_readme_shows_the_example_that_is_run() {
    let library = text("src/lib.rs");
    let documentation: Vec<&str> = library.lines().map_while(|line| line.strip_prefix("//!")).collect();
    let documentation = documentation.into_iter().map(|line| line.strip_prefix(' ').unwrap_or(line));
    let documentation = documentation.collect::<Vec<_>>().join("\n");
    let example = fenced_block(&documentation, "```").into_iter().filter(|line| !line.starts_with("# "));
    // There the path lies in a temporary directory.
    let example: Vec<String> = example.map(|line| line.replace("open(&path)", "open(\"shop.db\")")).collect();
    assert!(example.len() >= 15, "{example:?}");
    let readme = text("README.md");
    assert_eq!(fenced_block(&readme, "```rust"), example);
}

#[test]
fn the_readme_says_what_each_dependency_and_feature_serves() {
    let readme = text("README.md");
    let manifest = text("Cargo.toml");
    let names_in = |section: &str| -> Vec<String> {
        let lines =
            manifest.lines().skip_while(|line| *line != section).skip(1).take_while(|line| !line.starts_with('['));
        lines
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split_once(" = "))
            .map(|(n, _)| n.into())
            .collect()
    };
    let sections = ["[dependencies]", "[dev-dependencies]", "[features]"];
    let names: Vec<String> = sections.into_iter().flat_map(names_in).collect();
    assert!(names.len() > 15, "{names:?}");
    for name in names.iter().filter(|name| !["siftdb", "default"].contains(&name.as_str())) {
        let row = readme.lines().any(|line| line.starts_with('|') && line.contains(&format!("`{name}`")));
        assert!(row, "README.md has no row for `{name}`");
    }
    let minimum = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).expect("a minimum version");
    assert!(readme.contains(&format!("Rust {} or later", minimum.trim_matches('"'))), "{minimum}");
}

/// The names in double quotes.
fn quoted(line: &str) -> BTreeSet<String> {
    line.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_map_shows_the_layers_that_are_held() {
    let exists = |name: &String| ["", ".rs"].iter().any(|end| root().join(format!("src/{name}{end}")).exists());
    let held = text("tests/layering.rs");
    let held = held.lines().filter(|line| line.starts_with("    &[\"")).map(quoted);
    let held: Vec<BTreeSet<String>> = held.map(|names| names.into_iter().filter(exists).collect()).collect();
    let map = text("docs/architecture.md");
    let shown = fenced_block(&map, "```text").into_iter().filter_map(|line| {
        let (number, rest) = line.trim_start().split_once("  ")?;
        number.parse::<usize>().ok()?;
        // What a layer is for stands behind a wide gap.
        let names = rest.split("     ").next()?;
        Some(names.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>())
    });
    assert_eq!(shown.collect::<Vec<_>>(), held);
    assert!(held.len() > 8);
}

#[test]
fn the_map_has_a_room_for_every_module() {
    let map = text("docs/architecture.md");
    for entry in fs::read_dir(root().join("src")).expect("src is readable") {
        let path = entry.expect("src is readable").path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("file names are UTF-8").to_owned();
        let has_room = [".rs)", "/"].iter().any(|end| map.contains(&format!("(../src/{name}{end}")));
        assert!(name == "lib" || has_room, "docs/architecture.md has no link to the module {name}");
    }
}
