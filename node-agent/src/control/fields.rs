//! A request's fields, taken one by one, so that whatever is wrong is told by the name of its field.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

use super::answer::Refusal;

/// Entries of one list or table in a request; the line's length bounds them anyway, and this bounds what they cost.
const ENTRIES: usize = 1024;

/// The fields of one request that have not been taken yet.
#[derive(Debug)]
pub(super) struct Fields {
    fields: Map<String, Value>,
    known: Vec<&'static str>,
}

impl Fields {
    /// The fields of the object that `line` is.
    pub(super) fn of(line: &[u8]) -> Result<Self, Refusal> {
        let value: Value = serde_json::from_slice(line)
            .map_err(|error| Refusal::new("malformed", None, &format!("it is no JSON: {error}")))?;
        let Value::Object(fields) = value else {
            let message = "a request is a JSON object, such as {\"verb\": \"status\"}";
            return Err(Refusal::new("malformed", None, message));
        };
        Ok(Self { fields, known: Vec::new() })
    }

    fn take(&mut self, field: &'static str) -> Option<Value> {
        self.known.push(field);
        // null says what leaving the field out says.
        self.fields.remove(field).filter(|value| !value.is_null())
    }

    /// A text, where there is one.
    pub(super) fn text(&mut self, field: &'static str) -> Result<Option<String>, Refusal> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(field, "a text in quotes", &other)),
        }
    }

    /// A text that must be there.
    pub(super) fn needed_text(&mut self, field: &'static str, example: &str) -> Result<String, Refusal> {
        self.text(field)?.ok_or_else(|| missing(field, example))
    }

    /// A whole number from 0 to 2^32 - 1.
    pub(super) fn number(&mut self, field: &'static str) -> Result<Option<u32>, Refusal> {
        let Some(value) = self.take(field) else { return Ok(None) };
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        number.map(Some).ok_or_else(|| wrong(field, "a whole number from 0 to 4294967295", &value))
    }

    /// A number that must be there; JSON has none that is infinite, and one that would become so is refused.
    pub(super) fn needed_float(&mut self, field: &'static str, example: &str) -> Result<f64, Refusal> {
        let value = self.take(field).ok_or_else(|| missing(field, example))?;
        let float = value.as_f64().filter(|float| float.is_finite());
        float.ok_or_else(|| wrong(field, "a finite number", &value))
    }

    /// A list of texts; empty where there is none.
    pub(super) fn texts(&mut self, field: &'static str) -> Result<Vec<String>, Refusal> {
        let list = match self.take(field) {
            None => return Ok(Vec::new()),
            Some(Value::Array(list)) if list.len() <= ENTRIES => list,
            Some(other) => return Err(wrong(field, "a list of texts", &other)),
        };
        let text = |value: Value| {
            let text = value.as_str().map(str::to_owned);
            text.ok_or_else(|| wrong(field, "a list of texts", &value))
        };
        list.into_iter().map(text).collect()
    }

    /// A table of texts; empty where there is none.
    pub(super) fn table(&mut self, field: &'static str) -> Result<BTreeMap<String, String>, Refusal> {
        let table = match self.take(field) {
            None => return Ok(BTreeMap::new()),
            Some(Value::Object(table)) if table.len() <= ENTRIES => table,
            Some(other) => return Err(wrong(field, "an object whose values are texts", &other)),
        };
        let entry = |(key, value): (String, Value)| {
            let text = value.as_str().map(|text| (key, text.to_owned()));
            text.ok_or_else(|| wrong(field, "an object whose values are texts", &value))
        };
        table.into_iter().map(entry).collect()
    }

    /// Whatever is left is unknown, and refused, so that a misspelt field does no silent harm.
    pub(super) fn finish(self) -> Result<(), Refusal> {
        match self.fields.into_iter().next() {
            None => Ok(()),
            Some((field, _)) => {
                let known = self.known.join(", ");
                let field: String = field.chars().take(64).collect();
                let message = format!("no field of this request has that name; there are: {known}");
                Err(Refusal::new("invalid", Some(&field), &message))
            }
        }
    }
}

/// A field whose value has another meaning than is allowed.
pub(super) fn invalid(field: &str, error: &dyn fmt::Display) -> Refusal {
    Refusal::new("invalid", Some(field), &error.to_string())
}

fn missing(field: &str, example: &str) -> Refusal {
    Refusal::new("invalid", Some(field), &format!("it is missing; write \"{field}\": {example}"))
}

fn wrong(field: &str, expected: &str, found: &Value) -> Refusal {
    let kind = match found {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    Refusal::new("invalid", Some(field), &format!("it must be {expected}, and is {kind} that is not"))
}
