//! The schema of PostgreSQL, version by version, with or without TimescaleDB.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, Transaction};
use tracing::warn;

use super::partitions::is_partitioned;
use super::sample_table::ChosenTable;
use super::server::SCHEMA_LOCK;
use super::{citus, continuous, rollup_tables, timescale};
use crate::error::Context;
use crate::schema::Addition;
use crate::{OpenOptions, SCHEMA_VERSION, StoreError, StoreOrigin, limits};

const ACTION: &str = "migrate the schema";

/// The migration to each version, the first to version 1.
const MIGRATIONS: [&str; SCHEMA_VERSION as usize] = [
    include_str!("../../schema/postgres/1.sql"),
    include_str!("../../schema/postgres/2.sql"),
    include_str!("../../schema/postgres/3.sql"),
    include_str!("../../schema/postgres/4.sql"),
    include_str!("../../schema/postgres/5.sql"),
    concat!(include_str!("../../schema/all/6.sql"), include_str!("../../schema/postgres/6.sql")),
    concat!(
        include_str!("../../schema/postgres/7_jobs.sql"),
        include_str!("../../schema/postgres/7_metadata.sql"),
        include_str!("../../schema/postgres/7_rollups.sql"),
        include_str!("../../schema/postgres/7_retention.sql"),
        include_str!("../../schema/postgres/7_views.sql"),
        include_str!("../../schema/postgres/7_roles.sql")
    ),
    concat!(
        include_str!("../../schema/postgres/8_jobs.sql"),
        include_str!("../../schema/postgres/8_job_ends.sql"),
        include_str!("../../schema/postgres/8_plan_levels.sql"),
        include_str!("../../schema/postgres/8_energy.sql"),
        include_str!("../../schema/postgres/8_charts.sql"),
        include_str!("../../schema/postgres/8_tokens.sql"),
        include_str!("../../schema/postgres/8_roles.sql")
    ),
];

/// The additions to the current version. Earlier programs of this version do not know them, and work on beside them: new tables, and
/// columns that may be NULL. So collectors can be updated one after the other.
const ADDITIONS: [Addition; 1] =
    [Addition { table: "control_request", statements: include_str!("../../schema/postgres/8_control.sql") }];

/// The functions and views that manage the partitions of `samples`, in addition to these versions.
const PARTITIONS: [(i32, &str); 2] = [
    (1, include_str!("../../schema/postgres/partitions_1.sql")),
    (7, include_str!("../../schema/postgres/partitions_7.sql")),
];

/// The placeholder in version 1 for the clause that makes `samples` a partitioned table.
const PARTITIONING: &str = "/* PARTITIONING */";

/// The placeholder in version 5 for the statements that widen the keys of `samples` to 64 bits.
const WIDENING: &str = "/* WIDEN SAMPLES */";

/// The placeholder in version 7 for the statements that create the rollups.
const ROLLUPS: &str = "/* ROLLUPS */";

/// The version that creates continuous aggregates: a new table of samples becomes a hypertable before it.
const FIRST_WITH_ROLLUPS: i32 = 7;

/// The statement that widens the keys of a table that is not a hypertable yet.
const WIDEN: &str = "ALTER TABLE samples ALTER COLUMN series_id TYPE int8;";

/// Migrates the schema to the current version. If several collectors start at the same time, one of them does
/// it.
pub(super) async fn migrate(
    client: &mut Client,
    options: &OpenOptions,
) -> Result<(ChosenTable, StoreOrigin), StoreError> {
    check_server(client).await?;
    lock_schema(client).await?;
    let citus = citus::detect(client).await?;
    let mode = options.timescale;
    let offer = timescale::detect(client).await?;
    let found = schema_version(client).await.context(ACTION)?;
    if found > SCHEMA_VERSION {
        return Err(StoreError::NewerSchema { found });
    }
    let is_new = found == 0;
    let table_is_partitioned = is_new || is_partitioned(client).await.context(ACTION)?;
    let distribute = citus::wants_distribution(&citus, options, is_new, table_is_partitioned)?;
    // Only a new table can become a hypertable; for an old one the extension is left unchanged.
    let offer = if is_new && !distribute { timescale::install(client, mode, offer).await? } else { offer };
    let hypertable = is_new && !distribute && timescale::wants_hypertable(&offer, mode)?;
    let partitioned = table_is_partitioned && !hypertable;
    let transaction = client.transaction().await.context(ACTION)?;
    if distribute {
        citus::prepare(&transaction).await?;
    }
    for (version, migration) in
        (1..=SCHEMA_VERSION).zip(MIGRATIONS).skip_while(|(version, _)| *version <= found)
    {
        let partitioning = if partitioned { "PARTITION BY RANGE (time)" } else { "" };
        let widening = if is_new || partitioned { WIDEN.to_owned() } else { timescale::widen(&offer) };
        if hypertable && version == FIRST_WITH_ROLLUPS {
            timescale::create_hypertable(&transaction, &offer).await?;
        }
        let rollups =
            if !partitioned && offer.compresses() { continuous::SCHEMA } else { rollup_tables::SCHEMA };
        let migration = migration
            .replace(PARTITIONING, partitioning)
            .replace(WIDENING, &widening)
            .replace(ROLLUPS, rollups);
        transaction.batch_execute(&migration).await.context(ACTION)?;
        for (_, statements) in PARTITIONS.iter().filter(|(since, _)| partitioned && *since == version) {
            transaction.batch_execute(statements).await.context(ACTION)?;
        }
        transaction.execute("INSERT INTO schema_version VALUES ($1)", &[&version]).await.context(ACTION)?;
    }
    let mut is_changed = found < SCHEMA_VERSION;
    for addition in ADDITIONS {
        let is_there = "SELECT to_regclass($1) IS NOT NULL";
        let is_there: bool =
            transaction.query_one(is_there, &[&addition.table]).await.context(ACTION)?.get(0);
        if !is_there {
            transaction.batch_execute(addition.statements).await.context(ACTION)?;
            is_changed = true;
        }
    }
    if distribute {
        citus::distribute(&transaction).await?;
        is_changed = true;
    }
    if is_changed {
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

/// Returns the identity of the database: the object id of a table, which differs in another database and for another table of that name,
/// and the timeline of the log. A standby that took over has another timeline, and may lack the last transactions of its primary.
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

/// The oldest supported version of PostgreSQL: the oldest one that is tested.
const SERVER_MIN: i32 = 15;

/// Checks the version of the server.
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

async fn schema_version(client: &Client) -> Result<i32, Error> {
    // A user that is only a writer must not create tables.
    let is_there = "SELECT to_regclass('schema_version') IS NOT NULL";
    if !client.query_one(is_there, &[]).await?.get::<_, bool>(0) {
        client.batch_execute("CREATE TABLE IF NOT EXISTS schema_version (version int4 NOT NULL)").await?;
    }
    Ok(client.query_one("SELECT coalesce(max(version), 0) FROM schema_version", &[]).await?.get(0))
}
