//! Labels of a series.

use std::fmt;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::identifier::{InvalidIdentifier, check_text, escaped, from_wire};
use super::role::Role;
use crate::limits;

/// Labels of a series, sorted by key, with the role of the device that they name. The role does not
/// distinguish series.
///
/// Clones share the text: an agent that polls exporters has hundreds of thousands of series.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels {
    /// Each key and each value with [`END`] behind it, which no valid one contains and which sorts first.
    text: Arc<str>,
    role: Option<Role>,
}

const END: char = '\0';

/// Joins pairs, which are valid and sorted.
fn joined(pairs: &[(String, String)]) -> Arc<str> {
    let bytes = pairs.iter().map(|(key, value)| key.len() + value.len() + 2).sum();
    let mut text = String::with_capacity(bytes);
    for part in pairs.iter().flat_map(|(key, value)| [key, value]) {
        text.push_str(part);
        text.push(END);
    }
    text.into()
}

impl Serialize for Labels {
    /// Writes the role on the wire as a label with an empty key, which no other label has.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let role = self.role.as_ref().filter(|_| !serializer.is_human_readable());
        let pairs: Vec<(&str, &str)> = self.iter().chain(role.map(|role| ("", role.as_str()))).collect();
        pairs.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Labels {
    /// Refuses invalid labels in human-readable formats, and makes those from the wire valid. Too many labels
    /// are always refused.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let is_written = deserializer.is_human_readable();
        let mut pairs = Vec::<(String, String)>::deserialize(deserializer)?;
        if is_written {
            return Self::new(pairs).map_err(D::Error::custom);
        }
        let role_of = |(key, value): &(String, String)| value.parse::<Role>().ok().filter(|_| key.is_empty());
        let role = pairs.iter().find_map(role_of);
        pairs.retain(|pair| role_of(pair).is_none());
        if pairs.len() > limits::LABELS {
            return Err(D::Error::custom(InvalidIdentifier::TooManyLabels));
        }
        let mut pairs: Vec<_> = pairs
            .into_iter()
            .map(|(key, value)| {
                (from_wire(key, limits::LABEL_KEY_BYTES), from_wire(value, limits::LABEL_VALUE_BYTES))
            })
            .collect();
        pairs.sort();
        pairs.dedup_by(|one, other| one.0 == other.0);
        Ok(Self { text: joined(&pairs), role })
    }
}

impl Labels {
    /// Creates labels from keys and values in any order. Refuses invalid and repeated keys.
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
        if repeated {
            Err(InvalidIdentifier::RepeatedLabel)
        } else {
            Ok(Self { text: joined(&pairs), role: None })
        }
    }

    /// Creates labels from names of the system: paths, devices, programs. They are
    /// [escaped](crate::text::escape) and shortened where they must be, so that no series is lost for its
    /// name. Refuses too many labels, an empty one, and repeated keys.
    pub fn escaped(pairs: Vec<(String, String)>) -> Result<Self, InvalidIdentifier> {
        Self::new(
            pairs
                .into_iter()
                .map(|(key, value)| {
                    (
                        escaped(key.as_bytes(), limits::LABEL_KEY_BYTES),
                        escaped(value.as_bytes(), limits::LABEL_VALUE_BYTES),
                    )
                })
                .collect(),
        )
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut parts = self.text.split_terminator(END);
        std::iter::from_fn(move || Some((parts.next()?, parts.next()?)))
    }

    pub fn len(&self) -> usize {
        self.iter().count()
    }

    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(k, _)| *k == key).map(|(_, value)| value)
    }

    #[must_use]
    pub fn with_role(self, role: Option<Role>) -> Self {
        Self { role, ..self }
    }

    /// Returns none if the role is unknown, or if the labels name no device.
    pub const fn role(&self) -> Option<&Role> {
        self.role.as_ref()
    }

    /// Returns the keys and values as one text: what distinguishes the series of a metric.
    pub fn identity(&self) -> &str {
        &self.text
    }
}

impl From<Labels> for Vec<(String, String)> {
    fn from(labels: Labels) -> Self {
        labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }
}

/// Human-readable form: `cpu=3,node=1`.
impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (key, value)) in self.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            write!(f, "{comma}{key}={value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::series::Identifier;
    use crate::text::strategy::hostile;
    use crate::text::{Unprintable, is_blank};
    use crate::wire::envelope;

    #[test]
    fn labels_are_sorted_and_checked() {
        let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
        let labels = Labels::new(vec![pair("node", "1"), pair("cpu", "3")]).unwrap();
        assert_eq!(labels.to_string(), "cpu=3,node=1");
        assert_eq!(labels.get("cpu"), Some("3"));
        assert_eq!(Labels::new(vec![pair("a", "1"), pair("a", "2")]), Err(InvalidIdentifier::RepeatedLabel));
        assert_eq!(Labels::new(vec![pair("a", "<R&D>")]).unwrap().get("a"), Some("<R&D>"));
        assert_eq!(Labels::new(vec![pair("a", "")]), Err(InvalidIdentifier::Empty));
        let labels = Labels::new(vec![pair("a", "\u{202e}")]);
        assert_eq!(labels, Err(InvalidIdentifier::Character('\u{202e}')));
        let labels = Labels::escaped(vec![pair("mount", "/a\nb"), pair("x", &"y".repeat(300))]).unwrap();
        assert_eq!((labels.get("mount"), labels.get("x").map(str::len)), (Some(r"/a\x0ab"), Some(256)));
    }

    proptest! {
        #[test]
        fn labels_sort_as_their_pairs_and_keep_them(
            one in proptest::collection::btree_map("[a-c\u{e9} !]{1,3}", "[a-c\u{e9} !]{1,3}", 0..4),
            other in proptest::collection::btree_map("[a-c\u{e9} !]{1,3}", "[a-c\u{e9} !]{1,3}", 0..4),
        ) {
            let pairs = |of: &std::collections::BTreeMap<String, String>| -> Vec<(String, String)> {
                of.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
            };
            let (one, other) = (pairs(&one), pairs(&other));
            if let (Ok(labels), Ok(others)) = (Labels::new(one.clone()), Labels::new(other.clone())) {
                prop_assert_eq!(labels.cmp(&others), one.cmp(&other));
                prop_assert_eq!((labels.len(), labels.is_empty()), (one.len(), one.is_empty()));
                prop_assert_eq!(Vec::<(String, String)>::from(labels), one);
            }
        }

        #[test]
        fn names_from_the_wire_are_made_valid(text in hostile()) {
            let is_good = |name: &str| {
                !is_blank(name) && !name.chars().any(|c| Unprintable::of(c).is_some()) && name.len() <= limits::IDENTIFIER_BYTES
            };
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

        #[test]
        fn a_role_travels_with_the_labels_on_the_wire(name in "[a-z0-9:]{1,8}") {
            let role: Role = format!("stacked {name} 8:0").parse().unwrap();
            let labels = Labels::new(vec![("device".to_owned(), name)]).unwrap().with_role(Some(role));
            let mut bytes = Vec::new();
            envelope::put(&mut bytes, &labels);
            prop_assert_eq!(envelope::get::<Labels>(&bytes).unwrap(), labels.clone());
            let text = serde_json::to_string(&labels).unwrap();
            prop_assert_eq!(serde_json::from_str::<Labels>(&text).unwrap(), labels.with_role(None));
        }
    }
}
