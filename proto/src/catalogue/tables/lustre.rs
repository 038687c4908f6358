//! Lustre: mounts of a client, and targets of a server. Source: `lustre/obdclass/lprocfs_status.c` and
//! `lprocfs_jobstats.c` of Lustre.

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::Origin;
use crate::series::Unit::{self, Bytes, Count, Nanoseconds};

const fn client(field: &'static str) -> Origin {
    Origin::source(
        "lustre",
        field,
        "`/sys/kernel/debug/lustre/llite/*/stats`, `/proc/fs/lustre/llite/*/stats`",
    )
}

const fn server(field: &'static str) -> Origin {
    Origin::source(
        "lustre",
        field,
        "`obdfilter/*/stats` and `mdt/*/md_stats` in `/sys/kernel/debug/lustre` or `/proc/fs/lustre`",
    )
}

const fn served(field: &'static str) -> Origin {
    Origin::source(
        "lustre_jobs",
        field,
        "`obdfilter/*/job_stats` and `mdt/*/job_stats` in `/proc/fs/lustre` or `/sys/kernel/debug/lustre`",
    )
}

const fn counter(name: &'static str, unit: Unit, origins: &'static [Origin], help: &'static str) -> Metric {
    Metric::counter(name, unit, origins, help).of_node()
}

/// The node's file systems and targets.
pub(crate) static METRICS: &[Metric] = &[
    counter(
        "node.lustre.read.bytes",
        Bytes,
        &[client("read_bytes")],
        "Bytes that applications read, from the page cache as well, of each file system.",
    ),
    counter("node.lustre.read.operations", Count, &[client("read_calls")], "Reads of each file system."),
    counter(
        "node.lustre.write.bytes",
        Bytes,
        &[client("write_bytes")],
        "Bytes that applications wrote, of each file system.",
    ),
    counter("node.lustre.write.operations", Count, &[client("write_calls")], "Writes of each file system."),
    counter(
        "node.lustre.operations",
        Count,
        &[client("operations")],
        "Operations completed, of each file system, by operation; absent before the first.",
    ),
    counter(
        "node.lustre.operation.time",
        Nanoseconds,
        &[client("operation_time")],
        "Time of operations, of each file system, by operation; absent where this version of Lustre only counts them.",
    ),
    counter(
        "node.lustre.target.read.bytes",
        Bytes,
        &[server("target_read_bytes")],
        "Bytes that clients read, of each target of this server.",
    ),
    counter(
        "node.lustre.target.read.operations",
        Count,
        &[server("target_read_calls")],
        "Reads of each target of this server.",
    ),
    counter(
        "node.lustre.target.write.bytes",
        Bytes,
        &[server("target_write_bytes")],
        "Bytes that clients wrote, of each target of this server.",
    ),
    counter(
        "node.lustre.target.write.operations",
        Count,
        &[server("target_write_calls")],
        "Writes of each target of this server.",
    ),
    counter(
        "node.lustre.target.operations",
        Count,
        &[server("target_operations")],
        "Operations completed, of each target of this server, by operation; absent before the first.",
    ),
    counter(
        "node.lustre.target.operation.time",
        Nanoseconds,
        &[server("target_operation_time")],
        "Time of operations, of each target of this server, by operation; absent where this version of Lustre only counts them.",
    ),
    counter(
        "node.lustre.job.read.bytes",
        Bytes,
        &[served("read_bytes")],
        "Bytes that the clients of a job read from the targets of this server.",
    ),
    counter(
        "node.lustre.job.read.operations",
        Count,
        &[served("reads")],
        "Reads by the clients of a job from the targets of this server.",
    ),
    counter(
        "node.lustre.job.write.bytes",
        Bytes,
        &[served("write_bytes")],
        "Bytes that the clients of a job wrote to the targets of this server.",
    ),
    counter(
        "node.lustre.job.write.operations",
        Count,
        &[served("writes")],
        "Writes by the clients of a job to the targets of this server.",
    ),
    counter(
        "node.lustre.job.operations",
        Count,
        &[served("operations")],
        "Operations of the clients of a job beside reads and writes on the targets of this server.",
    ),
    Metric::gauge(
        "node.lustre.jobs",
        Count,
        &[served("jobs")],
        "Ids of jobs that the targets of this server know, of all file systems.",
    )
    .of_node(),
];
