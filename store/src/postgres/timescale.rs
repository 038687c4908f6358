//! TimescaleDB: detection of its features on the server, and their use.

use tokio_postgres::Client;
use tracing::info;

use super::partitions::is_partitioned;
use super::sample_table::{ChosenTable, SampleTable};
use crate::backend::{Connection, Task};
use crate::error::{Context, chain};
use crate::stop::Stop;
use crate::{ExtensionMode, StoreError};

const ACTION: &str = "detect TimescaleDB";

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Offer {
    available: bool,
    preloaded: bool,
    installed: bool,
    /// Licence in force: `timescale` or `apache`.
    licence: Option<String>,
    /// Rows can be compressed as they are copied, without the faults of versions before 2.28.1.
    direct_compress: bool,
}

impl Offer {
    /// Returns why no hypertable can be created; none if one can.
    fn obstacle(&self) -> Option<&'static str> {
        match self {
            Self { available: false, .. } => Some("the server does not have TimescaleDB"),
            Self { preloaded: false, .. } => {
                Some("TimescaleDB is not in the server's shared_preload_libraries")
            }
            Self { installed: false, .. } => Some(
                "the extension timescaledb is not created in this database, and this user may not create it",
            ),
            Self { licence: None, .. } => Some("TimescaleDB reports no license"),
            _ => None,
        }
    }

    /// Returns true if the licence includes compression and continuous aggregates.
    pub(super) fn compresses(&self) -> bool {
        self.licence.as_deref() == Some("timescale")
    }
}

/// Detects the features that the server offers to this connection. Needs no privilege. Fails if the database
/// has the extension but the server does not load it: hypertables then appear empty, and do not receive rows.
pub(super) async fn detect(client: &Client) -> Result<Offer, StoreError> {
    let row = client
        .query_one(
            "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'timescaledb'),
                    EXISTS (SELECT FROM pg_settings WHERE name = 'timescaledb.max_background_workers'),
                    EXISTS (SELECT FROM pg_extension WHERE extname = 'timescaledb'),
                    current_setting('timescaledb.license', true),
                    EXISTS (SELECT FROM pg_settings WHERE name = 'timescaledb.enable_direct_compress_copy')
                        AND EXISTS (SELECT FROM pg_extension WHERE extname = 'timescaledb'
                                    AND string_to_array(substring(extversion FROM '^[0-9.]+'), '.')::int[] >= ARRAY[2, 28, 1])",
            &[],
        )
        .await
        .context(ACTION)?;
    let offer = Offer {
        available: row.get(0),
        preloaded: row.get(1),
        installed: row.get(2),
        licence: row.get(3),
        direct_compress: row.get(4),
    };
    if offer.installed && !offer.preloaded {
        return Err(StoreError::Unusable(
            "cannot use the database: its extension timescaledb is not loaded by the server; add timescaledb to shared_preload_libraries and restart the server".to_owned(),
        ));
    }
    Ok(offer)
}

/// Creates the extension if it is wanted, possible and not done yet, and returns the resulting features. An
/// extension that is not preloaded must not be created: the server would close the connection.
pub(super) async fn install(client: &Client, mode: ExtensionMode, offer: Offer) -> Result<Offer, StoreError> {
    if mode == ExtensionMode::Off || !offer.available || !offer.preloaded || offer.installed {
        return Ok(offer);
    }
    match client.batch_execute("CREATE EXTENSION IF NOT EXISTS timescaledb").await {
        Ok(()) => detect(client).await,
        Err(error) => {
            info!(error = %chain(&error), "cannot create the extension timescaledb");
            Ok(offer)
        }
    }
}

/// Returns true if a new table of samples becomes a hypertable. Fails if TimescaleDB is required and cannot
/// be used.
pub(super) fn wants_hypertable(offer: &Offer, mode: ExtensionMode) -> Result<bool, StoreError> {
    match (mode, offer.obstacle()) {
        (ExtensionMode::Off, _) | (ExtensionMode::Auto, Some(_)) => Ok(false),
        (ExtensionMode::Require, Some(obstacle)) => Err(required(obstacle)),
        (ExtensionMode::Auto | ExtensionMode::Require, None) => Ok(true),
    }
}

