//! The other ends of connections.

use std::net::IpAddr;

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    /// A process of this user, by the kernel.
    Unix(u32),
    /// A machine.
    Tcp(IpAddr),
}
