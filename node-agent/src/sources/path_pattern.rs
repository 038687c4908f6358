//! Files of a directory tree that match a path with wildcards.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use polymeter_proto::catalogue::{TextFile, pattern_match};

use super::custom_source::CustomSource;
use super::outcome::Outcome;
use super::reading::Reading;

/// Bound of the files of a pattern, so that an unusual tree cannot take all descriptors: as many as the CPUs
/// of the largest machine that Linux supports.
const MATCHES_MAX: usize = 8192;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Match {
    pub(super) path: PathBuf,
    /// Path relative to the searched directory.
    pub(super) relative: String,
    /// Labels for which the wildcards stand.
    pub(super) labels: Vec<(String, String)>,
}

#[derive(Debug, Default)]
pub(super) struct Matches {
    /// Sorted by the numbers in their names.
    pub(super) found: Vec<Match>,
    /// Why other files are passed over, if there are any.
    pub(super) passed_over: Option<String>,
}

/// Finds the files below `directory` that match the path of `file`. A path without wildcards always matches:
/// opening it tells why it cannot be read.
pub(super) fn matches(directory: &Path, file: &TextFile) -> Matches {
    if !file.path.contains('*') {
        let (path, relative) = (directory.join(file.path), file.path.to_owned());
        return Matches { found: vec![Match { path, relative, labels: Vec::new() }], passed_over: None };
    }
    let (found, passed_over) = expand(directory, file.path, MATCHES_MAX);
    let passed_over = (passed_over > 0).then(|| {
        let path = directory.join(file.path);
        format!("{passed_over} of the files {} are not sampled: the limit is {MATCHES_MAX}", path.display())
    });
    let found = found.into_iter().filter_map(|relative| {
        let labels = file.path_labels_of(&relative)?;
        Some(Match { path: directory.join(&relative), relative, labels })
    });
    Matches { found: found.collect(), passed_over }
}

/// Sort key by which `cpu2` precedes `cpu10`.
fn by_number(name: &str) -> String {
    /// Digits of the largest number that is compared by its value.
    const DIGITS: usize = 20;
    let mut key = String::new();
    let mut rest = name;
    while let Some(start) = rest.find(|letter: char| letter.is_ascii_digit()) {
        let (text, digits) = rest.split_at(start);
        let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
        let (number, after) = digits.split_at(end);
        key.push_str(text);
        key.push_str(&format!("{number:0>DIGITS$}"));
        rest = after;
    }
    key + rest
}

/// Finds at most `limit` paths relative to `directory` that match `pattern`, in the order of the numbers in
/// their names, and counts the others.
fn expand(directory: &Path, pattern: &str, limit: usize) -> (Vec<String>, usize) {
    let mut found = vec![String::new()];
    let mut passed_over = 0;
    for component in pattern.split('/') {
        let mut next = Vec::new();
        for parent in &found {
            let join =
                |name: &str| if parent.is_empty() { name.to_owned() } else { format!("{parent}/{name}") };
            if !component.contains('*') {
                next.push(join(component));
                continue;
            }
            let entries = fs::read_dir(directory.join(parent)).into_iter().flatten().flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            next.extend(
                names.filter(|name| pattern_match(component, name).is_some()).map(|name| join(&name)),
            );
        }
        next.sort_by_cached_key(|path| by_number(path));
        passed_over += next.len().saturating_sub(limit);
        next.truncate(limit);
        found = next;
    }
    // Names behind the last wildcard were not looked up.
    found.retain(|relative| directory.join(relative).exists());
    (found, passed_over)
}

/// Reports that a file was added or removed: a source without slots.
#[derive(Debug)]
pub(super) struct PatternWatch {
    directory: PathBuf,
    patterns: BTreeSet<&'static str>,
    found: BTreeSet<String>,
}

impl PatternWatch {
    pub(super) fn new(directory: &Path, patterns: BTreeSet<&'static str>) -> Self {
        let mut watch = Self { directory: directory.to_owned(), patterns, found: BTreeSet::new() };
        watch.found = watch.look();
        watch
    }

    fn look(&self) -> BTreeSet<String> {
        self.patterns.iter().flat_map(|pattern| expand(&self.directory, pattern, MATCHES_MAX).0).collect()
    }
}

impl CustomSource for PatternWatch {
    fn read(&mut self, _reading: &mut Reading) -> Outcome {
        let found = self.look();
        if found == self.found {
            return Outcome::Read;
        }
        self.found = found;
        Outcome::Changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(root: &Path, path: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "1\n").unwrap();
    }

    #[test]
    fn finds_files_of_several_wildcards() {
        let root = tempfile::tempdir().unwrap();
        for path in
            ["a/mlx5_1/ports/1/data", "a/mlx5_0/ports/2/data", "a/mlx5_0/ports/1/data", "a/mlx5_0/ports/1/x"]
        {
            touch(root.path(), path);
        }
        touch(root.path(), "a/mlx5_2/other");
        let (found, _) = expand(root.path(), "a/*/ports/*/data", MATCHES_MAX);
        assert_eq!(found, ["a/mlx5_0/ports/1/data", "a/mlx5_0/ports/2/data", "a/mlx5_1/ports/1/data"]);
        assert!(expand(root.path(), "b/*/data", MATCHES_MAX).0.is_empty());
    }

    #[test]
    fn files_beyond_the_limit_are_those_with_the_largest_numbers_and_are_counted() {
        let root = tempfile::tempdir().unwrap();
        let numbers = [0, 1, 9, 10, 11, 99, 100, 1024];
        numbers.iter().for_each(|number| touch(root.path(), &format!("cpu{number}/freq")));
        let paths = |count: usize| numbers.iter().take(count).map(|number| format!("cpu{number}/freq"));
        assert_eq!(expand(root.path(), "cpu*/freq", 5), (paths(5).collect(), 3));
        assert_eq!(expand(root.path(), "cpu*/freq", 8), (paths(8).collect(), 0));
    }

    #[test]
    fn watch_reports_an_added_or_removed_device_once() {
        let root = tempfile::tempdir().unwrap();
        let mut watch = PatternWatch::new(root.path(), ["a/*/ports/*/data"].into());
        let mut read = || watch.read(&mut Reading::default());
        assert_eq!(read(), Outcome::Read);
        touch(root.path(), "a/mlx5_0/ports/1/data");
        assert_eq!([read(), read()], [Outcome::Changed, Outcome::Read]);
        fs::remove_dir_all(root.path().join("a")).unwrap();
        assert_eq!([read(), read()], [Outcome::Changed, Outcome::Read]);
    }
}
