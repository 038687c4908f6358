//! Cancellation of running statements.

use std::time::Duration;

use tokio_postgres::CancelToken;
use tracing::info;

use super::connect::{Settings, cancel};
use super::server::event_loop;
use crate::error::chain;

/// Longest request for a cancellation.
const CANCELLATION: Duration = Duration::from_secs(1);

/// Cancels the statement of a connection. Without this, the server would continue to build an index, or to
/// sort samples.
pub(super) fn cancel_statement(settings: &Settings, running: &CancelToken) {
    let cancelled = event_loop().map(|runtime| {
        runtime.block_on(async { tokio::time::timeout(CANCELLATION, cancel(settings, running)).await })
    });
    if let Ok(Ok(Err(error))) = cancelled {
        info!(error = %chain(&error), "cannot cancel a statement of the database");
    }
}
