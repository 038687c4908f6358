//! The network layer of Lustre. Source: `lnet/lnet/router_proc.c` (`proc_lnet_stats`) of Lustre: one line of
//! eleven numbers. Newer versions have the file in debugfs, older ones in `/proc/sys`. Messages are counted
//! in 32 bits and wrap around, bytes in 64.

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::Origin;
use crate::catalogue::text_file::{Form, Row, TextFile};
use crate::series::Unit::{Bytes, Count};

static DEBUGFS: TextFile = TextFile::sys("kernel/debug/lnet/stats", Form::Values).blocking();
static SYSCTL: TextFile = TextFile::proc("sys/lnet/stats", Form::Values).blocking();

const fn word(file: &'static TextFile, word: usize) -> Origin {
    file.word(Row::Only, word)
}

const fn count(name: &'static str, origins: &'static [Origin], help: &'static str) -> Metric {
    Metric::counter(name, Count, origins, help).of_32_bits(1).of_node()
}

const fn bytes(name: &'static str, origins: &'static [Origin], help: &'static str) -> Metric {
    Metric::counter(name, Bytes, origins, help).of_node()
}

/// The node's interfaces together.
pub(crate) static METRICS: &[Metric] = &[
    Metric::gauge(
        "node.lnet.messages",
        Count,
        &[word(&DEBUGFS, 0), word(&SYSCTL, 0)],
        "Messages in progress.",
    )
    .of_node(),
    Metric::gauge(
        "node.lnet.messages.peak",
        Count,
        &[word(&DEBUGFS, 1), word(&SYSCTL, 1)],
        "Most messages in progress at once.",
    )
    .of_node(),
    count("node.lnet.errors", &[word(&DEBUGFS, 2), word(&SYSCTL, 2)], "Errors."),
    count("node.lnet.transmit.messages", &[word(&DEBUGFS, 3), word(&SYSCTL, 3)], "Messages sent."),
    count("node.lnet.receive.messages", &[word(&DEBUGFS, 4), word(&SYSCTL, 4)], "Messages received."),
    count("node.lnet.route.messages", &[word(&DEBUGFS, 5), word(&SYSCTL, 5)], "Messages routed."),
    count("node.lnet.drop.messages", &[word(&DEBUGFS, 6), word(&SYSCTL, 6)], "Messages dropped."),
    bytes("node.lnet.transmit.bytes", &[word(&DEBUGFS, 7), word(&SYSCTL, 7)], "Bytes sent."),
    bytes("node.lnet.receive.bytes", &[word(&DEBUGFS, 8), word(&SYSCTL, 8)], "Bytes received."),
    bytes("node.lnet.route.bytes", &[word(&DEBUGFS, 9), word(&SYSCTL, 9)], "Bytes routed."),
    bytes("node.lnet.drop.bytes", &[word(&DEBUGFS, 10), word(&SYSCTL, 10)], "Bytes dropped."),
];
