//! Citus: detection of its state, the distribution of samples by node, and columnar partitions.
//!
//! A COPY into a distributed table commits in two phases: the workers prepare, and the commit of the
//! coordinator decides. The sequences of sessions, the ledger and all other tables are on the coordinator and
//! change in the same transaction. So samples and sequence are stored together or not at all, also if a
//! server ends between the phases: Citus completes prepared transactions by the record that the coordinator
//! commits.

use std::collections::HashMap;

use polymeter_proto::units::counted;
use tokio_postgres::{Client, Transaction};
use tracing::info;

use super::sample_table::{ChosenTable, SampleTable};
use crate::backend::{Connection, Task};
use crate::error::{Context, DatabaseError};
use crate::retention::{Level, Part};
use crate::stop::Stop;
use crate::{ExtensionMode, OpenOptions, StoreError};

const ACTION: &str = "detect Citus";

const SCHEMA: &str = include_str!("../../schema/postgres/citus.sql");

/// Distributes the table, and gives the workers the function with which users select a node. Citus accepts no
/// text of several statements that change a distributed table.
const DISTRIBUTE: [&str; 2] = [
    "SELECT CAST(create_distributed_table('samples', 'node_key') AS text)",
    "SELECT CAST(create_distributed_function('polymeter_node_key(text)') AS text)",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Offer {
    /// Why a table cannot be distributed, with a remedy; none if it can.
    obstacle: Option<&'static str>,
    is_distributed: bool,
}

impl Offer {
    pub(super) const fn is_distributed(&self) -> bool {
        self.is_distributed
    }

    const fn without(obstacle: &'static str) -> Self {
        Self { obstacle: Some(obstacle), is_distributed: false }
    }
}

/// Detects the state of Citus. Needs no privilege. Fails if the server is a worker, or does not load the
/// extension that the database has: tables are empty there.
pub(super) async fn detect(client: &Client) -> Result<Offer, StoreError> {
    let row = client
        .query_one(
            "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'citus'),
                    current_setting('citus.shard_count', true) IS NOT NULL,
                    EXISTS (SELECT FROM pg_extension WHERE extname = 'citus'),
                    EXISTS (SELECT FROM pg_extension WHERE extname = 'timescaledb')",
            &[],
        )
        .await
        .context(ACTION)?;
    let (is_available, is_loaded, is_created, has_timescaledb) =
        (row.get(0), row.get(1), row.get(2), row.get(3));
    match (is_available, is_loaded, is_created) {
        (_, false, true) => Err(StoreError::Unusable(
            "cannot use the database: its extension citus is not loaded by the server; add citus to shared_preload_libraries and restart the server"
                .to_owned(),
        )),
        (_, true, true) => detect_created(client, has_timescaledb).await,
        (false, _, false) => Ok(Offer::without("the server does not have Citus; install it on the coordinator and on all workers")),
        (true, false, false) => Ok(Offer::without(
            "Citus is not in the server's shared_preload_libraries; add citus there, as the first, and restart the server",
        )),
        (true, true, false) => Ok(Offer::without(
            "the extension citus is not created in this database; let a superuser run CREATE EXTENSION citus in the databases of this name on all servers, and citus_add_node on the coordinator",
        )),
    }
}

async fn detect_created(client: &Client, has_timescaledb: bool) -> Result<Offer, StoreError> {
    let row = client
        .query_one(
            "SELECT (SELECT groupid FROM pg_dist_local_group) > 0,
                    (SELECT format('%s:%s', nodename, nodeport) FROM pg_dist_node WHERE groupid = 0 LIMIT 1),
                    EXISTS (SELECT FROM pg_dist_node WHERE isactive AND noderole = 'primary' AND shouldhaveshards),
                    EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = to_regclass('samples'))",
            &[],
        )
        .await
        .context(ACTION)?;
    if row.get(0) {
        let coordinator: Option<String> = row.get(1);
        return Err(StoreError::Unusable(format!(
            "cannot use the database: its server is a worker of Citus; let the URL of the store name the coordinator{}",
            coordinator.map_or_else(String::new, |address| format!(" ({address})"))
        )));
    }
    let obstacle = if has_timescaledb {
        Some(
            "the extension timescaledb is created in this database, and does not work together with Citus; use a new database",
        )
    } else if !row.get::<_, bool>(2) {
        Some("no server holds shards; let a superuser add workers with citus_add_node")
    } else {
        None
    };
    Ok(Offer { obstacle, is_distributed: row.get(3) })
}

