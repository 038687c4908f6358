//! Schema of PostgreSQL, with or without TimescaleDB or Citus.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, Transaction};
use tracing::warn;

use super::partitions::{self, is_partitioned};
use super::sample_table::ChosenTable;
use super::server::SCHEMA_LOCK;
use super::timescale::Offer;
use super::{citus, continuous, rollup_tables, timescale};
use crate::error::Context;
use crate::schema::{self, CREATE_VERSION, FIRST_VERSION};
use crate::{OpenOptions, StoreError, StoreOrigin, limits};

const ACTION: &str = "migrate the schema";

/// Statements that create the first version, around those for the samples and for their rollups.
const BEFORE_SAMPLES: [&str; 2] =
    [include_str!("../../schema/postgres/jobs.sql"), include_str!("../../schema/postgres/series.sql")];
const BEFORE_ROLLUPS: [&str; 8] = [
    include_str!("../../schema/postgres/samples_quarantine.sql"),
    include_str!("../../schema/postgres/sessions.sql"),
    include_str!("../../schema/postgres/plans.sql"),
    include_str!("../../schema/postgres/histograms.sql"),
    include_str!("../../schema/postgres/stacks.sql"),
    include_str!("../../schema/postgres/kept.sql"),
    include_str!("../../schema/postgres/triggers.sql"),
    include_str!("../../schema/postgres/control.sql"),
];
const AFTER_ROLLUPS: [&str; 5] = [
    include_str!("../../schema/postgres/retention.sql"),
    include_str!("../../schema/postgres/views.sql"),
    include_str!("../../schema/postgres/kwollect.sql"),
    include_str!("../../schema/postgres/charts.sql"),
    include_str!("../../schema/postgres/roles.sql"),
];

/// Creates the schema, or migrates it to the newest version. If several collectors start at the same time,
/// one of them does it.
pub(super) async fn migrate(
    client: &mut Client,
    options: &OpenOptions,
) -> Result<(ChosenTable, StoreOrigin), StoreError> {
    check_server(client).await?;
    lock_schema(client).await?;
    let citus = citus::detect(client).await?;
    let mode = options.timescale;
    let offer = timescale::detect(client).await?;
    let found = version(client).await?;
    let changes =
        schema::missing(found, options.later_migrations).ok_or(StoreError::NewerSchema { found })?;
    let is_new = found < FIRST_VERSION;
    let table_is_partitioned = is_new || is_partitioned(client).await.context(ACTION)?;
    let distribute = citus::wants_distribution(&citus, options, is_new, table_is_partitioned)?;
    // Only a new table can become a hypertable; for an old one the extension is left unchanged.
    let offer = if is_new && !distribute { timescale::install(client, mode, offer).await? } else { offer };
    let hypertable = is_new && !distribute && timescale::wants_hypertable(&offer, mode)?;
    let transaction = client.transaction().await.context(ACTION)?;
    if distribute {
        citus::prepare(&transaction).await?;
    }
    if is_new {
        create(&transaction, hypertable, &offer).await.context(ACTION)?;
    }
    for (version, change) in &changes {
        transaction.batch_execute(change.postgres).await.context(ACTION)?;
        add_version(&transaction, *version).await.context(ACTION)?;
    }
    if distribute {
        citus::distribute(&transaction).await?;
    }
    if is_new || distribute || !changes.is_empty() {
        create_roles(&transaction).await.context("create the roles")?;
    }
    transaction.commit().await.context(ACTION)?;
    client.execute("SELECT pg_advisory_unlock($1)", &[&SCHEMA_LOCK]).await.context(ACTION)?;
    let chosen = match citus::chosen_table(&citus, distribute, options)? {
        Some(chosen) => chosen,
        None => timescale::choose_table(client, &offer, mode, is_new).await?,
    };
    Ok((chosen, origin(client, is_new).await.context(ACTION)?))
}

async fn create(transaction: &Transaction<'_>, hypertable: bool, offer: &Offer) -> Result<(), Error> {
    let compresses = hypertable && offer.compresses();
    let samples = if hypertable { timescale::SCHEMA } else { partitions::SCHEMA };
    let compression = if compresses { timescale::COMPRESSION } else { "" };
    let rollups = if compresses { continuous::SCHEMA } else { rollup_tables::SCHEMA };
    transaction.batch_execute(CREATE_VERSION).await?;
    let parts = BEFORE_SAMPLES.into_iter().chain([samples, compression]).chain(BEFORE_ROLLUPS);
    for statements in parts.chain([rollups]).chain(AFTER_ROLLUPS) {
        transaction.batch_execute(statements).await?;
    }
    add_version(transaction, FIRST_VERSION).await
}

