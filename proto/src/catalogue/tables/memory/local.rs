//! Lines of memory.stat of version 1 that exclude child cgroups, and its limits of hierarchies.

use super::V1_STAT;
use crate::catalogue::metric::Metric;
use crate::series::Unit::{Bytes, Count};

/// The lines that only version 1 has.
pub(crate) static METRICS: &[Metric] = &[
    Metric::gauge(
        "memory.local.rss",
        Bytes,
        &[V1_STAT.key("rss")],
        "Anonymous memory, transparent huge pages included; excluding child cgroups.",
    ),
    Metric::gauge(
        "memory.local.cache",
        Bytes,
        &[V1_STAT.key("cache")],
        "Page cache, tmpfs and shared memory included; excluding child cgroups.",
    ),
    Metric::gauge(
        "memory.local.rss_huge",
        Bytes,
        &[V1_STAT.key("rss_huge")],
        "Anonymous memory in transparent huge pages; excluding child cgroups.",
    ),
    Metric::gauge(
        "memory.local.shmem",
        Bytes,
        &[V1_STAT.key("shmem")],
        "Cache backed by swap: tmpfs, shared anonymous mappings; excluding child cgroups.",
    ),
    Metric::gauge(
        "memory.local.mapped_file",
        Bytes,
        &[V1_STAT.key("mapped_file")],
        "Cache that is mapped into processes; excluding child cgroups.",
    ),
    Metric::gauge(
        "memory.local.dirty",
        Bytes,
        &[V1_STAT.key("dirty")],
        "Cache that waits to be written back; excluding child cgroups.",
    ),
    Metric::gauge(
        "memory.local.writeback",
        Bytes,
        &[V1_STAT.key("writeback")],
        "Cache that is being written back; excluding child cgroups.",
    ),
    Metric::gauge(
        "memory.local.swapcached",
        Bytes,
        &[V1_STAT.key("swapcached")],
        "Swap that is cached in memory; excluding child cgroups.",
    ),
    Metric::gauge(
        "memory.local.inactive_anon",
        Bytes,
        &[V1_STAT.key("inactive_anon")],
        "Anonymous memory on the inactive list of reclaim; excluding child cgroups.",
    ),
    Metric::gauge(
        "memory.local.active_anon",
        Bytes,
        &[V1_STAT.key("active_anon")],
        "Anonymous memory on the active list of reclaim; excluding child cgroups.",
    ),
    Metric::gauge(
        "memory.local.inactive_file",
        Bytes,
        &[V1_STAT.key("inactive_file")],
        "Cache on the inactive list of reclaim; excluding child cgroups.",
    ),
    Metric::gauge(
        "memory.local.active_file",
        Bytes,
        &[V1_STAT.key("active_file")],
        "Cache on the active list of reclaim; excluding child cgroups.",
    ),
    Metric::gauge(
        "memory.local.unevictable",
        Bytes,
        &[V1_STAT.key("unevictable")],
        "Memory that cannot be reclaimed, such as mlocked pages; excluding child cgroups.",
    ),
    Metric::counter(
        "memory.local.pgfault",
        Count,
        &[V1_STAT.key("pgfault")],
        "Page faults; excluding child cgroups.",
    ),
    Metric::counter(
        "memory.local.pgmajfault",
        Count,
        &[V1_STAT.key("pgmajfault")],
        "Page faults that needed I/O; excluding child cgroups.",
    ),
    Metric::counter(
        "memory.local.workingset_refault_anon",
        Count,
        &[V1_STAT.key("workingset_refault_anon")],
        "Anonymous pages that were faulted in again soon after they were reclaimed; excluding child cgroups.",
    ),
    Metric::counter(
        "memory.local.workingset_refault_file",
        Count,
        &[V1_STAT.key("workingset_refault_file")],
        "Cache pages that were faulted in again soon after they were reclaimed; excluding child cgroups.",
    ),
    Metric::gauge(
        "memory.local.swap",
        Bytes,
        &[V1_STAT.key("swap")],
        "Swap in use; excluding child cgroups.",
    ),
    Metric::counter(
        "memory.local.pgpgin",
        Count,
        &[V1_STAT.key("pgpgin")],
        "Pages charged; excluding child cgroups.",
    ),
    Metric::counter(
        "memory.local.pgpgout",
        Count,
        &[V1_STAT.key("pgpgout")],
        "Pages uncharged; excluding child cgroups.",
    ),
    Metric::counter(
        "memory.local.workingset_refault",
        Count,
        &[V1_STAT.key("workingset_refault")],
        "Pages that were faulted in again soon after they were reclaimed, on kernels that do not distinguish anonymous pages from cache; excluding child cgroups.",
    ),
    Metric::gauge(
        "memory.hierarchical_limit",
        Bytes,
        &[V1_STAT.key_limit("hierarchical_memory_limit")],
        "The lowest memory limit of the cgroup and its ancestors.",
    ),
    Metric::gauge(
        "memory.hierarchical_swap_limit",
        Bytes,
        &[V1_STAT.key_limit("hierarchical_memsw_limit")],
        "The lowest limit of memory and swap of the cgroup and its ancestors.",
    ),
];
