//! Statements, parameters and functions in SQLite's form. Pure.

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::{ToSqlOutput, Type, Value as SqlValue, ValueRef};
use rusqlite::{Connection, ToSql};

use crate::backend::Dialect;
use crate::value::{Batch, Column, ColumnType, Number, Value};

pub(super) static DIALECT: Dialect = Dialect {
    same_labels: "its.labels = new.labels",
    // A transaction locks the whole file.
    for_update: "",
    for_key_share: "",
    skip_locked: "",
    // An update of a ledger row costs no more than a sample.
    defers_ledger: false,
    explain: "EXPLAIN QUERY PLAN",
    now: "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000000",
    has_rights: None,
    // An index has the names of all jobs side by side.
    named_partly: r"job_key IN (SELECT job_key FROM job WHERE name IS NOT NULL AND lower(name) LIKE lower(CAST(? AS text)) ESCAPE '\')",
    // Each id of a list is looked up in the index, in their order.
    has_ordered_ranges: false,
    skips_nulls: false,
    is_one_of,
    time: |time_us| time_us.saturating_mul(1000).to_string(),
    buckets: |relation, _, _, _| relation.to_owned(),
};

/// A list of literals would be compiled one by one.
fn is_one_of(ids: &[i64]) -> String {
    format!("IN (SELECT value FROM json_each('{}'))", serde_json::Value::from(ids))
}

/// Converts `statement` to SQLite's form: fragments are filled in, and `$1` becomes `?1`, since SQLite treats
/// `$1` as a name.
pub(super) fn translate(statement: &str) -> String {
    DIALECT.fill(statement).replace('$', "?")
}

/// Converts `statement` for one row of `batch`: `{new}` becomes a table of one row, whose columns are
/// parameters.
pub(super) fn translate_batch(statement: &str, batch: &Batch<'_>) -> String {
    let columns: Vec<_> =
        (1..).zip(batch.columns()).map(|(number, (name, _))| format!("?{number} AS {name}")).collect();
    translate(statement).replace("{new}", &format!("(SELECT {}) AS new", columns.join(", ")))
}

/// Adds the functions `greatest` and `least`, which ignore NULL as in PostgreSQL, unlike SQLite's own `max`
/// and `min`.
pub(super) fn add_functions(connection: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("greatest", 2, flags, |context| choose(context, i64::max))?;
    connection.create_scalar_function("least", 2, flags, |context| choose(context, i64::min))
}

fn choose(context: &Context<'_>, of: fn(i64, i64) -> i64) -> rusqlite::Result<Option<i64>> {
    let (a, b): (Option<i64>, Option<i64>) = (context.get(0)?, context.get(1)?);
    Ok(match (a, b) {
        (Some(a), Some(b)) => Some(of(a, b)),
        (a, b) => a.or(b),
    })
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Self::Integer(integer) => ToSqlOutput::Owned(SqlValue::Integer(*integer)),
            Self::Real(real) => ToSqlOutput::Owned(SqlValue::Real(*real)),
            Self::Bool(truth) => ToSqlOutput::Owned(SqlValue::Integer((*truth).into())),
            Self::Time(time_us) => ToSqlOutput::Owned(SqlValue::Integer(time_us.saturating_mul(1000))),
            Self::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
        })
    }
}

pub(super) fn field(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Value<'static>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(integer) => Value::Integer(integer),
        ValueRef::Real(real) => Value::Real(real),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned().into(),
        ValueRef::Blob(_) => {
            let name = row.as_ref().column_name(column)?.to_owned();
            return Err(rusqlite::Error::InvalidColumnType(column, name, Type::Blob));
        }
    })
}

/// Reads those of `columns` that `row` has into `numbers`.
pub(super) fn read_numbers(
    row: &rusqlite::Row<'_>,
    columns: &[Column],
    numbers: &mut Vec<Number>,
) -> rusqlite::Result<()> {
    numbers.clear();
    for (number, (_, column)) in columns.iter().enumerate().take(row.as_ref().column_count()) {
        numbers.push(match column {
            ColumnType::Real => Number::of_real(row.get(number)?),
            ColumnType::Integer
            | ColumnType::Bool
            | ColumnType::Time
            | ColumnType::Text
            | ColumnType::Json => Number::of_integer(row.get(number)?),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::ColumnType;

    #[test]
    fn translates_parameters_and_rows() {
        assert_eq!(translate("SELECT $1, $2 WHERE a = $1{for_update}"), "SELECT ?1, ?2 WHERE a = ?1");
        let columns = &[("node", ColumnType::Text), ("seen", ColumnType::Time)];
        let batch = Batch::new(columns, [["n".into(), Value::Time(1)]]);
        assert_eq!(
            translate_batch("INSERT INTO node SELECT node, seen FROM {new} WHERE true", &batch),
            "INSERT INTO node SELECT node, seen FROM (SELECT ?1 AS node, ?2 AS seen) AS new WHERE true"
        );
    }

    #[test]
    fn greatest_and_least_ignore_null() {
        let connection = Connection::open_in_memory().unwrap();
        add_functions(&connection).unwrap();
        let number = |sql: &str| -> Option<i64> {
            connection.query_row(&format!("SELECT {sql}"), (), |row| row.get(0)).unwrap()
        };
        assert_eq!(number("greatest(1, 2)"), Some(2));
        assert_eq!(number("least(1, 2)"), Some(1));
        assert_eq!(number("greatest(NULL, 2)"), Some(2));
        assert_eq!(number("least(1, NULL)"), Some(1));
        assert_eq!(number("greatest(NULL, NULL)"), None);
    }
}
