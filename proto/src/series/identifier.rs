//! Names of nodes, jobs, clusters and users.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::limits;
use crate::text::{Unprintable, describe, escape, is_blank, shorten};

/// Why a text is not a valid name of a node, job, cluster or user, or not a valid label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidIdentifier {
    #[error("it is empty")]
    Empty,
    #[error("it is blank")]
    Blank,
    #[error("it has more than {limit_bytes} bytes")]
    TooLong { limit_bytes: usize },
    #[error("it contains {}", describe(*.0))]
    Character(char),
    #[error("it has more than {} labels", limits::LABELS)]
    TooManyLabels,
    #[error("it has the same label twice")]
    RepeatedLabel,
}

pub(crate) fn check_text(text: &str, limit_bytes: usize) -> Result<(), InvalidIdentifier> {
    if text.is_empty() {
        return Err(InvalidIdentifier::Empty);
    }
    if text.len() > limit_bytes {
        return Err(InvalidIdentifier::TooLong { limit_bytes });
    }
    match text.chars().find(|c| Unprintable::of(*c).is_some()) {
        Some(c) => Err(InvalidIdentifier::Character(c)),
        None if is_blank(text) => Err(InvalidIdentifier::Blank),
        None => Ok(()),
    }
}

/// Makes a name from the wire valid, so that neither the name nor its samples are lost: each character that
/// is refused becomes `?`.
pub(crate) fn from_wire(text: String, limit_bytes: usize) -> String {
    if check_text(&text, limit_bytes).is_ok() {
        return text;
    }
    let mut name = String::new();
    for c in text.chars().map(|c| if Unprintable::of(c).is_some() { '?' } else { c }) {
        if name.len() + c.len_utf8() > limit_bytes {
            break;
        }
        name.push(c);
    }
    if is_blank(&name) { "?".to_owned() } else { name }
}

/// Returns a valid name for any bytes but none.
pub(super) fn escaped(raw: &[u8], limit_bytes: usize) -> String {
    shorten(escape(raw), limit_bytes)
}

/// Name of a node, job, cluster or user: at most 256 bytes, not blank, no [`Unprintable`] characters. Quotes,
/// backslashes and mark-up are data, which each output escapes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "String")]
pub struct Identifier(String);

impl<'de> Deserialize<'de> for Identifier {
    /// Refuses an invalid name in human-readable formats, and makes one from the wire valid.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let is_written = deserializer.is_human_readable();
        let text = String::deserialize(deserializer)?;
        if is_written { Self::try_from(text).map_err(D::Error::custom) } else { Ok(Self::from_wire(text)) }
    }
}

impl Identifier {
    pub(crate) fn from_wire(text: String) -> Self {
        Self(from_wire(text, limits::IDENTIFIER_BYTES))
    }

    /// Returns the name for any text of another program, [escaped](crate::text::escape) and shortened where
    /// it must be; none for an empty text.
    pub fn escaped(raw: &[u8]) -> Option<Self> {
        (!raw.is_empty()).then(|| Self(escaped(raw, limits::IDENTIFIER_BYTES)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Identifier {
    type Error = InvalidIdentifier;

    fn try_from(text: String) -> Result<Self, InvalidIdentifier> {
        check_text(&text, limits::IDENTIFIER_BYTES)?;
        Ok(Self(text))
    }
}

impl TryFrom<&str> for Identifier {
    type Error = InvalidIdentifier;

    fn try_from(text: &str) -> Result<Self, InvalidIdentifier> {
        Self::try_from(text.to_owned())
    }
}

impl From<Identifier> for String {
    fn from(identifier: Identifier) -> Self {
        identifier.0
    }
}

impl fmt::Display for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_code_point() {
        let refused = |text: &str| Identifier::try_from(text).unwrap_err().to_string();
        assert_eq!(
            refused("a\u{202e}b"),
            "it contains the character U+202E, a character that changes the text direction"
        );
        assert_eq!(refused("a\u{200b}"), "it contains the character U+200B, an invisible character");
        assert_eq!(refused("a\u{2028}"), "it contains the character U+2028, a line or paragraph separator");
        assert_eq!(refused("a\n"), "it contains the character U+000A, a control character");
        for blank in [" ", "\u{3000}\u{a0} "] {
            assert_eq!(refused(blank), "it is blank");
        }
    }

    #[test]
    fn every_printable_name_is_kept() {
        for name in [r"CORP\jdoe", "jdoe@CORP.EXAMPLE", "R&D", "o'brien", "<b>`\"%;,=", "zoë 漢字"] {
            assert_eq!(Identifier::try_from(name).unwrap().as_str(), name);
            assert_eq!(Identifier::escaped(name.as_bytes()).unwrap().as_str(), name);
        }
        assert_eq!(Identifier::escaped(b"a\x1b\xe9").unwrap().as_str(), r"a\x1b\xe9");
        assert_eq!(Identifier::escaped(b""), None);
        let long = Identifier::escaped(&[b'x'; 1000]).unwrap();
        assert!(Identifier::try_from(long.as_str()).is_ok());
    }
}
