//! perf events. Source: perf_event_open(2), `include/uapi/linux/perf_event.h`.
//!
//! Each event is counted on every CPU on which the job runs. The value is the sum over the CPUs, unscaled:
//! where events share a hardware counter, `perf.time_running` is less than `perf.time_enabled` of the same
//! group.

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::Origin;
use crate::catalogue::perf_event::PerfEvent;
use crate::series::Unit::{self, Bytes, Count, Cycles, Joules, Nanoseconds};

const fn cache(cache: u64, op: u64, result: u64) -> Origin {
    Origin::Perf(PerfEvent::Cache(cache | op << 8 | result << 16))
}

const fn software(config: u64) -> Origin {
    Origin::Perf(PerfEvent::Software(config))
}

const fn hardware(config: u64) -> Origin {
    Origin::Perf(PerfEvent::Hardware(config))
}

const fn named(unit: Unit) -> Metric {
    Metric::counter(
        "perf.event.*",
        unit,
        &[Origin::Perf(PerfEvent::Named)],
        "The event of the CPU's own counters with this name, as the kernel or a table of CPU models has it; in bytes, \
         joules or nanoseconds where the kernel states such a unit.",
    )
}

const fn of_units(unit: Unit) -> Metric {
    Metric::counter(
        "node.pmu.*",
        unit,
        &[Origin::Perf(PerfEvent::Unit)],
        "The event <PMU>.<name> of all units of a PMU outside of the cores, such as the memory controllers; in bytes, \
         joules or nanoseconds where the kernel states such a unit.",
    )
    .of_node()
}

/// Named events that the kernel scales to a unit.
pub(crate) static SCALED: [Metric; 8] = [
    named(Bytes).float(),
    named(Joules).float(),
    named(Nanoseconds).float(),
    named(Count).float(),
    of_units(Bytes).float(),
    of_units(Joules).float(),
    of_units(Nanoseconds).float(),
    of_units(Count).float(),
];

/// perf events with a series for each CPU. Their names have a prefix of their own, so that `perf.*` does not
/// stand for them.
pub(crate) static PER_CPU: &[Metric] = &[
    Metric::counter("perf_per_cpu.task_clock", Nanoseconds, &[software(1)], "CPU time on each CPU.")
        .per_cpu(),
    Metric::counter("perf_per_cpu.page_faults", Count, &[software(2)], "Page faults on each CPU.").per_cpu(),
    Metric::counter("perf_per_cpu.context_switches", Count, &[software(3)], "Context switches on each CPU.")
        .per_cpu(),
    Metric::counter("perf_per_cpu.cpu_migrations", Count, &[software(4)], "Migrations to each CPU.")
        .per_cpu(),
    Metric::counter("perf_per_cpu.cpu_cycles", Cycles, &[hardware(0)], "Cycles of each CPU.").per_cpu(),
    Metric::counter(
        "perf_per_cpu.instructions",
        Count,
        &[hardware(1)],
        "Instructions that each CPU retired.",
    )
    .per_cpu(),
    Metric::counter(
        "perf_per_cpu.cache_references",
        Count,
        &[hardware(2)],
        "Accesses of each CPU to the last-level cache, as the CPU defines them.",
    )
    .per_cpu(),
    Metric::counter(
        "perf_per_cpu.cache_misses",
        Count,
        &[hardware(3)],
        "Misses of each CPU in the last-level cache, as the CPU defines them.",
    )
    .per_cpu(),
    Metric::counter(
        "perf_per_cpu.branch_misses",
        Count,
        &[hardware(5)],
        "Branches that each CPU mispredicted.",
    )
    .per_cpu(),
    Metric::counter(
        "perf_per_cpu.ref_cpu_cycles",
        Cycles,
        &[hardware(9)],
        "Cycles of each CPU at a constant frequency.",
    )
    .per_cpu(),
];

/// Events of PMUs outside of the cores, which count for the whole node.
pub(crate) static NODE: &[Metric] = &[
    of_units(Count),
    Metric::counter(
        "node.pmu_time.enabled",
        Nanoseconds,
        &[Origin::Perf(PerfEvent::UnitTimeEnabled)],
        "Time that a group of events of the node was enabled, summed over the units.",
    )
    .of_node(),
    Metric::counter(
        "node.pmu_time.running",
        Nanoseconds,
        &[Origin::Perf(PerfEvent::UnitTimeRunning)],
        "Time that a group of events of the node was counting, summed over the units.",
    )
    .of_node(),
];

