//! Lustre's statistics: those of the client, by mount, and those of a server's targets.
//!
//! Places: `/sys/kernel/debug/lustre/llite/*/stats` since Lustre 2.12, `/proc/fs/lustre/llite/*/stats`
//! before; `obdfilter/*/stats` (OST) and `mdt/*/md_stats` (MDT) in the same directories of servers. A read
//! sums counters of all CPUs.

mod fields;
mod job_stats;
mod stats;

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use polymeter_proto::catalogue::Definition;
use polymeter_proto::series::Labels;
use rustix::io::Errno;

use super::custom_source::CustomSource;
use super::kernel_text;
use super::kind::{Lane, OpenRequest, Opening, SourceKind};
use super::mount_table::{Mount, MountTable};
use super::outcome::Outcome;
use super::path_pattern::PatternWatch;
use super::reading::Reading;
use super::slot::Slot;
use super::source::Source;
use super::target::Target;
use super::unknown_lines::UnknownLines;
use crate::cgroups::Mounts;
use fields::{FIELDS, Field, KIND, OPERATIONS, Part, Role, field_of};
use stats::Line;

pub(super) use job_stats::LustreJobsKind;
pub(super) use stats::check;

/// Bound of the files that are read: a server has a few dozen targets.
const FILES_MAX: usize = 64;

const TEXT_BYTES: u64 = 64 * 1024;

/// Files, as patterns below [`directories`].
const PATTERNS: [(Role, &str, &str); 3] = [
    (Role::Client, "llite", "stats"),
    (Role::Target, "obdfilter", "stats"),
    (Role::Target, "mdt", "md_stats"),
];

pub(super) struct LustreKind;

impl SourceKind for LustreKind {
    fn name(&self) -> &'static str {
        KIND
    }

    fn lane(&self) -> Lane {
        Lane::Slow
    }

    fn fields(&self) -> Vec<&'static str> {
        FIELDS.iter().map(|field| field.name).collect()
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        if !matches!(request.target, Target::Node(_)) {
            return;
        }
        let mounts = request.host.mounts;
        for (name, directory) in directories(mounts) {
            let patterns = ["llite/*/stats", "obdfilter/*/stats", "mdt/*/md_stats"];
            let watch = PatternWatch::new(&directory, patterns.into());
            opening.push(format!("{KIND}/{name}"), Source::Custom(Box::new(watch)));
        }
        let Some(table) = opening.mount_table(request) else { return };
        let mut found = find(mounts, &table.mounts());
        opening.limit(&mut found, FILES_MAX, "files", &request.wanted);
        let mut source = LustreSource::new(found, &request.wanted, table, mounts.clone());
        source.keep_present();
        for definition in &request.wanted {
            if !source.slots.iter().any(|slot| slot.definition == *definition) {
                opening.unavailable(definition.clone(), "Lustre shows no such statistics here".to_owned());
            }
        }
        if !source.slots.is_empty() {
            opening.push_custom(KIND.to_owned(), Box::new(source));
        }
    }
}

