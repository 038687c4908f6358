//! Memory of a job. Source: `Documentation/admin-guide/cgroup-v2.rst` and `cgroup-v1/memory.rst` of Linux, and
//! `memory_stats` and `memcg1_stats` in `mm/memcontrol*.c`.
//!
//! Version 2 counts a cgroup with its descendants, as the `total_` lines of version 1 do: these share their
//! names. The plain lines of version 1, which exclude descendants, are `memory.local.*` and absent on version
//! 2.

use crate::catalogue::metric::Metric;
use crate::catalogue::text_file::{Form, TextFile, V1_UNLIMITED};
use crate::period::Period;
use crate::series::Unit::{Bytes, Count};

/// The kernel adds up the per-CPU counts after many changes, otherwise every two seconds: `FLUSH_TIME` and
/// `MEMCG_CHARGE_BATCH` of `mm/memcontrol.c`.
const FLUSH: Period = Period::TWO_SECONDS;

static V1_STAT: TextFile = TextFile::v1("memory", "memory.stat", Form::Keyed).updated_every(FLUSH);
static V2_STAT: TextFile = TextFile::v2("memory.stat", Form::Keyed).updated_every(FLUSH);

/// The lines of memory.stat.
pub(crate) static STAT: &[Metric] = &[
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
    Metric::counter(
        "memory.workingset_activate_anon",
        Count,
        &[V2_STAT.key("workingset_activate_anon")],
        "Anonymous pages that were faulted in again and activated at once.",
    ),
    Metric::counter(
        "memory.workingset_activate_file",
        Count,
        &[V2_STAT.key("workingset_activate_file")],
        "Cache pages that were faulted in again and activated at once.",
    ),
    Metric::counter(
        "memory.workingset_restore_anon",
        Count,
        &[V2_STAT.key("workingset_restore_anon")],
        "Anonymous pages of the working set that were faulted in again.",
    ),
    Metric::counter(
        "memory.workingset_restore_file",
        Count,
        &[V2_STAT.key("workingset_restore_file")],
        "Cache pages of the working set that were faulted in again.",
    ),
    Metric::counter(
        "memory.workingset_nodereclaim",
        Count,
        &[V2_STAT.key("workingset_nodereclaim")],
        "Shadow nodes that were reclaimed.",
    ),
    Metric::counter("memory.pswpin", Count, &[V2_STAT.key("pswpin")], "Pages swapped in."),
    Metric::counter("memory.pswpout", Count, &[V2_STAT.key("pswpout")], "Pages swapped out."),
    Metric::counter("memory.pgscan", Count, &[V2_STAT.key("pgscan")], "Pages scanned by reclaim."),
    Metric::counter("memory.pgsteal", Count, &[V2_STAT.key("pgsteal")], "Pages reclaimed."),
    Metric::counter(
        "memory.pgscan_kswapd",
        Count,
        &[V2_STAT.key("pgscan_kswapd")],
        "Pages scanned by kswapd.",
    ),
    Metric::counter(
        "memory.pgscan_direct",
        Count,
        &[V2_STAT.key("pgscan_direct")],
        "Pages scanned by the job's own processes.",
    ),
    Metric::counter(
        "memory.pgscan_khugepaged",
        Count,
        &[V2_STAT.key("pgscan_khugepaged")],
        "Pages scanned by khugepaged.",
    ),
    Metric::counter(
        "memory.pgscan_proactive",
        Count,
        &[V2_STAT.key("pgscan_proactive")],
        "Pages scanned because user space asked for it.",
    ),
    Metric::counter(
        "memory.pgsteal_kswapd",
        Count,
        &[V2_STAT.key("pgsteal_kswapd")],
        "Pages reclaimed by kswapd.",
    ),
    Metric::counter(
        "memory.pgsteal_direct",
        Count,
        &[V2_STAT.key("pgsteal_direct")],
        "Pages reclaimed by the job's own processes.",
    ),
    Metric::counter(
        "memory.pgsteal_khugepaged",
        Count,
        &[V2_STAT.key("pgsteal_khugepaged")],
        "Pages reclaimed by khugepaged.",
    ),
    Metric::counter(
        "memory.pgsteal_proactive",
        Count,
        &[V2_STAT.key("pgsteal_proactive")],
        "Pages reclaimed because user space asked for it.",
    ),
    Metric::counter(
        "memory.pgrefill",
        Count,
        &[V2_STAT.key("pgrefill")],
        "Pages scanned on the active lists.",
    ),
    Metric::counter(
        "memory.pgactivate",
        Count,
        &[V2_STAT.key("pgactivate")],
        "Pages moved to the active lists.",
    ),
    Metric::counter(
        "memory.pgdeactivate",
        Count,
        &[V2_STAT.key("pgdeactivate")],
        "Pages moved to the inactive lists.",
    ),
    Metric::counter(
        "memory.pglazyfree",
        Count,
        &[V2_STAT.key("pglazyfree")],
        "Pages marked as lazily freed.",
    ),
    Metric::counter(
        "memory.pglazyfreed",
        Count,
        &[V2_STAT.key("pglazyfreed")],
        "Lazily freed pages that were freed.",
    ),
    Metric::counter(
        "memory.pgdemote_kswapd",
        Count,
        &[V2_STAT.key("pgdemote_kswapd")],
        "Pages demoted to slower memory by kswapd.",
    ),
    Metric::counter(
        "memory.pgdemote_direct",
        Count,
        &[V2_STAT.key("pgdemote_direct")],
        "Pages demoted to slower memory by the job's own processes.",
    ),
    Metric::counter(
        "memory.pgdemote_khugepaged",
        Count,
        &[V2_STAT.key("pgdemote_khugepaged")],
        "Pages demoted to slower memory by khugepaged.",
    ),
    Metric::counter(
        "memory.pgdemote_proactive",
        Count,
        &[V2_STAT.key("pgdemote_proactive")],
        "Pages demoted to slower memory because user space asked for it.",
    ),
    Metric::counter(
        "memory.pgpromote_success",
        Count,
        &[V2_STAT.key("pgpromote_success")],
        "Pages promoted to faster memory.",
    ),
    Metric::counter(
        "memory.swpin_zero",
        Count,
        &[V2_STAT.key("swpin_zero")],
        "Pages of zeros swapped in without I/O.",
    ),
    Metric::counter(
        "memory.swpout_zero",
        Count,
        &[V2_STAT.key("swpout_zero")],
        "Pages of zeros swapped out without I/O.",
    ),
    Metric::counter("memory.zswpin", Count, &[V2_STAT.key("zswpin")], "Pages moved out of compressed swap."),
    Metric::counter("memory.zswpout", Count, &[V2_STAT.key("zswpout")], "Pages moved into compressed swap."),
    Metric::counter(
        "memory.zswpwb",
        Count,
        &[V2_STAT.key("zswpwb")],
        "Pages written from compressed swap to the swap device.",
    ),
    Metric::gauge(
        "memory.zswap_incomp",
        Bytes,
        &[V2_STAT.key("zswap_incomp")],
        "Memory in compressed swap that could not be compressed.",
    ),
    Metric::counter(
        "memory.thp_fault_alloc",
        Count,
        &[V2_STAT.key("thp_fault_alloc")],
        "Huge pages allocated by a fault.",
    ),
    Metric::counter(
        "memory.thp_collapse_alloc",
        Count,
        &[V2_STAT.key("thp_collapse_alloc")],
        "Huge pages made of small ones.",
    ),
    Metric::counter(
        "memory.thp_swpout",
        Count,
        &[V2_STAT.key("thp_swpout")],
        "Huge pages swapped out whole.",
    ),
    Metric::counter(
        "memory.thp_swpout_fallback",
        Count,
        &[V2_STAT.key("thp_swpout_fallback")],
        "Huge pages split to be swapped out.",
    ),
    Metric::counter(
        "memory.numa_pages_migrated",
        Count,
        &[V2_STAT.key("numa_pages_migrated")],
        "Pages migrated by NUMA balancing.",
    ),
    Metric::counter(
        "memory.numa_pte_updates",
        Count,
        &[V2_STAT.key("numa_pte_updates")],
        "Page-table entries that NUMA balancing changed to cause faults.",
    ),
    Metric::counter(
        "memory.numa_hint_faults",
        Count,
        &[V2_STAT.key("numa_hint_faults")],
        "Faults that NUMA balancing caused.",
    ),
    Metric::counter(
        "memory.numa_task_migrated",
        Count,
        &[V2_STAT.key("numa_task_migrated")],
        "Tasks that NUMA balancing migrated.",
    ),
    Metric::counter(
        "memory.numa_task_swapped",
        Count,
        &[V2_STAT.key("numa_task_swapped")],
        "Tasks that NUMA balancing swapped.",
    ),
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

static V1_USAGE: TextFile = TextFile::v1("memory", "memory.usage_in_bytes", Form::Values);
static V1_PEAK: TextFile = TextFile::v1("memory", "memory.max_usage_in_bytes", Form::Values);
static V1_LIMIT: TextFile = TextFile::v1("memory", "memory.limit_in_bytes", Form::Values);
static V1_SOFT_LIMIT: TextFile = TextFile::v1("memory", "memory.soft_limit_in_bytes", Form::Values);
static V1_FAILURES: TextFile = TextFile::v1("memory", "memory.failcnt", Form::Values).local();
static V1_SWAP_USAGE: TextFile = TextFile::v1("memory", "memory.memsw.usage_in_bytes", Form::Values);
static V1_SWAP_PEAK: TextFile = TextFile::v1("memory", "memory.memsw.max_usage_in_bytes", Form::Values);
static V1_SWAP_LIMIT: TextFile = TextFile::v1("memory", "memory.memsw.limit_in_bytes", Form::Values);
static V1_SWAP_FAILURES: TextFile = TextFile::v1("memory", "memory.memsw.failcnt", Form::Values).local();
static V1_KERNEL_USAGE: TextFile = TextFile::v1("memory", "memory.kmem.usage_in_bytes", Form::Values);
static V1_TCP_USAGE: TextFile = TextFile::v1("memory", "memory.kmem.tcp.usage_in_bytes", Form::Values);
static V1_OOM: TextFile = TextFile::v1("memory", "memory.oom_control", Form::Keyed).local();
static V2_CURRENT: TextFile = TextFile::v2("memory.current", Form::Values);
static V2_PEAK: TextFile = TextFile::v2("memory.peak", Form::Values);
static V2_MAX: TextFile = TextFile::v2("memory.max", Form::Values);
static V2_HIGH: TextFile = TextFile::v2("memory.high", Form::Values);
static V2_LOW: TextFile = TextFile::v2("memory.low", Form::Values);
static V2_MIN: TextFile = TextFile::v2("memory.min", Form::Values);
static V2_EVENTS: TextFile = TextFile::v2("memory.events", Form::Keyed);
static V2_SWAP_CURRENT: TextFile = TextFile::v2("memory.swap.current", Form::Values);
static V2_SWAP_PEAK: TextFile = TextFile::v2("memory.swap.peak", Form::Values);
static V2_SWAP_MAX: TextFile = TextFile::v2("memory.swap.max", Form::Values);
static V2_SWAP_EVENTS: TextFile = TextFile::v2("memory.swap.events", Form::Keyed);
static V2_ZSWAP_CURRENT: TextFile = TextFile::v2("memory.zswap.current", Form::Values);

/// Usage, limits, and failed allocations.
pub(crate) static USAGE: &[Metric] = &[
    Metric::gauge(
        "memory.current",
        Bytes,
        &[V2_CURRENT.only(), V1_USAGE.only()],
        "Memory in use, cache and kernel memory included.",
    ),
    Metric::gauge("memory.peak", Bytes, &[V2_PEAK.only(), V1_PEAK.only()], "The peak of memory in use."),
    Metric::gauge(
        "memory.limit",
        Bytes,
        &[V2_MAX.limit(u64::MAX), V1_LIMIT.limit(V1_UNLIMITED)],
        "The hard limit; absent where there is none.",
    ),
    Metric::gauge(
        "memory.limit.soft",
        Bytes,
        &[V1_SOFT_LIMIT.limit(V1_UNLIMITED)],
        "The soft limit of version 1; absent where there is none.",
    ),
    Metric::gauge(
        "memory.limit.high",
        Bytes,
        &[V2_HIGH.limit(u64::MAX)],
        "The limit above which the job is throttled; absent where there is none.",
    ),
    Metric::gauge(
        "memory.protection.low",
        Bytes,
        &[V2_LOW.limit(u64::MAX)],
        "Memory that is reclaimed only if no other memory can be.",
    ),
    Metric::gauge(
        "memory.protection.min",
        Bytes,
        &[V2_MIN.limit(u64::MAX)],
        "Memory that is never reclaimed.",
    ),
    Metric::counter(
        "memory.events.max",
        Count,
        &[V2_EVENTS.key("max"), V1_FAILURES.only()],
        "Times that the hard limit was reached.",
    ),
    Metric::counter(
        "memory.events.low",
        Count,
        &[V2_EVENTS.key("low")],
        "Times that memory below the low limit was reclaimed.",
    ),
    Metric::counter(
        "memory.events.high",
        Count,
        &[V2_EVENTS.key("high")],
        "Times that the job was throttled at its high limit.",
    ),
    Metric::counter(
        "memory.events.oom",
        Count,
        &[V2_EVENTS.key("oom")],
        "Times that an allocation was about to fail at the hard limit.",
    ),
    Metric::counter(
        "memory.events.oom_kill",
        Count,
        &[V2_EVENTS.key("oom_kill"), V1_OOM.key("oom_kill")],
        "Processes killed by the OOM killer.",
    ),
    Metric::counter(
        "memory.events.oom_group_kill",
        Count,
        &[V2_EVENTS.key("oom_group_kill")],
        "Times that the OOM killer killed all processes of the cgroup together.",
    ),
    Metric::gauge(
        "memory.under_oom",
        Count,
        &[V1_OOM.key("under_oom")],
        "1 while processes wait for memory at the hard limit of version 1.",
    ),
    Metric::gauge("memory.swap.current", Bytes, &[V2_SWAP_CURRENT.only()], "Swap in use."),
    Metric::gauge("memory.swap.peak", Bytes, &[V2_SWAP_PEAK.only()], "The peak of swap in use."),
    Metric::gauge(
        "memory.swap.limit",
        Bytes,
        &[V2_SWAP_MAX.limit(u64::MAX)],
        "The hard limit of swap; absent where there is none.",
    ),
    Metric::counter(
        "memory.swap.events.high",
        Count,
        &[V2_SWAP_EVENTS.key("high")],
        "Times that swap was above its high limit.",
    ),
    Metric::counter(
        "memory.swap.events.max",
        Count,
        &[V2_SWAP_EVENTS.key("max")],
        "Times that the limit of swap was reached.",
    ),
    Metric::counter(
        "memory.swap.shortages",
        Count,
        &[V2_SWAP_EVENTS.key("fail")],
        "Swap allocations that failed, at the limit or because no swap was left.",
    ),
    Metric::gauge(
        "memory.memsw.current",
        Bytes,
        &[V1_SWAP_USAGE.only()],
        "Memory and swap in use together, which version 1 counts as one.",
    ),
    Metric::gauge(
        "memory.memsw.peak",
        Bytes,
        &[V1_SWAP_PEAK.only()],
        "The peak of memory and swap in use together.",
    ),
    Metric::gauge(
        "memory.memsw.limit",
        Bytes,
        &[V1_SWAP_LIMIT.limit(V1_UNLIMITED)],
        "The hard limit of memory and swap together; absent where there is none.",
    ),
    Metric::counter(
        "memory.memsw.events.max",
        Count,
        &[V1_SWAP_FAILURES.only()],
        "Times that the limit of memory and swap together was reached.",
    ),
    Metric::gauge(
        "memory.zswap.current",
        Bytes,
        &[V2_ZSWAP_CURRENT.only()],
        "Memory used by compressed swap.",
    ),
    Metric::gauge(
        "memory.kernel.current",
        Bytes,
        &[V1_KERNEL_USAGE.only()],
        "Kernel memory of this job, as version 1 counts it.",
    ),
    Metric::gauge(
        "memory.tcp.current",
        Bytes,
        &[V1_TCP_USAGE.only()],
        "Memory of TCP buffers, as version 1 counts it.",
    ),
];
