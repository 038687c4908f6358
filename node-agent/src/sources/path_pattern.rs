//! The files of a directory tree that match a path with wildcards.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use polymeter_proto::catalogue::{TextFile, pattern_match};

use super::custom_source::CustomSource;
use super::outcome::Outcome;
use super::reading::Reading;
use super::slot::Slot;

/// The most files that one pattern may match, so that an unusual tree cannot take all descriptors.
const MATCHES_MAX: usize = 1024;

/// A file that matches the path of a [`TextFile`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Match {
    pub(super) path: PathBuf,
    /// The path relative to the searched directory.
    pub(super) relative: String,
    /// The labels that its wildcards stand for.
    pub(super) labels: Vec<(String, String)>,
}

/// Returns the files below `directory` that match the path of `file`, sorted. A path without wildcards always
/// matches: opening it determines why it cannot be read.
pub(super) fn matches(directory: &Path, file: &TextFile) -> Vec<Match> {
    if !file.path.contains('*') {
        let (path, relative) = (directory.join(file.path), file.path.to_owned());
        return vec![Match { path, relative, labels: Vec::new() }];
    }
    let with_labels = |relative: String| {
        let labels = file.path_labels_of(&relative)?;
        Some(Match { path: directory.join(&relative), relative, labels })
    };
    expand(directory, file.path).into_iter().filter_map(with_labels).collect()
}

/// Returns the paths relative to `directory` that match `pattern`, sorted.
fn expand(directory: &Path, pattern: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::from([String::new()]);
    for component in pattern.split('/') {
        let mut next = BTreeSet::new();
        for parent in &found {
            let join =
                |name: &str| if parent.is_empty() { name.to_owned() } else { format!("{parent}/{name}") };
            if !component.contains('*') {
                next.insert(join(component));
                continue;
            }
            let entries = fs::read_dir(directory.join(parent)).into_iter().flatten().flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            next.extend(
                names.filter(|name| pattern_match(component, name).is_some()).map(|name| join(&name)),
            );
        }
        found = next.into_iter().take(MATCHES_MAX).collect();
    }
    // Names behind the last wildcard were not looked up.
    found.retain(|relative| directory.join(relative).exists());
    found
}

/// A watch of the files that match patterns: a source without slots, which reports a change when a device was
/// added or removed.
#[derive(Debug)]
pub(super) struct PatternWatch {
    directory: PathBuf,
    patterns: Vec<&'static str>,
    found: BTreeSet<String>,
}

impl PatternWatch {
    /// Creates a watch of `patterns` below `directory`, from the current files.
    pub(super) fn new(directory: &Path, patterns: BTreeSet<&'static str>) -> Self {
        let mut watch = Self {
            directory: directory.to_owned(),
            patterns: patterns.into_iter().collect(),
            found: BTreeSet::new(),
        };
        watch.found = watch.look();
        watch
    }

    fn look(&self) -> BTreeSet<String> {
        self.patterns.iter().flat_map(|pattern| expand(&self.directory, pattern)).collect()
    }
}

impl CustomSource for PatternWatch {
    fn slots(&self) -> &[Slot] {
        &[]
    }

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
        let found: Vec<String> = expand(root.path(), "a/*/ports/*/data").into_iter().collect();
        assert_eq!(found, ["a/mlx5_0/ports/1/data", "a/mlx5_0/ports/2/data", "a/mlx5_1/ports/1/data"]);
        assert!(expand(root.path(), "b/*/data").is_empty());
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
