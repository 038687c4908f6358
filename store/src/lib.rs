//! Polymeter's store, shared by the collector and the command: schema, migrations, writer and reader.
//!
//! SQLite serves one machine and a first look, PostgreSQL with or without TimescaleDB a cluster. All stores have the same tables
//! and columns. A transaction stores frames together with the last sequence numbers of their sessions, so that a frame that
//! comes twice is stored once, whichever collector brings it.

pub mod accepted;
pub(crate) mod copy;
pub(crate) mod diagnosis;
mod error;
pub(crate) mod file;
mod job_rows;
mod ledger;
mod limits;
pub(crate) mod postgres;
pub mod reader;
mod rows;
mod session_rows;
pub(crate) mod sqlite;
mod sqlite_jobs;
mod sqlite_sessions;
pub(crate) mod timescale;
mod upkeep;
mod url;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use polymeter_proto::series::{Labels, SessionId};
use polymeter_proto::text::Text;

use crate::accepted::{
    Accepted, Committed, JobRecord, LedgerLine, Outcome, SeriesRecord, SessionRecord, check_gaps,
};
pub use crate::diagnosis::FileProblem;
pub(crate) use crate::error::Doing;
pub use crate::error::StoreError;
pub use crate::file::Displaced;
pub use crate::upkeep::Upkeep;
pub use crate::url::{InvalidStoreUrl, StoreUrl};

/// The newest version of the schema that this program knows. Each version has a file per store in `schema/`.
pub const SCHEMA_VERSION: i32 = 6;

/// Whether TimescaleDB is to be used where the store is PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimescaleMode {
    /// Where the server offers it.
    #[default]
    Auto,
    /// Not, even where the server offers it.
    Off,
    /// In any case: without it the collector does not start.
    Require,
}

impl FromStr for TimescaleMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            "require" => Ok(Self::Require),
            _ => Err(format!("`{}` is none of auto, off, require", Text::of(text))),
        }
    }
}

/// How samples are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// A hypertable of TimescaleDB, compressed as the rows arrive.
    DirectCompress,
    /// A hypertable of TimescaleDB, whose older chunks may be compressed later.
    Hypertable,
    /// A table of PostgreSQL with a partition per day.
    Partitions,
    /// A table of SQLite.
    Sqlite,
}

/// How samples are written, and why not better.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// How.
    pub way: Way,
    /// What decided it, for a person to read.
    pub why: String,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = match self.way {
            Way::DirectCompress => "TimescaleDB hypertable with direct compression",
            Way::Hypertable => "TimescaleDB hypertable",
            Way::Partitions => "PostgreSQL with a partition per day",
            Way::Sqlite => "SQLite",
        };
        write!(f, "{way} ({})", self.why)
    }
}

/// Which store a connection leads to, as far as that can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The file of SQLite.
    file: Option<file::FileId>,
    /// The object id of a table of PostgreSQL, which another database or another table would not have.
    table: Option<u32>,
    /// There was no schema: all that it has came by this connection.
    is_new: bool,
}

impl Origin {
    /// Whether a connection of origin `later` leads to what this one led to.
    pub fn is_same(self, later: Self) -> bool {
        (self.file, self.table) == (later.file, later.table) && !later.is_new
    }

    /// Whether there was no schema before.
    pub const fn is_new(self) -> bool {
        self.is_new
    }
}

/// One connection to a store.
#[derive(Debug)]
pub struct Store(Connection);

#[derive(Debug)]
enum Connection {
    Sqlite(Box<sqlite::SqliteStore>),
    Postgres(Box<postgres::PostgresStore>),
}

impl Store {
    /// Connects, and brings the schema up to date. A file that is missing is made where it `may_create`.
    ///
    /// # Errors
    /// When the store cannot be opened, or its schema is not known.
    pub fn open(url: &StoreUrl, timescale: TimescaleMode, may_create: bool) -> Result<Self, StoreError> {
        Ok(Self(match url {
            StoreUrl::Sqlite(path) => {
                Connection::Sqlite(Box::new(sqlite::SqliteStore::open(path, may_create)?))
            }
            StoreUrl::Postgres(config) => {
                Connection::Postgres(Box::new(postgres::PostgresStore::open(config, timescale)?))
            }
        }))
    }

    /// Where the connection leads to.
    pub fn origin(&self) -> Origin {
        match &self.0 {
            Connection::Sqlite(store) => store.origin(),
            Connection::Postgres(store) => store.origin(),
        }
    }

    /// How samples are written.
    pub fn choice(&self) -> Choice {
        match &self.0 {
            Connection::Sqlite(_) => Choice { way: Way::Sqlite, why: "the default".to_owned() },
            Connection::Postgres(store) => store.choice().clone(),
        }
    }

    /// Checks that what was committed is where others will find it, as far as that can be told at once.
    ///
    /// # Errors
    /// When it is not.
    pub fn check(&mut self) -> Result<(), StoreError> {
        match &mut self.0 {
            Connection::Sqlite(store) => store.check_files(),
            Connection::Postgres(_) => Ok(()),
        }
    }

