//! Memory of the node. Source: `/proc/meminfo`.

use crate::catalogue::metric::Metric;
use crate::catalogue::text_file::{Form, TextFile};
use crate::series::Unit::{Bytes, Pages};

static MEMINFO: TextFile = TextFile::proc("meminfo", Form::Keyed);

const KIB: u64 = 1024;

/// Declares the metric of each line of meminfo.
macro_rules! metrics {
    ($($name:literal of $line:literal;)*) => {
        &[$(Metric::gauge(
            concat!("node.memory.", $name),
            Bytes,
            &[MEMINFO.scaled($line, KIB)],
            concat!("`", $line, "` of meminfo."),
        )
        .of_node()),*]
    };
}

/// The node's memory.
pub(crate) static METRICS: &[Metric] = metrics! {
    "total" of "MemTotal";
    "free" of "MemFree";
    "available" of "MemAvailable";
    "buffers" of "Buffers";
    "cached" of "Cached";
    "swap_cached" of "SwapCached";
    "active" of "Active";
    "inactive" of "Inactive";
    "active_anon" of "Active(anon)";
    "inactive_anon" of "Inactive(anon)";
    "active_file" of "Active(file)";
    "inactive_file" of "Inactive(file)";
    "unevictable" of "Unevictable";
    "mlocked" of "Mlocked";
    "swap_total" of "SwapTotal";
    "swap_free" of "SwapFree";
    "zswap" of "Zswap";
    "zswapped" of "Zswapped";
    "dirty" of "Dirty";
    "writeback" of "Writeback";
    "anon" of "AnonPages";
    "mapped" of "Mapped";
    "shmem" of "Shmem";
    "kernel_reclaimable" of "KReclaimable";
    "slab" of "Slab";
    "slab_reclaimable" of "SReclaimable";
    "slab_unreclaimable" of "SUnreclaim";
    "kernel_stack" of "KernelStack";
    "pagetables" of "PageTables";
    "sec_pagetables" of "SecPageTables";
    "nfs_unstable" of "NFS_Unstable";
    "bounce" of "Bounce";
    "writeback_tmp" of "WritebackTmp";
    "commit_limit" of "CommitLimit";
    "committed" of "Committed_AS";
    "vmalloc_total" of "VmallocTotal";
    "vmalloc_used" of "VmallocUsed";
    "vmalloc_chunk" of "VmallocChunk";
    "percpu" of "Percpu";
    "hardware_corrupted" of "HardwareCorrupted";
    "anon_thp" of "AnonHugePages";
    "shmem_thp" of "ShmemHugePages";
    "shmem_pmd_mapped" of "ShmemPmdMapped";
    "file_thp" of "FileHugePages";
    "file_pmd_mapped" of "FilePmdMapped";
    "cma_total" of "CmaTotal";
    "cma_free" of "CmaFree";
    "unaccepted" of "Unaccepted";
    "balloon" of "Balloon";
    "hugetlb" of "Hugetlb";
    "direct_map_4k" of "DirectMap4k";
    "direct_map_2m" of "DirectMap2M";
    "direct_map_1g" of "DirectMap1G";
    "hugepage_size" of "Hugepagesize";
};

/// The huge pages that the administrator reserved.
pub(crate) static HUGE_PAGES: &[Metric] = &[
    Metric::gauge(
        "node.hugepages.total",
        Pages,
        &[MEMINFO.key("HugePages_Total")],
        "`HugePages_Total` of meminfo.",
    )
    .of_node(),
    Metric::gauge(
        "node.hugepages.free",
        Pages,
        &[MEMINFO.key("HugePages_Free")],
        "`HugePages_Free` of meminfo.",
    )
    .of_node(),
    Metric::gauge(
        "node.hugepages.reserved",
        Pages,
        &[MEMINFO.key("HugePages_Rsvd")],
        "`HugePages_Rsvd` of meminfo.",
    )
    .of_node(),
    Metric::gauge(
        "node.hugepages.surplus",
        Pages,
        &[MEMINFO.key("HugePages_Surp")],
        "`HugePages_Surp` of meminfo.",
    )
    .of_node(),
];
