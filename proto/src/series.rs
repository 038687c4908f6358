//! What a series is: a metric of a node or a job, with labels; and the compact ids that stand for it on the wire.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::limits;
use crate::name::MetricName;
use crate::text::{Unprintable, describe, is_blank};

/// The compact id of a series within one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SeriesId(pub u32);

/// The compact id of a metric within one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MetricId(pub u32);

/// The compact id of a job within one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobHandle(pub u32);

/// The compact id of a shape within one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShapeId(pub u32);

/// One life of one agent process: 64 random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId(pub u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({self})")
    }
}

/// The unit of a metric's values, as they are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Nanoseconds,
    /// Percent of the time, 0 to 100.
    Percent,
    /// Pages of memory.
    Pages,
    /// Sectors of 512 bytes.
    Sectors,
    /// Processor cycles, or ticks of another hardware clock.
    Cycles,
    /// A number of things or events.
    Count,
    /// What the label `unit` of a series says; nothing where it has none. Users' own metrics have it, so that what one
    /// user takes for the unit of a name binds no other.
    Labelled,
}

impl Unit {
    /// The unit as it stands in documents and in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Nanoseconds => "nanoseconds",
            Self::Percent => "percent",
            Self::Pages => "pages",
            Self::Sectors => "sectors",
            Self::Cycles => "cycles",
            Self::Count => "count",
            Self::Labelled => "labelled",
        }
    }
}

/// How a metric's values follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Only grows while its source lives; its differences mean something.
    Counter,
    /// May go up and down; its values mean something.
    Gauge,
}

impl Kind {
    /// The kind as it stands in documents and in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
        }
    }
}

/// What the 64 bits of a value are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Number {
    /// An unsigned integer.
    Unsigned,
    /// A signed integer, in two's complement.
    Signed,
    /// An IEEE 754 double.
    Float,
}

impl Number {
    /// The value that `bits` stand for, as the stores keep it. Integers beyond 2^53 are rounded to the nearest double.
    #[expect(clippy::cast_precision_loss, reason = "the stores keep doubles, as documented")]
    pub const fn to_f64(self, bits: u64) -> f64 {
        match self {
            Self::Unsigned => bits as f64,
            Self::Signed => bits.cast_signed() as f64,
            Self::Float => f64::from_bits(bits),
        }
    }
}

/// A metric as it is announced in the dictionary.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MetricDescriptor {
    /// Its canonical name.
    pub name: MetricName,
    /// The unit of its values.
    pub unit: Unit,
    /// Whether it counts or measures a level.
    pub kind: Kind,
    /// What the bits of its values are.
    pub number: Number,
}

/// Why a text cannot be a node's, job's, cluster's or user's name, or a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidIdentifier {
    /// It has no characters.
    Empty,
    /// It has nothing but spaces.
    Blank,
    /// It has more bytes than its limit.
    TooLong {
        /// The limit.
        limit_bytes: usize,
    },
    /// It has a character that is [`Unprintable`], a quote, a backslash, or `<`, `>`, `&`.
    Character(char),
    /// There are more labels than [`limits::LABELS`].
    TooManyLabels,
    /// Two labels have the same key.
    RepeatedLabel,
}

impl fmt::Display for InvalidIdentifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("it is empty"),
            Self::Blank => f.write_str("it is blank"),
            Self::TooLong { limit_bytes } => write!(f, "it has more than {limit_bytes} bytes"),
            Self::Character(c) => write!(f, "it has {}", describe(*c)),
            Self::TooManyLabels => write!(f, "it has more than {} labels", limits::LABELS),
            Self::RepeatedLabel => f.write_str("it has the same label twice"),
        }
    }
}

impl std::error::Error for InvalidIdentifier {}

fn check_text(text: &str, limit_bytes: usize) -> Result<(), InvalidIdentifier> {
    if text.is_empty() {
        return Err(InvalidIdentifier::Empty);
    }
    if text.len() > limit_bytes {
        return Err(InvalidIdentifier::TooLong { limit_bytes });
    }
    match text.chars().find(|c| is_refused(*c)) {
        Some(c) => Err(InvalidIdentifier::Character(c)),
        None if is_blank(text) => Err(InvalidIdentifier::Blank),
        None => Ok(()),
    }
}