fn required(obstacle: &str) -> StoreError {
    StoreError::Unusable(format!(
        "cannot use TimescaleDB, which is required: {obstacle}; set timescaledb = \"auto\" to use plain PostgreSQL"
    ))
}

pub(super) const SCHEMA: &str = include_str!("../../schema/postgres/samples_hypertable.sql");

/// Enables compression, for [`Offer::compresses`].
pub(super) const COMPRESSION: &str = include_str!("../../schema/postgres/samples_compression.sql");

/// Determines how samples are written into the existing table, and configures this connection for it.
/// `is_new` is true if the table was just created.
pub(super) async fn choose_table(
    client: &Client,
    offer: &Offer,
    mode: ExtensionMode,
    is_new: bool,
) -> Result<ChosenTable, StoreError> {
    if is_partitioned(client).await.context(ACTION)? {
        return choose_partitions(offer, mode, is_new);
    }
    if let Some(obstacle) = offer.obstacle() {
        return Err(StoreError::Unusable(format!(
            "cannot use the table samples, which is neither partitioned nor a hypertable: {obstacle}"
        )));
    }
    let compressed: bool = client
        .query_one(
            "SELECT coalesce(bool_or(compression_enabled), false) FROM timescaledb_information.hypertables
             WHERE hypertable_schema = current_schema() AND hypertable_name = 'samples'",
            &[],
        )
        .await
        .context(ACTION)?
        .get(0);
    let hypertable =
        |reason: &str| Ok(ChosenTable { table: SampleTable::Hypertable, reason: reason.to_owned() });
    match offer {
        _ if mode == ExtensionMode::Off => {
            hypertable("timescaledb is off, but the table is already a hypertable")
        }
        _ if !offer.compresses() => hypertable("the TimescaleDB license does not include compression"),
        _ if !compressed => hypertable("compression is not enabled on the table"),
        Offer { direct_compress: false, .. } => {
            hypertable("TimescaleDB before 2.28.1 loses rows when it compresses during COPY; update it")
        }
        _ => {
            client.batch_execute("SET timescaledb.enable_direct_compress_copy = on").await.context(ACTION)?;
            Ok(ChosenTable {
                table: SampleTable::DirectCompress,
                reason: "supported by the server".to_owned(),
            })
        }
    }
}

fn choose_partitions(offer: &Offer, mode: ExtensionMode, is_new: bool) -> Result<ChosenTable, StoreError> {
    let reason = match (mode, offer.obstacle()) {
        (ExtensionMode::Off, _) => "timescaledb is off",
        (_, Some(obstacle)) if is_new || !offer.preloaded => obstacle,
        (_, _) => "the table was created without TimescaleDB",
    };
    if mode == ExtensionMode::Require {
        return Err(required(reason));
    }
    Ok(ChosenTable { table: SampleTable::Partitions, reason: reason.to_owned() })
}

/// Compresses old chunks where the server does not.
pub(super) const COMPRESS: Task = Task { name: "compress old chunks", rounds: 60, run: compress };

/// Runs the compression policy if the server's scheduler fails to. TimescaleDB 2.28 on PostgreSQL 15.20 fails
/// with "cannot drop portal".
fn compress(connection: &mut dyn Connection, _: &Stop) -> Result<(), StoreError> {
    const ACTION: &str = "compress old chunks";
    let failed = "SELECT job_id FROM timescaledb_information.jobs JOIN timescaledb_information.job_stats USING (job_id)
         WHERE proc_name = 'policy_compression' AND jobs.hypertable_schema = current_schema() AND jobs.hypertable_name = 'samples'
             AND last_run_status = 'Failed'";
    for policy in connection.select::<i64>(failed, &[]).context(ACTION)? {
        info!("running the compression policy {policy} here: the server's scheduler failed to run it");
        // Outside of a transaction, since it commits chunk by chunk.
        connection.execute(&format!("CALL run_job({policy})"), &[]).context(ACTION)?;
    }
    Ok(())
}
