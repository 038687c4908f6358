//! Format of a log event on one line. Pure.

use std::fmt::Write;
use std::str::FromStr;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use tracing::Level;
use tracing::field::{Field, Visit};

use super::chain::chain;
use crate::printable::printable;
use crate::time_text::rfc3339;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// `PROGRAM: LEVEL: MESSAGE: ERROR; REMEDY [FIELD=VALUE ...]`.
    #[default]
    Text,
    Json,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown log format `{0}`: expected text or json")]
pub struct UnknownFormat(String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(UnknownFormat(text.to_owned())),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
enum Value {
    Text(String),
    Integer(i64),
    Unsigned(u64),
    Float(f64),
    Boolean(bool),
}

#[derive(Debug, Default)]
pub(super) struct Record {
    message: String,
    error: Option<String>,
    remedy: Option<String>,
    fields: Vec<(&'static str, Value)>,
}

impl Record {
    fn record(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::Text(text)) => self.message = text,
            ("error", Value::Text(text)) => self.error = Some(text),
            ("remedy", Value::Text(text)) => self.remedy = Some(text),
            (name, value) => self.fields.push((name, value)),
        }
    }
}

impl Visit for Record {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.record(field, Value::Text(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record(field, Value::Text(value.to_owned()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.record(field, Value::Integer(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.record(field, Value::Unsigned(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.record(field, Value::Float(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.record(field, Value::Boolean(value));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.record(field, Value::Text(chain(value)));
    }
}

pub(super) const fn word(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warning",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

impl Record {
    /// Formats the event for people, without program and level. Values may be untrusted: characters that
    /// control a terminal or change the direction of writing are replaced.
    pub(super) fn to_text(&self) -> String {
        let mut text = self.message.clone();
        for (separator, part) in [(": ", &self.error), ("; ", &self.remedy)] {
            if let Some(part) = part {
                text.push_str(separator);
                text.push_str(part);
            }
        }
        for (at, (name, value)) in self.fields.iter().enumerate() {
            text.push_str(if at == 0 { " [" } else { " " });
            // Writing to a string cannot fail.
            match value {
                Value::Text(value) if is_plain(value) => write!(text, "{name}={value}"),
                Value::Text(value) => write!(text, "{name}={value:?}"),
                Value::Integer(value) => write!(text, "{name}={value}"),
                Value::Unsigned(value) => write!(text, "{name}={value}"),
                Value::Float(value) => write!(text, "{name}={value}"),
                Value::Boolean(value) => write!(text, "{name}={value}"),
            }
            .ok();
        }
        if !self.fields.is_empty() {
            text.push(']');
        }
        printable(&text, usize::MAX)
    }

    pub(super) fn to_json(&self, program: &str, level: Level, target: &str, wall_us: i64) -> String {
        let mut bytes = Vec::new();
        let mut serializer = serde_json::Serializer::new(&mut bytes);
        let written = (|| {
            let mut map = serializer.serialize_map(None)?;
            map.serialize_entry("time", &rfc3339(wall_us))?;
            map.serialize_entry("level", word(level))?;
            map.serialize_entry("program", program)?;
            map.serialize_entry("target", target)?;
            map.serialize_entry("message", &self.message)?;
            for (name, value) in [("error", &self.error), ("remedy", &self.remedy)] {
                if let Some(value) = value {
                    map.serialize_entry(name, value)?;
                }
            }
            for (name, value) in &self.fields {
                map.serialize_entry(name, value)?;
            }
            map.end()
        })();
        // Serialising strings and numbers cannot fail, and yields valid UTF-8.
        written.ok().and_then(|()| String::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

fn is_plain(value: &str) -> bool {
    !value.is_empty() && !value.contains([' ', '"', '=', '[', ']', '\n'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            message: "cannot open the spool".to_owned(),
            error: Some("permission denied".to_owned()),
            remedy: Some("type: chown 7 /s".to_owned()),
            fields: vec![
                ("path", Value::Text("/s".to_owned())),
                ("job", Value::Text("a b".to_owned())),
                ("frames", Value::Unsigned(3)),
                ("empty", Value::Text(String::new())),
                ("full", Value::Boolean(true)),
            ],
        }
    }

    #[test]
    fn text_states_message_cause_remedy_and_fields() {
        assert_eq!(
            record().to_text(),
            "cannot open the spool: permission denied; type: chown 7 /s \
             [path=/s job=\"a b\" frames=3 empty=\"\" full=true]"
        );
    }

    #[test]
    fn text_is_one_line_without_control_characters() {
        let record = Record { message: "a\nb\u{1b}[31m\u{202e}c".to_owned(), ..Record::default() };
        assert_eq!(record.to_text(), "a b?[31m?c");
    }

    #[test]
    fn json_is_one_object_with_typed_fields() {
        let text = record().to_json("polymeter-agent", Level::WARN, "polymeter_agent::delivery", 0);
        assert!(!text.contains('\n'));
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let expected = serde_json::json!({
            "time": "1970-01-01T00:00:00.000000Z", "level": "warning", "program": "polymeter-agent",
            "target": "polymeter_agent::delivery", "message": "cannot open the spool",
            "error": "permission denied", "remedy": "type: chown 7 /s",
            "path": "/s", "job": "a b", "frames": 3, "empty": "", "full": true,
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn formats_have_names() {
        assert_eq!(("text".parse(), "json".parse()), (Ok(Format::Text), Ok(Format::Json)));
        let unknown = "xml".parse::<Format>().unwrap_err().to_string();
        assert_eq!(unknown, "unknown log format `xml`: expected text or json");
    }
}
