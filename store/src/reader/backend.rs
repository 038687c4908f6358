//! One way to ask either kind of store.

use std::error::Error;
use std::path::PathBuf;

use bytes::BytesMut;
use rusqlite::types::{ToSqlOutput, ValueRef};
use tokio::runtime::Runtime;
use tokio_postgres::Client;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

use super::file;
use crate::diagnosis::{explain, without_tables};
use crate::{Doing, SCHEMA_VERSION, StoreError, StoreUrl, TimescaleMode, postgres, stored_us, timescale};

const READING: &str = "reading";

/// A value of a row or a parameter.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
}

/// A row, whose fields are taken from left to right. A field of another kind than is asked for is as if it were NULL.
#[derive(Debug)]
pub(super) struct Row {
    fields: std::vec::IntoIter<Value>,
}

impl Row {
    pub(super) fn optional_integer(&mut self) -> Option<i64> {
        match self.fields.next() {
            Some(Value::Integer(integer)) => Some(integer),
            Some(Value::Null | Value::Real(_) | Value::Text(_)) | None => None,
        }
    }

    pub(super) fn integer(&mut self) -> i64 {
        self.optional_integer().unwrap_or_default()
    }

    pub(super) fn count(&mut self) -> u64 {
        u64::try_from(self.integer()).unwrap_or_default()
    }

    /// SQLite stores what is no number as NULL.
    pub(super) fn real(&mut self) -> f64 {
        match self.fields.next() {
            Some(Value::Real(real)) => real,
            Some(Value::Null | Value::Integer(_) | Value::Text(_)) | None => f64::NAN,
        }
    }

    pub(super) fn optional_text(&mut self) -> Option<String> {
        match self.fields.next() {
            Some(Value::Text(text)) => Some(text),
            Some(Value::Null | Value::Integer(_) | Value::Real(_)) | None => None,
        }
    }

    pub(super) fn text(&mut self) -> String {
        self.optional_text().unwrap_or_default()
    }
}

/// A connection that only reads.
#[derive(Debug)]
pub(super) enum Backend {
    /// The connection, and the file.
    Sqlite(rusqlite::Connection, PathBuf),
    Postgres(Runtime, Client),
}

impl Backend {
    pub(super) fn open(url: &StoreUrl) -> Result<Self, StoreError> {
        let mut backend = match url {
            StoreUrl::Sqlite(path) => Self::Sqlite(file::open(path)?, path.clone()),
            StoreUrl::Postgres(config) => {
                let runtime = postgres::event_loop()?;
                let client = runtime.block_on(postgres::connect(config))?;
                Self::Postgres(runtime, client)
            }
        };
        backend.check_schema()?;
        Ok(backend)
    }

    fn check_schema(&mut self) -> Result<(), StoreError> {
        let versions =
            self.rows("SELECT CAST(max(version) AS bigint) FROM schema_version", &[], Row::optional_integer);
        match versions.map(|versions| versions.first().copied().flatten()) {
            Ok(Some(version)) if version > i64::from(SCHEMA_VERSION) => {
                return Err(StoreError::NewerSchema { found: i32::try_from(version).unwrap_or(i32::MAX) });
            }
            Ok(Some(version)) if version < i64::from(SCHEMA_VERSION) => {
                return Err(StoreError::OlderSchema { found: i32::try_from(version).unwrap_or_default() });
            }
            Ok(Some(_)) => {}
            Ok(None) => return Err(self.no_store()),
            Err(error) if is_without_table(&error) => return Err(self.no_store()),
            Err(error) => return Err(error),
        }
        if let Self::Postgres(runtime, client) = self {
            // A hypertable that the server does not know for one looks empty: better to say so.
            runtime.block_on(async {
                let offer = timescale::look(client).await?;
                timescale::choose(client, &offer, TimescaleMode::Auto, false).await
            })?;
        }
        Ok(())
    }

    /// That there are no tables of Polymeter's.
    fn no_store(&self) -> StoreError {
        match self {
            Self::Sqlite(_, path) => without_tables(path),
            Self::Postgres(..) => StoreError::Unusable(
                "cannot read the database: it has no tables of Polymeter; a collector makes them when it first starts"
                    .to_owned(),
            ),
        }
    }

