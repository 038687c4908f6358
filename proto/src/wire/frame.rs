//! A frame: the encoded samples of one flush. Exactly one ZeroMQ message.

mod decode;
mod encode;
mod format;
mod ledger;
mod rows;
#[cfg(test)]
mod tests;

use super::bytes::DecodeError;

pub use self::encode::Encoder;
pub use self::format::{Block, BlockHistogram, BlockWindows, Extras, Frame, MAGIC, Oversized};

impl Frame {
    /// Decodes exactly one frame of this version. Takes time and memory proportional to the length of the
    /// bytes, and at most to [`crate::limits::FRAME_VALUES`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        decode::frame(bytes)
    }
}
