//! The structure that ARCHITECTURE.md describes: no import cycles, and imports in the permitted directions only.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a fault of a test is a failed test"
)]

use std::collections::BTreeSet;
use std::path::Path;

use polymeter_structure::graph::{self, Target};
use polymeter_structure::rules::{CRATES, DIRECTIONS, IMPURE, PURE};
use polymeter_structure::{crates, cycles, manifest, shown, workspace};

/// Known cycles: a directory and its modules. An entry that is larger than the actual cycle fails the test, too.
const CYCLES: &[(&str, &str)] = &[];

/// Known imports against the permitted direction: a file and the module that it imports.
const AGAINST: &[(&str, &str)] = &[];

/// Known uses of I/O and clocks in pure modules: a file and a path.
const MENTIONS: &[(&str, &str)] = &[];

/// Fails if a finding is not listed, or if a listed finding no longer exists.
fn compare(title: &str, list: &str, found: &BTreeSet<(String, String)>, known: &[(&str, &str)]) {
    let known: BTreeSet<_> = known.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    let lines = |set: Vec<&(String, String)>| {
        set.iter().map(|(a, b)| format!("    (\"{a}\", \"{b}\"),\n")).collect::<String>()
    };
    let new = lines(found.difference(&known).collect());
    let gone = lines(known.difference(found).collect());
    assert!(new.is_empty(), "{title}:\n{new}");
    assert!(gone.is_empty(), "no longer there; remove these from {list}:\n{gone}");
}

fn all_targets() -> Vec<Target> {
    crates().iter().flat_map(|directory| graph::targets(directory)).collect()
}

#[test]
fn modules_import_without_cycles() {
    let mut found = BTreeSet::new();
    for target in all_targets() {
        for (directory, names) in cycles::by_directory(&target) {
            for cycle in cycles::find(&names) {
                found.insert((shown(&directory), cycle.into_iter().collect::<Vec<_>>().join(" ")));
            }
        }
    }
    compare("modules that import each other in a cycle", "CYCLES", &found, CYCLES);
}

#[test]
fn crates_depend_in_one_direction() {
    let names: Vec<(String, String)> = crates()
        .iter()
        .map(|directory| {
            (manifest(directory)["package"]["name"].as_str().unwrap().to_owned(), shown(directory))
        })
        .collect();
    for (directory, allowed) in CRATES {
        let manifest = manifest(&workspace().join(directory));
        let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
        for dependency in dependencies.into_iter().flatten().map(|(name, _)| name) {
            if let Some((_, of)) = names.iter().find(|(name, _)| name == dependency) {
                assert!(allowed.contains(&of.as_str()), "{directory} must not depend on {of}");
            }
        }
    }
}

#[test]
fn modules_import_in_one_direction() {
    let mut found = BTreeSet::new();
    for target in all_targets() {
        for (directory, from, to) in DIRECTIONS {
            let root = workspace().join(directory);
            let is_in = |file: &Path, modules: &[&str]| {
                modules
                    .iter()
                    .find(|module| {
                        file.starts_with(root.join(module)) || file == root.join(format!("{module}.rs"))
                    })
                    .map(|module| (*module).to_owned())
            };
            for (file, imported) in target.imports.iter().filter(|(file, _)| is_in(file, from).is_some()) {
                for module in imported.iter().filter_map(|file| is_in(file, to)) {
                    found.insert((shown(file), module));
                }
            }
        }
    }
    compare("imports against the direction", "AGAINST", &found, AGAINST);
}

#[test]
fn pure_modules_have_no_io_and_no_clock() {
    let mut found = BTreeSet::new();
    for target in all_targets() {
        for (file, paths) in &target.external {
            if !PURE.iter().any(|pure| {
                file.starts_with(workspace().join(pure)) || *file == workspace().join(format!("{pure}.rs"))
            }) {
                continue;
            }
            for path in paths.iter().map(|path| path.join("::")) {
                let is_impure = |impure: &&str| path == **impure || path.starts_with(&format!("{impure}::"));
                if IMPURE.iter().any(is_impure) {
                    found.insert((shown(file), path));
                }
            }
        }
    }
    compare("I/O or clocks in pure modules", "MENTIONS", &found, MENTIONS);
}