    /// An expression that gives a time in nanoseconds since the epoch.
    pub(super) fn ns(&self, time: &str) -> String {
        match self {
            Self::Sqlite(..) => time.to_owned(),
            Self::Postgres(..) => format!("CAST(extract(epoch FROM {time}) * 1000000 AS bigint) * 1000"),
        }
    }

    /// An expression that gives the time that the parameter says, as [`Self::bound`] made it.
    pub(super) fn time(&self, parameter: &str) -> String {
        match self {
            Self::Sqlite(..) => format!("CAST({parameter} AS bigint)"),
            Self::Postgres(..) => {
                format!("timestamptz 'epoch' + CAST({parameter} AS bigint) * interval '1 microsecond'")
            }
        }
    }

    /// A bound of a span, from nanoseconds since the epoch into what the store compares with.
    pub(super) fn bound(&self, time_ns: i64) -> i64 {
        let time_us = stored_us(time_ns.div_euclid(1000) + i64::from(time_ns.rem_euclid(1000) > 0));
        match self {
            Self::Sqlite(..) => time_us * 1000,
            Self::Postgres(..) => time_us,
        }
    }

    /// All rows that `sql` gives.
    pub(super) fn rows<T>(
        &mut self,
        sql: &str,
        parameters: &[Value],
        mut read: impl FnMut(&mut Row) -> T,
    ) -> Result<Vec<T>, StoreError> {
        match self {
            Self::Sqlite(connection, path) => {
                let rows = sqlite_rows(connection, sql, parameters, read);
                rows.map_err(|source| explain(path, READING, source))
            }
            Self::Postgres(runtime, client) => {
                let parameters: Vec<_> =
                    parameters.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
                let rows = runtime.block_on(client.query(sql, &parameters)).doing(READING)?;
                let fields = |row: &tokio_postgres::Row| {
                    (0..row.len()).map(|column| row.try_get(column)).collect::<Result<Vec<_>, _>>()
                };
                let read = |row| Ok(read(&mut Row { fields: fields(row)?.into_iter() }));
                rows.iter().map(read).collect::<Result<_, tokio_postgres::Error>>().doing(READING)
            }
        }
    }
}

/// Whether a table is missing.
fn is_without_table(error: &StoreError) -> bool {
    if let StoreError::Sqlite { source, .. } = error {
        return source.to_string().starts_with("no such table");
    }
    let StoreError::Postgres { source, .. } = error else { return false };
    source.code() == Some(&tokio_postgres::error::SqlState::UNDEFINED_TABLE)
}

fn sqlite_rows<T>(
    connection: &rusqlite::Connection,
    sql: &str,
    parameters: &[Value],
    mut read: impl FnMut(&mut Row) -> T,
) -> rusqlite::Result<Vec<T>> {
    let mut statement = connection.prepare_cached(sql)?;
    let columns = statement.column_count();
    let rows = statement.query_map(rusqlite::params_from_iter(parameters), |row| {
        let field = |column| row.get_ref(column).map(Value::from);
        let fields = (0..columns).map(field).collect::<rusqlite::Result<Vec<_>>>()?;
        Ok(read(&mut Row { fields: fields.into_iter() }))
    })?;
    rows.collect()
}

impl From<ValueRef<'_>> for Value {
    fn from(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(integer) => Self::Integer(integer),
            ValueRef::Real(real) => Self::Real(real),
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
                Self::Text(String::from_utf8_lossy(bytes).into_owned())
            }
        }
    }
}

impl rusqlite::ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(integer) => ValueRef::Integer(*integer),
            Self::Real(real) => ValueRef::Real(*real),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

impl ToSql for Value {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Integer(integer) => integer.to_sql(ty, out),
            Self::Real(real) => real.to_sql(ty, out),
            Self::Text(text) => text.to_sql(ty, out),
        }
    }

    accepts!(INT8, FLOAT8, TEXT);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Value {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        match *ty {
            Type::INT4 => Ok(Self::Integer(i32::from_sql(ty, raw)?.into())),
            Type::INT8 => Ok(Self::Integer(i64::from_sql(ty, raw)?)),
            Type::FLOAT8 => Ok(Self::Real(f64::from_sql(ty, raw)?)),
            _ => Ok(Self::Text(String::from_sql(ty, raw)?)),
        }
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self::Null)
    }

    accepts!(INT4, INT8, FLOAT8, TEXT);
}
