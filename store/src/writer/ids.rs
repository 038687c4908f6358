//! The ids of ledger lines and series.

use super::found::not_inserted;
use super::transaction::transaction;
use super::{ledger_lines, series};
use crate::accepted::Accepted;
use crate::backend::Connection;
use crate::error::DatabaseError;

/// Assigns ids to the ledger lines and series of `frames` that have none. Those that are not in the store are
/// inserted in one transaction.
pub(super) fn assign(connection: &mut dyn Connection, frames: &[Accepted]) -> Result<(), DatabaseError> {
    let mut lines = ledger_lines::without_id(frames);
    ledger_lines::find(connection, &lines)?;
    lines.retain(|line| line.id.get().is_none());
    let mut series = series::without_id(frames);
    series::find(connection, &series)?;
    series.retain(|series| series.id.get().is_none());
    if lines.is_empty() && series.is_empty() {
        return Ok(());
    }
    // Each connection inserts lines, metrics and series in this order, and each of them sorted: connections
    // that wait for each other's rows cannot deadlock.
    transaction(connection, |connection| {
        ledger_lines::insert(connection, &lines)?;
        series::insert(connection, &series)
    })?;
    // Ids are cached only after the commit.
    ledger_lines::find(connection, &lines)?;
    series::find(connection, &series)?;
    if lines.iter().any(|line| line.id.get().is_none()) {
        return Err(not_inserted("ledger"));
    }
    if series.iter().any(|series| series.id.get().is_none()) {
        return Err(not_inserted("series"));
    }
    Ok(())
}