fn is_refused(c: char) -> bool {
    Unprintable::of(c).is_some() || matches!(c, '"' | '\'' | '`' | '\\' | '<' | '>' | '&')
}

/// A name as it is kept that came over the wire. An agent of an earlier version may have let in what is refused today: each
/// such character becomes `?`, so that neither the name nor the samples under it are lost.
fn from_wire(text: String, limit_bytes: usize) -> String {
    if check_text(&text, limit_bytes).is_ok() {
        return text;
    }
    let mut name = String::new();
    for c in text.chars().map(|c| if is_refused(c) { '?' } else { c }) {
        if name.len() + c.len_utf8() > limit_bytes {
            break;
        }
        name.push(c);
    }
    if is_blank(&name) { "?".to_owned() } else { name }
}

/// The name of a node, job, cluster or user: at most 256 bytes, not blank, no [`Unprintable`] characters, quotes, backslashes
/// or mark-up.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "String")]
pub struct Identifier(String);

impl<'de> Deserialize<'de> for Identifier {
    /// Refuses an invalid name in text that people write, and makes one from the wire valid.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let is_written = deserializer.is_human_readable();
        let text = String::deserialize(deserializer)?;
        if is_written {
            Self::try_from(text).map_err(D::Error::custom)
        } else {
            Ok(Self(from_wire(text, limits::IDENTIFIER_BYTES)))
        }
    }
}

impl Identifier {
    /// The name as text.
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

/// The labels of a series, sorted by key.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "Vec<(String, String)>")]
pub struct Labels(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Labels {
    /// Refuses invalid labels in text that people write, and makes those from the wire valid. More than there may be are
    /// refused in any case.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let is_written = deserializer.is_human_readable();
        let pairs = Vec::<(String, String)>::deserialize(deserializer)?;
        if is_written {
            return Self::new(pairs).map_err(D::Error::custom);
        }
        if pairs.len() > limits::LABELS {
            return Err(D::Error::custom(InvalidIdentifier::TooManyLabels));
        }
        let valid = |(key, value)| {
            (from_wire(key, limits::LABEL_KEY_BYTES), from_wire(value, limits::LABEL_VALUE_BYTES))
        };
        let mut pairs: Vec<_> = pairs.into_iter().map(valid).collect();
        pairs.sort();
        pairs.dedup_by(|one, other| one.0 == other.0);
        Ok(Self(pairs))
    }
}

impl Labels {
    /// Labels from keys and values in any order.
    ///
    /// # Errors
    /// When there are too many, one is too long or has a character that is not allowed, or a key comes twice.
    pub fn new(mut pairs: Vec<(String, String)>) -> Result<Self, InvalidIdentifier> {
        if pairs.len() > limits::LABELS {
            return Err(InvalidIdentifier::TooManyLabels);
        }
        pairs.sort();
        for (key, value) in &pairs {
            check_text(key, limits::LABEL_KEY_BYTES)?;
            check_text(value, limits::LABEL_VALUE_BYTES)?;
        }
        let repeated = pairs.windows(2).any(|pair| matches!(pair, [(a, _), (b, _)] if a == b));
        if repeated { Err(InvalidIdentifier::RepeatedLabel) } else { Ok(Self(pairs)) }
    }

    /// The keys and values, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of one label.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(k, _)| *k == key).map(|(_, value)| value)
    }
}

impl From<Labels> for Vec<(String, String)> {
    fn from(labels: Labels) -> Self {
        labels.0
    }
}

/// `cpu=3,node=1`: the form in which people read labels.
impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (key, value)) in self.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            write!(f, "{comma}{key}={value}")?;
        }
        Ok(())
    }
}

/// A series as it is announced in the dictionary; its node is the session's.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SeriesDescriptor {
    /// The metric.
    pub metric: MetricId,
    /// The job whose series it is; none for the node's own.
    pub job: Option<JobHandle>,
    /// The labels that tell it from its siblings.
    pub labels: Labels,
}

