//! Kinds of sources, and their part in the opening of sources.

use std::fmt;
use std::sync::Arc;

use polymeter_proto::catalogue::{self, Definition, Metric};
use polymeter_proto::series::Identifier;

use super::busiest_processes::BusiestProcesses;
use super::custom_source::CustomSource;
use super::devices::InterfaceNames;
use super::gpu_clients::GpuClients;
use super::mount_table::MountTable;
use super::outside::OutsideDevices;
use super::process_list::ProcessList;
use super::reader_thread::ThreadedSource;
use super::served_jobs::ServedJobs;
use super::slot::Unavailable;
use super::source::Source;
use super::target::{Devices, Opened, Target};
use super::taskstats::ExitedTasks;
use crate::cgroups::{Mounts, Step};
use crate::counters::CpuAccount;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Lane on the sampler's real-time thread, which must not block.
    Fast,
    /// Lane with a thread for each source, which may block.
    Slow,
}

/// Code that opens and reads sources. Its metrics are those whose origins in the catalogue name it.
pub trait SourceKind: Sync {
    /// Name in the catalogue's origins: `filesystem`.
    fn name(&self) -> &'static str;

    fn lane(&self) -> Lane;

    /// Fields by which the catalogue's origins address what it reads; empty if its origins have addresses of
    /// their own form.
    fn fields(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Opens the sources of the wanted metrics, and gives the reason for each unavailable one. Must not
    /// block, in either lane.
    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>);
}

impl fmt::Debug for dyn SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug)]
pub struct OpenRequest<'a> {
    pub host: &'a SourceFactory<'a>,
    pub target: &'a Target,
    pub wanted: Vec<Definition>,
}

#[derive(Debug)]
pub struct Opening<'a> {
    lane: Lane,
    step: Option<&'a Arc<Step>>,
    opened: Vec<Opened>,
    unavailable: Vec<Unavailable>,
    left: Vec<Definition>,
}

impl<'a> Opening<'a> {
    /// Starts without sources, for a whole target or for a step of it.
    pub(super) const fn new(step: Option<&'a Arc<Step>>) -> Self {
        Self { lane: Lane::Fast, step, opened: Vec::new(), unavailable: Vec::new(), left: Vec::new() }
    }

    /// Starts without sources, for the node and sources of the slow lane.
    pub(super) fn of_slow_lane() -> Self {
        Self { lane: Lane::Slow, ..Self::new(None) }
    }

    pub(super) fn open(&mut self, kind: &dyn SourceKind, request: &OpenRequest<'_>) {
        self.lane = kind.lane();
        kind.open(request, self);
    }

    /// True if a kind has left this metric to the next kind.
    pub(super) fn has_left(&self, definition: &Definition) -> bool {
        self.left.contains(definition)
    }

    pub(super) fn finish(self) -> (Vec<Opened>, Vec<Unavailable>) {
        (self.opened, self.unavailable)
    }

    /// Adds a source of the fast lane, or one without slots that merely watches for devices.
    pub fn push(&mut self, name: String, source: Source) {
        let (name, step) = match self.step {
            None => (name, None),
            Some(step) => (format!("{}/{name}", step.name), Some(Arc::clone(step))),
        };
        self.opened.push(Opened { name, source, step, below: None, devices: Devices::default() });
    }

    /// Like [`Opening::push`], but returns the source for additions.
    pub(super) fn push_mut(&mut self, name: String, source: Source) -> Option<&mut Opened> {
        self.push(name, source);
        self.opened.last_mut()
    }

    pub fn push_custom(&mut self, name: String, source: Box<dyn CustomSource>) {
        match self.lane {
            Lane::Fast => self.push(name, Source::Custom(source)),
            Lane::Slow => {
                let definitions: Vec<Definition> =
                    source.slots().iter().map(|slot| slot.definition.clone()).collect();
                match ThreadedSource::start(&name, source) {
                    Ok(source) => self.push(name, Source::Threaded(source)),
                    Err(error) => self.unavailable_all(&definitions, &format!("{name}: {error}")),
                }
            }
        }
    }

