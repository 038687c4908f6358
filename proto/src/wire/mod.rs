//! Wire format: frames with the column codec of this project, and serialised messages.
//!
//! `docs/reference/protocol.md` describes every byte.

mod bytes;
mod column;
pub mod control;
pub mod dictionary;
pub(crate) mod envelope;
pub mod frame;
pub mod message;
mod summaries;

pub use bytes::DecodeError;

pub const VERSION: u8 = 1;
