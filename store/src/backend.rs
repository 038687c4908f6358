//! Interface of a database. Each backend has its own directory, and one line in [`crate::url`].
//!
//! A backend runs statements. [`crate::writer`] and [`crate::reader`] choose the statements and the
//! transactions, for all backends. Statements are written in the common SQL of PostgreSQL and SQLite, with
//! these conventions:
//!
//! - Parameters are `$1`, `$2`. A parameter whose type PostgreSQL cannot infer is in a CAST.
//! - `{new}` stands for the rows of a [`Batch`].
//! - `{for_update}`, `{for_key_share}`, `{skip_locked}`, `{same_labels}` and `{now}` are the fragments of
//!   [`Dialect`].
//! - `greatest` and `least` ignore NULL; comparisons with NULL are `IS [NOT] DISTINCT FROM`.
//! - Times are passed and returned unchanged: a backend converts between its own type and
//!   [`Value::Time`](crate::value::Value).

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;

use polymeter_proto::read::IdRanges;

use crate::accepted::Accepted;
use crate::error::{DatabaseError, ErrorKind};
use crate::retention::{Cutoffs, Part, Storage};
use crate::row::{FromRow, Row};
use crate::stop::{Cancel, Stop};
use crate::value::{Batch, Column, Number, Value};
use crate::{OpenOptions, StoreError, StoreOrigin, WriteMode};

/// Invalid URL of a store. The URL is not repeated, since it may contain a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{reason}; expected sqlite:PATH, postgres://USER@HOST/DATABASE, or a connection string such as host=/run/postgresql dbname=polymeter user=polymeter"
)]
pub struct InvalidStoreUrl {
    reason: String,
}

impl InvalidStoreUrl {
    pub(crate) fn because(reason: impl fmt::Display) -> Self {
        Self { reason: reason.to_string() }
    }
}

/// Database that a URL names. [`fmt::Display`] shows its address without a password.
pub(crate) trait Backend: fmt::Display + Send + Sync {
    /// Returns none if the database is on a server.
    fn file(&self) -> Option<&Path> {
        None
    }

    /// Returns true if several connections can write at the same time.
    fn has_parallel_writers(&self) -> bool;

    fn has_password(&self) -> bool {
        false
    }

    /// Connects to write, and migrates the schema to the current version.
    fn open(&self, options: &OpenOptions) -> Result<Opened, StoreError>;

    /// Connects to read: nothing can be changed. The caller checks the schema's version.
    fn open_to_read(&self) -> Result<OpenedToRead, StoreError>;

    /// Returns the error for a database without tables of Polymeter.
    fn without_tables(&self) -> StoreError;

    /// Connects and disconnects, to test whether the database can be reached.
    fn probe(&self) -> Result<(), StoreError>;

    /// Connects to keep jobs, and to see what is removed next, without a change of the schema. The caller
    /// checks its version.
    fn open_to_administer(&self) -> Result<AdministrationSession, StoreError>;

    /// Connects to maintain the database; returns none while another connection does.
    fn open_for_maintenance(&self) -> Result<Option<MaintenanceSession>, StoreError>;
}

pub(crate) struct AdministrationSession {
    pub(crate) connection: Box<dyn Connection>,
    pub(crate) removal: &'static Removal,
    /// Measures the store at a time, in microseconds since the epoch.
    pub(crate) measure: Measure,
}

pub(crate) type Measure = Box<dyn Fn(&mut dyn Connection, i64) -> Result<Storage, StoreError> + Send>;