/// Returns true if the table of samples becomes a distributed one: a new table where Citus is usable, and an
/// existing one with partitions where it is required. Fails if Citus is required and cannot be used.
pub(super) fn wants_distribution(
    offer: &Offer,
    options: &OpenOptions,
    is_new: bool,
    is_partitioned: bool,
) -> Result<bool, StoreError> {
    use ExtensionMode::{Auto, Off, Require};
    if options.citus == Require && options.timescale == Require {
        return Err(StoreError::Unusable(
            "cannot use Citus and TimescaleDB in one database: both are required; set citus = \"off\" or timescaledb = \"off\"".to_owned(),
        ));
    }
    let required = |obstacle: &str| {
        Err(StoreError::Unusable(format!(
            "cannot use Citus, which is required: {obstacle}; or set citus = \"auto\" to do without it"
        )))
    };
    match (options.citus, offer.obstacle) {
        (Require, Some(obstacle)) => required(obstacle),
        (Require, None) if !is_partitioned => {
            required("the table of samples is a hypertable of TimescaleDB; use a new database")
        }
        (Require, None) => Ok(!offer.is_distributed),
        (Auto, None) => Ok(is_new && options.timescale != Require),
        (Auto, Some(_)) | (Off, _) => Ok(false),
    }
}

const DISTRIBUTING: &str = "distribute the samples";

/// Prepares a transaction that distributes the table: all that it makes before is for the coordinator alone.
pub(super) async fn prepare(transaction: &Transaction<'_>) -> Result<(), StoreError> {
    transaction.batch_execute("SET LOCAL citus.enable_ddl_propagation = off").await.context(DISTRIBUTING)
}

/// Distributes the table of samples by node, with all its rows. Fails if the workers cannot be reached, or
/// cannot prepare transactions.
pub(super) async fn distribute(transaction: &Transaction<'_>) -> Result<(), StoreError> {
    let unprepared = "SELECT string_agg(format('%s:%s', nodename, nodeport), ', ')
         FROM run_command_on_workers('SHOW max_prepared_transactions') JOIN pg_dist_node USING (nodename, nodeport)
         WHERE success AND result = '0'";
    let unprepared: Option<String> =
        transaction.query_one(unprepared, &[]).await.context(DISTRIBUTING)?.get(0);
    if let Some(workers) = unprepared {
        return Err(StoreError::Unusable(format!(
            "cannot {DISTRIBUTING}: transactions cannot be prepared on {workers}; set max_prepared_transactions there to the value of max_connections, and restart"
        )));
    }
    transaction.batch_execute(SCHEMA).await.context(DISTRIBUTING)?;
    // The roles, which are made next, need the connections that this uses.
    let settings =
        "SET LOCAL citus.enable_ddl_propagation = on; SET LOCAL citus.multi_shard_modify_mode = 'sequential'";
    transaction.batch_execute(settings).await.context(DISTRIBUTING)?;
    for statement in DISTRIBUTE {
        transaction.query_one(statement, &[]).await.context(DISTRIBUTING)?;
    }
    Ok(())
}

