//! Keys, owners and facts of jobs, and the nodes on which they run.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use polymeter_proto::series::{Identifier, JobDescriptor, SessionId};

use super::facts::{integer, run, text};
use super::found::not_inserted;
use super::job_ends;
use super::progress::distinct;
use super::rounds::rounds;
use super::transaction::transaction;
use crate::accepted::{Accepted, JobOutcome, JobRecord, StoredOutcome};
use crate::backend::Connection;
use crate::error::DatabaseError;
use crate::job_end_queue::EndQueue;
use crate::limits::RESUME_LOST_JOB;
use crate::row::Row;
use crate::value::{Batch, Column, ColumnType, Value};

const JOB: [Column; 10] = [
    ("position", ColumnType::Integer),
    ("session_id", ColumnType::Text),
    ("handle", ColumnType::Integer),
    ("job_id", ColumnType::Text),
    ("cluster", ColumnType::Text),
    ("node", ColumnType::Text),
    ("started", ColumnType::Time),
    ("resumable", ColumnType::Time),
    ("owner_uid", ColumnType::Integer),
    ("owner", ColumnType::Text),
];

const KNOWN: [Column; 5] = [
    ("key", ColumnType::Integer),
    ("started", ColumnType::Time),
    ("is_joined", ColumnType::Bool),
    ("owner_uid", ColumnType::Integer),
    ("owner", ColumnType::Text),
];

const JOB_NODE: [Column; 6] = [
    ("key", ColumnType::Integer),
    ("node", ColumnType::Text),
    ("started", ColumnType::Time),
    ("session_id", ColumnType::Text),
    ("handle", ColumnType::Integer),
    ("session_started", ColumnType::Time),
];

const OWNER: [Column; 3] =
    [("key", ColumnType::Integer), ("owner", ColumnType::Text), ("owner_uid", ColumnType::Integer)];

struct Keyed<'a> {
    job: &'a Arc<JobRecord>,
    key: i64,
    is_new: bool,
}

/// Assigns keys to the jobs of `frames` that have none. Returns the keys of those that the store did not have
/// before: it has neither series nor ledger lines of them.
pub(super) fn assign_keys(
    connection: &mut dyn Connection,
    frames: &[Accepted],
    queue: EndQueue,
) -> Result<HashSet<i64>, DatabaseError> {
    let jobs = without_key(frames);
    if jobs.is_empty() {
        return Ok(HashSet::new());
    }
    let keyed = transaction(connection, |connection| {
        // No unique index can detect that two jobs are the same.
        connection.lock_job_keys()?;
        let mut keyed: Vec<Keyed<'_>> = Vec::with_capacity(jobs.len());
        // The jobs of one id depend on each other: a node's previous job, or the same job on another node.
        for round in rounds(&jobs, |job| job.descriptor.job_id.clone()) {
            job_ends::end_earlier_runs(connection, &batch(&round), queue)?;
            let of_round = find_or_insert(connection, &round)?;
            join_nodes(connection, &of_round)?;
            keyed.extend(of_round);
        }
        Ok(keyed)
    })?;
    for Keyed { job, key, .. } in &keyed {
        job.key.assign(*key);
    }
    Ok(keyed.iter().filter(|keyed| keyed.is_new).map(|keyed| keyed.key).collect())
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

/// Returns the rows of `jobs`, whose ids differ, and inserts those that are missing.
fn find_or_insert<'a>(
    connection: &mut dyn Connection,
    jobs: &[&'a Arc<JobRecord>],
) -> Result<Vec<Keyed<'a>>, DatabaseError> {
    let found = find(connection, jobs)?;
    let missing: Vec<_> =
        jobs.iter().zip(&found).filter(|(_, key)| key.is_none()).map(|(job, _)| *job).collect();
    let mut inserted = insert(connection, &missing)?;
    let mut keyed = Vec::new();
    for (job, found) in jobs.iter().zip(found) {
        let key = match found {
            Some(key) => key,
            None => inserted.remove(job.descriptor.job_id.as_str()).ok_or_else(|| not_inserted("job"))?,
        };
        keyed.push(Keyed { job, key, is_new: found.is_none() });
    }
    Ok(keyed)
}

