//! Finding out what the server offers of TimescaleDB, and using it.

use tokio_postgres::{Client, Transaction};

use crate::error::chain;
use crate::{Choice, Doing, StoreError, TimescaleMode, Way};

const LOOKING: &str = "finding out what the server offers";

/// What a server offers.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The extension's files are there.
    available: bool,
    /// The server loaded it at its start.
    preloaded: bool,
    /// The extension is created in this database.
    installed: bool,
    /// The licence in force: `timescale` or `apache`.
    licence: Option<String>,
    /// Rows can be compressed as they are copied.
    direct_compress: bool,
}

impl Offer {
    /// Why no hypertable can be made; none where one can.
    fn obstacle(&self) -> Option<&'static str> {
        match self {
            Self { available: false, .. } => Some("the server does not have TimescaleDB"),
            Self { preloaded: false, .. } => {
                Some("TimescaleDB is not in the server's shared_preload_libraries")
            }
            Self { installed: false, .. } => Some(
                "the extension timescaledb is not created in this database, and this user may not create it",
            ),
            Self { licence: None, .. } => Some("TimescaleDB names no licence"),
            _ => None,
        }
    }

    fn compresses(&self) -> bool {
        self.licence.as_deref() == Some("timescale")
    }
}

/// What the server offers to this connection. Needs no privilege.
///
/// # Errors
/// When the database has the extension and the server does not load it: hypertables then look empty, and what is written
/// into them is lost to them.
pub(crate) async fn look(client: &Client) -> Result<Offer, StoreError> {
    let row = client
        .query_one(
            "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'timescaledb'),
                    EXISTS (SELECT FROM pg_settings WHERE name = 'timescaledb.max_background_workers'),
                    EXISTS (SELECT FROM pg_extension WHERE extname = 'timescaledb'),
                    current_setting('timescaledb.license', true),
                    EXISTS (SELECT FROM pg_settings WHERE name = 'timescaledb.enable_direct_compress_copy')",
            &[],
        )
        .await
        .doing(LOOKING)?;
    let offer = Offer {
        available: row.get(0),
        preloaded: row.get(1),
        installed: row.get(2),
        licence: row.get(3),
        direct_compress: row.get(4),
    };
    if offer.installed && !offer.preloaded {
        return Err(StoreError::Unusable(
            "the database has the extension timescaledb, and the server does not load it: add timescaledb to shared_preload_libraries and restart the server".to_owned(),
        ));
    }
    Ok(offer)
}

/// Creates the extension where that is wanted, possible and not done yet, and looks again.
///
/// Not to be preloaded must be known before: to create the extension then ends the connection.
pub(crate) async fn install(client: &Client, mode: TimescaleMode, offer: Offer) -> Result<Offer, StoreError> {
    if mode == TimescaleMode::Off || !offer.available || !offer.preloaded || offer.installed {
        return Ok(offer);
    }
    match client.batch_execute("CREATE EXTENSION IF NOT EXISTS timescaledb").await {
        Ok(()) => look(client).await,
        Err(error) => {
            tracing::info!("cannot create the extension timescaledb: {}", chain(&error));
            Ok(offer)
        }
    }
}

/// Whether a new table of samples is to be a hypertable.
///
/// # Errors
/// When TimescaleDB is required and cannot be used.
pub(crate) fn wants_hypertable(offer: &Offer, mode: TimescaleMode) -> Result<bool, StoreError> {
    match (mode, offer.obstacle()) {
        (TimescaleMode::Off, _) | (TimescaleMode::Auto, Some(_)) => Ok(false),
        (TimescaleMode::Require, Some(obstacle)) => Err(required(obstacle)),
        (TimescaleMode::Auto | TimescaleMode::Require, None) => Ok(true),
    }
}

fn required(obstacle: &str) -> StoreError {
    StoreError::Unusable(format!(
        "TimescaleDB is required, but {obstacle}; set timescaledb = \"auto\" to do without"
    ))
}

