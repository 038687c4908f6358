//! The statements of SQLite for sessions and their ledgers. They mirror `session_rows`, but for `pending`: here a row of the
//! ledger costs no more than a sample.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_proto::series::SessionId;
use rusqlite::{Connection, OptionalExtension, params};

use super::ledger::LineChange;
use super::sqlite::ns;
use super::sqlite_jobs::end_whole_job;
use super::{Progress, handle_of, key_of, stored_count};
use crate::accepted::{LedgerLine, SessionRecord};

/// The stored state of a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    /// The newest frame that is stored.
    pub(super) last: u64,
    /// It is believed to have ended.
    pub(super) is_ended: bool,
}

/// Returns the stored state of the session; none where nothing is stored of it.
pub(super) fn known(connection: &Connection, session: SessionId) -> rusqlite::Result<Option<Known>> {
    let mut statement = connection
        .prepare_cached("SELECT last_sequence, ended IS NOT NULL FROM session WHERE session_id = ?1")?;
    let known = |row: &rusqlite::Row<'_>| {
        Ok(Known { last: row.get::<_, i64>(0)?.cast_unsigned(), is_ended: row.get(1)? })
    };
    statement.query_row([session.to_string()], known).optional()
}

/// The id of a line of the ledger: of the one that is there, or was under version 4 of the schema, which knew no handles,
/// else of a new one.
pub(super) fn give_account_id(connection: &Connection, account: &LedgerLine) -> rusqlite::Result<i64> {
    let (session, handle) = (account.session.id.to_string(), handle_of(account));
    let (key, source) = (key_of(account.job.as_ref()), account.source.as_str());
    let known = connection
        .prepare_cached(
            "SELECT ledger_id FROM ledger
             WHERE session_id = ?1 AND coalesce(handle, -1) = coalesce(?2, -1) AND coalesce(job_key, 0) = coalesce(?3, 0)
                 AND source = ?4",
        )?
        .query_row(params![session, handle, key, source], |row| row.get(0))
        .optional()?;
    if let Some(id) = known {
        return Ok(id);
    }
    let adopted = connection
        .prepare_cached(
            "UPDATE ledger SET handle = ?2 WHERE session_id = ?1 AND handle IS NULL AND job_key = ?3 AND source = ?4
             RETURNING ledger_id",
        )?
        .query_row(params![session, handle, key, source], |row| row.get(0))
        .optional()?;
    if let Some(id) = adopted {
        return Ok(id);
    }
    connection
        .prepare_cached("INSERT INTO ledger (session_id, handle, job_key, source) VALUES (?1, ?2, ?3, ?4) RETURNING ledger_id")?
        .query_row(params![session, handle, key, source], |row| row.get(0))
}

/// Writes what has changed of lines of the ledger.
pub(super) fn update_ledger(
    connection: &Connection,
    changes: &BTreeMap<(SessionId, i64), LineChange>,
) -> rusqlite::Result<()> {
    let mut add = connection.prepare_cached(
        "UPDATE ledger SET stored = stored + ?2, skipped = skipped + ?3, rejected = rejected + ?4, quarantined = quarantined + ?5
         WHERE ledger_id = ?1",
    )?;
    let mut replace = connection.prepare_cached(
        "UPDATE ledger SET due = ?2, taken = ?3, late = ?4, missed = ?5, absent = ?6, dropped = ?7 WHERE ledger_id = ?1",
    )?;
    for ((_, id), change) in changes {
        let [stored, skipped, rejected, quarantined] =
            [change.stored, change.skipped, change.rejected, change.quarantined].map(stored_count);
        add.execute(params![id, stored, skipped, rejected, quarantined])?;
        if let Some(tally) = &change.tally {
            let [due, taken, late, missed, absent, dropped] =
                [tally.due, tally.taken, tally.late, tally.missed, tally.absent, tally.dropped]
                    .map(stored_count);
            replace.execute(params![id, due, taken, late, missed, absent, dropped])?;
        }
    }
    Ok(())
}

