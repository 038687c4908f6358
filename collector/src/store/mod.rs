//! The stores: SQLite for one machine and a first look, PostgreSQL with or without TimescaleDB for a cluster.
//!
//! All have the same tables and columns. Each commits what it is given in one transaction together with the sessions'
//! last sequence numbers, so that a frame that comes twice is stored once, whoever brings it.

pub(crate) mod copy;
pub(crate) mod diagnosis;
mod error;
pub(crate) mod file;
pub(crate) mod postgres;
mod rows;
pub(crate) mod sqlite;
pub(crate) mod timescale;
pub(crate) mod upkeep;
mod url;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::hash::Hash;
use std::str::FromStr;
use std::sync::Arc;

use polymeter_proto::ledger::Tally;
use polymeter_proto::series::{Identifier, Labels, SessionId};

pub use self::diagnosis::FileProblem;
pub(crate) use self::error::Doing;
pub use self::error::StoreError;
pub use self::file::Displaced;
pub use self::url::{InvalidStoreUrl, StoreUrl};
use crate::commit::{Accepted, Committed, Job, Series, Session, check_gaps};

/// The newest version of the schema that this program knows. Each version has a file per store in `schema/`.
pub const SCHEMA_VERSION: i32 = 4;

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
            _ => Err(format!("`{}` is none of auto, off, require", crate::log::printable(text))),
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
pub(crate) struct Origin {
    /// The file of SQLite.
    file: Option<file::FileId>,
    /// The object id of a table of PostgreSQL, which another database or another table would not have.
    table: Option<u32>,
    /// There was no schema: all that it has came by this connection.
    is_new: bool,
}

impl Origin {
    /// Whether a connection of origin `later` leads to what this one led to.
    pub(crate) fn is_same(self, later: Self) -> bool {
        (self.file, self.table) == (later.file, later.table) && !later.is_new
    }

    /// Whether there was no schema before.
    pub(crate) const fn is_new(self) -> bool {
        self.is_new
    }
}

/// One connection to a store.
#[derive(Debug)]
pub(crate) enum Store {
    Sqlite(Box<sqlite::SqliteStore>),
    Postgres(Box<postgres::PostgresStore>),
}

impl Store {
    /// Connects, and brings the schema up to date. A file that is missing is made where it `may_create`.
    pub(crate) fn open(
        url: &StoreUrl,
        timescale: TimescaleMode,
        may_create: bool,
    ) -> Result<Self, StoreError> {
        Ok(match url {
            StoreUrl::Sqlite(path) => Self::Sqlite(Box::new(sqlite::SqliteStore::open(path, may_create)?)),
            StoreUrl::Postgres(config) => {
                Self::Postgres(Box::new(postgres::PostgresStore::open(config, timescale)?))
            }
        })
    }

    /// Where the connection leads to.
    pub(crate) fn origin(&self) -> Origin {
        match self {
            Self::Sqlite(store) => store.origin(),
            Self::Postgres(store) => store.origin(),
        }
    }

    /// How samples are written.
    pub(crate) fn choice(&self) -> Choice {
        match self {
            Self::Sqlite(_) => Choice { way: Way::Sqlite, why: "the default".to_owned() },
            Self::Postgres(store) => store.choice().clone(),
        }
    }

