//! PostgreSQL, with or without TimescaleDB.
//!
//! A connection is driven by an event loop of its own, on the thread that uses it.

mod connection;
mod copy;
mod maintenance;
mod migrations;
mod partitions;
mod statement;
mod timescale;

use std::fmt;
use std::sync::Arc;

use tokio::runtime::Runtime;
use tokio_postgres::config::Host;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};

use self::connection::PostgresConnection;
use crate::backend::{Backend, Connection, Opened};
use crate::error::{Context, DatabaseError, ErrorKind, chain};
use crate::{Maintenance, OpenOptions, StoreError, TimescaleMode, WriteMode, limits};

/// The advisory lock under which collectors change the schema and the partitions: "polymete" in ASCII.
const SCHEMA_LOCK: i64 = 0x706f_6c79_6d65_7465;

/// The advisory lock under which jobs get their rows, for no unique index can tell when two are the same.
const JOB_LOCK: i64 = SCHEMA_LOCK + 1;

/// The advisory lock of the collector that does the maintenance.
const MAINTENANCE_LOCK: i64 = SCHEMA_LOCK + 2;

/// The form of the table of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SampleTable {
    /// A hypertable of TimescaleDB, compressed as the rows arrive.
    DirectCompress,
    /// A hypertable of TimescaleDB, whose older chunks may be compressed later.
    Hypertable,
    /// A table with a partition for each day.
    Partitions,
}

/// The form of the table of samples, and the reason for it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ChosenTable {
    table: SampleTable,
    reason: String,
}

impl From<ChosenTable> for WriteMode {
    fn from(ChosenTable { table, reason }: ChosenTable) -> Self {
        let name = match table {
            SampleTable::DirectCompress => "TimescaleDB hypertable with direct compression",
            SampleTable::Hypertable => "TimescaleDB hypertable",
            SampleTable::Partitions => "PostgreSQL with a partition per day",
        };
        Self { name, reason }
    }
}

/// A database of PostgreSQL.
pub(crate) struct Postgres {
    config: Config,
}

/// Reads a `postgres://` URL, or libpq's `key=value` words.
pub(crate) fn parse_url(text: &str) -> Option<Result<Arc<dyn Backend>, String>> {
    let is_url = text.starts_with("postgres://") || text.starts_with("postgresql://");
    let is_words = text.split_whitespace().next().is_some_and(|word| word.contains('='));
    (is_url || is_words).then(|| {
        let config: Config = text.parse().map_err(|error: tokio_postgres::Error| chain(&error))?;
        if config.get_hosts().is_empty() {
            return Err("it names no host; for a Unix socket write host=/run/postgresql".to_owned());
        }
        Ok(Arc::new(Postgres { config }) as Arc<dyn Backend>)
    })
}

impl fmt::Display for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgreSQL")?;
        if let Some(database) = self.config.get_dbname() {
            write!(f, " database {database}")?;
        }
        match self.config.get_hosts().first() {
            Some(Host::Tcp(host)) => write!(f, " on {host}"),
            Some(Host::Unix(path)) => write!(f, " at {}", path.display()),
            None => Ok(()),
        }
    }
}

impl Backend for Postgres {
    fn has_parallel_writers(&self) -> bool {
        true
    }

    fn open(&self, options: &OpenOptions) -> Result<Opened, StoreError> {
        let runtime = event_loop()?;
        let (client, chosen, origin) = runtime.block_on(async {
            let mut client = connect(&self.config).await?;
            let (chosen, origin) = migrations::migrate(&mut client, options.timescale).await?;
            Ok::<_, StoreError>((client, chosen, origin))
        })?;
        let connection = PostgresConnection::new(runtime, client, Some(chosen.table));
        Ok(Opened { connection: Box::new(connection), origin, write_mode: chosen.into() })
    }

    fn open_to_read(&self) -> Result<Box<dyn Connection>, StoreError> {
        let runtime = event_loop()?;
        let client = runtime.block_on(connect(&self.config))?;
        Ok(Box::new(PostgresConnection::new(runtime, client, None)))
    }

    fn without_tables(&self) -> StoreError {
        StoreError::Unusable(
            "cannot read the database: it has no tables of Polymeter; a collector creates them when it first starts"
                .to_owned(),
        )
    }

    fn probe(&self) -> Result<(), StoreError> {
        event_loop()?.block_on(connect(&self.config)).map(drop)
    }

    fn start_maintenance(&self) -> Result<Option<Maintenance>, StoreError> {
        maintenance::start(self.config.clone()).map(Some)
    }
}

/// Returns an event loop for one thread.
fn event_loop() -> Result<Runtime, StoreError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StoreError::Thread)
}

/// Connects. A server that vanishes silently is noticed in about a minute.
async fn connect(config: &Config) -> Result<Client, StoreError> {
    let mut config = config.clone();
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(limits::CONNECT);
    }
    if config.get_application_name().is_none() {
        config.application_name("polymeter-collector");
    }
    config.tcp_user_timeout(limits::CONNECT * 6).keepalives_idle(limits::CONNECT * 3);
    let (client, connection) = config.connect(NoTls).await.context("connect to the database")?;
    // Its outcome shows in the client's next call.
    tokio::spawn(connection);
    Ok(client)
}

impl From<tokio_postgres::Error> for DatabaseError {
    fn from(error: tokio_postgres::Error) -> Self {
        let kind = match error.as_db_error() {
            Some(error) if *error.code() == SqlState::UNDEFINED_TABLE => ErrorKind::MissingTable,
            // A violation that names no constraint is of partitions: one was dropped, and is created again.
            Some(error)
                if ROW_ERRORS.contains(&error.code().code())
                    || error.code().code() == "23514" && error.constraint().is_some() =>
            {
                ErrorKind::BadRow
            }
            Some(_) | None => ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// The SQLSTATEs of which a value is the only possible cause. An exhausted sequence (2200H) is none of them.
const ROW_ERRORS: [&str; 9] = [
    "22001", // string_data_right_truncation
    "22003", // numeric_value_out_of_range
    "22007", // invalid_datetime_format
    "22008", // datetime_field_overflow
    "22021", // character_not_in_repertoire
    "22P02", // invalid_text_representation
    "22P03", // invalid_binary_representation
    "22P05", // untranslatable_character
    "23502", // not_null_violation
];
