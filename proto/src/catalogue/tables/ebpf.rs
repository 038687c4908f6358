//! Quantities of jobs that eBPF programs of the agent count. Source:
//! `Documentation/bpf/prog_cgroup_sockopt.rst` and `include/uapi/linux/bpf.h` of Linux
//! (`BPF_PROG_TYPE_CGROUP_SKB`); `kernel/sched/stats.h` (`sched_info`).

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::Origin;
use crate::series::Unit::{Bytes, Count, Nanoseconds};

const fn network(field: &'static str) -> Origin {
    Origin::source("ebpf", field, "eBPF program `cgroup_skb` on the job's cgroup v2")
}

const fn runqueue(field: &'static str) -> Origin {
    Origin::source("ebpf", field, "eBPF program at the tracepoint `sched_switch`")
}

const fn vfs(field: &'static str) -> Origin {
    Origin::source("ebpf", field, "eBPF programs at the tracepoints `sys_enter` and `sys_exit`")
}

pub(crate) static METRICS: &[Metric] = &[
    Metric::counter(
        "network.receive.bytes",
        Bytes,
        &[network("receive_bytes")],
        "Bytes of IP packets that sockets of the job received, with IP headers.",
    ),
    Metric::counter(
        "network.receive.packets",
        Count,
        &[network("receive_packets")],
        "IP packets that sockets of the job received; the packets that the kernel has merged count each.",
    ),
    Metric::counter(
        "network.transmit.bytes",
        Bytes,
        &[network("transmit_bytes")],
        "Bytes of IP packets that sockets of the job sent, with IP headers. Packets that the adapter splits share one header here.",
    ),
    Metric::counter(
        "network.transmit.packets",
        Count,
        &[network("transmit_packets")],
        "IP packets that sockets of the job sent, after splitting by the adapter.",
    ),
    Metric::counter(
        "runqueue.wait.time",
        Nanoseconds,
        &[runqueue("wait_time")],
        "Time that threads of the job were ready to run and waited for a CPU.",
    ),
    Metric::counter(
        "runqueue.wait.count",
        Count,
        &[runqueue("wait_count")],
        "Waits for a CPU that have ended: how often a thread of the job began to run.",
    ),
    Metric::counter(
        "runqueue.wait.bucket",
        Count,
        &[runqueue("wait_bucket")],
        "Waits for a CPU of at most `le` seconds: 1 us to 1 s, in steps of about four. Those of any length are `runqueue.wait.count`.",
    ),
    Metric::counter(
        "vfs.read.bytes",
        Bytes,
        &[vfs("read_bytes")],
        "Bytes that the job read from files of the file system by system calls, also from the page cache.",
    ),
    Metric::counter(
        "vfs.read.count",
        Count,
        &[vfs("read_count")],
        "Reads of files of the file system that succeeded.",
    ),
    Metric::counter(
        "vfs.read.time",
        Nanoseconds,
        &[vfs("read_time")],
        "Time that these read operations took; those of several threads add up.",
    ),
    Metric::counter(
        "vfs.read.bucket",
        Count,
        &[vfs("read_bucket")],
        "Read operations of at most `le` seconds: 1 us to 1 s, in steps of about four.",
    ),
    Metric::counter(
        "vfs.write.bytes",
        Bytes,
        &[vfs("write_bytes")],
        "Bytes that the job wrote to files of the file system by system calls, also those that are still in the page cache.",
    ),
    Metric::counter(
        "vfs.write.count",
        Count,
        &[vfs("write_count")],
        "Writes to files of the file system that succeeded.",
    ),
    Metric::counter(
        "vfs.write.time",
        Nanoseconds,
        &[vfs("write_time")],
        "Time that these write operations took; those of several threads add up.",
    ),
    Metric::counter(
        "vfs.write.bucket",
        Count,
        &[vfs("write_bucket")],
        "Write operations of at most `le` seconds: 1 us to 1 s, in steps of about four.",
    ),
    Metric::counter(
        "vfs.open.count",
        Count,
        &[vfs("open_count")],
        "Openings of files of the file system that succeeded.",
    ),
    Metric::counter(
        "vfs.open.time",
        Nanoseconds,
        &[vfs("open_time")],
        "Time that these open operations took; those of several threads add up.",
    ),
    Metric::counter(
        "vfs.open.bucket",
        Count,
        &[vfs("open_bucket")],
        "Open operations of at most `le` seconds: 1 us to 1 s, in steps of about four.",
    ),
    Metric::counter(
        "vfs.sync.count",
        Count,
        &[vfs("sync_count")],
        "Calls of fsync and fdatasync on files of the file system that succeeded.",
    ),
    Metric::counter(
        "vfs.sync.time",
        Nanoseconds,
        &[vfs("sync_time")],
        "Time that these sync operations took; those of several threads add up.",
    ),
    Metric::counter(
        "vfs.sync.bucket",
        Count,
        &[vfs("sync_bucket")],
        "Sync operations of at most `le` seconds: 1 us to 1 s, in steps of about four.",
    ),
];