async fn add_version(transaction: &Transaction<'_>, version: i32) -> Result<(), Error> {
    transaction.execute("INSERT INTO store_version VALUES ($1)", &[&version]).await.map(drop)
}

/// Returns the identity of the database: the object id of a table, which differs in another database and for
/// another table of that name, and the timeline of the log. A standby that took over has another timeline,
/// and may lack the last transactions of its primary.
async fn origin(client: &Client, is_new: bool) -> Result<StoreOrigin, Error> {
    let select = "SELECT 'session'::regclass::oid, left(pg_walfile_name(pg_current_wal_lsn()), 8)";
    let row = client.query_one(select, &[]).await?;
    let timeline = u64::from_str_radix(row.get(1), 16).unwrap_or_default();
    Ok(StoreOrigin::new((timeline, row.get::<_, u32>(0).into()), is_new))
}

/// Creates the roles that are missing, and grants their rights on new tables.
async fn create_roles(transaction: &Transaction<'_>) -> Result<(), Error> {
    let missing: Vec<String> = transaction.query_one("SELECT polymeter_create_roles()", &[]).await?.get(0);
    if !missing.is_empty() {
        warn!(
            "cannot create the roles {}: this user may not create roles; let an administrator of the database run SELECT polymeter_create_roles()",
            missing.join(", ")
        );
    }
    Ok(())
}

/// Oldest supported version of PostgreSQL, which is the oldest one that is tested.
const SERVER_MIN: i32 = 15;

async fn check_server(client: &Client) -> Result<(), StoreError> {
    let version: i32 = client
        .query_one("SELECT current_setting('server_version_num')::int4 / 10000", &[])
        .await
        .context(ACTION)?
        .get(0);
    if version < SERVER_MIN {
        return Err(StoreError::Unusable(format!(
            "cannot use the database: its server is PostgreSQL {version}; version {SERVER_MIN} or later is required"
        )));
    }
    Ok(())
}

/// Locks the schema, and waits a limited time for another collector that migrates it.
async fn lock_schema(client: &Client) -> Result<(), StoreError> {
    // A timeout that the user set in the connection's options is kept.
    let seconds = limits::SCHEMA_LOCK.as_secs();
    let limit = format!(
        "SELECT set_config('lock_timeout', '{seconds}s', false) WHERE current_setting('lock_timeout') = '0'"
    );
    client.batch_execute(&limit).await.context(ACTION)?;
    let locked = client.execute("SELECT pg_advisory_lock($1)", &[&SCHEMA_LOCK]).await;
    if locked.as_ref().is_err_and(|error| error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)) {
        // The two halves of an advisory lock's key are shown as unsigned numbers.
        let holder = "SELECT coalesce(string_agg(pid::text, ', '), 'unknown') FROM pg_locks
             WHERE locktype = 'advisory' AND granted AND ((classid::int8 << 32) | objid::int8) = $1
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        let holder: String = client.query_one(holder, &[&SCHEMA_LOCK]).await.context(ACTION)?.get(0);
        return Err(StoreError::Unusable(format!(
            "cannot {ACTION}: another connection (server process {holder}) holds its lock; wait until its collector has migrated the schema, or end it with SELECT pg_terminate_backend({holder})"
        )));
    }
    locked.context(ACTION)?;
    client.batch_execute("RESET lock_timeout").await.context(ACTION)
}

/// Returns the version of the schema, 0 if there is none.
async fn version(client: &Client) -> Result<i32, StoreError> {
    let tables = "SELECT to_regclass('store_version') IS NOT NULL,
             to_regclass('schema_version') IS NOT NULL AND to_regclass('samples') IS NOT NULL";
    let tables = client.query_one(tables, &[]).await.context(ACTION)?;
    match (tables.get(0), tables.get(1)) {
        (true, _) => {
            let select = "SELECT max(version) FROM store_version";
            Ok(client.query_one(select, &[]).await.context(ACTION)?.get(0))
        }
        (false, true) => Err(StoreError::DevelopmentSchema),
        (false, false) => Ok(0),
    }
}
