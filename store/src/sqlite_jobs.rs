//! The statements of SQLite for jobs, the nodes that they run on, and their ends. They mirror `job_rows`.

use std::sync::Arc;

use polymeter_proto::series::Identifier;
use rusqlite::{Connection, OptionalExtension, params};

use super::sqlite::ns;
use super::{JobEnd, REVIVAL, ends_before};
use crate::accepted::{Accepted, JobRecord};

/// Gives their keys to `jobs`, whose frames are `frames`, in the order of their identities.
pub(super) fn give_job_keys(
    connection: &Connection,
    jobs: &[Arc<JobRecord>],
    frames: &[Accepted],
) -> rusqlite::Result<Vec<i64>> {
    let mut keys = Vec::with_capacity(jobs.len());
    for job in jobs {
        // A predecessor has ended before, whichever transaction its end is in.
        end_jobs(connection, &ends_before(job, jobs, &keys, frames))?;
        let key = match find_job(connection, job)? {
            Some(key) => key,
            None => insert_job(connection, job)?,
        };
        join_job(connection, job, key)?;
        keys.push(key);
    }
    Ok(keys)
}

/// The job's row: the one that this handle has rows of already, else the one that this node began at that time, else the one
/// of the same owner that still runs, or did when this node began, or of which only the agent was lost.
fn find_job(connection: &Connection, job: &JobRecord) -> rusqlite::Result<Option<i64>> {
    let said = &job.descriptor;
    let revival_ns = i64::try_from(REVIVAL.as_nanos()).unwrap_or(i64::MAX);
    let (session, handle) = (job.session.id.to_string(), job.handle.0);
    let of_rows: Option<i64> = connection
        .prepare_cached(
            "SELECT job_key FROM ledger WHERE session_id = ?1 AND coalesce(handle, -1) = ?2 AND job_key IS NOT NULL LIMIT 1",
        )?
        .query_row(params![session, handle], |row| row.get(0))
        .optional()?;
    if of_rows.is_some() {
        return Ok(of_rows);
    }
    connection
        .prepare_cached(
            "SELECT job_key FROM job LEFT JOIN job_node AS mine USING (job_key)
             WHERE job_id = ?1 AND cluster IS ?2
                 AND CASE WHEN owner_uid IS NULL OR ?5 IS NULL THEN owner IS NULL OR ?6 IS NULL OR owner = ?6
                          ELSE owner_uid = ?5 END
                 AND (mine.node = ?3 AND mine.started = ?4 OR job.ended IS NULL OR job.ended >= ?4
                      OR job.ended >= ?4 - ?7
                         AND EXISTS (SELECT 1 FROM job_node AS other WHERE other.job_key = job.job_key AND other.lost))
             ORDER BY (mine.session_id = ?8 AND mine.handle = ?9) DESC, (mine.node = ?3 AND mine.started = ?4) DESC,
                 job.started DESC LIMIT 1",
        )?
        .query_row(
            params![
                said.job_id.as_str(),
                said.cluster.as_ref().map(Identifier::as_str),
                job.node().as_str(),
                ns(said.started_us),
                said.owner_uid,
                said.owner.as_ref().map(Identifier::as_str),
                revival_ns,
                session,
                handle,
            ],
            |row| row.get(0),
        )
        .optional()
}

fn insert_job(connection: &Connection, job: &JobRecord) -> rusqlite::Result<i64> {
    let said = &job.descriptor;
    connection
        .prepare_cached("INSERT INTO job (job_id, cluster, owner, owner_uid, started) VALUES (?1, ?2, ?3, ?4, ?5) RETURNING job_key")?
        .query_row(
            params![
                said.job_id.as_str(),
                said.cluster.as_ref().map(Identifier::as_str),
                said.owner.as_ref().map(Identifier::as_str),
                said.owner_uid,
                ns(said.started_us),
            ],
            |row| row.get(0),
        )
}

/// Notes that the job runs on this node under this handle of this session, unless a later one is known.
fn join_job(connection: &Connection, job: &JobRecord, key: i64) -> rusqlite::Result<()> {
    let said = &job.descriptor;
    let joined = connection
        .prepare_cached(
            "INSERT INTO job_node AS known (job_key, node, started, session_id, handle) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (job_key, node) DO UPDATE
                 SET session_id = excluded.session_id, handle = excluded.handle, ended = NULL, lost = 0
                 WHERE known.session_id = excluded.session_id AND known.handle < excluded.handle
                     OR known.session_id IS NOT excluded.session_id AND coalesce(
                         (SELECT session.started FROM session WHERE session.session_id = known.session_id), 0) <= ?6",
        )?
        .execute(params![
            key,
            job.node().as_str(),
            ns(said.started_us),
            job.session.id.to_string(),
            job.handle.0,
            ns(job.session.descriptor.started_us),
        ])?;
    connection
        .prepare_cached(
            "UPDATE job SET started = min(started, ?2), ended = CASE WHEN ?3 THEN NULL ELSE ended END,
                 owner_uid = coalesce(owner_uid, ?4), owner = coalesce(owner, ?5) WHERE job_key = ?1",
        )?
        .execute(params![
            key,
            ns(said.started_us),
            joined > 0,
            said.owner_uid,
            said.owner.as_ref().map(Identifier::as_str),
        ])?;
    Ok(())
}

/// Ends jobs on the nodes of `ends`, unless a later handle follows them there; and as a whole where no node is left.
pub(super) fn end_jobs(connection: &Connection, ends: &[JobEnd<'_>]) -> rusqlite::Result<()> {
    let mut update = connection.prepare_cached(
        "UPDATE job_node SET ended = max(coalesce(ended, ?5), ?5), lost = 0
         WHERE job_key = ?1 AND node = ?2 AND (session_id = ?3 AND handle = ?4 OR session_id IS NULL)",
    )?;
    for end in ends {
        let (node, session) = (end.job.node().as_str(), end.job.session.id.to_string());
        update.execute(params![end.key, node, session, end.job.handle.0, ns(end.at_us)])?;
        end_whole_job(connection, end.key)?;
    }
    Ok(())
}

/// Ends the job if it runs on no node any more.
pub(super) fn end_whole_job(connection: &Connection, key: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "UPDATE job SET ended = (SELECT max(ended) FROM job_node WHERE job_node.job_key = job.job_key)
             WHERE job_key = ?1 AND NOT EXISTS (SELECT 1 FROM job_node WHERE job_node.job_key = ?1 AND ended IS NULL)",
        )?
        .execute([key])?;
    Ok(())
}
