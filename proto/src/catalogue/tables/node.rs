//! The node. Source: `Documentation/filesystems/proc.rst`, `admin-guide/iostats.rst` and `accounting/psi.rst` of Linux.

use crate::catalogue::metric::{Metric, Scope};
use crate::catalogue::origin::Origin;
use crate::catalogue::text_file::{Cell, Field, Form, Row, Scale, TextFile};
use crate::period::Period;
use crate::series::Kind;
use crate::series::Unit::{Bytes, Count, Nanoseconds, Pages, Percent, Sectors};

static STAT: TextFile = TextFile::proc("stat", Form::Keyed);
static LOADAVG: TextFile = TextFile::proc("loadavg", Form::Values);
static MEMINFO: TextFile = TextFile::proc("meminfo", Form::Keyed);
/// The kernel adds up the per-CPU counts every `vm.stat_interval`, one second by default.
static VMSTAT: TextFile = TextFile::proc("vmstat", Form::Keyed).updated_every(Period::SECOND);
static DISKSTATS: TextFile = TextFile::proc("diskstats", Form::KeyedAt(2));
static NETWORK: TextFile = TextFile::proc("net/dev", Form::Keyed);
static PRESSURE_CPU: TextFile = TextFile::proc("pressure/cpu", Form::Pairs);
static PRESSURE_MEMORY: TextFile = TextFile::proc("pressure/memory", Form::Pairs);
static PRESSURE_IO: TextFile = TextFile::proc("pressure/io", Form::Pairs);
static PRESSURE_IRQ: TextFile = TextFile::proc("pressure/irq", Form::Pairs);

const ALL_CPUS: Row = Row::Key("cpu");
const EACH_CPU: Row = Row::Each { label: "cpu", prefix: "cpu", numeric: true };
const EACH_DISK: Row = Row::Each { label: "device", prefix: "", numeric: false };
const EACH_INTERFACE: Row = Row::Each { label: "interface", prefix: "", numeric: false };
const KIB: u64 = 1024;
const MS_NS: u64 = 1_000_000;
const US_NS: u64 = 1_000;

const fn decimal(file: &'static TextFile, word: usize) -> Origin {
    Origin::Text { file, field: Field { row: Row::Only, cell: Cell::Word(word), scale: Scale::Decimal } }
}

const fn times(file: &'static TextFile, row: Row, word: usize, factor: u64) -> Origin {
    Origin::Text { file, field: Field { row, cell: Cell::Word(word), scale: Scale::Times(factor) } }
}

/// Creates the origin of lines of vmstat with this prefix.
const fn instances(prefix: &'static str) -> Origin {
    Origin::Text {
        file: &VMSTAT,
        field: Field { row: Row::Instance(prefix), cell: Cell::Word(1), scale: Scale::Times(1) },
    }
}

const fn counter(
    name: &'static str,
    unit: crate::series::Unit,
    origins: &'static [Origin],
    help: &'static str,
) -> Metric {
    Metric::counter(name, unit, origins, help).of_node()
}

const fn gauge(
    name: &'static str,
    unit: crate::series::Unit,
    origins: &'static [Origin],
    help: &'static str,
) -> Metric {
    Metric::gauge(name, unit, origins, help).of_node()
}

const fn share(name: &'static str, origins: &'static [Origin], help: &'static str) -> Metric {
    Metric::new(name, Percent, Kind::Gauge, Scope::Node, origins, help).float()
}

