//! Sums over the processes of a job, most of them for a job that has no cgroup of its own. Source:
//! proc_pid_stat(5), proc_pid_io(5).

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::{Origin, TICK};
use crate::series::Unit::{Bytes, Count, Nanoseconds};

const PLACE: &str = "sum over `/proc/PID/stat` and `io`";

const fn sum(field: &'static str) -> Origin {
    Origin::source("processes", field, PLACE)
}

/// Creates the origin of the I/O of a job with cgroups, none of which counts it.
const fn of_cgroup(field: &'static str) -> Origin {
    Origin::source("process_io", field, "sum over `/proc/PID/io` of the cgroup's processes")
}

/// Creates the origin of a sum of CPU time, which proc_pid_stat(5) counts in ticks.
const fn time(field: &'static str) -> Origin {
    Origin::lagging_source("processes", field, PLACE, TICK)
}

pub(crate) static METRICS: &[Metric] = &[
    Metric::counter(
        "process.cpu.usage",
        Nanoseconds,
        &[time("cpu_usage")],
        "CPU time of the job's processes and of their terminated, waited-for children.",
    ),
    Metric::counter(
        "process.cpu.user",
        Nanoseconds,
        &[time("cpu_user")],
        "CPU time in user mode of the job's processes and of their terminated, waited-for children.",
    ),
    Metric::counter(
        "process.cpu.system",
        Nanoseconds,
        &[time("cpu_system")],
        "CPU time in the kernel of the job's processes and of their terminated, waited-for children.",
    ),
    Metric::gauge(
        "process.memory.resident",
        Bytes,
        &[sum("resident")],
        "Resident memory of the job's processes; shared pages are counted once per process.",
    ),
    Metric::counter(
        "process.io.read.bytes",
        Bytes,
        &[sum("read_bytes"), of_cgroup("read_bytes")],
        "Bytes that the job's processes read from storage.",
    ),
    Metric::counter(
        "process.io.write.bytes",
        Bytes,
        &[sum("write_bytes"), of_cgroup("write_bytes")],
        "Bytes that the job's processes wrote to storage, when they made pages of the page cache dirty.",
    ),
    Metric::counter(
        "process.io.write.cancelled.bytes",
        Bytes,
        &[sum("cancelled_write_bytes"), of_cgroup("cancelled_write_bytes")],
        "Bytes of those that were never written, because the file was truncated or removed before.",
    ),
    Metric::counter(
        "process.io.read.call.bytes",
        Bytes,
        &[sum("rchar"), of_cgroup("rchar")],
        "Bytes that read calls of the job's processes returned, also from the page cache, pipes and terminals.",
    ),
    Metric::counter(
        "process.io.write.call.bytes",
        Bytes,
        &[sum("wchar"), of_cgroup("wchar")],
        "Bytes that the job's processes passed to write calls, also to pipes and terminals.",
    ),
    Metric::counter(
        "process.io.read.calls",
        Count,
        &[sum("syscr"), of_cgroup("syscr")],
        "Read calls of the job's processes.",
    ),
    Metric::counter(
        "process.io.write.calls",
        Count,
        &[sum("syscw"), of_cgroup("syscw")],
        "Write calls of the job's processes.",
    ),
    Metric::counter(
        "process.faults.minor",
        Count,
        &[sum("minor_faults")],
        "Page faults of the job's processes that needed no I/O.",
    ),
    Metric::counter(
        "process.faults.major",
        Count,
        &[sum("major_faults")],
        "Page faults of the job's processes that needed I/O.",
    ),
    Metric::gauge("process.threads", Count, &[sum("threads")], "Threads of the job's processes."),
    Metric::gauge("process.count", Count, &[sum("processes")], "The job's processes."),
];
