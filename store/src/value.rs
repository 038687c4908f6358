//! Parameters and results of statements, the same for every backend.

use std::borrow::Cow;

use crate::bounds::{stored_count, stored_us};

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value<'a> {
    Null,
    Integer(i64),
    Real(f64),
    Bool(bool),
    /// Microseconds since the epoch.
    Time(i64),
    /// Text, or JSON as text.
    Text(Cow<'a, str>),
}

impl<'a> Value<'a> {
    pub(crate) const fn state(&self) -> &'static str {
        match self {
            Self::Null => "is NULL",
            Self::Integer(_) => "is an integer",
            Self::Real(_) => "is a floating-point number",
            Self::Bool(_) => "is a truth value",
            Self::Time(_) => "is a time",
            Self::Text(_) => "is text",
        }
    }

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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnType {
    Integer,
    Real,
    Bool,
    Time,
    Text,
    Json,
}

/// Name in the statement, and type, of a column of a [`Batch`] or of a row of numbers.
pub(crate) type Column = (&'static str, ColumnType);

/// Rows that one statement is applied to. The statement refers to them as a table named `new`, which `{new}`
/// stands for: `INSERT INTO node (node) SELECT node FROM {new}`.
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
    /// Rows have a value for each of `columns`.
    pub(crate) fn new<const N: usize>(
        columns: &'static [Column; N],
        rows: impl IntoIterator<Item = [Value<'a>; N]>,
    ) -> Self {
        Self { columns, rows: rows.into_iter().map(Vec::from).collect() }
    }

    /// Rows have a value for each of `columns`.
    pub(crate) const fn of_rows(columns: &'static [Column], rows: Vec<Vec<Value<'a>>>) -> Self {
        Self { columns, rows }
    }

    pub(crate) const fn columns(&self) -> &'static [Column] {
        self.columns
    }

    pub(crate) fn rows(&self) -> &[Vec<Value<'a>>] {
        &self.rows
    }

    /// Returns true if there are no rows, so that the statement need not be run.
    pub(crate) const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// Field of a row of numbers and times: an integer, a time in nanoseconds since the epoch, or the bits of a
/// floating-point number, as its column says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Number(u64);

impl Number {
    /// Stores an integer, or a time in nanoseconds since the epoch.
    pub(crate) const fn of_integer(integer: i64) -> Self {
        Self(integer.cast_unsigned())
    }

    /// Stores a floating-point number; NULL is NaN, which SQLite stores as NULL.
    pub(crate) fn of_real(real: Option<f64>) -> Self {
        Self(real.unwrap_or(f64::NAN).to_bits())
    }

    /// Returns an integer, or a time in nanoseconds since the epoch.
    pub(crate) const fn integer(self) -> i64 {
        self.0.cast_signed()
    }

    pub(crate) const fn real(self) -> f64 {
        f64::from_bits(self.0)
    }
}
