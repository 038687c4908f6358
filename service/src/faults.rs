//! Faults of a configuration, from its file and its command line.

use std::fmt;
use std::str::FromStr;

use crate::printable::printable;

const MESSAGE_CHARS_MAX: usize = 2000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// File and line, or command-line option.
    pub place: String,
    pub message: String,
}

impl Fault {
    /// Converts the message to one line.
    pub fn new(place: impl Into<String>, message: impl fmt::Display) -> Self {
        Self { place: place.into(), message: printable(&message.to_string(), MESSAGE_CHARS_MAX) }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// All faults of a configuration, one per line when printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Faults {}

impl Faults {
    /// `place` is a file and line, or a command-line option.
    pub fn add(&mut self, place: impl Into<String>, message: impl fmt::Display) {
        self.0.push(Fault::new(place, message));
    }

    /// Returns `value` unless there are faults.
    pub fn into_result<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }

    pub fn parse_option<T: FromStr<Err: fmt::Display>>(
        &mut self,
        option: &str,
        text: Option<&str>,
    ) -> Option<T> {
        text?.parse().map_err(|error| self.add(option, error)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_places_of_faults() {
        let mut faults = Faults::default();
        assert_eq!(faults.parse_option::<u8>("--writers", Some("3")), Some(3));
        assert_eq!(faults.parse_option::<u8>("--writers", None), None);
        assert_eq!(faults.parse_option::<u8>("--writers", Some("x")), None);
        assert!(faults.to_string().starts_with("--writers: "));
        assert!(faults.into_result(()).is_err() && Faults::default().into_result(()).is_ok());
    }
}
