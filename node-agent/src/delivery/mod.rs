//! Delivery, from batches to acknowledged frames: the outbox, the agent's side of the protocol, and the thread that
//! owns the socket.

pub(crate) mod connection;
mod frame_builder;
pub mod frame_summary;
mod loss_ledger;
mod notices;
mod outage;
pub mod outbox;
pub(crate) mod remote_requests;
pub(crate) mod sender;
pub mod session;
pub mod spool;
pub(crate) mod spool_manager;
pub mod tap;