    pub fn unavailable(&mut self, definition: Definition, reason: String) {
        self.missing(Unavailable::for_good(definition, reason));
    }

    pub(super) fn missing(&mut self, unavailable: Unavailable) {
        if !self.unavailable.contains(&unavailable) {
            self.unavailable.push(unavailable);
        }
    }

    pub fn unavailable_all(&mut self, definitions: &[Definition], reason: &str) {
        definitions.iter().for_each(|definition| self.unavailable(definition.clone(), reason.to_owned()));
    }

    /// Drops what is found beyond `limit`, and says so for the wanted metrics.
    pub fn limit<T>(&mut self, found: &mut Vec<T>, limit: usize, what: &str, wanted: &[Definition]) {
        let all = found.len();
        if all > limit {
            found.truncate(limit);
            let passed_over = all - limit;
            let reason = format!("{passed_over} of {all} {what} are not sampled: the limit is {limit}");
            self.unavailable_all(wanted, &reason);
        }
    }

    /// Finds the processes of a job, or says for the wanted metrics that it has no cgroup of them.
    pub(super) fn processes(&mut self, request: &OpenRequest<'_>) -> Option<ProcessList> {
        let processes = ProcessList::of(request.target);
        if processes.is_none() {
            let reason = "the job has no cgroup of the controller that provides it";
            self.unavailable_all(&request.wanted, reason);
        }
        processes
    }

    /// Opens the table of mounts, or says for the wanted metrics why it cannot.
    pub(super) fn mount_table(&mut self, request: &OpenRequest<'_>) -> Option<MountTable> {
        let table = MountTable::open(&request.host.mounts.proc.join("self/mountinfo"));
        table.inspect_err(|error| self.unavailable_all(&request.wanted, &error.to_string())).ok()
    }

    /// Leaves a metric to the next kind in its origins.
    pub fn leave(&mut self, definition: Definition) {
        self.left.push(definition);
    }
}

#[derive(Debug)]
pub struct SourceFactory<'a> {
    pub mounts: &'a Mounts,
    pub cpus: &'a [usize],
    pub perf_descriptors: usize,
    /// First number of a perf group that is still free.
    pub first_perf_group: usize,
    /// True if other programs use the hardware counters, so that no hardware events may be opened.
    pub is_released: bool,
    /// `None` for the node.
    pub job: Option<&'a Identifier>,
    /// Step or task that is opened; `None` for a whole target.
    pub step: Option<&'a Arc<Step>>,
    pub cpu_account: Option<&'a Arc<CpuAccount>>,
    /// GPUs of the job according to its scheduler: `0,1`.
    pub gpu_devices: Option<&'a str>,
    pub busiest: Option<&'a Arc<BusiestProcesses>>,
    /// Bound of the job's processes with series of their own at a time.
    pub busiest_processes: usize,
    /// True if eBPF programs may be loaded into the kernel.
    pub ebpf: bool,
    pub gpu_clients: Option<&'a Arc<GpuClients>>,
    /// Jobs that clients of Lustre name to this server; `None` for a job and for trials.
    pub served_jobs: Option<&'a Arc<ServedJobs>>,
    pub exited: Option<&'a Arc<ExitedTasks>>,
    /// Names of network interfaces in series; without it they are the current ones.
    pub interface_names: Option<&'a InterfaceNames>,
    pub outside: Option<&'a OutsideDevices>,
}

impl<'a> SourceFactory<'a> {
    /// Request for sources that need only files: no CPUs and descriptors for perf events, no job.
    pub const fn of(mounts: &'a Mounts) -> Self {
        Self {
            mounts,
            cpus: &[],
            perf_descriptors: 0,
            first_perf_group: 0,
            is_released: false,
            job: None,
            step: None,
            cpu_account: None,
            gpu_devices: None,
            busiest: None,
            busiest_processes: 0,
            ebpf: false,
            gpu_clients: None,
            served_jobs: None,
            exited: None,
            interface_names: None,
            outside: None,
        }
    }
}

pub(super) fn metrics_of(kind: &str) -> impl Iterator<Item = &'static Metric> {
    catalogue::all().filter(move |metric| metric.is_of_kind(kind))
}
