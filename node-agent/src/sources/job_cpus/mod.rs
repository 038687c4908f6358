//! A job's CPUs: how many it may use, to how many its busy threads are bound, and how much each was used.
//!
//! - Allowed CPUs: `cpuset.cpus.effective` of version 2 (`Documentation/admin-guide/cgroup-v2.rst`), of the
//!   job's cgroup or of the nearest one above it that has the controller; `cpuset.effective_cpus`, else
//!   `cpuset.cpus`, of version 1 (`cgroup-v1/cpusets.rst`); otherwise all that the affinities of its threads
//!   name.
//! - Threads: `/proc/PID/task/TID/stat` and the line `Cpus_allowed_list` of `status`, proc_pid_stat(5),
//!   proc_pid_status(5). Only busy threads count: Slurm keeps an idle process in each job that may use all of
//!   the job's CPUs.
//!
//! Version 2 has no CPU time per CPU. The time of each thread since the previous reading counts for the CPU
//! on which it ran last: exact where threads are bound to a CPU, an estimate otherwise, and without threads
//! that live shorter than a period. A thread that cannot be read for a moment keeps its earlier time, so that
//! it is not taken for one that has begun.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use polymeter_proto::catalogue::{Definition, Hierarchy};
use polymeter_proto::period::Period;
use polymeter_proto::series::Labels;

use super::cpu_list;
use super::custom_source::CustomSource;
use super::kernel_text;
use super::kind::{Lane, OpenRequest, Opening, SourceKind};
use super::outcome::Outcome;
use super::process_files::{StatLine, threads};
use super::process_list::ProcessList;
use super::reading::Reading;
use super::slot::Slot;
use super::target::Target;
use crate::clock;

const KIND: &str = "job_cpus";

const SOURCE: &str = "cpus";

/// Bound of the threads of a job that are read, each of which takes some 10 microseconds.
const THREADS_MAX: usize = 4096;

/// A busy thread used at least a hundredth of the time.
const BUSY_PART: u64 = 100;

/// Shortest time between two readings of the threads: the kernel counts their time in ticks of 10 ms.
/// Readings in between, as those of other periods, have the values of the last one.
const SHORTEST: Period = Period::HALF_SECOND;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quantity {
    Allowed,
    /// Distinct CPUs on which its busy threads may run.
    Bound,
    BusyThreads,
    Time(usize),
}

pub(super) struct JobCpusKind;

impl SourceKind for JobCpusKind {
    fn name(&self) -> &'static str {
        KIND
    }

    fn lane(&self) -> Lane {
        Lane::Slow
    }

    fn fields(&self) -> Vec<&'static str> {
        vec!["allowed", "bound", "busy_threads", "time"]
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        if request.host.step.is_some() {
            // Each would take a thread of the agent.
            return opening.unavailable_all(&request.wanted, "only for whole jobs");
        }
        let mounts = request.host.mounts;
        let Some(processes) = opening.processes(request) else { return };
        let cpuset = Cpuset::of(request.target, mounts.v2.as_deref());
        let slots = slots(&request.wanted, request.host.cpus);
        let source = JobCpus::new(&mounts.proc, processes, cpuset, slots);
        opening.push_custom(SOURCE.to_owned(), Box::new(source));
    }
}

fn slots(wanted: &[Definition], cpus: &[usize]) -> Vec<(Slot, Quantity)> {
    let mut slots = Vec::new();
    for definition in wanted {
        let field = definition.metric.field_of(KIND);
        let mut push = |labels, quantity| {
            slots.push((Slot { definition: definition.clone(), labels }, quantity));
        };
        match field {
            Some("allowed") => push(Labels::default(), Quantity::Allowed),
            Some("bound") => push(Labels::default(), Quantity::Bound),
            Some("busy_threads") => push(Labels::default(), Quantity::BusyThreads),
            Some("time") => {
                for cpu in cpus {
                    let labels = Labels::escaped(vec![("cpu".to_owned(), cpu.to_string())]);
                    push(labels.unwrap_or_default(), Quantity::Time(*cpu));
                }
            }
            Some(_) | None => {}
        }
    }
    slots
}

