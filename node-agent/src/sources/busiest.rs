//! Busiest processes of a job, each with series of its own. Source: proc_pid_stat(5), proc_pid_io(5).
//!
//! The supervisor chooses them some times a minute ([`BusiestProcesses`]), and opens the job's sources anew
//! for a new one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use polymeter_proto::catalogue::Definition;

use super::busiest_processes::{BusiestProcesses, ProcessId, Selection};
use super::custom_source::CustomSource;
use super::kind::{Lane, OpenRequest, Opening, SourceKind};
use super::outcome::Outcome;
use super::process_files::{StatLine, parse_io, read_whole};
use super::reading::Reading;
use super::slot::Slot;
use super::source::Source;
use crate::clock;

const KIND: &str = "busiest";

const WATCH: &str = "busiest/watch";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    CpuTime,
    Resident,
    Threads,
    Io(&'static str),
}

const FIELDS: [(&str, Field); 5] = [
    ("cpu_usage", Field::CpuTime),
    ("resident", Field::Resident),
    ("threads", Field::Threads),
    ("read_bytes", Field::Io("read_bytes")),
    ("write_bytes", Field::Io("write_bytes")),
];

pub(super) struct BusiestKind;

impl SourceKind for BusiestKind {
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
        let host = request.host;
        let Some(busiest) = host.busiest.filter(|_| host.step.is_none()) else {
            return opening.unavailable_all(&request.wanted, "only for whole jobs");
        };
        if host.busiest_processes == 0 {
            return opening
                .unavailable_all(&request.wanted, "busiest_processes of the agent's configuration is 0");
        }
        let Some(processes) = opening.processes(request) else { return };
        let proc = &host.mounts.proc;
        let (source, version) = busiest.with(|choice| {
            choice.begin(processes);
            (Busiest::new(proc, choice.selection(), &request.wanted), choice.version())
        });
        if !source.slots.is_empty() {
            opening.push_custom(KIND.to_owned(), Box::new(source));
        }
        let (proc, busiest, limit) = (proc.clone(), Arc::clone(busiest), host.busiest_processes);
        let watch = BusiestWatch { proc, busiest, limit, version };
        opening.push(WATCH.to_owned(), Source::Custom(Box::new(watch)));
    }
}

/// A source without slots that reports when another process has been chosen.
#[derive(Debug)]
struct BusiestWatch {
    proc: PathBuf,
    busiest: Arc<BusiestProcesses>,
    limit: usize,
    /// Choice for which the sources are open.
    version: u64,
}

impl BusiestWatch {
    fn look(&self, now_ns: u64) -> Outcome {
        let version = self.busiest.with(|choice| {
            choice.choose(&self.proc, self.limit, now_ns);
            choice.version()
        });
        if version == self.version { Outcome::Read } else { Outcome::Changed }
    }
}

impl CustomSource for BusiestWatch {
    fn read(&mut self, _reading: &mut Reading) -> Outcome {
        self.look(clock::monotonic_ns())
    }
}

#[derive(Debug)]
struct Busiest {
    proc: PathBuf,
    slots: Vec<Slot>,
    /// Each with its first slot.
    processes: Vec<(ProcessId, u32)>,
    fields: Vec<Field>,
}

impl Busiest {
    fn new(proc: &Path, selection: &Selection, wanted: &[Definition]) -> Self {
        let wanted = wanted.iter().filter_map(|definition| {
            let name = definition.metric.field_of(KIND)?;
            let (_, field) = FIELDS.iter().find(|(field, _)| *field == name)?;
            Some((definition, *field))
        });
        let wanted: Vec<(&Definition, Field)> = wanted.collect();
        let (mut slots, mut processes) = (Vec::new(), Vec::new());
        for (id, labels) in selection.chosen() {
            processes.push((id, u32::try_from(slots.len()).unwrap_or(u32::MAX)));
            slots.extend(wanted.iter().map(|(definition, _)| Slot {
                definition: Definition::clone(definition),
                labels: labels.clone(),
            }));
        }
        let fields = wanted.into_iter().map(|(_, field)| field).collect();
        Self { proc: proc.to_owned(), slots, processes, fields }
    }
}

impl CustomSource for Busiest {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        reading.clear();
        let page = rustix::param::page_size() as u64;
        let needs_io = self.fields.iter().any(|field| matches!(field, Field::Io(_)));
        for (id, first) in &self.processes {
            let directory = self.proc.join(id.pid.to_string());
            let stat = StatLine::read(&directory).filter(|stat| stat.started() == id.started);
            let Some(stat) = stat else { continue };
            let io = needs_io.then(|| read_whole(&directory.join("io")).ok()).flatten();
            let io = io.unwrap_or_default();
            let io = String::from_utf8_lossy(&io);
            let io = parse_io(&io);
            for (slot, field) in (*first..).zip(&self.fields) {
                let value = match field {
                    Field::CpuTime => Some(stat.cpu_ns()),
                    Field::Resident => Some(stat.resident_pages().saturating_mul(page)),
                    Field::Threads => Some(stat.threads()),
                    Field::Io(name) => io(name),
                };
                if let Some(value) = value {
                    reading.set(slot, value);
                }
            }
        }
        Outcome::Read
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use polymeter_proto::catalogue;

