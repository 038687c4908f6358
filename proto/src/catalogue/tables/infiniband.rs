//! Ports of InfiniBand and Omni-Path adapters. Source: `Documentation/ABI/stable/sysfs-class-infiniband` of
//! Linux. The kernel queries the adapter at every read.

use crate::catalogue::metric::Metric;
use crate::catalogue::text_file::{Form, Scale, TextFile};
use crate::series::Unit::{Bytes, Count, Cycles};

const fn counter_file(path: &'static str) -> TextFile {
    TextFile::sys(path, Form::Values).labelled(&["device", "port"]).blocking()
}

static RCV_DATA: TextFile = counter_file("class/infiniband/*/ports/*/counters/port_rcv_data");
static XMIT_DATA: TextFile = counter_file("class/infiniband/*/ports/*/counters/port_xmit_data");
static RCV_PACKETS: TextFile = counter_file("class/infiniband/*/ports/*/counters/port_rcv_packets");
static XMIT_PACKETS: TextFile = counter_file("class/infiniband/*/ports/*/counters/port_xmit_packets");
static RCV_ERRORS: TextFile = counter_file("class/infiniband/*/ports/*/counters/port_rcv_errors");
static XMIT_DISCARDS: TextFile = counter_file("class/infiniband/*/ports/*/counters/port_xmit_discards");
static XMIT_WAIT: TextFile = counter_file("class/infiniband/*/ports/*/counters/port_xmit_wait");
static SYMBOL_ERROR: TextFile = counter_file("class/infiniband/*/ports/*/counters/symbol_error");
static LINK_DOWNED: TextFile = counter_file("class/infiniband/*/ports/*/counters/link_downed");

/// The unit of data counters: four octets.
const FOUR_OCTETS: Scale = Scale::Times(4);

/// The node's ports.
pub(crate) static METRICS: &[Metric] = &[
    Metric::counter(
        "node.infiniband.receive.bytes",
        Bytes,
        &[RCV_DATA.only_scaled(FOUR_OCTETS)],
        "Bytes that a port received.",
    )
    .of_node(),
    Metric::counter(
        "node.infiniband.transmit.bytes",
        Bytes,
        &[XMIT_DATA.only_scaled(FOUR_OCTETS)],
        "Bytes that a port sent.",
    )
    .of_node(),
    Metric::counter(
        "node.infiniband.receive.packets",
        Count,
        &[RCV_PACKETS.only()],
        "Packets that a port received.",
    )
    .of_node(),
    Metric::counter(
        "node.infiniband.transmit.packets",
        Count,
        &[XMIT_PACKETS.only()],
        "Packets that a port sent.",
    )
    .of_node(),
    Metric::counter(
        "node.infiniband.receive.errors",
        Count,
        &[RCV_ERRORS.only()],
        "Packets with an error that a port received.",
    )
    .of_node(),
    Metric::counter(
        "node.infiniband.transmit.discards",
        Count,
        &[XMIT_DISCARDS.only()],
        "Packets that a port discarded because the link was down or congested.",
    )
    .of_node(),
    Metric::counter(
        "node.infiniband.transmit.wait",
        Cycles,
        &[XMIT_WAIT.only()],
        "Port clock ticks with data to send but no flow-control credit.",
    )
    .of_node(),
    Metric::counter(
        "node.infiniband.symbol.errors",
        Count,
        &[SYMBOL_ERROR.only()],
        "Minor errors of a port's physical lanes.",
    )
    .of_node(),
    Metric::counter(
        "node.infiniband.link.downed",
        Count,
        &[LINK_DOWNED.only()],
        "Times that a port's link went down after a failed recovery.",
    )
    .of_node(),
];
