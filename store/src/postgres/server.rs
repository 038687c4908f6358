//! The connection to the server, its event loop, and the advisory locks that collectors share.

use tokio::runtime::Runtime;
use tokio_postgres::{Client, Config, NoTls};

use crate::error::Context;
use crate::{StoreError, limits};

/// The advisory lock for changes of the schema and the partitions: "polymete" in ASCII.
pub(super) const SCHEMA_LOCK: i64 = 0x706f_6c79_6d65_7465;

/// The advisory lock for the creation of jobs' rows, since no unique index can detect two rows of the same
/// job.
pub(super) const JOB_LOCK: i64 = SCHEMA_LOCK + 1;

/// The advisory lock for maintenance.
pub(super) const MAINTENANCE_LOCK: i64 = SCHEMA_LOCK + 2;

/// Returns an event loop for one thread.
pub(super) fn event_loop() -> Result<Runtime, StoreError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StoreError::Thread)
}

/// Connects. A silently vanished server is detected in about a minute.
pub(super) async fn connect(config: &Config) -> Result<Client, StoreError> {
    let mut config = config.clone();
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(limits::CONNECT);
    }
    if config.get_application_name().is_none() {
        config.application_name("polymeter-collector");
    }
    config.tcp_user_timeout(limits::CONNECT * 6).keepalives_idle(limits::CONNECT * 3);
    let (client, connection) = config.connect(NoTls).await.context("connect to the database")?;
    // The client's next call reports its outcome.
    tokio::spawn(connection);
    // The compilation of a statement costs more than it saves: 8 s over 91 chunks.
    client.batch_execute("SET jit = off").await.context("set up the connection")?;
    Ok(client)
}