pub(crate) static METRICS: &[Metric] = &[
    Metric::counter("perf.cpu_clock", Nanoseconds, &[software(0)], "Time that the job ran on each CPU."),
    Metric::counter("perf.task_clock", Nanoseconds, &[software(1)], "CPU time."),
    Metric::counter("perf.page_faults", Count, &[software(2)], "Page faults."),
    Metric::counter("perf.context_switches", Count, &[software(3)], "Context switches."),
    Metric::counter("perf.cpu_migrations", Count, &[software(4)], "Migrations to another CPU."),
    Metric::counter("perf.page_faults_minor", Count, &[software(5)], "Page faults that needed no I/O."),
    Metric::counter("perf.page_faults_major", Count, &[software(6)], "Page faults that needed I/O."),
    Metric::counter(
        "perf.alignment_faults",
        Count,
        &[software(7)],
        "Unaligned accesses that the kernel handled.",
    ),
    Metric::counter(
        "perf.emulation_faults",
        Count,
        &[software(8)],
        "Instructions that the kernel had to emulate.",
    ),
    Metric::counter("perf.bpf_output", Count, &[software(10)], "Events written by BPF programs."),
    Metric::counter(
        "perf.cgroup_switches",
        Count,
        &[software(11)],
        "Context switches to a task of another cgroup.",
    ),
    Metric::counter("perf.cpu_cycles", Cycles, &[hardware(0)], "Cycles of the CPU."),
    Metric::counter("perf.instructions", Count, &[hardware(1)], "Instructions retired."),
    Metric::counter(
        "perf.cache_references",
        Count,
        &[hardware(2)],
        "Accesses to the last-level cache, as the CPU defines them.",
    ),
    Metric::counter(
        "perf.cache_misses",
        Count,
        &[hardware(3)],
        "Misses of the last-level cache, as the CPU defines them.",
    ),
    Metric::counter("perf.branch_instructions", Count, &[hardware(4)], "Branches retired."),
    Metric::counter("perf.branch_misses", Count, &[hardware(5)], "Mispredicted branches."),
    Metric::counter("perf.bus_cycles", Cycles, &[hardware(6)], "Cycles of the bus."),
    Metric::counter(
        "perf.stalled_cycles_frontend",
        Cycles,
        &[hardware(7)],
        "Cycles stalled in the front end, waiting for instructions.",
    ),
    Metric::counter(
        "perf.stalled_cycles_backend",
        Cycles,
        &[hardware(8)],
        "Cycles stalled in the back end, waiting for resources.",
    ),
    Metric::counter("perf.ref_cpu_cycles", Cycles, &[hardware(9)], "Cycles at a constant frequency."),
    Metric::counter(
        "perf.cache.l1d.read.access",
        Count,
        &[cache(0, 0, 0)],
        "Reads of the first-level data cache.",
    ),
    Metric::counter(
        "perf.cache.l1d.read.miss",
        Count,
        &[cache(0, 0, 1)],
        "Reads of the first-level data cache that missed.",
    ),
    Metric::counter(
        "perf.cache.l1d.write.access",
        Count,
        &[cache(0, 1, 0)],
        "Writes of the first-level data cache.",
    ),
    Metric::counter(
        "perf.cache.l1d.write.miss",
        Count,
        &[cache(0, 1, 1)],
        "Writes of the first-level data cache that missed.",
    ),
    Metric::counter(
        "perf.cache.l1d.prefetch.access",
        Count,
        &[cache(0, 2, 0)],
        "Prefetches of the first-level data cache.",
    ),
    Metric::counter(
        "perf.cache.l1d.prefetch.miss",
        Count,
        &[cache(0, 2, 1)],
        "Prefetches of the first-level data cache that missed.",
    ),
    Metric::counter(
        "perf.cache.l1i.read.access",
        Count,
        &[cache(1, 0, 0)],
        "Reads of the first-level instruction cache.",
    ),
    Metric::counter(
        "perf.cache.l1i.read.miss",
        Count,
        &[cache(1, 0, 1)],
        "Reads of the first-level instruction cache that missed.",
    ),
    Metric::counter(
        "perf.cache.l1i.write.access",
        Count,
        &[cache(1, 1, 0)],
        "Writes of the first-level instruction cache.",
    ),
    Metric::counter(
        "perf.cache.l1i.write.miss",
        Count,
        &[cache(1, 1, 1)],
        "Writes of the first-level instruction cache that missed.",
    ),
    Metric::counter(
        "perf.cache.l1i.prefetch.access",
        Count,
        &[cache(1, 2, 0)],
        "Prefetches of the first-level instruction cache.",
    ),
    Metric::counter(
        "perf.cache.l1i.prefetch.miss",
        Count,
        &[cache(1, 2, 1)],
        "Prefetches of the first-level instruction cache that missed.",
    ),
    Metric::counter("perf.cache.ll.read.access", Count, &[cache(2, 0, 0)], "Reads of the last-level cache."),
    Metric::counter(
        "perf.cache.ll.read.miss",
        Count,
        &[cache(2, 0, 1)],
        "Reads of the last-level cache that missed.",
    ),
    Metric::counter(
        "perf.cache.ll.write.access",
        Count,
        &[cache(2, 1, 0)],
        "Writes of the last-level cache.",
    ),
    Metric::counter(
        "perf.cache.ll.write.miss",
        Count,
        &[cache(2, 1, 1)],
        "Writes of the last-level cache that missed.",
    ),
    Metric::counter(
        "perf.cache.ll.prefetch.access",
        Count,
        &[cache(2, 2, 0)],
        "Prefetches of the last-level cache.",
    ),
    Metric::counter(
        "perf.cache.ll.prefetch.miss",
        Count,
        &[cache(2, 2, 1)],
        "Prefetches of the last-level cache that missed.",
    ),
    Metric::counter("perf.cache.dtlb.read.access", Count, &[cache(3, 0, 0)], "Reads of the data TLB."),
    Metric::counter(
        "perf.cache.dtlb.read.miss",
        Count,
        &[cache(3, 0, 1)],
        "Reads of the data TLB that missed.",
    ),
    Metric::counter("perf.cache.dtlb.write.access", Count, &[cache(3, 1, 0)], "Writes of the data TLB."),
    Metric::counter(
        "perf.cache.dtlb.write.miss",
        Count,
        &[cache(3, 1, 1)],
        "Writes of the data TLB that missed.",
    ),
    Metric::counter(
        "perf.cache.dtlb.prefetch.access",
        Count,
        &[cache(3, 2, 0)],
        "Prefetches of the data TLB.",
    ),
    Metric::counter(
        "perf.cache.dtlb.prefetch.miss",
        Count,
        &[cache(3, 2, 1)],
        "Prefetches of the data TLB that missed.",
    ),
    Metric::counter("perf.cache.itlb.read.access", Count, &[cache(4, 0, 0)], "Reads of the instruction TLB."),
    Metric::counter(
        "perf.cache.itlb.read.miss",
        Count,
        &[cache(4, 0, 1)],
        "Reads of the instruction TLB that missed.",
    ),
    Metric::counter(
        "perf.cache.itlb.write.access",
        Count,
        &[cache(4, 1, 0)],
        "Writes of the instruction TLB.",
    ),
    Metric::counter(
        "perf.cache.itlb.write.miss",
        Count,
        &[cache(4, 1, 1)],
        "Writes of the instruction TLB that missed.",
    ),
    Metric::counter(
        "perf.cache.itlb.prefetch.access",
        Count,
        &[cache(4, 2, 0)],
        "Prefetches of the instruction TLB.",
    ),
    Metric::counter(
        "perf.cache.itlb.prefetch.miss",
        Count,
        &[cache(4, 2, 1)],
        "Prefetches of the instruction TLB that missed.",
    ),
    Metric::counter(
        "perf.cache.bpu.read.access",
        Count,
        &[cache(5, 0, 0)],
        "Reads of the branch prediction unit.",
    ),
    Metric::counter(
        "perf.cache.bpu.read.miss",
        Count,
        &[cache(5, 0, 1)],
        "Reads of the branch prediction unit that missed.",
    ),
    Metric::counter(
        "perf.cache.bpu.write.access",
        Count,
        &[cache(5, 1, 0)],
        "Writes of the branch prediction unit.",
    ),
    Metric::counter(
        "perf.cache.bpu.write.miss",
        Count,
        &[cache(5, 1, 1)],
        "Writes of the branch prediction unit that missed.",
    ),
    Metric::counter(
        "perf.cache.bpu.prefetch.access",
        Count,
        &[cache(5, 2, 0)],
        "Prefetches of the branch prediction unit.",
    ),
    Metric::counter(
        "perf.cache.bpu.prefetch.miss",
        Count,
        &[cache(5, 2, 1)],
        "Prefetches of the branch prediction unit that missed.",
    ),
    Metric::counter("perf.cache.node.read.access", Count, &[cache(6, 0, 0)], "Reads of the node's memory."),
    Metric::counter(
        "perf.cache.node.read.miss",
        Count,
        &[cache(6, 0, 1)],
        "Reads of the node's memory that missed.",
    ),
    Metric::counter("perf.cache.node.write.access", Count, &[cache(6, 1, 0)], "Writes of the node's memory."),
    Metric::counter(
        "perf.cache.node.write.miss",
        Count,
        &[cache(6, 1, 1)],
        "Writes of the node's memory that missed.",
    ),
    Metric::counter(
        "perf.cache.node.prefetch.access",
        Count,
        &[cache(6, 2, 0)],
        "Prefetches of the node's memory.",
    ),
    Metric::counter(
        "perf.cache.node.prefetch.miss",
        Count,
        &[cache(6, 2, 1)],
        "Prefetches of the node's memory that missed.",
    ),
    Metric::counter(
        "perf.raw.*",
        Count,
        &[Origin::Perf(PerfEvent::Raw)],
        "The raw event of this CPU with the config r<hexadecimal>.",
    ),
    named(Count),
    Metric::counter(
        "perf.tracepoint.*",
        Count,
        &[Origin::Perf(PerfEvent::Tracepoint)],
        "Hits of the tracepoint <subsystem>.<name>.",
    ),
    Metric::counter(
        "perf.time_enabled",
        Nanoseconds,
        &[Origin::Perf(PerfEvent::TimeEnabled)],
        "Time that the events of a group were enabled, summed over the CPUs.",
    ),
    Metric::counter(
        "perf.time_running",
        Nanoseconds,
        &[Origin::Perf(PerfEvent::TimeRunning)],
        "Time that the events of a group were counting, summed over the CPUs.",
    ),
];
