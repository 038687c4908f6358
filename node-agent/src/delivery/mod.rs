//! From batches to acknowledged frames: the outbox, and the thread that owns the socket.

pub(crate) mod asks;
pub(crate) mod connection;
pub mod outbox;
pub mod sender;
