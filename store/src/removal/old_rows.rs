//! Old rows, declared as data, and their removal in small transactions.

use crate::backend::{Connection, Dialect};
use crate::error::DatabaseError;
use crate::row::Field;
use crate::stop::Stop;
use crate::value::Value;

/// Rows that are removed once they are old.
///
/// The rows of a table are examined in the order of a column, a bounded number in each transaction. The
/// conditions may have these placeholders:
///
/// - `{step}`: the condition that a row of the table is one of those that were examined.
/// - `{keys}`: the condition, after a column of ids, that it has the key of an old row.
/// - Times that the caller of [`OldRows::remove`] names, such as `{before}`.
#[derive(Debug)]
pub(super) struct OldRows {
    pub(super) table: &'static str,
    /// Column in whose order the rows are examined, those with the same value together: an id or a time.
    pub(super) key: &'static str,
    pub(super) of: &'static str,
    /// Condition that an examined row, `next_row`, is old.
    pub(super) is_old: &'static str,
    /// Rows that one transaction examines.
    pub(super) step_rows: usize,
    /// Locks the rows on which the decision depends; empty if there are none. `{next}` are the rows to
    /// examine.
    pub(super) lock: &'static str,
    /// Rows to delete, those of dependents first, unless a writer may begin to use them: a table, and the
    /// conditions on its row `old`.
    pub(super) delete: &'static [(&'static str, &'static [&'static str])],
}

/// All rows of no table, for the fields that a declaration leaves out.
pub(super) const ALL: OldRows =
    OldRows { table: "", key: "", of: "true", is_old: "true", step_rows: 1000, lock: "", delete: &[] };

/// Condition that a row is not of a job that is kept at `{now}`.
pub(super) const IS_NOT_KEPT: &str =
    "job_key NOT IN (SELECT job_key FROM kept_job WHERE until IS NULL OR until > {now})";

#[derive(Debug, Clone, Copy)]
enum Key {
    /// An id, or a time as SQLite stores it.
    Integer(i64),
    Time(i64),
}

impl Field for Key {
    const EXPECTED: &'static str = "an id or a time";

    fn from_value(value: Value<'static>) -> Option<Self> {
        match value {
            Value::Integer(integer) => Some(Self::Integer(integer)),
            Value::Time(time_us) => Some(Self::Time(time_us)),
            Value::Null | Value::Real(_) | Value::Bool(_) | Value::Text(_) => None,
        }
    }
}

impl Key {
    fn constant(self, dialect: &Dialect) -> String {
        match self {
            Self::Integer(integer) => integer.to_string(),
            Self::Time(time_us) => (dialect.time)(time_us),
        }
    }

    const fn id(self) -> Option<i64> {
        if let Self::Integer(id) = self { Some(id) } else { None }
    }
}

impl OldRows {
    /// Removes the old rows. `times` are in microseconds since the epoch; the parameters are those of `of`
    /// and of the conditions for deletion. Returns the number of rows that were deleted from the last of the
    /// tables.
    pub(super) fn remove(
        &self,
        connection: &mut dyn Connection,
        times: &[(&str, i64)],
        parameters: &[Value<'_>],
        stop: &Stop,
    ) -> Result<u64, DatabaseError> {
        let Self { table, key, of, is_old, step_rows, lock, .. } = self;
        let dialect = connection.dialect();
        let fill = |statement: &str| {
            times.iter().fold(statement.to_owned(), |statement, (name, time_us)| {
                statement.replace(name, &(dialect.time)(*time_us))
            })
        };
        let (of, is_old) = (fill(of), fill(is_old));
        let (mut is_next, mut removed) = ("true".to_owned(), 0);
        while !stop.is_requested() {
            let next = format!(
                "(SELECT * FROM {table} WHERE {is_next} AND {of} ORDER BY {key} LIMIT {step_rows}) AS next_row"
            );
            connection.begin()?;
            if !lock.is_empty() {
                connection.query(&lock.replace("{next}", &next), &[])?;
            }
            let select = format!("SELECT {key}, {is_old} FROM {next}");
            let mut rows: Vec<(Key, bool)> = connection.select(&select, parameters)?;
            let (count, last) = (rows.len(), rows.last().map(|(last, _)| last.constant(dialect)));
            rows.retain(|(_, is_old)| *is_old);
            if let Some(last) = last.as_ref().filter(|_| !rows.is_empty()) {
                let step = format!("{is_next} AND {key} <= {last}");
                let keys: Vec<i64> = rows.iter().filter_map(|(key, _)| key.id()).collect();
                removed += self.delete(
                    connection,
                    &keys,
                    |statement| fill(statement).replace("{step}", &step),
                    parameters,
                )?;
            }
            connection.commit()?;
            let Some(last) = last.filter(|_| count >= *step_rows) else { break };
            is_next = format!("{key} > {last}");
        }
        Ok(removed)
    }

    /// Deletes the rows with these keys and their dependents, in the transaction of the caller.
    pub(super) fn delete_keys(
        &self,
        connection: &mut dyn Connection,
        keys: &[i64],
    ) -> Result<(), DatabaseError> {
        if keys.is_empty() {
            return Ok(());
        }
        self.delete(connection, keys, str::to_owned, &[]).map(drop)
    }

    fn delete(
        &self,
        connection: &mut dyn Connection,
        keys: &[i64],
        fill: impl Fn(&str) -> String,
        parameters: &[Value<'_>],
    ) -> Result<u64, DatabaseError> {
        let is_key = (connection.dialect().is_one_of)(keys);
        let mut deleted = 0;
        for (table, conditions) in self.delete {
            let is_old = fill(&conditions.join(" AND ")).replace("{keys}", &is_key);
            deleted =
                connection.execute(&format!("DELETE FROM {table} AS old WHERE {is_old}"), parameters)?;
        }
        Ok(deleted)
    }
}
