//! The connection of a reader.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use crate::backend::{Connection, Dialect};
use crate::value::{ColumnType, NumberRow, Row, Value};
use crate::{SCHEMA_VERSION, StoreError, StoreUrl};

/// Checks that a store has the schema of this program.
pub(crate) fn check_version(version: i64) -> Result<(), StoreError> {
    let found = i32::try_from(version).unwrap_or(i32::MAX);
    match found.cmp(&SCHEMA_VERSION) {
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(StoreError::NewerSchema { found }),
        Ordering::Less => Err(StoreError::OlderSchema { found }),
    }
}

/// A read-only connection.
#[derive(Debug)]
pub struct Reader {
    connection: Box<dyn Connection>,
    /// The plans of the statements; none unless they are recorded.
    plans: Option<Vec<String>>,
}

impl Reader {
    /// Connects. Nothing is created or changed.
    ///
    /// # Errors
    /// Returns an error if the store cannot be reached, has no tables of Polymeter, or was made by another
    /// version of the program.
    pub fn open(url: &StoreUrl) -> Result<Self, StoreError> {
        let mut reader = Self { connection: url.open_to_read()?, plans: None };
        let version = match reader.schema_version() {
            Ok(Some(version)) => version,
            Ok(None) => return Err(url.without_tables()),
            Err(error) if error.is_missing_table() => return Err(url.without_tables()),
            Err(error) => return Err(error),
        };
        check_version(version)?;
        reader.connection.check()?;
        Ok(reader)
    }

    fn schema_version(&mut self) -> Result<Option<i64>, StoreError> {
        let versions =
            self.rows("SELECT CAST(max(version) AS bigint) FROM schema_version", &[], Row::optional_integer)?;
        Ok(versions.first().copied().flatten())
    }

    /// Records the plan of each further statement, as the database describes it.
    pub fn record_plans(&mut self) {
        self.plans = Some(Vec::new());
    }

    /// Returns the recorded plans, each after its statement, and forgets them.
    pub fn take_plans(&mut self) -> Vec<String> {
        self.plans.replace(Vec::new()).unwrap_or_default()
    }

    fn record_plan(&mut self, statement: &str, parameters: &[Value<'_>]) -> Result<(), StoreError> {
        let Some(plans) = &mut self.plans else { return Ok(()) };
        let explain = format!("{} {statement}", self.connection.dialect().explain);
        let lines = self.connection.read(&explain, parameters)?.into_iter().map(Row::into_text);
        plans.push(format!("{statement}\n{}", lines.collect::<Vec<_>>().join("\n")));
        Ok(())
    }

    /// Returns the fragments of statements that differ between backends.
    pub(super) fn dialect(&self) -> &'static Dialect {
        self.connection.dialect()
    }

    /// Returns all rows of a statement, converted by `read`.
    pub(super) fn rows<T>(
        &mut self,
        statement: &str,
        parameters: &[Value<'_>],
        mut read: impl FnMut(&mut Row) -> T,
    ) -> Result<Vec<T>, StoreError> {
        self.record_plan(statement, parameters)?;
        let rows = self.connection.read(statement, parameters)?;
        Ok(rows.into_iter().map(|mut row| read(&mut row)).collect())
    }

    /// Passes each row of a statement, whose columns are numbers and times, to `each` until that fails. The rows are not
    /// held in memory. After an error of `each` the reader must be dropped.
    pub(super) fn stream<E: From<StoreError>>(
        &mut self,
        statement: &str,
        columns: &[ColumnType],
        mut each: impl FnMut(&NumberRow) -> Result<(), E>,
    ) -> Result<(), E> {
        self.record_plan(statement, &[])?;
        let mut failed = None;
        self.connection.stream(statement, columns, &mut |row| match each(row) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        })?;
        failed.map_or(Ok(()), Err)
    }
}
