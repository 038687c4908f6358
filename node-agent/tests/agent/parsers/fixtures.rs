//! Text of real kernels, and the metrics of it in the catalogue.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use polymeter_agent::sources::Reading;
use polymeter_agent::sources::layout::{Fit, Layout, Slot, Wanted, parse};
use polymeter_proto::catalogue::{self, Definition, Form, Hierarchy, Origin, TextFile};

/// Values by the name of their metric and its labels, `cpu.usage{}`; none for "no limit".
pub(crate) type Values = BTreeMap<String, Option<u64>>;

#[derive(Debug)]
pub(crate) struct Fixture {
    /// Machine and cgroup that it was taken from: the first directory of its path.
    pub(crate) set: String,
    /// Path below the fixtures.
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) file: &'static TextFile,
    /// Labels of the `*`s in the file's path.
    pub(crate) path_labels: Vec<(String, String)>,
    pub(crate) wanted: Vec<Wanted>,
}

pub(crate) fn all() -> &'static [Fixture] {
    static FIXTURES: LazyLock<Vec<Fixture>> = LazyLock::new(load_all);
    &FIXTURES
}

pub(crate) fn find(path: &str) -> &'static Fixture {
    all().iter().find(|fixture| fixture.path == path).unwrap_or_else(|| panic!("no fixture {path}"))
}

fn load_all() -> Vec<Fixture> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut paths = Vec::new();
    list_files(&root, &mut paths);
    let mut fixtures: Vec<_> =
        paths.iter().filter(|path| !path.ends_with("README.md")).map(|path| load(&root, path)).collect();
    fixtures.sort_by(|a, b| a.path.cmp(&b.path));
    fixtures
}

fn list_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { list_files(&path, found) } else { found.push(path) }
    }
}

/// Loads a fixture. Fails if no metric reads the file, because then it tests nothing.
fn load(root: &Path, path: &Path) -> Fixture {
    let relative = path.strip_prefix(root).unwrap().to_str().unwrap();
    let (set, place) = relative.split_once('/').unwrap();
    let (file, path_labels) = fields()
        .find_map(|(file, _)| Some((file, labels_in(file, place)?)))
        .unwrap_or_else(|| panic!("{relative}: no metric of the catalogue reads this file"));
    let wanted = fields().filter(|(of, _)| *of == file).map(|(_, wanted)| wanted).collect();
    let text = fs::read_to_string(path).unwrap();
    Fixture { set: set.to_owned(), path: relative.to_owned(), text, file, path_labels, wanted }
}

fn fields() -> impl Iterator<Item = (&'static TextFile, Wanted)> {
    catalogue::all().flat_map(|metric| {
        metric.origins.iter().filter_map(move |origin| {
            let Origin::Text { file, field } = origin else { return None };
            Some((*file, Wanted { definition: Definition { metric, instance: None }, field: *field }))
        })
    })
}

/// Labels of the path, if `place` is the place of this file.
fn labels_in(file: &TextFile, place: &str) -> Option<Vec<(String, String)>> {
    let below = match file.hierarchy {
        Hierarchy::V2 => place.strip_prefix("v2/")?,
        Hierarchy::Proc => place.strip_prefix("proc/")?,
        Hierarchy::Sys => place.strip_prefix("sys/")?,
        Hierarchy::V1(controller) => {
            place.strip_prefix("v1/")?.strip_prefix(controller)?.strip_prefix('/')?
        }
    };
    file.path_labels_of(below)
}

impl Fixture {
    pub(crate) fn form(&self) -> Form {
        self.file.form
    }

    pub(crate) fn lines(&self) -> Vec<&str> {
        self.text.split_inclusive('\n').collect()
    }

    /// Values that the parser under test finds in the text.
    pub(crate) fn parsed(&self) -> Values {
        if self.path_labels.is_empty() {
            let parsed = parse(self.form(), self.text.as_bytes(), &self.wanted);
            return parsed
                .unwrap_or_else(|error| panic!("{}: {error}", self.path))
                .into_iter()
                .map(entry)
                .collect();
        }
        read(&mut self.layout(), self.text.as_bytes()).0
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout_of(&self.text)
    }

    pub(crate) fn layout_of(&self, text: &str) -> Layout {
        Layout::discover(self.form(), text.as_bytes(), &self.wanted, &self.path_labels)
            .unwrap_or_else(|error| panic!("{}: {error}", self.path))
    }
}

/// Values that `layout` finds in `text`, one for each of its slots.
pub(crate) fn read(layout: &mut Layout, text: &[u8]) -> (Values, Fit) {
    // A value of an earlier read must not pass for one of this read.
    let mut reading = Reading::absent(layout.slots().len());
    (0..).zip(layout.slots()).for_each(|(slot, _)| reading.set(slot, u64::MAX));
    let fit = layout.read(text, &mut reading);
    (layout.slots().iter().cloned().zip(reading.iter()).map(entry).collect(), fit)
}

fn entry((slot, value): (Slot, Option<u64>)) -> (String, Option<u64>) {
    (format!("{}{{{}}}", slot.definition.name(), slot.labels), value)
}

pub(crate) fn present(values: &Values) -> BTreeMap<&str, u64> {
    values.iter().filter_map(|(name, value)| Some((name.as_str(), (*value)?))).collect()
}
