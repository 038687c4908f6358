//! Disks and partitions of the node. Source: `Documentation/admin-guide/iostats.rst` of Linux. Times are
//! shown with 32 bits (`diskstats_show`, block/genhd.c).

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::Origin;
use crate::catalogue::text_file::{Cell, Field, Form, Row, Scale, TextFile};
use crate::series::Unit::{Count, Nanoseconds, Sectors};

static DISKSTATS: TextFile = TextFile::proc("diskstats", Form::KeyedAt(2));

/// Nanoseconds in a millisecond.
const MS_NS: u64 = 1_000_000;

/// Creates the origin of a column of each line.
const fn column(word: usize, factor: u64) -> Origin {
    let row = Row::Each { label: "device", prefix: "", numeric: false };
    Origin::Text {
        file: &DISKSTATS,
        field: Field { row, cell: Cell::Word(word), scale: Scale::Times(factor) },
    }
}

/// The node's disks.
pub(crate) static METRICS: &[Metric] = &[
    Metric::counter(
        "node.disk.read.operations",
        Count,
        &[column(3, 1)],
        "Reads completed, of each disk and partition.",
    )
    .of_node(),
    Metric::counter(
        "node.disk.read.merged",
        Count,
        &[column(4, 1)],
        "Reads merged with others, of each disk and partition.",
    )
    .of_node(),
    Metric::counter(
        "node.disk.read.sectors",
        Sectors,
        &[column(5, 1)],
        "Sectors read, of each disk and partition.",
    )
    .of_node(),
    Metric::counter(
        "node.disk.read.time",
        Nanoseconds,
        &[column(6, MS_NS)],
        "Time of reads, of each disk and partition.",
    )
    .of_32_bits(MS_NS)
    .of_node(),
    Metric::counter(
        "node.disk.write.operations",
        Count,
        &[column(7, 1)],
        "Writes completed, of each disk and partition.",
    )
    .of_node(),
    Metric::counter(
        "node.disk.write.merged",
        Count,
        &[column(8, 1)],
        "Writes merged with others, of each disk and partition.",
    )
    .of_node(),
    Metric::counter(
        "node.disk.write.sectors",
        Sectors,
        &[column(9, 1)],
        "Sectors written, of each disk and partition.",
    )
    .of_node(),
    Metric::counter(
        "node.disk.write.time",
        Nanoseconds,
        &[column(10, MS_NS)],
        "Time of writes, of each disk and partition.",
    )
    .of_32_bits(MS_NS)
    .of_node(),
    Metric::gauge(
        "node.disk.in_flight",
        Count,
        &[column(11, 1)],
        "Operations in progress, of each disk and partition.",
    )
    .of_node(),
    Metric::counter(
        "node.disk.busy.time",
        Nanoseconds,
        &[column(12, MS_NS)],
        "Time with operations in progress, of each disk and partition.",
    )
    .of_32_bits(MS_NS)
    .of_node(),
    Metric::counter(
        "node.disk.weighted.time",
        Nanoseconds,
        &[column(13, MS_NS)],
        "Time of all operations together, of each disk and partition.",
    )
    .of_32_bits(MS_NS)
    .of_node(),
    Metric::counter(
        "node.disk.discard.operations",
        Count,
        &[column(14, 1)],
        "Discards completed, of each disk and partition.",
    )
    .of_node(),
    Metric::counter(
        "node.disk.discard.merged",
        Count,
        &[column(15, 1)],
        "Discards merged with others, of each disk and partition.",
    )
    .of_node(),
    Metric::counter(
        "node.disk.discard.sectors",
        Sectors,
        &[column(16, 1)],
        "Sectors discarded, of each disk and partition.",
    )
    .of_node(),
    Metric::counter(
        "node.disk.discard.time",
        Nanoseconds,
        &[column(17, MS_NS)],
        "Time of discards, of each disk and partition.",
    )
    .of_32_bits(MS_NS)
    .of_node(),
    Metric::counter(
        "node.disk.flush.operations",
        Count,
        &[column(18, 1)],
        "Flushes completed, of each disk and partition.",
    )
    .of_node(),
    Metric::counter(
        "node.disk.flush.time",
        Nanoseconds,
        &[column(19, MS_NS)],
        "Time of flushes, of each disk and partition.",
    )
    .of_32_bits(MS_NS)
    .of_node(),
];