/// Connection that was opened to maintain a database. Its end releases the lock of the maintenance.
pub(crate) struct MaintenanceSession {
    pub(crate) connection: Box<dyn Connection>,
    /// Cancels the statement that the connection runs.
    pub(crate) cancel: Option<Cancel>,
    pub(crate) tasks: &'static [Task],
    /// Removal of old rows, which is one of the tasks.
    pub(crate) removal: &'static Removal,
    /// Why there are no tasks, with a remedy; none if there are some.
    pub(crate) obstacle: Option<String>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Task {
    /// Verb and object, such as "compress old chunks".
    pub(crate) name: &'static str,
    /// Rounds after which the task runs again; after an error it does so earlier. A round is a minute.
    pub(crate) rounds: u32,
    /// Runs the task until the maintenance has to end. The connection is in no transaction, before and after.
    pub(crate) run: fn(&mut dyn Connection, &Stop) -> Result<(), StoreError>,
}

#[derive(Debug)]
pub(crate) struct Removal {
    /// Returns the parts before the cutoffs that have rows besides the kept jobs', in the order of their
    /// removal.
    pub(crate) due: fn(&mut dyn Connection, &Cutoffs) -> Result<Vec<Part>, StoreError>,
    pub(crate) prepare: fn(&mut dyn Connection, &Stop) -> Result<(), StoreError>,
    pub(crate) remove: fn(&mut dyn Connection, &Part, &Stop) -> Result<Removed, StoreError>,
    /// Returns the space of removed rows to the file system.
    pub(crate) finish: fn(&mut dyn Connection, &Stop) -> Result<(), StoreError>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removed {
    /// Removed, except for rows of kept jobs.
    Done { kept_rows: u64 },
    /// Removed later: the rollups of the part are not complete, or the maintenance ends.
    Postponed,
}

#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) connection: Box<dyn Connection>,
    pub(crate) origin: StoreOrigin,
    pub(crate) write_mode: WriteMode,
}

pub(crate) struct OpenedToRead {
    pub(crate) connection: Box<dyn Connection>,
    pub(crate) cancel: Cancel,
}

/// Condition that a part of the name of a job matches the pattern `?`, tested for each job.
pub(crate) const NAMED_PARTLY: &str = r"lower(name) LIKE lower(CAST(? AS text)) ESCAPE '\'";

/// Fragments of statements that differ between backends.
#[derive(Debug)]
pub(crate) struct Dialect {
    /// Condition that `its.labels` and `new.labels` are equal, in the form that the unique index supports.
    pub(crate) same_labels: &'static str,
    /// Clause that keeps the selected rows from being deleted until the end of the transaction.
    pub(crate) for_key_share: &'static str,
    /// Clause that locks the selected rows until the end of the transaction; empty if a transaction locks the
    /// whole database.
    pub(crate) for_update: &'static str,
    /// Clause that locks the selected rows of `old`, and skips those that another transaction has locked.
    pub(crate) skip_locked: &'static str,
    /// True if stored samples are counted in the row of the session until a tally arrives: to update a ledger
    /// line for each source and commit costs more than the samples.
    pub(crate) defers_ledger: bool,
    pub(crate) explain: &'static str,
    pub(crate) now: &'static str,
    /// Selects whether the role `$1` has rights on the store; none without roles.
    pub(crate) has_rights: Option<&'static str>,
    /// Condition that a part of the name of a job matches the pattern `?`.
    pub(crate) named_partly: &'static str,
    /// True if a range of series is read in the order of their ids and times; a list of ids may be sorted.
    pub(crate) has_ordered_ranges: bool,
    /// True if rows are stored by columns: to look for a value among nulls takes no time, and each column
    /// that is read does.
    pub(crate) skips_nulls: bool,
    /// Writes a condition after a column of ids: that it is one of these.
    pub(crate) is_one_of: fn(&[i64]) -> String,
    /// Writes a time, in microseconds since the epoch, as a constant.
    pub(crate) time: fn(i64) -> String,
    /// Writes the source of those intervals of a relation of rollups that begin between two constants; the
    /// second is excluded. It has at least the intervals of the given series.
    pub(crate) buckets: fn(&str, &str, &str, &IdRanges) -> String,
}

impl Dialect {
    /// Fills in the fragments of `statement`, except for `{new}`.
    pub(crate) fn fill(&self, statement: &str) -> String {
        statement
            .replace("{same_labels}", self.same_labels)
            .replace("{for_update}", self.for_update)
            .replace("{for_key_share}", self.for_key_share)
            .replace("{skip_locked}", self.skip_locked)
            .replace("{now}", self.now)
    }
}

/// Connection that runs statements. After an error its state is unknown, and it must be dropped.
pub(crate) trait Connection: fmt::Debug + Send {
    fn dialect(&self) -> &'static Dialect;

    /// Begins a transaction. A connection that is dropped before [`Self::commit`] rolls it back.
    fn begin(&mut self) -> Result<(), DatabaseError>;

