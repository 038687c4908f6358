//! A connection for tests that shows its statements.

use std::fmt;
use std::ops::ControlFlow;

use crate::StoreError;
use crate::accepted::Accepted;
use crate::backend::{Connection, Dialect};
use crate::error::DatabaseError;
use crate::row::Row;
use crate::value::{Batch, Column, Number, Value};

/// Gets each statement before it runs, with its parameters.
type Observer<'a> = Box<dyn FnMut(&mut dyn Connection, &str, &[Value<'_>]) + Send + 'a>;

/// Connection that passes each statement to a function before it runs.
pub(crate) struct Observed<'a> {
    connection: Box<dyn Connection>,
    observer: Observer<'a>,
}

impl<'a> Observed<'a> {
    pub(crate) fn new(
        connection: Box<dyn Connection>,
        observer: impl FnMut(&mut dyn Connection, &str, &[Value<'_>]) + Send + 'a,
    ) -> Self {
        Self { connection, observer: Box::new(observer) }
    }

    pub(crate) fn into_inner(self) -> Box<dyn Connection> {
        self.connection
    }

    fn observe(&mut self, statement: &str, parameters: &[Value<'_>]) {
        (self.observer)(&mut *self.connection, statement, parameters);
    }
}

impl fmt::Debug for Observed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.connection.fmt(f)
    }
}

impl Connection for Observed<'_> {
    fn dialect(&self) -> &'static Dialect {
        self.connection.dialect()
    }

    fn begin(&mut self) -> Result<(), DatabaseError> {
        self.connection.begin()
    }

    fn commit(&mut self) -> Result<(), DatabaseError> {
        self.connection.commit()
    }

    fn query(&mut self, statement: &str, parameters: &[Value<'_>]) -> Result<Vec<Row>, DatabaseError> {
        self.observe(statement, parameters);
        self.connection.query(statement, parameters)
    }

    fn read(
        &mut self,
        statement: &str,
        parameters: &[Value<'_>],
        each: &mut dyn FnMut(Row) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        self.observe(statement, parameters);
        self.connection.read(statement, parameters, each)
    }

    fn stream(
        &mut self,
        statement: &str,
        columns: &[Column],
        each: &mut dyn FnMut(&[Number]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        self.observe(statement, &[]);
        self.connection.stream(statement, columns, each)
    }

    fn execute(&mut self, statement: &str, parameters: &[Value<'_>]) -> Result<u64, DatabaseError> {
        self.observe(statement, parameters);
        self.connection.execute(statement, parameters)
    }

    fn query_batch(&mut self, statement: &str, batch: &Batch<'_>) -> Result<Vec<Row>, DatabaseError> {
        self.connection.query_batch(statement, batch)
    }

    fn execute_batch(&mut self, statement: &str, batch: &Batch<'_>) -> Result<u64, DatabaseError> {
        self.connection.execute_batch(statement, batch)
    }

    fn write_samples(&mut self, frames: &[&Accepted]) -> Result<u64, DatabaseError> {
        self.connection.write_samples(frames)
    }

    fn make_room(&mut self, frames: &[Accepted]) -> Result<(), DatabaseError> {
        self.connection.make_room(frames)
    }

    fn lock_job_keys(&mut self) -> Result<(), DatabaseError> {
        self.connection.lock_job_keys()
    }

    fn lock_requests(&mut self) -> Result<(), DatabaseError> {
        self.connection.lock_requests()
    }

    fn see_silent_as_ended(&mut self, cutoff_us: i64) -> Result<(), DatabaseError> {
        self.connection.see_silent_as_ended(cutoff_us)
    }

    fn check(&mut self) -> Result<(), StoreError> {
        self.connection.check()
    }

    fn check_committed(&mut self) -> Result<(), StoreError> {
        self.connection.check_committed()
    }
}