/// The node's metrics.
pub(crate) static METRICS: &[Metric] = &[
    counter(
        "node.cpu.user",
        Nanoseconds,
        &[STAT.ticks(ALL_CPUS, 1)],
        "CPU time in user mode, guests included, of all CPUs.",
    ),
    counter(
        "node.cpu.nice",
        Nanoseconds,
        &[STAT.ticks(ALL_CPUS, 2)],
        "CPU time in user mode at a lowered priority, of all CPUs.",
    ),
    counter(
        "node.cpu.system",
        Nanoseconds,
        &[STAT.ticks(ALL_CPUS, 3)],
        "CPU time in the kernel, of all CPUs.",
    ),
    counter("node.cpu.idle", Nanoseconds, &[STAT.ticks(ALL_CPUS, 4)], "CPU time idle, of all CPUs."),
    counter(
        "node.cpu.iowait",
        Nanoseconds,
        &[STAT.ticks(ALL_CPUS, 5)],
        "CPU time idle while waiting for I/O, of all CPUs.",
    ),
    counter("node.cpu.irq", Nanoseconds, &[STAT.ticks(ALL_CPUS, 6)], "CPU time in interrupts, of all CPUs."),
    counter(
        "node.cpu.softirq",
        Nanoseconds,
        &[STAT.ticks(ALL_CPUS, 7)],
        "CPU time in soft interrupts, of all CPUs.",
    ),
    counter(
        "node.cpu.steal",
        Nanoseconds,
        &[STAT.ticks(ALL_CPUS, 8)],
        "CPU time taken by the hypervisor, of all CPUs.",
    ),
    counter(
        "node.cpu.guest",
        Nanoseconds,
        &[STAT.ticks(ALL_CPUS, 9)],
        "CPU time in virtual machines, of all CPUs.",
    ),
    counter(
        "node.cpu.guest_nice",
        Nanoseconds,
        &[STAT.ticks(ALL_CPUS, 10)],
        "CPU time in virtual machines at a lowered priority, of all CPUs.",
    ),
    counter(
        "node.cpu.user.per_cpu",
        Nanoseconds,
        &[STAT.ticks(EACH_CPU, 1)],
        "CPU time in user mode, guests included, of each CPU.",
    ),
    counter(
        "node.cpu.nice.per_cpu",
        Nanoseconds,
        &[STAT.ticks(EACH_CPU, 2)],
        "CPU time in user mode at a lowered priority, of each CPU.",
    ),
    counter(
        "node.cpu.system.per_cpu",
        Nanoseconds,
        &[STAT.ticks(EACH_CPU, 3)],
        "CPU time in the kernel, of each CPU.",
    ),
    counter("node.cpu.idle.per_cpu", Nanoseconds, &[STAT.ticks(EACH_CPU, 4)], "CPU time idle, of each CPU."),
    counter(
        "node.cpu.iowait.per_cpu",
        Nanoseconds,
        &[STAT.ticks(EACH_CPU, 5)],
        "CPU time idle while waiting for I/O, of each CPU.",
    ),
    counter(
        "node.cpu.irq.per_cpu",
        Nanoseconds,
        &[STAT.ticks(EACH_CPU, 6)],
        "CPU time in interrupts, of each CPU.",
    ),
    counter(
        "node.cpu.softirq.per_cpu",
        Nanoseconds,
        &[STAT.ticks(EACH_CPU, 7)],
        "CPU time in soft interrupts, of each CPU.",
    ),
    counter(
        "node.cpu.steal.per_cpu",
        Nanoseconds,
        &[STAT.ticks(EACH_CPU, 8)],
        "CPU time taken by the hypervisor, of each CPU.",
    ),
    counter(
        "node.cpu.guest.per_cpu",
        Nanoseconds,
        &[STAT.ticks(EACH_CPU, 9)],
        "CPU time in virtual machines, of each CPU.",
    ),
    counter(
        "node.cpu.guest_nice.per_cpu",
        Nanoseconds,
        &[STAT.ticks(EACH_CPU, 10)],
        "CPU time in virtual machines at a lowered priority, of each CPU.",
    ),
    counter("node.interrupts", Count, &[STAT.key("intr")], "Interrupts."),
    counter("node.softirqs", Count, &[STAT.key("softirq")], "Soft interrupts."),
    counter("node.context_switches", Count, &[STAT.key("ctxt")], "Context switches."),
    counter("node.forks", Count, &[STAT.key("processes")], "Processes and threads started."),
    gauge("node.processes.running", Count, &[STAT.key("procs_running")], "Runnable processes."),
    gauge("node.processes.blocked", Count, &[STAT.key("procs_blocked")], "Processes blocked on I/O."),
    gauge("node.load1", Count, &[decimal(&LOADAVG, 0)], "Load average over one minute.").float(),
    gauge("node.load5", Count, &[decimal(&LOADAVG, 1)], "Load average over five minutes.").float(),
    gauge("node.load15", Count, &[decimal(&LOADAVG, 2)], "Load average over fifteen minutes.").float(),
    gauge("node.memory.total", Bytes, &[MEMINFO.scaled("MemTotal", KIB)], "`MemTotal` of meminfo."),
    gauge("node.memory.free", Bytes, &[MEMINFO.scaled("MemFree", KIB)], "`MemFree` of meminfo."),
    gauge(
        "node.memory.available",
        Bytes,
        &[MEMINFO.scaled("MemAvailable", KIB)],
        "`MemAvailable` of meminfo.",
    ),
    gauge("node.memory.buffers", Bytes, &[MEMINFO.scaled("Buffers", KIB)], "`Buffers` of meminfo."),
    gauge("node.memory.cached", Bytes, &[MEMINFO.scaled("Cached", KIB)], "`Cached` of meminfo."),
    gauge("node.memory.swap_cached", Bytes, &[MEMINFO.scaled("SwapCached", KIB)], "`SwapCached` of meminfo."),
    gauge("node.memory.active", Bytes, &[MEMINFO.scaled("Active", KIB)], "`Active` of meminfo."),
    gauge("node.memory.inactive", Bytes, &[MEMINFO.scaled("Inactive", KIB)], "`Inactive` of meminfo."),
    gauge(
        "node.memory.active_anon",
        Bytes,
        &[MEMINFO.scaled("Active(anon)", KIB)],
        "`Active(anon)` of meminfo.",
    ),
    gauge(
        "node.memory.inactive_anon",
        Bytes,
        &[MEMINFO.scaled("Inactive(anon)", KIB)],
        "`Inactive(anon)` of meminfo.",
    ),
    gauge(
        "node.memory.active_file",
        Bytes,
        &[MEMINFO.scaled("Active(file)", KIB)],
        "`Active(file)` of meminfo.",
    ),
    gauge(
        "node.memory.inactive_file",
        Bytes,
        &[MEMINFO.scaled("Inactive(file)", KIB)],
        "`Inactive(file)` of meminfo.",
    ),
    gauge(
        "node.memory.unevictable",
        Bytes,
        &[MEMINFO.scaled("Unevictable", KIB)],
        "`Unevictable` of meminfo.",
    ),
    gauge("node.memory.mlocked", Bytes, &[MEMINFO.scaled("Mlocked", KIB)], "`Mlocked` of meminfo."),
    gauge("node.memory.swap_total", Bytes, &[MEMINFO.scaled("SwapTotal", KIB)], "`SwapTotal` of meminfo."),
    gauge("node.memory.swap_free", Bytes, &[MEMINFO.scaled("SwapFree", KIB)], "`SwapFree` of meminfo."),
    gauge("node.memory.zswap", Bytes, &[MEMINFO.scaled("Zswap", KIB)], "`Zswap` of meminfo."),
    gauge("node.memory.zswapped", Bytes, &[MEMINFO.scaled("Zswapped", KIB)], "`Zswapped` of meminfo."),
    gauge("node.memory.dirty", Bytes, &[MEMINFO.scaled("Dirty", KIB)], "`Dirty` of meminfo."),
    gauge("node.memory.writeback", Bytes, &[MEMINFO.scaled("Writeback", KIB)], "`Writeback` of meminfo."),
    gauge("node.memory.anon", Bytes, &[MEMINFO.scaled("AnonPages", KIB)], "`AnonPages` of meminfo."),
    gauge("node.memory.mapped", Bytes, &[MEMINFO.scaled("Mapped", KIB)], "`Mapped` of meminfo."),
    gauge("node.memory.shmem", Bytes, &[MEMINFO.scaled("Shmem", KIB)], "`Shmem` of meminfo."),
    gauge(
        "node.memory.kernel_reclaimable",
        Bytes,
        &[MEMINFO.scaled("KReclaimable", KIB)],
        "`KReclaimable` of meminfo.",
    ),
    gauge("node.memory.slab", Bytes, &[MEMINFO.scaled("Slab", KIB)], "`Slab` of meminfo."),
    gauge(
        "node.memory.slab_reclaimable",
        Bytes,
        &[MEMINFO.scaled("SReclaimable", KIB)],
        "`SReclaimable` of meminfo.",
    ),
    gauge(
        "node.memory.slab_unreclaimable",
        Bytes,
        &[MEMINFO.scaled("SUnreclaim", KIB)],
        "`SUnreclaim` of meminfo.",
    ),
    gauge(
        "node.memory.kernel_stack",
        Bytes,
        &[MEMINFO.scaled("KernelStack", KIB)],
        "`KernelStack` of meminfo.",
    ),
    gauge("node.memory.pagetables", Bytes, &[MEMINFO.scaled("PageTables", KIB)], "`PageTables` of meminfo."),
    gauge(
        "node.memory.sec_pagetables",
        Bytes,
        &[MEMINFO.scaled("SecPageTables", KIB)],
        "`SecPageTables` of meminfo.",
    ),
    gauge(
        "node.memory.nfs_unstable",
        Bytes,
        &[MEMINFO.scaled("NFS_Unstable", KIB)],
        "`NFS_Unstable` of meminfo.",
    ),
    gauge("node.memory.bounce", Bytes, &[MEMINFO.scaled("Bounce", KIB)], "`Bounce` of meminfo."),
    gauge(
        "node.memory.writeback_tmp",
        Bytes,
        &[MEMINFO.scaled("WritebackTmp", KIB)],
        "`WritebackTmp` of meminfo.",
    ),
    gauge(
        "node.memory.commit_limit",
        Bytes,
        &[MEMINFO.scaled("CommitLimit", KIB)],
        "`CommitLimit` of meminfo.",
    ),
    gauge(
        "node.memory.committed",
        Bytes,
        &[MEMINFO.scaled("Committed_AS", KIB)],
        "`Committed_AS` of meminfo.",
    ),
    gauge(
        "node.memory.vmalloc_total",
        Bytes,
        &[MEMINFO.scaled("VmallocTotal", KIB)],
        "`VmallocTotal` of meminfo.",
    ),
    gauge(
        "node.memory.vmalloc_used",
        Bytes,
        &[MEMINFO.scaled("VmallocUsed", KIB)],
        "`VmallocUsed` of meminfo.",
    ),
    gauge(
        "node.memory.vmalloc_chunk",
        Bytes,
        &[MEMINFO.scaled("VmallocChunk", KIB)],
        "`VmallocChunk` of meminfo.",
    ),
    gauge("node.memory.percpu", Bytes, &[MEMINFO.scaled("Percpu", KIB)], "`Percpu` of meminfo."),
    gauge(
        "node.memory.hardware_corrupted",
        Bytes,
        &[MEMINFO.scaled("HardwareCorrupted", KIB)],
        "`HardwareCorrupted` of meminfo.",
    ),
    gauge(
        "node.memory.anon_thp",
        Bytes,
        &[MEMINFO.scaled("AnonHugePages", KIB)],
        "`AnonHugePages` of meminfo.",
    ),
    gauge(
        "node.memory.shmem_thp",
        Bytes,
        &[MEMINFO.scaled("ShmemHugePages", KIB)],
        "`ShmemHugePages` of meminfo.",
    ),
    gauge(
        "node.memory.shmem_pmd_mapped",
        Bytes,
        &[MEMINFO.scaled("ShmemPmdMapped", KIB)],
        "`ShmemPmdMapped` of meminfo.",
    ),
    gauge(
        "node.memory.file_thp",
        Bytes,
        &[MEMINFO.scaled("FileHugePages", KIB)],
        "`FileHugePages` of meminfo.",
    ),
    gauge(
        "node.memory.file_pmd_mapped",
        Bytes,
        &[MEMINFO.scaled("FilePmdMapped", KIB)],
        "`FilePmdMapped` of meminfo.",
    ),
    gauge("node.memory.cma_total", Bytes, &[MEMINFO.scaled("CmaTotal", KIB)], "`CmaTotal` of meminfo."),
    gauge("node.memory.cma_free", Bytes, &[MEMINFO.scaled("CmaFree", KIB)], "`CmaFree` of meminfo."),
    gauge("node.memory.unaccepted", Bytes, &[MEMINFO.scaled("Unaccepted", KIB)], "`Unaccepted` of meminfo."),
    gauge("node.memory.balloon", Bytes, &[MEMINFO.scaled("Balloon", KIB)], "`Balloon` of meminfo."),
    gauge("node.memory.hugetlb", Bytes, &[MEMINFO.scaled("Hugetlb", KIB)], "`Hugetlb` of meminfo."),
    gauge(
        "node.memory.direct_map_4k",
        Bytes,
        &[MEMINFO.scaled("DirectMap4k", KIB)],
        "`DirectMap4k` of meminfo.",
    ),
    gauge(
        "node.memory.direct_map_2m",
        Bytes,
        &[MEMINFO.scaled("DirectMap2M", KIB)],
        "`DirectMap2M` of meminfo.",
    ),
    gauge(
        "node.memory.direct_map_1g",
        Bytes,
        &[MEMINFO.scaled("DirectMap1G", KIB)],
        "`DirectMap1G` of meminfo.",
    ),
    gauge(
        "node.memory.hugepage_size",
        Bytes,
        &[MEMINFO.scaled("Hugepagesize", KIB)],
        "`Hugepagesize` of meminfo.",
    ),
    gauge("node.hugepages.total", Pages, &[MEMINFO.key("HugePages_Total")], "`HugePages_Total` of meminfo."),
    gauge("node.hugepages.free", Pages, &[MEMINFO.key("HugePages_Free")], "`HugePages_Free` of meminfo."),
    gauge("node.hugepages.reserved", Pages, &[MEMINFO.key("HugePages_Rsvd")], "`HugePages_Rsvd` of meminfo."),
    gauge("node.hugepages.surplus", Pages, &[MEMINFO.key("HugePages_Surp")], "`HugePages_Surp` of meminfo."),
    counter("node.vm.nr_dirtied", Count, &[VMSTAT.key("nr_dirtied")], "Pages made dirty."),
    counter("node.vm.nr_written", Count, &[VMSTAT.key("nr_written")], "Pages written back."),
    counter("node.vm.nr_vmscan_write", Count, &[VMSTAT.key("nr_vmscan_write")], "Pages written by reclaim."),
    counter(
        "node.vm.nr_vmscan_immediate_reclaim",
        Count,
        &[VMSTAT.key("nr_vmscan_immediate_reclaim")],
        "Pages under write-back that reclaim marked to be reclaimed next.",
    ),
    gauge(
        "node.vm.workingset_nodes",
        Count,
        &[VMSTAT.key("workingset_nodes")],
        "Shadow nodes of the page cache.",
    ),
    gauge("node.vm.nr_*", Count, &[instances("nr_")], "The line of vmstat with this name, a level."),
    counter("node.vm.*", Count, &[instances("")], "The line of vmstat with this name."),
    counter(
        "node.disk.read.operations",
        Count,
        &[times(&DISKSTATS, EACH_DISK, 3, 1)],
        "Reads completed, of each disk and partition.",
    ),
    counter(
        "node.disk.read.merged",
        Count,
        &[times(&DISKSTATS, EACH_DISK, 4, 1)],
        "Reads merged with others, of each disk and partition.",
    ),
    counter(
        "node.disk.read.sectors",
        Sectors,
        &[times(&DISKSTATS, EACH_DISK, 5, 1)],
        "Sectors read, of each disk and partition.",
    ),
    counter(
        "node.disk.read.time",
        Nanoseconds,
        &[times(&DISKSTATS, EACH_DISK, 6, MS_NS)],
        "Time of reads, of each disk and partition.",
    ),
    counter(
        "node.disk.write.operations",
        Count,
        &[times(&DISKSTATS, EACH_DISK, 7, 1)],
        "Writes completed, of each disk and partition.",
    ),
    counter(
        "node.disk.write.merged",
        Count,
        &[times(&DISKSTATS, EACH_DISK, 8, 1)],
        "Writes merged with others, of each disk and partition.",
    ),
    counter(
        "node.disk.write.sectors",
        Sectors,
        &[times(&DISKSTATS, EACH_DISK, 9, 1)],
        "Sectors written, of each disk and partition.",
    ),
    counter(
        "node.disk.write.time",
        Nanoseconds,
        &[times(&DISKSTATS, EACH_DISK, 10, MS_NS)],
        "Time of writes, of each disk and partition.",
    ),
    gauge(
        "node.disk.in_flight",
        Count,
        &[times(&DISKSTATS, EACH_DISK, 11, 1)],
        "Operations in progress, of each disk and partition.",
    ),
    counter(
        "node.disk.busy.time",
        Nanoseconds,
        &[times(&DISKSTATS, EACH_DISK, 12, MS_NS)],
        "Time with operations in progress, of each disk and partition.",
    ),
    counter(
        "node.disk.weighted.time",
        Nanoseconds,
        &[times(&DISKSTATS, EACH_DISK, 13, MS_NS)],
        "Time of all operations together, of each disk and partition.",
    ),
    counter(
        "node.disk.discard.operations",
        Count,
        &[times(&DISKSTATS, EACH_DISK, 14, 1)],
        "Discards completed, of each disk and partition.",
    ),
    counter(
        "node.disk.discard.merged",
        Count,
        &[times(&DISKSTATS, EACH_DISK, 15, 1)],
        "Discards merged with others, of each disk and partition.",
    ),
    counter(
        "node.disk.discard.sectors",
        Sectors,
        &[times(&DISKSTATS, EACH_DISK, 16, 1)],
        "Sectors discarded, of each disk and partition.",
    ),
    counter(
        "node.disk.discard.time",
        Nanoseconds,
        &[times(&DISKSTATS, EACH_DISK, 17, MS_NS)],
        "Time of discards, of each disk and partition.",
    ),
    counter(
        "node.disk.flush.operations",
        Count,
        &[times(&DISKSTATS, EACH_DISK, 18, 1)],
        "Flushes completed, of each disk and partition.",
    ),
    counter(
        "node.disk.flush.time",
        Nanoseconds,
        &[times(&DISKSTATS, EACH_DISK, 19, MS_NS)],
        "Time of flushes, of each disk and partition.",
    ),
    counter(
        "node.network.receive.bytes",
        Bytes,
        &[NETWORK.word(EACH_INTERFACE, 1)],
        "Bytes received, of each interface.",
    ),
    counter(
        "node.network.receive.packets",
        Count,
        &[NETWORK.word(EACH_INTERFACE, 2)],
        "Packets received, of each interface.",
    ),
    counter(
        "node.network.receive.errors",
        Count,
        &[NETWORK.word(EACH_INTERFACE, 3)],
        "Errors while receiving, of each interface.",
    ),
    counter(
        "node.network.receive.dropped",
        Count,
        &[NETWORK.word(EACH_INTERFACE, 4)],
        "Dropped while receiving, of each interface.",
    ),
    counter(
        "node.network.receive.fifo_errors",
        Count,
        &[NETWORK.word(EACH_INTERFACE, 5)],
        "Fifo errors while receiving, of each interface.",
    ),
    counter(
        "node.network.receive.frame_errors",
        Count,
        &[NETWORK.word(EACH_INTERFACE, 6)],
        "Frame errors while receiving, of each interface.",
    ),
    counter(
        "node.network.receive.compressed",
        Count,
        &[NETWORK.word(EACH_INTERFACE, 7)],
        "Compressed while receiving, of each interface.",
    ),
    counter(
        "node.network.receive.multicast",
        Count,
        &[NETWORK.word(EACH_INTERFACE, 8)],
        "Multicast packets received, of each interface.",
    ),
    counter(
        "node.network.transmit.bytes",
        Bytes,
        &[NETWORK.word(EACH_INTERFACE, 9)],
        "Bytes transmitted, of each interface.",
    ),
    counter(
        "node.network.transmit.packets",
        Count,
        &[NETWORK.word(EACH_INTERFACE, 10)],
        "Packets transmitted, of each interface.",
    ),
    counter(
        "node.network.transmit.errors",
        Count,
        &[NETWORK.word(EACH_INTERFACE, 11)],
        "Errors while transmitting, of each interface.",
    ),
    counter(
        "node.network.transmit.dropped",
        Count,
        &[NETWORK.word(EACH_INTERFACE, 12)],
        "Dropped while transmitting, of each interface.",
    ),
    counter(
        "node.network.transmit.fifo_errors",
        Count,
        &[NETWORK.word(EACH_INTERFACE, 13)],
        "Fifo errors while transmitting, of each interface.",
    ),
    counter(
        "node.network.transmit.collisions",
        Count,
        &[NETWORK.word(EACH_INTERFACE, 14)],
        "Collisions, of each interface.",
    ),
    counter(
        "node.network.transmit.carrier_errors",
        Count,
        &[NETWORK.word(EACH_INTERFACE, 15)],
        "Carrier errors while transmitting, of each interface.",
    ),
    counter(
        "node.network.transmit.compressed",
        Count,
        &[NETWORK.word(EACH_INTERFACE, 16)],
        "Compressed while transmitting, of each interface.",
    ),
    counter(
        "node.pressure.cpu.some.total",
        Nanoseconds,
        &[PRESSURE_CPU.named(Row::Key("some"), "total", Scale::Times(US_NS))],
        "Time that some process waited for a CPU.",
    ),
    share(
        "node.pressure.cpu.some.avg10",
        &[PRESSURE_CPU.named(Row::Key("some"), "avg10", Scale::Decimal)],
        "Share of the last 10 s that some process waited for a CPU.",
    ),
    share(
        "node.pressure.cpu.some.avg60",
        &[PRESSURE_CPU.named(Row::Key("some"), "avg60", Scale::Decimal)],
        "Share of the last 60 s that some process waited for a CPU.",
    ),
    share(
        "node.pressure.cpu.some.avg300",
        &[PRESSURE_CPU.named(Row::Key("some"), "avg300", Scale::Decimal)],
        "Share of the last 300 s that some process waited for a CPU.",
    ),
    counter(
        "node.pressure.cpu.full.total",
        Nanoseconds,
        &[PRESSURE_CPU.named(Row::Key("full"), "total", Scale::Times(US_NS))],
        "Time that every process waited for a CPU.",
    ),
    share(
        "node.pressure.cpu.full.avg10",
        &[PRESSURE_CPU.named(Row::Key("full"), "avg10", Scale::Decimal)],
        "Share of the last 10 s that every process waited for a CPU.",
    ),
    share(
        "node.pressure.cpu.full.avg60",
        &[PRESSURE_CPU.named(Row::Key("full"), "avg60", Scale::Decimal)],
        "Share of the last 60 s that every process waited for a CPU.",
    ),
    share(
        "node.pressure.cpu.full.avg300",
        &[PRESSURE_CPU.named(Row::Key("full"), "avg300", Scale::Decimal)],
        "Share of the last 300 s that every process waited for a CPU.",
    ),
    counter(
        "node.pressure.memory.some.total",
        Nanoseconds,
        &[PRESSURE_MEMORY.named(Row::Key("some"), "total", Scale::Times(US_NS))],
        "Time that some process waited for memory.",
    ),
    share(
        "node.pressure.memory.some.avg10",
        &[PRESSURE_MEMORY.named(Row::Key("some"), "avg10", Scale::Decimal)],
        "Share of the last 10 s that some process waited for memory.",
    ),
    share(
        "node.pressure.memory.some.avg60",
        &[PRESSURE_MEMORY.named(Row::Key("some"), "avg60", Scale::Decimal)],
        "Share of the last 60 s that some process waited for memory.",
    ),
    share(
        "node.pressure.memory.some.avg300",
        &[PRESSURE_MEMORY.named(Row::Key("some"), "avg300", Scale::Decimal)],
        "Share of the last 300 s that some process waited for memory.",
    ),
    counter(
        "node.pressure.memory.full.total",
        Nanoseconds,
        &[PRESSURE_MEMORY.named(Row::Key("full"), "total", Scale::Times(US_NS))],
        "Time that every process waited for memory.",
    ),
    share(
        "node.pressure.memory.full.avg10",
        &[PRESSURE_MEMORY.named(Row::Key("full"), "avg10", Scale::Decimal)],
        "Share of the last 10 s that every process waited for memory.",
    ),
    share(
        "node.pressure.memory.full.avg60",
        &[PRESSURE_MEMORY.named(Row::Key("full"), "avg60", Scale::Decimal)],
        "Share of the last 60 s that every process waited for memory.",
    ),
    share(
        "node.pressure.memory.full.avg300",
        &[PRESSURE_MEMORY.named(Row::Key("full"), "avg300", Scale::Decimal)],
        "Share of the last 300 s that every process waited for memory.",
    ),
    counter(
        "node.pressure.io.some.total",
        Nanoseconds,
        &[PRESSURE_IO.named(Row::Key("some"), "total", Scale::Times(US_NS))],
        "Time that some process waited for I/O.",
    ),
    share(
        "node.pressure.io.some.avg10",
        &[PRESSURE_IO.named(Row::Key("some"), "avg10", Scale::Decimal)],
        "Share of the last 10 s that some process waited for I/O.",
    ),
    share(
        "node.pressure.io.some.avg60",
        &[PRESSURE_IO.named(Row::Key("some"), "avg60", Scale::Decimal)],
        "Share of the last 60 s that some process waited for I/O.",
    ),
    share(
        "node.pressure.io.some.avg300",
        &[PRESSURE_IO.named(Row::Key("some"), "avg300", Scale::Decimal)],
        "Share of the last 300 s that some process waited for I/O.",
    ),
    counter(
        "node.pressure.io.full.total",
        Nanoseconds,
        &[PRESSURE_IO.named(Row::Key("full"), "total", Scale::Times(US_NS))],
        "Time that every process waited for I/O.",
    ),
    share(
        "node.pressure.io.full.avg10",
        &[PRESSURE_IO.named(Row::Key("full"), "avg10", Scale::Decimal)],
        "Share of the last 10 s that every process waited for I/O.",
    ),
    share(
        "node.pressure.io.full.avg60",
        &[PRESSURE_IO.named(Row::Key("full"), "avg60", Scale::Decimal)],
        "Share of the last 60 s that every process waited for I/O.",
    ),
    share(
        "node.pressure.io.full.avg300",
        &[PRESSURE_IO.named(Row::Key("full"), "avg300", Scale::Decimal)],
        "Share of the last 300 s that every process waited for I/O.",
    ),
    counter(
        "node.pressure.irq.full.total",
        Nanoseconds,
        &[PRESSURE_IRQ.named(Row::Key("full"), "total", Scale::Times(US_NS))],
        "Time that every process waited for interrupts.",
    ),
    share(
        "node.pressure.irq.full.avg10",
        &[PRESSURE_IRQ.named(Row::Key("full"), "avg10", Scale::Decimal)],
        "Share of the last 10 s that every process waited for interrupts.",
    ),
    share(
        "node.pressure.irq.full.avg60",
        &[PRESSURE_IRQ.named(Row::Key("full"), "avg60", Scale::Decimal)],
        "Share of the last 60 s that every process waited for interrupts.",
    ),
    share(
        "node.pressure.irq.full.avg300",
        &[PRESSURE_IRQ.named(Row::Key("full"), "avg300", Scale::Decimal)],
        "Share of the last 300 s that every process waited for interrupts.",
    ),
];
