//! Frames: the binary form of rows.
//!
//! A frame is its length, four bytes in little-endian order, and its serialised content. A length is checked
//! before memory is allocated.

use serde::{Deserialize, Serialize};

use super::row_types::RowBlock;
use crate::control::Refusal;
use crate::limits;
use crate::text::Text;
use crate::wire::{DecodeError, envelope};

pub const LENGTH_BYTES: usize = 4;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Frame {
    /// More rows may follow.
    Rows(RowBlock),
    End,
    /// Ends the answer. The session ends as well, unless the query was refused.
    Error(ReadError),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadError {
    /// Text for programs.
    pub code: Text,
    /// Text for the user: a cause and a remedy.
    pub message: Text,
}

impl ReadError {
    pub fn new(code: &str, message: &str) -> Self {
        Self { code: Text::of(code), message: Text::of(message) }
    }
}

impl From<Refusal> for ReadError {
    fn from(refusal: Refusal) -> Self {
        Self { code: Text::of(&refusal.code), message: refusal.message }
    }
}

/// Error of a frame that would be longer than [`limits::READ_FRAME_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a row is longer than a frame of {max} bytes", max = limits::READ_FRAME_BYTES)]
pub struct FrameTooLong;

/// Returns how many bytes follow the length of a frame. Refuses a frame that is empty or too long.
pub const fn frame_length(head: [u8; LENGTH_BYTES]) -> Result<usize, DecodeError> {
    let length = u32::from_le_bytes(head) as usize;
    if length == 0 {
        return Err(DecodeError::Truncated);
    }
    if length > limits::READ_FRAME_BYTES {
        let (found, limit) = (length as u64, limits::READ_FRAME_BYTES as u64);
        return Err(DecodeError::Limit { what: "length of a frame", found, limit });
    }
    Ok(length)
}

impl Frame {
    /// Encodes the frame with its length into `out`, whose old content is lost even on failure.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), FrameTooLong> {
        out.clear();
        out.extend([0; LENGTH_BYTES]);
        envelope::put(out, self);
        let length = out.len() - LENGTH_BYTES;
        if length > limits::READ_FRAME_BYTES {
            return Err(FrameTooLong);
        }
        let length = u32::try_from(length).map_err(|_beyond| FrameTooLong)?;
        if let Some(head) = out.first_chunk_mut() {
            *head = length.to_le_bytes();
        }
        Ok(())
    }

    /// Decodes exactly one frame, without its length.
    pub fn decode(content: &[u8]) -> Result<Self, DecodeError> {
        if content.len() > limits::READ_FRAME_BYTES {
            let (found, limit) = (content.len() as u64, limits::READ_FRAME_BYTES as u64);
            return Err(DecodeError::Limit { what: "length of a frame", found, limit });
        }
        envelope::get_within::<_, { limits::READ_FRAME_MEMORY_BYTES }>(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::{LossRow, SampleRow, SampleWindow};

    fn encoded(frame: &Frame) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes).unwrap();
        let (head, content) = bytes.split_first_chunk().unwrap();
        assert_eq!(frame_length(*head), Ok(content.len()));
        content.to_vec()
    }

    #[test]
    fn frames_round_trip() {
        let samples = (0..1000).map(|number| SampleRow {
            series_id: number,
            time_ns: i64::MAX - number,
            value: f64::from_bits(0x3ff0_0000_0000_0001),
            window: (number % 2 == 0).then_some(SampleWindow {
                count: 3,
                min: -1.5,
                max: 2.5,
                sum: f64::INFINITY,
            }),
        });
        let error = ReadError::new("store", "cannot read the store: it is away; try again");
        let loss = LossRow {
            time_ns: -1,
            node: "n".repeat(300),
            session_id: String::new(),
            job_key: None,
            source: Some("s".to_owned()),
            samples: u64::MAX,
            reason: "r".to_owned(),
            first_time_ns: i64::MIN,
            last_time_ns: 0,
        };
        for frame in [
            Frame::Rows(RowBlock::Samples(samples.collect())),
            Frame::Rows(RowBlock::Losses(vec![loss; 100])),
            Frame::Rows(RowBlock::Rollups(Vec::new())),
            Frame::End,
            Frame::Error(error),
        ] {
            assert_eq!(Frame::decode(&encoded(&frame)).as_ref(), Ok(&frame));
        }
    }

    #[test]
    fn a_row_with_only_small_numbers_is_decoded() {
        // Their full width is far above their encoded length, and counts against the limit of memory.
        let row = SampleRow { series_id: 0, time_ns: 0, value: 0.0, window: None };
        let frame = Frame::Rows(RowBlock::Samples(vec![row; 90_000]));
        assert_eq!(Frame::decode(&encoded(&frame)), Ok(frame));
    }

    #[test]
    fn long_and_damaged_frames_are_refused() {
        assert_eq!(frame_length([0; 4]), Err(DecodeError::Truncated));
        assert!(frame_length([0xff; 4]).is_err());
        let long = Frame::Rows(RowBlock::JobIds(vec!["x".repeat(limits::READ_FRAME_BYTES)]));
        assert_eq!(long.encode(&mut Vec::new()), Err(FrameTooLong));
        let content = encoded(&Frame::Rows(RowBlock::JobIds(vec!["42".to_owned()])));
        for end in 0..content.len() {
            assert!(Frame::decode(&content[..end]).is_err(), "{end} bytes");
        }
        let trailing = [content.as_slice(), &[0]].concat();
        assert_eq!(Frame::decode(&trailing), Err(DecodeError::Trailing));
        // A list that claims to have 2^64 - 1 entries.
        let claim = [&[0, 11, 253][..], &[0xff; 8]].concat();
        assert!(Frame::decode(&claim).is_err());
    }
}
