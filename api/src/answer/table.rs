//! Rows as JSON and CSV. Columns are declared as data, from which both and the document of the API follow.

use std::borrow::Borrow;

use polymeter_service::safe_text;
use serde_json::{Map, Value, json};

use super::body::{Chunks, Failure};
use super::format::Format;
use super::problem::Problem;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Integer,
    Number,
    Text,
    Boolean,
    /// List; in CSV, separated by spaces.
    Texts,
    /// An object of texts; in CSV, JSON.
    Labels,
    /// Object; in CSV, JSON.
    Run,
}

pub(crate) struct Column<T: 'static> {
    pub(crate) name: &'static str,
    pub(crate) of: Type,
    pub(crate) is_optional: bool,
    pub(crate) help: &'static str,
    pub(crate) value: fn(&T) -> Value,
}

impl<T> Column<T> {
    pub(crate) const fn new(
        name: &'static str,
        of: Type,
        help: &'static str,
        value: fn(&T) -> Value,
    ) -> Self {
        Self { name, of, is_optional: false, help, value }
    }

    pub(crate) const fn optional(
        name: &'static str,
        of: Type,
        help: &'static str,
        value: fn(&T) -> Value,
    ) -> Self {
        Self { name, of, is_optional: true, help, value }
    }

    fn schema(&self) -> Value {
        let (of, further) = match self.of {
            Type::Integer => ("integer", None),
            Type::Number => ("number", None),
            Type::Text => ("string", None),
            Type::Boolean => ("boolean", None),
            Type::Texts => ("array", Some(("items", json!({"type": "string"})))),
            Type::Labels => ("object", Some(("additionalProperties", json!({"type": "string"})))),
            Type::Run => ("object", Some(("properties", run_properties()))),
        };
        let types = if self.is_optional { json!([of, "null"]) } else { json!(of) };
        let mut schema = json!({"type": types, "description": self.help});
        if let (Some((name, value)), Some(members)) = (further, schema.as_object_mut()) {
            members.insert(name.to_owned(), value);
        }
        schema
    }
}

/// Schemas of a run's members.
fn run_properties() -> Value {
    let text = json!({"type": "string"});
    let name = json!({"type": ["string", "null"]});
    json!({
        "command": {"type": "array", "items": text}, "is_cut": {"type": "boolean"}, "directory": name,
        "host": name, "environment": {"type": "object", "additionalProperties": text},
    })
}

pub(crate) struct Table<T: 'static> {
    /// Name of the list in the JSON form.
    pub(crate) name: &'static str,
    pub(crate) columns: &'static [Column<T>],
}

impl<T> Table<T> {
    pub(crate) fn row_schema(&self) -> Value {
        let properties: Map<String, Value> =
            self.columns.iter().map(|column| (column.name.to_owned(), column.schema())).collect();
        let required: Vec<&str> = self.columns.iter().map(|column| column.name).collect();
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
    }

    /// Schema of the JSON form, with further members.
    pub(crate) fn schema(&self, further: &[(&str, Value)]) -> Value {
        let mut properties = Map::new();
        properties.insert(self.name.to_owned(), json!({"type": "array", "items": self.row_schema()}));
        properties.extend(further.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())));
        let required: Vec<&String> = properties.keys().collect();
        json!({"type": "object", "required": required, "properties": properties, "additionalProperties": false})
    }

    pub(crate) fn object(&self, row: &T) -> Value {
        let members = self.columns.iter().map(|column| (column.name.to_owned(), (column.value)(row)));
        Value::Object(members.collect())
    }

    pub(crate) fn write<R: Borrow<T>>(
        &self,
        chunks: &mut Chunks,
        rows: impl IntoIterator<Item = R>,
        further: &[(&str, Value)],
    ) -> Result<(), Failure> {
        match chunks.format {
            Format::Json => {
                chunks.write(format!("{{\"{}\":[", self.name).as_bytes())?;
                for (number, row) in rows.into_iter().enumerate() {
                    let separator = if number > 0 { "," } else { "" };
                    chunks.write(format!("{separator}{}", self.object(row.borrow())).as_bytes())?;
                }
                chunks.write(b"]")?;
                for (name, value) in further {
                    chunks.write(format!(",\"{name}\":{value}").as_bytes())?;
                }
                chunks.write(b"}")
            }
            Format::Csv => {
                let names: Vec<&str> = self.columns.iter().map(|column| column.name).collect();
                chunks.write(format!("{}\r\n", names.join(",")).as_bytes())?;
                for row in rows {
                    let fields = self.columns.iter().map(|column| csv_field(&(column.value)(row.borrow())));
                    chunks.write(format!("{}\r\n", fields.collect::<Vec<_>>().join(",")).as_bytes())?;
                }
                Ok(())
            }
            Format::Events | Format::Parquet => Err(Problem::internal().into()),
        }
    }
}

pub(crate) fn csv_field(value: &Value) -> String {
    let text = match value {
        Value::Null => return String::new(),
        Value::Bool(_) | Value::Number(_) => return value.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(values) => {
            values.iter().map(|value| value.as_str().unwrap_or_default()).collect::<Vec<_>>().join(" ")
        }
        Value::Object(members) if members.is_empty() => return String::new(),
        Value::Object(_) => value.to_string(),
    };
    safe_text::csv_field(&text).into_owned()
}

/// Null unless the number is finite.
pub(crate) fn number(value: f64) -> Value {
    json!(value)
}

pub(crate) const fn micros(time_ns: i64) -> i64 {
    time_ns.div_euclid(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_csv_are_quoted() {
        for (value, expected) in [
            (json!(null), ""),
            (json!(7), "7"),
            (json!(true), "true"),
            (json!("plain"), "plain"),
            (json!("a,b"), "\"a,b\""),
            (json!("say \"x\"\r\n"), "\"say \"\"x\"\"\\u{d}\\u{a}\""),
            (json!("=1+1"), "'=1+1"),
            (json!("@SUM(A1),2"), "\"'@SUM(A1),2\""),
            (json!("\t=1"), "'\\u{9}=1"),
            (json!("-5"), "-5"),
            (json!(-5), "-5"),
            (json!(["=1", "n2"]), "'=1 n2"),
            (json!(["n1", "n2"]), "n1 n2"),
            (json!({"cpu": "1"}), "\"{\"\"cpu\"\":\"\"1\"\"}\""),
            (json!({}), ""),
        ] {
            assert_eq!(csv_field(&value), expected, "{value}");
        }
    }

    #[test]
    fn numbers_without_a_json_form_are_null() {
        assert_eq!(
            (number(1.5), number(f64::NAN), number(f64::INFINITY)),
            (json!(1.5), json!(null), json!(null))
        );
    }
}