/// Makes the new table of samples a hypertable, with compression where the licence allows it.
pub(crate) async fn make_hypertable(transaction: &Transaction<'_>, offer: &Offer) -> Result<(), StoreError> {
    let doing = "creating the hypertable";
    // The default index on time would be one more to keep, and would switch direct compression off if it were unique.
    transaction.batch_execute(CREATION).await.doing(doing)?;
    if offer.compresses() {
        transaction.batch_execute(COMPRESSION).await.doing(doing)?;
    }
    Ok(())
}

/// Makes the table a hypertable.
const CREATION: &str = "SELECT create_hypertable('samples', by_range('time', interval '1 day'), create_default_indexes => false)";

/// Enables its compression. Segments by series would hold a row or two each at these rates: 91 bytes a row were measured,
/// against 7 to 10.
const COMPRESSION: &str =
    "ALTER TABLE samples SET (timescaledb.compress, timescaledb.compress_segmentby = '',
                                          timescaledb.compress_orderby = 'series_id,time');
     SELECT add_compression_policy('samples', compress_after => interval '2 days', if_not_exists => true)";

/// The statements that give a hypertable of version 4 keys of 64 bits. The type of a column of a compressed hypertable cannot
/// be changed, so that all rows are copied: one to two million a second.
pub(crate) fn widen(offer: &Offer) -> String {
    let direct = "SELECT set_config(name, 'on', true) FROM pg_settings WHERE name = 'timescaledb.enable_direct_compress_insert';";
    let compression = if offer.compresses() { COMPRESSION } else { "" };
    format!(
        "ALTER TABLE samples RENAME TO samples_4;
         CREATE TABLE samples (time timestamptz NOT NULL, series_id int8 NOT NULL, value float8 NOT NULL);
         {CREATION}; {compression}; {direct}
         INSERT INTO samples SELECT time, series_id, value FROM samples_4;
         DROP TABLE samples_4;"
    )
}

/// How samples are written into the table that is there, and prepares this connection for it.
///
/// `is_new` says that the table was made just now.
pub(crate) async fn choose(
    client: &Client,
    offer: &Offer,
    mode: TimescaleMode,
    is_new: bool,
) -> Result<Choice, StoreError> {
    let partitioned: bool = client
        .query_one("SELECT relkind = 'p' FROM pg_class WHERE oid = 'samples'::regclass", &[])
        .await
        .doing(LOOKING)?
        .get(0);
    if partitioned {
        return choose_partitions(offer, mode, is_new);
    }
    if let Some(obstacle) = offer.obstacle() {
        return Err(StoreError::Unusable(format!(
            "the table samples is neither partitioned nor a hypertable: {obstacle}"
        )));
    }
    let compressed: bool = client
        .query_one(
            "SELECT coalesce(bool_or(compression_enabled), false) FROM timescaledb_information.hypertables
             WHERE hypertable_schema = current_schema() AND hypertable_name = 'samples'",
            &[],
        )
        .await
        .doing(LOOKING)?
        .get(0);
    let hypertable = |why: &str| Ok(Choice { way: Way::Hypertable, why: why.to_owned() });
    match offer {
        _ if mode == TimescaleMode::Off => {
            hypertable("timescaledb is off, but the table was made a hypertable before")
        }
        _ if !offer.compresses() => hypertable("this licence of TimescaleDB has no compression"),
        _ if !compressed => hypertable("compression is not enabled on the table"),
        Offer { direct_compress: false, .. } => {
            hypertable("this TimescaleDB is older than 2.21, and cannot compress what is copied")
        }
        _ => {
            client.batch_execute("SET timescaledb.enable_direct_compress_copy = on").await.doing(LOOKING)?;
            Ok(Choice { way: Way::DirectCompress, why: "the server offers it".to_owned() })
        }
    }
}

fn choose_partitions(offer: &Offer, mode: TimescaleMode, is_new: bool) -> Result<Choice, StoreError> {
    let why = match (mode, offer.obstacle()) {
        (TimescaleMode::Off, _) => "timescaledb is off",
        (_, Some(obstacle)) if is_new || !offer.preloaded => obstacle,
        (_, _) => "the table was made before without TimescaleDB",
    };
    if mode == TimescaleMode::Require {
        return Err(required(why));
    }
    Ok(Choice { way: Way::Partitions, why: why.to_owned() })
}