/// A job as it is announced in the dictionary.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobDescriptor {
    /// The scheduler's name for it.
    pub job_id: Identifier,
    /// The cluster whose scheduler it is, where it is known.
    pub cluster: Option<Identifier>,
    /// The owner's numeric id, where it is known.
    pub owner_uid: Option<u32>,
    /// The owner's name, where it is known.
    pub owner: Option<Identifier>,
    /// When this node began to follow it, in microseconds since the epoch.
    pub started_us: i64,
}

/// The session as it is announced in the dictionary.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SessionDescriptor {
    /// The node's name.
    pub node: Identifier,
    /// The version of the agent's program.
    pub agent_version: Identifier,
    /// When the session began, in microseconds since the epoch.
    pub started_us: i64,
}

/// The series that are sampled together from one source at one period: what the columns of a block are.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ShapeDescriptor {
    /// The source, under the name that it has in tallies.
    pub source: Identifier,
    /// The series of the columns, in their order.
    pub series: Vec<SeriesId>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::text::strategy::hostile;
    use crate::wire::envelope;

    #[test]
    fn labels_are_sorted_and_checked() {
        let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
        let labels = Labels::new(vec![pair("node", "1"), pair("cpu", "3")]).unwrap();
        assert_eq!(labels.to_string(), "cpu=3,node=1");
        assert_eq!(labels.get("cpu"), Some("3"));
        assert_eq!(Labels::new(vec![pair("a", "1"), pair("a", "2")]), Err(InvalidIdentifier::RepeatedLabel));
        assert_eq!(Labels::new(vec![pair("a", "<script>")]), Err(InvalidIdentifier::Character('<')));
        assert_eq!(Labels::new(vec![pair("a", "")]), Err(InvalidIdentifier::Empty));
    }

    #[test]
    fn a_refusal_names_the_code_point() {
        let refused = |text: &str| Identifier::try_from(text).unwrap_err().to_string();
        assert_eq!(
            refused("a\u{202e}b"),
            "it has the character U+202E, a character that turns the direction of writing"
        );
        assert_eq!(refused("a\u{200b}"), "it has the character U+200B, an invisible character");
        assert_eq!(refused("a\u{2028}"), "it has the character U+2028, a line or paragraph separator");
        assert_eq!(refused("a\n"), "it has the character U+000A, a control character");
        assert_eq!(refused("<b>"), "it has the character '<' (U+003C)");
        for blank in [" ", "\u{3000}\u{a0} "] {
            assert_eq!(refused(blank), "it is blank");
        }
        let labels = Labels::new(vec![("a".to_owned(), "\u{202e}".to_owned())]);
        assert_eq!(labels, Err(InvalidIdentifier::Character('\u{202e}')));
    }

    proptest! {
        #[test]
        fn names_are_printable_or_refused_and_names_from_the_wire_are_made_printable(text in hostile()) {
            let is_good = |name: &str| !is_blank(name) && !name.chars().any(is_refused) && name.len() <= limits::IDENTIFIER_BYTES;
            match Identifier::try_from(text.as_str()) {
                Ok(name) => prop_assert!(is_good(name.as_str()) && name.as_str() == text),
                Err(_) => prop_assert!(!is_good(&text)),
            }
            let mut bytes = Vec::new();
            envelope::put(&mut bytes, &(&text, vec![(&text, &text), (&text, &text)]));
            let (name, labels): (Identifier, Labels) = envelope::get(&bytes).unwrap();
            prop_assert!(is_good(name.as_str()), "{:?}", name);
            prop_assert_eq!(is_good(&text), name.as_str() == text);
            let labels: Vec<_> = labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            prop_assert!(Labels::new(labels).is_ok(), "what is decoded is valid");
        }
    }

    #[test]
    fn numbers_are_what_their_bits_mean() {
        assert_eq!(Number::Unsigned.to_f64(u64::MAX), 18_446_744_073_709_551_615.0);
        assert_eq!(Number::Signed.to_f64(u64::MAX), -1.0);
        assert_eq!(Number::Float.to_f64(0.5_f64.to_bits()), 0.5);
    }
}
