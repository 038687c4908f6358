//! The ids of ledger lines and series.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use super::progress::key_of;
use super::transaction::transaction;
use super::{ledger_lines, series};
use crate::accepted::{Accepted, JobRecord};
use crate::backend::Connection;
use crate::error::{DatabaseError, ErrorKind};
use crate::value::Row;

/// Assigns ids to the ledger lines and series of `frames` that have none. Those that are not in the store are
/// inserted in one transaction. The store has none of the jobs `new_jobs`.
pub(super) fn assign(
    connection: &mut dyn Connection,
    frames: &[Accepted],
    new_jobs: &HashSet<i64>,
) -> Result<(), DatabaseError> {
    let is_new = |job: Option<&Arc<JobRecord>>| key_of(job).is_some_and(|key| new_jobs.contains(&key));
    let mut lines = ledger_lines::without_id(frames);
    let known: Vec<_> = lines.iter().filter(|line| !is_new(line.job.as_ref())).cloned().collect();
    ledger_lines::find(connection, &known)?;
    lines.retain(|line| line.id.get().is_none());
    let mut series = series::without_id(frames);
    let known: Vec<_> = series.iter().filter(|series| !is_new(series.job.as_ref())).cloned().collect();
    series::find(connection, &known)?;
    series.retain(|series| series.id.get().is_none());
    if lines.is_empty() && series.is_empty() {
        return Ok(());
    }
    // Each connection inserts lines, metrics and series in this order, and each of them sorted: connections
    // that wait for each other's rows cannot deadlock.
    let (new_lines, new_series) = transaction(connection, |connection| {
        Ok((ledger_lines::insert(connection, &lines, is_new)?, series::insert(connection, &series)?))
    })?;
    // Ids are cached only after the commit.
    set(new_lines, &lines, |line| &line.id);
    set(new_series, &series, |series| &series.id);
    // Another connection may have inserted some meanwhile.
    lines.retain(|line| line.id.get().is_none());
    ledger_lines::find(connection, &lines)?;
    series.retain(|series| series.id.get().is_none());
    series::find(connection, &series)?;
    if lines.iter().any(|line| line.id.get().is_none()) {
        return Err(not_inserted("ledger"));
    }
    if series.iter().any(|series| series.id.get().is_none()) {
        return Err(not_inserted("series"));
    }
    Ok(())
}

/// Sets the ids of `records` from pairs of a position and an id.
fn set<T>(
    found: impl IntoIterator<Item = (usize, i64)>,
    records: &[Arc<T>],
    id_of: impl Fn(&T) -> &OnceLock<i64>,
) {
    for (position, id) in found {
        if let Some(record) = records.get(position) {
            id_of(record).get_or_init(|| id);
        }
    }
}

/// Sets the ids of `records` from rows of a position and an id, which is NULL if the store lacks the record.
pub(super) fn set_found<T>(found: Vec<Row>, records: &[Arc<T>], id_of: impl Fn(&T) -> &OnceLock<i64>) {
    let pair = |mut row: Row| {
        let position = usize::try_from(row.integer()).unwrap_or(usize::MAX);
        Some((position, row.optional_integer()?))
    };
    set(found.into_iter().filter_map(pair), records, id_of);
}

/// Returns the error for a row that the database accepted and does not have: a rule or a trigger that an
/// administrator added may suppress it.
pub(super) fn not_inserted(table: &str) -> DatabaseError {
    let error = format!("an inserted row of table {table} is missing; check the table's triggers and rules");
    DatabaseError::new(ErrorKind::Other, std::io::Error::other(error))
}
