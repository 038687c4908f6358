//! The messages beside the frames: what the collector answers, and what an agent says out of turn.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::bytes::DecodeError;
use super::control::ControlLine;
use super::dictionary::Entry;
use super::{VERSION, envelope};
use crate::limits;
use crate::series::{Identifier, JobHandle, SessionId};

/// How a message begins, so that it cannot be taken for a frame.
pub const MAGIC: [u8; 3] = *b"PLC";

/// From an agent to its collector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToCollector {
    /// The answer to [`ToAgent::NeedDictionary`]. Long dictionaries come in several messages; frames follow the last.
    Dictionary {
        /// Whose dictionary.
        session: SessionId,
        /// A part of it, in order.
        entries: Vec<Entry>,
    },
    /// Frames that will never come.
    Skipped {
        /// Whose frames.
        session: SessionId,
        /// The first of them.
        first: u64,
        /// The last of them.
        last: u64,
        /// Why they do not come.
        reason: SkipReason,
        /// When the oldest and the newest of the samples were taken, in microseconds since the epoch.
        span_us: (i64, i64),
        /// The samples that they held. Each job and source is named once.
        lost: Vec<Lost>,
    },
    /// The answer to [`ToAgent::Ask`].
    Answered {
        /// Whose answer.
        session: SessionId,
        /// The number that the request had.
        ask: u64,
        /// The answer, as the control socket would give it.
        line: ControlLine,
    },
}

/// Samples of one source that will never come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Whose source it is; none for the node's own.
    pub job: Option<JobHandle>,
    /// The source, under the name that it has in tallies.
    pub source: Identifier,
    /// How many.
    pub samples: u64,
}

/// Why frames do not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SkipReason {
    /// The outbox was full, and the oldest frames made room.
    OutboxFull,
    /// A collector acknowledged them before, and this one does not know of it.
    AlreadyAcknowledged,
    /// The collector refused the frame again and again, or there is no frame that would hold the samples.
    Refused,
    /// They lay in the agent's spool, and are damaged. Nobody knows any more what they held.
    Damaged,
}

/// From the collector to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAgent {
    /// All frames up to `through` are committed to the database, or will never be wanted again.
    Ack {
        /// Whose frames.
        session: SessionId,
        /// The newest of them.
        through: u64,
    },
    /// A frame came out of order: send again, beginning with `from`.
    Resend {
        /// Whose frames.
        session: SessionId,
        /// The first one that is missing.
        from: u64,
    },
    /// A frame speaks of ids that the collector does not know.
    NeedDictionary {
        /// Whose ids.
        session: SessionId,
    },
    /// What came cannot be used, and will be refused again.
    Refused {
        /// Why, for a person to read.
        reason: String,
        /// The versions of the protocol that would be understood, first and last.
        versions: (u8, u8),
        /// The session and the number of the frame, as far as its first bytes can be believed; none where it was no
        /// frame of a version that is understood.
        frame: Option<(SessionId, u64)>,
    },
    /// A request of the control socket's language, which came to the collector and is for the agent to answer.
    Ask {
        /// Whose job it is about.
        session: SessionId,
        /// A number of the collector's choice, which the answer repeats.
        ask: u64,
        /// Who asks, as the collector has checked: a numeric id of the cluster's users, 0 for root.
        uid: u32,
        /// When it takes effect, in microseconds since the epoch; what is past is done at once.
        at_us: i64,
        /// The request.
        line: ControlLine,
    },
}

impl ToCollector {
    /// Dictionary messages that hold `entries`, each within [`limits::MESSAGE_BYTES`].
    pub fn dictionaries(session: SessionId, entries: &[Entry]) -> Vec<Vec<u8>> {
        let message = Self::Dictionary { session, entries: entries.to_vec() }.encode();
        // bincode counts integers at their full width against the limit, at most eight times what they take.
        match entries.split_at_checked(entries.len() / 2) {
            Some((first, second)) if !first.is_empty() && message.len() > limits::MESSAGE_BYTES / 8 => {
                let mut messages = Self::dictionaries(session, first);
                messages.extend(Self::dictionaries(session, second));
                messages
            }
            _ => vec![message],
        }
    }