    /// The newest frame that is stored of a session; 0 where there is none.
    ///
    /// # Errors
    /// When the store fails.
    pub fn last_sequence(&mut self, session: SessionId) -> Result<u64, StoreError> {
        match &mut self.0 {
            Connection::Sqlite(store) => store.last_sequence(session),
            Connection::Postgres(store) => store.last_sequence(session),
        }
    }

    /// Ends the sessions of which nothing was heard since `cutoff_us`, and the jobs that they left. Both times are the
    /// collector's, in microseconds since the epoch.
    ///
    /// # Errors
    /// When the store fails.
    pub fn end_silent(&mut self, cutoff_us: i64, now_us: i64) -> Result<(), StoreError> {
        match &mut self.0 {
            Connection::Sqlite(store) => store.end_silent(cutoff_us, now_us),
            Connection::Postgres(store) => store.end_silent(cutoff_us, now_us),
        }
    }

    /// Stores how the newest job of that id ended. Says whether there is one.
    ///
    /// # Errors
    /// When the store fails.
    pub fn tell_outcome(&mut self, outcome: &Outcome) -> Result<bool, StoreError> {
        match &mut self.0 {
            Connection::Sqlite(store) => store.tell_outcome(outcome),
            Connection::Postgres(store) => store.tell_outcome(outcome),
        }
    }

    /// Stores `frames` in one transaction, without those that are stored already. Nothing is stored in case of an error.
    ///
    /// # Errors
    /// When the store fails, or refuses the frames.
    pub fn commit(&mut self, frames: &[Accepted]) -> Result<Committed, StoreError> {
        match &mut self.0 {
            Connection::Sqlite(store) => store.commit(frames),
            Connection::Postgres(store) => store.commit(frames),
        }
    }
}

const DAY_US: i64 = 86_400 * 1_000_000;

/// The latest time that is stored: 2100. What an agent says beyond it is nonsense that must not stop a transaction.
const LATEST_US: i64 = 4_102_444_800 * 1_000_000;

/// A time that an agent said, in microseconds since the epoch, within what every store can hold.
pub(crate) fn stored_us(time_us: i64) -> i64 {
    time_us.clamp(0, LATEST_US)
}

/// A count that an agent said, within what every store can hold.
pub(crate) fn stored_count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Labels as a JSON object with sorted keys.
pub fn labels_json(labels: &Labels) -> String {
    let object: serde_json::Map<_, _> =
        labels.iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
    serde_json::Value::Object(object).to_string()
}

/// The series and jobs among `frames` that have no id yet, each once, in an order that is the same for all writers.
pub(crate) fn jobs_without_key(frames: &[Accepted]) -> Vec<Arc<JobRecord>> {
    let mut jobs = distinct(frames.iter().flat_map(Accepted::jobs).filter(|job| job.key.get().is_none()));
    jobs.sort_by(|a, b| {
        let name = |job: &JobRecord| (job.descriptor.cluster.clone(), job.descriptor.job_id.clone());
        let life = |job: &JobRecord| (job.node().clone(), job.session.descriptor.started_us, job.handle);
        (name(a), life(a)).cmp(&(name(b), life(b)))
    });
    jobs
}

/// The end of a job on one node.
#[derive(Debug)]
pub(crate) struct JobEnd<'a> {
    /// The store's key of the job.
    pub(crate) key: i64,
    /// The job, as the node speaks of it.
    pub(crate) job: &'a Arc<JobRecord>,
    /// When, in microseconds since the epoch.
    pub(crate) at_us: i64,
}

/// The ends in `frames`, of jobs that have their keys.
pub(crate) fn job_ends<'a>(frames: &[&'a Accepted]) -> Vec<JobEnd<'a>> {
    let ends = frames.iter().flat_map(|frame| &frame.job_ends);
    ends.filter_map(|(job, at_us)| Some(JobEnd { key: *job.key.get()?, job, at_us: *at_us })).collect()
}

/// The ends in `frames` of jobs of the same name that the session of `job` announced before it. `keys` are those of the first
/// of `jobs`, which are not committed yet.
pub(crate) fn ends_before<'a>(
    job: &JobRecord,
    jobs: &[Arc<JobRecord>],
    keys: &[i64],
    frames: &'a [Accepted],
) -> Vec<JobEnd<'a>> {
    let precedes = |other: &JobRecord| {
        other.session.id == job.session.id
            && other.handle < job.handle
            && other.descriptor.job_id == job.descriptor.job_id
    };
    let given = |of: &Arc<JobRecord>| jobs.iter().zip(keys).find(|(job, _)| Arc::ptr_eq(job, of));
    let ends = frames.iter().flat_map(|frame| &frame.job_ends).filter(|(other, _)| precedes(other));
    ends.filter_map(|(job, at_us)| {
        let key = job.key.get().copied().or_else(|| given(job).map(|(_, key)| *key))?;
        Some(JobEnd { key, job, at_us: *at_us })
    })
    .collect()
}

