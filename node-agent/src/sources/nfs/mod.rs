//! NFS mounts: the client's statistics, `/proc/self/mountstats`. One read gives those of all mounts; it waits
//! while a file system is being mounted or unmounted.

mod mountstats;

use std::path::{Path, PathBuf};

use polymeter_proto::catalogue::Definition;
use polymeter_proto::series::Labels;
use rustix::io::Errno;

use super::custom_source::CustomSource;
use super::kernel_text;
use super::kind::{Lane, OpenRequest, Opening, SourceKind};
use super::mount_table::{Mount, MountWatch, visible};
use super::outcome::Outcome;
use super::reading::Reading;
use super::slot::Slot;
use super::source::Source;
use super::target::Target;
use super::unknown_lines::UnknownLines;
pub(super) use mountstats::check;
use mountstats::{OPERATIONS, Section, Transport, number};

const KIND: &str = "nfs";

const MOUNTS_MAX: usize = 32;

const MS_NS: u64 = 1_000_000;

#[derive(Debug, Clone, Copy)]
enum Place {
    /// A column of the line of bytes.
    Bytes(usize),
    /// A column of the line of events.
    Event(usize),
    Transport(fn(&Transport) -> Option<u64>),
    /// A column of the line of each operation, and its factor.
    Operation(usize, u64),
}

/// Fields of the catalogue. The columns of events are those of `enum nfs_stat_eventcounters` in
/// `include/linux/nfs_iostat.h`.
const FIELDS: [(&str, Place); 30] = [
    ("read_bytes", Place::Bytes(0)),
    ("write_bytes", Place::Bytes(1)),
    ("direct_read_bytes", Place::Bytes(2)),
    ("direct_write_bytes", Place::Bytes(3)),
    ("server_read_bytes", Place::Bytes(4)),
    ("server_write_bytes", Place::Bytes(5)),
    ("read_pages", Place::Bytes(6)),
    ("write_pages", Place::Bytes(7)),
    ("data_invalidations", Place::Event(2)),
    ("attribute_invalidations", Place::Event(3)),
    ("opens", Place::Event(4)),
    ("fsyncs", Place::Event(15)),
    ("silly_renames", Place::Event(21)),
    ("short_reads", Place::Event(22)),
    ("short_writes", Place::Event(23)),
    ("delays", Place::Event(24)),
    ("connects", Place::Transport(|transport| transport.connects)),
    ("sends", Place::Transport(|transport| Some(transport.sends))),
    ("receives", Place::Transport(|transport| Some(transport.receives))),
    ("bad_xids", Place::Transport(|transport| Some(transport.bad_xids))),
    ("backlog", Place::Transport(|transport| Some(transport.backlog))),
    ("operations", Place::Operation(0, 1)),
    ("transmissions", Place::Operation(1, 1)),
    ("timeouts", Place::Operation(2, 1)),
    ("sent_bytes", Place::Operation(3, 1)),
    ("received_bytes", Place::Operation(4, 1)),
    ("queue_time", Place::Operation(5, MS_NS)),
    ("response_time", Place::Operation(6, MS_NS)),
    ("execution_time", Place::Operation(7, MS_NS)),
    ("errors", Place::Operation(8, 1)),
];

pub(super) struct NfsKind;

impl SourceKind for NfsKind {
    fn name(&self) -> &'static str {
        KIND
    }

    fn lane(&self) -> Lane {
        Lane::Slow
    }

    fn fields(&self) -> Vec<&'static str> {
        FIELDS.iter().map(|(field, _)| *field).collect()
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        if !matches!(request.target, Target::Node(_)) {
            return;
        }
        let proc = &request.host.mounts.proc;
        let Some(table) = opening.mount_table(request) else { return };
        let mut mounts = of_nfs(table.mounts());
        opening.push(format!("{KIND}/mounts"), Source::Custom(Box::new(MountWatch::new(table, of_nfs))));
        if mounts.is_empty() {
            return opening.unavailable_all(&request.wanted, "no NFS file system is mounted");
        }
        opening.limit(&mut mounts, MOUNTS_MAX, "NFS mounts", &request.wanted);
        let mut source = NfsSource::new(proc, &mounts, &request.wanted);
        source.keep_present();
        opening.push_custom(KIND.to_owned(), Box::new(source));
    }
}

/// Mounts of NFS, each file system once.
fn of_nfs(mounts: Vec<Mount>) -> Vec<Mount> {
    visible(mounts).into_iter().filter(|mount| ["nfs", "nfs4"].contains(&mount.fs_type.as_str())).collect()
}

