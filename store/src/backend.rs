//! The interface of a database. Each backend has a folder of its own, and one line in [`crate::url`].
//!
//! A backend runs statements; which ones, and in which transaction, is decided in [`crate::writer`] and [`crate::reader`],
//! once for all of them. Statements are written in the SQL that PostgreSQL and SQLite have in common, with these
//! conventions:
//!
//! - Parameters are `$1`, `$2`. Where PostgreSQL cannot infer the type of one, it is inside of a CAST.
//! - `{new}` is the rows of a [`Batch`].
//! - `{for_update}`, `{skip_locked}` and `{same_labels}` are the fragments of [`Dialect`].
//! - `greatest` and `least` ignore NULL; comparisons with NULL are `IS [NOT] DISTINCT FROM`.
//! - Times are passed and returned as they are: a backend converts between its type and [`Value::Time`](crate::value::Value).

use std::fmt;
use std::path::Path;

use crate::accepted::Accepted;
use crate::error::DatabaseError;
use crate::maintenance::Maintenance;
use crate::value::{Batch, Row, Value};
use crate::{OpenOptions, Origin, StoreError, WriteMode};

/// A database at one place, as a URL names it. [`fmt::Display`] shows the place without a password.
pub(crate) trait Backend: fmt::Display + Send + Sync {
    /// Returns the file of the database; none where it is on a server.
    fn file(&self) -> Option<&Path> {
        None
    }

    /// Returns true if several connections can write at the same time.
    fn has_parallel_writers(&self) -> bool;

    /// Connects to write, and brings the schema up to date.
    fn open(&self, options: &OpenOptions) -> Result<Opened, StoreError>;

    /// Connects to read. Nothing is created or changed. The caller checks the schema's version.
    fn open_to_read(&self) -> Result<Box<dyn Connection>, StoreError>;

    /// Returns the error for a database without tables of Polymeter.
    fn without_tables(&self) -> StoreError;

    /// Connects and disconnects, to find out whether the database can be reached.
    fn probe(&self) -> Result<(), StoreError>;

    /// Starts the work that the database needs beside the writers; none where it needs none.
    fn start_maintenance(&self) -> Result<Option<Maintenance>, StoreError>;
}

/// A connection that has been opened to write.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The connection.
    pub(crate) connection: Box<dyn Connection>,
    /// The identity of the database.
    pub(crate) origin: Origin,
    /// The way in which samples are written.
    pub(crate) write_mode: WriteMode,
}

/// The fragments in which statements differ between backends.
#[derive(Debug)]
pub(crate) struct Dialect {
    /// The condition that `series.labels` and `new.labels` are equal, in the form that the unique index serves.
    pub(crate) same_labels: &'static str,
    /// The clause that locks the selected rows until the end of the transaction; empty where a transaction locks everything.
    pub(crate) for_update: &'static str,
    /// The clause that locks the selected rows of `old`, and leaves out those that another transaction has locked.
    pub(crate) skip_locked: &'static str,
    /// Stored samples are counted in the row of the session until a tally comes, since an update of a ledger line for each
    /// source and commit costs more than the samples.
    pub(crate) defers_ledger: bool,
}

impl Dialect {
    /// Returns `statement` with its fragments filled in, except for `{new}`.
    pub(crate) fn fill(&self, statement: &str) -> String {
        statement
            .replace("{same_labels}", self.same_labels)
            .replace("{for_update}", self.for_update)
            .replace("{skip_locked}", self.skip_locked)
    }
}

/// A connection, which runs statements. After an error it is in an unknown state, and must be dropped.
pub(crate) trait Connection: fmt::Debug + Send {
    /// The fragments in which its statements differ from others'.
    fn dialect(&self) -> &'static Dialect;

    /// Begins a transaction. A connection that is dropped before [`Self::commit`] rolls it back.
    fn begin(&mut self) -> Result<(), DatabaseError>;

    /// Commits the transaction.
    fn commit(&mut self) -> Result<(), DatabaseError>;

    /// Runs a statement and returns its rows.
    fn query(&mut self, statement: &str, parameters: &[Value<'_>]) -> Result<Vec<Row>, DatabaseError>;

    /// Runs a statement for a reader, whose error names the cause as far as it can be found out.
    fn read(&mut self, statement: &str, parameters: &[Value<'_>]) -> Result<Vec<Row>, StoreError>;

    /// Runs a statement and returns the number of rows that it changed.
    fn execute(&mut self, statement: &str, parameters: &[Value<'_>]) -> Result<u64, DatabaseError>;

    /// Runs a statement for the rows of `batch` and returns its rows.
    fn query_batch(&mut self, statement: &str, batch: &Batch<'_>) -> Result<Vec<Row>, DatabaseError>;

    /// Runs a statement for the rows of `batch` and returns the number of rows that it changed.
    fn execute_batch(&mut self, statement: &str, batch: &Batch<'_>) -> Result<u64, DatabaseError>;

    /// Writes the samples of `frames`, whose series have ids, by the fastest means of the database, and returns their number.
    fn write_samples(&mut self, frames: &[&Accepted]) -> Result<u64, DatabaseError>;

    /// Makes room for the samples of `frames`, in transactions of its own, such as partitions.
    fn make_room(&mut self, frames: &[Accepted]) -> Result<(), DatabaseError>;

    /// Waits until no other connection gives keys to jobs, and keeps others waiting until the end of the transaction.
    fn lock_job_keys(&mut self) -> Result<(), DatabaseError>;

    /// Checks that the database is still the one that was opened; for a reader, that its tables can be read.
    fn check(&mut self) -> Result<(), StoreError>;

    /// Checks that the transaction that was just committed survives a crash.
    fn check_committed(&mut self) -> Result<(), StoreError>;
}
