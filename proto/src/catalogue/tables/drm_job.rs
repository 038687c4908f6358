//! GPUs of AMD and Intel that a job's processes use. Source: `Documentation/gpu/drm-usage-stats.rst` of
//! Linux, `amdgpu_fdinfo.c`, `i915_drm_client.c` and `xe_drm_client.c`.

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::Origin;
use crate::series::Unit::{self, Bytes, Count, Cycles, Nanoseconds};

const fn of(field: &'static str, place: &'static str) -> Origin {
    Origin::source("drm", field, place)
}

const fn counter(name: &'static str, unit: Unit, origins: &'static [Origin], help: &'static str) -> Metric {
    Metric::counter(name, unit, origins, help)
}

const fn gauge(name: &'static str, unit: Unit, origins: &'static [Origin], help: &'static str) -> Metric {
    Metric::gauge(name, unit, origins, help)
}

/// The GPUs of a job.
pub(crate) static METRICS: &[Metric] = &[
    counter(
        "gpu.drm.engine.time",
        Nanoseconds,
        &[of("time", "`drm-engine-*` in `/proc/PID/fdinfo`")],
        "Time in which the engines of each class of each GPU worked for the job (amdgpu, i915).",
    ),
    counter(
        "gpu.drm.engine.cycles",
        Cycles,
        &[of("cycles", "`drm-cycles-*` in `/proc/PID/fdinfo`")],
        "Cycles in which the engines of each class of each GPU worked for the job (xe).",
    ),
    counter(
        "gpu.drm.engine.cycles.total",
        Cycles,
        &[of("total_cycles", "`drm-total-cycles-*` in `/proc/PID/fdinfo`")],
        "Cycles of the clock of `gpu.drm.engine.cycles`; absent while the job does not use the GPU.",
    ),
    gauge(
        "gpu.drm.engine.capacity",
        Count,
        &[of("capacity", "`drm-engine-capacity-*` in `/proc/PID/fdinfo`, else 1")],
        "Engines of each class of each GPU, which may work for the job at a time.",
    ),
    gauge(
        "gpu.drm.memory.resident",
        Bytes,
        &[of("resident", "`drm-resident-*`, `drm-memory-*` in `/proc/PID/fdinfo`")],
        "Memory of the job in each region of each GPU; what processes share counts for each.",
    ),
    gauge(
        "gpu.drm.memory.total",
        Bytes,
        &[of("total", "`drm-total-*` in `/proc/PID/fdinfo`")],
        "Memory that the job requested in each region of each GPU; what processes share counts for each.",
    ),
    gauge(
        "gpu.drm.memory.shared",
        Bytes,
        &[of("shared", "`drm-shared-*` in `/proc/PID/fdinfo`")],
        "Memory of the job in each region of each GPU that is shared with other clients, within the job or not.",
    ),
    gauge(
        "gpu.drm.clients",
        Count,
        &[of("clients", "`drm-client-id` in `/proc/PID/fdinfo`")],
        "Open files of each GPU in the processes of the job.",
    ),
];
