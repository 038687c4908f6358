//! BeeGFS file systems: the servers count the operations of this node, and `beegfs-ctl` asks them. The client
//! itself counts nothing. The program must run as root, and each reading asks all servers.

mod client_stats;
mod fields;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use polymeter_proto::catalogue::Definition;
use polymeter_proto::period::Period;
use polymeter_proto::series::Labels;
use rustix::io::Errno;

use super::child_process::Program;
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
use client_stats::{addresses, sums};
use fields::{FIELDS, Servers, counters_of};

pub(super) use client_stats::check;

const KIND: &str = "beegfs";

/// Places of the program, below the root directory.
const PROGRAMS: [&str; 2] = ["usr/bin/beegfs-ctl", "opt/beegfs/sbin/beegfs-ctl"];

const ANSWER_NS: u64 = 30_000_000_000;

/// Longest answer, in bytes: that of some 10,000 clients.
const ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// Bound of the clients of this node: one for each mount.
const CLIENTS_MAX: usize = 64;

pub(super) struct BeegfsKind;

impl SourceKind for BeegfsKind {
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
        let Some(table) = opening.mount_table(request) else { return };
        let found = of_beegfs(table.mounts());
        opening.push(format!("{KIND}/mounts"), Source::Custom(Box::new(MountWatch::new(table, of_beegfs))));
        let mut programs = PROGRAMS.iter().map(|program| mounts.root.join(program));
        let reason = match (found.is_empty(), programs.find(|program| program.exists())) {
            (true, _) => "no BeeGFS file system is mounted".to_owned(),
            (false, None) => format!("{} does not exist", mounts.root.join(PROGRAMS[0]).display()),
            (false, Some(program)) => {
                let clients = mounts.proc.join("fs/beegfs");
                for (mount, servers) in
                    found.iter().flat_map(|mount| Servers::ALL.map(|servers| (mount, servers)))
                {
                    let source = BeegfsSource::new(mount, servers, &request.wanted, &program, &clients);
                    if !source.slots.is_empty() {
                        let name = format!("{KIND}/{}{}", servers.name(), mount.point);
                        opening.push_custom(name, Box::new(source));
                    }
                }
                return;
            }
        };
        opening.unavailable_all(&request.wanted, &reason);
    }
}

fn of_beegfs(mounts: Vec<Mount>) -> Vec<Mount> {
    visible(mounts).into_iter().filter(|mount| mount.fs_type == "beegfs").collect()
}

/// Counts of one type of servers for one mount.
#[derive(Debug)]
struct BeegfsSource {
    program: Program,
    arguments: Vec<OsString>,
    /// Directory of the clients of this node, one for each mount.
    clients: PathBuf,
    slots: Vec<Slot>,
    counters: Vec<&'static str>,
    unknown: UnknownLines,
}

impl BeegfsSource {
    fn new(mount: &Mount, servers: Servers, wanted: &[Definition], program: &Path, clients: &Path) -> Self {
        let mut source = Self {
            program: Program::new(program.to_owned(), ANSWER_NS, ANSWER_BYTES),
            arguments: arguments(mount, servers),
            clients: clients.to_owned(),
            slots: Vec::new(),
            counters: Vec::new(),
            unknown: UnknownLines::default(),
        };
        for definition in wanted {
            for (counter, operation) in counters_of(definition.metric.field_of(KIND), servers) {
                let labels = [("mount", mount.point.as_str())].into_iter();
                let labels = labels.chain(operation.map(|operation| ("operation", operation)));
                let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
                // A name that is no valid label has no series.
                if let Ok(labels) = Labels::escaped(labels.collect()) {
                    source.slots.push(Slot { definition: definition.clone(), labels });
                    source.counters.push(counter);
                }
            }
        }
        source
    }

    /// Addresses of this node, by which the servers count.
    fn addresses(&self) -> BTreeSet<String> {
        let clients = fs::read_dir(&self.clients).into_iter().flatten().flatten().take(CLIENTS_MAX);
        let texts = clients.filter_map(|client| kernel_text::text(&client.path().join("client_info")).ok());
        texts.flat_map(|text| addresses(&text).collect::<Vec<_>>()).collect()
    }
}

/// Asks for the counts of all clients since the servers began: the program can choose one client by a single
/// address only.
fn arguments(mount: &Mount, servers: Servers) -> Vec<OsString> {
    let fixed = ["--clientstats", "--allstats", "--rwunit=B", "--interval=0"].map(str::to_owned);
    let own = [format!("--nodetype={}", servers.node_type()), format!("--mount={}", mount.point)];
    fixed.into_iter().chain(own).map(OsString::from).collect()
}

impl CustomSource for BeegfsSource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn unknown_lines(&self) -> UnknownLines {
        self.unknown.clone()
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        let addresses = self.addresses();
        if addresses.is_empty() {
            return Outcome::Retry(Errno::NODATA);
        }
        let output = match self.program.output(&self.arguments) {
            Ok(output) => output,
            Err(outcome) => return outcome,
        };
        let text = String::from_utf8_lossy(&output);
        self.unknown = client_stats::unknown(&text);
        // Servers that were started since this node used them do not know it.
        let sums = sums(&text, &addresses).unwrap_or_default();
        for (slot, counter) in (0..).zip(&self.counters) {
            match sums.get(counter) {
                Some(count) => reading.set(slot, *count),
                // Not all versions have the same counters.
                None => reading.set_lacking(slot),
            }
        }
        Outcome::Read
    }

    /// The servers answer at once, but each answer is about all clients.
    fn refresh_interval(&self) -> Option<Period> {
        Some(Period::TEN_SECONDS)
    }
}

#[cfg(test)]
mod tests;
