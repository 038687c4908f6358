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

/// The version of the protocol. `docs/reference/protocol.md` lists all versions with what each changed.
pub const VERSION: u8 = 2;
