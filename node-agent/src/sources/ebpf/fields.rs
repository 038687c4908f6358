//! The names by which the catalogue refers to the kind and its quantities.

/// The kind's name in the catalogue.
pub(super) const KIND: &str = "ebpf";

/// The counters of the network, in the order in which the programs have them.
pub(super) const NETWORK: [&str; 4] =
    ["receive_bytes", "receive_packets", "transmit_bytes", "transmit_packets"];

/// The time that processes waited for a CPU.
pub(super) const WAIT_TIME: &str = "wait_time";

/// The number of waits.
pub(super) const WAIT_COUNT: &str = "wait_count";

/// The number of waits up to a limit.
pub(super) const WAIT_BUCKET: &str = "wait_bucket";

/// The quantities of operations on files, each of an operation.
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

/// The quantities of the run queues.
pub(super) const RUNQUEUE: [&str; 3] = [WAIT_TIME, WAIT_COUNT, WAIT_BUCKET];
