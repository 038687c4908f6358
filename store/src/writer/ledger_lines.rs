//! The lines of the ledger in the store.

use std::collections::HashMap;
use std::sync::Arc;

use polymeter_proto::ledger::Tally;

use super::found::set_found_ids;
use super::ledger::LineChange;
use super::progress::{distinct, key_of};
use crate::accepted::{Accepted, JobRecord, LedgerLine};
use crate::backend::Connection;
use crate::error::DatabaseError;
use crate::value::{Batch, Column, ColumnType, Row, Value};

const LINE: [Column; 5] = [
    ("position", ColumnType::Integer),
    ("session_id", ColumnType::Text),
    ("handle", ColumnType::Integer),
    ("job_key", ColumnType::Integer),
    ("source", ColumnType::Text),
];

const CHANGE: [Column; 11] = [
    ("ledger_id", ColumnType::Integer),
    ("due", ColumnType::Integer),
    ("taken", ColumnType::Integer),
    ("late", ColumnType::Integer),
    ("missed", ColumnType::Integer),
    ("absent", ColumnType::Integer),
    ("dropped", ColumnType::Integer),
    ("stored", ColumnType::Integer),
    ("skipped", ColumnType::Integer),
    ("rejected", ColumnType::Integer),
    ("quarantined", ColumnType::Integer),
];

/// Returns the lines of `frames` without an id, without duplicates, in an order that is the same for all
/// connections.
pub(super) fn without_id(frames: &[Accepted]) -> Vec<Arc<LedgerLine>> {
    let mut lines = distinct(frames.iter().flat_map(Accepted::lines).filter(|line| line.id.get().is_none()));
    let identity = |line: &LedgerLine| (line.session.id, line.handle(), line.source.clone());
    lines.sort_by_key(|line| identity(line));
    lines
}

fn batch(lines: &[Arc<LedgerLine>]) -> Batch<'_> {
    Batch::new(
        &LINE,
        (0..).zip(lines).map(|(position, line)| {
            [
                Value::Integer(position),
                line.session.id.to_string().into(),
                line.handle().into(),
                key_of(line.job.as_ref()).into(),
                line.source.as_str().into(),
            ]
        }),
    )
}

/// Sets the ids of those of `lines` that are in the store.
pub(super) fn find(connection: &mut dyn Connection, lines: &[Arc<LedgerLine>]) -> Result<(), DatabaseError> {
    if lines.is_empty() {
        return Ok(());
    }
    let found = connection.query_batch(
        "SELECT new.position, (
             SELECT ledger.ledger_id FROM ledger
             WHERE ledger.session_id = new.session_id AND coalesce(ledger.handle, -1) = coalesce(new.handle, -1)
                 AND coalesce(ledger.job_key, 0) = coalesce(new.job_key, 0) AND ledger.source = new.source LIMIT 1
         ) FROM {new}",
        &batch(lines),
    )?;
    set_found_ids(found, lines, |line| &line.id);
    Ok(())
}

/// Inserts `lines`, except for those that are in the store. Returns the positions and ids of the inserted ones.
/// `is_new` is true for jobs that the store did not have.
pub(super) fn insert(
    connection: &mut dyn Connection,
    lines: &[Arc<LedgerLine>],
    is_new: impl Fn(Option<&Arc<JobRecord>>) -> bool,
) -> Result<Vec<(usize, i64)>, DatabaseError> {
    if lines.is_empty() {
        return Ok(Vec::new());
    }
    // Lines of version 4 of the schema have no handle: they get the handle of this line. The unique index
    // finds them.
    let of_old_jobs: Vec<_> =
        lines.iter().filter(|line| line.job.is_some() && !is_new(line.job.as_ref())).cloned().collect();
    if !of_old_jobs.is_empty() {
        connection.execute_batch(
            "UPDATE ledger SET handle = new.handle FROM {new}
             WHERE ledger.session_id = new.session_id AND coalesce(ledger.handle, -1) = -1
                 AND coalesce(ledger.job_key, 0) = coalesce(new.job_key, 0) AND ledger.source = new.source",
            &batch(&of_old_jobs),
        )?;
    }
    let inserted = connection.query_batch(
        "INSERT INTO ledger (session_id, handle, job_key, source)
         SELECT session_id, handle, job_key, source FROM {new} WHERE true ON CONFLICT DO NOTHING
         RETURNING session_id, handle, job_key, source, ledger_id",
        &batch(lines),
    )?;
    let identity = |line: &Arc<LedgerLine>| {
        let source = line.source.as_str().to_owned();
        (line.session.id.to_string(), line.handle(), key_of(line.job.as_ref()), source)
    };
    let positions: HashMap<_, _> = lines.iter().map(identity).zip(0..).collect();
    let pair = |mut row: Row| {
        let identity = (row.text(), row.optional_integer(), row.optional_integer(), row.text());
        Some((*positions.get(&identity)?, row.integer()))
    };
    Ok(inserted.into_iter().filter_map(pair).collect())
}

/// Writes changes of lines, by their ids. Counts are added, a tally replaces the previous one.
pub(super) fn update(
    connection: &mut dyn Connection,
    changes: &[(i64, LineChange)],
) -> Result<(), DatabaseError> {
    if changes.is_empty() {
        return Ok(());
    }
    let row = |(id, change): &(i64, LineChange)| {
        let tally = |of: fn(&Tally) -> u64| {
            change.tally.as_ref().map_or(Value::Null, |tally| Value::count(of(tally)))
        };
        [
            Value::Integer(*id),
            tally(|tally| tally.due),
            tally(|tally| tally.taken),
            tally(|tally| tally.late),
            tally(|tally| tally.missed),
            tally(|tally| tally.absent),
            tally(|tally| tally.dropped),
            Value::count(change.stored),
            Value::count(change.skipped),
            Value::count(change.rejected),
            Value::count(change.quarantined),
        ]
    };
    connection.execute_batch(
        "UPDATE ledger SET due = coalesce(new.due, ledger.due), taken = coalesce(new.taken, ledger.taken),
             late = coalesce(new.late, ledger.late), missed = coalesce(new.missed, ledger.missed),
             absent = coalesce(new.absent, ledger.absent), dropped = coalesce(new.dropped, ledger.dropped),
             stored = ledger.stored + new.stored, skipped = ledger.skipped + new.skipped,
             rejected = ledger.rejected + new.rejected, quarantined = ledger.quarantined + new.quarantined
         FROM {new} WHERE ledger.ledger_id = new.ledger_id",
        &Batch::new(&CHANGE, changes.iter().map(row)),
    )?;
    Ok(())
}
