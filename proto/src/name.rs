//! Names of metrics, and the selectors that choose among them.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::limits;
use crate::text::describe;

/// Canonical name of a metric: lower-case words of `a-z 0-9 _`, joined by dots, such as `memory.anon`.
/// Clones share it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MetricName(Arc<str>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// Nothing, or an empty word between two dots.
    #[error("expected words of a-z, 0-9 and _, joined by single dots")]
    Empty,
    #[error("a name has at most {} bytes", limits::NAME_BYTES)]
    TooLong,
    #[error("it contains {}; only a-z, 0-9, _ and dots are allowed", describe(*.0))]
    Character(char),
}

impl MetricName {
    /// Creates a name of the catalogue. A test of the catalogue proves that all its names are valid.
    pub(crate) fn from_catalogue(name: &'static str) -> Self {
        Self(name.into())
    }

    /// Creates a name from words of `a-z 0-9 _`, joined by dots.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Result<Self, InvalidName> {
        let name = name.into();
        check(&name, |c| c == '_')?;
        Ok(Self(name.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn check(text: &str, also: impl Fn(char) -> bool) -> Result<(), InvalidName> {
    if text.len() > limits::NAME_BYTES {
        return Err(InvalidName::TooLong);
    }
    for word in text.split('.') {
        if word.is_empty() {
            return Err(InvalidName::Empty);
        }
        if let Some(character) =
            word.chars().find(|c| !(c.is_ascii_lowercase() || c.is_ascii_digit() || also(*c)))
        {
            return Err(InvalidName::Character(character));
        }
    }
    Ok(())
}

impl TryFrom<String> for MetricName {
    type Error = InvalidName;

    fn try_from(name: String) -> Result<Self, InvalidName> {
        Self::new(name)
    }
}

impl From<MetricName> for String {
    fn from(name: MetricName) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl fmt::Display for MetricName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for MetricName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Glob over metric names: `*` stands for any text, dots included, and `?` for one character.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Selector {
    glob: String,
    /// Bytes before the first wildcard, which is asked for once for each metric of the catalogue.
    literal_bytes: usize,
}

impl Selector {
    pub fn as_str(&self) -> &str {
        &self.glob
    }

    /// The text before the first wildcard, with which all that it matches begins.
    pub fn literal(&self) -> &str {
        self.glob.get(..self.literal_bytes).unwrap_or_default()
    }

    /// Returns true if the pattern has no wildcard, and so matches one name.
    pub const fn is_exact(&self) -> bool {
        self.literal_bytes == self.glob.len()
    }

    pub fn matches(&self, name: &str) -> bool {
        matches_glob(&self.glob, name)
    }
}

/// Returns true if `pattern` matches `name`: `*` stands for any text and `?` for one byte. Takes at most
/// pattern length x name length steps.
pub fn matches_glob(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // The position after a mismatch: behind the last star, which matches one more character of the name.
    let mut resume: Option<(usize, usize)> = None;
    while let Some(&character) = name.get(n) {
        match pattern.get(p) {
            Some(b'*') => {
                resume = Some((p + 1, n));
                p += 1;
            }
            Some(&wanted) if wanted == b'?' || wanted == character => {
                p += 1;
                n += 1;
            }
            _ => match resume {
                Some((behind_star, swallowed)) => {
                    resume = Some((behind_star, swallowed + 1));
                    p = behind_star;
                    n = swallowed + 1;
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(p).all(|c| *c == b'*')
}

impl FromStr for Selector {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        check(text, |c| matches!(c, '_' | '*' | '?'))?;
        let literal_bytes = text.find(['*', '?']).unwrap_or(text.len());
        Ok(Self { glob: text.to_owned(), literal_bytes })
    }
}

impl TryFrom<String> for Selector {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<Selector> for String {
    fn from(selector: Selector) -> Self {
        selector.glob
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.glob)
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.glob)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dotted_lower_case_words() {
        assert!(MetricName::new("memory.anon").is_ok());
        assert!(MetricName::new("perf.raw.r01c2").is_ok());
        assert_eq!(MetricName::new(""), Err(InvalidName::Empty));
        assert_eq!(MetricName::new("a..b"), Err(InvalidName::Empty));
        assert_eq!(MetricName::new("Memory"), Err(InvalidName::Character('M')));
        assert_eq!(MetricName::new("a;drop table"), Err(InvalidName::Character(';')));
        assert_eq!(MetricName::new("a".repeat(161)), Err(InvalidName::TooLong));
    }

    #[test]
    fn selectors_are_globs() {
        let selects = |pattern: &str, name: &str| pattern.parse::<Selector>().unwrap().matches(name);
        assert!(selects("cpu.*", "cpu.usage"));
        assert!(selects("cpu.*", "cpu.usage.per_cpu"));
        assert!(!selects("cpu.*", "node.cpu.user"));
        assert!(selects("*", "x"));
        assert!(selects("*.usage", "cpu.usage"));
        assert!(selects("memory.*able", "memory.slab_reclaimable"));
        assert!(selects("node.load?", "node.load1"));
        assert!(!selects("node.load?", "node.load15"));
        assert!(!selects("cpu.usage", "cpu.usag"));
        assert!("cpu.[a-z]".parse::<Selector>().is_err());
        let literal = |pattern: &str| {
            let selector = pattern.parse::<Selector>().unwrap();
            (selector.literal().to_owned(), selector.is_exact())
        };
        assert_eq!(literal("cpu.usage"), ("cpu.usage".to_owned(), true));
        assert_eq!(literal("cpu.?s*"), ("cpu.".to_owned(), false));
        assert_eq!(literal("*"), (String::new(), false));
    }

    #[test]
    fn a_selector_made_to_be_slow_is_not() {
        let pattern = "*a".repeat(70);
        assert!(!pattern.parse::<Selector>().unwrap().matches(&"a".repeat(69)));
        assert!(pattern.parse::<Selector>().unwrap().matches(&"a".repeat(140)));
    }
}
