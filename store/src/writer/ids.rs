//! Ids of series.

use std::collections::HashSet;

use super::found::{not_inserted, set_ids};
use super::progress::{self, key_of};
use super::transaction::transaction;
use super::{series, sessions};
use crate::accepted::{Accepted, SeriesRecord};
use crate::backend::Connection;
use crate::error::DatabaseError;
use crate::value::Value;

/// Assigns ids to the series of `frames` that have none. Those that are not in the store are inserted in one
/// transaction. The store has none of the jobs `new_jobs`.
pub(super) fn assign(
    connection: &mut dyn Connection,
    frames: &[Accepted],
    new_jobs: &HashSet<i64>,
    seen: &Value<'_>,
) -> Result<(), DatabaseError> {
    let mut series = series::without_id(frames);
    let is_new =
        |series: &SeriesRecord| key_of(series.job.as_ref()).is_some_and(|key| new_jobs.contains(&key));
    let known: Vec<_> = series.iter().filter(|series| !is_new(series)).cloned().collect();
    if !known.is_empty() {
        // Retention removes series of nodes without an open session, and locks the nodes meanwhile.
        transaction(connection, |connection| {
            sessions::insert(connection, &progress::sessions(frames), seen)?;
            series::share_nodes(connection, &known)
        })?;
        // In a transaction the planner is bound to the indexes.
        let numbered: Vec<_> = known.iter().enumerate().collect();
        let found = transaction(connection, |connection| series::find(connection, &numbered))?;
        set_ids(found, &known, |series| &series.id);
        series.retain(|series| series.id.get().is_none());
    }
    if series.is_empty() {
        return Ok(());
    }
    // Each connection inserts and locks in this order, and the rows of a table sorted: connections that wait
    // for each other's rows cannot deadlock.
    let inserted = transaction(connection, |connection| {
        sessions::insert_nodes(connection, series.iter().map(|series| series.stored_node().as_str()), seen)?;
        series::insert(connection, &series)
    })?;
    // Ids are cached only after the commit.
    set_ids(inserted, &series, |series| &series.id);
    if series.iter().any(|series| series.id.get().is_none()) {
        Err(not_inserted("series_block"))
    } else {
        Ok(())
    }
}
