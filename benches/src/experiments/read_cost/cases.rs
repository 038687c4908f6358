//! The sources that are measured: for each kind the metrics, the target, and the machine that has them.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;

use polymeter_agent::cgroups::{JobCgroups, Mounts};
use polymeter_agent::counters::{Counters, CpuAccount};
use polymeter_agent::sources::{
    BusiestProcesses, ExitedTasks, GpuClients, KINDS, Lane, Opened, ReadBuffer, Reading, ServedJobs, Source,
    SourceFactory, Target, online_cpus,
};
use polymeter_benches::clock::{now_ns, sleep_until};
use polymeter_benches::job::Job;
use polymeter_benches::laid_out::{Hardware, LaidOut};
use polymeter_benches::plan::EVENTS;
use polymeter_proto::catalogue::{self, Definition, PERF_KIND, TEXT_FILE_KIND};
use polymeter_proto::series::Identifier;

/// Machine that has the sources of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Here,
    LaidOut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    Node,
    Job,
    /// A job that is a process and its descendants.
    Processes,
}

#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) kind: &'static str,
    pub(crate) place: Place,
    pub(crate) subject: Subject,
    /// Named ones; without any, the default plan's, or all of the kind if the default plan has none.
    pub(crate) selectors: &'static [&'static str],
}

impl Case {
    fn lane(&self) -> Option<Lane> {
        KINDS.iter().find(|kind| kind.name() == self.kind).map(|kind| kind.lane())
    }
}

const fn case(
    kind: &'static str,
    place: Place,
    subject: Subject,
    selectors: &'static [&'static str],
) -> Case {
    Case { kind, place, subject, selectors }
}

/// Metrics of devices whose files may block.
const DEVICES: &[&str] = &[
    "node.infiniband.*.bytes",
    "node.slingshot.*.bytes",
    "node.hwmon.temperature",
    "node.thermal.temperature",
    "node.cpu.frequency",
    "node.cpu.throttled.thermal.time",
    "node.cray.*.energy",
];

/// All kinds, in the order of the registry, but for devices outside the node: a read takes as long as they
/// take to answer.
pub(crate) static CASES: [Case; 29] = [
    case("text_file", Place::Here, Subject::Job, &[]),
    case("text_file", Place::Here, Subject::Node, &[]),
    case("blocking_file", Place::LaidOut, Subject::Node, DEVICES),
    case("perf", Place::Here, Subject::Job, &[]),
    case("processes", Place::Here, Subject::Processes, &["process.*"]),
    case("cgroup_processes", Place::Here, Subject::Job, &["io.*"]),
    case("process_io", Place::Here, Subject::Job, &["process.io.*"]),
    case("job_cpus", Place::Here, Subject::Job, &["cpu.*"]),
    case("resctrl", Place::LaidOut, Subject::Job, &["resctrl.*"]),
    case("ebpf", Place::Here, Subject::Job, &["network.*"]),
    case("busiest", Place::Here, Subject::Job, &["busiest.*"]),
    case("taskstats", Place::Here, Subject::Job, &["exited.*"]),
    case("filesystem", Place::Here, Subject::Node, &["node.filesystem.*"]),
    case("rapl", Place::LaidOut, Subject::Node, &["node.energy.*"]),
    case("ipmi", Place::Here, Subject::Node, &["node.ipmi.*"]),
    case("lustre", Place::LaidOut, Subject::Node, &["node.lustre.*"]),
    case("lustre_jobs", Place::LaidOut, Subject::Node, &["node.lustre.job*"]),
    case("nfs", Place::LaidOut, Subject::Node, &["node.nfs.*"]),
    case("gpfs", Place::LaidOut, Subject::Node, &["node.gpfs.*"]),
    case("beegfs", Place::LaidOut, Subject::Node, &["node.beegfs.*"]),
    case("nvidia", Place::LaidOut, Subject::Node, &["node.gpu.*"]),
    case("nvidia_job", Place::LaidOut, Subject::Job, &["gpu.*"]),
    case("drm", Place::LaidOut, Subject::Job, &["gpu.drm.*"]),
    case("kfd", Place::LaidOut, Subject::Job, &["gpu.amd.*"]),
    case("amdgpu", Place::LaidOut, Subject::Node, &["node.gpu.amd.*"]),
    case("agent", Place::Here, Subject::Node, &["agent.*"]),
    case("stacks", Place::Here, Subject::Job, &["stacks.cpu"]),
    case("stacks_dwarf", Place::Here, Subject::Job, &["stacks.cpu_dwarf"]),
    case("stacks_wait", Place::Here, Subject::Job, &["stacks.wait"]),
];

