//! Tests of the whole sink with a receiver that answers as ordered.

mod delivery;
pub(in crate::sinks) mod fixture;
pub(in crate::sinks) mod receiver;
mod restarts;
mod selection;
pub(in crate::sinks) mod server;
mod tls;
