//! Messages besides frames, in both directions.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::bytes::DecodeError;
use super::control::ControlLine;
use super::dictionary::Entry;
use super::{VERSION, envelope};
use crate::limits;
use crate::series::{Identifier, JobHandle, SessionId};

/// First bytes of a message, which distinguish it from a frame.
pub const MAGIC: [u8; 3] = *b"PLC";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToCollector {
    /// Answer to [`ToAgent::NeedDictionary`]. A long dictionary takes several messages, which precede further
    /// frames.
    Dictionary { session: SessionId, entries: Vec<Entry> },
    /// Frames that will never be sent.
    Skipped {
        session: SessionId,
        first: u64,
        last: u64,
        reason: SkipReason,
        /// Times of the oldest and the newest lost sample, in microseconds since the epoch.
        span_us: (i64, i64),
        /// One entry per job and source.
        lost: Vec<Lost>,
    },
    /// Answer to [`ToAgent::Request`].
    Answer {
        session: SessionId,
        /// Number of the request; 0 for an answer that the agent gives unasked.
        request: u64,
        /// Answer in the form of the control socket.
        line: ControlLine,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// None for the node's own sources.
    pub job: Option<JobHandle>,
    /// Name of the source in tallies.
    pub source: Identifier,
    pub samples: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SkipReason {
    /// The outbox was full, and the oldest unsent frames were dropped.
    OutboxFull,
    /// They were acknowledged before, by a collector or store that has lost its state.
    AlreadyAcknowledged,
    /// The collector refused the frame repeatedly, or no frame can hold the samples.
    Refused,
    /// They were damaged in the agent's spool; their contents are unknown.
    Damaged,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAgent {
    /// All frames up to `through` are committed to the database, or are no longer needed.
    Ack {
        session: SessionId,
        /// Number of the newest frame.
        through: u64,
    },
    /// A frame arrived out of order: the agent must resend all frames, beginning with `from`.
    Resend {
        session: SessionId,
        /// Number of the first missing frame.
        from: u64,
    },
    /// A frame refers to ids that the collector does not know.
    NeedDictionary { session: SessionId },
    /// A frame or message is refused, and would be refused again.
    Refused {
        reason: String,
        /// Session and number of the frame, as its first bytes state them; none if it is not a frame of this
        /// version.
        frame: Option<(SessionId, u64)>,
    },
    /// Control request for a job of this agent.
    Request {
        session: SessionId,
        /// Number that the collector gave the request, which the answer repeats.
        request: u64,
        /// Numeric id of the user, as the collector has authenticated it; 0 for root.
        uid: u32,
        /// Time at which it takes effect, in microseconds since the epoch; a past time means immediately.
        at_us: i64,
        /// Request in the form of the control socket.
        line: ControlLine,
    },
}

impl ToCollector {
    /// Encodes dictionary messages with `entries`, each within [`limits::MESSAGE_BYTES`].
    pub fn dictionaries(session: SessionId, entries: &[Entry]) -> Vec<Vec<u8>> {
        /// Entries whose message is usually short enough, so that few are encoded twice.
        const ENTRIES: usize = 1024;
        let parts = entries.chunks(ENTRIES).flat_map(|part| Self::divided(session, part));
        parts.collect()
    }

    fn divided(session: SessionId, entries: &[Entry]) -> Vec<Vec<u8>> {
        let message = Self::Dictionary { session, entries: entries.to_vec() }.encode();
        // bincode counts integers at their full width against the limit, at most eight times their encoded
        // length.
        match entries.split_at_checked(entries.len() / 2) {
            Some((first, second)) if !first.is_empty() && message.len() > limits::MESSAGE_BYTES / 8 => {
                let mut messages = Self::divided(session, first);
                messages.extend(Self::divided(session, second));
                messages
            }
            _ => vec![message],
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Decodes a message of this version, of at most [`limits::MESSAGE_BYTES`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        decode(bytes)
    }

    /// Returns the session of a dictionary or of skipped frames, without decoding the rest; none for an
    /// answer.
    pub fn peek(bytes: &[u8]) -> Result<Option<SessionId>, DecodeError> {
        const ANSWER: u32 = 2;
        let (variant, session): (u32, SessionId) = envelope::get_first(body(bytes)?)?;
        Ok((variant != ANSWER).then_some(session))
    }
}

impl ToAgent {
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Decodes a message of this version, of at most [`limits::MESSAGE_BYTES`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        decode(bytes)
    }
}

fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.push(VERSION);
    envelope::put(&mut out, message);
    out
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    envelope::get(body(bytes)?)
}

/// Returns the bytes after the head of a message of this version.
fn body(bytes: &[u8]) -> Result<&[u8], DecodeError> {
    if bytes.len() > limits::MESSAGE_BYTES {
        return Err(DecodeError::Limit {
            what: "bytes in a message",
            found: bytes.len() as u64,
            limit: limits::MESSAGE_BYTES as u64,
        });
    }
    let (magic, rest) = bytes.split_first_chunk::<3>().ok_or(DecodeError::Truncated)?;
    if *magic != MAGIC {
        return Err(DecodeError::Magic);
    }
    match rest.split_first() {
        None => Err(DecodeError::Truncated),
        Some((&VERSION, body)) => Ok(body),
        Some((&found, _)) => Err(DecodeError::Version { found }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::{SeriesId, ShapeDescriptor, ShapeId};

    #[test]
    fn messages_round_trip() {
        let session = SessionId(7);
        for message in [
            ToAgent::Ack { session, through: u64::MAX },
            ToAgent::Resend { session, from: 0 },
            ToAgent::NeedDictionary { session },
            ToAgent::Refused { reason: "another version".into(), frame: None },
            ToAgent::Refused { reason: "damaged".into(), frame: Some((session, 9)) },
            ToAgent::Request { session, request: 3, uid: u32::MAX, at_us: i64::MIN, line: line("{}") },
        ] {
            assert_eq!(ToAgent::decode(&message.encode()), Ok(message));
        }
    }

    fn line(text: &str) -> ControlLine {
        text.try_into().unwrap()
    }

    #[test]
    fn refuses_answers_beyond_the_limit() {
        let long = "x".repeat(limits::CONTROL_LINE_BYTES);
        let message = ToCollector::Answer { session: SessionId(7), request: 9, line: line(&long) };
        let mut bytes = message.encode();
        assert_eq!(ToCollector::decode(&bytes), Ok(message));
        // The text is preceded by its length: the marker of a 32-bit number and the number.
        let length = bytes.len() - long.len() - 4;
        bytes[length..length + 4].copy_from_slice(&u32::try_from(long.len() + 1).unwrap().to_le_bytes());
        bytes.push(b'x');
        assert_eq!(ToCollector::decode(&bytes), Err(DecodeError::Serialised));
    }

    #[test]
    fn peek_finds_the_session() {
        let session = SessionId(0x1234_5678_9abc);
        let skipped = ToCollector::Skipped {
            session,
            first: 1,
            last: 2,
            reason: SkipReason::OutboxFull,
            span_us: (0, 0),
            lost: Vec::new(),
        };
        for message in [ToCollector::Dictionary { session, entries: Vec::new() }, skipped] {
            let bytes = message.encode();
            assert_eq!(ToCollector::peek(&bytes), Ok(Some(session)));
            assert_eq!(ToCollector::peek(&bytes[..5]), Err(DecodeError::Serialised));
        }
        let answered = ToCollector::Answer { session, request: 1, line: line("{}") };
        assert_eq!(ToCollector::peek(&answered.encode()), Ok(None));
        assert_eq!(ToCollector::peek(b"PLC\x02\x00\x01"), Err(DecodeError::Version { found: 2 }));
    }

    #[test]
    fn divides_a_long_dictionary() {
        let entries: Vec<Entry> = (0..100)
            .map(|id| {
                let series = (0..2000).map(|series| SeriesId(1_000_000 + series)).collect();
                Entry::Shape(
                    ShapeId(id),
                    ShapeDescriptor { source: "a".try_into().unwrap(), inner_period: None, series },
                )
            })
            .collect();
        let messages = ToCollector::dictionaries(SessionId(1), &entries);
        assert!(messages.len() > 1);
        let mut found = Vec::new();
        for message in messages {
            let Ok(ToCollector::Dictionary { entries, .. }) = ToCollector::decode(&message) else {
                panic!("refused")
            };
            found.extend(entries);
        }
        assert_eq!(found, entries);
    }

    #[test]
    fn names_the_version_that_it_refuses() {
        let mut bytes = ToAgent::NeedDictionary { session: SessionId(1) }.encode();
        bytes[3] = 9;
        assert_eq!(ToAgent::decode(&bytes), Err(DecodeError::Version { found: 9 }));
        assert_eq!(ToAgent::decode(b"GET / HTTP/1.1"), Err(DecodeError::Magic));
        assert_eq!(ToAgent::decode(b"PL"), Err(DecodeError::Truncated));
    }

    #[test]
    fn a_false_length_takes_no_memory() {
        // A `Refused` whose text has a length field of 2^40 bytes.
        let mut bytes = b"PLC\x01\x03".to_vec();
        bytes.extend_from_slice(&[253, 0, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(ToAgent::decode(&bytes), Err(DecodeError::Serialised));
    }
}