    /// Checks that what was committed is where others will find it, as far as that can be told at once.
    pub(crate) fn check(&mut self) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(store) => store.check_files(),
            Self::Postgres(_) => Ok(()),
        }
    }

    /// The newest frame that is stored of a session; 0 where there is none.
    pub(crate) fn last_sequence(&mut self, session: SessionId) -> Result<u64, StoreError> {
        match self {
            Self::Sqlite(store) => store.last_sequence(session),
            Self::Postgres(store) => store.last_sequence(session),
        }
    }

    /// Stores `frames` in one transaction, without those that are stored already. Nothing is stored in case of an error.
    pub(crate) fn commit(&mut self, frames: &[Accepted]) -> Result<Committed, StoreError> {
        match self {
            Self::Sqlite(store) => store.commit(frames),
            Self::Postgres(store) => store.commit(frames),
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
pub(crate) fn jobs_without_key(frames: &[Accepted]) -> Vec<Arc<Job>> {
    let mut jobs = distinct(frames.iter().flat_map(Accepted::jobs).filter(|job| job.key.get().is_none()));
    jobs.sort_by(|a, b| {
        let identity =
            |job: &Job| (job.descriptor.cluster.clone(), job.descriptor.job_id.clone(), job.node().clone());
        identity(a).cmp(&identity(b))
    });
    jobs
}

/// See [`jobs_without_key`].
pub(crate) fn series_without_id(frames: &[Accepted]) -> Vec<Arc<Series>> {
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
pub(crate) fn job_key(series: &Series) -> Option<i32> {
    series.job.as_ref().and_then(|job| job.key.get().copied())
}

/// The sessions of `frames`, each once, in the order of their ids.
pub(crate) fn sessions(frames: &[Accepted]) -> Vec<Arc<Session>> {
    let by_id: BTreeMap<_, _> = frames.iter().map(|frame| (frame.session.id, &frame.session)).collect();
    by_id.into_values().cloned().collect()
}

/// The frames that are not stored yet, given up to where each session is; and where each session is with them.
///
/// # Errors
/// When the store lacks frames that come before them.
pub(crate) fn not_stored(
    frames: &[Accepted],
    mut last: HashMap<SessionId, u64>,
) -> Result<(Vec<&Accepted>, HashMap<SessionId, u64>), StoreError> {
    check_gaps(frames, &last).map_err(StoreError::WentBack)?;
    let is_new = |frame: &&Accepted| {
        let last = last.entry(frame.session.id).or_default();
        let is_new = frame.sequence > *last;
        *last = frame.sequence.max(*last);
        is_new
    };
    Ok((frames.iter().filter(is_new).collect(), last))
}

/// A tally with what identifies it.
pub(crate) type LatestTally<'a> = ((SessionId, Option<i32>, &'a Identifier), &'a Tally);

/// The latest tally of each session, job and source.
pub(crate) fn latest_tallies<'a>(frames: &[&'a Accepted]) -> Vec<LatestTally<'a>> {
    let tallies = frames.iter().flat_map(|frame| {
        let of_frame = frame.tallies.iter();
        of_frame.map(|(job, source, tally)| ((frame.session.id, key_of(job.as_ref()), source), tally))
    });
    latest(tallies)
}

/// Samples that are not among the stored, although they were taken.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Elsewhere {
    /// Skipped by the agent.
    pub(crate) skipped: u64,
    /// Rejected here.
    pub(crate) rejected: u64,
    /// Stored apart.
    pub(crate) apart: u64,
}

/// What is not among the stored, of each session, job and source.
pub(crate) type ElsewhereOfSource<'a> = ((SessionId, Option<i32>, &'a Identifier), Elsewhere);

/// What `frames` say is lost or apart, as far as it is known of which source.
pub(crate) fn elsewhere_by_source<'a>(frames: &[&'a Accepted]) -> Vec<ElsewhereOfSource<'a>> {
    let mut counts: BTreeMap<_, Elsewhere> = BTreeMap::new();
    for frame in frames {
        let key = |job: Option<&Arc<Job>>, source| (frame.session.id, key_of(job), source);
        for loss in &frame.losses {
            let Some(source) = loss.source.as_deref() else { continue };
            let of = counts.entry(key(loss.job.as_ref(), source)).or_default();
            let count = if loss.reason.is_here() { &mut of.rejected } else { &mut of.skipped };
            *count = count.saturating_add(loss.samples);
        }
        for samples in &frame.apart {
            let of = counts.entry(key(samples.job.as_ref(), &samples.source)).or_default();
            of.apart = of.apart.saturating_add(samples.values.len() as u64);
        }
    }
    counts.into_iter().collect()
}

/// How many samples of each session `frames` hold, without those apart.
pub(crate) fn rows_by_session(frames: &[&Accepted]) -> HashMap<SessionId, u64> {
    let mut rows = HashMap::new();
    for frame in frames {
        *rows.entry(frame.session.id).or_default() += frame.rows() as u64;
    }
    rows
}

fn latest<K: Hash + Eq + Ord + Copy, V>(all: impl Iterator<Item = (K, V)>) -> Vec<(K, V)> {
    all.collect::<BTreeMap<_, _>>().into_iter().collect()
}

/// The store's key of a job.
pub(crate) fn key_of(job: Option<&Arc<Job>>) -> Option<i32> {
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