/// Files that list the CPUs of a job, the best first.
#[derive(Debug, Default)]
struct Cpuset(Vec<PathBuf>);

impl Cpuset {
    fn of(target: &Target, v2_root: Option<&Path>) -> Self {
        let Target::Cgroups(cgroups) = target else { return Self::default() };
        let of_v1 = cgroups.directory(Hierarchy::V1("cpuset"));
        let names = ["cpuset.effective_cpus", "cpuset.cpus"];
        let mut files: Vec<PathBuf> =
            of_v1.into_iter().flat_map(|directory| names.map(|name| directory.join(name))).collect();
        if let (Some(directory), Some(root)) = (cgroups.directory(Hierarchy::V2), v2_root) {
            let above = directory.ancestors().take_while(|above| above.starts_with(root));
            files.extend(above.map(|above| above.join("cpuset.cpus.effective")));
        }
        Self(files)
    }

    /// Counts the CPUs in the first file that exists and is not empty.
    fn count(&self) -> Option<usize> {
        let mut texts = self.0.iter().filter_map(|path| kernel_text::text(path).ok());
        texts.find_map(|text| cpu_list::parse(text.trim())).map(|cpus| distinct(&cpus))
    }
}

fn distinct(cpus: &[usize]) -> usize {
    cpus.iter().collect::<BTreeSet<_>>().len()
}

/// CPUs of the line `Cpus_allowed_list` of a `status` file.
fn affinity(status: &[u8]) -> Option<Vec<usize>> {
    let mut lines = status.split_inclusive(|byte| *byte == b'\n');
    let line = lines.find_map(|line| line.strip_prefix(b"Cpus_allowed_list:"))?.strip_suffix(b"\n");
    cpu_list::parse(std::str::from_utf8(line?).ok()?.trim())
}

/// A thread at the last reading that had it.
#[derive(Debug, Clone, Copy)]
struct Thread {
    started: u64,
    cpu_ns: u64,
}

/// Threads of a reading; `None` for one that is listed and could never be read.
type Threads = BTreeMap<u32, Option<Thread>>;

#[derive(Debug)]
struct JobCpus {
    proc: PathBuf,
    processes: ProcessList,
    cpuset: Cpuset,
    slots: Vec<Slot>,
    quantities: Vec<Quantity>,
    /// Threads of the previous reading, and its time; `None` before the first reading.
    previous: Option<(u64, Threads)>,
    /// Result of the last reading of the threads, without them.
    last: Found,
    /// CPU time of threads on each CPU since the source was opened.
    time_ns: BTreeMap<usize, u64>,
}

#[derive(Debug, Default)]
struct Found {
    threads: Threads,
    /// `None` at the first reading.
    busy: Option<u64>,
    bound: BTreeSet<usize>,
    allowed: BTreeSet<usize>,
}

impl JobCpus {
    fn new(proc: &Path, processes: ProcessList, cpuset: Cpuset, slots: Vec<(Slot, Quantity)>) -> Self {
        let (slots, quantities) = slots.into_iter().unzip();
        let proc = proc.to_owned();
        let (last, time_ns) = (Found::default(), BTreeMap::new());
        Self { proc, processes, cpuset, slots, quantities, previous: None, last, time_ns }
    }

    fn wants(&self, quantity: Quantity) -> bool {
        self.quantities.contains(&quantity)
    }

