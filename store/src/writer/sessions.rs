//! Sessions of agents, and their ends.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use polymeter_proto::series::{Roofs, SessionId};

use super::facts::integer;
use super::job_ends;
use super::ledger::Pending;
use super::progress::Progress;
use crate::accepted::SessionRecord;
use crate::backend::Connection;
use crate::error::DatabaseError;
use crate::job_end_queue::EndQueue;
use crate::row::{TimeUs, from_row};
use crate::value::{Batch, Column, ColumnType, Value};

#[derive(Debug, Default)]
pub(super) struct KnownSession {
    pub(super) last: u64,
    /// Stored samples that the ledger does not count yet.
    pub(super) pending: Pending,
    /// True if the session is recorded as ended.
    pub(super) is_ended: bool,
}

from_row!(KnownSession { last, pending, is_ended });

const NODE: [Column; 2] = [("node", ColumnType::Text), ("seen", ColumnType::Time)];

const ID: [Column; 1] = [("session_id", ColumnType::Text)];

const SESSION: [Column; 10] = [
    ("session_id", ColumnType::Text),
    ("node", ColumnType::Text),
    ("agent_version", ColumnType::Text),
    ("started", ColumnType::Time),
    ("seen", ColumnType::Time),
    ("cpus", ColumnType::Integer),
    ("cores", ColumnType::Integer),
    ("memory_bytes", ColumnType::Integer),
    ("double_flop", ColumnType::Integer),
    ("single_flop", ColumnType::Integer),
];

const ADVANCE: [Column; 8] = [
    ("session_id", ColumnType::Text),
    ("last", ColumnType::Integer),
    ("stored", ColumnType::Integer),
    ("pending", ColumnType::Json),
    ("newest", ColumnType::Time),
    ("ended", ColumnType::Time),
    ("is_new", ColumnType::Bool),
    ("collector_id", ColumnType::Text),
];

const OFFSET: [Column; 2] = [("id", ColumnType::Text), ("offset_us", ColumnType::Integer)];

const END: [Column; 4] = [
    ("session_id", ColumnType::Text),
    ("until", ColumnType::Time),
    ("reason", ColumnType::Text),
    ("noticed", ColumnType::Time),
];

/// Start of the next session on the node of session `old`.
const NEXT_SESSION: &str = "(
    SELECT min(later.started) FROM session AS later
    WHERE later.node = old.node AND later.started > greatest(old.started, coalesce(old.last_sample, old.last_seen)))";

/// Inserts the rows of sessions that have none, and of their nodes.
pub(super) fn insert(
    connection: &mut dyn Connection,
    sessions: &[Arc<SessionRecord>],
    seen: &Value<'_>,
) -> Result<(), DatabaseError> {
    let batch = Batch::new(
        &SESSION,
        sessions.iter().map(|session| {
            let descriptor = &session.descriptor;
            let roof = |of: fn(&Roofs) -> u64| integer(descriptor.processors.roofs.as_ref().map(of));
            [
                session.id.to_string().into(),
                descriptor.node.as_str().to_owned().into(),
                descriptor.agent_version.as_str().to_owned().into(),
                Value::time(descriptor.started_us),
                seen.clone(),
                descriptor.processors.cpus.into(),
                descriptor.processors.cores.into(),
                roof(|roofs| roofs.memory_bytes_per_s),
                roof(|roofs| roofs.double_flop_per_s),
                roof(|roofs| roofs.single_flop_per_s),
            ]
        }),
    );
    connection.execute_batch(
        "INSERT INTO session (session_id, node, agent_version, started, last_sequence, last_seen, node_cpus, node_cores,
             roof_memory_bytes_per_s, roof_double_flop_per_s, roof_single_flop_per_s)
         SELECT session_id, node, agent_version, started, 0, seen, cpus, cores, memory_bytes, double_flop, single_flop
         FROM {new} WHERE true
         ON CONFLICT DO NOTHING",
        &batch,
    )?;
    insert_nodes(connection, sessions.iter().map(|session| session.descriptor.node.as_str()), seen)
}

/// Inserts the rows of nodes that have none.
pub(super) fn insert_nodes<'a>(
    connection: &mut dyn Connection,
    nodes: impl Iterator<Item = &'a str>,
    seen: &Value<'_>,
) -> Result<(), DatabaseError> {
    let nodes: BTreeSet<_> = nodes.collect();
    connection.execute_batch(
        "INSERT INTO node (node, first_seen) SELECT node, seen FROM {new} WHERE true ON CONFLICT DO NOTHING",
        &Batch::new(&NODE, nodes.into_iter().map(|node| [node.to_owned().into(), seen.clone()])),
    )?;
    Ok(())
}

