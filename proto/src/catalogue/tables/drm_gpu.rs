//! GPUs whose drivers have files in sysfs: amdgpu, i915 and xe. Sources:
//! `Documentation/gpu/amdgpu/thermal.rst`, `Documentation/ABI/testing/sysfs-driver-intel-i915-hwmon`,
//! `sysfs-driver-intel-xe-hwmon`, and the comments of `xe_gt_freq.c` and `i915/gt/intel_gt_sysfs_pm.c` of
//! Linux. The driver asks the firmware, and wakes a GPU that sleeps.

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::Origin;
use crate::catalogue::text_file::{Cell, Field, Form, LabelFile, Row, Scale, TextFile};
use crate::period::Period;
use crate::series::Unit::{Bytes, Celsius, Count, Hertz, Joules, Nanoseconds, Percent, Watts};

/// The number of the chip that amdgpu states, which identifies a GPU.
static UUID: [LabelFile; 1] = [LabelFile { label: "uuid", name: "unique_id" }];

const fn device_file(path: &'static str) -> TextFile {
    TextFile::sys(path, Form::Values).labelled(&["gpu"]).blocking().named_by(&UUID)
}

const fn sensor_file(path: &'static str, label_files: &'static [LabelFile]) -> TextFile {
    TextFile::sys(path, Form::Values).labelled(&["gpu", "hwmon", "sensor"]).blocking().named_by(label_files)
}

const fn labels(name: &'static str) -> [LabelFile; 3] {
    [
        LabelFile { label: "chip", name: "name" },
        LabelFile { label: "name", name },
        LabelFile { label: "uuid", name: "../../unique_id" },
    ]
}

static BUSY: TextFile = device_file("class/drm/card*/device/gpu_busy_percent");
static MEMORY_BUSY: TextFile = device_file("class/drm/card*/device/mem_busy_percent");
static MEMORY_USED: TextFile = device_file("class/drm/card*/device/mem_info_vram_used");
static MEMORY_TOTAL: TextFile = device_file("class/drm/card*/device/mem_info_vram_total");

static ENERGY_LABELS: [LabelFile; 3] = labels("energy*_label");
/// The drivers of Intel add up a register of 32 bits at each read, which wraps around after 4.4 minutes at
/// 1000 W.
static ENERGY: TextFile = sensor_file("class/drm/card*/device/hwmon/hwmon*/energy*_input", &ENERGY_LABELS)
    .read_within(Period::FOUR_MINUTES);
static POWER_LABELS: [LabelFile; 3] = labels("power*_label");
static POWER: TextFile = sensor_file("class/drm/card*/device/hwmon/hwmon*/power*_input", &POWER_LABELS);
static POWER_AVERAGE: TextFile =
    sensor_file("class/drm/card*/device/hwmon/hwmon*/power*_average", &POWER_LABELS);
static POWER_CAP: TextFile = sensor_file("class/drm/card*/device/hwmon/hwmon*/power*_cap", &POWER_LABELS);
static POWER_MAX: TextFile = sensor_file("class/drm/card*/device/hwmon/hwmon*/power*_max", &POWER_LABELS);
static TEMPERATURE_LABELS: [LabelFile; 3] = labels("temp*_label");
static TEMPERATURE: TextFile =
    sensor_file("class/drm/card*/device/hwmon/hwmon*/temp*_input", &TEMPERATURE_LABELS);
static CLOCK_LABELS: [LabelFile; 3] = labels("freq*_label");
static CLOCK: TextFile = sensor_file("class/drm/card*/device/hwmon/hwmon*/freq*_input", &CLOCK_LABELS);
static CLOCK_OF_I915: TextFile = TextFile::sys("class/drm/card*/gt/gt*/rps_act_freq_mhz", Form::Values)
    .labelled(&["gpu", "gt"])
    .blocking();
static CLOCK_OF_XE: TextFile = TextFile::sys("class/drm/card*/device/tile*/gt*/freq*/act_freq", Form::Values)
    .labelled(&["gpu", "tile", "gt", "domain"])
    .blocking();

/// The reason `status` stands for any.
static THROTTLED_OF_I915: TextFile = TextFile::sys("class/drm/card*/gt/gt*/throttle_reason_*", Form::Values)
    .labelled(&["gpu", "gt", "reason"])
    .blocking();
static THROTTLED_OF_XE: TextFile =
    TextFile::sys("class/drm/card*/device/tile*/gt*/freq*/throttle/reason_*", Form::Values)
        .labelled(&["gpu", "tile", "gt", "domain", "reason"])
        .blocking();
static IDLE_OF_I915: TextFile = TextFile::sys("class/drm/card*/gt/gt*/rc6_residency_ms", Form::Values)
    .labelled(&["gpu", "gt"])
    .blocking();
static IDLE_OF_XE: TextFile =
    TextFile::sys("class/drm/card*/device/tile*/gt*/gtidle/idle_residency_ms", Form::Values)
        .labelled(&["gpu", "tile", "gt"])
        .blocking();

static HOST_MEMORY_USED: TextFile = device_file("class/drm/card*/device/mem_info_gtt_used");
static HOST_MEMORY_TOTAL: TextFile = device_file("class/drm/card*/device/mem_info_gtt_total");
static PCIE_REPLAYS: TextFile = device_file("class/drm/card*/device/pcie_replay_count");

/// The errors of a block of the chip, as `ue: 0` and `ce: 12` in two lines.
static ERRORS: TextFile = TextFile::sys("class/drm/card*/device/ras/*_err_count", Form::Values)
    .labelled(&["gpu", "block"])
    .blocking()
    .named_by(&[LabelFile { label: "uuid", name: "../unique_id" }]);