    fn read_at(&mut self, now_ns: u64, reading: &mut Reading) -> Outcome {
        let allowed = self.wants(Quantity::Allowed).then(|| self.cpuset.count()).flatten();
        let is_of_affinity = self.wants(Quantity::Allowed) && allowed.is_none();
        let needs_threads = self.quantities.iter().any(|quantity| *quantity != Quantity::Allowed);
        let since_ns = self.previous.as_ref().map(|(before_ns, _)| now_ns.saturating_sub(*before_ns));
        let is_too_early = since_ns.is_some_and(|since_ns| since_ns < SHORTEST.as_nanos());
        if (needs_threads || is_of_affinity) && !is_too_early {
            let Some(pids) = self.processes.list(&self.proc) else { return Outcome::Gone };
            let mut found = self.read_threads(&pids, now_ns, is_of_affinity);
            self.previous = Some((now_ns, std::mem::take(&mut found.threads)));
            self.last = found;
        }
        let found = &self.last;
        let allowed = allowed.or_else(|| Some(found.allowed.len()).filter(|count| *count > 0));
        for (slot, quantity) in (0..).zip(&self.quantities) {
            let value = match quantity {
                Quantity::Allowed => allowed.map(|count| count as u64),
                // Without a busy thread nothing is known.
                Quantity::Bound => Some(found.bound.len() as u64).filter(|count| *count > 0),
                Quantity::BusyThreads => found.busy,
                Quantity::Time(cpu) => Some(self.time_ns.get(cpu).copied().unwrap_or(0)),
            };
            if let Some(value) = value {
                reading.set(slot, value);
            }
        }
        Outcome::Read
    }

    /// Reads all threads: adds their time to their CPUs, and finds the affinities of the busy ones, or of
    /// all.
    fn read_threads(&mut self, pids: &BTreeSet<u32>, now_ns: u64, all_affinities: bool) -> Found {
        let (before_ns, before) = self.previous.take().unwrap_or((now_ns, Threads::new()));
        let busy_ns = now_ns.saturating_sub(before_ns) / BUSY_PART;
        let wants_bound = self.wants(Quantity::Bound);
        let mut found = Found { busy: (busy_ns > 0).then_some(0), ..Found::default() };
        let threads = pids.iter().flat_map(|pid| threads(&self.proc, *pid).map(move |tid| (*pid, tid)));
        for (pid, tid) in threads.take(THREADS_MAX) {
            let directory = self.proc.join(format!("{pid}/task/{tid}"));
            let known = before.get(&tid).copied();
            let Some(stat) = StatLine::read(&directory) else {
                found.threads.insert(tid, known.flatten());
                continue;
            };
            let thread = Thread { started: stat.started(), cpu_ns: stat.cpu_ns() };
            found.threads.insert(tid, Some(thread));
            // A thread that has begun since the previous reading counts from 0, one from before the first not
            // at all, and neither does one whose earlier time is not known.
            let since_ns = match (known, busy_ns) {
                (Some(Some(same)), _) if same.started == thread.started => {
                    thread.cpu_ns.saturating_sub(same.cpu_ns)
                }
                (Some(None), _) | (_, 0) => 0,
                (Some(Some(_)) | None, _) => thread.cpu_ns,
            };
            if let Ok(cpu) = usize::try_from(stat.processor())
                && since_ns > 0
            {
                let time_ns = self.time_ns.entry(cpu).or_default();
                *time_ns = time_ns.saturating_add(since_ns);
            }
            let is_busy = busy_ns > 0 && since_ns >= busy_ns;
            found.busy = found.busy.map(|busy| busy + u64::from(is_busy));
            if all_affinities || (is_busy && wants_bound) {
                let cpus =
                    kernel_text::bytes(&directory.join("status")).ok().and_then(|status| affinity(&status));
                let cpus = cpus.unwrap_or_default();
                if is_busy {
                    found.bound.extend(&cpus);
                }
                found.allowed.extend(cpus);
            }
        }
        found
    }
}

impl CustomSource for JobCpus {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn refresh_interval(&self) -> Option<Period> {
        Some(SHORTEST)
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        reading.clear();
        self.read_at(clock::monotonic_ns(), reading)
    }
}

pub(super) fn check(data: &[u8]) {
    if let Some(cpus) = affinity(data) {
        assert!(!cpus.is_empty() || data.windows(2).any(|pair| pair.contains(&b'-')), "an empty range");
        assert!(distinct(&cpus) <= cpus.len());
    }
}

#[cfg(test)]
mod tests;
