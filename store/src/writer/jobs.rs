//! The keys, owners and facts of jobs, and the nodes on which they run.

use std::sync::Arc;

use polymeter_proto::series::Identifier;

use super::found::not_inserted;
use super::job_ends;
use super::progress::distinct;
use super::transaction::transaction;
use crate::accepted::{Accepted, JobOutcome, JobRecord};
use crate::backend::Connection;
use crate::error::DatabaseError;
use crate::limits::RESUME_LOST_JOB;
use crate::value::Value;

/// Assigns keys to the jobs of `frames` that have none.
pub(super) fn assign_keys(connection: &mut dyn Connection, frames: &[Accepted]) -> Result<(), DatabaseError> {
    let jobs = without_key(frames);
    if jobs.is_empty() {
        return Ok(());
    }
    let keys = transaction(connection, |connection| {
        // No unique index can detect that two jobs are the same.
        connection.lock_job_keys()?;
        let mut keys = Vec::with_capacity(jobs.len());
        for job in &jobs {
            // A predecessor ended before, in whichever transaction its end is stored.
            job_ends::end_jobs(connection, &job_ends::of_predecessors(job, &jobs, &keys, frames))?;
            let key = match find(connection, job)? {
                Some(key) => key,
                None => insert(connection, job)?,
            };
            join_node(connection, job, key)?;
            keys.push(key);
        }
        Ok(keys)
    })?;
    for (job, key) in jobs.iter().zip(keys) {
        job.key.get_or_init(|| key);
    }
    Ok(())
}

/// Returns the jobs of `frames` without a key, without duplicates, in an order that is the same for all
/// connections.
fn without_key(frames: &[Accepted]) -> Vec<Arc<JobRecord>> {
    let mut jobs = distinct(frames.iter().flat_map(Accepted::jobs).filter(|job| job.key.get().is_none()));
    jobs.sort_by_key(|job| {
        let name = (job.descriptor.cluster.clone(), job.descriptor.job_id.clone());
        (name, job.node().clone(), job.session.descriptor.started_us, job.handle)
    });
    jobs
}

/// Returns the key of the job's row: the one that this handle already uses, else the one that this node began
/// at that time, else the one of the same owner that still runs, ran when this node began, or lost only its
/// agent.
fn find(connection: &mut dyn Connection, job: &JobRecord) -> Result<Option<i64>, DatabaseError> {
    let session = job.session.id.to_string();
    let handle: Value<'_> = job.handle.0.into();
    let with_rows = connection.query(
        "SELECT job_key FROM ledger
         WHERE session_id = $1 AND coalesce(handle, -1) = $2 AND job_key IS NOT NULL LIMIT 1",
        &[session.as_str().into(), handle.clone()],
    )?;
    if let Some(mut row) = with_rows.into_iter().next() {
        return Ok(row.optional_integer());
    }
    let descriptor = &job.descriptor;
    let resume_us = i64::try_from(RESUME_LOST_JOB.as_micros()).unwrap_or(i64::MAX);
    let rows = connection.query(
        "SELECT job.job_key FROM job LEFT JOIN job_node AS mine ON mine.job_key = job.job_key AND mine.node = $3
         WHERE job_id = $1 AND cluster IS NOT DISTINCT FROM $2
             AND CASE WHEN owner_uid IS NULL OR CAST($5 AS bigint) IS NULL
                      THEN owner IS NULL OR CAST($6 AS text) IS NULL OR owner = CAST($6 AS text)
                      ELSE owner_uid = CAST($5 AS bigint) END
             AND (mine.started = $4 OR job.ended IS NULL OR job.ended >= $4
                  OR job.ended >= $7
                     AND EXISTS (SELECT 1 FROM job_node AS other WHERE other.job_key = job.job_key AND other.lost))
         ORDER BY coalesce(mine.session_id = $8 AND mine.handle = $9, false) DESC,
             coalesce(mine.started = $4, false) DESC, job.started DESC LIMIT 1",
        &[
            descriptor.job_id.as_str().into(),
            descriptor.cluster.as_ref().map(Identifier::as_str).into(),
            job.node().as_str().into(),
            Value::time(descriptor.started_us),
            descriptor.owner_uid.into(),
            descriptor.owner.as_ref().map(Identifier::as_str).into(),
            Value::time(descriptor.started_us.saturating_sub(resume_us)),
            session.as_str().into(),
            handle,
        ],
    )?;
    Ok(rows.into_iter().next().and_then(|mut row| row.optional_integer()))
}

fn insert(connection: &mut dyn Connection, job: &JobRecord) -> Result<i64, DatabaseError> {
    let descriptor = &job.descriptor;
    let rows = connection.query(
        "INSERT INTO job (job_id, cluster, owner, owner_uid, started) VALUES ($1, $2, $3, $4, $5) RETURNING job_key",
        &[
            descriptor.job_id.as_str().into(),
            descriptor.cluster.as_ref().map(Identifier::as_str).into(),
            descriptor.owner.as_ref().map(Identifier::as_str).into(),
            descriptor.owner_uid.into(),
            Value::time(descriptor.started_us),
        ],
    )?;
    rows.into_iter().next().and_then(|mut row| row.optional_integer()).ok_or_else(|| not_inserted("job"))
}

