//! Energy counters of processors (RAPL). Sources: `arch/x86/events/rapl.c` and
//! `Documentation/power/powercap/powercap.rst` of Linux.

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::Origin;
use crate::period::Period;
use crate::series::Unit::Joules;

/// The hardware updates the counters about every millisecond.
const fn rapl(field: &'static str, place: &'static str) -> Origin {
    Origin::lagging_source("rapl", field, place, Period::MILLISECOND)
}

const fn energy(name: &'static str, origins: &'static [Origin], help: &'static str) -> Metric {
    Metric::counter(name, Joules, origins, help).of_node().float()
}

/// The energy of the node's processors.
pub(crate) static METRICS: &[Metric] = &[
    energy(
        "node.energy.package",
        &[rapl("package", "perf `power/energy-pkg/`, or powercap `package-N`, each package")],
        "Energy of each processor package since the source was opened.",
    ),
    energy(
        "node.energy.cores",
        &[rapl("cores", "perf `power/energy-cores/`, or powercap `core`, each package")],
        "Energy of the cores of each package since the source was opened; part of the package's.",
    ),
    energy(
        "node.energy.memory",
        &[rapl("memory", "perf `power/energy-ram/`, or powercap `dram`, each package")],
        "Energy of the memory of each package since the source was opened; not part of the package's.",
    ),
    energy(
        "node.energy.gpu",
        &[rapl("gpu", "perf `power/energy-gpu/`, or powercap `uncore`, each package")],
        "Energy of the graphics unit of each package since the source was opened; part of the package's.",
    ),
    energy(
        "node.energy.platform",
        &[rapl("platform", "perf `power/energy-psys/`, or powercap `psys`")],
        "Energy of the platform since the source was opened: the processors and what the board's design includes.",
    ),
];
