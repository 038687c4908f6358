//! Sensors of the hardware monitors. Source: `Documentation/hwmon/sysfs-interface.rst` of Linux. A read may wait for a slow bus.

use crate::catalogue::metric::Metric;
use crate::catalogue::text_file::{Form, Scale, TextFile};
use crate::series::Unit::Celsius;

static TEMPERATURE: TextFile =
    TextFile::sys("class/hwmon/hwmon*/temp*_input", Form::Values).labelled(&["hwmon", "sensor"]).blocking();

/// The node's sensors.
pub(crate) static METRICS: &[Metric] = &[Metric::gauge(
    "node.hwmon.temperature",
    Celsius,
    // In thousandths of a degree.
    &[TEMPERATURE.only_scaled(Scale::Per(1_000))],
    "Temperature at each sensor.",
)
.of_node()
.float()];
