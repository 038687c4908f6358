//! Event loop of a connection, and the advisory locks that collectors share.

use tokio::runtime::Runtime;

use crate::StoreError;

/// Advisory lock for changes of the schema and the partitions: "polymete" in ASCII.
pub(super) const SCHEMA_LOCK: i64 = 0x706f_6c79_6d65_7465;

/// Advisory lock for the creation of jobs' rows, since no unique index can detect two rows of the same job.
pub(super) const JOB_LOCK: i64 = SCHEMA_LOCK + 1;

pub(super) const MAINTENANCE_LOCK: i64 = SCHEMA_LOCK + 2;

pub(super) fn event_loop() -> Result<Runtime, StoreError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StoreError::Thread)
}
