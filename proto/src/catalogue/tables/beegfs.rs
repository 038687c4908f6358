//! File systems of BeeGFS. Source: `beegfs-ctl --clientstats` of BeeGFS 7 (`ModeClientStats.cpp`).

use crate::catalogue::metric::Metric;
use crate::catalogue::origin::Origin;
use crate::series::Unit::{self, Bytes, Count};

const fn client_stats(field: &'static str, place: &'static str) -> Origin {
    Origin::source("beegfs", field, place)
}

const fn counter(name: &'static str, unit: Unit, origins: &'static [Origin], help: &'static str) -> Metric {
    Metric::counter(name, unit, origins, help).of_node()
}

/// The node's mounts.
pub(crate) static METRICS: &[Metric] = &[
    counter(
        "node.beegfs.read.bytes",
        Bytes,
        &[client_stats("read_bytes", "`beegfs-ctl --clientstats` `B-rd` of the storage servers")],
        "Bytes that the storage servers read for this node, of each file system; BeeGFS 7 prints six digits.",
    ),
    counter(
        "node.beegfs.read.operations",
        Count,
        &[client_stats("reads", "`beegfs-ctl --clientstats` `ops-rd` of the storage servers")],
        "Reads of the storage servers for this node, of each file system.",
    ),
    counter(
        "node.beegfs.write.bytes",
        Bytes,
        &[client_stats("write_bytes", "`beegfs-ctl --clientstats` `B-wr` of the storage servers")],
        "Bytes that the storage servers wrote for this node, of each file system; BeeGFS 7 prints six digits.",
    ),
    counter(
        "node.beegfs.write.operations",
        Count,
        &[client_stats("writes", "`beegfs-ctl --clientstats` `ops-wr` of the storage servers")],
        "Writes of the storage servers for this node, of each file system.",
    ),
    counter(
        "node.beegfs.storage.operations",
        Count,
        &[client_stats("storage_operations", "`beegfs-ctl --clientstats` of the storage servers")],
        "Other operations of the storage servers for this node, of each file system, by operation.",
    ),
    counter(
        "node.beegfs.metadata.operations",
        Count,
        &[client_stats("metadata_operations", "`beegfs-ctl --clientstats` of the metadata servers")],
        "Operations of the metadata servers for this node, of each file system, by operation.",
    ),
];
