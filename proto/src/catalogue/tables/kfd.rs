//! AMD's GPUs that a job's processes use for computations. Source: `drivers/gpu/drm/amd/amdkfd/kfd_process.c`
//! of Linux.

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::Origin;
use crate::series::Unit::{Bytes, Count, Nanoseconds};

const fn of(field: &'static str, place: &'static str) -> Origin {
    Origin::source("kfd", field, place)
}

/// The GPUs of a job.
pub(crate) static METRICS: &[Metric] = &[
    Metric::gauge(
        "gpu.amd.memory.used",
        Bytes,
        &[of("memory", "`vram_*` in `/sys/class/kfd/kfd/proc/PID`")],
        "Memory of each GPU that the job's processes have allocated for computations (ROCm).",
    ),
    Metric::counter(
        "gpu.amd.sdma.time",
        Nanoseconds,
        &[of("sdma", "`sdma_*` in `/sys/class/kfd/kfd/proc/PID`")],
        "Time in which the engines of each GPU that copy data worked for the queues of the job's processes.",
    ),
    Metric::counter(
        "gpu.amd.evicted.time",
        Nanoseconds,
        &[of("evicted", "`stats_*/evicted_ms` in `/sys/class/kfd/kfd/proc/PID`")],
        "Time in which the queues of the job's processes were off each GPU, because memory was moved away.",
    ),
    Metric::gauge(
        "gpu.amd.occupied",
        Count,
        &[of("occupancy", "`stats_*/cu_occupancy` in `/sys/class/kfd/kfd/proc/PID`")],
        "Compute units of each GPU whose waves the job's processes fill now; of chips that count it (MI100 and later).",
    ),
];
