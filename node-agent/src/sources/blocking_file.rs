//! Kind of files of one line, or of a few short ones, whose reads may block.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use polymeter_proto::catalogue::{
    BLOCKING_FILE_KIND, Field, Hierarchy, LabelFile, Origin, RefreshUnit, TextFile,
};
use polymeter_proto::period::Period;
use polymeter_proto::series::{InvalidIdentifier, Labels};
use rustix::io::pread;

use super::custom_source::CustomSource;
use super::kernel_text;
use super::kind::{Lane, OpenRequest, Opening, SourceKind};
use super::outcome::Outcome;
use super::path_pattern::{Match, Matches};
use super::reading::Reading;
use super::refresh;
use super::slot::Slot;
use super::text_file_kind::{paths, watch_files};
use super::value_file::{TEXT_BYTES, Value, ValueFile};

/// Files whose reads may block. Those of one directory share a source.
pub(super) struct BlockingFileKind;

impl SourceKind for BlockingFileKind {
    fn name(&self) -> &'static str {
        BLOCKING_FILE_KIND
    }

    fn lane(&self) -> Lane {
        Lane::Slow
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        let mut directories: BTreeMap<String, DirectorySource> = BTreeMap::new();
        for definition in &request.wanted {
            let mut found = BTreeSet::new();
            for origin in definition.metric.origins {
                let Origin::Text { file, field } = origin else { continue };
                let Matches { found: matches, passed_over } = paths(request, file);
                if let Some(reason) = passed_over {
                    opening.unavailable(definition.clone(), reason);
                }
                for Match { path, relative, labels } in matches {
                    // A path without wildcards matches without being there.
                    if !path.exists() {
                        continue;
                    }
                    let (Some((parent, _)), Ok(labels)) =
                        (relative.rsplit_once('/'), all_labels(file, &path, labels))
                    else {
                        continue;
                    };
                    // Of several origins the first counts.
                    if found.insert(labels.clone()) {
                        let source = directories.entry(source_name(file, parent)).or_default();
                        source.add(file, path, *field, Slot { definition: definition.clone(), labels });
                    }
                }
            }
            if found.is_empty() {
                opening.unavailable(definition.clone(), "this node has no such device".to_owned());
            }
        }
        for (name, source) in directories {
            opening.push_custom(name, Box::new(source));
        }
        watch_files(request, opening);
    }
}

fn source_name(file: &TextFile, parent: &str) -> String {
    let hierarchy = match file.hierarchy {
        Hierarchy::Proc => "proc",
        Hierarchy::Sys | Hierarchy::V1(_) | Hierarchy::V2 => "sys",
    };
    match file.path.rsplit_once('/') {
        Some((pattern, _)) if file.is_joined => format!("{hierarchy}/{pattern}"),
        Some(_) | None => format!("{hierarchy}/{parent}"),
    }
}

fn all_labels(
    file: &TextFile,
    path: &Path,
    mut labels: Vec<(String, String)>,
) -> Result<Labels, InvalidIdentifier> {
    let matched = labels.last().map(|(_, value)| value.clone()).unwrap_or_default();
    for LabelFile { label, name } in file.label_files {
        let path = path.with_file_name(name.replace('*', &matched));
        let text = read_line(&path);
        let with =
            |text: String| labels.iter().cloned().chain([((*label).to_owned(), text)]).collect::<Vec<_>>();
        // A text that is no valid label is left out.
        if let Some(more) = text.map(with).filter(|more| Labels::escaped(more.clone()).is_ok()) {
            labels = more;
        }
    }
    Labels::escaped(labels)
}

/// Finds the file that states how often the hardware updates the values of the file at `path`.
fn stated_interval(file: &TextFile, path: &Path) -> Option<(PathBuf, RefreshUnit)> {
    let stated = file.refresh_file?;
    let path = path.with_file_name(stated.name);
    path.exists().then_some((path, stated.unit))
}

fn read_line(path: &Path) -> Option<String> {
    let mut text = [0; TEXT_BYTES];
    let len = pread(kernel_text::open(path).ok()?, &mut text, 0).ok()?;
    let text = std::str::from_utf8(text.get(..len)?).ok()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Files of one directory, or of one directory of each device.
#[derive(Debug, Default)]
struct DirectorySource {
    files: Vec<ValueFile>,
    slots: Vec<Slot>,
    refresh_interval: Option<Period>,
    longest_gap_ns: Option<u64>,
}

impl DirectorySource {
    fn add(&mut self, of: &TextFile, path: PathBuf, field: Field, slot: Slot) {
        let (stated, is_instance) = (stated_interval(of, &path), of.path.contains('*'));
        self.longest_gap_ns =
            self.longest_gap_ns.into_iter().chain(of.longest_gap.map(Period::as_nanos)).min();
        let Ok(number) = u32::try_from(self.slots.len()) else { return };
        let value = Value::new(number, field);
        self.slots.push(slot);
        match self.files.iter_mut().find(|file| file.path == path) {
            Some(file) => file.push(value),
            None => self.files.push(ValueFile::new(path, value, stated, is_instance)),
        }
    }
}

impl CustomSource for DirectorySource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        // One of several files may fail alone, if a sensor is asleep: its value is absent.
        let mut first_failure = None;
        let mut is_any = false;
        for file in &mut self.files {
            match file.read(reading) {
                Ok(()) => is_any = true,
                Err(outcome) => {
                    first_failure.get_or_insert(outcome);
                }
            }
        }
        first_failure.filter(|_| !is_any).unwrap_or(Outcome::Read)
    }

    fn refresh_interval(&self) -> Option<Period> {
        self.refresh_interval
    }

    fn longest_gap_ns(&self) -> Option<u64> {
        self.longest_gap_ns
    }

    fn needs_preparation(&self) -> bool {
        self.files.iter().any(|file| file.stated.is_some())
    }

    /// Reads the refresh intervals: the source has the shortest of them, or none if any file lacks one.
    fn prepare(&mut self) {
        let mut intervals: BTreeMap<&Path, Option<Period>> = BTreeMap::new();
        let of_files = self.files.iter().map(|file| {
            let (path, unit) = file.stated.as_ref()?;
            *intervals.entry(path).or_insert_with(|| refresh::parse(&read_line(path)?, *unit))
        });
        self.refresh_interval = of_files.min().flatten();
    }
}