/// Returns the stored state of sessions, and locks their rows until the transaction ends.
pub(super) fn lock(
    connection: &mut dyn Connection,
    sessions: &[Arc<SessionRecord>],
) -> Result<HashMap<SessionId, KnownSession>, DatabaseError> {
    let rows: Vec<(String, KnownSession)> = connection.select_batch(
        "SELECT session_id, last_sequence, CAST(pending AS text), ended IS NOT NULL FROM session
         WHERE session_id IN (SELECT session_id FROM {new}) ORDER BY session_id{for_update}",
        &ids(sessions.iter().map(|session| session.id)),
    )?;
    let mut by_text: HashMap<String, KnownSession> = rows.into_iter().collect();
    Ok(sessions
        .iter()
        .map(|session| (session.id, by_text.remove(&session.id.to_string()).unwrap_or_default()))
        .collect())
}

fn ids(sessions: impl Iterator<Item = SessionId>) -> Batch<'static> {
    Batch::new(&ID, sessions.map(|session| [session.to_string().into()]))
}

/// Records the newest frame of each session, at the time of the database: the clocks of collectors may
/// differ, and each looks for silent sessions. `pending` are the stored samples that the ledger does not
/// count yet.
pub(super) fn advance(
    connection: &mut dyn Connection,
    progress: &BTreeMap<SessionId, Progress>,
    pending: &HashMap<SessionId, Pending>,
    collector_id: Option<&str>,
) -> Result<(), DatabaseError> {
    let batch = Batch::new(
        &ADVANCE,
        progress.iter().map(|(id, progress)| {
            [
                id.to_string().into(),
                Value::count(progress.last),
                Value::count(progress.stored),
                pending.get(id).map_or_else(|| "{}".to_owned(), Pending::to_json).into(),
                progress.newest_us.map(Value::time).unwrap_or(Value::Null),
                progress.ended_us.map(Value::time).unwrap_or(Value::Null),
                progress.is_new.into(),
                collector_id.into(),
            ]
        }),
    );
    connection.execute_batch(
        "UPDATE session SET last_sequence = new.last, last_seen = {now}, stored = session.stored + new.stored,
             collector_id = new.collector_id,
             pending = new.pending, last_sample = greatest(session.last_sample, new.newest),
             ended = CASE WHEN NOT new.is_new OR session.end_reason = 'stopped' THEN session.ended ELSE new.ended END,
             end_reason = CASE WHEN NOT new.is_new OR session.end_reason = 'stopped' THEN session.end_reason
                               WHEN new.ended IS NOT NULL THEN 'stopped' END
         FROM {new} WHERE session.session_id = new.session_id",
        &batch,
    )?;
    Ok(())
}

/// Stores how far the clocks of nodes are ahead of the collector's, in microseconds.
pub(super) fn set_clock_offsets(
    connection: &mut dyn Connection,
    offsets: &[(SessionId, Option<i64>)],
) -> Result<HashSet<SessionId>, DatabaseError> {
    let rows = offsets.iter().map(|(session, offset_us)| [session.to_string().into(), (*offset_us).into()]);
    let offsets = Batch::new(&OFFSET, rows);
    // Locked in a fixed order, like the sessions of frames.
    connection.query_batch(
        "SELECT session_id FROM session WHERE session_id IN (SELECT id FROM {new})
         ORDER BY session_id{for_update}",
        &offsets,
    )?;
    let stored: Vec<SessionId> = connection.select_batch(
        "UPDATE session SET clock_offset_us = new.offset_us FROM {new} WHERE session.session_id = new.id
         RETURNING session_id",
        &offsets,
    )?;
    Ok(stored.into_iter().collect())
}

/// Reopens sessions that were recorded as ended and send again: removes their intervals of unknown state, and
/// marks their lost jobs as running. Returns their nodes.
pub(super) fn reopen(
    connection: &mut dyn Connection,
    sessions: impl Iterator<Item = SessionId>,
) -> Result<Vec<String>, DatabaseError> {
    let sessions = ids(sessions);
    if sessions.is_empty() {
        return Ok(Vec::new());
    }
    connection.execute_batch(
        "DELETE FROM loss WHERE reason = 'unknown' AND session_id IN (SELECT session_id FROM {new})",
        &sessions,
    )?;
    connection.execute_batch(
        "UPDATE job SET ended = NULL WHERE job_key IN (
             SELECT job_key FROM job_node WHERE lost AND session_id IN (SELECT session_id FROM {new}))",
        &sessions,
    )?;
    connection.execute_batch(
        "UPDATE job_node SET ended = NULL, lost = false
         WHERE lost AND session_id IN (SELECT session_id FROM {new})",
        &sessions,
    )?;
    connection.select_batch(
        "SELECT DISTINCT node FROM session WHERE session_id IN (SELECT session_id FROM {new})",
        &sessions,
    )
}