/// Records that the job runs on this node under this handle of this session, unless a later handle is known.
fn join_node(connection: &mut dyn Connection, job: &JobRecord, key: i64) -> Result<(), DatabaseError> {
    let descriptor = &job.descriptor;
    let joined = connection.execute(
        "INSERT INTO job_node AS known (job_key, node, started, session_id, handle) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (job_key, node) DO UPDATE
             SET session_id = excluded.session_id, handle = excluded.handle, ended = NULL, lost = false
             WHERE known.session_id = excluded.session_id AND known.handle < excluded.handle
                 OR known.session_id IS DISTINCT FROM excluded.session_id AND NOT EXISTS (
                     SELECT 1 FROM session WHERE session.session_id = known.session_id AND session.started > $6)",
        &[
            key.into(),
            job.node().as_str().into(),
            Value::time(descriptor.started_us),
            job.session.id.to_string().into(),
            job.handle.0.into(),
            Value::time(job.session.descriptor.started_us),
        ],
    )?;
    connection.execute(
        "UPDATE job SET started = least(started, $2), ended = CASE WHEN $3 THEN NULL ELSE ended END,
             owner_uid = coalesce(owner_uid, CAST($4 AS bigint)), owner = coalesce(owner, CAST($5 AS text))
         WHERE job_key = $1 AND (started > $2 OR $3 AND ended IS NOT NULL
             OR owner_uid IS NULL AND CAST($4 AS bigint) IS NOT NULL OR owner IS NULL AND CAST($5 AS text) IS NOT NULL)",
        &[
            key.into(),
            Value::time(descriptor.started_us),
            (joined > 0).into(),
            descriptor.owner_uid.into(),
            descriptor.owner.as_ref().map(Identifier::as_str).into(),
        ],
    )?;
    Ok(())
}

/// Stores facts that schedulers reported.
pub(super) fn store_facts(
    connection: &mut dyn Connection,
    frames: &[&Accepted],
) -> Result<(), DatabaseError> {
    for (job, facts) in frames.iter().flat_map(|frame| &frame.job_facts) {
        let text = |name: &Option<Identifier>| Value::from(name.as_ref().map(ToString::to_string));
        connection.execute(
            "UPDATE job SET account = coalesce($2, account), queue = coalesce($3, queue), nodes = coalesce($4, nodes),
                 cores = coalesce($5, cores), state = coalesce($6, state),
                 -- The exit status that came with a state is final: an epilog that knows no state does not change it.
                 exit_code = CASE WHEN CAST($6 AS text) IS NULL AND state IS NOT NULL THEN exit_code
                                  ELSE coalesce($7, exit_code) END,
                 exit_signal = CASE WHEN CAST($6 AS text) IS NULL AND state IS NOT NULL THEN exit_signal
                                    ELSE coalesce($8, exit_signal) END
             WHERE job_key = $1",
            &[
                job.key.get().copied().into(),
                text(&facts.account),
                text(&facts.queue),
                text(&facts.nodes),
                facts.cores.into(),
                text(&facts.state),
                facts.exit_code.into(),
                facts.exit_signal.into(),
            ],
        )?;
    }
    Ok(())
}

/// Stores owners that became known later. A known owner is never replaced: if two nodes disagree, the first
/// one counts.
pub(super) fn store_owners(
    connection: &mut dyn Connection,
    frames: &[&Accepted],
) -> Result<(), DatabaseError> {
    for (job, owner) in frames.iter().flat_map(|frame| &frame.job_owners) {
        connection.execute(
            "UPDATE job SET owner = coalesce(owner, $2), owner_uid = coalesce(owner_uid, $3) WHERE job_key = $1",
            &[
                job.key.get().copied().into(),
                owner.name.as_ref().map(|name| name.as_str()).into(),
                owner.uid.into(),
            ],
        )?;
    }
    Ok(())
}

/// Stores the outcome of the newest job of that id. Returns false if there is none.
pub(super) fn store_outcome(
    connection: &mut dyn Connection,
    outcome: &JobOutcome,
) -> Result<bool, DatabaseError> {
    let JobOutcome { job_id, cluster, facts } = outcome;
    let rows = connection.execute(
        "UPDATE job SET state = $3, exit_code = coalesce($4, exit_code), exit_signal = coalesce($5, exit_signal)
         WHERE job_key = (SELECT job_key FROM job
                          WHERE job_id = $1 AND (CAST($2 AS text) IS NULL OR cluster IS NULL OR cluster = CAST($2 AS text))
                          ORDER BY started DESC, job_key DESC LIMIT 1)",
        &[
            job_id.as_str().into(),
            cluster.as_ref().map(|cluster| cluster.as_str()).into(),
            facts.state.as_ref().map(|state| state.as_str()).into(),
            facts.exit_code.into(),
            facts.exit_signal.into(),
        ],
    )?;
    Ok(rows > 0)
}
