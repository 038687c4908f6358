//! From batches to acknowledged frames: the outbox, and the thread that owns the socket.

pub mod outbox;
pub mod sender;