#[derive(Debug)]
struct Value {
    slot: u32,
    place: Place,
    /// Name of the operation; `None` for numbers of the whole mount.
    operation: Option<&'static str>,
}

#[derive(Debug)]
struct NfsSource {
    path: PathBuf,
    slots: Vec<Slot>,
    mounts: Vec<(String, Vec<Value>)>,
    unknown: UnknownLines,
}

impl NfsSource {
    fn new(proc: &Path, mounts: &[Mount], wanted: &[Definition]) -> Self {
        let mut source = Self {
            path: proc.join("self/mountstats"),
            slots: Vec::new(),
            mounts: Vec::new(),
            unknown: UnknownLines::default(),
        };
        for mount in mounts {
            let mut values = Vec::new();
            for definition in wanted {
                let Some(place) = place_of(definition) else { continue };
                let operations: Vec<Option<&'static str>> = match place {
                    Place::Operation(..) => OPERATIONS.map(Some).into(),
                    Place::Bytes(_) | Place::Event(_) | Place::Transport(_) => vec![None],
                };
                for operation in operations {
                    values.extend(source.add(mount, definition, place, operation));
                }
            }
            source.mounts.push((mount.point.clone(), values));
        }
        source
    }

    /// Keeps only the values that each mount has: its version of NFS has some of the operations, and its
    /// transport may have no connections. The kernel waits here for the lock that it also takes to list
    /// mounts.
    fn keep_present(&mut self) {
        let mut reading = Reading::absent(self.slots.len());
        self.read(&mut reading);
        let all = std::mem::take(&mut self.slots);
        for (_, values) in &mut self.mounts {
            let is_known = values.iter().any(|value| reading.get(value.slot).is_some());
            values.retain_mut(|value| {
                let slot =
                    all.get(value.slot as usize).filter(|_| !is_known || reading.get(value.slot).is_some());
                let (Some(slot), Ok(number)) = (slot, u32::try_from(self.slots.len())) else { return false };
                value.slot = number;
                self.slots.push(slot.clone());
                true
            });
        }
    }

    /// Adds a slot; `None` if a name is no valid label.
    fn add(
        &mut self,
        mount: &Mount,
        definition: &Definition,
        place: Place,
        operation: Option<&'static str>,
    ) -> Option<Value> {
        let labels = [("mount", mount.point.as_str()), ("export", mount.source.as_str())];
        let labels = labels.into_iter().chain(operation.map(|operation| ("operation", operation)));
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let slot = u32::try_from(self.slots.len()).ok()?;
        self.slots.push(Slot { definition: definition.clone(), labels: Labels::escaped(labels).ok()? });
        Some(Value { slot, place, operation })
    }
}

fn place_of(definition: &Definition) -> Option<Place> {
    let name = definition.metric.field_of(KIND)?;
    FIELDS.into_iter().find(|(field, _)| *field == name).map(|(_, place)| place)
}

impl CustomSource for NfsSource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn unknown_lines(&self) -> UnknownLines {
        self.unknown.clone()
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        let text = match kernel_text::bytes(&self.path) {
            Ok(text) => text,
            Err(error) => {
                let errno = error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
                return Outcome::of_error(errno);
            }
        };
        let text = String::from_utf8_lossy(&text);
        self.unknown = mountstats::unknown(&text);
        let sections = mountstats::sections(&text);
        for (point, values) in &self.mounts {
            // The last mount on a directory hides earlier ones. One that is gone has no values; the watch of
            // mounts reports it.
            if let Some(section) = sections.iter().rfind(|section| section.point == *point) {
                set(section, values, reading);
            }
        }
        Outcome::Read
    }
}

fn set(section: &Section<'_>, values: &[Value], reading: &mut Reading) {
    let transport = section.transport();
    for value in values {
        let bits = match value.place {
            Place::Bytes(column) => section.bytes(column),
            Place::Event(column) => section.event(column),
            Place::Transport(part) => transport.as_ref().and_then(part),
            Place::Operation(..) => None,
        };
        if let Some(bits) = bits {
            reading.set(value.slot, bits);
        }
    }
    for (operation, numbers) in section.operations().filter(|(operation, _)| OPERATIONS.contains(operation)) {
        for value in values.iter().filter(|value| value.operation == Some(operation)) {
            let Place::Operation(column, factor) = value.place else { continue };
            if let Some(bits) = number(numbers, column).and_then(|number| number.checked_mul(factor)) {
                reading.set(value.slot, bits);
            }
        }
    }
}

#[cfg(test)]
mod tests;
