//! Partitions of the table of samples, one for each day.

use std::collections::BTreeSet;

use tokio_postgres::{Client, Error};

use super::server::SCHEMA_LOCK;
use crate::StoreError;
use crate::accepted::Accepted;
use crate::backend::{Connection, Task};
use crate::bounds::stored_us;
use crate::error::Context;
use crate::stop::Stop;

const DAY_US: i64 = 86_400 * 1_000_000;

pub(super) const SCHEMA: &str = include_str!("../../schema/postgres/samples_partitions.sql");

/// Creates the partitions that the samples of `frames` need, and the one after the newest, except for those
/// in `known`.
pub(super) async fn create(
    client: &mut Client,
    frames: &[Accepted],
    known: &mut BTreeSet<i64>,
) -> Result<(), Error> {
    let times = frames.iter().flat_map(|frame| &frame.samples).flat_map(|samples| &samples.times_us);
    let mut days: BTreeSet<i64> = times.map(|time_us| stored_us(*time_us) / DAY_US).collect();
    days.extend(days.last().map(|newest| newest + 1));
    days.retain(|day| !known.contains(day));
    if days.is_empty() {
        return Ok(());
    }
    let transaction = client.transaction().await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&SCHEMA_LOCK]).await?;
    for day in &days {
        let day = i32::try_from(*day).unwrap_or(i32::MAX);
        transaction
            .execute("SELECT polymeter_create_partition(date '1970-01-01' + $1::int4)", &[&day])
            .await?;
    }
    transaction.commit().await?;
    known.append(&mut days);
    Ok(())
}

/// Partitions are days: the next one is created a day ahead.
pub(super) const CREATE_AHEAD: Task =
    Task { name: "create the next partition", rounds: 60, run: create_ahead };

/// An index over a day of samples takes minutes to build, which `CONCURRENTLY` does beside the writers.
pub(super) const CLOSE: Task = Task { name: "build the index of a partition", rounds: 60, run: close };

/// Keeps the index on the time of an open partition current, which knows pages only after they were
/// summarised. Otherwise each read of the newest samples reads all pages since the last vacuum.
pub(super) const SUMMARISE: Task =
    Task { name: "summarise the times of recent samples", rounds: 5, run: summarise };

fn create_ahead(connection: &mut dyn Connection, _: &Stop) -> Result<(), StoreError> {
    const ACTION: &str = "create the next partition";
    connection.execute("SELECT pg_advisory_lock($1)", &[SCHEMA_LOCK.into()]).context(ACTION)?;
    connection
        .execute(
            "SELECT polymeter_create_partition((now() AT TIME ZONE 'UTC')::date + day) FROM generate_series(0, 1) AS day",
            &[],
        )
        .context(ACTION)?;
    connection.execute("SELECT pg_advisory_unlock($1)", &[SCHEMA_LOCK.into()]).context(ACTION)?;
    Ok(())
}

/// Builds the indexes of the partitions that no longer grow.
fn close(connection: &mut dyn Connection, stop: &Stop) -> Result<(), StoreError> {
    const ACTION: &str = "build the index of a partition";
    let open: Vec<String> = connection
        .select("SELECT partition FROM polymeter_partition_to_close ORDER BY partition", &[])
        .context(ACTION)?;
    for partition in open {
        if stop.is_requested() {
            break;
        }
        // The name is from the catalogue: `samples_` and eight digits. An index whose build was cancelled is
        // invalid.
        let index = format!("{partition}_by_series");
        connection.execute(&format!("DROP INDEX IF EXISTS {index}"), &[]).context(ACTION)?;
        let build = format!("CREATE INDEX CONCURRENTLY {index} ON {partition} (series_id, time)");
        connection.execute(&build, &[]).context(ACTION)?;
    }
    Ok(())
}

fn summarise(connection: &mut dyn Connection, _: &Stop) -> Result<(), StoreError> {
    const ACTION: &str = "summarise the times of recent samples";
    let indexes = "SELECT indexrelid::regclass::text FROM pg_inherits
         JOIN pg_class AS part ON part.oid = inhrelid
         JOIN pg_index ON indrelid = part.oid
         JOIN pg_class AS built ON built.oid = indexrelid
         WHERE inhparent = 'samples'::regclass AND built.relname = part.relname || '_brin'
             AND NOT EXISTS (SELECT FROM pg_class AS sorted WHERE sorted.relname = part.relname || '_by_series'
                             AND sorted.relnamespace = part.relnamespace)
         ORDER BY part.relname DESC";
    for index in connection.select::<String>(indexes, &[]).context(ACTION)? {
        let summarise = format!("SELECT brin_summarize_new_values('{index}')");
        connection.execute(&summarise, &[]).context(ACTION)?;
    }
    Ok(())
}

pub(super) async fn is_partitioned(client: &Client) -> Result<bool, Error> {
    let select = "SELECT relkind = 'p' FROM pg_class WHERE oid = 'samples'::regclass";
    Ok(client.query_one(select, &[]).await?.get(0))
}
