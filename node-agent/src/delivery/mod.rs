//! Delivery, from batches to acknowledged frames: the outbox, the agent's side of the protocol, and the
//! thread that owns the socket.

mod collector_choice;
pub(crate) mod collectors;
pub(crate) mod connection;
mod failover;
mod frame_builder;
pub mod frame_summary;
pub mod handshake;
mod loss_ledger;
pub(crate) mod mix;
mod name_service;
mod notices;
mod outage;
pub mod outbox;
pub(crate) mod remote_requests;
pub mod ring;
pub(crate) mod sender;
pub mod session;
pub mod spool;
pub(crate) mod spool_manager;
mod stack_intervals;
pub mod tap;
