//! The import cycles among the modules of each directory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::graph::{Imports, Target};

/// Names, and the names that each of them imports.
pub type Names = BTreeMap<String, BTreeSet<String>>;

/// Imports among the files and subdirectories of each directory of a target. A subdirectory stands for all
/// files below it. The directory's own module file (`mod.rs`, or `x.rs` beside `x/`) counts as one of the
/// files within it.
#[must_use]
pub fn by_directory(target: &Target) -> BTreeMap<PathBuf, Names> {
    let mut directories: BTreeMap<PathBuf, Names> = BTreeMap::new();
    for (file, imported) in &target.imports {
        let own = placed(&target.imports, file);
        if !is_inside(target, &own) {
            continue;
        }
        for ancestor in own.ancestors().skip(1).take_while(|path| path.starts_with(&target.directory)) {
            directories.entry(ancestor.to_owned()).or_default().entry(child(ancestor, &own)).or_default();
        }
        for other in imported {
            let Some((directory, from, to)) = edge(target, file, other) else { continue };
            directories.entry(directory).or_default().entry(from).or_default().insert(to);
        }
    }
    directories
}

/// Directory that two modules have in common, and the names there of the importing and the imported module.
/// `None` for files outside the target's directory, which the target includes by path.
#[must_use]
pub fn edge(target: &Target, file: &Path, other: &Path) -> Option<(PathBuf, String, String)> {
    let (own, other) = (placed(&target.imports, file), placed(&target.imports, other));
    if !is_inside(target, &own) || !is_inside(target, &other) {
        return None;
    }
    let common = common(&own, &other);
    let (from, to) = (child(&common, &own), child(&common, &other));
    Some((common, from, to))
}

fn is_inside(target: &Target, path: &Path) -> bool {
    path.starts_with(&target.directory) && !path.iter().any(|part| part == "..")
}

/// Position of a file in the module hierarchy: `x.rs` beside a directory `x` belongs to that directory.
fn placed(imports: &Imports, file: &Path) -> PathBuf {
    let directory = file.with_extension("");
    let has_children = imports.keys().any(|other| other.starts_with(&directory));
    if has_children { directory.join("mod.rs") } else { file.to_owned() }
}

fn child(directory: &Path, file: &Path) -> String {
    let below = file.strip_prefix(directory).unwrap();
    let first = below.iter().next().unwrap().to_string_lossy();
    first.strip_suffix(".rs").unwrap_or(&first).to_owned()
}

fn common(one: &Path, other: &Path) -> PathBuf {
    one.parent().unwrap().ancestors().find(|ancestor| other.starts_with(ancestor)).unwrap().to_owned()
}

/// Groups of names that import each other in a cycle.
#[must_use]
pub fn find(names: &Names) -> Vec<BTreeSet<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        names.keys().map(|name| (name, reachable(names, name))).collect();
    let mut cycles = BTreeSet::new();
    for name in names.keys().filter(|name| reached[name].contains(name)) {
        let cycle = reached[name]
            .iter()
            .filter(|other| reached.get(**other).is_some_and(|back| back.contains(name)))
            .map(|other| (*other).clone())
            .collect::<BTreeSet<String>>();
        cycles.insert(cycle);
    }
    cycles.into_iter().collect()
}

fn reachable<'a>(names: &'a Names, from: &String) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut left: Vec<&String> = names.get(from).into_iter().flatten().collect();
    while let Some(name) = left.pop() {
        if reached.insert(name) {
            left.extend(names.get(name).into_iter().flatten());
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_each_cycle_once() {
        assert_eq!(find(&imports(&[("a", "b"), ("b", "c"), ("a", "c")])), Vec::<BTreeSet<String>>::new());
        let found = find(&imports(&[("a", "b"), ("b", "a"), ("b", "c"), ("c", "d"), ("d", "c")]));
        let expected = [["a", "b"], ["c", "d"]].map(|cycle| cycle.map(str::to_owned).into());
        assert_eq!(found, expected);
    }

    fn imports(list: &[(&str, &str)]) -> Names {
        let mut names = Names::new();
        for (from, to) in list {
            names.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        names
    }
}
