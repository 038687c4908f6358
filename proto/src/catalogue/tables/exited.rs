//! The ended processes and threads of a job. Source: `Documentation/accounting/taskstats.rst`,
//! `delay-accounting.rst` and `include/uapi/linux/taskstats.h` of Linux.

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::{Origin, TICK};
use crate::series::Unit::{Bytes, Count, Nanoseconds};

const PLACE: &str = "taskstats (netlink)";

const fn of(field: &'static str) -> Origin {
    Origin::source("taskstats", field, PLACE)
}

/// Creates the origin of CPU time, which the kernel divides into that of user mode and of the kernel by
/// ticks.
const fn ticks(field: &'static str) -> Origin {
    Origin::lagging_source("taskstats", field, PLACE, TICK)
}

pub(crate) static METRICS: &[Metric] = &[
    Metric::counter("exited.threads", Count, &[of("threads")], "Threads of the job that have ended."),
    Metric::counter(
        "exited.processes",
        Count,
        &[of("processes")],
        "Processes of the job that have ended; from Linux 5.19 on.",
    ),
    Metric::counter(
        "exited.overruns",
        Count,
        &[of("overruns")],
        "Times that the kernel dropped records of ended threads of the node, because too many ended at a time: the other values are too low.",
    ),
    Metric::counter(
        "exited.cpu.user",
        Nanoseconds,
        &[ticks("cpu_user")],
        "CPU time of ended threads in user mode.",
    ),
    Metric::counter(
        "exited.cpu.system",
        Nanoseconds,
        &[ticks("cpu_system")],
        "CPU time of ended threads in the kernel.",
    ),
    Metric::gauge(
        "exited.memory.peak",
        Bytes,
        &[of("memory_peak")],
        "Largest resident memory of any ended process.",
    ),
    Metric::counter(
        "exited.faults.minor",
        Count,
        &[of("minor_faults")],
        "Page faults of ended threads that needed no I/O.",
    ),
    Metric::counter(
        "exited.faults.major",
        Count,
        &[of("major_faults")],
        "Page faults of ended threads that needed I/O.",
    ),
    Metric::counter(
        "exited.io.read.bytes",
        Bytes,
        &[of("read_bytes")],
        "Bytes that ended threads read from storage, each rounded down to KiB.",
    ),
    Metric::counter(
        "exited.io.write.bytes",
        Bytes,
        &[of("write_bytes")],
        "Bytes that ended threads wrote to storage, each rounded down to KiB.",
    ),
    Metric::counter(
        "exited.io.read.call.bytes",
        Bytes,
        &[of("rchar")],
        "Bytes that read calls of ended threads returned, each rounded down to KiB.",
    ),
    Metric::counter(
        "exited.io.write.call.bytes",
        Bytes,
        &[of("wchar")],
        "Bytes that ended threads passed to write calls, each rounded down to KiB.",
    ),
    Metric::counter(
        "exited.switches.voluntary",
        Count,
        &[of("voluntary_switches")],
        "Context switches of ended threads that waited for something.",
    ),
    Metric::counter(
        "exited.switches.involuntary",
        Count,
        &[of("involuntary_switches")],
        "Context switches of ended threads that were preempted.",
    ),
    Metric::counter(
        "exited.delay.cpu",
        Nanoseconds,
        &[of("cpu_delay")],
        "Time that ended threads waited for a CPU.",
    ),
    Metric::counter(
        "exited.delay.block_io",
        Nanoseconds,
        &[of("block_io_delay")],
        "Time that ended threads waited for block I/O. This and the delays below need the sysctl kernel.task_delayacct.",
    ),
    Metric::counter(
        "exited.delay.swap",
        Nanoseconds,
        &[of("swap_delay")],
        "Time that ended threads waited for pages from swap.",
    ),
    Metric::counter(
        "exited.delay.reclaim",
        Nanoseconds,
        &[of("reclaim_delay")],
        "Time that ended threads spent on freeing memory.",
    ),
    Metric::counter(
        "exited.delay.thrashing",
        Nanoseconds,
        &[of("thrashing_delay")],
        "Time that ended threads waited for pages that had been evicted shortly before.",
    ),
    Metric::counter(
        "exited.delay.compact",
        Nanoseconds,
        &[of("compact_delay")],
        "Time that ended threads spent on compaction of memory; from Linux 5.17 on.",
    ),
];
