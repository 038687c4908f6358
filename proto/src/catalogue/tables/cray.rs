//! Energy and power of a Cray node, which its controller measures. Source: "User Access to Compute Node Power
//! Data" of the documentation of HPE Cray EX. A file has a number, its unit and, on newer systems, the time
//! of the measurement.

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::Origin;
use crate::catalogue::text_file::{Form, RefreshUnit, TextFile};
use crate::period::Period;
use crate::series::Unit::{Celsius, Count, Joules, Watts};

/// The controller measures ten times a second, or as often as `raw_scan_hz` states.
const fn counter_file(path: &'static str) -> TextFile {
    TextFile::sys(path, Form::Values)
        .blocking()
        .updated_every(Period::HUNDRED_MILLISECONDS)
        .refreshed_by("raw_scan_hz", RefreshUnit::Hertz)
}

static ENERGY: TextFile = counter_file("cray/pm_counters/energy");
static POWER: TextFile = counter_file("cray/pm_counters/power");
static CPU_ENERGY: TextFile = counter_file("cray/pm_counters/cpu_energy");
static CPU_POWER: TextFile = counter_file("cray/pm_counters/cpu_power");
static MEMORY_ENERGY: TextFile = counter_file("cray/pm_counters/memory_energy");
static MEMORY_POWER: TextFile = counter_file("cray/pm_counters/memory_power");
static ACCELERATOR_ENERGY: TextFile =
    counter_file("cray/pm_counters/accel*_energy").labelled(&["accelerator"]);
static ACCELERATOR_POWER: TextFile = counter_file("cray/pm_counters/accel*_power").labelled(&["accelerator"]);
static CPU_TEMPERATURE: TextFile = counter_file("cray/pm_counters/cpu*_temp").labelled(&["package"]);
static FRESHNESS: TextFile = counter_file("cray/pm_counters/freshness");
static GENERATION: TextFile = counter_file("cray/pm_counters/generation");

const fn energy(name: &'static str, origins: &'static [Origin], help: &'static str) -> Metric {
    Metric::counter(name, Joules, origins, help).of_node()
}

const fn power(name: &'static str, origins: &'static [Origin], help: &'static str) -> Metric {
    Metric::gauge(name, Watts, origins, help).of_node()
}

/// The node's controller.
pub(crate) static METRICS: &[Metric] = &[
    energy("node.cray.energy", &[ENERGY.only()], "Energy of the node, accelerators included."),
    power("node.cray.power", &[POWER.only()], "Power of the node, accelerators included."),
    energy("node.cray.cpu.energy", &[CPU_ENERGY.only()], "Energy of the processors."),
    power("node.cray.cpu.power", &[CPU_POWER.only()], "Power of the processors."),
    energy("node.cray.memory.energy", &[MEMORY_ENERGY.only()], "Energy of the memory."),
    power("node.cray.memory.power", &[MEMORY_POWER.only()], "Power of the memory."),
    energy("node.cray.accelerator.energy", &[ACCELERATOR_ENERGY.only()], "Energy of each accelerator."),
    power("node.cray.accelerator.power", &[ACCELERATOR_POWER.only()], "Power of each accelerator."),
    Metric::gauge(
        "node.cray.cpu.temperature",
        Celsius,
        &[CPU_TEMPERATURE.only()],
        "Temperature of each processor package.",
    )
    .of_node(),
    Metric::counter(
        "node.cray.freshness",
        Count,
        &[FRESHNESS.only()],
        "Updates of the measured values: where it does not grow, they are stale.",
    )
    .of_node(),
    Metric::counter("node.cray.generation", Count, &[GENERATION.only()], "Changes of the power limit.")
        .of_node(),
];
