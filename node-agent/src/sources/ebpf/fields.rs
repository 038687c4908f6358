//! The names by which the catalogue refers to the kind and its quantities.

/// The kind's name in the catalogue.
pub(super) const KIND: &str = "ebpf";

/// The counters of the network, in the order in which the programs have them.
pub(super) const NETWORK: [&str; 4] =
    ["receive_bytes", "receive_packets", "transmit_bytes", "transmit_packets"];
