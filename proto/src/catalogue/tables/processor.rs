//! Frequencies and thermal throttling of the CPUs, and errors of the memory controllers. Sources:
//! `Documentation/admin-guide/pm/cpufreq.rst`, `arch/x86` (`therm_throt.c`) and
//! `Documentation/ABI/testing/sysfs-devices-edac` of Linux.

use crate::catalogue::metric::Metric;
use crate::catalogue::text_file::{Form, Scale, TextFile};
use crate::period::Period;
use crate::series::Unit::{Count, Hertz, Nanoseconds};

/// A file of each CPU. A read may interrupt the CPU, or wait for the firmware.
const fn cpu_file(path: &'static str) -> TextFile {
    TextFile::sys(path, Form::Values).labelled(&["cpu"]).blocking_together()
}

/// A file of the counts of thermal throttling. The kernel adds the time of an event at its end, and looks for
/// the end once a second.
const fn throttle_file(path: &'static str) -> TextFile {
    cpu_file(path).updated_every(Period::SECOND)
}

static FREQUENCY: TextFile = cpu_file("devices/system/cpu/cpu*/cpufreq/scaling_cur_freq");
static CORE_EVENTS: TextFile = throttle_file("devices/system/cpu/cpu*/thermal_throttle/core_throttle_count");
static CORE_TIME: TextFile =
    throttle_file("devices/system/cpu/cpu*/thermal_throttle/core_throttle_total_time_ms");
static PACKAGE_EVENTS: TextFile =
    throttle_file("devices/system/cpu/cpu*/thermal_throttle/package_throttle_count");
static PACKAGE_TIME: TextFile =
    throttle_file("devices/system/cpu/cpu*/thermal_throttle/package_throttle_total_time_ms");

const fn controller_file(path: &'static str) -> TextFile {
    TextFile::sys(path, Form::Values).labelled(&["controller"])
}

static CORRECTED: TextFile = controller_file("devices/system/edac/mc/mc*/ce_count");
static UNCORRECTED: TextFile = controller_file("devices/system/edac/mc/mc*/ue_count");

const KILOHERTZ: Scale = Scale::Times(1_000);
const MILLISECONDS: Scale = Scale::Times(1_000_000);

/// The node's processors and memory controllers.
pub(crate) static METRICS: &[Metric] = &[
    Metric::gauge(
        "node.cpu.frequency",
        Hertz,
        &[FREQUENCY.only_scaled(KILOHERTZ)],
        "Frequency of each CPU, measured or, with some drivers, the one last requested.",
    )
    .of_node(),
    Metric::counter(
        "node.cpu.throttled.thermal.events",
        Count,
        &[CORE_EVENTS.only()],
        "Times that the core of each CPU was slowed because of its temperature.",
    )
    .of_node(),
    Metric::counter(
        "node.cpu.throttled.thermal.time",
        Nanoseconds,
        &[CORE_TIME.only_scaled(MILLISECONDS)],
        "Time that the core of each CPU was slowed because of its temperature.",
    )
    .of_node(),
    Metric::counter(
        "node.cpu.package.throttled.thermal.events",
        Count,
        &[PACKAGE_EVENTS.only()],
        "Times that the package of each CPU was slowed because of its temperature.",
    )
    .of_node(),
    Metric::counter(
        "node.cpu.package.throttled.thermal.time",
        Nanoseconds,
        &[PACKAGE_TIME.only_scaled(MILLISECONDS)],
        "Time that the package of each CPU was slowed because of its temperature.",
    )
    .of_node(),
    Metric::counter(
        "node.edac.corrected",
        Count,
        &[CORRECTED.only()],
        "Memory errors that each memory controller corrected.",
    )
    .of_node(),
    Metric::counter(
        "node.edac.uncorrected",
        Count,
        &[UNCORRECTED.only()],
        "Memory errors that each memory controller could not correct.",
    )
    .of_node(),
];
