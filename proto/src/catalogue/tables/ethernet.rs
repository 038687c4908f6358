//! Speeds and carriers of network interfaces. Source: `Documentation/ABI/testing/sysfs-class-net` of Linux.
//! Their traffic is in the node's table (`/proc/net/dev`).

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::Origin;
use crate::catalogue::text_file::{Form, Scale, TextFile};
use crate::series::Unit::{BytesPerSecond, Count};

/// One thread reads all interfaces, since there may be hundreds. A read of the speed waits for the driver.
const fn interface_file(path: &'static str) -> TextFile {
    TextFile::sys(path, Form::Values).labelled(&["interface"]).blocking_together()
}

static SPEED: TextFile = interface_file("class/net/*/speed");
static CARRIER_CHANGES: TextFile = interface_file("class/net/*/carrier_changes");
static CARRIER_UP: TextFile = interface_file("class/net/*/carrier_up_count");
static CARRIER_DOWN: TextFile = interface_file("class/net/*/carrier_down_count");

/// The unit of the speed: a megabit per second, in bytes per second.
const MEGABIT: Scale = Scale::Times(125_000);

const fn count(name: &'static str, origins: &'static [Origin], help: &'static str) -> Metric {
    Metric::counter(name, Count, origins, help).of_node()
}

/// The node's interfaces.
pub(crate) static METRICS: &[Metric] = &[
    Metric::gauge(
        "node.network.speed",
        BytesPerSecond,
        &[SPEED.only_scaled(MEGABIT)],
        "Speed of each interface's link; absent where it has none.",
    )
    .of_node(),
    count(
        "node.network.carrier.changes",
        &[CARRIER_CHANGES.only()],
        "Times that each interface lost or found its carrier.",
    ),
    count("node.network.carrier.up", &[CARRIER_UP.only()], "Times that each interface found its carrier."),
    count("node.network.carrier.down", &[CARRIER_DOWN.only()], "Times that each interface lost its carrier."),
];
