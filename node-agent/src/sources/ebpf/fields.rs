//! Names by which the catalogue refers to the kind and its quantities.

pub(super) const KIND: &str = "ebpf";

/// Counters of the network, in the order in which the programs have them.
pub(super) const NETWORK: [&str; 4] =
    ["receive_bytes", "receive_packets", "transmit_bytes", "transmit_packets"];

pub(super) const WAIT_TIME: &str = "wait_time";

pub(super) const WAIT_COUNT: &str = "wait_count";

pub(super) const WAIT_BUCKET: &str = "wait_bucket";

pub(super) const VFS: [&str; 14] = [
    "read_bytes",
    "read_count",
    "read_time",
    "read_bucket",
    "write_bytes",
    "write_count",
    "write_time",
    "write_bucket",
    "open_count",
    "open_time",
    "open_bucket",
    "sync_count",
    "sync_time",
    "sync_bucket",
];

pub(super) const RUNQUEUE: [&str; 3] = [WAIT_TIME, WAIT_COUNT, WAIT_BUCKET];
