//! Shared code of the tests: actual stores, a minimal agent over an actual socket, and the collector's
//! program.

/// Makes a test of each scenario on each kind of store.
macro_rules! scenarios {
    (exclusive $($scenario:ident),* $(,)?) => {
        pub(crate) const TESTS: &[polymeter_test_harness::Test] = &[
            $(scenarios!(@one "sqlite", Sqlite, $scenario).exclusive(),)*
            $(scenarios!(@one "postgres", Postgres, $scenario).exclusive(),)*
            $(scenarios!(@one "timescaledb", Timescale, $scenario).exclusive(),)*
            $(scenarios!(@one "citus", Citus, $scenario).exclusive(),)*
        ];
    };
    // Plans of statements, which functions hide where samples are distributed.
    (undistributed $($scenario:ident),* $(,)?) => {
        pub(crate) const TESTS: &[polymeter_test_harness::Test] = &[
            $(scenarios!(@one "sqlite", Sqlite, $scenario),)*
            $(scenarios!(@one "postgres", Postgres, $scenario),)*
            $(scenarios!(@one "timescaledb", Timescale, $scenario),)*
        ];
    };
    ($($scenario:ident),* $(,)?) => {
        pub(crate) const TESTS: &[polymeter_test_harness::Test] = &[
            $(scenarios!(@one "sqlite", Sqlite, $scenario),)*
            $(scenarios!(@one "postgres", Postgres, $scenario),)*
            $(scenarios!(@one "timescaledb", Timescale, $scenario),)*
            $(scenarios!(@one "citus", Citus, $scenario),)*
        ];
    };
    (@one $store:literal, $kind:ident, $scenario:ident) => {
        polymeter_test_harness::Test::new(
            concat!(module_path!(), "::", $store, "::", stringify!($scenario)),
            || $scenario(&mut $crate::support::TestEnvironment::new($crate::support::Kind::$kind)),
        )
    };
}

pub(crate) mod agent;
pub(crate) mod events;
pub(crate) mod grafana;
pub(crate) mod http;
mod inserts;
pub(crate) mod openmetrics;
pub(crate) mod program;
pub(crate) mod reading;
#[allow(dead_code, unreachable_pub, reason = "shared with the end-to-end tests")]
pub(crate) mod server;
pub(crate) mod sql;

use std::path::PathBuf;
use std::time::Duration;

use polymeter_collector::clock::Clock;
use polymeter_collector::{Collector, CollectorConfig};
use polymeter_store::reader::{JobFilter, JobRow, Reader, SeriesScope};
use polymeter_store::{ExtensionMode, StoreUrl};
use tempfile::TempDir;

use self::server::Server;

