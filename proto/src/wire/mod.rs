//! The bytes on the wire: frames with the project's own column codec, and serialised messages.
//!
//! `docs/reference/protocol.md` describes every byte.

mod bytes;
mod column;
pub mod control;
pub mod dictionary;
pub(crate) mod envelope;
pub mod frame;
pub mod message;

pub use bytes::DecodeError;

/// The versions of the protocol: 1, the first.
pub const VERSION: u8 = 1;
