//! What the tests share: stores that are really there, and an agent of a few lines over a real socket.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

pub mod agent;
pub mod server;

use std::time::Duration;

use polymeter_collector::clock::Clock;
use polymeter_collector::{Collector, Config};
use polymeter_store::reader::Reader;
use polymeter_store::{StoreUrl, TimescaleMode};
use tempfile::TempDir;

use self::server::Server;

/// How long anything may take before a test fails.
const DEADLINE: Duration = Duration::from_secs(60);

/// Waits until `condition` holds.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let clock = Clock::start();
    while !condition() {
        assert!(clock.now().since_start < DEADLINE, "waited in vain until {what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// Microseconds since the epoch, in whole seconds.
pub fn now_us() -> i64 {
    Clock::start().now().wall_us / 1_000_000 * 1_000_000
}

/// A kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Sqlite,
    Postgres,
    Timescale,
}

/// A store, and a place for sockets.
pub struct Site {
    pub kind: Kind,
    directory: TempDir,
    pub server: Option<Server>,
    pub context: zmq::Context,
}

impl Site {
    /// None, and a line that says so, where the machine lacks what it takes.
    pub fn new(test: &str, kind: Kind) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let server = match kind {
            Kind::Sqlite => None,
            Kind::Postgres | Kind::Timescale => match Server::start(kind == Kind::Timescale) {
                Ok(server) => Some(server),
                Err(why) => {
                    skip(test, if kind == Kind::Postgres { "postgres" } else { "timescaledb" }, &why);
                    return None;
                }
            },
        };
        Some(Self { kind, directory, server, context: zmq::Context::new() })
    }

    pub fn url(&self) -> StoreUrl {
        match &self.server {
            Some(server) => server.url().parse().unwrap(),
            None => format!("sqlite:{}", self.directory.path().join("store.db").display()).parse().unwrap(),
        }
    }

    pub fn config(&self) -> Config {
        let endpoint = format!("ipc://{}", self.directory.path().join("collector").display());
        let timescaledb =
            if self.kind == Kind::Timescale { TimescaleMode::Require } else { TimescaleMode::Auto };
        Config {
            commit_interval: Duration::from_millis(20),
            timescaledb,
            ..Config::new(endpoint, self.url())
        }
    }

    pub fn collector(&self) -> Collector {
        Collector::start(&self.config(), &self.context).unwrap()
    }

    /// Changes the store behind the collector's back.
    pub fn execute(&mut self, sql: &str) {
        match &self.server {
            Some(server) => drop(server.query(sql)),
            None => {
                let path = self.directory.path().join("store.db");
                rusqlite::Connection::open(path).unwrap().execute_batch(sql).unwrap();
            }
        }
    }

    /// The number that a query answers.
    pub fn number(&self, sql: &str) -> i64 {
        match &self.server {
            Some(server) => server.query(sql).parse().unwrap(),
            None => {
                let path = self.directory.path().join("store.db");
                rusqlite::Connection::open(path).unwrap().query_row(sql, (), |row| row.get(0)).unwrap()
            }
        }
    }

    pub fn reader(&self) -> Reader {
        Reader::open(&self.url()).unwrap()
    }
}

fn skip(test: &str, what: &str, why: &str) {
    let required = std::env::var("POLYMETER_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|required| required == what), "{what} is required, but {why}");
    println!("SKIPPED {test}: {why}");
}

/// Makes a test of each scenario on each kind of store.
#[macro_export]
macro_rules! scenarios {
    ($($(#[$attribute:meta])* $scenario:ident),* $(,)?) => {
        mod sqlite { $($(#[$attribute])* #[test] fn $scenario() { $crate::run(concat!("sqlite::", stringify!($scenario)), $crate::common::Kind::Sqlite, $crate::$scenario); })* }
        mod postgres { $($(#[$attribute])* #[test] fn $scenario() { $crate::run(concat!("postgres::", stringify!($scenario)), $crate::common::Kind::Postgres, $crate::$scenario); })* }
        mod timescaledb { $($(#[$attribute])* #[test] fn $scenario() { $crate::run(concat!("timescaledb::", stringify!($scenario)), $crate::common::Kind::Timescale, $crate::$scenario); })* }

        fn run(test: &str, kind: common::Kind, scenario: fn(&mut common::Site)) {
            if let Some(mut site) = common::Site::new(test, kind) {
                scenario(&mut site);
            }
        }
    };
}
