//! The open sources of a machine, and their values.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use polymeter_agent::cgroups::{JobCgroups, Mounts};
use polymeter_agent::sources::reader_thread::{FinishedReads, ThreadedSource};
use polymeter_agent::sources::{
    BusiestProcesses, GpuClients, KINDS, Opened, Outcome, ReadBuffer, Reading, ServedJobs, Source,
    SourceFactory, Target, Unavailable,
};
use polymeter_benches::clock::{now_ns, sleep_until};
use polymeter_proto::catalogue::{self, Definition};
use polymeter_proto::series::Identifier;

use crate::machine::{JOB, Machine, PROCESSES, Subject};

/// A read that takes longer is taken for one that blocks, in nanoseconds.
const READ_NS: u64 = 120_000_000_000;

/// Values by metric and labels.
pub(crate) type Values = BTreeMap<String, u64>;

/// Metrics whose values depend on this machine or on the time.
const VARYING: [&str; 5] = ["agent.", "node.filesystem.", "perf", "exited.", "cpu.threads.busy"];

/// Metrics whose series appear with the first process, client or job: before that there is neither a series
/// nor a reason.
const DORMANT: [&str; 3] = ["busiest.", "gpu.drm.", "node.lustre.job."];

/// Parts of a machine that survive a new opening.
#[derive(Debug, Default)]
struct Lasting {
    busiest: Arc<BusiestProcesses>,
    gpu_clients: Arc<GpuClients>,
    served_jobs: Arc<ServedJobs>,
}

#[derive(Debug)]
pub(crate) struct Readings {
    opened: Vec<Opened>,
    unavailable: Vec<Unavailable>,
}

fn definitions(is_of_job: bool) -> Vec<Definition> {
    let of_target = catalogue::all().filter(|metric| {
        let is_of_node = metric.name.starts_with("node.") || metric.name.starts_with("agent.");
        is_of_node != is_of_job
    });
    of_target.map(Definition::of).collect()
}

fn is_varying(name: &str) -> bool {
    VARYING.iter().any(|prefix| name.starts_with(prefix))
}

impl Readings {
    /// Opens all metrics of a target. Sources that become known with the first reading are opened once more.
    pub(crate) fn open(machine: &Machine, subject: Subject) -> Self {
        let lasting = Lasting::default();
        let mut readings = Self::open_once(machine, subject, &lasting);
        for _ in 0..2 {
            readings.read_outcomes();
            if readings.watches_changed() {
                readings = Self::open_once(machine, subject, &lasting);
            }
        }
        readings
    }

    /// Opens all metrics of a target once, and reads nothing.
    pub(crate) fn open_all(machine: &Machine, subject: Subject) -> Self {
        Self::open_once(machine, subject, &Lasting::default())
    }

    pub(crate) fn read_fast(&mut self) {
        let mut buffer = ReadBuffer::default();
        let fast = self.opened.iter_mut().filter(|opened| !matches!(opened.source, Source::Threaded(_)));
        for opened in fast {
            let mut reading = Reading::absent(opened.source.slots().len());
            opened.source.read(&mut buffer, &mut reading);
        }
    }

    fn open_once(machine: &Machine, subject: Subject, lasting: &Lasting) -> Self {
        let none = Self { opened: Vec::new(), unavailable: Vec::new() };
        // Without a table of mounts an agent does not start.
        let Ok(mounts) = Mounts::read(machine.root()) else { return none };
        let target = match subject {
            Subject::Node => Target::Node(Arc::default()),
            Subject::V1 => cgroups_of(&mounts, &["memory", "cpu", "cpuacct", "blkio", "pids"]),
            Subject::V2 => cgroups_of(&mounts, &["unified"]),
            Subject::Processes => Target::Processes(PROCESSES[0]),
        };
        let is_of_job = subject != Subject::Node;
        let job = Identifier::try_from(JOB).unwrap();
        let factory = SourceFactory {
            cpus: &[0, 1],
            job: Some(&job).filter(|_| is_of_job),
            busiest: Some(&lasting.busiest).filter(|_| is_of_job),
            busiest_processes: 2,
            gpu_clients: Some(&lasting.gpu_clients).filter(|_| is_of_job),
            served_jobs: Some(&lasting.served_jobs).filter(|_| !is_of_job),
            ..SourceFactory::of(&mounts)
        };
        let (opened, unavailable) = factory.open(&target, &definitions(is_of_job));
        Self { opened, unavailable }
    }

