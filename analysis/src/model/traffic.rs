//! Traffic of a job's nodes with networks and file systems.

use serde::Serialize;

/// Traffic with a network or a kind of file system, on the nodes that the job had alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Traffic {
    /// `infiniband`, `slingshot`, `lustre`, `nfs`, `gpfs` or `beegfs`.
    pub name: &'static str,
    /// False for a kind of file system.
    pub is_network: bool,
    /// Received by the nodes, or read, from the start of the job to its end.
    pub received_bytes: f64,
    /// Sent by the nodes, or written.
    pub sent_bytes: f64,
    pub nodes: u64,
}