/// Returns the key of each job's row: the one that this handle already uses, else the one that this node
/// began at that time, else the one of the same owner that still runs, ran when this node began, or lost only
/// its agent. Of several runs the one that began at the nearest time counts: frames may come late from a
/// spool. Two handles of a session are two runs, unless another node ran the job meanwhile. An agent that
/// started again, and found the job without its scheduler's scripts, does not know the cluster.
fn find(
    connection: &mut dyn Connection,
    jobs: &[&Arc<JobRecord>],
) -> Result<Vec<Option<i64>>, DatabaseError> {
    // Each job is looked up in the indexes: a planner could otherwise read and hash all jobs of the store.
    let found: Vec<(usize, Option<i64>)> = connection.select_batch(
        "SELECT new.position, coalesce((
             SELECT ledger_line.job_key FROM session
             JOIN ledger_line ON ledger_line.session_key = session.session_key
             WHERE session.session_id = new.session_id AND coalesce(ledger_line.handle, -1) = new.handle
                 AND ledger_line.job_key IS NOT NULL LIMIT 1
         ), (
             SELECT job.job_key FROM job
             LEFT JOIN job_node AS mine ON mine.job_key = job.job_key AND mine.node = new.node
             WHERE job.job_id = new.job_id
                 AND (job.cluster IS NOT DISTINCT FROM new.cluster OR new.cluster IS NULL AND mine.node IS NOT NULL)
                 AND CASE WHEN job.owner_uid IS NULL OR new.owner_uid IS NULL
                          THEN job.owner IS NULL OR new.owner IS NULL OR job.owner = new.owner
                          ELSE job.owner_uid = new.owner_uid END
                 AND (mine.started = new.started
                      OR CASE WHEN mine.session_id = new.session_id AND mine.handle <> new.handle
                              THEN EXISTS (SELECT 1 FROM job_node AS other
                                           WHERE other.job_key = job.job_key AND other.node <> new.node
                                               AND (other.started <= new.started OR mine.handle < new.handle)
                                               AND (other.ended IS NULL OR other.ended >= new.started))
                              ELSE job.ended IS NULL OR job.ended >= new.started OR job.ended >= new.resumable
                                   AND EXISTS (SELECT 1 FROM job_node AS other
                                               WHERE other.job_key = job.job_key AND other.lost) END)
             ORDER BY coalesce(mine.session_id = new.session_id AND mine.handle = new.handle, false) DESC,
                 coalesce(mine.started = new.started, false) DESC,
                 greatest(job.started, new.started) - least(job.started, new.started), job.started DESC LIMIT 1
         )) FROM {new}",
        &batch(jobs),
    )?;
    let mut keys = vec![None; jobs.len()];
    for (position, found) in found {
        if let Some(key) = keys.get_mut(position) {
            *key = found;
        }
    }
    Ok(keys)
}

/// Returns the key of a job; none if the store does not have it.
pub(super) fn stored_key(
    connection: &mut dyn Connection,
    job: &Arc<JobRecord>,
) -> Result<Option<i64>, DatabaseError> {
    match job.key.get() {
        None => Ok(find(connection, &[job])?.into_iter().next().flatten()),
        key => Ok(key),
    }
}

fn batch<'a>(jobs: &[&'a Arc<JobRecord>]) -> Batch<'a> {
    let resume_us = i64::try_from(RESUME_LOST_JOB.as_micros()).unwrap_or(i64::MAX);
    Batch::new(
        &JOB,
        (0..).zip(jobs).map(|(position, job): (i64, &&'a Arc<JobRecord>)| {
            let descriptor = &job.descriptor;
            [
                position.into(),
                job.session.id.to_string().into(),
                job.handle.0.into(),
                descriptor.job_id.as_str().into(),
                descriptor.cluster.as_ref().map(Identifier::as_str).into(),
                job.node().as_str().into(),
                Value::time(descriptor.started_us),
                Value::time(descriptor.started_us.saturating_sub(resume_us)),
                descriptor.owner_uid.into(),
                descriptor.owner.as_ref().map(Identifier::as_str).into(),
            ]
        }),
    )
}

