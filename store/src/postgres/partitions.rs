//! Partitions of the table of samples, one for each day.

use std::collections::BTreeSet;

use tokio_postgres::{Client, Error};

use super::server::SCHEMA_LOCK;
use crate::accepted::Accepted;
use crate::bounds::stored_us;

const DAY_US: i64 = 86_400 * 1_000_000;

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

/// Creates the partitions of today and of tomorrow.
pub(super) async fn create_ahead(client: &Client) -> Result<(), Error> {
    client.execute("SELECT pg_advisory_lock($1)", &[&SCHEMA_LOCK]).await?;
    client
        .batch_execute(
            "SELECT polymeter_create_partition((now() AT TIME ZONE 'UTC')::date);
             SELECT polymeter_create_partition((now() AT TIME ZONE 'UTC')::date + 1)",
        )
        .await?;
    client.execute("SELECT pg_advisory_unlock($1)", &[&SCHEMA_LOCK]).await?;
    Ok(())
}

/// Builds the indexes of the partitions that no longer grow.
pub(super) async fn close(client: &Client) -> Result<(), Error> {
    for row in
        client.query("SELECT partition FROM polymeter_partition_to_close ORDER BY partition", &[]).await?
    {
        let partition: String = row.get(0);
        // The name is from the catalogue: `samples_` and eight digits. An index whose build was cancelled is
        // invalid.
        let index = format!("{partition}_by_series");
        client.batch_execute(&format!("DROP INDEX IF EXISTS {index}")).await?;
        client
            .batch_execute(&format!("CREATE INDEX CONCURRENTLY {index} ON {partition} (series_id, time)"))
            .await?;
    }
    Ok(())
}

/// Returns true if the table of samples has partitions.
pub(super) async fn is_partitioned(client: &Client) -> Result<bool, Error> {
    let select = "SELECT relkind = 'p' FROM pg_class WHERE oid = 'samples'::regclass";
    Ok(client.query_one(select, &[]).await?.get(0))
}