/// Directories that may have statistics, the newest place first.
fn directories(mounts: &Mounts) -> [(&'static str, PathBuf); 2] {
    [("debugfs", mounts.sys().join("kernel/debug/lustre")), ("proc", mounts.proc.join("fs/lustre"))]
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct StatsFile {
    role: Role,
    path: PathBuf,
    labels: Vec<(String, String)>,
}

fn find(mounts: &Mounts, mounted: &[Mount]) -> Vec<StatsFile> {
    let mut found: Vec<(Role, String, PathBuf)> = Vec::new();
    for (_, directory) in directories(mounts) {
        for (role, kind, file) in PATTERNS {
            let entries = fs::read_dir(directory.join(kind)).into_iter().flatten().flatten();
            for name in entries.filter_map(|entry| entry.file_name().into_string().ok()) {
                let path = directory.join(kind).join(&name).join(file);
                let is_known = found.iter().any(|(of, known, _)| *of == role && *known == name);
                if !is_known && path.exists() {
                    found.push((role, name, path));
                }
            }
        }
    }
    found.sort_by(|a, b| a.1.cmp(&b.1));
    let clients: Vec<String> =
        found.iter().filter(|(role, ..)| *role == Role::Client).map(|(_, name, _)| name.clone()).collect();
    let mut files = Vec::new();
    for (role, name, path) in found {
        let labels = match role {
            Role::Client => client_labels(&name, &clients, mounted),
            Role::Target => vec![("target".to_owned(), name)],
        };
        files.push(StatsFile { role, path, labels });
    }
    files
}

/// Labels of a client's directory, `scratch-ffff8f0e2d4f1800`: the file system and its mount point. Two
/// mounts of one file system are told apart by the second part of the name.
fn client_labels(name: &str, clients: &[String], mounted: &[Mount]) -> Vec<(String, String)> {
    let (file_system, instance) = name.rsplit_once('-').unwrap_or((name, ""));
    let mut labels = vec![("filesystem".to_owned(), file_system.to_owned())];
    let file_systems = clients.iter().filter_map(|other| other.rsplit_once('-'));
    if file_systems.filter(|(other, _)| *other == file_system).count() > 1 {
        labels.push(("instance".to_owned(), instance.to_owned()));
    } else if let Some(mount) = mounted.iter().find(|mount| mounts_file_system(mount, file_system)) {
        labels.push(("mount".to_owned(), mount.point.clone()));
    }
    labels
}

/// True for a mount of this file system, whose source is `10.0.0.1@tcp:/scratch` or
/// `mgs1@o2ib:mgs2@o2ib:/scratch/home`.
fn mounts_file_system(mount: &Mount, file_system: &str) -> bool {
    let name = mount.source.rsplit_once(":/").map(|(_, path)| path.split('/').next().unwrap_or_default());
    mount.fs_type == "lustre" && name == Some(file_system)
}

#[derive(Debug)]
struct Value {
    slot: u32,
    line: &'static str,
    part: Part,
}

impl Value {
    fn of(&self, line: Line<'_>) -> Option<u64> {
        if self.line.as_bytes() != line.name {
            return None;
        }
        match self.part {
            Part::Samples => Some(line.samples),
            Part::Bytes => line.bytes(),
            Part::Time => line.time_ns(),
        }
    }
}

#[derive(Debug)]
struct FileValues {
    path: PathBuf,
    values: Vec<Value>,
    /// Values that the file does not have yet, and which have no slots: operations that have not occurred.
    missing: Vec<Value>,
}

#[derive(Debug)]
struct LustreSource {
    slots: Vec<Slot>,
    files: Vec<FileValues>,
    found: Vec<StatsFile>,
    table: MountTable,
    mounts: Mounts,
    unknown: UnknownLines,
}

impl LustreSource {
    fn new(found: Vec<StatsFile>, wanted: &[Definition], table: MountTable, mounts: Mounts) -> Self {
        let (mut slots, mut files) = (Vec::new(), Vec::new());
        for file in &found {
            let mut values = Vec::new();
            for definition in wanted {
                let Some(Field { role, line, part, .. }) = field_of(definition) else { continue };
                if role != file.role {
                    continue;
                }
                let operations: &[&'static str] = if line.is_some() { &[] } else { &OPERATIONS };
                for line in line.iter().chain(operations) {
                    let operation =
                        (!operations.is_empty()).then(|| ("operation".to_owned(), (*line).to_owned()));
                    let labels = Labels::escaped(file.labels.iter().cloned().chain(operation).collect());
                    // A name that is no valid label has no series.
                    if let (Ok(labels), Ok(slot)) = (labels, u32::try_from(slots.len())) {
                        slots.push(Slot { definition: definition.clone(), labels });
                        values.push(Value { slot, line, part });
                    }
                }
            }
            files.push(FileValues { path: file.path.clone(), values, missing: Vec::new() });
        }
        Self { slots, files, found, table, mounts, unknown: UnknownLines::default() }
    }

    /// Keeps only the slots of values that each file has, if it has any yet; when others appear, the source
    /// is opened anew. Reading these counters in memory does not wait for a server.
    fn keep_present(&mut self) {
        let mut reading = Reading::absent(self.slots.len());
        self.read(&mut reading);
        let all = std::mem::take(&mut self.slots);
        for FileValues { values, missing, .. } in &mut self.files {
            let is_known = values.iter().any(|value| reading.get(value.slot).is_some());
            let (present, others): (Vec<Value>, Vec<Value>) = std::mem::take(values)
                .into_iter()
                .partition(|value| !is_known || reading.get(value.slot).is_some());
            *missing = others;
            for value in present {
                if let (Some(slot), Ok(number)) =
                    (all.get(value.slot as usize), u32::try_from(self.slots.len()))
                {
                    values.push(Value { slot: number, ..value });
                    self.slots.push(slot.clone());
                }
            }
        }
    }

    /// True if a mount has changed the labels.
    fn is_outdated(&mut self) -> bool {
        self.table.has_changed() && {
            let mut found = find(&self.mounts, &self.table.mounts());
            found.truncate(FILES_MAX);
            found != self.found
        }
    }
}

impl CustomSource for LustreSource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn unknown_lines(&self) -> UnknownLines {
        self.unknown.clone()
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        let mut first_failure = None;
        let mut unknown = UnknownLines::default();
        let (mut is_any, mut has_more) = (false, false);
        for file in self.files.iter().filter(|file| !file.values.is_empty()) {
            match read_text(&file.path) {
                Ok(text) => {
                    is_any = true;
                    unknown.join(stats::unknown(&text, is_taken));
                    for line in stats::lines(&text) {
                        set(line, &file.values, reading);
                        has_more |= file.missing.iter().any(|value| value.of(line).is_some());
                    }
                }
                // One of several file systems may be unmounted.
                Err(error) => {
                    let errno = error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
                    first_failure.get_or_insert(Outcome::of_error(errno));
                }
            }
        }
        self.unknown = unknown;
        match first_failure {
            Some(outcome) if !is_any => outcome,
            _ if has_more || self.is_outdated() => Outcome::Changed,
            _ => Outcome::Read,
        }
    }
}

/// True for the names of the lines that some metric has.
fn is_taken(name: &[u8]) -> bool {
    let lines = FIELDS.iter().filter_map(|field| field.line);
    OPERATIONS.into_iter().chain(lines).any(|known| known.as_bytes() == name)
}

fn read_text(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    kernel_text::open(path)?.take(TEXT_BYTES).read_to_end(&mut text)?;
    Ok(text)
}

fn set(line: Line<'_>, values: &[Value], reading: &mut Reading) {
    for value in values {
        if let Some(bits) = value.of(line) {
            reading.set(value.slot, bits);
        }
    }
}

#[cfg(test)]
mod tests;