/// Returns true if a frame with a job of this descriptor, in the session `own`, would belong to a job that
/// the store has from another session.
pub(super) fn has_other(
    connection: &mut dyn Connection,
    job: &JobDescriptor,
    own: SessionId,
) -> Result<bool, DatabaseError> {
    let resume_us = i64::try_from(RESUME_LOST_JOB.as_micros()).unwrap_or(i64::MAX);
    let mut rows = connection.query(
        "SELECT count(*) FROM job
         WHERE job_id = $1 AND (cluster IS NOT DISTINCT FROM CAST($2 AS text) OR CAST($2 AS text) IS NULL)
             AND (ended IS NULL OR ended >= $3 OR ended >= $4
                  AND EXISTS (SELECT 1 FROM job_node WHERE job_node.job_key = job.job_key AND lost))
             AND NOT EXISTS (SELECT 1 FROM job_node WHERE job_node.job_key = job.job_key AND session_id = $5)",
        &[
            job.job_id.as_str().into(),
            job.cluster.as_ref().map(Identifier::as_str).into(),
            Value::time(job.started_us),
            Value::time(job.started_us.saturating_sub(resume_us)),
            own.to_string().into(),
        ],
    )?;
    let count: i64 = rows.first_mut().map_or(Ok(0), Row::get)?;
    Ok(count > 0)
}

/// Inserts rows of `jobs`, and returns their keys by job id.
fn insert(
    connection: &mut dyn Connection,
    jobs: &[&Arc<JobRecord>],
) -> Result<HashMap<String, i64>, DatabaseError> {
    if jobs.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = connection.select_batch(
        "INSERT INTO job (job_id, cluster, owner, owner_uid, started)
         SELECT job_id, cluster, owner, owner_uid, started FROM {new} RETURNING job_id, job_key",
        &batch(jobs),
    )?;
    Ok(rows.into_iter().collect())
}

