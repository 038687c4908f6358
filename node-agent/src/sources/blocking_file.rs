//! The kind of files of one line whose reads may block.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use polymeter_proto::catalogue::{
    BLOCKING_FILE_KIND, Cell, Field, Hierarchy, LabelFile, Origin, RefreshUnit, Scale, TextFile,
};
use polymeter_proto::period::Period;
use polymeter_proto::series::{InvalidIdentifier, Labels};
use rustix::io::{Errno, pread};

use super::custom_source::CustomSource;
use super::kind::{Lane, OpenRequest, Opening, SourceKind};
use super::number;
use super::outcome::Outcome;
use super::path_pattern::Match;
use super::reading::Reading;
use super::refresh;
use super::slot::Slot;
use super::text_file_kind::{paths, watch_devices};

/// The largest text of such a file, in bytes: a dozen numbers, or one with its unit.
const TEXT_BYTES: usize = 256;

/// Files that block, by their directories.
pub(super) struct BlockingFileKind;

impl SourceKind for BlockingFileKind {
    fn name(&self) -> &'static str {
        BLOCKING_FILE_KIND
    }

    fn lane(&self) -> Lane {
        Lane::Slow
    }

    fn fields(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        let mut directories: BTreeMap<String, DirectorySource> = BTreeMap::new();
        for definition in &request.wanted {
            let mut found = BTreeSet::new();
            for origin in definition.metric.origins {
                let Origin::Text { file, field } = origin else { continue };
                for Match { path, relative, labels } in paths(request, file) {
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
                        let stated = stated_interval(file, &path);
                        let slot = Slot { definition: definition.clone(), labels };
                        source.add(path, *field, slot, stated);
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
        watch_devices(request, opening);
    }
}

/// Returns the name of the source that reads a file in the directory `parent`.
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

/// Returns the labels of a file: those of its path, and those from other files of its directory.
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
        if let Some(more) = text.map(with).filter(|more| Labels::new(more.clone()).is_ok()) {
            labels = more;
        }
    }
    Labels::new(labels)
}

/// Returns the file that states how often the hardware updates the values of the file at `path`, if there is one.
fn stated_interval(file: &TextFile, path: &Path) -> Option<(PathBuf, RefreshUnit)> {
    let stated = file.refresh_file?;
    let path = path.with_file_name(stated.name);
    path.exists().then_some((path, stated.unit))
}

/// Returns the text of a file without the white space around it; none if there is none.
fn read_line(path: &Path) -> Option<String> {
    let mut text = [0; TEXT_BYTES];
    let len = pread(File::open(path).ok()?, &mut text, 0).ok()?;
    let text = std::str::from_utf8(text.get(..len)?).ok()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The files of one directory, or of one directory of each device.
#[derive(Debug, Default)]
struct DirectorySource {
    files: Vec<ValueFile>,
    slots: Vec<Slot>,
    /// The time between two updates of the values by the hardware, if it is known.
    refresh_interval: Option<Period>,
}

/// A file of one line.
#[derive(Debug)]
struct ValueFile {
    path: PathBuf,
    /// The open file; none before the first read, because opening may block, too.
    file: Option<File>,
    values: Vec<Value>,
    /// The file that states how often the hardware updates the values, if there is one.
    stated: Option<(PathBuf, RefreshUnit)>,
}

/// A wanted value of a file.
#[derive(Debug)]
struct Value {
    slot: u32,
    /// Its word in the line, counted from 0.
    word: usize,
    scale: Scale,
    /// The time of the last measurement, as it was written, of values with [`Scale::Timed`].
    measured: Option<Vec<u8>>,
}

impl DirectorySource {
    fn add(&mut self, path: PathBuf, field: Field, slot: Slot, stated: Option<(PathBuf, RefreshUnit)>) {
        let word = match field.cell {
            Cell::Word(word) => word,
            Cell::Named(_) | Cell::Each(_) => 0,
        };
        let Ok(number) = u32::try_from(self.slots.len()) else { return };
        let value = Value { slot: number, word, scale: field.scale, measured: None };
        self.slots.push(slot);
        match self.files.iter_mut().find(|file| file.path == path) {
            Some(file) => file.values.push(value),
            None => self.files.push(ValueFile { path, file: None, values: vec![value], stated }),
        }
    }
}

impl CustomSource for DirectorySource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        // One of several files may fail alone, if a sensor is asleep or a counter is not supported: its value is
        // absent.
        let mut first_failure = None;
        let mut is_any = false;
        for file in &mut self.files {
            match file.read(reading) {
                Ok(()) => is_any = true,
                Err(outcome) => {
                    file.file = None;
                    first_failure.get_or_insert(outcome);
                }
            }
        }
        first_failure.filter(|_| !is_any).unwrap_or(Outcome::Read)
    }

    fn refresh_interval(&self) -> Option<Period> {
        self.refresh_interval
    }

    fn needs_preparation(&self) -> bool {
        self.files.iter().any(|file| file.stated.is_some())
    }

    /// Reads the refresh intervals. That of the source is the shortest of all files; none if one of them has none.
    fn prepare(&mut self) {
        let mut intervals: BTreeMap<&Path, Option<Period>> = BTreeMap::new();
        let of_files = self.files.iter().map(|file| {
            let (path, unit) = file.stated.as_ref()?;
            let read = || refresh::parse(&read_line(path)?, *unit);
            *intervals.entry(path).or_insert_with(read)
        });
        self.refresh_interval = of_files.min().flatten();
    }
}