/// How long a job whose agent was lost is taken up again by an agent that finds it under the same name.
pub(crate) const REVIVAL: Duration = Duration::from_secs(7 * 86_400);

/// See [`jobs_without_key`].
pub(crate) fn series_without_id(frames: &[Accepted]) -> Vec<Arc<SeriesRecord>> {
    let mut series =
        distinct(frames.iter().flat_map(Accepted::series).filter(|series| series.id.get().is_none()));
    series.sort_by(|a, b| {
        (a.node(), &a.metric.name, job_key(a), &a.labels).cmp(&(
            b.node(),
            &b.metric.name,
            job_key(b),
            &b.labels,
        ))
    });
    series
}

fn distinct<'a, T: 'a>(all: impl Iterator<Item = &'a Arc<T>>) -> Vec<Arc<T>> {
    let mut seen = HashSet::new();
    all.filter(|item| seen.insert(Arc::as_ptr(item))).cloned().collect()
}

/// The key of the series' job; none for the node's own series.
pub(crate) fn job_key(series: &SeriesRecord) -> Option<i64> {
    series.job.as_ref().and_then(|job| job.key.get().copied())
}

/// The sessions of `frames`, each once, in the order of their ids.
pub(crate) fn sessions(frames: &[Accepted]) -> Vec<Arc<SessionRecord>> {
    let by_id: BTreeMap<_, _> = frames.iter().map(|frame| (frame.session.id, &frame.session)).collect();
    by_id.into_values().cloned().collect()
}

/// The frames that are not stored yet, given up to where each session is.
///
/// # Errors
/// When the store lacks frames that come before them.
pub(crate) fn not_stored<'a>(
    frames: &'a [Accepted],
    last: &HashMap<SessionId, u64>,
) -> Result<(Vec<&'a Accepted>, BTreeMap<SessionId, Progress>), StoreError> {
    check_gaps(frames, last).map_err(StoreError::WentBack)?;
    let last = |id| last.get(&id).copied().unwrap_or_default();
    let mut progress: BTreeMap<SessionId, Progress> = BTreeMap::new();
    let is_new = |frame: &&Accepted| {
        let id = frame.session.id;
        let of = progress.entry(id).or_insert_with(|| Progress { last: last(id), ..Progress::default() });
        let is_new = frame.sequence > of.last;
        if is_new {
            of.take(frame);
        }
        is_new
    };
    Ok((frames.iter().filter(is_new).collect(), progress))
}

/// How far a transaction brings a session.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The newest frame that is stored then.
    pub(crate) last: u64,
    /// Whether any of its frames was not stored before.
    pub(crate) is_new: bool,
    /// Samples that it adds, without those apart.
    pub(crate) stored: u64,
    /// The time of the newest of them, in microseconds since the epoch.
    pub(crate) newest_us: Option<i64>,
    /// When the agent stopped, in microseconds since the epoch, if it said so.
    pub(crate) ended_us: Option<i64>,
}

impl Progress {
    fn take(&mut self, frame: &Accepted) {
        self.last = frame.sequence;
        self.is_new = true;
        self.stored += frame.rows() as u64;
        self.newest_us = self.newest_us.max(frame.newest_us());
        self.ended_us = frame.session_end_us.or(self.ended_us);
    }
}

/// Up to where each session is stored.
pub(crate) fn through(progress: &BTreeMap<SessionId, Progress>) -> Vec<(SessionId, u64)> {
    progress.iter().map(|(id, progress)| (*id, progress.last)).collect()
}

/// The lines of the ledger among `frames` that have no id yet, each once, in an order that is the same for all writers.
pub(crate) fn lines_without_id(frames: &[Accepted]) -> Vec<Arc<LedgerLine>> {
    let mut accounts =
        distinct(frames.iter().flat_map(Accepted::lines).filter(|account| account.id.get().is_none()));
    let identity = |account: &LedgerLine| (account.session.id, handle_of(account));
    accounts.sort_by(|a, b| (identity(a), &a.source).cmp(&(identity(b), &b.source)));
    accounts
}

/// The session's handle of a line's job; none for the node's own.
pub(crate) fn handle_of(account: &LedgerLine) -> Option<i64> {
    account.job.as_ref().map(|job| i64::from(job.handle.0))
}

/// The store's key of a job.
pub(crate) fn key_of(job: Option<&Arc<JobRecord>>) -> Option<i64> {
    job.and_then(|job| job.key.get().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_canonical_json() {
        let pairs = [("node", "1"), ("cpu", "3")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(labels_json(&Labels::new(pairs.to_vec()).unwrap()), r#"{"cpu":"3","node":"1"}"#);
        assert_eq!(labels_json(&Labels::default()), "{}");
    }

    #[test]
    fn times_that_cannot_be_are_bounded() {
        assert_eq!(stored_us(i64::MIN), 0);
        assert_eq!(stored_us(1_700_000_000_000_000), 1_700_000_000_000_000);
        assert!(stored_us(i64::MAX).checked_mul(1000).is_some());
        assert_eq!(stored_count(u64::MAX), i64::MAX);
    }
}
