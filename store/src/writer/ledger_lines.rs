//! Lines of the ledger in the store.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use polymeter_proto::ledger::Tally;
use polymeter_proto::series::SessionId;

use super::found::{not_inserted, set_ids, stored};
use super::ledger::{Identity, LineChange};
use super::progress::{distinct, key_of};
use crate::accepted::{Accepted, LedgerLine};
use crate::backend::Connection;
use crate::error::DatabaseError;
use crate::value::{Batch, Column, ColumnType, Value};

const LINE: [Column; 5] = [
    ("position", ColumnType::Integer),
    ("session_id", ColumnType::Text),
    ("handle", ColumnType::Integer),
    ("job_key", ColumnType::Integer),
    ("source", ColumnType::Text),
];

const NAME: [Column; 1] = [("name", ColumnType::Text)];

/// Columns of integers, by their names.
macro_rules! integers {
    ($($name:literal),+) => {
        [$(($name, ColumnType::Integer)),+]
    };
}

#[rustfmt::skip]
const NEW_LINE: [Column; 15] = integers![
    "session_key", "job_key", "handle", "source_id",
    "due", "taken", "late", "missed", "absent", "dropped", "not_kept", "skipped", "rejected", "quarantined", "stored"
];

#[rustfmt::skip]
const CHANGE: [Column; 12] = integers![
    "ledger_id",
    "due", "taken", "late", "missed", "absent", "dropped", "not_kept", "skipped", "rejected", "quarantined", "stored"
];

/// Key of the session of a line, its handle, and the id of its source.
type Numbers = (Option<i64>, Option<i64>, Option<i64>);

/// Returns the lines of `frames` without an id, without duplicates.
fn without_id(frames: &[&Accepted]) -> Vec<Arc<LedgerLine>> {
    distinct(frames.iter().flat_map(|frame| frame.lines()).filter(|line| line.id.get().is_none()))
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

/// Sets the ids of those lines of `frames` that are in the store. Their sessions are locked: no other
/// connection inserts lines of them. The store has none of the jobs `new_jobs`.
pub(super) fn set_known_ids(
    connection: &mut dyn Connection,
    frames: &[&Accepted],
    new_jobs: &HashSet<i64>,
) -> Result<(), DatabaseError> {
    let mut lines = without_id(frames);
    lines.retain(|line| key_of(line.job.as_ref()).is_none_or(|key| !new_jobs.contains(&key)));
    find(connection, &lines)
}

fn find(connection: &mut dyn Connection, lines: &[Arc<LedgerLine>]) -> Result<(), DatabaseError> {
    if lines.is_empty() {
        return Ok(());
    }
    let found = connection.select_batch(
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
    set_ids(stored(found), lines, |line| &line.id);
    Ok(())
}

/// Inserts lines with their first counts, and returns their ids, which are valid after the commit.
pub(super) fn insert(
    connection: &mut dyn Connection,
    new: BTreeMap<Identity, (Arc<LedgerLine>, LineChange)>,
) -> Result<Vec<(Arc<LedgerLine>, i64)>, DatabaseError> {
    if new.is_empty() {
        return Ok(Vec::new());
    }
    let sessions = session_keys(connection, new.keys().map(|(session, ..)| *session).collect())?;
    let sources = source_ids(connection, new.keys().map(|(.., source)| source.as_str()).collect())?;
    let numbers = |(session, handle, source): &Identity| {
        let session_key = sessions.get(&session.to_string()).copied();
        (session_key, *handle, sources.get(source.as_str()).copied())
    };
    let rows = new.iter().map(|(identity, (line, change))| {
        let (session_key, handle, source_id) = numbers(identity);
        let tally = change.tally.unwrap_or_default();
        [
            session_key.into(),
            key_of(line.job.as_ref()).into(),
            handle.into(),
            source_id.into(),
            some_count(tally.due),
            some_count(tally.taken),
            some_count(tally.late),
            some_count(tally.missed),
            some_count(tally.absent),
            some_count(tally.dropped),
            some_count(tally.not_kept),
            some_count(change.skipped),
            some_count(change.rejected),
            some_count(change.quarantined),
            some_count(change.stored),
        ]
    });
    let inserted = connection.select_batch(
        "INSERT INTO ledger_line (session_key, job_key, handle, source_id, due, taken, late, missed, absent, dropped, not_kept, skipped,
             rejected, quarantined, stored)
         SELECT session_key, job_key, handle, source_id, due, taken, late, missed, absent, dropped, not_kept, skipped, rejected,
             quarantined, stored FROM {new}
         RETURNING session_key, handle, source_id, ledger_id",
        &Batch::new(&NEW_LINE, rows),
    )?;
    let inserted: HashMap<Numbers, i64> = inserted.into_iter().collect();
    new.into_iter()
        .map(|(identity, (line, _))| {
            let id = inserted.get(&numbers(&identity)).copied();
            Ok((line, id.ok_or_else(|| not_inserted("ledger_line"))?))
        })
        .collect()
}

/// Returns a count; NULL for 0, which takes no room.
fn some_count(count: u64) -> Value<'static> {
    if count == 0 { Value::Null } else { Value::count(count) }
}

