//! The connection of a reader.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use polymeter_proto::read::{ReadRow, RowBlock};

use crate::backend::{Connection, Dialect};
use crate::stop::Cancel;
use crate::value::{ColumnType, NumberRow, Row, Value};
use crate::{StoreError, StoreUrl, schema_check};

/// The number of rows with text in a block.
pub(super) const TEXT_ROWS: usize = 256;

/// A statement, and the conversion of its rows.
pub(super) struct Selection<'a, T> {
    /// The statement.
    pub(super) statement: String,
    /// Its parameters.
    pub(super) parameters: Vec<Value<'a>>,
    /// Converts a row.
    pub(super) read: fn(&mut Row) -> T,
}

/// Cancels the statement that a reader runs, from another thread. Has no effect if it runs none.
#[derive(Clone)]
pub struct ReadCancel(Arc<Cancel>);

impl ReadCancel {
    /// Cancels the statement. Returns within a second or so.
    pub fn cancel(&self) {
        (self.0)();
    }
}

impl fmt::Debug for ReadCancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadCancel").finish_non_exhaustive()
    }
}

/// A read-only connection.
#[derive(Debug)]
pub struct Reader {
    connection: Box<dyn Connection>,
    cancel: ReadCancel,
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
        let opened = url.open_to_read()?;
        let cancel = ReadCancel(Arc::new(opened.cancel));
        let mut connection = opened.connection;
        schema_check::check(&mut *connection, || url.without_tables())?;
        connection.check()?;
        Ok(Self { connection, cancel, plans: None })
    }

    /// Returns the means to cancel its statements from another thread.
    pub fn canceller(&self) -> ReadCancel {
        self.cancel.clone()
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
        let mut plan = statement.to_owned();
        self.connection.read(&explain, parameters, &mut |row| {
            plan.push('\n');
            plan.push_str(&row.into_text());
            ControlFlow::Continue(())
        })?;
        plans.push(plan);
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
        let mut rows = Vec::new();
        self.connection.read(statement, parameters, &mut |mut row| {
            rows.push(read(&mut row));
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }

    /// Returns all rows of a selection.
    pub(super) fn collect<T>(&mut self, selection: &Selection<'_, T>) -> Result<Vec<T>, StoreError> {
        self.rows(&selection.statement, &selection.parameters, selection.read)
    }

    /// Passes the rows of a selection to `each` in blocks, until it breaks. They are not held in memory.
    pub(super) fn blocks<T: ReadRow>(
        &mut self,
        selection: &Selection<'_, T>,
        each: &mut dyn FnMut(RowBlock) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        self.record_plan(&selection.statement, &selection.parameters)?;
        let mut rows = Vec::new();
        let mut flow = ControlFlow::Continue(());
        self.connection.read(&selection.statement, &selection.parameters, &mut |mut row| {
            rows.push((selection.read)(&mut row));
            if rows.len() >= TEXT_ROWS {
                flow = each(T::block(std::mem::take(&mut rows)));
            }
            flow
        })?;
        if flow.is_continue() && !rows.is_empty() {
            // There are no further rows that could be left out.
            let _last = each(T::block(rows));
        }
        Ok(())
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