/// Kinds whose sources appear only some time after the first opening.
const LATER: [&str; 5] = ["busiest", "drm", "lustre_jobs", "nvidia", "nvidia_job"];

/// Longest wait for them.
const LATER_NS: u64 = 60_000_000_000;

/// Processes of the job, beside the one that has used CPU time.
const PROCESSES: usize = 10;

/// Default plan.
const CONFIG: &str = include_str!("../../../../deploy/agent.toml");

/// This machine and a laid-out one, with a job that is on both.
#[derive(Debug)]
pub(crate) struct Machines {
    here: Mounts,
    laid_out: Mounts,
    job_id: Identifier,
    processes: Processes,
    busiest: Arc<BusiestProcesses>,
    gpu_clients: Arc<GpuClients>,
    served_jobs: Arc<ServedJobs>,
    exited: Arc<ExitedTasks>,
    account: Arc<CpuAccount>,
    counters: Arc<Counters>,
    // Removed after everything above.
    job: Job,
    _node: LaidOut,
}

/// Processes of the job. Dropping it ends them.
#[derive(Debug, Default)]
struct Processes(Vec<Child>);

impl Drop for Processes {
    fn drop(&mut self) {
        for process in &mut self.0 {
            // Children of this process without data worth keeping.
            process.kill().ok();
            process.wait().ok();
        }
    }
}

impl Machines {
    pub(crate) fn new() -> Result<Self, Box<dyn Error>> {
        let job = Job::make_for("cost", 0)?;
        let mut processes = Processes::default();
        // The first one uses some seconds of CPU time, and sleeps then.
        let busy = "i=0; while [ $i -lt 4000000 ]; do i=$((i+1)); done; exec sleep infinity";
        processes.0.push(job.command(Path::new("sh")).args(["-c", busy]).stdin(Stdio::null()).spawn()?);
        for _ in 0..PROCESSES {
            let mut sleeps = job.command(Path::new("sleep"));
            processes.0.push(sleeps.arg("infinity").stdin(Stdio::null()).spawn()?);
        }
        let cpus = online_cpus(Path::new("/"))?.len();
        let node = LaidOut::new(Hardware { cpus, gpus: 1, adapters: 1 })?;
        node.add_monitoring_group(job.id())?;
        processes.0.first().map_or(Ok(()), |process| node.add_gpu_client(process.id()))?;
        Ok(Self {
            here: Mounts::read(Path::new("/"))?,
            laid_out: Mounts::read(node.root())?,
            job_id: Identifier::try_from(job.id()).map_err(|error| error.to_string())?,
            processes,
            busiest: Arc::default(),
            gpu_clients: Arc::default(),
            served_jobs: Arc::default(),
            exited: Arc::default(),
            account: Arc::default(),
            counters: Arc::default(),
            job,
            _node: node,
        })
    }

    /// Opens the sources of a case: of several that differ in numbers only, the first. If there is none, also
    /// returns the reason.
    pub(crate) fn open(&self, case: &Case) -> Result<(Vec<Opened>, String), Box<dyn Error>> {
        let until_ns = now_ns() + LATER_NS;
        loop {
            let (mut opened, reason) = self.try_open(case)?;
            let has_any = opened.iter().any(|opened| is_of(opened, case));
            if has_any || !LATER.contains(&case.kind) || now_ns() > until_ns {
                let mut seen = BTreeSet::new();
                opened.retain(|opened| is_of(opened, case) && seen.insert(pattern(&opened.name)));
                return Ok((opened, reason));
            }
            // A watch among them looks for the others.
            let watches = opened.iter_mut().filter(|opened| opened.source.slots().is_empty());
            for watch in watches {
                watch.source.read(&mut ReadBuffer::default(), &mut Reading::default());
            }
            sleep_until(now_ns() + 100_000_000);
        }
    }

    fn try_open(&self, case: &Case) -> Result<(Vec<Opened>, String), Box<dyn Error>> {
        let mounts = self.mounts(case);
        let target = match case.subject {
            Subject::Node => Target::Node(Arc::clone(&self.counters)),
            Subject::Job => Target::Cgroups(self.cgroups(mounts)),
            Subject::Processes => Target::Processes(std::process::id()),
        };
        let is_of_job = case.subject != Subject::Node;
        let cpus = online_cpus(Path::new("/"))?;
        let factory = SourceFactory {
            cpus: &cpus,
            perf_descriptors: 4096,
            job: Some(&self.job_id).filter(|_| is_of_job),
            cpu_account: Some(&self.account).filter(|_| is_of_job),
            gpu_devices: Some("0").filter(|_| is_of_job),
            busiest: Some(&self.busiest).filter(|_| is_of_job),
            busiest_processes: 5,
            ebpf: true,
            gpu_clients: Some(&self.gpu_clients).filter(|_| is_of_job),
            served_jobs: Some(&self.served_jobs).filter(|_| !is_of_job),
            exited: Some(&self.exited).filter(|_| is_of_job),
            ..SourceFactory::of(mounts)
        };
        let definitions = definitions(case)?;
        let (opened, unavailable) = factory.open(&target, &definitions);
        let reason = unavailable.into_iter().map(|unavailable| unavailable.reason).next();
        Ok((opened, reason.unwrap_or_default()))
    }