fn session_keys(
    connection: &mut dyn Connection,
    ids: BTreeSet<SessionId>,
) -> Result<HashMap<String, i64>, DatabaseError> {
    let keys = connection.select_batch(
        "SELECT session_id, session_key FROM session WHERE session_id IN (SELECT name FROM {new})",
        &Batch::new(&NAME, ids.into_iter().map(|id| [id.to_string().into()])),
    )?;
    Ok(keys.into_iter().collect())
}

/// Returns the ids of sources, by their names. Inserts those that are missing.
fn source_ids(
    connection: &mut dyn Connection,
    sources: BTreeSet<&str>,
) -> Result<HashMap<String, i64>, DatabaseError> {
    const SELECT: &str =
        "SELECT source, source_id FROM ledger_source WHERE source IN (SELECT name FROM {new})";
    let count = sources.len();
    let sources = Batch::new(&NAME, sources.into_iter().map(|source| [source.into()]));
    let known: HashMap<_, _> = connection.select_batch(SELECT, &sources)?.into_iter().collect();
    if known.len() == count {
        return Ok(known);
    }
    // Without the condition a number would be spent for each source that is known.
    connection.execute_batch(
        "INSERT INTO ledger_source (source) SELECT name FROM {new}
         WHERE NOT EXISTS (SELECT 1 FROM ledger_source AS known WHERE known.source = new.name) ON CONFLICT DO NOTHING",
        &sources,
    )?;
    Ok(connection.select_batch(SELECT, &sources)?.into_iter().collect())
}

/// Writes changes of lines, by their ids. Counts are added, a tally replaces the previous one.
pub(super) fn update(
    connection: &mut dyn Connection,
    changes: &[(i64, LineChange)],
) -> Result<(), DatabaseError> {
    if changes.is_empty() {
        return Ok(());
    }
    let batch = Batch::new(
        &CHANGE,
        changes.iter().map(|(id, change)| {
            let tallied = |of: fn(&Tally) -> u64| {
                change.tally.as_ref().map_or(Value::Null, |tally| Value::count(of(tally)))
            };
            [
                Value::Integer(*id),
                tallied(|tally| tally.due),
                tallied(|tally| tally.taken),
                tallied(|tally| tally.late),
                tallied(|tally| tally.missed),
                tallied(|tally| tally.absent),
                tallied(|tally| tally.dropped),
                tallied(|tally| tally.not_kept),
                Value::count(change.skipped),
                Value::count(change.rejected),
                Value::count(change.quarantined),
                Value::count(change.stored),
            ]
        }),
    );
    connection.execute_batch(
        "UPDATE ledger_line SET
             due = nullif(coalesce(new.due, ledger_line.due), 0),
             taken = nullif(coalesce(new.taken, ledger_line.taken), 0),
             late = nullif(coalesce(new.late, ledger_line.late), 0),
             missed = nullif(coalesce(new.missed, ledger_line.missed), 0),
             absent = nullif(coalesce(new.absent, ledger_line.absent), 0),
             dropped = nullif(coalesce(new.dropped, ledger_line.dropped), 0),
             not_kept = nullif(coalesce(new.not_kept, ledger_line.not_kept), 0),
             skipped = nullif(coalesce(ledger_line.skipped, 0) + new.skipped, 0),
             rejected = nullif(coalesce(ledger_line.rejected, 0) + new.rejected, 0),
             quarantined = nullif(coalesce(ledger_line.quarantined, 0) + new.quarantined, 0),
             stored = nullif(coalesce(ledger_line.stored, 0) + new.stored, 0)
         FROM {new} WHERE ledger_line.ledger_id = new.ledger_id",
        &batch,
    )?;
    Ok(())
}
