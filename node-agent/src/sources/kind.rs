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
use super::reader_thread::ThreadedSource;
use super::served_jobs::ServedJobs;
use super::slot::Unavailable;
use super::source::Source;
use super::target::{Devices, Opened, Target};
use super::taskstats::ExitedTasks;
use crate::cgroups::{Mounts, Step};
use crate::counters::CpuAccount;

/// The lane in which sources are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Reads on the sampler's real-time thread, which must not block.
    Fast,
    /// Reads on a thread for each source, which may block.
    Slow,
}

/// A kind of sources: the code that opens and reads them. Its metrics are those of the catalogue that name it
/// in their origins.
pub trait SourceKind: Sync {
    /// Returns the name by which the catalogue's origins refer to it: `filesystem`.
    fn name(&self) -> &'static str;

    /// Returns the lane in which its sources are read.
    fn lane(&self) -> Lane;

    /// Returns the fields that it reads, by which the catalogue's origins address them; none for a kind whose
    /// origins have addresses of their own form.
    fn fields(&self) -> Vec<&'static str>;

    /// Opens the sources of the wanted metrics, and states the reason for each metric that is unavailable. It
    /// must not block, in either lane.
    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>);
}

impl fmt::Debug for dyn SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The metrics that a kind is to open sources for.
#[derive(Debug)]
pub struct OpenRequest<'a> {
    /// The machine, and the limits that hold for the target.
    pub host: &'a SourceFactory<'a>,
    pub target: &'a Target,
    /// The wanted metrics of this kind.
    pub wanted: Vec<Definition>,
}

/// The sources that kinds have opened so far.
#[derive(Debug)]
pub struct Opening<'a> {
    lane: Lane,
    step: Option<&'a Arc<Step>>,
    opened: Vec<Opened>,
    unavailable: Vec<Unavailable>,
    left: Vec<Definition>,
}

impl<'a> Opening<'a> {
    /// Creates one without sources, for a whole target or for a step of it.
    pub(super) const fn new(step: Option<&'a Arc<Step>>) -> Self {
        Self { lane: Lane::Fast, step, opened: Vec::new(), unavailable: Vec::new(), left: Vec::new() }
    }

    /// Lets a kind open its sources, which are read in the kind's lane.
    pub(super) fn open(&mut self, kind: &dyn SourceKind, request: &OpenRequest<'_>) {
        self.lane = kind.lane();
        kind.open(request, self);
    }

    /// Returns true if a kind has left this metric to the next kind.
    pub(super) fn has_left(&self, definition: &Definition) -> bool {
        self.left.contains(definition)
    }

    /// Returns the open sources, and the metrics that are unavailable.
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

    /// Adds a source like [`Opening::push`], and returns it for additions.
    pub(super) fn push_mut(&mut self, name: String, source: Source) -> Option<&mut Opened> {
        self.push(name, source);
        self.opened.last_mut()
    }

    /// Adds a source of the kind's lane.
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

    /// States the reason why a metric is unavailable.
    pub fn unavailable(&mut self, definition: Definition, reason: String) {
        self.missing(Unavailable::for_good(definition, reason));
    }

    /// Adds a metric that is unavailable.
    pub(super) fn missing(&mut self, unavailable: Unavailable) {
        if !self.unavailable.contains(&unavailable) {
            self.unavailable.push(unavailable);
        }
    }

    /// States the same reason for several metrics.
    pub fn unavailable_all(&mut self, definitions: &[Definition], reason: &str) {
        definitions.iter().for_each(|definition| self.unavailable(definition.clone(), reason.to_owned()));
    }

    /// Passes over what is found beyond `limit`, which is stated for the wanted metrics.
    pub fn limit<T>(&mut self, found: &mut Vec<T>, limit: usize, what: &str, wanted: &[Definition]) {
        let all = found.len();
        if all > limit {
            found.truncate(limit);
            let passed_over = all - limit;
            let reason = format!("{passed_over} of {all} {what} are not sampled: the limit is {limit}");
            self.unavailable_all(wanted, &reason);
        }
    }

    /// Opens the table of mounts. If that is impossible, states so for the wanted metrics.
    pub(super) fn mount_table(&mut self, request: &OpenRequest<'_>) -> Option<MountTable> {
        let table = MountTable::open(&request.host.mounts.proc.join("self/mountinfo"));
        table.inspect_err(|error| self.unavailable_all(&request.wanted, &error.to_string())).ok()
    }

    /// Leaves a metric to the next of the kinds that its origins name.
    pub fn leave(&mut self, definition: Definition) {
        self.left.push(definition);
    }
}

/// Opens sources on one machine.
#[derive(Debug)]
pub struct SourceFactory<'a> {
    /// The mount points of cgroups and kernel file systems.
    pub mounts: &'a Mounts,
    /// The CPUs on which perf events are opened.
    pub cpus: &'a [usize],
    /// The number of descriptors that perf events may take for this target.
    pub perf_descriptors: usize,
    /// The number of the first perf group to be opened, if others are open already.
    pub first_perf_group: usize,
    /// True if hardware events must not be opened, since other programs use the counters.
    pub is_released: bool,
    /// The id of the job; none for the node.
    pub job: Option<&'a Identifier>,
    /// The step or task that is opened; none for a whole target.
    pub step: Option<&'a Arc<Step>>,
    /// The account of the agent's CPU time for the job; none for the node, and for a step.
    pub cpu_account: Option<&'a Arc<CpuAccount>>,
    /// The GPUs of the job according to its scheduler: `0,1`.
    pub gpu_devices: Option<&'a str>,
    /// The busiest processes of the job; none for the node, and for a step.
    pub busiest: Option<&'a Arc<BusiestProcesses>>,
    /// The most processes of the job that have series of their own at a time.
    pub busiest_processes: usize,
    /// True if eBPF programs may be loaded into the kernel.
    pub ebpf: bool,
    /// The GPU clients of the job; none for the node, and for a step.
    pub gpu_clients: Option<&'a Arc<GpuClients>>,
    /// The jobs that clients of Lustre name to this server; none for a job, and for trials.
    pub served_jobs: Option<&'a Arc<ServedJobs>>,
    /// The listener for the ends of threads; none where it is not used.
    pub exited: Option<&'a Arc<ExitedTasks>>,
    /// The names of network interfaces in series; none: those that they have.
    pub interface_names: Option<&'a InterfaceNames>,
}

impl<'a> SourceFactory<'a> {
    /// Returns a factory for sources that need nothing but files: without CPUs and descriptors for perf
    /// events, and without a job.
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
        }
    }
}

pub(super) fn metrics_of(kind: &str) -> impl Iterator<Item = &'static Metric> {
    catalogue::all().filter(move |metric| metric.is_of_kind(kind))
}