/// Makes rows for sessions that have none, and notes up to where each is stored.
pub(super) fn write_sessions(
    connection: &Connection,
    sessions: &[Arc<SessionRecord>],
    progress: &BTreeMap<SessionId, Progress>,
    seen_ns: i64,
) -> rusqlite::Result<()> {
    let mut node = connection
        .prepare_cached("INSERT INTO node (node, first_seen) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?;
    let mut insert = connection.prepare_cached(
        "INSERT INTO session (session_id, node, agent_version, started, last_sequence, last_seen, stored)
         VALUES (?1, ?2, ?3, ?4, 0, ?5, 0) ON CONFLICT DO NOTHING",
    )?;
    let mut advance = connection.prepare_cached(
        "UPDATE session SET last_sequence = ?2, last_seen = ?3, stored = stored + ?4,
             last_sample = max(coalesce(last_sample, ?5), coalesce(?5, last_sample)),
             ended = CASE WHEN NOT ?7 OR end_reason IS 'stopped' THEN ended ELSE ?6 END,
             end_reason = CASE WHEN NOT ?7 OR end_reason IS 'stopped' THEN end_reason WHEN ?6 IS NOT NULL THEN 'stopped' END
         WHERE session_id = ?1",
    )?;
    for session in sessions {
        let Some(of) = progress.get(&session.id) else { continue };
        let (id, said) = (session.id.to_string(), &session.descriptor);
        node.execute(params![said.node.as_str(), seen_ns])?;
        let (version, started) = (said.agent_version.as_str(), ns(said.started_us));
        insert.execute(params![id, said.node.as_str(), version, started, seen_ns])?;
        advance.execute(params![
            id,
            stored_count(of.last),
            seen_ns,
            stored_count(of.stored),
            of.newest_us.map(ns),
            of.ended_us.map(ns),
            of.is_new,
        ])?;
    }
    Ok(())
}

/// Reopens a session that was recorded as ended and sends again: removes its intervals of unknown state, and marks its lost jobs
/// as running.
pub(super) fn reopen_session(connection: &Connection, session: SessionId) -> rusqlite::Result<()> {
    let id = session.to_string();
    connection
        .prepare_cached("DELETE FROM loss WHERE reason = 'unknown' AND session_id = ?1")?
        .execute([&id])?;
    connection
        .prepare_cached(
            "UPDATE job SET ended = NULL WHERE job_key IN (SELECT job_key FROM job_node WHERE lost AND session_id = ?1)",
        )?
        .execute([&id])?;
    connection
        .prepare_cached("UPDATE job_node SET ended = NULL, lost = 0 WHERE lost AND session_id = ?1")?
        .execute([&id])?;
    Ok(())
}

/// Ends the sessions of `node` that did not say that they end, and whose newest sample is older than a later session of the
/// node: their agents were killed.
pub(super) fn supersede_sessions(connection: &Connection, node: &str, now_ns: i64) -> rusqlite::Result<()> {
    let mut select = connection.prepare_cached(
        "SELECT session_id, (SELECT min(later.started) FROM session AS later
                             WHERE later.node = old.node AND later.started > max(old.started, coalesce(old.last_sample, old.last_seen))) AS until
         FROM session AS old WHERE ended IS NULL AND node = ?1 AND until IS NOT NULL",
    )?;
    let over = select.query_map([node], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let over: Vec<(String, i64)> = over.collect::<rusqlite::Result<_>>()?;
    over.iter().try_for_each(|(id, until_ns)| end_session(connection, id, *until_ns, "superseded", now_ns))
}

/// Ends sessions of which nothing was heard since `cutoff_ns`, and the jobs of sessions that ended before it and that no
/// other session has taken up.
pub(super) fn end_silent(connection: &Connection, cutoff_ns: i64, now_ns: i64) -> rusqlite::Result<()> {
    let mut select = connection.prepare_cached(
        "SELECT session_id, min(?2, coalesce((
             SELECT min(later.started) FROM session AS later
             WHERE later.node = old.node AND later.started > max(old.started, coalesce(old.last_sample, old.last_seen))), ?2))
         FROM session AS old WHERE ended IS NULL AND last_seen < ?1",
    )?;
    let over = select.query_map([cutoff_ns, now_ns], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let over: Vec<(String, i64)> = over.collect::<rusqlite::Result<_>>()?;
    for (id, until_ns) in &over {
        end_session(connection, id, *until_ns, "silent", now_ns)?;
    }
    let mut lost = connection.prepare_cached(
        "UPDATE job_node AS its SET lost = 1, ended = max(its.started, coalesce((
             SELECT max(coalesce(last_sample, last_seen)) FROM session
             WHERE session.session_id = its.session_id OR its.session_id IS NULL AND session.node = its.node), 0))
         WHERE ended IS NULL AND CASE WHEN session_id IS NULL THEN started < ?1
             ELSE EXISTS (SELECT 1 FROM session WHERE session.session_id = its.session_id
                              AND session.ended IS NOT NULL AND last_seen < ?1) END
         RETURNING job_key",
    )?;
    let keys = lost.query_map([cutoff_ns], |row| row.get(0))?.collect::<rusqlite::Result<Vec<i64>>>()?;
    keys.into_iter().try_for_each(|key| end_whole_job(connection, key))
}

/// Ends a session, notes that nothing is known from its newest sample to `until_ns`, as a loss of its node and of each job
/// that it followed to the end.
fn end_session(
    connection: &Connection,
    id: &str,
    until_ns: i64,
    reason: &str,
    now_ns: i64,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO loss (time, node, session_id, job_key, samples, reason, first_time, last_time)
             SELECT DISTINCT ?3, session.node, ledger.session_id, ledger.job_key, 0, 'unknown', coalesce(last_sample, last_seen), ?2
             FROM session JOIN ledger USING (session_id)
             LEFT JOIN job_node ON job_node.job_key = ledger.job_key AND job_node.node = session.node
             WHERE session.session_id = ?1 AND ?2 > coalesce(last_sample, last_seen)
                 AND (ledger.job_key IS NULL OR job_node.ended IS NULL OR job_node.session_id IS NOT session.session_id)",
        )?
        .execute(params![id, until_ns, now_ns])?;
    connection
        .prepare_cached(
            "UPDATE session SET ended = coalesce(last_sample, last_seen), end_reason = ?2 WHERE session_id = ?1",
        )?
        .execute([id, reason])?;
    Ok(())
}
