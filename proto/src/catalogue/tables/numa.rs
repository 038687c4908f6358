//! Memory of each NUMA node. Sources: `Documentation/ABI/stable/sysfs-devices-node` and
//! `Documentation/admin-guide/numastat.rst` of Linux.

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::Origin;
use crate::catalogue::text_file::{Cell, Field, Form, Row, Scale, TextFile};
use crate::series::Unit::{Bytes, Count, Pages};

/// Lines as `Node 0 MemTotal: 24684092 kB`.
static MEMINFO: TextFile =
    TextFile::sys("devices/system/node/node*/meminfo", Form::KeyedAt(2)).labelled(&["numa"]);
static NUMASTAT: TextFile =
    TextFile::sys("devices/system/node/node*/numastat", Form::Keyed).labelled(&["numa"]);

const KIB: u64 = 1024;

const fn line(key: &'static str, factor: u64) -> Origin {
    let field = Field { row: Row::Key(key), cell: Cell::Word(3), scale: Scale::Times(factor) };
    Origin::Text { file: &MEMINFO, field }
}

/// Declares the metrics of lines of meminfo, with the size of their unit.
macro_rules! meminfo {
    ($unit:ident of $size:expr; $($name:literal of $line:literal;)*) => {
        &[$(Metric::gauge(
            concat!("node.numa.", $name),
            $unit,
            &[line($line, $size)],
            concat!("`", $line, "` of each NUMA node's meminfo."),
        )
        .of_node()),*]
    };
}

/// The memory of NUMA nodes.
pub(crate) static MEMORY: &[Metric] = meminfo! {
    Bytes of KIB;
    "memory.total" of "MemTotal";
    "memory.free" of "MemFree";
    "memory.used" of "MemUsed";
    "memory.swap_cached" of "SwapCached";
    "memory.active" of "Active";
    "memory.inactive" of "Inactive";
    "memory.active_anon" of "Active(anon)";
    "memory.inactive_anon" of "Inactive(anon)";
    "memory.active_file" of "Active(file)";
    "memory.inactive_file" of "Inactive(file)";
    "memory.unevictable" of "Unevictable";
    "memory.mlocked" of "Mlocked";
    "memory.dirty" of "Dirty";
    "memory.writeback" of "Writeback";
    "memory.file" of "FilePages";
    "memory.mapped" of "Mapped";
    "memory.anon" of "AnonPages";
    "memory.shmem" of "Shmem";
    "memory.kernel_stack" of "KernelStack";
    "memory.pagetables" of "PageTables";
    "memory.sec_pagetables" of "SecPageTables";
    "memory.nfs_unstable" of "NFS_Unstable";
    "memory.bounce" of "Bounce";
    "memory.writeback_tmp" of "WritebackTmp";
    "memory.kernel_reclaimable" of "KReclaimable";
    "memory.slab" of "Slab";
    "memory.slab_reclaimable" of "SReclaimable";
    "memory.slab_unreclaimable" of "SUnreclaim";
    "memory.anon_thp" of "AnonHugePages";
    "memory.shmem_thp" of "ShmemHugePages";
    "memory.shmem_pmd_mapped" of "ShmemPmdMapped";
    "memory.file_thp" of "FileHugePages";
    "memory.file_pmd_mapped" of "FilePmdMapped";
};

/// The huge pages of NUMA nodes.
pub(crate) static HUGE_PAGES: &[Metric] = meminfo! {
    Count of 1;
    "hugepages.total" of "HugePages_Total";
    "hugepages.free" of "HugePages_Free";
    "hugepages.surplus" of "HugePages_Surp";
};

const fn allocated(name: &'static str, origins: &'static [Origin], help: &'static str) -> Metric {
    Metric::counter(name, Pages, origins, help).of_node()
}

/// The allocations on NUMA nodes.
pub(crate) static ALLOCATIONS: &[Metric] = &[
    allocated(
        "node.numa.hit",
        &[NUMASTAT.key("numa_hit")],
        "Pages allocated on the NUMA node on which they were wanted.",
    ),
    allocated(
        "node.numa.miss",
        &[NUMASTAT.key("numa_miss")],
        "Pages allocated on this NUMA node that were wanted on another.",
    ),
    allocated(
        "node.numa.foreign",
        &[NUMASTAT.key("numa_foreign")],
        "Pages wanted on this NUMA node that were allocated on another.",
    ),
    allocated(
        "node.numa.interleave_hit",
        &[NUMASTAT.key("interleave_hit")],
        "Interleaved pages allocated on the NUMA node on which they were wanted.",
    ),
    allocated(
        "node.numa.local",
        &[NUMASTAT.key("local_node")],
        "Pages allocated on this NUMA node by a process that ran there.",
    ),
    allocated(
        "node.numa.other",
        &[NUMASTAT.key("other_node")],
        "Pages allocated on this NUMA node by a process that ran on another.",
    ),
];
