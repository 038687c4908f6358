//! The traffic of a job's nodes with networks and file systems.

use serde::Serialize;

/// The traffic with a network or a kind of file system, on the nodes that the job had alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Traffic {
    /// Its name: `infiniband`, `slingshot`, `lustre`, `nfs`, `gpfs`, `beegfs`.
    pub name: &'static str,
    /// True for a network, false for a kind of file system.
    pub is_network: bool,
    /// Bytes received by the nodes, or read, from the start of the job to its end.
    pub received_bytes: f64,
    /// Bytes sent by the nodes, or written.
    pub sent_bytes: f64,
    /// The number of nodes where it is known.
    pub nodes: u64,
}
