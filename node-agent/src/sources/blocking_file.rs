//! The wanted counts of the agent.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use polymeter_proto::catalogue::{BLOCKING_FILE_KIND, Origin, Scale};
use polymeter_proto::series::Labels;
use rustix::io::{Errno, pread};

use super::custom_source::CustomSource;
use super::kind::{Lane, OpenRequest, Opening, SourceKind};
use super::number;
use super::outcome::Outcome;
use super::path_pattern::Match;
use super::reading::Reading;
use super::slot::Slot;
use super::text_file_kind::{paths, watch_devices};

/// The largest text of such a file, in bytes: one number with its unit.
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
        let mut directories: BTreeMap<(PathBuf, String), DirectorySource> = BTreeMap::new();
        for definition in &request.wanted {
            let mut is_found = false;
            for origin in definition.metric.origins {
                let Origin::Text { file, field } = origin else { continue };
                for Match { path, relative, labels } in paths(request, file) {
                    let (Some((parent, _)), Ok(labels)) = (relative.rsplit_once('/'), Labels::new(labels))
                    else {
                        continue;
                    };
                    let key = (path.parent().unwrap_or(Path::new("/")).to_owned(), format!("sys/{parent}"));
                    let source = directories.entry(key).or_default();
                    source.files.push(ValueFile { path, file: None, scale: field.scale });
                    source.slots.push(Slot { definition: definition.clone(), labels });
                    is_found = true;
                }
            }
            if !is_found {
                opening.unavailable(definition.clone(), "this node has no such device".to_owned());
            }
        }
        for ((_, name), source) in directories {
            opening.push_custom(name, Box::new(source));
        }
        watch_devices(request, opening);
    }
}

/// The files of one directory, one for each slot.
#[derive(Debug, Default)]
struct DirectorySource {
    files: Vec<ValueFile>,
    slots: Vec<Slot>,
}

/// A file with one value.
#[derive(Debug)]
struct ValueFile {
    path: PathBuf,
    /// The open file; none before the first read, because opening may block, too.
    file: Option<File>,
    scale: Scale,
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
        for (slot, file) in (0..).zip(&mut self.files) {
            match file.read() {
                Ok(value) => {
                    is_any = true;
                    if let Some(bits) = value {
                        reading.set(slot, bits);
                    }
                }
                Err(outcome) => {
                    file.file = None;
                    first_failure.get_or_insert(outcome);
                }
            }
        }
        first_failure.filter(|_| !is_any).unwrap_or(Outcome::Read)
    }
}

impl ValueFile {
    /// Reads the value; none if the text is no number of the file's scale.
    fn read(&mut self) -> Result<Option<u64>, Outcome> {
        let of_io = |error: std::io::Error| {
            Outcome::of_error(error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error))
        };
        if self.file.is_none() {
            self.file = Some(File::open(&self.path).map_err(of_io)?);
        }
        let Some(file) = &self.file else { return Ok(None) };
        let mut text = [0; TEXT_BYTES];
        let len = pread(file, &mut text, 0).map_err(Outcome::of_error)?;
        Ok(parse(text.get(..len).unwrap_or_default(), self.scale))
    }
}

/// Returns the value at the beginning of a text of one line.
fn parse(text: &[u8], scale: Scale) -> Option<u64> {
    let word = text.split(u8::is_ascii_whitespace).find(|word| !word.is_empty())?;
    number::parse(word, scale).ok().flatten()
}

#[cfg(test)]
mod tests {
    use polymeter_proto::catalogue;

    use super::*;

    fn source(root: &Path, files: &[(&str, Scale)]) -> DirectorySource {
        let slot = || Slot {
            definition: catalogue::find("node.hwmon.temperature").unwrap(),
            labels: Labels::default(),
        };
        let file =
            |(name, scale): &(&str, Scale)| ValueFile { path: root.join(name), file: None, scale: *scale };
        DirectorySource {
            files: files.iter().map(file).collect(),
            slots: files.iter().map(|_| slot()).collect(),
        }
    }

    #[test]
    fn scales_values() {
        assert_eq!(parse(b"12\n", Scale::Times(4)), Some(48));
        assert_eq!(parse(b"45500\n", Scale::Per(1000)), Some(45.5_f64.to_bits()));
        assert_eq!(parse(b"-5250\n", Scale::Per(1000)), Some((-5.25_f64).to_bits()));
        assert_eq!(parse(b"", Scale::Times(1)), None);
        assert_eq!(parse(b"N/A (no PMA)\n", Scale::Times(1)), None);
        assert_eq!(parse(b"18446744073709551615\n", Scale::Times(4)), None);
    }

    #[test]
    fn a_file_that_fails_alone_is_absent() {
        let root = tempfile::tempdir().unwrap();
        let mut source = source(root.path(), &[("a", Scale::Times(1)), ("b", Scale::Times(2))]);
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
