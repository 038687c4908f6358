//! The space of mounted file systems. Source: statvfs(3).

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::Origin;
use crate::series::Unit::{Bytes, Count};

const fn statvfs(field: &'static str, place: &'static str) -> Origin {
    Origin::source("filesystem", field, place)
}

/// The node's file systems.
pub(crate) static METRICS: &[Metric] = &[
    Metric::gauge(
        "node.filesystem.size",
        Bytes,
        &[statvfs("size", "`statvfs` `f_blocks` each mount")],
        "Size of each file system.",
    )
    .of_node(),
    Metric::gauge(
        "node.filesystem.free",
        Bytes,
        &[statvfs("free", "`statvfs` `f_bfree` each mount")],
        "Free space of each file system, the part reserved for root included.",
    )
    .of_node(),
    Metric::gauge(
        "node.filesystem.available",
        Bytes,
        &[statvfs("available", "`statvfs` `f_bavail` each mount")],
        "Free space of each file system for ordinary users.",
    )
    .of_node(),
    Metric::gauge(
        "node.filesystem.files",
        Count,
        &[statvfs("files", "`statvfs` `f_files` each mount")],
        "Inodes of each file system; absent where it makes them as needed.",
    )
    .of_node(),
    Metric::gauge(
        "node.filesystem.files.free",
        Count,
        &[statvfs("files_free", "`statvfs` `f_ffree` each mount")],
        "Free inodes of each file system; absent where it makes them as needed.",
    )
    .of_node(),
];
