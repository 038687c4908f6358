//! The busiest processes of a job, each with series of its own. Source: proc_pid_stat(5), proc_pid_io(5).

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::{Origin, TICK};
use crate::series::Unit::{Bytes, Count, Nanoseconds};

const fn of(field: &'static str, place: &'static str) -> Origin {
    Origin::source("busiest", field, place)
}

pub(crate) static METRICS: &[Metric] = &[
    Metric::counter(
        "busiest.cpu.usage",
        Nanoseconds,
        &[Origin::lagging_source("busiest", "cpu_usage", "`/proc/PID/stat`", TICK)],
        "CPU time of each of the busiest processes.",
    ),
    Metric::gauge(
        "busiest.memory.resident",
        Bytes,
        &[of("resident", "`/proc/PID/stat`")],
        "Resident memory of each of the busiest processes.",
    ),
    Metric::gauge(
        "busiest.threads",
        Count,
        &[of("threads", "`/proc/PID/stat`")],
        "Threads of each of the busiest processes.",
    ),
    Metric::counter(
        "busiest.io.read.bytes",
        Bytes,
        &[of("read_bytes", "`/proc/PID/io`")],
        "Bytes that each of the busiest processes read from storage.",
    ),
    Metric::counter(
        "busiest.io.write.bytes",
        Bytes,
        &[of("write_bytes", "`/proc/PID/io`")],
        "Bytes that each of the busiest processes wrote to storage.",
    ),
];