    /// The message's bytes.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// The message that `bytes` are.
    ///
    /// # Errors
    /// When they are none of this version, or longer than [`limits::MESSAGE_BYTES`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        decode(bytes)
    }

    /// The session of a dictionary or of skipped frames, without decoding the rest; none of an answer.
    ///
    /// # Errors
    /// When the bytes do not begin as such a message, or are too long for one.
    pub fn peek(bytes: &[u8]) -> Result<Option<SessionId>, DecodeError> {
        /// The variant of [`Self::Answered`].
        const ANSWERED: u32 = 2;
        let (variant, session): (u32, SessionId) = envelope::get_first(body(bytes)?)?;
        Ok((variant != ANSWERED).then_some(session))
    }
}

impl ToAgent {
    /// The message's bytes.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// The message that `bytes` are.
    ///
    /// # Errors
    /// When they are none of this version, or longer than [`limits::MESSAGE_BYTES`].
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

/// What follows the head of a message of this version.
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
            ToAgent::Refused { reason: "another version".into(), versions: (1, 1), frame: None },
            ToAgent::Refused { reason: "damaged".into(), versions: (1, 1), frame: Some((session, 9)) },
            ToAgent::Ask { session, ask: 3, uid: u32::MAX, at_us: i64::MIN, line: line("{}") },
        ] {
            assert_eq!(ToAgent::decode(&message.encode()), Ok(message));
        }
    }

    fn line(text: &str) -> ControlLine {
        text.try_into().unwrap()
    }

    #[test]
    fn an_answer_as_long_as_may_be_round_trips_and_a_longer_one_is_refused() {
        let long = "x".repeat(limits::CONTROL_LINE_BYTES);
        let message = ToCollector::Answered { session: SessionId(7), ask: 9, line: line(&long) };
        let mut bytes = message.encode();
        assert_eq!(ToCollector::decode(&bytes), Ok(message));
        // The length is the marker of a 32-bit number and the number, in front of the text.
        let length = bytes.len() - long.len() - 4;
        bytes[length..length + 4].copy_from_slice(&u32::try_from(long.len() + 1).unwrap().to_le_bytes());
        bytes.push(b'x');
        assert_eq!(ToCollector::decode(&bytes), Err(DecodeError::Serialised));
    }

    #[test]
    fn the_session_is_found_without_the_rest() {
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
        let answered = ToCollector::Answered { session, ask: 1, line: line("{}") };
        assert_eq!(ToCollector::peek(&answered.encode()), Ok(None));
        assert_eq!(ToCollector::peek(b"PLC\x02\x00\x01"), Err(DecodeError::Version { found: 2 }));
    }

    #[test]
    fn a_long_dictionary_is_divided() {
        let shape = |id| {
            let series = (0..2000).map(|series| SeriesId(1_000_000 + series)).collect();
            Entry::Shape(ShapeId(id), ShapeDescriptor { source: "a".try_into().unwrap(), series })
        };
        let entries: Vec<Entry> = (0..100).map(shape).collect();
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
    fn another_version_is_named() {
        let mut bytes = ToAgent::NeedDictionary { session: SessionId(1) }.encode();
        bytes[3] = 9;
        assert_eq!(ToAgent::decode(&bytes), Err(DecodeError::Version { found: 9 }));
        assert_eq!(ToAgent::decode(b"GET / HTTP/1.1"), Err(DecodeError::Magic));
        assert_eq!(ToAgent::decode(b"PL"), Err(DecodeError::Truncated));
    }

    #[test]
    fn a_length_that_lies_takes_no_memory() {
        // A `Refused` whose text claims 2^40 bytes.
        let mut bytes = b"PLC\x01\x03".to_vec();
        bytes.extend_from_slice(&[253, 0, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(ToAgent::decode(&bytes), Err(DecodeError::Serialised));
    }
}