    fn mounts(&self, case: &Case) -> &Mounts {
        if case.place == Place::Here { &self.here } else { &self.laid_out }
    }

    fn cgroups(&self, mounts: &Mounts) -> JobCgroups {
        let mut cgroups = JobCgroups::default();
        for directory in self.job.directories() {
            cgroups.add(mounts, &mounts.root.join(directory.strip_prefix("/").unwrap_or(directory)));
        }
        cgroups
    }

    /// File of a source of this machine that is a kernel text file.
    pub(crate) fn path_of(&self, case: &Case, source: &str) -> Option<PathBuf> {
        if case.kind != TEXT_FILE_KIND {
            return None;
        }
        let (hierarchy, name) = source.split_once('/')?;
        let of_job =
            || self.job.directories().iter().map(|directory| directory.join(name)).find(|path| path.exists());
        match hierarchy {
            "proc" | "sys" => Some(Path::new("/").join(source)),
            _ => of_job(),
        }
    }

    pub(crate) fn processes(&self) -> usize {
        self.processes.0.len()
    }
}

/// True for a source of the case's kind that has values.
fn is_of(opened: &Opened, case: &Case) -> bool {
    // A metric may have origins of several kinds.
    let is_of_form = match &opened.source {
        Source::TextFile(_) | Source::SummedFile(_) => case.kind == TEXT_FILE_KIND,
        Source::Perf(_) => case.kind == PERF_KIND,
        Source::Custom(_) => case.lane() == Some(Lane::Fast) && case.kind != TEXT_FILE_KIND,
        Source::Threaded(_) => case.lane() == Some(Lane::Slow),
    };
    is_of_form
        && opened.source.slots().first().is_some_and(|slot| slot.definition.metric.is_of_kind(case.kind))
}

/// Replaces each number in a name by `*`, and removes the path of a mount.
fn pattern(name: &str) -> String {
    let mut pattern = String::new();
    let name = name.strip_prefix("filesystem/").map_or(name, |_mount| "filesystem");
    for letter in name.chars() {
        match letter {
            '0'..='9' if pattern.ends_with('*') => {}
            '0'..='9' => pattern.push('*'),
            other => pattern.push(other),
        }
    }
    pattern
}

fn definitions(case: &Case) -> Result<Vec<Definition>, Box<dyn Error>> {
    let mut selectors: Vec<String> = case.selectors.iter().map(|selector| (*selector).to_owned()).collect();
    if case.kind == PERF_KIND {
        selectors = EVENTS.iter().map(|event| format!("perf.{event}")).collect();
    } else if selectors.is_empty() {
        let config: toml::Table = CONFIG.parse()?;
        let baseline = config.get("baseline").and_then(toml::Value::as_table).ok_or("no baseline")?;
        selectors = baseline
            .keys()
            .filter(|key| key.starts_with("node.") == (case.subject == Subject::Node))
            .cloned()
            .collect();
    }
    let mut found = Vec::new();
    for selector in selectors {
        let selected =
            catalogue::select(&selector.parse().map_err(|error| format!("{selector}: {error:?}"))?);
        found.extend(selected.into_iter().filter(|definition| definition.metric.is_of_kind(case.kind)));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use polymeter_proto::catalogue::DEVICE_KIND;

    use super::*;

    #[test]
    fn every_kind_has_a_case_with_metrics() {
        for kind in KINDS.iter().filter(|kind| kind.name() != DEVICE_KIND) {
            let mut cases = CASES.iter().filter(|case| case.kind == kind.name()).peekable();
            assert!(cases.peek().is_some(), "{kind:?}");
            cases.for_each(|case| assert!(!definitions(case).unwrap().is_empty(), "{case:?}"));
        }
    }

    #[test]
    fn sources_that_differ_in_numbers_have_one_pattern() {
        assert_eq!(pattern("sys/class/hwmon/hwmon10"), pattern("sys/class/hwmon/hwmon3"));
        assert_ne!(pattern("nvidia/0"), pattern("nvidia"));
        assert_eq!(pattern("filesystem/"), pattern("filesystem/home"));
    }
}