/// Records that the jobs run on their nodes under their handles of their sessions, unless a later handle is
/// known.
fn join_nodes(connection: &mut dyn Connection, keyed: &[Keyed<'_>]) -> Result<(), DatabaseError> {
    let rows = connection.select_batch(
        "INSERT INTO job_node (job_key, node, started, session_id, handle)
         SELECT key, node, started, session_id, handle FROM {new} WHERE true
         ON CONFLICT (job_key, node) DO NOTHING RETURNING job_key",
        &job_nodes(keyed.iter()),
    )?;
    let mut joined: HashSet<i64> = rows.into_iter().collect();
    let known = || keyed.iter().filter(|keyed| !keyed.is_new);
    // A row that was just inserted has everything that the job's descriptor has.
    job_ends::lock(connection, known().map(|keyed| keyed.key).collect())?;
    let again = job_nodes(known().filter(|keyed| !joined.contains(&keyed.key)));
    if !again.is_empty() {
        let rows: Vec<i64> = connection.select_batch(
            "UPDATE job_node AS known
             SET session_id = new.session_id, handle = new.handle, ended = NULL, lost = false
             FROM {new} WHERE known.job_key = new.key AND known.node = new.node
                 AND (known.session_id = new.session_id AND known.handle < new.handle
                      OR known.session_id IS DISTINCT FROM new.session_id AND NOT EXISTS (
                          SELECT 1 FROM session
                          WHERE session.session_id = known.session_id AND session.started > new.session_started))
             RETURNING job_key",
            &again,
        )?;
        joined.extend(rows);
    }
    let known = Batch::new(
        &KNOWN,
        known().map(|keyed| {
            let descriptor = &keyed.job.descriptor;
            [
                keyed.key.into(),
                Value::time(descriptor.started_us),
                joined.contains(&keyed.key).into(),
                descriptor.owner_uid.into(),
                descriptor.owner.as_ref().map(|owner| owner.as_str().to_owned()).into(),
            ]
        }),
    );
    if known.is_empty() {
        return Ok(());
    }
    connection.execute_batch(
        "UPDATE job SET started = least(job.started, new.started),
             ended = CASE WHEN new.is_joined THEN NULL ELSE job.ended END,
             owner_uid = coalesce(job.owner_uid, new.owner_uid), owner = coalesce(job.owner, new.owner)
         FROM {new} WHERE job.job_key = new.key
             AND (job.started > new.started OR new.is_joined AND job.ended IS NOT NULL
                  OR job.owner_uid IS NULL AND new.owner_uid IS NOT NULL OR job.owner IS NULL AND new.owner IS NOT NULL)",
        &known,
    )?;
    Ok(())
}

fn job_nodes<'a>(keyed: impl Iterator<Item = &'a Keyed<'a>>) -> Batch<'a> {
    Batch::new(
        &JOB_NODE,
        keyed.map(|keyed| {
            let (job, session) = (keyed.job, &keyed.job.session);
            [
                keyed.key.into(),
                job.node().as_str().into(),
                Value::time(job.descriptor.started_us),
                session.id.to_string().into(),
                job.handle.0.into(),
                Value::time(session.descriptor.started_us),
            ]
        }),
    )
}

/// Stores owners that became known later. A known owner is never replaced: if two nodes disagree, the first
/// one counts.
pub(super) fn store_owners(
    connection: &mut dyn Connection,
    frames: &[&Accepted],
) -> Result<(), DatabaseError> {
    let all = frames.iter().flat_map(|frame| &frame.job_owners);
    let keyed = all.filter_map(|(job, owner)| Some((job.key.get()?, owner)));
    for round in rounds(keyed, |(key, _)| *key) {
        let owners = Batch::new(
            &OWNER,
            round.into_iter().map(|(key, owner)| {
                let name = owner.name.as_ref().map(ToString::to_string);
                [key.into(), name.into(), owner.uid.into()]
            }),
        );
        connection.execute_batch(
            "UPDATE job SET owner = coalesce(job.owner, new.owner), owner_uid = coalesce(job.owner_uid, new.owner_uid)
             FROM {new} WHERE job.job_key = new.key",
            &owners,
        )?;
    }
    Ok(())
}

/// Stores the outcome of the newest job of that id on a cluster.
pub(super) fn store_outcome(
    connection: &mut dyn Connection,
    outcome: &JobOutcome,
) -> Result<StoredOutcome, DatabaseError> {
    let JobOutcome { job_id, cluster, facts, details } = outcome;
    if cluster.is_none() {
        let select =
            "SELECT DISTINCT cluster FROM job WHERE job_id = $1 AND cluster IS NOT NULL ORDER BY cluster";
        let clusters: Vec<String> = connection.select(select, &[job_id.as_str().into()])?;
        if clusters.len() > 1 {
            return Ok(StoredOutcome::SeveralClusters(clusters));
        }
    }
    let rows = connection.execute(
        "UPDATE job SET state = coalesce(CAST($3 AS text), state), exit_code = coalesce($4, exit_code),
             exit_signal = coalesce($5, exit_signal), name = coalesce($6, name), display_id = coalesce($7, display_id),
             time_limit_s = coalesce($8, time_limit_s), memory_bytes = coalesce($9, memory_bytes),
             gpus = coalesce($10, gpus), restarts = coalesce($11, restarts),
             unread = coalesce(CAST($12 AS text), unread), run = coalesce(CAST($13 AS text), run),
             scheduler = coalesce(CAST($14 AS text), scheduler),
             -- What the prologs said is what the job got.
             cores = coalesce(cores, $15)
         WHERE job_key = (SELECT job_key FROM job
                          WHERE job_id = $1 AND (CAST($2 AS text) IS NULL OR cluster IS NULL OR cluster = CAST($2 AS text))
                          ORDER BY started DESC, job_key DESC LIMIT 1)
             -- A job without a final state runs: an earlier job of the same id has ended.
             AND (CAST($3 AS text) IS NOT NULL OR ended IS NULL)",
        &[
            job_id.as_str().into(),
            cluster.as_ref().map(|cluster| cluster.as_str()).into(),
            facts.state.as_ref().map(|state| state.as_str()).into(),
            facts.exit_code.into(),
            facts.exit_signal.into(),
            details.name.as_ref().map(ToString::to_string).into(),
            text(&details.display_id),
            integer(details.time_limit_s),
            integer(details.memory_bytes),
            details.gpus.into(),
            details.restarts.into(),
            facts.unread.as_ref().map(ToString::to_string).into(),
            run(details),
            text(&details.scheduler),
            facts.cores.into(),
        ],
    )?;
    Ok(if rows > 0 { StoredOutcome::Stored } else { StoredOutcome::UnknownJob })
}
