//! The ids of ledger lines and series.

use std::collections::HashSet;
use std::sync::Arc;

use super::found::{not_inserted, set_ids};
use super::progress::key_of;
use super::transaction::transaction;
use super::{ledger_lines, series};
use crate::accepted::{Accepted, JobRecord};
use crate::backend::Connection;
use crate::error::DatabaseError;

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
    set_ids(new_lines, &lines, |line| &line.id);
    set_ids(new_series, &series, |series| &series.id);
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
