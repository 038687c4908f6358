//! From batches to acknowledged frames: the outbox, the agent's side of the protocol, and the thread that owns the socket.

pub(crate) mod asks;
mod book;
pub(crate) mod connection;
pub mod content;
pub(crate) mod keeper;
pub mod link;
mod outage;
pub mod outbox;
mod packer;
pub(crate) mod sender;
pub mod spool;
pub mod tap;