const fn errors(name: &'static str) -> Origin {
    let field = Field { row: Row::Only, cell: Cell::Named(name), scale: Scale::Times(1) };
    Origin::Text { file: &ERRORS, field }
}

const MILLISECONDS: Scale = Scale::Times(1_000_000);
const MILLI: Scale = Scale::Per(1_000);
const MICRO: Scale = Scale::Per(1_000_000);
const MEGA: Scale = Scale::Times(1_000_000);

/// The GPUs of the node.
pub(crate) static METRICS: &[Metric] = &[
    Metric::gauge(
        "node.gpu.drm.utilization",
        Percent,
        &[BUSY.only()],
        "Share of the time in which each GPU was busy, as its firmware averages it.",
    )
    .of_node(),
    Metric::gauge(
        "node.gpu.drm.memory.utilization",
        Percent,
        &[MEMORY_BUSY.only()],
        "Share of the time in which the memory of each GPU was busy, as its firmware averages it.",
    )
    .of_node(),
    Metric::gauge(
        "node.gpu.drm.memory.used",
        Bytes,
        &[MEMORY_USED.only()],
        "Memory of each GPU that is allocated.",
    )
    .of_node(),
    Metric::gauge("node.gpu.drm.memory.total", Bytes, &[MEMORY_TOTAL.only()], "Memory of each GPU.")
        .of_node(),
    Metric::counter(
        "node.gpu.drm.energy",
        Joules,
        &[ENERGY.only_scaled(MICRO)],
        "Energy at each sensor of each GPU since the driver was loaded.",
    )
    .of_node()
    .float(),
    Metric::gauge(
        "node.gpu.drm.power",
        Watts,
        &[POWER.only_scaled(MICRO)],
        "Power at each sensor of each GPU.",
    )
    .of_node()
    .float(),
    Metric::gauge(
        "node.gpu.drm.power.average",
        Watts,
        &[POWER_AVERAGE.only_scaled(MICRO)],
        "Power at each sensor of each GPU, averaged by its firmware.",
    )
    .of_node()
    .float(),
    Metric::gauge(
        "node.gpu.drm.temperature",
        Celsius,
        &[TEMPERATURE.only_scaled(MILLI)],
        "Temperature at each sensor of each GPU.",
    )
    .of_node()
    .float(),
    Metric::gauge(
        "node.gpu.drm.clock",
        Hertz,
        &[CLOCK.only(), CLOCK_OF_I915.only_scaled(MEGA), CLOCK_OF_XE.only_scaled(MEGA)],
        "Clocks of each GPU: those of amdgpu's sensors, or of each part (`gt`) of i915 and xe.",
    )
    .of_node(),
    Metric::gauge(
        "node.gpu.drm.power.limit",
        Watts,
        &[POWER_CAP.only_scaled(MICRO), POWER_MAX.only_scaled(MICRO)],
        "Limit of the power at each sensor of each GPU.",
    )
    .of_node()
    .float(),
    Metric::gauge(
        "node.gpu.drm.throttled",
        Count,
        &[THROTTLED_OF_I915.only(), THROTTLED_OF_XE.only()],
        "1 for each reason that lowers the clock of a part (`gt`) of a GPU now, else 0 (i915, xe).",
    )
    .of_node(),
    Metric::counter(
        "node.gpu.drm.idle.time",
        Nanoseconds,
        &[IDLE_OF_I915.only_scaled(MILLISECONDS), IDLE_OF_XE.only_scaled(MILLISECONDS)],
        "Time in which each part (`gt`) of each GPU was idle and switched off (i915, xe).",
    )
    .of_node()
    .of_32_bits(1_000_000)
    .updated_every(Period::MILLISECOND),
    Metric::gauge(
        "node.gpu.drm.memory.host.used",
        Bytes,
        &[HOST_MEMORY_USED.only()],
        "Memory of the node that each GPU has mapped (GTT).",
    )
    .of_node(),
    Metric::gauge(
        "node.gpu.drm.memory.host.total",
        Bytes,
        &[HOST_MEMORY_TOTAL.only()],
        "Memory of the node that each GPU may map (GTT).",
    )
    .of_node(),
    Metric::counter(
        "node.gpu.drm.errors.corrected",
        Count,
        &[errors("ce:")],
        "Corrected errors of each block of each GPU (RAS of amdgpu).",
    )
    .of_node(),
    Metric::counter(
        "node.gpu.drm.errors.uncorrected",
        Count,
        &[errors("ue:")],
        "Errors of each block of each GPU that could not be corrected (RAS of amdgpu).",
    )
    .of_node(),
    Metric::counter(
        "node.gpu.drm.pcie.replays",
        Count,
        &[PCIE_REPLAYS.only()],
        "Repeated transfers of each GPU over PCIe.",
    )
    .of_node(),
    Metric::counter(
        "node.gpu.amd.energy",
        Joules,
        &[Origin::source("amdgpu", "energy", "`class/drm/card*/device/gpu_metrics`")],
        "Energy of each GPU of amdgpu since the driver was loaded.",
    )
    .of_node()
    .float(),
    Metric::gauge(
        "node.gpu.amd.throttled",
        Count,
        &[Origin::source("amdgpu", "throttled", "`class/drm/card*/device/gpu_metrics`")],
        "1 for each reason that lowers the clocks of a GPU of amdgpu now, else 0.",
    )
    .of_node(),
];
