//! Memory of each NUMA node. Sources: `Documentation/ABI/stable/sysfs-devices-node` and `Documentation/admin-guide/numastat.rst` of
//! Linux.

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

const fn memory(name: &'static str, origins: &'static [Origin], help: &'static str) -> Metric {
    Metric::gauge(name, Bytes, origins, help).of_node()
}

const fn huge_pages(name: &'static str, origins: &'static [Origin], help: &'static str) -> Metric {
    Metric::gauge(name, Count, origins, help).of_node()
}

const fn allocated(name: &'static str, origins: &'static [Origin], help: &'static str) -> Metric {
    Metric::counter(name, Pages, origins, help).of_node()
}

/// The NUMA nodes.
pub(crate) static METRICS: &[Metric] = &[
    memory("node.numa.memory.total", &[line("MemTotal", KIB)], "`MemTotal` of each NUMA node's meminfo."),
    memory("node.numa.memory.free", &[line("MemFree", KIB)], "`MemFree` of each NUMA node's meminfo."),
    memory("node.numa.memory.used", &[line("MemUsed", KIB)], "`MemUsed` of each NUMA node's meminfo."),
    memory(
        "node.numa.memory.swap_cached",
        &[line("SwapCached", KIB)],
        "`SwapCached` of each NUMA node's meminfo.",
    ),
    memory("node.numa.memory.active", &[line("Active", KIB)], "`Active` of each NUMA node's meminfo."),
    memory("node.numa.memory.inactive", &[line("Inactive", KIB)], "`Inactive` of each NUMA node's meminfo."),
    memory(
        "node.numa.memory.active_anon",
        &[line("Active(anon)", KIB)],
        "`Active(anon)` of each NUMA node's meminfo.",
    ),
    memory(
        "node.numa.memory.inactive_anon",
        &[line("Inactive(anon)", KIB)],
        "`Inactive(anon)` of each NUMA node's meminfo.",
    ),
    memory(
        "node.numa.memory.active_file",
        &[line("Active(file)", KIB)],
        "`Active(file)` of each NUMA node's meminfo.",
    ),
    memory(
        "node.numa.memory.inactive_file",
        &[line("Inactive(file)", KIB)],
        "`Inactive(file)` of each NUMA node's meminfo.",
    ),
    memory(
        "node.numa.memory.unevictable",
        &[line("Unevictable", KIB)],
        "`Unevictable` of each NUMA node's meminfo.",
    ),
    memory("node.numa.memory.mlocked", &[line("Mlocked", KIB)], "`Mlocked` of each NUMA node's meminfo."),
    memory("node.numa.memory.dirty", &[line("Dirty", KIB)], "`Dirty` of each NUMA node's meminfo."),
    memory(
        "node.numa.memory.writeback",
        &[line("Writeback", KIB)],
        "`Writeback` of each NUMA node's meminfo.",
    ),
    memory("node.numa.memory.file", &[line("FilePages", KIB)], "`FilePages` of each NUMA node's meminfo."),
    memory("node.numa.memory.mapped", &[line("Mapped", KIB)], "`Mapped` of each NUMA node's meminfo."),
    memory("node.numa.memory.anon", &[line("AnonPages", KIB)], "`AnonPages` of each NUMA node's meminfo."),
    memory("node.numa.memory.shmem", &[line("Shmem", KIB)], "`Shmem` of each NUMA node's meminfo."),
    memory(
        "node.numa.memory.kernel_stack",
        &[line("KernelStack", KIB)],
        "`KernelStack` of each NUMA node's meminfo.",
    ),
    memory(
        "node.numa.memory.pagetables",
        &[line("PageTables", KIB)],
        "`PageTables` of each NUMA node's meminfo.",
    ),
    memory(
        "node.numa.memory.sec_pagetables",
        &[line("SecPageTables", KIB)],
        "`SecPageTables` of each NUMA node's meminfo.",
    ),
    memory(
        "node.numa.memory.nfs_unstable",
        &[line("NFS_Unstable", KIB)],
        "`NFS_Unstable` of each NUMA node's meminfo.",
    ),
    memory("node.numa.memory.bounce", &[line("Bounce", KIB)], "`Bounce` of each NUMA node's meminfo."),
    memory(
        "node.numa.memory.writeback_tmp",
        &[line("WritebackTmp", KIB)],
        "`WritebackTmp` of each NUMA node's meminfo.",
    ),
    memory(
        "node.numa.memory.kernel_reclaimable",
        &[line("KReclaimable", KIB)],
        "`KReclaimable` of each NUMA node's meminfo.",
    ),
    memory("node.numa.memory.slab", &[line("Slab", KIB)], "`Slab` of each NUMA node's meminfo."),
    memory(
        "node.numa.memory.slab_reclaimable",
        &[line("SReclaimable", KIB)],
        "`SReclaimable` of each NUMA node's meminfo.",
    ),
    memory(
        "node.numa.memory.slab_unreclaimable",
        &[line("SUnreclaim", KIB)],
        "`SUnreclaim` of each NUMA node's meminfo.",
    ),
    memory(
        "node.numa.memory.anon_thp",
        &[line("AnonHugePages", KIB)],
        "`AnonHugePages` of each NUMA node's meminfo.",
    ),
    memory(
        "node.numa.memory.shmem_thp",
        &[line("ShmemHugePages", KIB)],
        "`ShmemHugePages` of each NUMA node's meminfo.",
    ),
    memory(
        "node.numa.memory.shmem_pmd_mapped",
        &[line("ShmemPmdMapped", KIB)],
        "`ShmemPmdMapped` of each NUMA node's meminfo.",
    ),
    memory(
        "node.numa.memory.file_thp",
        &[line("FileHugePages", KIB)],
        "`FileHugePages` of each NUMA node's meminfo.",
    ),
    memory(
        "node.numa.memory.file_pmd_mapped",
        &[line("FilePmdMapped", KIB)],
        "`FilePmdMapped` of each NUMA node's meminfo.",
    ),
    huge_pages(
        "node.numa.hugepages.total",
        &[line("HugePages_Total", 1)],
        "`HugePages_Total` of each NUMA node's meminfo.",
    ),
    huge_pages(
        "node.numa.hugepages.free",
        &[line("HugePages_Free", 1)],
        "`HugePages_Free` of each NUMA node's meminfo.",
    ),
    huge_pages(
        "node.numa.hugepages.surplus",
        &[line("HugePages_Surp", 1)],
        "`HugePages_Surp` of each NUMA node's meminfo.",
    ),
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