/// Ends the sessions of `nodes` that did not report a stop, and whose newest sample is older than a later
/// session of the node: their agents were killed. Sessions that another connection stores at the same time
/// are skipped: [`end_superseded_before`] ends them.
pub(super) fn end_superseded(
    connection: &mut dyn Connection,
    nodes: Vec<String>,
    now: &Value<'_>,
) -> Result<(), DatabaseError> {
    let nodes = Batch::new(&NODE, nodes.into_iter().map(|node| [node.into(), now.clone()]));
    if nodes.is_empty() {
        return Ok(());
    }
    let select = format!(
        "SELECT old.session_id, {NEXT_SESSION} FROM session AS old
         WHERE old.ended IS NULL AND old.node IN (SELECT node FROM {{new}}) AND {NEXT_SESSION} IS NOT NULL
         ORDER BY old.session_id{{skip_locked}}"
    );
    let superseded = connection.select_batch(&select, &nodes)?;
    end(connection, superseded, "superseded", now)
}

/// Ends the sessions that have sent nothing since `cutoff`, and whose newest sample is older than a later
/// session of their node.
pub(super) fn end_superseded_before(
    connection: &mut dyn Connection,
    cutoff: &Value<'_>,
    now: &Value<'_>,
) -> Result<(), DatabaseError> {
    let select = format!(
        "SELECT old.session_id, {NEXT_SESSION} FROM session AS old
         WHERE old.ended IS NULL AND old.last_seen < $1 AND {NEXT_SESSION} IS NOT NULL
         ORDER BY old.session_id{{skip_locked}}"
    );
    let superseded = connection.select(&select, std::slice::from_ref(cutoff))?;
    end(connection, superseded, "superseded", now)
}

/// Ends sessions that have been silent since `cutoff`, and the jobs of sessions that ended before it, unless
/// another session tracks them. Returns the keys of these jobs.
pub(super) fn end_silent(
    connection: &mut dyn Connection,
    cutoff: &Value<'_>,
    now: &Value<'_>,
    queue: EndQueue,
) -> Result<Vec<i64>, DatabaseError> {
    let select = format!(
        "SELECT old.session_id, least($2, {NEXT_SESSION}) FROM session AS old
         WHERE old.ended IS NULL AND old.last_seen < $1 ORDER BY old.session_id{{skip_locked}}"
    );
    let silent = connection.select(&select, &[cutoff.clone(), now.clone()])?;
    end(connection, silent, "silent", now)?;
    job_ends::end_lost_jobs(connection, cutoff, queue)
}

/// Ends sessions, given as their ids and the times until which their state is unknown. This is recorded as a
/// loss of their node and of each job that they still tracked.
fn end(
    connection: &mut dyn Connection,
    ended: Vec<(String, TimeUs)>,
    reason: &str,
    now: &Value<'_>,
) -> Result<(), DatabaseError> {
    let ends = &Batch::new(
        &END,
        ended
            .into_iter()
            .map(|(id, TimeUs(until_us))| [id.into(), Value::Time(until_us), reason.into(), now.clone()]),
    );
    if ends.is_empty() {
        return Ok(());
    }
    connection.execute_batch(
        "INSERT INTO loss (time, node, session_id, job_key, samples, reason, first_time, last_time)
         SELECT DISTINCT new.noticed, session.node, session.session_id, ledger_line.job_key, 0, 'unknown',
                coalesce(session.last_sample, session.last_seen), new.until
         FROM {new} JOIN session ON session.session_id = new.session_id
         JOIN ledger_line ON ledger_line.session_key = session.session_key
         LEFT JOIN job_node ON job_node.job_key = ledger_line.job_key AND job_node.node = session.node
         WHERE new.until > coalesce(session.last_sample, session.last_seen)
             AND (ledger_line.job_key IS NULL OR job_node.ended IS NULL
                  OR job_node.session_id IS DISTINCT FROM session.session_id)",
        ends,
    )?;
    connection.execute_batch(
        "UPDATE session SET ended = coalesce(session.last_sample, session.last_seen), end_reason = new.reason
         FROM {new} WHERE session.session_id = new.session_id",
        ends,
    )?;
    Ok(())
}
