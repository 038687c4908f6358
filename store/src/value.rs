//! Parameters and results of statements, the same for every backend.

use std::borrow::Cow;

use crate::bounds::{stored_count, stored_us};

/// A parameter of a statement, or a field of a result.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value<'a> {
    /// NULL.
    Null,
    /// An integer of 64 bits.
    Integer(i64),
    /// A floating-point number.
    Real(f64),
    /// A truth value.
    Bool(bool),
    /// A time, in microseconds since the epoch.
    Time(i64),
    /// Text, or JSON as text.
    Text(Cow<'a, str>),
}

impl<'a> Value<'a> {
    /// Returns a time that an agent reported, limited to the range of every backend.
    pub(crate) fn time(time_us: i64) -> Self {
        Self::Time(stored_us(time_us))
    }

    /// Returns a count that an agent reported, limited to the range of every backend.
    pub(crate) fn count(count: u64) -> Self {
        Self::Integer(stored_count(count))
    }
}

impl From<i64> for Value<'_> {
    fn from(integer: i64) -> Self {
        Self::Integer(integer)
    }
}

impl From<u32> for Value<'_> {
    fn from(integer: u32) -> Self {
        Self::Integer(integer.into())
    }
}

impl From<f64> for Value<'_> {
    fn from(real: f64) -> Self {
        Self::Real(real)
    }
}

impl From<bool> for Value<'_> {
    fn from(truth: bool) -> Self {
        Self::Bool(truth)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// The type of a column of a [`Batch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnType {
    /// An integer of 64 bits.
    Integer,
    /// A floating-point number.
    Real,
    /// A truth value.
    Bool,
    /// A time.
    Time,
    /// Text.
    Text,
    /// A JSON document.
    Json,
}

/// A column of a [`Batch`]: its name in the statement, and its type.
pub(crate) type Column = (&'static str, ColumnType);

/// The rows that one statement is applied to. The statement refers to them as a table named `new`, which
/// `{new}` stands for: `INSERT INTO node (node) SELECT node FROM {new}`.
///
/// A server receives all rows in one round trip; an embedded database runs the prepared statement row by row.
/// A statement must therefore have the same result in both cases. In an INSERT with ON CONFLICT, `{new}` is
/// followed by `WHERE true`: otherwise SQLite parses ON as part of a join.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    columns: &'static [Column],
    rows: Vec<Vec<Value<'a>>>,
}

impl<'a> Batch<'a> {
    /// Returns a batch of rows with a value for each of `columns`.
    pub(crate) fn new<const N: usize>(
        columns: &'static [Column; N],
        rows: impl IntoIterator<Item = [Value<'a>; N]>,
    ) -> Self {
        Self { columns, rows: rows.into_iter().map(Vec::from).collect() }
    }

    /// Returns the columns.
    pub(crate) const fn columns(&self) -> &'static [Column] {
        self.columns
    }

    /// Returns the rows.
    pub(crate) fn rows(&self) -> &[Vec<Value<'a>>] {
        &self.rows
    }

    /// Returns true if there are no rows, so that the statement need not be run.
    pub(crate) const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// A row of a result, whose fields are taken from left to right. A field of an unexpected type counts as
/// NULL.
#[derive(Debug)]
pub(crate) struct Row {
    fields: std::vec::IntoIter<Value<'static>>,
}

impl Row {
    /// Returns a row of `fields`.
    pub(crate) fn new(fields: Vec<Value<'static>>) -> Self {
        Self { fields: fields.into_iter() }
    }

    /// Takes the next field unchanged, to be passed on as a parameter.
    pub(crate) fn value(&mut self) -> Value<'static> {
        self.fields.next().unwrap_or(Value::Null)
    }

    /// Takes the next field as an integer.
    pub(crate) fn optional_integer(&mut self) -> Option<i64> {
        match self.value() {
            Value::Integer(integer) => Some(integer),
            Value::Bool(truth) => Some(i64::from(truth)),
            Value::Null | Value::Real(_) | Value::Time(_) | Value::Text(_) => None,
        }
    }

    /// Takes the next field as an integer, 0 for NULL.
    pub(crate) fn integer(&mut self) -> i64 {
        self.optional_integer().unwrap_or_default()
    }

    /// Takes the next field as a count, 0 for NULL.
    pub(crate) fn count(&mut self) -> u64 {
        u64::try_from(self.integer()).unwrap_or_default()
    }

    /// Takes the next field as a truth value, which SQLite returns as 0 or 1.
    pub(crate) fn boolean(&mut self) -> bool {
        self.integer() != 0
    }

    /// Takes the next field as a time, in nanoseconds since the epoch. SQLite stores times as such integers.
    pub(crate) fn optional_time_ns(&mut self) -> Option<i64> {
        match self.value() {
            Value::Integer(time_ns) => Some(time_ns),
            Value::Time(time_us) => Some(time_us.saturating_mul(1000)),
            Value::Null | Value::Real(_) | Value::Bool(_) | Value::Text(_) => None,
        }
    }

    /// Takes the next field as a time, in nanoseconds since the epoch, 0 for NULL.
    pub(crate) fn time_ns(&mut self) -> i64 {
        self.optional_time_ns().unwrap_or_default()
    }

    /// Takes the next field as text.
    pub(crate) fn optional_text(&mut self) -> Option<String> {
        match self.value() {
            Value::Text(text) => Some(text.into_owned()),
            Value::Null | Value::Integer(_) | Value::Real(_) | Value::Bool(_) | Value::Time(_) => None,
        }
    }

    /// Returns the remaining text fields, joined.
    pub(crate) fn into_text(mut self) -> String {
        let mut texts = Vec::new();
        for field in self.fields.by_ref() {
            if let Value::Text(text) = field {
                texts.push(text.into_owned());
            }
        }
        texts.concat()
    }

    /// Takes the next field as text, empty for NULL.
    pub(crate) fn text(&mut self) -> String {
        self.optional_text().unwrap_or_default()
    }
}

/// A row of numbers and times, which is reused for the next row of a stream.
#[derive(Debug, Default)]
pub(crate) struct NumberRow {
    /// Integers, times in nanoseconds since the epoch, and the bits of floating-point numbers.
    fields: Vec<u64>,
}

impl NumberRow {
    /// Removes all fields.
    pub(crate) fn clear(&mut self) {
        self.fields.clear();
    }

    /// Appends an integer, or a time in nanoseconds since the epoch.
    pub(crate) fn push_integer(&mut self, integer: i64) {
        self.fields.push(integer.cast_unsigned());
    }

    /// Appends a floating-point number; NULL is NaN, as which SQLite stores it.
    pub(crate) fn push_real(&mut self, real: Option<f64>) {
        self.fields.push(real.unwrap_or(f64::NAN).to_bits());
    }

    /// Returns a field as an integer, or as a time in nanoseconds since the epoch; 0 if there is none.
    pub(crate) fn integer(&self, field: usize) -> i64 {
        self.fields.get(field).copied().unwrap_or_default().cast_signed()
    }

    /// Returns a field as a count.
    pub(crate) fn count(&self, field: usize) -> u64 {
        u64::try_from(self.integer(field)).unwrap_or_default()
    }

    /// Returns a field as a floating-point number; NaN if there is none.
    pub(crate) fn real(&self, field: usize) -> f64 {
        self.fields.get(field).map_or(f64::NAN, |bits| f64::from_bits(*bits))
    }
}
