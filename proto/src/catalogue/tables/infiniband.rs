//! Ports of InfiniBand and Omni-Path adapters. Source: `Documentation/ABI/stable/sysfs-class-infiniband` of
//! Linux. The kernel queries the adapter at every read.
//!
//! Adapters without extended counters count data and packets in 32 bits, and errors in 4 to 16; such a
//! counter stays at its largest value until it is reset.
//!
//! The driver of Omni-Path, `hfi1`, counts data in flits of eight octets (`pma_get_opa_port_dctrs` in
//! `drivers/infiniband/hw/hfi1/mad.c`). It shows 0 for counters that it does not have: those are left out
//! here.

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::Origin;
use crate::catalogue::text_file::{Devices, Form, RefreshUnit, Scale, TextFile};
use crate::series::Unit::{Bytes, BytesPerSecond, Count, Cycles};

const OMNI_PATH: Devices = Devices::Named("hfi");
const INFINIBAND: Devices = Devices::NotNamed("hfi");

const fn port_file(path: &'static str) -> TextFile {
    TextFile::sys(path, Form::Values).labelled(&["device", "port"])
}

/// Declares files of the ports' counters.
macro_rules! counters {
    ($($name:ident: $file:literal of $devices:expr;)*) => {
        $(static $name: TextFile =
            port_file(concat!("class/infiniband/*/ports/*/counters/", $file)).blocking().of_devices($devices);)*
    };
}

counters! {
    RCV_DATA: "port_rcv_data" of INFINIBAND;
    XMIT_DATA: "port_xmit_data" of INFINIBAND;
    RCV_FLITS: "port_rcv_data" of OMNI_PATH;
    XMIT_FLITS: "port_xmit_data" of OMNI_PATH;
    RCV_PACKETS: "port_rcv_packets" of Devices::All;
    XMIT_PACKETS: "port_xmit_packets" of Devices::All;
    UNICAST_RCV_PACKETS: "unicast_rcv_packets" of INFINIBAND;
    UNICAST_XMIT_PACKETS: "unicast_xmit_packets" of INFINIBAND;
    MULTICAST_RCV_PACKETS: "multicast_rcv_packets" of Devices::All;
    MULTICAST_XMIT_PACKETS: "multicast_xmit_packets" of Devices::All;
    PORT_RCV_ERRORS: "port_rcv_errors" of Devices::All;
    PORT_RCV_REMOTE_PHYSICAL_ERRORS: "port_rcv_remote_physical_errors" of Devices::All;
    PORT_RCV_SWITCH_RELAY_ERRORS: "port_rcv_switch_relay_errors" of INFINIBAND;
    PORT_RCV_CONSTRAINT_ERRORS: "port_rcv_constraint_errors" of Devices::All;
    EXCESSIVE_BUFFER_OVERRUN_ERRORS: "excessive_buffer_overrun_errors" of Devices::All;
    PORT_XMIT_DISCARDS: "port_xmit_discards" of Devices::All;
    PORT_XMIT_CONSTRAINT_ERRORS: "port_xmit_constraint_errors" of Devices::All;
    PORT_XMIT_WAIT: "port_xmit_wait" of INFINIBAND;
    SYMBOL_ERROR: "symbol_error" of INFINIBAND;
    LINK_DOWNED: "link_downed" of Devices::All;
    LINK_ERROR_RECOVERY: "link_error_recovery" of Devices::All;
    LOCAL_LINK_INTEGRITY_ERRORS: "local_link_integrity_errors" of Devices::All;
    VL15_DROPPED: "VL15_dropped" of INFINIBAND;
}

/// The same quantity of Omni-Path, which its standard counter shows as 0.
static XMIT_WAIT_OF_HFI: TextFile = port_file("class/infiniband/*/ports/*/hw_counters/TxWait")
    .blocking()
    .of_devices(OMNI_PATH)
    .refreshed_by("lifespan", RefreshUnit::Milliseconds);

/// One thread reads these of all ports, since the kernel need not ask the adapter for most of them.
static STATE: TextFile = port_file("class/infiniband/*/ports/*/state").blocking_together();
static PHYS_STATE: TextFile = port_file("class/infiniband/*/ports/*/phys_state").blocking_together();
static RATE: TextFile = port_file("class/infiniband/*/ports/*/rate").blocking_together();

/// The unit of data counters: four octets.
const FOUR_OCTETS: Scale = Scale::Times(4);

/// The unit of data counters of Omni-Path: eight octets.
const FLITS: Scale = Scale::Times(8);

/// A rate of one gigabit per second, in bytes per second.
const GIGABIT: Scale = Scale::DecimalTimes(125_000_000);

/// A number before a colon: `4: ACTIVE`.
const NUMBERED: Scale = Scale::Until(':');

const fn bytes(name: &'static str, origins: &'static [Origin], help: &'static str) -> Metric {
    Metric::counter(name, Bytes, origins, help).of_node()
}

