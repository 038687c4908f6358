//! File systems of GPFS (IBM Storage Scale). Source: "mmpmon command" of its documentation, request
//! `fs_io_s`.

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::Origin;
use crate::series::Unit::{self, Bytes, Count};

const fn fs_io_s(field: &'static str, place: &'static str) -> Origin {
    Origin::source("gpfs", field, place)
}

const fn counter(name: &'static str, unit: Unit, origins: &'static [Origin], help: &'static str) -> Metric {
    Metric::counter(name, unit, origins, help).of_node()
}

/// The node's mounts.
pub(crate) static METRICS: &[Metric] = &[
    counter(
        "node.gpfs.read.bytes",
        Bytes,
        &[fs_io_s("read_bytes", "`mmpmon` `fs_io_s` `_br_`")],
        "Bytes that applications read, of each file system.",
    ),
    counter(
        "node.gpfs.write.bytes",
        Bytes,
        &[fs_io_s("write_bytes", "`mmpmon` `fs_io_s` `_bw_`")],
        "Bytes that applications wrote, of each file system.",
    ),
    counter(
        "node.gpfs.opens",
        Count,
        &[fs_io_s("opens", "`mmpmon` `fs_io_s` `_oc_`")],
        "Files opened, of each file system.",
    ),
    counter(
        "node.gpfs.closes",
        Count,
        &[fs_io_s("closes", "`mmpmon` `fs_io_s` `_cc_`")],
        "Files closed, of each file system.",
    ),
    counter(
        "node.gpfs.reads",
        Count,
        &[fs_io_s("reads", "`mmpmon` `fs_io_s` `_rdc_`")],
        "Reads by applications, of each file system.",
    ),
    counter(
        "node.gpfs.writes",
        Count,
        &[fs_io_s("writes", "`mmpmon` `fs_io_s` `_wc_`")],
        "Writes by applications, of each file system.",
    ),
    counter(
        "node.gpfs.readdirs",
        Count,
        &[fs_io_s("readdirs", "`mmpmon` `fs_io_s` `_dir_`")],
        "Directories read, of each file system.",
    ),
    counter(
        "node.gpfs.inode_updates",
        Count,
        &[fs_io_s("inode_updates", "`mmpmon` `fs_io_s` `_iu_`")],
        "Updates of inodes, of each file system.",
    ),
];
