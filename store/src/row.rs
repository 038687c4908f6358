//! Rows of results. A field that has another type than its reader expects is an error that names the column:
//! it never counts as 0 or as an empty text.

use std::sync::Arc;

use polymeter_proto::run::Run;
use polymeter_proto::series::{Labels, Role, SessionId};

use crate::error::{DatabaseError, ErrorKind};
use crate::labels::parse_labels;
use crate::retention::{Keep, Level};
use crate::value::Value;

/// Row of a result, whose fields are taken from left to right.
#[derive(Debug)]
pub(crate) struct Row {
    /// Names of the columns as the database reports them, which all rows of a result share.
    columns: Arc<[String]>,
    fields: std::vec::IntoIter<Value<'static>>,
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct UnexpectedField(String);

/// Returns the error for a field of the column `number`, counted from 1, without a name if the result lacks
/// it. `found` is the state of the field, such as "is NULL", `expected` a type, such as "a time".
pub(crate) fn unexpected(number: usize, name: Option<&str>, found: &str, expected: &str) -> DatabaseError {
    let name = name.map_or_else(String::new, |name| format!(" ({name})"));
    let message = format!("column {number}{name} {found} where {expected} is expected");
    DatabaseError::new(ErrorKind::Other, UnexpectedField(message))
}

impl Row {
    pub(crate) fn new(columns: Arc<[String]>, fields: Vec<Value<'static>>) -> Self {
        Self { columns, fields: fields.into_iter() }
    }

    /// Takes the next fields. Fails if one of them is missing, NULL or of another type.
    pub(crate) fn get<T: FromRow>(&mut self) -> Result<T, DatabaseError> {
        T::from_row(self)
    }

    pub(crate) fn into_text(self) -> String {
        self.fields
            .filter_map(|field| if let Value::Text(text) = field { Some(text) } else { None })
            .collect()
    }

    fn field<T: Field>(&mut self) -> Result<T, DatabaseError> {
        let number = self.columns.len().saturating_sub(self.fields.len()) + 1;
        let field = self.fields.next();
        let found = field.as_ref().map_or("is missing", Value::state);
        let name = self.columns.get(number - 1).map(String::as_str);
        field.and_then(T::from_value).ok_or_else(|| unexpected(number, name, found, T::EXPECTED))
    }
}

/// Type that the next fields of a row are converted to.
pub(crate) trait FromRow: Sized {
    fn from_row(row: &mut Row) -> Result<Self, DatabaseError>;
}

pub(crate) trait Field: Sized {
    const EXPECTED: &'static str;

    /// Converts a field; none if it has another type.
    fn from_value(value: Value<'static>) -> Option<Self>;
}

impl<T: Field> FromRow for T {
    fn from_row(row: &mut Row) -> Result<Self, DatabaseError> {
        row.field()
    }
}

impl<T: Field> FromRow for Option<T> {
    fn from_row(row: &mut Row) -> Result<Self, DatabaseError> {
        if row.fields.as_slice().first() == Some(&Value::Null) {
            row.fields.next();
            return Ok(None);
        }
        row.field().map(Some)
    }
}

macro_rules! tuples {
    ($(($($type:ident),+)),+) => {$(
        impl<$($type: FromRow),+> FromRow for ($($type,)+) {
            fn from_row(row: &mut Row) -> Result<Self, DatabaseError> {
                Ok(($($type::from_row(row)?,)+))
            }
        }
    )+};
}

tuples!((A, B), (A, B, C));

/// Implements [`FromRow`] for a structure whose fields are listed in the order of the columns, a time with
/// its unit: `from_row!(Taken { number, at_us: TimeUs });`
macro_rules! from_row {
    ($type:ident { $($field:ident $(: $time:ident)?),+ $(,)? }) => {
        impl $crate::row::FromRow for $type {
            fn from_row(row: &mut $crate::row::Row) -> Result<Self, $crate::DatabaseError> {
                Ok(Self { $($field: $crate::row::from_row!(@row $($time)?)),+ })
            }
        }
    };
    (@ $row:ident) => { $row.get()? };
    (@ $row:ident $time:ident) => { $row.get::<$crate::row::$time<_>>()?.0 };
}
pub(crate) use from_row;

impl Field for i64 {
    const EXPECTED: &'static str = "an integer";

    fn from_value(value: Value<'static>) -> Option<Self> {
        if let Value::Integer(integer) = value { Some(integer) } else { None }
    }
}

impl Field for f64 {
    const EXPECTED: &'static str = "a number";

    fn from_value(value: Value<'static>) -> Option<Self> {
        if let Value::Real(real) = value { Some(real) } else { None }
    }
}

macro_rules! unsigned {
    ($($type:ident),+) => {$(
        impl Field for $type {
            const EXPECTED: &'static str = "a count";

            fn from_value(value: Value<'static>) -> Option<Self> {
                i64::from_value(value)?.try_into().ok()
            }
        }
    )+};
}

unsigned!(u32, u64, usize);

impl Field for bool {
    const EXPECTED: &'static str = "a truth value";

    fn from_value(value: Value<'static>) -> Option<Self> {
        match value {
            Value::Bool(truth) => Some(truth),
            // SQLite's truth values.
            Value::Integer(0) => Some(false),
            Value::Integer(1) => Some(true),
            Value::Integer(_) | Value::Null | Value::Real(_) | Value::Time(_) | Value::Text(_) => None,
        }
    }
}

impl Field for String {
    const EXPECTED: &'static str = "text";

    fn from_value(value: Value<'static>) -> Option<Self> {
        if let Value::Text(text) = value { Some(text.into_owned()) } else { None }
    }
}

struct Pairs(Labels);

impl Field for Pairs {
    const EXPECTED: &'static str = "an object of labels";

