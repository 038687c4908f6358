//! Request that begins a session of reading, and its answer.

use serde::{Deserialize, Serialize};

use super::fields::Fields;
use super::refusal::Refusal;

const READ: &str = "read";

const EXAMPLE: &str = r#"{"verb":"read"}"#;

/// Request of a session of reading: `{"verb": "read"}`. The collector executes it itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadRequest {}

impl ReadRequest {
    pub const LINE: &str = EXAMPLE;

    /// Returns none if the line has another verb.
    pub fn parse(line: &[u8]) -> Option<Result<Self, Refusal>> {
        let mut fields = Fields::parse(line).ok()?;
        (fields.take_verb().ok()? == READ).then(|| fields.into_request(EXAMPLE))
    }
}

/// What a session may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadAccess {
    Own,
    /// All jobs, and the metrics of nodes.
    All,
}

/// Answer to [`ReadRequest`]: queries may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadSession {
    pub version: u32,
    pub access: ReadAccess,
}

impl ReadSession {
    /// Version of the queries and their rows in [`crate::read`].
    pub const VERSION: u32 = 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_begins_with_the_verb_alone() {
        assert_eq!(ReadRequest::parse(ReadRequest::LINE.as_bytes()), Some(Ok(ReadRequest {})));
        for other in [&b"read"[..], b"{}", br#"{"verb":"plan","job":"7"}"#, br#"{"query":"read"}"#] {
            assert_eq!(ReadRequest::parse(other), None);
        }
        let refusal = ReadRequest::parse(br#"{"verb":"read","job":"7"}"#).unwrap().unwrap_err();
        assert_eq!(refusal.field.as_deref(), Some("job"));
    }
}
