//! Sensors of the hardware monitors and thermal zones. Sources: `Documentation/hwmon/sysfs-interface.rst` and
//! `Documentation/driver-api/thermal/sysfs-api.rst` of Linux. A read may wait for a slow bus or for the
//! firmware.

use crate::catalogue::metric::Metric;
use crate::catalogue::text_file::{Form, LabelFile, RefreshUnit, Scale, TextFile};
use crate::series::Unit::{Amperes, Celsius, Joules, RevolutionsPerMinute, Volts, Watts};

const CHIP: LabelFile = LabelFile { label: "chip", name: "name" };

const fn sensor_file(path: &'static str, label_files: &'static [LabelFile]) -> TextFile {
    TextFile::sys(path, Form::Values)
        .labelled(&["hwmon", "sensor"])
        .blocking()
        .named_by(label_files)
        .refreshed_by("update_interval", RefreshUnit::Milliseconds)
}

const fn label_of(name: &'static str) -> LabelFile {
    LabelFile { label: "name", name }
}

static TEMPERATURE_NAMES: [LabelFile; 2] = [CHIP, label_of("temp*_label")];
static TEMPERATURE: TextFile = sensor_file("class/hwmon/hwmon*/temp*_input", &TEMPERATURE_NAMES);
static POWER_NAMES: [LabelFile; 2] = [CHIP, label_of("power*_label")];
static POWER: TextFile = sensor_file("class/hwmon/hwmon*/power*_input", &POWER_NAMES);
static POWER_AVERAGE: TextFile = sensor_file("class/hwmon/hwmon*/power*_average", &POWER_NAMES);
static ENERGY_NAMES: [LabelFile; 2] = [CHIP, label_of("energy*_label")];
static ENERGY: TextFile = sensor_file("class/hwmon/hwmon*/energy*_input", &ENERGY_NAMES);
static FAN_NAMES: [LabelFile; 2] = [CHIP, label_of("fan*_label")];
static FAN: TextFile = sensor_file("class/hwmon/hwmon*/fan*_input", &FAN_NAMES);
static VOLTAGE_NAMES: [LabelFile; 2] = [CHIP, label_of("in*_label")];
static VOLTAGE: TextFile = sensor_file("class/hwmon/hwmon*/in*_input", &VOLTAGE_NAMES);
static CURRENT_NAMES: [LabelFile; 2] = [CHIP, label_of("curr*_label")];
static CURRENT: TextFile = sensor_file("class/hwmon/hwmon*/curr*_input", &CURRENT_NAMES);

/// All zones are read by one thread, since there may be dozens.
static ZONE: TextFile = TextFile::sys("class/thermal/thermal_zone*/temp", Form::Values)
    .labelled(&["zone"])
    .blocking_together()
    .named_by(&[LabelFile { label: "type", name: "type" }]);

const MILLI: Scale = Scale::Per(1_000);
const MICRO: Scale = Scale::Per(1_000_000);

/// The node's sensors.
pub(crate) static METRICS: &[Metric] = &[
    Metric::gauge(
        "node.hwmon.temperature",
        Celsius,
        &[TEMPERATURE.only_scaled(MILLI)],
        "Temperature at each sensor.",
    )
    .of_node()
    .float(),
    Metric::gauge("node.hwmon.power", Watts, &[POWER.only_scaled(MICRO)], "Power at each sensor.")
        .of_node()
        .float(),
    Metric::gauge(
        "node.hwmon.power.average",
        Watts,
        &[POWER_AVERAGE.only_scaled(MICRO)],
        "Power at each sensor, averaged by the sensor over its own interval.",
    )
    .of_node()
    .float(),
    Metric::counter(
        "node.hwmon.energy",
        Joules,
        &[ENERGY.only_scaled(MICRO)],
        "Energy at each sensor since the driver was loaded.",
    )
    .of_node()
    .float(),
    Metric::gauge("node.hwmon.fan.speed", RevolutionsPerMinute, &[FAN.only()], "Speed of each fan.")
        .of_node(),
    Metric::gauge("node.hwmon.voltage", Volts, &[VOLTAGE.only_scaled(MILLI)], "Voltage at each sensor.")
        .of_node()
        .float(),
    Metric::gauge("node.hwmon.current", Amperes, &[CURRENT.only_scaled(MILLI)], "Current at each sensor.")
        .of_node()
        .float(),
    Metric::gauge(
        "node.thermal.temperature",
        Celsius,
        &[ZONE.only_scaled(MILLI)],
        "Temperature of each thermal zone.",
    )
    .of_node()
    .float(),
];