/// Returns the form of the table if it is distributed, or was distributed just now; none if it is not. Fails
/// if TimescaleDB is required.
pub(super) fn chosen_table(
    offer: &Offer,
    is_new: bool,
    options: &OpenOptions,
) -> Result<Option<ChosenTable>, StoreError> {
    if !is_new && !offer.is_distributed {
        return Ok(None);
    }
    if options.timescale == ExtensionMode::Require {
        return Err(StoreError::Unusable(
            "cannot use TimescaleDB, which is required: Citus distributes the table of samples; use a new database without Citus"
                .to_owned(),
        ));
    }
    let reason = match options.citus {
        ExtensionMode::Off => "citus is off, but the table is already distributed",
        ExtensionMode::Auto | ExtensionMode::Require => "supported by the server",
    };
    Ok(Some(ChosenTable { table: SampleTable::Distributed, reason: reason.to_owned() }))
}

/// Gives a writer one connection to each worker. Otherwise each shard of a commit has one of its own, which
/// is prepared and flushed separately.
pub(super) async fn configure_writer(client: &Client) -> Result<(), StoreError> {
    let set = "SET citus.multi_shard_modify_mode = 'sequential'";
    client.batch_execute(set).await.context("configure the connection")
}

/// Returns true if the database has the functions that read distributed samples.
pub(super) fn has_functions(connection: &mut dyn Connection) -> Result<bool, DatabaseError> {
    let select = "SELECT to_regproc('polymeter_recent_buckets') IS NOT NULL";
    connection.select_one(select, &[])
}

/// Counts the samples of all shards, as the last analysis estimated them.
pub(super) const SAMPLES: &str = "SELECT coalesce(sum(result::int8), 0)::int8 FROM run_command_on_all_nodes(
     'SELECT coalesce(sum(greatest(reltuples, 0)), 0)::int8 FROM pg_class WHERE relkind = ''r'' AND relname ~ ''^samples_[0-9]{8}_[0-9]+$''')
     WHERE success";

/// Adds the sizes of the database on all servers.
pub(super) const BYTES: &str = "SELECT coalesce(sum(result::int8), 0)::int8
     FROM run_command_on_all_nodes('SELECT pg_database_size(current_database())') WHERE success";

/// Sets the sizes of the partitions of samples, whose rows are in shards.
pub(super) fn add_sizes(connection: &mut dyn Connection, parts: &mut [Part]) -> Result<(), DatabaseError> {
    let sizes = "SELECT format('%I.%I', nspname, relname), sum(size)::int8 FROM citus_shard_sizes() AS shard
         JOIN pg_dist_shard ON shardid = shard_id JOIN pg_class ON pg_class.oid = logicalrelid
         JOIN pg_namespace ON pg_namespace.oid = relnamespace GROUP BY 1";
    let sizes: HashMap<String, u64> = connection.select(sizes, &[])?.into_iter().collect();
    for part in parts.iter_mut().filter(|part| part.level == Level::Samples) {
        part.bytes = part.name.as_ref().and_then(|name| sizes.get(name)).copied();
    }
    Ok(())
}

/// Task as on a single server, where the coordinator's own index has no pages.
pub(super) const SUMMARISE: Task =
    Task { name: "summarise the times of recent samples", rounds: 5, run: summarise };

/// Rewrites the partitions of past days by columns, which takes a tenth of the space.
pub(super) const COMPRESS: Task = Task { name: "compress old partitions", rounds: 60, run: compress };

/// Summarises new pages of the open partitions, on the workers.
fn summarise(connection: &mut dyn Connection, stop: &Stop) -> Result<(), StoreError> {
    const ACTION: &str = "summarise the times of recent samples";
    let open = "SELECT part.relname::text FROM pg_inherits JOIN pg_class AS part ON part.oid = inhrelid
         WHERE inhparent = 'samples'::regclass AND to_regclass(part.relname || '_brin') IS NOT NULL
             AND to_regclass(part.relname || '_by_series') IS NULL
         ORDER BY part.relname DESC";
    for part in connection.select::<String>(open, &[]).context(ACTION)? {
        if stop.is_requested() {
            break;
        }
        // The name is from the catalogue: `samples_` and eight digits. `%s` becomes the name of each shard.
        let summarise = format!(
            "SELECT coalesce(max(result) FILTER (WHERE NOT success), '') FROM run_command_on_shards('{part}',
                 $$SELECT sum(brin_summarize_new_values(indexrelid::regclass)) FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
                   WHERE indrelid = '%s'::regclass AND relam = (SELECT oid FROM pg_am WHERE amname = 'brin')$$)"
        );
        let failure: String = connection.select_one(&summarise, &[]).context(ACTION)?;
        if !failure.is_empty() {
            return Err(StoreError::Unusable(format!("cannot {ACTION}: {failure}")));
        }
    }
    Ok(())
}

