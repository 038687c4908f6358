//! The ids of ledger lines and series.

use std::sync::{Arc, OnceLock};

use super::transaction::transaction;
use super::{ledger_lines, series};
use crate::accepted::Accepted;
use crate::backend::Connection;
use crate::error::{DatabaseError, ErrorKind};
use crate::value::Row;

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

/// Sets the ids of `records` from rows of a position and an id, which is NULL if the store lacks the record.
pub(super) fn set<T>(found: Vec<Row>, records: &[Arc<T>], id_of: impl Fn(&T) -> &OnceLock<i64>) {
    for mut row in found {
        let position = usize::try_from(row.integer()).unwrap_or(usize::MAX);
        if let (Some(record), Some(id)) = (records.get(position), row.optional_integer()) {
            id_of(record).get_or_init(|| id);
        }
    }
}

/// Returns the error for a row that the database accepted and does not have: a rule or a trigger that an
/// administrator added may suppress it.
pub(super) fn not_inserted(table: &str) -> DatabaseError {
    let error = format!("an inserted row of table {table} is missing; check the table's triggers and rules");
    DatabaseError::new(ErrorKind::Other, std::io::Error::other(error))
}
