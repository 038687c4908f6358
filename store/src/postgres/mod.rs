//! PostgreSQL, with or without TimescaleDB.
//!
//! Each connection has its own event loop, on the thread that uses it.

mod connection;
mod copy;
mod maintenance;
mod migrations;
mod partitions;
mod sample_table;
mod server;
mod statement;
mod timescale;

use std::fmt;
use std::sync::Arc;

use tokio_postgres::Config;
use tokio_postgres::config::Host;
use tokio_postgres::error::SqlState;

use self::connection::PostgresConnection;
use self::server::{connect, event_loop};
use crate::backend::{Backend, Connection, Opened};
use crate::error::{Context, DatabaseError, ErrorKind, chain};
use crate::{Maintenance, OpenOptions, StoreError};

/// The settings of a connection to read. A plan for the parameters at hand excludes partitions. The samples of a job are
/// sorted in memory up to this size, on disk beyond it.
const READING: &str =
    "SET default_transaction_read_only = on; SET plan_cache_mode = force_custom_plan; SET work_mem = '32MB'";

/// A PostgreSQL database.
pub(crate) struct Postgres {
    config: Config,
}

/// Parses a `postgres://` URL, or libpq's `key=value` words.
pub(crate) fn parse_url(text: &str) -> Option<Result<Arc<dyn Backend>, String>> {
    let is_url = text.starts_with("postgres://") || text.starts_with("postgresql://");
    let is_words = text.split_whitespace().next().is_some_and(|word| word.contains('='));
    (is_url || is_words).then(|| {
        let config: Config = text.parse().map_err(|error: tokio_postgres::Error| chain(&error))?;
        if config.get_hosts().is_empty() {
            return Err("missing host; for a Unix socket write host=/run/postgresql".to_owned());
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
        let client = runtime.block_on(async {
            let client = connect(&self.config).await?;
            client.batch_execute(READING).await.context("set up the connection")?;
            Ok::<_, StoreError>(client)
        })?;
        Ok(Box::new(PostgresConnection::new(runtime, client, None)))
    }

    fn without_tables(&self) -> StoreError {
        StoreError::Unusable(
            "cannot read the database: it has no tables of Polymeter; start a polymeter-collector with it once, which creates them"
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

impl From<tokio_postgres::Error> for DatabaseError {
    fn from(error: tokio_postgres::Error) -> Self {
        let kind = match error.as_db_error() {
            Some(error) if *error.code() == SqlState::UNDEFINED_TABLE => ErrorKind::MissingTable,
            // A violation without a constraint's name concerns partitions: one was dropped, and is created
            // again.
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

/// The SQLSTATEs for which a value is the only possible cause. An exhausted sequence (2200H) is not among
/// them.
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
