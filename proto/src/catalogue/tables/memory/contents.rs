//! Lines of memory.stat: what the memory of a job contains, and its page faults.

use super::{V1_STAT, V2_STAT};
use crate::catalogue::metric::Metric;
use crate::series::Unit::{Bytes, Count};

/// The contents of memory.
pub(crate) static METRICS: &[Metric] = &[
    Metric::gauge(
        "memory.anon",
        Bytes,
        &[V2_STAT.key("anon"), V1_STAT.key("total_rss")],
        "Anonymous memory, transparent huge pages included.",
    ),
    Metric::gauge(
        "memory.file",
        Bytes,
        &[V2_STAT.key("file"), V1_STAT.key("total_cache")],
        "Page cache, tmpfs and shared memory included.",
    ),
    Metric::gauge(
        "memory.anon_thp",
        Bytes,
        &[V2_STAT.key("anon_thp"), V1_STAT.key("total_rss_huge")],
        "Anonymous memory in transparent huge pages.",
    ),
    Metric::gauge(
        "memory.shmem",
        Bytes,
        &[V2_STAT.key("shmem"), V1_STAT.key("total_shmem")],
        "Cache backed by swap: tmpfs, shared anonymous mappings.",
    ),
    Metric::gauge(
        "memory.file_mapped",
        Bytes,
        &[V2_STAT.key("file_mapped"), V1_STAT.key("total_mapped_file")],
        "Cache that is mapped into processes.",
    ),
    Metric::gauge(
        "memory.file_dirty",
        Bytes,
        &[V2_STAT.key("file_dirty"), V1_STAT.key("total_dirty")],
        "Cache that waits to be written back.",
    ),
    Metric::gauge(
        "memory.file_writeback",
        Bytes,
        &[V2_STAT.key("file_writeback"), V1_STAT.key("total_writeback")],
        "Cache that is being written back.",
    ),
    Metric::gauge(
        "memory.swapcached",
        Bytes,
        &[V2_STAT.key("swapcached"), V1_STAT.key("total_swapcached")],
        "Swap that is cached in memory.",
    ),
    Metric::gauge(
        "memory.inactive_anon",
        Bytes,
        &[V2_STAT.key("inactive_anon"), V1_STAT.key("total_inactive_anon")],
        "Anonymous memory on the inactive list of reclaim.",
    ),
    Metric::gauge(
        "memory.active_anon",
        Bytes,
        &[V2_STAT.key("active_anon"), V1_STAT.key("total_active_anon")],
        "Anonymous memory on the active list of reclaim.",
    ),
    Metric::gauge(
        "memory.inactive_file",
        Bytes,
        &[V2_STAT.key("inactive_file"), V1_STAT.key("total_inactive_file")],
        "Cache on the inactive list of reclaim.",
    ),
    Metric::gauge(
        "memory.active_file",
        Bytes,
        &[V2_STAT.key("active_file"), V1_STAT.key("total_active_file")],
        "Cache on the active list of reclaim.",
    ),
    Metric::gauge(
        "memory.unevictable",
        Bytes,
        &[V2_STAT.key("unevictable"), V1_STAT.key("total_unevictable")],
        "Memory that cannot be reclaimed, such as mlocked pages.",
    ),
    Metric::counter(
        "memory.pgfault",
        Count,
        &[V2_STAT.key("pgfault"), V1_STAT.key("total_pgfault")],
        "Page faults.",
    ),
    Metric::counter(
        "memory.pgmajfault",
        Count,
        &[V2_STAT.key("pgmajfault"), V1_STAT.key("total_pgmajfault")],
        "Page faults that needed I/O.",
    ),
    Metric::counter(
        "memory.workingset_refault_anon",
        Count,
        &[V2_STAT.key("workingset_refault_anon"), V1_STAT.key("total_workingset_refault_anon")],
        "Anonymous pages that were faulted in again soon after they were reclaimed.",
    ),
    Metric::counter(
        "memory.workingset_refault_file",
        Count,
        &[V2_STAT.key("workingset_refault_file"), V1_STAT.key("total_workingset_refault_file")],
        "Cache pages that were faulted in again soon after they were reclaimed.",
    ),
    Metric::gauge(
        "memory.swap",
        Bytes,
        &[V1_STAT.key("total_swap")],
        "Swap in use, of the cgroup and its descendants.",
    ),
    Metric::counter("memory.pgpgin", Count, &[V1_STAT.key("total_pgpgin")], "Pages charged."),
    Metric::counter("memory.pgpgout", Count, &[V1_STAT.key("total_pgpgout")], "Pages uncharged."),
    Metric::counter(
        "memory.workingset_refault",
        Count,
        &[V1_STAT.key("total_workingset_refault")],
        "Pages that were faulted in again soon after they were reclaimed, on kernels that do not distinguish anonymous pages from cache.",
    ),
    Metric::gauge(
        "memory.kernel",
        Bytes,
        &[V2_STAT.key("kernel")],
        "Kernel memory of this job: stacks, page tables, slab, sockets and others.",
    ),
    Metric::gauge("memory.kernel_stack", Bytes, &[V2_STAT.key("kernel_stack")], "Kernel stacks."),
    Metric::gauge("memory.pagetables", Bytes, &[V2_STAT.key("pagetables")], "Page tables."),
    Metric::gauge(
        "memory.sec_pagetables",
        Bytes,
        &[V2_STAT.key("sec_pagetables")],
        "Secondary page tables: virtual machines, IOMMU.",
    ),
    Metric::gauge("memory.percpu", Bytes, &[V2_STAT.key("percpu")], "Per-CPU data of the kernel."),
    Metric::gauge("memory.sock", Bytes, &[V2_STAT.key("sock")], "Network buffers."),
    Metric::gauge(
        "memory.vmalloc",
        Bytes,
        &[V2_STAT.key("vmalloc")],
        "Memory that the kernel mapped with vmalloc.",
    ),
    Metric::gauge(
        "memory.zswap",
        Bytes,
        &[V2_STAT.key("zswap")],
        "Compressed swap in memory, in its compressed size.",
    ),
    Metric::gauge(
        "memory.zswapped",
        Bytes,
        &[V2_STAT.key("zswapped")],
        "Memory that was swapped into compressed swap.",
    ),
    Metric::gauge("memory.file_thp", Bytes, &[V2_STAT.key("file_thp")], "Cache in transparent huge pages."),
    Metric::gauge(
        "memory.shmem_thp",
        Bytes,
        &[V2_STAT.key("shmem_thp")],
        "Shared memory in transparent huge pages.",
    ),
    Metric::gauge(
        "memory.slab_reclaimable",
        Bytes,
        &[V2_STAT.key("slab_reclaimable")],
        "Slab that can be reclaimed: dentries, inodes.",
    ),
    Metric::gauge(
        "memory.slab_unreclaimable",
        Bytes,
        &[V2_STAT.key("slab_unreclaimable")],
        "Slab that cannot be reclaimed.",
    ),
    Metric::gauge("memory.slab", Bytes, &[V2_STAT.key("slab")], "Slab."),
    Metric::gauge(
        "memory.hugetlb",
        Bytes,
        &[V2_STAT.key("hugetlb")],
        "Huge pages of hugetlbfs that are accounted as memory.",
    ),
    Metric::gauge(
        "memory.balloon",
        Bytes,
        &[V2_STAT.key("balloon")],
        "Memory taken back by a balloon driver.",
    ),
];
