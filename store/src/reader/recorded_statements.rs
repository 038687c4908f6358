//! Connection of a reader.

use std::fmt;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::Arc;

use polymeter_proto::read::{ReadRow, RowBlock};

use crate::backend::{Connection, Dialect};
use crate::error::Context;
use crate::row::{FromRow, Row, unexpected};
use crate::stop::Cancel;
use crate::value::{Column, Number, Value};
use crate::{DatabaseError, StoreError, StoreUrl, schema_check};

pub(super) const READING: &str = "read the store";

pub(super) const TEXT_ROWS: usize = 256;

/// Statement with its parameters, whose rows are converted to `T`.
pub(super) struct Selection<'a, T> {
    statement: String,
    parameters: Vec<Value<'a>>,
    rows: PhantomData<T>,
}

impl<'a, T: FromRow> Selection<'a, T> {
    pub(super) const fn new(statement: String, parameters: Vec<Value<'a>>) -> Self {
        Self { statement, parameters, rows: PhantomData }
    }
}

/// Cancels the statement that a reader runs, from another thread. Has no effect if it runs none.
#[derive(Clone)]
pub struct ReadCancel(Arc<Cancel>);

impl ReadCancel {
    /// Returns within a second or so.
    pub fn cancel(&self) {
        (self.0)();
    }
}

impl fmt::Debug for ReadCancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadCancel").finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub struct Reader {
    connection: Box<dyn Connection>,
    cancel: ReadCancel,
    /// Plans of the statements; none unless they are recorded.
    plans: Option<Vec<String>>,
}

impl Reader {
    /// Connects to a store of this version, to which nothing is written.
    pub fn open(url: &StoreUrl) -> Result<Self, StoreError> {
        let opened = url.open_to_read()?;
        let cancel = ReadCancel(Arc::new(opened.cancel));
        let mut connection = opened.connection;
        schema_check::check(&mut *connection, || url.without_tables())?;
        connection.check()?;
        Ok(Self { connection, cancel, plans: None })
    }

    /// Lets this reader of a file see the jobs of sessions that have been silent since `cutoff_us`, in
    /// microseconds since the epoch, as ended. Nothing is stored. In a database a collector ends them.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn see_silent_as_ended(&mut self, cutoff_us: i64) -> Result<(), StoreError> {
        self.connection.see_silent_as_ended(cutoff_us).context(READING)
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

    pub(super) fn dialect(&self) -> &'static Dialect {
        self.connection.dialect()
    }

    /// Passes each row of a statement, converted, to `each` until that breaks. The rows are not held in
    /// memory.
    fn each_row<T: FromRow>(
        &mut self,
        statement: &str,
        parameters: &[Value<'_>],
        mut each: impl FnMut(T) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        self.record_plan(statement, parameters)?;
        let mut converted: Result<(), DatabaseError> = Ok(());
        self.connection.read(statement, parameters, &mut |mut row: Row| match row.get() {
            Ok(row) => each(row),
            Err(error) => {
                converted = Err(error);
                ControlFlow::Break(())
            }
        })?;
        converted.context(READING)
    }

    pub(super) fn rows<T: FromRow>(
        &mut self,
        statement: &str,
        parameters: &[Value<'_>],
    ) -> Result<Vec<T>, StoreError> {
        let mut rows = Vec::new();
        self.each_row(statement, parameters, |row| {
            rows.push(row);
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }

    pub(super) fn collect<T: FromRow>(&mut self, selection: &Selection<'_, T>) -> Result<Vec<T>, StoreError> {
        self.rows(&selection.statement, &selection.parameters)
    }

    /// Passes the rows of a selection to `each` in blocks, until it breaks. They are not held in memory.
    pub(super) fn blocks<T: ReadRow + FromRow>(
        &mut self,
        selection: &Selection<'_, T>,
        each: &mut dyn FnMut(RowBlock) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        self.converted_blocks(selection, Some, each).map(drop)
    }

    /// Does the same with rows that `convert` changes, or leaves out. Returns the wish of `each` to go on.
    pub(super) fn converted_blocks<R: FromRow, T: ReadRow>(
        &mut self,
        selection: &Selection<'_, R>,
        convert: impl Fn(R) -> Option<T>,
        each: &mut dyn FnMut(RowBlock) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, StoreError> {
        let mut rows = Vec::new();
        let mut flow = ControlFlow::Continue(());
        self.each_row(&selection.statement, &selection.parameters, |row| {
            rows.extend(convert(row));
            if rows.len() >= TEXT_ROWS {
                flow = each(T::block(std::mem::take(&mut rows)));
            }
            flow
        })?;
        if flow.is_continue() && !rows.is_empty() {
            flow = each(T::block(rows));
        }
        Ok(flow)
    }

    /// Passes each row of a statement, whose columns are numbers and times, to `each` until that fails. The
    /// rows are not held in memory. After an error of `each` the reader must be dropped.
    pub(super) fn stream<const N: usize, E: From<StoreError>>(
        &mut self,
        statement: &str,
        columns: &[Column; N],
        mut each: impl FnMut(&[Number; N]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.record_plan(statement, &[])?;
        let mut streamed = Ok(());
        self.connection.stream(statement, columns, &mut |row| {
            streamed = match row.first_chunk() {
                Some(row) => each(row),
                None => Err(missing(row, columns).into()),
            };
            if streamed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        streamed
    }
}

/// Returns the error for a row of numbers with fewer fields than `columns`.
fn missing(row: &[Number], columns: &[Column]) -> StoreError {
    let name = columns.get(row.len()).map(|(name, _)| *name);
    let source = unexpected(row.len() + 1, name, "is missing", "a number");
    StoreError::Database { action: READING, source }
}