#[cfg(test)]
mod tests {
    use polymeter_proto::catalogue::{self, Cell, Row, Scale};

    use super::*;

    fn file_of(metric: &str) -> &'static TextFile {
        let origins = catalogue::find(metric).unwrap().metric.origins;
        origins
            .iter()
            .find_map(|origin| match origin {
                Origin::Text { file, .. } => Some(*file),
                Origin::Perf(_) | Origin::Source(_) => None,
            })
            .unwrap()
    }

    fn single() -> &'static TextFile {
        file_of("node.cray.power")
    }

    fn field(word: usize, scale: Scale) -> Field {
        Field { row: Row::Only, cell: Cell::Word(word), scale }
    }

    fn source(of: &TextFile, root: &Path, files: &[(&str, Field)]) -> DirectorySource {
        let mut source = DirectorySource::default();
        for (name, field) in files {
            let definition = catalogue::find("node.hwmon.temperature").unwrap();
            source.add(of, root.join(name), *field, Slot::unlabelled(definition));
        }
        source
    }

    #[test]
    fn a_line_may_have_several_values() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("stats"), "1 44 0 20213 20239 0 0 3098120 3197864 0 0\n").unwrap();
        let fields = [3, 0, 11].map(|word| ("stats", field(word, Scale::Times(1))));
        let mut source = source(single(), root.path(), &fields);
        assert_eq!(source.files.len(), 1);
        let mut reading = Reading::absent(3);
        assert_eq!(source.read(&mut reading), Outcome::Read);
        assert_eq!(reading.iter().collect::<Vec<_>>(), [Some(20_213), Some(1), None]);
        assert!(!reading.is_lacking(2), "not one of several devices");
    }

    #[test]
    fn a_file_that_fails_alone_is_absent() {
        let root = tempfile::tempdir().unwrap();
        let mut source = source(
            single(),
            root.path(),
            &[("a", field(0, Scale::Times(1))), ("b", field(0, Scale::Times(2)))],
        );
        let mut read = || {
            let mut reading = Reading::absent(2);
            (source.read(&mut reading), [reading.get(0), reading.get(1)])
        };
        assert_eq!(read(), (Outcome::Gone, [None, None]));
        std::fs::write(root.path().join("b"), "21\n").unwrap();
        assert_eq!(read(), (Outcome::Read, [None, Some(42)]));
        std::fs::write(root.path().join("a"), "7\n").unwrap();
        std::fs::write(root.path().join("b"), "2222\n").unwrap();
        assert_eq!(read(), (Outcome::Read, [Some(7), Some(4444)]));
    }

    #[test]
    fn a_device_without_the_value_is_no_instance() {
        let root = tempfile::tempdir().unwrap();
        let names = ["eth0", "veth1", "eth2", "pma"];
        let fields = names.map(|name| (name, field(0, Scale::Times(1))));
        let source_of =
            |root: &Path, fields: &[(&str, Field)]| source(file_of("node.network.speed"), root, fields);
        let mut source = source_of(root.path(), &fields);
        let mut read = |texts: [Option<&str>; 4]| {
            for (name, text) in names.into_iter().zip(texts) {
                let path = root.path().join(name);
                match text {
                    Some(text) => std::fs::write(path, text).unwrap(),
                    None => drop(std::fs::remove_file(path)),
                }
            }
            let mut reading = Reading::absent(4);
            let outcome = source.read(&mut reading);
            (outcome, [0, 1, 2, 3].map(|slot| (reading.get(slot), reading.is_lacking(slot))))
        };
        let lacking = (None, true);
        // A link that is up, a virtual interface, one that was removed, an adapter without the counter.
        let texts = [Some("10000\n"), Some("-1\n"), None, Some("N/A (no PMA)\n")];
        assert_eq!(read(texts), (Outcome::Read, [(Some(10_000), false), lacking, lacking, lacking]));
        // The link goes down, another one comes up.
        let texts = [Some("-1\n"), Some("-1\n"), Some("25000\n"), Some("\n")];
        assert_eq!(read(texts), (Outcome::Read, [lacking, lacking, (Some(25_000), false), lacking]));
        assert_eq!(read([Some("-1\n"); 4]), (Outcome::Read, [lacking; 4]), "no reason to open it anew");
        for name in names {
            std::fs::remove_file(root.path().join(name)).unwrap();
        }
        let mut removed = source_of(root.path(), &fields);
        assert_eq!(removed.read(&mut Reading::absent(4)), Outcome::Gone);
    }

    #[test]
    fn energy_of_gpus_is_read_before_its_register_wraps_around() {
        let root = Path::new("/nowhere");
        let fields = [("temp1_input", field(0, Scale::Per(1000)))];
        assert_eq!(source(file_of("node.gpu.drm.temperature"), root, &fields).longest_gap_ns(), None);
        let mut both = source(file_of("node.gpu.drm.energy"), root, &fields);
        let definition = catalogue::find("node.gpu.drm.temperature").unwrap();
        let slot = Slot::unlabelled(definition);
        both.add(file_of("node.gpu.drm.temperature"), root.join("temp2_input"), fields[0].1, slot);
        assert_eq!(both.longest_gap_ns(), Some(240_000_000_000));
    }
}
