//! The rules by which frames are accepted: each once, in order, and with known ids. Pure: no I/O and no clock.
//!
//! The state of a session is a cache. It begins where the store ends, and its dictionary can be requested again, so that any
//! session may be forgotten when all its accepted frames are committed.

mod cost;
mod dictionary;
mod memory;
mod resolve;
mod session;
mod sessions;
#[cfg(test)]
mod tests;
mod times;
mod verdict;

pub use self::sessions::{Ingest, session_of};
pub(crate) use self::times::micros;
pub use self::times::{OutOfRangePolicy, TimeRange};
pub use self::verdict::Verdict;