const fn count(name: &'static str, origins: &'static [Origin], help: &'static str) -> Metric {
    Metric::counter(name, Count, origins, help).of_node()
}

const fn state(name: &'static str, origins: &'static [Origin], help: &'static str) -> Metric {
    Metric::gauge(name, Count, origins, help).of_node()
}

/// The node's ports.
pub(crate) static METRICS: &[Metric] = &[
    bytes(
        "node.infiniband.receive.bytes",
        &[RCV_DATA.only_scaled(FOUR_OCTETS), RCV_FLITS.only_scaled(FLITS)],
        "Bytes that a port received.",
    ),
    bytes(
        "node.infiniband.transmit.bytes",
        &[XMIT_DATA.only_scaled(FOUR_OCTETS), XMIT_FLITS.only_scaled(FLITS)],
        "Bytes that a port sent.",
    ),
    count("node.infiniband.receive.packets", &[RCV_PACKETS.only()], "Packets that a port received."),
    count("node.infiniband.transmit.packets", &[XMIT_PACKETS.only()], "Packets that a port sent."),
    count(
        "node.infiniband.receive.unicast.packets",
        &[UNICAST_RCV_PACKETS.only()],
        "Unicast packets that a port received.",
    ),
    count(
        "node.infiniband.transmit.unicast.packets",
        &[UNICAST_XMIT_PACKETS.only()],
        "Unicast packets that a port sent.",
    ),
    count(
        "node.infiniband.receive.multicast.packets",
        &[MULTICAST_RCV_PACKETS.only()],
        "Multicast packets that a port received.",
    ),
    count(
        "node.infiniband.transmit.multicast.packets",
        &[MULTICAST_XMIT_PACKETS.only()],
        "Multicast packets that a port sent.",
    ),
    count(
        "node.infiniband.receive.errors",
        &[PORT_RCV_ERRORS.only()],
        "Packets with an error that a port received.",
    ),
    count(
        "node.infiniband.receive.remote_physical_errors",
        &[PORT_RCV_REMOTE_PHYSICAL_ERRORS.only()],
        "Packets that a port received with the mark of an earlier error.",
    ),
    count(
        "node.infiniband.receive.switch_relay_errors",
        &[PORT_RCV_SWITCH_RELAY_ERRORS.only()],
        "Packets that a port received and the switch could not forward.",
    ),
    count(
        "node.infiniband.receive.constraint_errors",
        &[PORT_RCV_CONSTRAINT_ERRORS.only()],
        "Packets that a port received and discarded because of its partition or filter rules.",
    ),
    count(
        "node.infiniband.receive.buffer_overrun_errors",
        &[EXCESSIVE_BUFFER_OVERRUN_ERRORS.only()],
        "Times that a port's receive buffers overran in several periods of flow control.",
    ),
    count(
        "node.infiniband.transmit.discards",
        &[PORT_XMIT_DISCARDS.only()],
        "Packets that a port discarded because the link was down or congested.",
    ),
    count(
        "node.infiniband.transmit.constraint_errors",
        &[PORT_XMIT_CONSTRAINT_ERRORS.only()],
        "Packets that a port did not send because of its partition or filter rules.",
    ),
    Metric::counter(
        "node.infiniband.transmit.wait",
        Cycles,
        &[PORT_XMIT_WAIT.only(), XMIT_WAIT_OF_HFI.only()],
        "Port clock ticks with data to send but no flow-control credit.",
    )
    .of_node(),
    count(
        "node.infiniband.symbol.errors",
        &[SYMBOL_ERROR.only()],
        "Minor errors of a port's physical lanes.",
    ),
    count(
        "node.infiniband.link.downed",
        &[LINK_DOWNED.only()],
        "Times that a port's link went down after a failed recovery.",
    ),
    count(
        "node.infiniband.link.recoveries",
        &[LINK_ERROR_RECOVERY.only()],
        "Times that a port's link recovered from errors.",
    ),
    count(
        "node.infiniband.link.integrity_errors",
        &[LOCAL_LINK_INTEGRITY_ERRORS.only()],
        "Times that a port's local physical errors exceeded the threshold.",
    ),
    count(
        "node.infiniband.vl15.dropped",
        &[VL15_DROPPED.only()],
        "Management packets (VL15) that a port dropped for want of buffers.",
    ),
    state(
        "node.infiniband.state",
        &[STATE.only_scaled(NUMBERED)],
        "State of each port: 1 down, 2 initializing, 3 armed, 4 active.",
    ),
    state(
        "node.infiniband.state.physical",
        &[PHYS_STATE.only_scaled(NUMBERED)],
        "Physical state of each port: 2 polling, 3 disabled, 4 training, 5 link up, 6 recovery.",
    ),
    Metric::gauge(
        "node.infiniband.rate",
        BytesPerSecond,
        &[RATE.only_scaled(GIGABIT)],
        "Speed of each port's link.",
    )
    .of_node()
    .float(),
];
