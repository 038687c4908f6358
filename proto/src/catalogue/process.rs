//! Sums over the processes of a job that has no cgroup of its own. Source: proc_pid_stat(5), proc_pid_io(5).
//!
//! A series with the label `pid` would be one process of a job; there are none yet.

use super::{Metric, Origin, TICK};
use crate::period::Period;
use crate::series::Unit::{Bytes, Count, Nanoseconds};

/// What is summed over the processes of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessField {
    /// User and system time, that of finished and awaited children included.
    CpuUsage,
    /// User time.
    CpuUser,
    /// System time.
    CpuSystem,
    /// Resident memory; pages that processes share count once for each.
    Resident,
    /// Bytes read from storage.
    ReadBytes,
    /// Bytes written to storage.
    WriteBytes,
    /// Minor page faults.
    MinorFaults,
    /// Major page faults.
    MajorFaults,
    /// Threads.
    Threads,
    /// Processes.
    Processes,
}

impl ProcessField {
    /// How far its values may be behind: proc_pid_stat(5) has CPU time in ticks.
    pub(super) fn granularity(self) -> Option<Period> {
        matches!(self, Self::CpuUsage | Self::CpuUser | Self::CpuSystem).then_some(TICK)
    }
}

pub(crate) static METRICS: &[Metric] = &[
    Metric::counter(
        "process.cpu.usage",
        Nanoseconds,
        &[Origin::Processes(ProcessField::CpuUsage)],
        "CPU time of the job's processes and of those that they have waited for.",
    ),
    Metric::counter(
        "process.cpu.user",
        Nanoseconds,
        &[Origin::Processes(ProcessField::CpuUser)],
        "CPU time in user mode of the job's processes and of those that they have waited for.",
    ),
    Metric::counter(
        "process.cpu.system",
        Nanoseconds,
        &[Origin::Processes(ProcessField::CpuSystem)],
        "CPU time in the kernel of the job's processes and of those that they have waited for.",
    ),
    Metric::gauge(
        "process.memory.resident",
        Bytes,
        &[Origin::Processes(ProcessField::Resident)],
        "Resident memory of the job's processes; pages that they share count once for each.",
    ),
    Metric::counter(
        "process.io.read.bytes",
        Bytes,
        &[Origin::Processes(ProcessField::ReadBytes)],
        "Bytes that the job's processes read from storage.",
    ),
    Metric::counter(
        "process.io.write.bytes",
        Bytes,
        &[Origin::Processes(ProcessField::WriteBytes)],
        "Bytes that the job's processes wrote to storage.",
    ),
    Metric::counter(
        "process.faults.minor",
        Count,
        &[Origin::Processes(ProcessField::MinorFaults)],
        "Page faults of the job's processes that needed no I/O.",
    ),
    Metric::counter(
        "process.faults.major",
        Count,
        &[Origin::Processes(ProcessField::MajorFaults)],
        "Page faults of the job's processes that needed I/O.",
    ),
    Metric::gauge(
        "process.threads",
        Count,
        &[Origin::Processes(ProcessField::Threads)],
        "Threads of the job's processes.",
    ),
    Metric::gauge(
        "process.count",
        Count,
        &[Origin::Processes(ProcessField::Processes)],
        "The job's processes.",
    ),
];
