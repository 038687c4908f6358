//! GPFS (IBM Storage Scale) file systems: statistics of the client. A process of `mmpmon`, which must run as
//! root, asks the daemon of GPFS.

mod process;
mod response;

use polymeter_proto::catalogue::Definition;
use polymeter_proto::series::Labels;

use super::custom_source::CustomSource;
use super::kind::{Lane, OpenRequest, Opening, SourceKind};
use super::mount_table::{Mount, MountWatch, visible};
use super::outcome::Outcome;
use super::reading::Reading;
use super::slot::Slot;
use super::source::Source;
use super::target::Target;
use super::unknown_lines::UnknownLines;
use process::Process;
use response::KEYS;

pub(super) use response::check;

const KIND: &str = "gpfs";

/// Path below the root directory.
const PROGRAM: &str = "usr/lpp/mmfs/bin/mmpmon";

const ANSWER_NS: u64 = 30_000_000_000;

/// Fields of the catalogue, in the order of [`KEYS`].
const FIELDS: [&str; KEYS.len()] =
    ["read_bytes", "write_bytes", "opens", "closes", "reads", "writes", "readdirs", "inode_updates"];

pub(super) struct GpfsKind;

impl SourceKind for GpfsKind {
    fn name(&self) -> &'static str {
        KIND
    }

    fn lane(&self) -> Lane {
        Lane::Slow
    }

    fn fields(&self) -> Vec<&'static str> {
        FIELDS.into()
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        if !matches!(request.target, Target::Node(_)) {
            return;
        }
        let mounts = request.host.mounts;
        let Some(table) = opening.mount_table(request) else { return };
        let found = of_gpfs(table.mounts());
        opening.push(format!("{KIND}/mounts"), Source::Custom(Box::new(MountWatch::new(table, of_gpfs))));
        let program = mounts.root.join(PROGRAM);
        let reason = match (found.is_empty(), program.exists()) {
            (true, _) => "no GPFS file system is mounted".to_owned(),
            (_, false) => format!("{} does not exist", program.display()),
            _ => {
                let process = Process::new(program, vec!["-p".into(), "-s".into()], ANSWER_NS);
                let source = GpfsSource::new(&found, &request.wanted, process);
                return opening.push_custom(KIND.to_owned(), Box::new(source));
            }
        };
        opening.unavailable_all(&request.wanted, &reason);
    }
}

/// Mounts of GPFS, each file system once.
fn of_gpfs(mounts: Vec<Mount>) -> Vec<Mount> {
    visible(mounts).into_iter().filter(|mount| mount.fs_type == "gpfs").collect()
}

/// Name of a file system. Its mount has it with or without the directory of devices.
fn name_of(mount: &Mount) -> &str {
    mount.source.strip_prefix("/dev/").unwrap_or(&mount.source)
}

#[derive(Debug)]
struct GpfsSource {
    process: Process,
    slots: Vec<Slot>,
    values: Vec<(String, usize)>,
    unknown: UnknownLines,
}

impl GpfsSource {
    fn new(mounts: &[Mount], wanted: &[Definition], process: Process) -> Self {
        let unknown = UnknownLines::default();
        let mut source = Self { process, slots: Vec::new(), values: Vec::new(), unknown };
        for mount in mounts {
            let name = name_of(mount);
            let labels = [("filesystem", name), ("mount", mount.point.as_str())];
            let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
            // A name that is no valid label has no series.
            let Ok(labels) = Labels::escaped(labels.into()) else { continue };
            for definition in wanted {
                let field = definition.metric.field_of(KIND);
                if let Some(counter) = FIELDS.iter().position(|known| field == Some(*known)) {
                    source.slots.push(Slot { definition: definition.clone(), labels: labels.clone() });
                    source.values.push((name.to_owned(), counter));
                }
            }
        }
        source
    }
}

impl CustomSource for GpfsSource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn unknown_lines(&self) -> UnknownLines {
        self.unknown.clone()
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        let answer = match self.process.ask() {
            Ok(answer) => answer,
            Err(outcome) => return outcome,
        };
        let answer = String::from_utf8_lossy(&answer);
        self.unknown =
            response::unknown(&answer, |name| self.values.iter().any(|(mounted, _)| mounted == name));
        for found in response::file_systems(&answer) {
            for (slot, (name, counter)) in (0..).zip(&self.values) {
                if name == found.name
                    && let Some(bits) = found.counters.get(*counter).copied().flatten()
                {
                    reading.set(slot, bits);
                }
            }
        }
        Outcome::Read
    }
}

#[cfg(test)]
mod tests;