    fn from_value(value: Value<'static>) -> Option<Self> {
        parse_labels(&String::from_value(value)?).map(Self)
    }
}

impl Field for Role {
    const EXPECTED: &'static str = "the role of a device";

    fn from_value(value: Value<'static>) -> Option<Self> {
        String::from_value(value)?.parse().ok()
    }
}

/// Takes the labels, then the role of the device that they name, or NULL.
impl FromRow for Labels {
    fn from_row(row: &mut Row) -> Result<Self, DatabaseError> {
        let Pairs(labels) = row.get()?;
        Ok(labels.with_role(row.get()?))
    }
}

impl Field for Run {
    const EXPECTED: &'static str = "a run as JSON";

    fn from_value(value: Value<'static>) -> Option<Self> {
        serde_json::from_str(&String::from_value(value)?).ok()
    }
}

impl Field for SessionId {
    const EXPECTED: &'static str = "the id of a session";

    fn from_value(value: Value<'static>) -> Option<Self> {
        u64::from_str_radix(&String::from_value(value)?, 16).ok().map(Self)
    }
}

impl Field for Level {
    const EXPECTED: &'static str = "a relation of samples";

    fn from_value(value: Value<'static>) -> Option<Self> {
        Self::of_relation(&String::from_value(value)?)
    }
}

impl FromRow for Keep {
    fn from_row(row: &mut Row) -> Result<Self, DatabaseError> {
        Ok(Self::from_days(row.get()?))
    }
}

/// Time in nanoseconds since the epoch, as SQLite stores times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeNs<T = i64>(pub(crate) T);

/// Time in microseconds since the epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeUs<T = i64>(pub(crate) T);

impl Field for TimeNs {
    const EXPECTED: &'static str = "a time";

    fn from_value(value: Value<'static>) -> Option<Self> {
        match value {
            Value::Integer(time_ns) => Some(Self(time_ns)),
            Value::Time(time_us) => Some(Self(time_us.saturating_mul(1000))),
            Value::Null | Value::Real(_) | Value::Bool(_) | Value::Text(_) => None,
        }
    }
}

impl FromRow for TimeNs<Option<i64>> {
    fn from_row(row: &mut Row) -> Result<Self, DatabaseError> {
        Ok(Self(row.get::<Option<TimeNs>>()?.map(|TimeNs(time_ns)| time_ns)))
    }
}

impl FromRow for TimeUs {
    fn from_row(row: &mut Row) -> Result<Self, DatabaseError> {
        Ok(Self(row.get::<TimeNs>()?.0 / 1000))
    }
}

impl FromRow for TimeUs<Option<i64>> {
    fn from_row(row: &mut Row) -> Result<Self, DatabaseError> {
        Ok(Self(row.get::<Option<TimeNs>>()?.map(|TimeNs(time_ns)| time_ns / 1000)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite;

    #[derive(Debug, PartialEq)]
    struct Example {
        number: i64,
        name: Option<String>,
        at_us: i64,
    }

    from_row!(Example { number, name, at_us: TimeUs });

    fn examples(statement: &str) -> Result<Vec<Example>, String> {
        let (_directory, mut connection) = sqlite::new_store();
        connection.select(statement, &[]).map_err(|error| error.to_string())
    }

    #[test]
    fn rows_are_converted_from_left_to_right() {
        let found = examples("SELECT 1, 'a', 3000 UNION ALL SELECT 2, NULL, 5000 ORDER BY 1").unwrap();
        let example =
            |number, name: Option<&str>, at_us| Example { number, name: name.map(str::to_owned), at_us };
        assert_eq!(found, [example(1, Some("a"), 3), example(2, None, 5)]);
    }

    #[test]
    fn an_unexpected_field_is_an_error_that_names_the_column() {
        let error = |statement| examples(statement).unwrap_err();
        assert_eq!(
            error("SELECT NULL AS number, 'a', 3000"),
            "column 1 (number) is NULL where an integer is expected"
        );
        assert_eq!(
            error("SELECT 1, 2 AS name, 3000"),
            "column 2 (name) is an integer where text is expected"
        );
        assert_eq!(
            error("SELECT 1, 'a', 0.5 AS at"),
            "column 3 (at) is a floating-point number where a time is expected"
        );
        assert_eq!(error("SELECT 1, 'a'"), "column 3 is missing where a time is expected");
        assert!(error("SELECT 1, x'00' AS name, 3000").contains("name: name"), "a blob");
    }

    #[test]
    fn numbers_and_texts_have_the_form_of_their_types() {
        let (_directory, mut connection) = sqlite::new_store();
        let connection = &mut *connection;
        let count = connection.select_one::<u64>("SELECT -1 AS count", &[]).unwrap_err();
        assert_eq!(count.to_string(), "column 1 (count) is an integer where a count is expected");
        let truth = connection.select::<(bool, bool)>("SELECT 1, 2 AS truth", &[]).unwrap_err();
        assert_eq!(truth.to_string(), "column 2 (truth) is an integer where a truth value is expected");
        let session = connection.select_first::<SessionId>("SELECT 'xyz' AS id", &[]).unwrap_err();
        assert_eq!(session.to_string(), "column 1 (id) is text where the id of a session is expected");
        assert_eq!(connection.select_first::<i64>("SELECT 1 WHERE false", &[]).unwrap(), None);
        let none = connection.select_one::<i64>("SELECT 1 WHERE false", &[]).unwrap_err();
        assert_eq!(none.to_string(), "the statement returned no row");
    }
}
