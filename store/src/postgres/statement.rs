//! Statements, parameters and results in PostgreSQL's form. Pure.

use std::error::Error;
use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

use super::copy::Timestamp;
use crate::backend::{Dialect, NAMED_PARTLY};
use crate::error::DatabaseError;
use crate::row::{Row, unexpected};
use crate::value::{Batch, ColumnType, Value};

/// Rollups are tables and partitions.
pub(super) static DIALECT: Dialect = PARTITIONS;

/// Rollups are continuous aggregates: their views have the times that the planner needs, and a function takes
/// it seconds. Samples are compressed.
pub(super) static CONTINUOUS_DIALECT: Dialect =
    Dialect { skips_nulls: true, buckets: |relation, _, _, _| relation.to_owned(), ..PARTITIONS };

/// Samples are distributed: a function takes the ids of the series, since conditions do not reach the shards.
pub(super) static CITUS_DIALECT: Dialect = Dialect {
    buckets: |relation, begin, end, series| {
        let ids: Vec<_> = series.ids().map(|id| id.to_string()).collect();
        format!("{relation}_between({begin}, {end}, '{{{}}}'::int8[])", ids.join(","))
    },
    ..PARTITIONS
};

const PARTITIONS: Dialect = Dialect {
    // The labels of a series may exceed the size of an index entry; their digest does not.
    same_labels: "md5(CAST(its.labels AS text)) = md5(CAST(new.labels AS text))",
    for_key_share: " FOR KEY SHARE",
    for_update: " FOR UPDATE",
    skip_locked: " FOR UPDATE OF old SKIP LOCKED",
    defers_ledger: true,
    explain: "EXPLAIN",
    now: "now()",
    has_rights: Some(
        "SELECT coalesce(has_table_privilege(to_regrole(CAST($1 AS text))::oid, to_regclass('jobs')::oid, 'SELECT'), false)",
    ),
    named_partly: NAMED_PARTLY,
    has_ordered_ranges: true,
    skips_nulls: false,
    is_one_of: |ids| {
        let ids: Vec<_> = ids.iter().map(ToString::to_string).collect();
        format!("= ANY ('{{{}}}'::int8[])", ids.join(","))
    },
    // Unlike a sum of a timestamp and an interval, it is immutable: the planner excludes partitions by it.
    time: |time_us| format!("to_timestamp({}.{:06})", time_us / 1_000_000, time_us % 1_000_000),
    // Beside partitions the view hides the times of samples behind the computed intervals from the planner.
    buckets: |relation, begin, end, _| format!("{relation}_between({begin}, {end})"),
};

/// Version of the binary format of `jsonb`, which precedes the text.
const JSONB_VERSION: u8 = 1;

/// Returns `statement` for all rows of `batch`: `{new}` becomes a table of one array per column.
pub(super) fn expand(statement: &str, batch: &Batch<'_>) -> String {
    let arrays: Vec<_> = (1..=batch.columns().len()).map(|number| format!("${number}")).collect();
    let names: Vec<_> = batch.columns().iter().map(|(name, _)| *name).collect();
    let new = format!("unnest({}) AS new ({})", arrays.join(", "), names.join(", "));
    DIALECT.fill(statement).replace("{new}", &new)
}

/// Returns the columns of `batch` as parameters of [`expand`], with their types. A statement with typed
/// parameters takes one round trip; otherwise the server is first asked for the types.
pub(super) fn arrays<'a>(
    batch: &Batch<'_>,
    columns: &'a [Vec<&'a Value<'a>>],
) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    let mut arrays: Vec<(&'a (dyn ToSql + Sync), Type)> = Vec::new();
    for (column, (_, kind)) in columns.iter().zip(batch.columns()) {
        let array_type = match kind {
            ColumnType::Integer => Type::INT8_ARRAY,
            ColumnType::Real => Type::FLOAT8_ARRAY,
            ColumnType::Bool => Type::BOOL_ARRAY,
            ColumnType::Time => Type::TIMESTAMPTZ_ARRAY,
            ColumnType::Text => Type::TEXT_ARRAY,
            ColumnType::Json => Type::JSONB_ARRAY,
        };
        arrays.push((column, array_type));
    }
    arrays
}

