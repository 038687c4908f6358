//! PostgreSQL, with or without TimescaleDB or Citus.
//!
//! Each connection has its own event loop, on the thread that uses it.

mod cancellation;
mod citus;
mod connect;
mod connection;
mod continuous;
mod copy;
mod kept;
mod maintenance;
mod measure;
mod migrations;
mod parameters;
mod partitions;
mod parts;
mod reorder;
mod retention;
mod rollup_tables;
mod sample_table;
mod server;
mod slow_statements;
mod statement;
mod table_detection;
mod timescale;

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use tokio_postgres::error::SqlState;

use self::cancellation::cancel_statement;
use self::connect::{Access, Settings, connect};
use self::connection::PostgresConnection;
use self::sample_table::SampleTable;
use self::server::event_loop;
use self::slow_statements::Watched;
use crate::backend::{
    AdministrationSession, Backend, InvalidStoreUrl, MaintenanceSession, Opened, OpenedToRead,
};
use crate::error::{Context, DatabaseError, ErrorKind};
use crate::{OpenOptions, StoreError};

pub(crate) struct Postgres {
    settings: Settings,
}

/// Parses a `postgres://` URL, or libpq's `key=value` words.
pub(crate) fn parse_url(text: &str) -> Option<Result<Arc<dyn Backend>, InvalidStoreUrl>> {
    let is_url = text.starts_with("postgres://") || text.starts_with("postgresql://");
    let is_words = text.split_whitespace().next().is_some_and(|word| word.contains('='));
    (is_url || is_words).then(|| {
        let settings = Settings::parse(text).map_err(InvalidStoreUrl::because)?;
        Ok(Arc::new(Postgres { settings }) as Arc<dyn Backend>)
    })
}

impl fmt::Display for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgreSQL")?;
        if let Some(database) = self.settings.database() {
            write!(f, " database {database}")?;
        }
        write!(f, "{}", self.settings)
    }
}

impl Backend for Postgres {
    fn has_parallel_writers(&self) -> bool {
        true
    }

    fn has_password(&self) -> bool {
        self.settings.has_password()
    }

    fn open(&self, options: &OpenOptions) -> Result<Opened, StoreError> {
        let runtime = event_loop()?;
        let (client, chosen, origin, watched) = runtime.block_on(async {
            let mut client = connect(&self.settings, Access::Write).await?;
            let (chosen, origin) = migrations::migrate(&mut client, options).await?;
            if chosen.table == SampleTable::Distributed {
                citus::configure_writer(&client).await?;
            }
            let watched = Watched::of(&self.settings, &client).await?;
            Ok::<_, StoreError>((client, chosen, origin, watched))
        })?;
        let connection = PostgresConnection::new(runtime, client, Some(chosen.table)).watched(watched);
        Ok(Opened { connection: Box::new(connection), origin, write_mode: chosen.into() })
    }

    fn open_to_read(&self) -> Result<OpenedToRead, StoreError> {
        let runtime = event_loop()?;
        let client = runtime.block_on(connect(&self.settings, Access::Read))?;
        let (running, settings) = (client.cancel_token(), self.settings.clone());
        let mut connection = PostgresConnection::new(runtime, client, None);
        connection.detect_rollups().context("read the form of the rollups")?;
        Ok(OpenedToRead {
            connection: Box::new(connection),
            cancel: Box::new(move || cancel_statement(&settings, &running)),
        })
    }

    fn without_tables(&self) -> StoreError {
        StoreError::WithoutTables
    }

    fn probe(&self) -> Result<(), StoreError> {
        event_loop()?.block_on(connect(&self.settings, Access::Write)).map(drop)
    }

    fn open_to_administer(&self) -> Result<AdministrationSession, StoreError> {
        let runtime = event_loop()?;
        let client = runtime.block_on(connect(&self.settings, Access::Write))?;
        let watched = runtime.block_on(Watched::of(&self.settings, &client))?;
        let connection = Box::new(PostgresConnection::new(runtime, client, None).watched(watched));
        Ok(AdministrationSession {
            connection,
            removal: &retention::REMOVAL,
            measure: Box::new(measure::measure),
        })
    }

    fn open_for_maintenance(&self) -> Result<Option<MaintenanceSession>, StoreError> {
        maintenance::open(&self.settings)
    }
}

impl From<tokio_postgres::Error> for DatabaseError {
    fn from(error: tokio_postgres::Error) -> Self {
        let kind = match error.as_db_error() {
            Some(error) if *error.code() == SqlState::UNDEFINED_TABLE => ErrorKind::MissingTable,
            Some(error) if *error.code() == SqlState::DISK_FULL => ErrorKind::DiskFull,
            // A violation without a constraint's name concerns partitions: one was dropped, and is created
            // again.
            Some(error)
                if ROW_ERRORS.contains(&error.code().code())
                    || error.code().code() == "23514" && error.constraint().is_some() =>
            {
                ErrorKind::BadRow
            }
            None if error.is_closed() || error.source().is_some_and(<dyn Error>::is::<std::io::Error>) => {
                ErrorKind::Unreachable
            }
            Some(_) | None => ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// SQLSTATEs for which a value is the only possible cause. An exhausted sequence (2200H) is not among them.
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
