//! The lines of the ledger in the store.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use polymeter_proto::ledger::Tally;

use super::found::pairs;
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

const NAME: [Column; 1] = [("name", ColumnType::Text)];

const NUMBERS: [Column; 4] = [
    ("session_key", ColumnType::Integer),
    ("handle", ColumnType::Integer),
    ("job_key", ColumnType::Integer),
    ("source_id", ColumnType::Integer),
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

/// Returns the positions and ids of those of `lines` that are in the store.
pub(super) fn find(
    connection: &mut dyn Connection,
    lines: &[Arc<LedgerLine>],
) -> Result<Vec<(usize, i64)>, DatabaseError> {
    if lines.is_empty() {
        return Ok(Vec::new());
    }
    let found = connection.query_batch(
        "SELECT new.position, (
             SELECT ledger_line.ledger_id FROM session
             JOIN ledger_line ON ledger_line.session_key = session.session_key
             JOIN ledger_source ON ledger_source.source_id = ledger_line.source_id
             WHERE session.session_id = new.session_id AND coalesce(ledger_line.handle, -1) = coalesce(new.handle, -1)
                 AND coalesce(ledger_line.job_key, 0) = coalesce(new.job_key, 0) AND ledger_source.source = new.source
             LIMIT 1
         ) FROM {new}",
        &batch(lines),
    )?;
    Ok(pairs(found))
}

/// Inserts `lines`, except for those that are in the store, and returns the positions and ids of all. Their sessions are
/// in the store. `is_new` is true for jobs that the store did not have.
pub(super) fn insert(
    connection: &mut dyn Connection,
    lines: &[Arc<LedgerLine>],
    is_new: impl Fn(Option<&Arc<JobRecord>>) -> bool,
) -> Result<Vec<(usize, i64)>, DatabaseError> {
    if lines.is_empty() {
        return Ok(Vec::new());
    }
    let sessions = session_keys(connection, lines)?;
    let sources = source_ids(connection, lines)?;
    let row = |line: &Arc<LedgerLine>| {
        let session_key = sessions.get(&line.session.id.to_string()).copied();
        let source_id = sources.get(line.source.as_str()).copied();
        (session_key, line.handle(), key_of(line.job.as_ref()), source_id)
    };
    let values =
        |(session_key, handle, job_key, source_id): (Option<i64>, Option<i64>, Option<i64>, Option<i64>)| {
            [session_key.into(), handle.into(), job_key.into(), source_id.into()]
        };
    // Lines of version 4 of the schema have no handle: they get the handle of this line. The unique index
    // finds them.
    let of_old_jobs = lines.iter().filter(|line| line.job.is_some() && !is_new(line.job.as_ref()));
    let of_old_jobs = Batch::new(&NUMBERS, of_old_jobs.map(row).map(values));
    if !of_old_jobs.is_empty() {
        connection.execute_batch(
            "UPDATE ledger_line SET handle = new.handle FROM {new}
             WHERE ledger_line.session_key = new.session_key AND coalesce(ledger_line.handle, -1) = -1
                 AND coalesce(ledger_line.job_key, 0) = coalesce(new.job_key, 0) AND ledger_line.source_id = new.source_id",
            &of_old_jobs,
        )?;
    }
    let inserted = connection.query_batch(
        "INSERT INTO ledger_line (session_key, handle, job_key, source_id)
         SELECT session_key, handle, job_key, source_id FROM {new} WHERE true ON CONFLICT DO NOTHING
         RETURNING session_key, handle, job_key, source_id, ledger_id",
        &Batch::new(&NUMBERS, lines.iter().map(row).map(values)),
    )?;
    let mut inserted: HashMap<_, i64> = inserted
        .into_iter()
        .map(|mut row| {
            let mut next = || row.optional_integer();
            ((next(), next(), next(), next()), row.integer())
        })
        .collect();
    let (mut ids, mut others) = (Vec::with_capacity(lines.len()), Vec::new());
    for (position, line) in lines.iter().enumerate() {
        match inserted.remove(&row(line)) {
            Some(id) => ids.push((position, id)),
            None => others.push((position, Arc::clone(line))),
        }
    }
    // Another connection inserted them meanwhile, or they are twice in the list.
    let (positions, others): (Vec<usize>, Vec<_>) = others.into_iter().unzip();
    let found = find(connection, &others)?;
    ids.extend(found.into_iter().filter_map(|(other, id)| Some((*positions.get(other)?, id))));
    Ok(ids)
}

/// Returns the keys of the sessions of `lines`, by their ids.
fn session_keys(
    connection: &mut dyn Connection,
    lines: &[Arc<LedgerLine>],
) -> Result<HashMap<String, i64>, DatabaseError> {
    let ids: BTreeSet<_> = lines.iter().map(|line| line.session.id.to_string()).collect();
    let keys = connection.query_batch(
        "SELECT session_id, session_key FROM session WHERE session_id IN (SELECT name FROM {new})",
        &Batch::new(&NAME, ids.into_iter().map(|id| [id.into()])),
    )?;
    Ok(by_name(keys))
}

/// Returns the ids of the sources of `lines`, by their names. Those that are missing are inserted.
fn source_ids(
    connection: &mut dyn Connection,
    lines: &[Arc<LedgerLine>],
) -> Result<HashMap<String, i64>, DatabaseError> {
    const SELECT: &str =
        "SELECT source, source_id FROM ledger_source WHERE source IN (SELECT name FROM {new})";
    let sources: BTreeSet<_> = lines.iter().map(|line| line.source.as_str()).collect();
    let count = sources.len();
    let sources = Batch::new(&NAME, sources.into_iter().map(|source| [source.into()]));
    let known = by_name(connection.query_batch(SELECT, &sources)?);
    if known.len() == count {
        return Ok(known);
    }
    connection.execute_batch(
        "INSERT INTO ledger_source (source) SELECT name FROM {new}
         WHERE NOT EXISTS (SELECT 1 FROM ledger_source AS known WHERE known.source = new.name) ON CONFLICT DO NOTHING",
        &sources,
    )?;
    Ok(by_name(connection.query_batch(SELECT, &sources)?))
}

fn by_name(rows: Vec<Row>) -> HashMap<String, i64> {
    rows.into_iter().map(|mut row| (row.text(), row.integer())).collect()
}

/// Writes changes of lines, by their ids. Counts are added, a tally replaces the previous one. A count of 0 is NULL,
/// which takes no room.
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
        "UPDATE ledger_line SET
             due = nullif(coalesce(new.due, ledger_line.due), 0),
             taken = nullif(coalesce(new.taken, ledger_line.taken), 0),
             late = nullif(coalesce(new.late, ledger_line.late), 0),
             missed = nullif(coalesce(new.missed, ledger_line.missed), 0),
             absent = nullif(coalesce(new.absent, ledger_line.absent), 0),
             dropped = nullif(coalesce(new.dropped, ledger_line.dropped), 0),
             stored = nullif(coalesce(ledger_line.stored, 0) + new.stored, 0),
             skipped = nullif(coalesce(ledger_line.skipped, 0) + new.skipped, 0),
             rejected = nullif(coalesce(ledger_line.rejected, 0) + new.rejected, 0),
             quarantined = nullif(coalesce(ledger_line.quarantined, 0) + new.quarantined, 0)
         FROM {new} WHERE ledger_line.ledger_id = new.ledger_id",
        &Batch::new(&CHANGE, changes.iter().map(row)),
    )?;
    Ok(())
}
