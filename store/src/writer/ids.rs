//! The ids of ledger lines and series.

use std::collections::HashSet;
use std::sync::Arc;

use super::found::{not_inserted, set_ids};
use super::progress::{key_of, sessions};
use super::transaction::transaction;
use super::{ledger_lines, series, sessions};
use crate::accepted::{Accepted, JobRecord, LedgerLine, SeriesRecord};
use crate::backend::Connection;
use crate::error::DatabaseError;
use crate::value::Value;

/// Assigns ids to the ledger lines and series of `frames` that have none. Those that are not in the store are
/// inserted in one transaction. The store has none of the jobs `new_jobs`.
pub(super) fn assign(
    connection: &mut dyn Connection,
    frames: &[Accepted],
    new_jobs: &HashSet<i64>,
    seen: &Value<'_>,
) -> Result<(), DatabaseError> {
    let is_new = |job: Option<&Arc<JobRecord>>| key_of(job).is_some_and(|key| new_jobs.contains(&key));
    let mut lines = ledger_lines::without_id(frames);
    let mut series = series::without_id(frames);
    find_known(connection, &lines, &series, is_new)?;
    lines.retain(|line| line.id.get().is_none());
    series.retain(|series| series.id.get().is_none());
    if lines.is_empty() && series.is_empty() {
        return Ok(());
    }
    // Each connection inserts and locks in this order, and the rows of a table sorted: connections that wait for
    // each other's rows cannot deadlock.
    let (new_lines, new_series) = transaction(connection, |connection| {
        sessions::insert(connection, &sessions(frames), seen)?;
        Ok((ledger_lines::insert(connection, &lines, is_new)?, series::insert(connection, &series)?))
    })?;
    // Ids are cached only after the commit.
    set_ids(new_lines, &lines, |line| &line.id);
    set_ids(new_series, &series, |series| &series.id);
    if lines.iter().any(|line| line.id.get().is_none()) {
        return Err(not_inserted("ledger_line"));
    }
    Ok(())
}

/// Sets the ids of those lines and series that are in the store. Those of new jobs are not.
fn find_known(
    connection: &mut dyn Connection,
    lines: &[Arc<LedgerLine>],
    series: &[Arc<SeriesRecord>],
    is_new: impl Fn(Option<&Arc<JobRecord>>) -> bool,
) -> Result<(), DatabaseError> {
    let lines: Vec<_> = lines.iter().filter(|line| !is_new(line.job.as_ref())).cloned().collect();
    let series: Vec<_> = series.iter().filter(|series| !is_new(series.job.as_ref())).cloned().collect();
    if lines.is_empty() && series.is_empty() {
        return Ok(());
    }
    // In a transaction the planner is bound to the indexes.
    let (known_lines, known_series) = transaction(connection, |connection| {
        let numbered: Vec<_> = series.iter().enumerate().collect();
        Ok((ledger_lines::find(connection, &lines)?, series::find(connection, &numbered)?))
    })?;
    set_ids(known_lines, &lines, |line| &line.id);
    set_ids(known_series, &series, |series| &series.id);
    Ok(())
}