    use super::*;
    use crate::sources::busiest_processes::CHOOSE_EVERY_NS;
    use crate::sources::process_list::ProcessList;

    fn write(proc: &Path, pid: u32, started: u64, ticks: u64) {
        let directory = proc.join(pid.to_string());
        fs::create_dir_all(&directory).unwrap();
        let line = format!("{pid} (a b) S 1 0 0 0 0 0 0 0 0 0 {ticks} 0 0 0 20 0 3 0 {started} 0 25 0");
        fs::write(directory.join("stat"), line).unwrap();
        fs::write(directory.join("io"), "read_bytes: 5\n").unwrap();
    }

    #[test]
    fn a_chosen_process_has_series_until_its_number_belongs_to_another() {
        let directory = tempfile::tempdir().unwrap();
        let (proc, job) = (directory.path().join("proc"), directory.path().join("job"));
        fs::create_dir_all(&job).unwrap();
        fs::write(job.join("cgroup.procs"), "7\n8\n").unwrap();
        write(&proc, 7, 1, 100);
        write(&proc, 8, 1, 99);
        let busiest = Arc::new(BusiestProcesses::default());
        busiest.with(|choice| choice.begin(ProcessList::Cgroup(job)));
        let watch = BusiestWatch { proc: proc.clone(), busiest: Arc::clone(&busiest), limit: 5, version: 0 };
        assert_eq!(watch.look(1), Outcome::Changed);
        write(&proc, 8, 1, 200);
        assert_eq!(watch.look(2), Outcome::Changed, "not opened anew so far");
        let wanted: Vec<Definition> = [
            "busiest.cpu.usage",
            "busiest.io.read.bytes",
            "busiest.io.write.bytes",
            "busiest.memory.resident",
        ]
        .map(|name| catalogue::find(name).unwrap())
        .into();
        let (mut source, version) =
            busiest.with(|choice| (Busiest::new(&proc, choice.selection(), &wanted), choice.version()));
        assert_eq!(source.slots[0].labels.to_string(), "comm=a b,pid=7,started=1");
        let watch = BusiestWatch { version, ..watch };
        assert_eq!(watch.look(3), Outcome::Read, "the next choice is later");
        let mut read = || {
            let mut reading = Reading::absent(4);
            assert_eq!(source.read(&mut reading), Outcome::Read);
            reading.iter().collect::<Vec<_>>()
        };
        let page = rustix::param::page_size() as u64;
        assert_eq!(read(), [Some(1_000_000_000), Some(5), None, Some(25 * page)]);
        write(&proc, 7, 2, 500);
        assert_eq!(read(), [None; 4]);
        assert_eq!(watch.look(1 + CHOOSE_EVERY_NS), Outcome::Changed);
        busiest.with(|choice| assert_eq!(choice.selection().chosen().count(), 2));
    }

    #[test]
    fn processes_of_short_jobs_are_chosen_early() {
        const SECOND_NS: u64 = 1_000_000_000;
        let directory = tempfile::tempdir().unwrap();
        let (proc, job) = (directory.path().join("proc"), directory.path().join("job"));
        fs::create_dir_all(&job).unwrap();
        fs::write(job.join("cgroup.procs"), "7\n").unwrap();
        let busiest = Arc::new(BusiestProcesses::default());
        busiest.with(|choice| choice.begin(ProcessList::Cgroup(job.clone())));
        let begin_ns = 100 * SECOND_NS;
        // Each tenth of a second there is one more process that has used a second of CPU time.
        let choices: Vec<u64> = (0..260)
            .filter(|tenth| {
                let pid = 1000 + u32::try_from(*tenth).unwrap();
                fs::write(job.join("cgroup.procs"), format!("{pid}\n")).unwrap();
                write(&proc, pid, 1, 100);
                let version = busiest.with(|choice| choice.version());
                let (proc, busiest) = (proc.clone(), Arc::clone(&busiest));
                let watch = BusiestWatch { proc, busiest, limit: 5, version };
                watch.look(begin_ns + tenth * SECOND_NS / 10) == Outcome::Changed
            })
            .collect();
        assert_eq!(choices, [0, 10, 20, 50, 150, 250]);
    }
}
