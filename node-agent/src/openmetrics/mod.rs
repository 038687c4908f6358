//! Page of the newest values, which Prometheus and its relatives read at `/metrics`.
//!
//! A thread of its own formats the values that the tap keeps, at most some times a second. Connections,
//! requests and their times are bounded.

mod entrance;
mod page;
mod server;

pub use self::entrance::EntranceError;
pub(crate) use self::entrance::{Entrance, read_secrets};
pub(crate) use self::server::Server;