/// Returns the columns of `batch`, each to be passed as an array.
pub(super) fn columns<'a>(batch: &'a Batch<'_>) -> Vec<Vec<&'a Value<'a>>> {
    let mut columns = vec![Vec::with_capacity(batch.rows().len()); batch.columns().len()];
    for row in batch.rows() {
        columns.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
    }
    columns
}

pub(super) fn parameters<T: ToSql + Sync>(values: &[T]) -> Vec<&(dyn ToSql + Sync)> {
    values.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
}

/// Returns the fields of `row`. The first row sets the `names` of the columns.
pub(super) fn row(
    row: &tokio_postgres::Row,
    names: &mut Option<Arc<[String]>>,
) -> Result<Row, DatabaseError> {
    let names =
        names.get_or_insert_with(|| row.columns().iter().map(|column| column.name().to_owned()).collect());
    let mut fields = Vec::with_capacity(row.len());
    for (index, column) in row.columns().iter().enumerate() {
        if !<Value<'static> as FromSql<'_>>::accepts(column.type_()) {
            let found = format!("has the type {}", column.type_().name());
            let expected = "a number, a truth value, a time or text";
            return Err(unexpected(index + 1, Some(column.name()), &found, expected));
        }
        fields.push(row.try_get(index)?);
    }
    Ok(Row::new(Arc::clone(names), fields))
}

impl ToSql for Value<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Integer(integer) => integer.to_sql(ty, out),
            Self::Real(real) => real.to_sql(ty, out),
            Self::Bool(truth) => truth.to_sql(ty, out),
            Self::Time(time_us) => Timestamp(*time_us).to_sql(ty, out),
            Self::Text(text) => {
                if *ty == Type::JSONB {
                    out.put_u8(JSONB_VERSION);
                }
                text.as_ref().to_sql(&Type::TEXT, out)
            }
        }
    }

    accepts!(INT8, FLOAT8, BOOL, TIMESTAMPTZ, TEXT, JSONB);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Value<'static> {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        match *ty {
            Type::INT4 => Ok(Self::Integer(i32::from_sql(ty, raw)?.into())),
            Type::INT8 => Ok(Self::Integer(i64::from_sql(ty, raw)?)),
            Type::FLOAT8 => Ok(Self::Real(f64::from_sql(ty, raw)?)),
            Type::BOOL => Ok(Self::Bool(bool::from_sql(ty, raw)?)),
            Type::TIMESTAMPTZ => Ok(Self::Time(Timestamp::from_sql(ty, raw)?.0)),
            _ => Ok(Self::from(String::from_sql(ty, raw)?)),
        }
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self::Null)
    }

    accepts!(INT4, INT8, FLOAT8, BOOL, TIMESTAMPTZ, TEXT);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_one_array_for_each_column() {
        let columns_of = &[("node", ColumnType::Text), ("seen", ColumnType::Time)];
        let rows = [["n1".into(), Value::Time(1)], ["n2".into(), Value::Null]];
        let batch = Batch::new(columns_of, rows);
        assert_eq!(
            expand("SELECT node FROM {new}{for_update}", &batch),
            "SELECT node FROM unnest($1, $2) AS new (node, seen) FOR UPDATE"
        );
        let columns = columns(&batch);
        assert_eq!(columns, [vec![&"n1".into(), &"n2".into()], vec![&Value::Time(1), &Value::Null]]);
        let types: Vec<_> = arrays(&batch, &columns).into_iter().map(|(_, array_type)| array_type).collect();
        assert_eq!(types, [Type::TEXT_ARRAY, Type::TIMESTAMPTZ_ARRAY]);
    }

    #[test]
    fn text_becomes_jsonb_where_the_server_expects_that() {
        let mut out = BytesMut::new();
        assert!(matches!(Value::from("{}").to_sql(&Type::JSONB, &mut out), Ok(IsNull::No)));
        assert_eq!(&out[..], b"\x01{}");
    }
}
