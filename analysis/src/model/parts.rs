//! Parts of a report by node, step and task.

use polymeter_proto::series::Roofs;
use polymeter_proto::units;
use serde::Serialize;

/// Origin of a figure of used memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// Memory of the cgroup without the page cache.
    AnonymousAndShared,
    /// Also the pages of hugetlbfs.
    WithHugePages,
    /// Peak of the cgroup, which ran out of memory: there was no page cache left to reclaim.
    CgroupPeak,
    /// Summed over the processes; shared pages count for each of them.
    Resident,
}

impl MemoryKind {
    pub const fn short(self) -> &'static str {
        match self {
            Self::AnonymousAndShared => "anon + shmem",
            Self::WithHugePages => "anon + shmem + huge pages",
            Self::CgroupPeak => "peak of the cgroup",
            Self::Resident => "resident",
        }
    }

    pub const fn text(self) -> &'static str {
        match self {
            Self::AnonymousAndShared => "anonymous + shared, without cache",
            Self::WithHugePages => "anonymous + shared + huge pages, without cache",
            Self::CgroupPeak => "peak of the cgroup, which ran out of memory",
            Self::Resident => "resident, sum of processes",
        }
    }
}

/// Quantities that were not sampled are absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Resources {
    pub cpu_s: Option<f64>,
    /// Largest number in use at a time, over the windows of the counter.
    pub cores_max: Option<f64>,
    /// Peak of used memory; its origin is in `memory_kind`.
    pub memory_bytes: Option<f64>,
    pub memory_kind: Option<MemoryKind>,
    /// Peak of the page cache without shared memory.
    pub cache_bytes: Option<f64>,
    /// Peak with page cache and kernel memory.
    pub cgroup_peak_bytes: Option<f64>,
    /// Hard limit of the cgroup when the most was used; of several nodes the lowest.
    pub memory_limit_bytes: Option<f64>,
    pub read_bytes: Option<f64>,
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

    /// Upper bound of the used memory: what the samples show, or more if the cgroup's peak without page cache
    /// was more. That may have been used between two samples, or by the kernel.
    pub fn memory_bound_bytes(&self) -> Option<f64> {
        let without_cache = self.cgroup_peak_bytes.zip(self.cache_bytes).map(|(peak, cache)| peak - cache);
        Some(self.memory_bytes?.max(without_cache.unwrap_or(0.0)))
    }

    /// Mean number of cores in use over `time_s` seconds; none if it is unknown or the time is 0.
    pub fn cores(&self, time_s: f64) -> Option<f64> {
        self.cpu_s.filter(|_| time_s > 0.0).map(|cpu_s| cpu_s / time_s)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct NodeReport {
    pub node: String,
    pub cpus: Option<u64>,
    /// A core has several CPUs if these are hardware threads.
    pub cores: Option<u64>,
    /// Given by the scheduler to the job there, if it reported them; in its own unit, which may be hardware
    /// threads.
    pub job_cores: Option<u64>,
    /// None if they were not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roofs: Option<Roofs>,
    pub samples: u64,
    /// True if the agent was lost, so that the end of the job there is unknown.
    pub is_lost: bool,
    pub energy_joules: Option<f64>,
    #[serde(flatten)]
    pub used: Resources,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StepReport {
    pub step: String,
    pub nodes: u64,
    pub tasks: u64,
    /// Time of the first sample, since the epoch.
    pub first_us: i64,
    pub last_us: i64,
    /// Summed over the nodes.
    #[serde(flatten)]
    pub used: Resources,
}

impl StepReport {
    pub const fn duration_s(&self) -> f64 {
        units::seconds_between(self.first_us, self.last_us) * 1000.0
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TaskReport {
    pub step: String,
    pub task: String,
    pub node: String,
    #[serde(flatten)]
    pub used: Resources,
}
