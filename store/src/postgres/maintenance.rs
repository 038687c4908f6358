//! The maintenance of a PostgreSQL database, besides the writers. With partitions: creates the next day's,
//! and builds the B-trees of those that no longer grow. With TimescaleDB: runs the compression policy if the
//! server's scheduler fails to (as TimescaleDB 2.28 does on PostgreSQL 15.20, with "cannot drop portal").
//!
//! An index over a day of samples takes minutes to build. A separate connection builds it `CONCURRENTLY`.
//! A stop of the collector cancels the build at once; the next start begins it again.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio_postgres::Client;
use tracing::{info, warn};

use super::connect::{Access, Settings, cancel, connect};
use super::sample_table::SampleTable;
use super::server::{MAINTENANCE_LOCK, event_loop};
use super::{partitions, timescale};
use crate::error::{Context, chain};
use crate::{Maintenance, StoreError, TimescaleMode};

/// The interval of maintenance: partitions are days, and the next one is created a day ahead.
const INTERVAL: Duration = Duration::from_secs(3600);

/// Starts the maintenance of the database of `settings`.
pub(super) fn start(settings: Settings) -> Result<Maintenance, StoreError> {
    let event_loop = event_loop()?;
    Maintenance::spawn(move |mut stopped| {
        event_loop.block_on(async { while !run_once(&settings, &mut stopped).await {} });
    })
}

/// Runs the maintenance once, and waits for the next interval. Returns true if it was stopped.
async fn run_once(settings: &Settings, stopped: &mut oneshot::Receiver<()>) -> bool {
    let client = match connect(settings, Access::Write).await {
        Ok(client) => client,
        Err(error) => {
            info!("database maintenance postponed: {}", chain(&error));
            return is_stopped_within(stopped, INTERVAL).await;
        }
    };
    let running = client.cancel_token();
    tokio::select! {
        _ = &mut *stopped => {
            // Without the cancellation, the server would continue to build an index.
            if let Err(error) = cancel(settings, &running).await {
                info!(error = %chain(&error), "cannot cancel the database maintenance");
            }
            return true;
        }
        done = maintain(&client) => {
            if let Err(error) = done {
                warn!(error = %chain(&error), "cannot run database maintenance");
            }
        }
    }
    drop(client);
    is_stopped_within(stopped, INTERVAL).await
}

async fn is_stopped_within(stopped: &mut oneshot::Receiver<()>, interval: Duration) -> bool {
    tokio::time::timeout(interval, stopped).await.is_ok()
}

async fn maintain(client: &Client) -> Result<(), StoreError> {
    // One collector at a time does the maintenance. The end of the connection releases the lock.
    let lock = client.query_one("SELECT pg_try_advisory_lock($1)", &[&MAINTENANCE_LOCK]).await;
    if !lock.context("lock the maintenance")?.get::<_, bool>(0) {
        return Ok(());
    }
    let offer = timescale::detect(client).await?;
    match timescale::choose_table(client, &offer, TimescaleMode::Auto, false).await?.table {
        SampleTable::Partitions => {
            partitions::create_ahead(client).await.context("create the next partition")?;
            partitions::close(client).await.context("build the index of a partition")
        }
        SampleTable::DirectCompress | SampleTable::Hypertable => {
            timescale::compress(client).await.context("compress old chunks")
        }
    }
}
