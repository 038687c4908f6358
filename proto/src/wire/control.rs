//! A line of the control language, as it is forwarded by a collector.

use serde::{Deserialize, Serialize};

use crate::limits;

/// Line without its newline: at most [`limits::CONTROL_LINE_BYTES`] bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ControlLine(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLine {
    /// Length in bytes.
    #[error("the line has {0} bytes; at most {max} are allowed", max = limits::CONTROL_LINE_BYTES)]
    TooLong(usize),
    #[error("the line contains a newline")]
    Several,
}

impl ControlLine {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ControlLine {
    type Error = InvalidLine;

    fn try_from(text: String) -> Result<Self, InvalidLine> {
        if text.len() > limits::CONTROL_LINE_BYTES {
            return Err(InvalidLine::TooLong(text.len()));
        }
        if text.contains('\n') {
            return Err(InvalidLine::Several);
        }
        Ok(Self(text))
    }
}

impl TryFrom<&str> for ControlLine {
    type Error = InvalidLine;

    fn try_from(text: &str) -> Result<Self, InvalidLine> {
        Self::try_from(text.to_owned())
    }
}

impl From<ControlLine> for String {
    fn from(line: ControlLine) -> Self {
        line.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line_of_bounded_length() {
        let longest = "x".repeat(limits::CONTROL_LINE_BYTES);
        assert_eq!(ControlLine::try_from(longest.clone()).unwrap().as_str(), longest);
        assert_eq!(
            ControlLine::try_from(longest + "x"),
            Err(InvalidLine::TooLong(limits::CONTROL_LINE_BYTES + 1))
        );
        assert_eq!(ControlLine::try_from("{}\n"), Err(InvalidLine::Several));
    }
}