const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let clock = Clock::start();
    while !condition() {
        assert!(clock.now().since_start < DEADLINE, "timeout while waiting until {what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

pub(crate) fn now_us() -> i64 {
    Clock::start().now().wall_us / 1_000_000 * 1_000_000
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
    Timescale,
    /// PostgreSQL with stand-ins for the functions of Citus.
    Citus,
}

const CITUS: &str = include_str!("citus.sql");

pub(crate) struct TestEnvironment {
    pub(crate) kind: Kind,
    directory: TempDir,
    pub(crate) server: Option<Server>,
    pub(crate) context: zmq::Context,
}

impl TestEnvironment {
    /// Skips the running test if the machine lacks the server.
    pub(crate) fn new(kind: Kind) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = match kind {
            Kind::Sqlite => None,
            Kind::Postgres | Kind::Timescale | Kind::Citus => {
                let need = if kind == Kind::Timescale { "timescaledb" } else { "postgres" };
                let server = Server::start(kind == Kind::Timescale);
                Some(server.unwrap_or_else(|reason| polymeter_test_harness::skip(need, &reason)))
            }
        };
        if let Some(server) = server.as_ref().filter(|_| kind == Kind::Citus) {
            server.query(CITUS);
        }
        Self { kind, directory, server, context: zmq::Context::new() }
    }

    pub(crate) fn url(&self) -> StoreUrl {
        match &self.server {
            Some(server) => server.url().parse().unwrap(),
            None => format!("sqlite:{}", self.directory.path().join("store.db").display()).parse().unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn config(&self) -> CollectorConfig {
        let endpoint = format!("ipc://{}", self.directory.path().join("collector").display());
        let use_of = |kind| if self.kind == kind { ExtensionMode::Require } else { ExtensionMode::Auto };
        CollectorConfig {
            commit_interval: Duration::from_millis(20),
            timescaledb: use_of(Kind::Timescale),
            citus: use_of(Kind::Citus),
            // Samples of any age stay.
            retention: None,
            ..CollectorConfig::new(endpoint, self.url())
        }
    }

    pub(crate) fn collector(&self) -> Collector {
        Collector::start(&self.config(), &self.context).unwrap()
    }

    pub(crate) fn execute(&mut self, sql: &str) {
        match &self.server {
            Some(server) => drop(server.query(sql)),
            None => {
                let path = self.directory.path().join("store.db");
                let connection = rusqlite::Connection::open(path).unwrap();
                connection.execute_batch(sql).unwrap();
            }
        }
    }

    /// Lets tests insert rows into the views `series`, `plan_change` and `ledger`.
    pub(crate) fn accept_inserts(&mut self) {
        self.execute(if self.kind == Kind::Sqlite { inserts::SQLITE } else { inserts::POSTGRES });
    }

    pub(crate) fn lines(&self, sql: &str) -> Vec<String> {
        if let Some(server) = &self.server {
            return server.query(sql).lines().map(str::to_owned).collect();
        }
        let connection = rusqlite::Connection::open(self.directory.path().join("store.db")).unwrap();
        let mut statement = connection.prepare(sql).unwrap();
        statement.query_map((), |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    }

    pub(crate) fn query_plan(&self, sql: &str) -> Vec<String> {
        let connection = rusqlite::Connection::open(self.directory.path().join("store.db")).unwrap();
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        statement.query_map((), |row| row.get(3)).unwrap().collect::<Result<_, _>>().unwrap()
    }

    pub(crate) fn number(&self, sql: &str) -> i64 {
        match &self.server {
            Some(server) => {
                let mut output = server.run_as("postgres", "postgres", sql);
                // The maintenance dropped a chunk between the plan of the query and its execution.
                if sql::text(&output).contains("could not open relation with OID") {
                    output = server.run_as("postgres", "postgres", sql);
                }
                let number = sql::text(&output);
                number.trim().parse().unwrap_or_else(|error| panic!("{sql}: {error}: {number}"))
            }
            None => {
                let path = self.directory.path().join("store.db");
                rusqlite::Connection::open(path).unwrap().query_row(sql, (), |row| row.get(0)).unwrap()
            }
        }
    }

    /// The columns of the query must be numbers.
    pub(crate) fn rows(&self, sql: &str) -> Vec<Vec<f64>> {
        if let Some(server) = &self.server {
            let text = server.query(sql);
            return text
                .lines()
                .map(|row| row.split('|').map(|field| field.parse().unwrap()).collect())
                .collect();
        }
        let connection = rusqlite::Connection::open(self.directory.path().join("store.db")).unwrap();
        let mut statement = connection.prepare(sql).unwrap();
        let columns = 0..statement.column_count();
        statement
            .query_map((), |row| columns.clone().map(|column| row.get(column)).collect())
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap()
    }

    pub(crate) fn reader(&self) -> Reader {
        Reader::open(&self.url()).unwrap()
    }

    pub(crate) fn jobs(&self) -> Vec<JobRow> {
        let mut jobs = self.reader().jobs(&JobFilter { limit: u32::MAX, ..JobFilter::default() }).unwrap();
        jobs.reverse();
        jobs
    }

    pub(crate) fn counts(&self, of: SeriesScope<'_>) -> Vec<usize> {
        counts(&mut self.reader(), of)
    }
}

pub(crate) fn counts(reader: &mut Reader, of: SeriesScope<'_>) -> Vec<usize> {
    let series = reader.series(of).unwrap().into_iter();
    series.map(|row| reader.points(row.series_id, i64::MIN..i64::MAX).unwrap().len()).collect()
}

pub(crate) fn only_job(environment: &TestEnvironment) -> JobRow {
    let jobs = environment.jobs();
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    jobs.into_iter().next().unwrap()
}