impl ValueFile {
    /// Reads the values; those whose text is no number of their scale are absent.
    fn read(&mut self, reading: &mut Reading) -> Result<(), Outcome> {
        let of_io = |error: std::io::Error| {
            Outcome::of_error(error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error))
        };
        if self.file.is_none() {
            self.file = Some(File::open(&self.path).map_err(of_io)?);
        }
        let Some(file) = &self.file else { return Ok(()) };
        let mut text = [0; TEXT_BYTES];
        let len = pread(file, &mut text, 0).map_err(Outcome::of_error)?;
        for value in &mut self.values {
            if let Some(bits) = value.parse(text.get(..len).unwrap_or_default()) {
                reading.set(value.slot, bits);
            }
        }
        Ok(())
    }
}

impl Value {
    /// Returns the value in a text of one line; none if there is none, or if it was not measured since the last one.
    fn parse(&mut self, text: &[u8]) -> Option<u64> {
        let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let word = words.nth(self.word)?;
        let bits = number::parse(word, self.scale).ok().flatten()?;
        if self.scale == Scale::Timed {
            let time = word.split(|byte| *byte == b'@').nth(1);
            if time.is_some() && time == self.measured.as_deref() {
                return None;
            }
            self.measured = time.map(<[u8]>::to_vec);
        }
        Some(bits)
    }
}

#[cfg(test)]
mod tests {
    use polymeter_proto::catalogue::{self, Row};

    use super::*;

    fn field(word: usize, scale: Scale) -> Field {
        Field { row: Row::Only, cell: Cell::Word(word), scale }
    }

    fn source(root: &Path, files: &[(&str, Field)]) -> DirectorySource {
        let mut source = DirectorySource::default();
        for (name, field) in files {
            let definition = catalogue::find("node.hwmon.temperature").unwrap();
            source.add(root.join(name), *field, Slot { definition, labels: Labels::default() }, None);
        }
        source
    }

    fn parse(text: &[u8], scale: Scale) -> Option<u64> {
        Value { slot: 0, word: 0, scale, measured: None }.parse(text)
    }

    #[test]
    fn scales_values() {
        assert_eq!(parse(b"12\n", Scale::Times(4)), Some(48));
        assert_eq!(parse(b"45500\n", Scale::Per(1000)), Some(45.5_f64.to_bits()));
        assert_eq!(parse(b"-5250\n", Scale::Per(1000)), Some((-5.25_f64).to_bits()));
        assert_eq!(parse(b"4: ACTIVE\n", Scale::Until(':')), Some(4));
        assert_eq!(
            parse(b"2.5 Gb/sec (1X SDR)\n", Scale::DecimalTimes(125_000_000)),
            Some(312_500_000_f64.to_bits())
        );
        assert_eq!(parse(b"", Scale::Times(1)), None);
        assert_eq!(parse(b"N/A (no PMA)\n", Scale::Times(1)), None);
        assert_eq!(parse(b"18446744073709551615\n", Scale::Times(4)), None);
    }

    #[test]
    fn a_value_that_was_not_measured_again_is_absent() {
        let mut value = Value { slot: 0, word: 0, scale: Scale::Timed, measured: None };
        let mut parse = |text: &str| value.parse(text.as_bytes());
        assert_eq!(parse("27399@1711476022.512340\n"), Some(27_399));
        assert_eq!(parse("27399@1711476022.512340\n"), None);
        assert_eq!(parse("27399@1711476023.512340\n"), Some(27_399), "measured again");
        assert_eq!(parse("12@1711476024.1\n"), Some(12), "after a reset of the device");
        assert_eq!(parse("x@1711476025.1\n"), None);
        assert_eq!([parse("13\n"), parse("13\n")], [Some(13); 2], "without a time all are new");
    }

    #[test]
    fn a_line_may_have_several_values() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("stats"), "1 44 0 20213 20239 0 0 3098120 3197864 0 0\n").unwrap();
        let fields = [3, 0, 11].map(|word| ("stats", field(word, Scale::Times(1))));
        let mut source = source(root.path(), &fields);
        assert_eq!(source.files.len(), 1);
        let mut reading = Reading::absent(3);
        assert_eq!(source.read(&mut reading), Outcome::Read);
        assert_eq!(reading.iter().collect::<Vec<_>>(), [Some(20_213), Some(1), None]);
    }

    #[test]
    fn a_file_that_fails_alone_is_absent() {
        let root = tempfile::tempdir().unwrap();
        let mut source =
            source(root.path(), &[("a", field(0, Scale::Times(1))), ("b", field(0, Scale::Times(2)))]);
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
}