    /// Reads all sources. Returns the values that do not depend on this machine.
    pub(crate) fn read(&mut self) -> Values {
        let mut values = Values::new();
        for (position, reading) in self.read_outcomes().into_iter().enumerate() {
            let slots = self.opened[position].source.slots();
            for (slot, value) in slots.iter().zip(reading.iter()) {
                let name = slot.definition.name();
                if let Some(value) = value.filter(|_| !is_varying(&name)) {
                    values.insert(format!("{name}{{{}}}", slot.labels), value);
                }
            }
        }
        values
    }

    fn read_outcomes(&mut self) -> Vec<Reading> {
        let mut buffer = ReadBuffer::default();
        self.opened
            .iter_mut()
            .map(|opened| {
                let mut reading = Reading::absent(opened.source.slots().len());
                let (outcome, reading) = match &opened.source {
                    Source::Threaded(threaded) => read_threaded(&opened.name, threaded, reading),
                    Source::TextFile(_) | Source::SummedFile(_) | Source::Perf(_) | Source::Custom(_) => {
                        (opened.source.read(&mut buffer, &mut reading), reading)
                    }
                };
                // What failed is not recorded.
                if outcome.has_values() { reading } else { Reading::absent(reading.len()) }
            })
            .collect()
    }

    /// True if a source without slots reports a change.
    fn watches_changed(&mut self) -> bool {
        let watches = self.opened.iter_mut().filter(|opened| opened.source.slots().is_empty());
        let outcomes = watches.map(|watch| {
            let mut reading = Reading::default();
            match &watch.source {
                Source::Threaded(_) => Outcome::Read,
                Source::TextFile(_) | Source::SummedFile(_) | Source::Perf(_) | Source::Custom(_) => {
                    watch.source.read(&mut ReadBuffer::default(), &mut reading)
                }
            }
        });
        outcomes.filter(|outcome| *outcome == Outcome::Changed).count() > 0
    }

    /// Metrics that the machine has without damage, and that have neither a series nor a reason.
    pub(crate) fn without_reason(&self, intact: &Values) -> impl Iterator<Item = String> {
        let slots = self.opened.iter().flat_map(|opened| opened.source.slots());
        let mut known: BTreeSet<&str> = slots.map(|slot| slot.definition.metric.name).collect();
        let reasons = self.unavailable.iter().filter(|missing| !missing.reason.is_empty());
        known.extend(reasons.map(|missing| missing.definition.metric.name));
        // Without a table of mounts nothing is opened.
        let is_open = !self.opened.is_empty() || !self.unavailable.is_empty();
        let names: BTreeSet<&str> = intact.keys().filter_map(|series| series.split('{').next()).collect();
        let silent = names
            .into_iter()
            .filter(|name| is_open && !DORMANT.iter().any(|prefix| name.starts_with(prefix)))
            .filter(|name| !known.iter().any(|known| name.starts_with(known.trim_end_matches('*'))));
        silent.map(str::to_owned).collect::<Vec<_>>().into_iter()
    }

    pub(crate) fn kinds(&self) -> BTreeSet<&'static str> {
        let names = KINDS.iter().map(|kind| kind.name());
        names
            .filter(|kind| {
                let mut slots = self.opened.iter().flat_map(|opened| opened.source.slots());
                slots.any(|slot| slot.definition.metric.is_of_kind(kind))
            })
            .collect()
    }
}

fn cgroups_of(mounts: &Mounts, controllers: &[&str]) -> Target {
    let mut cgroups = JobCgroups::default();
    for controller in controllers {
        cgroups.add(mounts, &mounts.root.join("sys/fs/cgroup").join(controller).join(JOB));
    }
    Target::Cgroups(cgroups)
}

fn read_threaded(name: &str, source: &ThreadedSource, reading: Reading) -> (Outcome, Reading) {
    assert!(
        source.request(reading, None, &Arc::new(FinishedReads::default())).is_ok(),
        "{name} is being read"
    );
    let until_ns = now_ns() + READ_NS;
    loop {
        if let Some(read) = source.take_finished() {
            return (read.outcome, read.reading);
        }
        assert!(now_ns() < until_ns, "a read of {name} blocks");
        sleep_until(now_ns() + 20_000);
    }
}
