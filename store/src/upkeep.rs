//! What PostgreSQL needs beside the writers. With partitions: tomorrow's, and the B-trees of closed ones. With TimescaleDB:
//! that its compression policy runs, although the server's scheduler may fail to run it (as TimescaleDB 2.28 does on
//! PostgreSQL 15.20, with "cannot drop portal").
//!
//! An index over a day of samples takes minutes to build. It is built by a connection of its own, `CONCURRENTLY`, and
//! given up at once when the collector stops: the next start begins it anew.

use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_postgres::{Client, Config, NoTls};
use tracing::{info, warn};

use super::postgres::{SCHEMA_LOCK, connect, event_loop};
use crate::error::chain;
use crate::{Doing, StoreError, StoreUrl, Way};

/// How often there is something to do: partitions are days, and the next one is made a day ahead.
const INTERVAL: Duration = Duration::from_secs(3600);

/// The advisory lock of the collector that does it.
const UPKEEP_LOCK: i64 = SCHEMA_LOCK + 2;

/// The maintenance thread.
#[derive(Debug)]
pub struct Upkeep {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Upkeep {
    /// Starts the thread where the store needs one.
    ///
    /// # Errors
    /// When the machine gives no thread.
    pub fn start(store: &StoreUrl, way: Way) -> Result<Option<Self>, StoreError> {
        let StoreUrl::Postgres(postgres) = store else { return Ok(None) };
        let postgres = postgres.clone();
        let event_loop = event_loop()?;
        let (stop, mut stopped) = oneshot::channel();
        let work =
            move || event_loop.block_on(async { while !attend(&postgres, way, &mut stopped).await {} });
        let thread =
            Builder::new().name("maintenance".to_owned()).spawn(work).map_err(StoreError::Runtime)?;
        Ok(Some(Self { stop, thread }))
    }

    /// Ends the thread, and the statement that it runs.
    ///
    /// # Errors
    /// When the thread ended by a panic.
    pub fn stop(self) -> std::thread::Result<()> {
        // The thread may have ended before.
        drop(self.stop);
        self.thread.join()
    }
}

/// Does what there is to do and waits for the next time. Says true when it is to stop.
async fn attend(config: &Config, way: Way, stopped: &mut oneshot::Receiver<()>) -> bool {
    let client = match connect(config).await {
        Ok(client) => client,
        Err(error) => {
            info!("database maintenance postponed: {}", chain(&error));
            return is_stopped_within(stopped, INTERVAL).await;
        }
    };
    let cancel = client.cancel_token();
    tokio::select! {
        _ = &mut *stopped => {
            // Otherwise the server would go on building an index that nobody waits for.
            if let Err(error) = cancel.cancel_query(NoTls).await {
                info!("cannot cancel the database maintenance: {}", chain(&error));
            }
            return true;
        }
        done = tidy(&client, way) => {
            if let Err(error) = done {
                warn!("cannot maintain the database: {}", chain(&error));
            }
        }
    }
    drop(client);
    is_stopped_within(stopped, INTERVAL).await
}

async fn is_stopped_within(stopped: &mut oneshot::Receiver<()>, patience: Duration) -> bool {
    tokio::time::timeout(patience, stopped).await.is_ok()
}

async fn tidy(client: &Client, way: Way) -> Result<(), StoreError> {
    // One collector is enough. The connection's end gives the lock back.
    let lock =
        client.query_one("SELECT pg_try_advisory_lock($1)", &[&UPKEEP_LOCK]).await.doing("taking a lock")?;
    if !lock.get::<_, bool>(0) {
        return Ok(());
    }
    match way {
        Way::Partitions => {
            create_ahead(client).await.doing("creating tomorrow's partition")?;
            close(client).await.doing("building the index of a closed partition")
        }
        Way::DirectCompress | Way::Hypertable => compress(client).await.doing("compressing old chunks"),
        Way::Sqlite => Ok(()),
    }
}

/// Runs the compression policy where the server's scheduler failed to.
async fn compress(client: &Client) -> Result<(), tokio_postgres::Error> {
    let failed = "SELECT job_id FROM timescaledb_information.jobs JOIN timescaledb_information.job_stats USING (job_id)
         WHERE proc_name = 'policy_compression' AND jobs.hypertable_schema = current_schema() AND jobs.hypertable_name = 'samples'
             AND last_run_status = 'Failed'";
    for row in client.query(failed, &[]).await? {
        let job: i32 = row.get(0);
        info!("the server's scheduler failed to run the compression policy {job}: running it from here");
        // As a statement of its own: it commits chunk by chunk.
        client.batch_execute(&format!("CALL run_job({job})")).await?;
    }
    Ok(())
}

async fn create_ahead(client: &Client) -> Result<(), tokio_postgres::Error> {
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

async fn close(client: &Client) -> Result<(), tokio_postgres::Error> {
    for row in
        client.query("SELECT partition FROM polymeter_partition_to_close ORDER BY partition", &[]).await?
    {
        let partition: String = row.get(0);
        // The name comes from the catalogue: `samples_` and eight digits. An index that was given up is invalid: drop it.
        let index = format!("{partition}_by_series");
        client.batch_execute(&format!("DROP INDEX IF EXISTS {index}")).await?;
        client
            .batch_execute(&format!("CREATE INDEX CONCURRENTLY {index} ON {partition} (series_id, time)"))
            .await?;
    }
    Ok(())
}
