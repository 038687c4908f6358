//! Parsing of a request: one JSON object becomes the struct of its verb, and a refusal names the field at
//! fault.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::MapDeserializer;
use serde::de::{self, DeserializeOwned, IntoDeserializer, Visitor};
use serde::{Deserializer, forward_to_deserialize_any};
use serde_json::{Map, Value};

use super::refusal::Refusal;
use crate::name::Selector;
use crate::period::Period;
use crate::series::Identifier;
use crate::suggest::nearest;

/// Entries of one list or object in a request. The length of a line bounds them too; this bounds their cost.
const ENTRIES: usize = 1024;

/// Characters of an unknown name that a refusal repeats.
const SHOWN_CHARACTERS: usize = 64;

#[derive(Debug)]
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    pub(super) fn parse(line: &[u8]) -> Result<Self, Refusal> {
        let value: Value = serde_json::from_slice(line)
            .map_err(|error| Refusal::new("malformed", None, &format!("invalid JSON: {error}")))?;
        let Value::Object(mut fields) = value else {
            let message = "expected a JSON object, such as {\"verb\": \"status\"}";
            return Err(Refusal::new("malformed", None, message));
        };
        // null means the same as a missing field.
        fields.retain(|_, value| !value.is_null());
        Ok(Self(fields))
    }

    pub(super) fn take_verb(&mut self) -> Result<String, Refusal> {
        match self.0.remove("verb") {
            Some(Value::String(verb)) => Ok(verb),
            Some(_) => Err(invalid("verb", &"expected a string, such as \"status\"")),
            None => Err(invalid("verb", &"missing field; write \"verb\": \"status\"")),
        }
    }

    /// Refuses unknown fields, so that a misspelt one is noticed.
    pub(super) fn into_request<T: DeserializeOwned>(self, example: &str) -> Result<T, Refusal> {
        for (name, value) in &self.0 {
            let entries = value.as_array().map(Vec::len).or_else(|| value.as_object().map(Map::len));
            if entries.is_some_and(|entries| entries > ENTRIES) {
                return Err(invalid(name, &format!("more than {ENTRIES} entries")));
            }
        }
        let fields = self.0.into_iter().map(|(name, value)| (name.clone(), Field { name, value }));
        T::deserialize(MapDeserializer::new(fields)).map_err(|error| error.into_refusal(example))
    }
}

/// Field whose name every error contains.
struct Field {
    name: String,
    value: Value,
}

#[derive(Debug, thiserror::Error)]
enum FieldError {
    #[error("missing field")]
    Missing(&'static str),
    #[error("unknown field; {advice}")]
    Unknown { field: String, advice: String },
    #[error("{message}")]
    Invalid { field: Option<String>, message: String },
}

impl FieldError {
    /// Returns a refusal that names the field. `example` is a valid request of the verb.
    fn into_refusal(self, example: &str) -> Refusal {
        let message = match &self {
            Self::Missing(_) => format!("{self}; example: {example}"),
            Self::Unknown { .. } | Self::Invalid { .. } => self.to_string(),
        };
        let field = match self {
            Self::Missing(field) => Some(field.to_owned()),
            Self::Unknown { field, .. } => Some(shown(&field)),
            Self::Invalid { field, .. } => field.as_deref().map(shown),
        };
        Refusal::new("invalid", field.as_deref(), &message)
    }
}

impl de::Error for FieldError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Invalid { field: None, message: message.to_string() }
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let advice = match (nearest(field, expected.iter().copied()), expected) {
            (Some(near), _) => format!("did you mean `{near}`?"),
            (None, []) => "this verb takes no fields".to_owned(),
            (None, fields) => format!("the fields are: {}", fields.join(", ")),
        };
        Self::Unknown { field: field.to_owned(), advice }
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing(field)
    }
}

impl<'de> IntoDeserializer<'de, FieldError> for Field {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Field {
    type Error = FieldError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        let Self { name, value } = self;
        value
            .deserialize_any(visitor)
            .map_err(|error| FieldError::Invalid { field: Some(name), message: error.to_string() })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, FieldError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, FieldError> {
        let Self { name: field, value } = self;
        value
            .deserialize_enum(name, variants, visitor)
            .map_err(|error| FieldError::Invalid { field: Some(field), message: error.to_string() })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

pub(super) fn unknown_verb<'a>(verb: &str, known: impl Iterator<Item = &'a str> + Clone) -> Refusal {
    let advice = match nearest(verb, known.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the verbs are: {}", known.collect::<Vec<_>>().join(", ")),
    };
    invalid("verb", &format!("unknown verb `{}`; {advice}", shown(verb)))
}

fn shown(name: &str) -> String {
    name.chars().take(SHOWN_CHARACTERS).collect()
}

/// Returns the refusal of a value that is not valid for the field.
pub fn invalid(field: &str, error: &dyn fmt::Display) -> Refusal {
    Refusal::new("invalid", Some(field), &error.to_string())
}

pub fn identifier(field: &str, text: &str) -> Result<Identifier, Refusal> {
    Identifier::try_from(text).map_err(|error| invalid(field, &error))
}

pub fn optional_identifier(field: &str, text: Option<&str>) -> Result<Option<Identifier>, Refusal> {
    text.map(|text| identifier(field, text)).transpose()
}

pub fn duration_us(field: &str, text: Option<&str>) -> Result<Option<u64>, Refusal> {
    let duration = text.map(str::parse::<Period>).transpose().map_err(|error| invalid(field, &error))?;
    Ok(duration.map(Period::as_micros))
}

/// Parses the texts of a field as selectors, at most `limit`.
pub fn selectors(field: &str, texts: &[String], limit: usize) -> Result<Vec<Selector>, Refusal> {
    if texts.len() > limit {
        return Err(invalid(field, &format!("more than {limit} selectors")));
    }
    let parse =
        |text: &String| text.parse().map_err(|error: crate::name::InvalidName| invalid(field, &error));
    texts.iter().map(parse).collect()
}

/// Prefix of the selectors for the ring in a request at submission.
pub const RING_PREFIX: &str = "ring:";

/// Selectors and periods in the form of a request: `{"cpu.*": "10ms"}`.
pub type PlanFields = BTreeMap<String, String>;
