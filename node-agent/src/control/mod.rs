//! The control socket: one JSON object per line in each direction, and one answer per request.
//!
//! The kernel identifies the client. Root, the agent's own user and the configured administrators may use
//! every verb. Other users may see their own jobs, put marks and values into their data, and grant themselves
//! leases.

mod client_quota;
mod context;
mod lines;
pub(crate) mod remote;
mod request_handler;
mod server;
mod socket_listener;
mod verbs;
mod watch_stream;

use polymeter_proto::control::{Refusal, Request};

pub(crate) use self::context::Context;
pub(crate) use self::server::serve;
pub(crate) use self::socket_listener::Listener;
pub use self::socket_listener::beside;
use crate::principal::Principal;

/// Parses a line and its fields, without executing it. A refusal names the field at fault.
pub fn check(line: &[u8]) -> Result<(), Refusal> {
    verbs::check(Request::parse(line)?, Principal { uid: u32::MAX, administrator: false })
}