const COMPRESSING: &str = "compress old partitions";

/// Partitions of the days before yesterday that are not columnar, as names and bounds.
const TO_COMPRESS: &str = "SELECT part.relname::text, pg_get_expr(part.relpartbound, part.oid)
     FROM pg_inherits JOIN pg_class AS part ON part.oid = inhrelid
     WHERE inhparent = 'samples'::regclass AND part.relam = (SELECT oid FROM pg_am WHERE amname = 'heap')
         AND part.relname < 'samples_' || to_char((now() AT TIME ZONE 'UTC')::date - 1, 'YYYYMMDD')
     ORDER BY part.relname";

fn compress(connection: &mut dyn Connection, stop: &Stop) -> Result<(), StoreError> {
    let is_columnar_there = "SELECT EXISTS (SELECT FROM pg_am WHERE amname = 'columnar')";
    if !connection.select_one::<bool>(is_columnar_there, &[]).context(COMPRESSING)? {
        info!(
            "partitions stay uncompressed: the extension citus_columnar is not created; let a superuser run CREATE EXTENSION citus_columnar"
        );
        return Ok(());
    }
    for (partition, bound) in connection.select::<(String, String)>(TO_COMPRESS, &[]).context(COMPRESSING)? {
        if stop.is_requested() {
            break;
        }
        let rows = compress_partition(connection, &partition, &bound)?;
        info!("compressed {partition}: {}", counted(rows, "sample"));
    }
    Ok(())
}

/// Replaces a partition by a columnar one with the same rows, in the order of their series: a query of one
/// series skips the others, and equal values stand together. `alter_table_set_access_method` would keep the
/// order of arrival. Writers of late samples wait.
fn compress_partition(
    connection: &mut dyn Connection,
    partition: &str,
    bound: &str,
) -> Result<u64, StoreError> {
    let columnar = format!("{partition}_columnar");
    connection.begin().context(COMPRESSING)?;
    run(connection, "SET LOCAL lock_timeout = '2s'")?;
    run(connection, &format!("LOCK TABLE {partition} IN SHARE MODE"))?;
    run(connection, &format!("CREATE TABLE {columnar} (LIKE samples) USING columnar"))?;
    run(
        connection,
        &format!("SELECT create_distributed_table('{columnar}', 'node_key', colocate_with => 'samples')"),
    )?;
    let written = run(
        connection,
        &format!("INSERT INTO {columnar} SELECT * FROM {partition} ORDER BY series_id, time"),
    )?;
    let count = format!("SELECT count(*) FROM {partition}");
    let rows: u64 = connection.select_one(&count, &[]).context(COMPRESSING)?;
    if rows != written {
        return Err(StoreError::Unusable(format!(
            "cannot compress {partition}: {written} of {rows} samples would remain; nothing was changed"
        )));
    }
    run(connection, &format!("DROP TABLE {partition}"))?;
    run(connection, &format!("ALTER TABLE {columnar} RENAME TO {partition}"))?;
    run(connection, &format!("ALTER TABLE samples ATTACH PARTITION {partition} {bound}"))?;
    connection.commit().context(COMPRESSING)?;
    Ok(rows)
}

fn run(connection: &mut dyn Connection, statement: &str) -> Result<u64, StoreError> {
    connection.execute(statement, &[]).context(COMPRESSING)
}