    fn commit(&mut self) -> Result<(), DatabaseError>;

    fn query(&mut self, statement: &str, parameters: &[Value<'_>]) -> Result<Vec<Row>, DatabaseError>;

    /// Runs a statement for a reader, and passes each row to `each` until that returns
    /// [`ControlFlow::Break`]. The rows are not held in memory. The error names the cause as precisely as
    /// possible.
    fn read(
        &mut self,
        statement: &str,
        parameters: &[Value<'_>],
        each: &mut dyn FnMut(Row) -> ControlFlow<()>,
    ) -> Result<(), StoreError>;

    /// Runs a statement without parameters, whose columns are numbers and times, and passes each row to
    /// `each` until that returns [`ControlFlow::Break`]. A row has a field for each of `columns`. The rows
    /// are not held in memory.
    fn stream(
        &mut self,
        statement: &str,
        columns: &[Column],
        each: &mut dyn FnMut(&[Number]) -> ControlFlow<()>,
    ) -> Result<(), StoreError>;

    /// Returns the number of rows that the statement changed.
    fn execute(&mut self, statement: &str, parameters: &[Value<'_>]) -> Result<u64, DatabaseError>;

    fn query_batch(&mut self, statement: &str, batch: &Batch<'_>) -> Result<Vec<Row>, DatabaseError>;

    /// Returns the number of rows that the statement changed.
    fn execute_batch(&mut self, statement: &str, batch: &Batch<'_>) -> Result<u64, DatabaseError>;

    /// Writes the samples of `frames`, whose series have ids, by the fastest method of the database, and
    /// returns their number.
    fn write_samples(&mut self, frames: &[&Accepted]) -> Result<u64, DatabaseError>;

    /// Prepares storage for the samples of `frames`, such as partitions, in transactions of its own.
    fn make_room(&mut self, frames: &[Accepted]) -> Result<(), DatabaseError>;

    /// Waits until no other connection assigns keys to jobs, and blocks others until the end of the
    /// transaction.
    fn lock_job_keys(&mut self) -> Result<(), DatabaseError>;

    /// Waits until no other connection adds requests, and blocks others until the end of the transaction.
    fn lock_requests(&mut self) -> Result<(), DatabaseError>;

    /// Lets this connection alone see the jobs of sessions that have been silent since `cutoff_us` as ended.
    fn see_silent_as_ended(&mut self, cutoff_us: i64) -> Result<(), DatabaseError>;

    /// Checks that the database is still the one that was opened; for a reader, that its tables are readable.
    fn check(&mut self) -> Result<(), StoreError>;

    /// Checks that the transaction that was just committed survives a crash.
    fn check_committed(&mut self) -> Result<(), StoreError>;
}

#[derive(Debug, thiserror::Error)]
#[error("the statement returned no row")]
struct NoRow;

impl dyn Connection + '_ {
    pub(crate) fn select<T: FromRow>(
        &mut self,
        statement: &str,
        parameters: &[Value<'_>],
    ) -> Result<Vec<T>, DatabaseError> {
        convert(self.query(statement, parameters)?)
    }

    /// Converts the first row; none if there is no row.
    pub(crate) fn select_first<T: FromRow>(
        &mut self,
        statement: &str,
        parameters: &[Value<'_>],
    ) -> Result<Option<T>, DatabaseError> {
        self.query(statement, parameters)?.first_mut().map(Row::get).transpose()
    }

    /// Converts the first row of a statement that always returns one.
    pub(crate) fn select_one<T: FromRow>(
        &mut self,
        statement: &str,
        parameters: &[Value<'_>],
    ) -> Result<T, DatabaseError> {
        let first = self.select_first(statement, parameters)?;
        first.ok_or_else(|| DatabaseError::new(ErrorKind::Other, NoRow))
    }

    pub(crate) fn select_batch<T: FromRow>(
        &mut self,
        statement: &str,
        batch: &Batch<'_>,
    ) -> Result<Vec<T>, DatabaseError> {
        convert(self.query_batch(statement, batch)?)
    }
}

fn convert<T: FromRow>(rows: Vec<Row>) -> Result<Vec<T>, DatabaseError> {
    rows.into_iter().map(|mut row| row.get()).collect()
}
