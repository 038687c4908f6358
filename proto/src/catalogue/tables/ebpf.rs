//! Quantities of jobs that eBPF programs of the agent count. Source: `Documentation/bpf/prog_cgroup_sockopt.rst` and
//! `include/uapi/linux/bpf.h` of Linux (`BPF_PROG_TYPE_CGROUP_SKB`).

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::Origin;
use crate::series::Unit::{Bytes, Count};

const fn network(field: &'static str) -> Origin {
    Origin::source("ebpf", field, "eBPF program `cgroup_skb` on the job's cgroup v2")
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
];
