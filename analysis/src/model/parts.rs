//! The parts of a report by node, step and task.

use polymeter_proto::series::Roofs;
use polymeter_proto::units;
use serde::Serialize;

/// The origin of a figure of used memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// Anonymous and shared memory of the cgroup, without the page cache.
    AnonymousAndShared,
    /// The same with the pages of hugetlbfs.
    WithHugePages,
    /// The peak of the cgroup, which ran out of memory: there was no page cache left to reclaim.
    CgroupPeak,
    /// Resident memory, summed over the processes; shared pages count for each of them.
    Resident,
}

impl MemoryKind {
    /// Returns its name.
    pub const fn short(self) -> &'static str {
        match self {
            Self::AnonymousAndShared => "anon + shmem",
            Self::WithHugePages => "anon + shmem + huge pages",
            Self::CgroupPeak => "peak of the cgroup",
            Self::Resident => "resident",
        }
    }

    /// Returns its description.
    pub const fn text(self) -> &'static str {
        match self {
            Self::AnonymousAndShared => "anonymous + shared, without cache",
            Self::WithHugePages => "anonymous + shared + huge pages, without cache",
            Self::CgroupPeak => "peak of the cgroup, which ran out of memory",
            Self::Resident => "resident, sum of processes",
        }
    }
}

/// Used resources. Quantities that were not sampled are absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Resources {
    /// CPU time, in seconds.
    pub cpu_s: Option<f64>,
    /// The largest number of cores in use at a time, over the windows of the counter.
    pub cores_max: Option<f64>,
    /// The peak of used memory, in bytes; its origin is in `memory_kind`.
    pub memory_bytes: Option<f64>,
    /// The origin of `memory_bytes`.
    pub memory_kind: Option<MemoryKind>,
    /// The peak of the page cache without shared memory, in bytes.
    pub cache_bytes: Option<f64>,
    /// The peak of the cgroup's memory, in bytes, with page cache and kernel memory.
    pub cgroup_peak_bytes: Option<f64>,
    /// The hard limit of the cgroup's memory when the most was used, in bytes; of several nodes the lowest.
    pub memory_limit_bytes: Option<f64>,
    /// Bytes read from devices.
    pub read_bytes: Option<f64>,
    /// Bytes written to devices.
    pub written_bytes: Option<f64>,
}

impl Resources {
    /// Takes the peak of a cgroup that ran out of memory for the used memory: what the last sample before
    /// shows may be much less.
    pub fn count_peak(&mut self) {
        if let Some(peak) = self.cgroup_peak_bytes.filter(|peak| self.memory_bytes < Some(*peak)) {
            (self.memory_bytes, self.memory_kind) = (Some(peak), Some(MemoryKind::CgroupPeak));
        }
    }

    /// Returns an upper bound of the used memory, in bytes: what the samples show, or more if the cgroup's
    /// peak without page cache was more. That may have been used between two samples, or by the kernel.
    pub fn memory_bound_bytes(&self) -> Option<f64> {
        let without_cache = self.cgroup_peak_bytes.zip(self.cache_bytes).map(|(peak, cache)| peak - cache);
        Some(self.memory_bytes?.max(without_cache.unwrap_or(0.0)))
    }

    /// Returns the mean number of cores in use over `time_s` seconds; none if it is unknown or the time is 0.
    pub fn cores(&self, time_s: f64) -> Option<f64> {
        self.cpu_s.filter(|_| time_s > 0.0).map(|cpu_s| cpu_s / time_s)
    }
}

/// A node of a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct NodeReport {
    pub node: String,
    /// The number of its CPUs, if known.
    pub cpus: Option<u64>,
    /// The number of its cores, if known. A core has several CPUs if these are hardware threads.
    pub cores: Option<u64>,
    /// The number of cores that the scheduler gave to the job there, if it reported it; in its own unit,
    /// which may be hardware threads.
    pub job_cores: Option<u64>,
    /// Its roofs, if they were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roofs: Option<Roofs>,
    /// The number of stored samples.
    pub samples: u64,
    /// True if the agent was lost, so that the end of the job there is unknown.
    pub is_lost: bool,
    /// The energy of the job there, in joules, if known.
    pub energy_joules: Option<f64>,
    #[serde(flatten)]
    pub used: Resources,
}

/// A step of a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StepReport {
    pub step: String,
    /// The number of its nodes.
    pub nodes: u64,
    /// The number of its tasks that were sampled.
    pub tasks: u64,
    /// The time of its first sample, in microseconds since the epoch.
    pub first_us: i64,
    /// The time of its last sample, in microseconds since the epoch.
    pub last_us: i64,
    /// The used resources, summed over the nodes.
    #[serde(flatten)]
    pub used: Resources,
}

impl StepReport {
    /// Returns the time between its first and its last sample, in seconds.
    pub const fn duration_s(&self) -> f64 {
        units::seconds_between(self.first_us, self.last_us) * 1000.0
    }
}

/// A task of a step.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TaskReport {
    pub step: String,
    pub task: String,
    pub node: String,
    #[serde(flatten)]
    pub used: Resources,
}
