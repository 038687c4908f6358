//! Network interfaces of the node. Source: `/proc/net/dev`.

use crate::catalogue::metric::Metric;
use crate::catalogue::text_file::{Form, Row, TextFile};
use crate::series::Unit::{Bytes, Count};

static NETWORK: TextFile = TextFile::proc("net/dev", Form::Keyed);

const EACH_INTERFACE: Row = Row::Each { label: "interface", prefix: "", numeric: false };

/// The node's interfaces.
pub(crate) static METRICS: &[Metric] = &[
    Metric::counter(
        "node.network.receive.bytes",
        Bytes,
        &[NETWORK.word(EACH_INTERFACE, 1)],
        "Bytes received, of each interface.",
    )
    .of_node(),
    Metric::counter(
        "node.network.receive.packets",
        Count,
        &[NETWORK.word(EACH_INTERFACE, 2)],
        "Packets received, of each interface.",
    )
    .of_node(),
    Metric::counter(
        "node.network.receive.errors",
        Count,
        &[NETWORK.word(EACH_INTERFACE, 3)],
        "Errors while receiving, of each interface.",
    )
    .of_node(),
    Metric::counter(
        "node.network.receive.dropped",
        Count,
        &[NETWORK.word(EACH_INTERFACE, 4)],
        "Dropped while receiving, of each interface.",
    )
    .of_node(),
    Metric::counter(
        "node.network.receive.fifo_errors",
        Count,
        &[NETWORK.word(EACH_INTERFACE, 5)],
        "Fifo errors while receiving, of each interface.",
    )
    .of_node(),
    Metric::counter(
        "node.network.receive.frame_errors",
        Count,
        &[NETWORK.word(EACH_INTERFACE, 6)],
        "Frame errors while receiving, of each interface.",
    )
    .of_node(),
    Metric::counter(
        "node.network.receive.compressed",
        Count,
        &[NETWORK.word(EACH_INTERFACE, 7)],
        "Compressed while receiving, of each interface.",
    )
    .of_node(),
    Metric::counter(
        "node.network.receive.multicast",
        Count,
        &[NETWORK.word(EACH_INTERFACE, 8)],
        "Multicast packets received, of each interface.",
    )
    .of_node(),
    Metric::counter(
        "node.network.transmit.bytes",
        Bytes,
        &[NETWORK.word(EACH_INTERFACE, 9)],
        "Bytes transmitted, of each interface.",
    )
    .of_node(),
    Metric::counter(
        "node.network.transmit.packets",
        Count,
        &[NETWORK.word(EACH_INTERFACE, 10)],
        "Packets transmitted, of each interface.",
    )
    .of_node(),
    Metric::counter(
        "node.network.transmit.errors",
        Count,
        &[NETWORK.word(EACH_INTERFACE, 11)],
        "Errors while transmitting, of each interface.",
    )
    .of_node(),
    Metric::counter(
        "node.network.transmit.dropped",
        Count,
        &[NETWORK.word(EACH_INTERFACE, 12)],
        "Dropped while transmitting, of each interface.",
    )
    .of_node(),
    Metric::counter(
        "node.network.transmit.fifo_errors",
        Count,
        &[NETWORK.word(EACH_INTERFACE, 13)],
        "Fifo errors while transmitting, of each interface.",
    )
    .of_node(),
    Metric::counter(
        "node.network.transmit.collisions",
        Count,
        &[NETWORK.word(EACH_INTERFACE, 14)],
        "Collisions, of each interface.",
    )
    .of_node(),
    Metric::counter(
        "node.network.transmit.carrier_errors",
        Count,
        &[NETWORK.word(EACH_INTERFACE, 15)],
        "Carrier errors while transmitting, of each interface.",
    )
    .of_node(),
    Metric::counter(
        "node.network.transmit.compressed",
        Count,
        &[NETWORK.word(EACH_INTERFACE, 16)],
        "Compressed while transmitting, of each interface.",
    )
    .of_node(),
];
