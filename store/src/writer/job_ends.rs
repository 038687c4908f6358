//! Ends of jobs, on each node and as a whole.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use crate::accepted::{Accepted, JobRecord};
use crate::backend::Connection;
use crate::error::DatabaseError;
use crate::job_end_queue::{self, EndQueue};
use crate::job_usage;
use crate::value::{Batch, Column, ColumnType, Value};

#[derive(Debug)]
pub(super) struct JobEnd<'a> {
    pub(super) key: i64,
    pub(super) job: &'a Arc<JobRecord>,
    /// Microseconds since the epoch.
    pub(super) at_us: i64,
}

const KEY: [Column; 1] = [("job_key", ColumnType::Integer)];

const START: [Column; 3] =
    [("job_key", ColumnType::Integer), ("node", ColumnType::Text), ("started", ColumnType::Time)];

const END: [Column; 5] = [
    ("job_key", ColumnType::Integer),
    ("node", ColumnType::Text),
    ("session_id", ColumnType::Text),
    ("handle", ColumnType::Integer),
    ("ended", ColumnType::Time),
];

/// Jobs on nodes whose session ended before the time `$1`.
const LOST: &str = "FROM job_node JOIN session ON session.session_id = job_node.session_id
    WHERE job_node.ended IS NULL AND session.ended IS NOT NULL AND session.last_seen < $1";

/// Returns the ends in `frames` of jobs that have keys.
pub(super) fn of_frames<'a>(frames: &[&'a Accepted]) -> Vec<JobEnd<'a>> {
    let ends = frames.iter().flat_map(|frame| &frame.job_ends);
    ends.filter_map(|(job, at_us)| Some(JobEnd { key: job.key.get()?, job, at_us: *at_us })).collect()
}

/// Locks the rows of all jobs that `frames` change, in a fixed order, since several nodes report the same job
/// concurrently.
pub(super) fn lock_jobs(connection: &mut dyn Connection, frames: &[&Accepted]) -> Result<(), DatabaseError> {
    let ended = frames.iter().flat_map(|frame| frame.job_ends.iter().map(|(job, _)| job));
    let described = frames.iter().flat_map(|frame| frame.job_facts.iter().map(|(job, _)| job));
    let detailed = frames.iter().flat_map(|frame| frame.job_details.iter().map(|(job, _)| job));
    let owned = frames.iter().flat_map(|frame| frame.job_owners.iter().map(|(job, _)| job));
    let earlier = frames.iter().flat_map(|frame| frame.job_starts.iter().map(|(job, _)| job));
    let keys =
        ended.chain(described).chain(detailed).chain(owned).chain(earlier).filter_map(|job| job.key.get());
    lock(connection, keys.collect())
}

/// Locks the rows of jobs, in the order of their keys.
pub(super) fn lock(connection: &mut dyn Connection, keys: Vec<i64>) -> Result<(), DatabaseError> {
    if keys.is_empty() || connection.dialect().for_update.is_empty() {
        return Ok(());
    }
    connection.query_batch(
        "SELECT job_key FROM job WHERE job_key IN (SELECT job_key FROM {new}) ORDER BY job_key{for_update}",
        &batch(keys),
    )?;
    Ok(())
}

fn batch(keys: Vec<i64>) -> Batch<'static> {
    Batch::new(&KEY, keys.into_iter().map(|key| [key.into()]))
}

/// Ends the earlier runs of `jobs` on their nodes, which the same sessions followed under earlier handles:
/// agents begin a job anew only after its end. The time of the end is unknown until it arrives.
pub(super) fn end_earlier_runs(
    connection: &mut dyn Connection,
    jobs: &Batch<'_>,
    queue: EndQueue,
) -> Result<(), DatabaseError> {
    const EARLIER: &str = "job_node.session_id = new.session_id AND job_node.node = new.node
         AND job_node.handle < new.handle AND job_node.ended IS NULL AND job_node.started <> new.started
         AND job_node.job_key IN (SELECT job.job_key FROM job WHERE job.job_id = new.job_id)";
    let select = format!("SELECT DISTINCT job_node.job_key FROM {{new}} JOIN job_node ON {EARLIER}");
    let keys: Vec<i64> = connection.select_batch(&select, jobs)?;
    if keys.is_empty() {
        return Ok(());
    }
    lock(connection, keys.clone())?;
    let update = format!(
        "UPDATE job_node SET ended = greatest(job_node.started, new.started), lost = true FROM {{new}} WHERE {EARLIER}"
    );
    connection.execute_batch(&update, jobs)?;
    end_whole_jobs(connection, keys, queue)
}

/// Ends jobs on the nodes of `ends`, unless a later handle tracks them there. Of several ends of a handle the
/// first counts. A job without running nodes ends as a whole.
pub(super) fn end_jobs(
    connection: &mut dyn Connection,
    ends: &[JobEnd<'_>],
    queue: EndQueue,
) -> Result<(), DatabaseError> {
    if ends.is_empty() {
        return Ok(());
    }
    let keys: Vec<_> = ends.iter().map(|end| end.key).collect();
    lock(connection, keys.clone())?;
    let mut known = HashSet::new();
    let firsts = ends.iter().filter(|end| known.insert((end.key, end.job.session.id, end.job.handle)));
    let batch = Batch::new(
        &END,
        firsts.map(|end| {
            [
                end.key.into(),
                end.job.node().as_str().to_owned().into(),
                end.job.session.id.to_string().into(),
                end.job.handle.0.into(),
                Value::time(end.at_us),
            ]
        }),
    );
    connection.execute_batch(
        "UPDATE job_node SET ended = new.ended, lost = false FROM {new}
         WHERE job_node.job_key = new.job_key AND job_node.node = new.node
             AND (job_node.ended IS NULL OR job_node.lost)
             AND (job_node.session_id = new.session_id AND job_node.handle = new.handle OR job_node.session_id IS NULL)",
        &batch,
    )?;
    end_whole_jobs(connection, keys, queue)
}

/// Moves the starts of jobs to earlier samples.
pub(super) fn move_starts(
    connection: &mut dyn Connection,
    frames: &[&Accepted],
) -> Result<(), DatabaseError> {
    let (mut on_node, mut whole) = (BTreeMap::new(), BTreeMap::new());
    for (job, at_us) in frames.iter().flat_map(|frame| &frame.job_starts) {
        let Some(key) = job.key.get() else { continue };
        let node = on_node.entry((key, job.node().as_str())).or_insert(*at_us);
        *node = (*node).min(*at_us);
        let all = whole.entry(key).or_insert(*at_us);
        *all = (*all).min(*at_us);
    }
    if whole.is_empty() {
        return Ok(());
    }
    let rows = on_node.into_iter().map(|((key, node), at_us)| [key.into(), node.into(), Value::time(at_us)]);
    connection.execute_batch(
        "UPDATE job_node SET started = least(job_node.started, new.started) FROM {new}
         WHERE job_node.job_key = new.job_key AND job_node.node = new.node",
        &Batch::new(&START, rows),
    )?;
    let rows = whole.into_iter().map(|(key, at_us)| [key.into(), "".into(), Value::time(at_us)]);
    connection.execute_batch(
        "UPDATE job SET started = least(job.started, new.started) FROM {new} WHERE job.job_key = new.job_key",
        &Batch::new(&START, rows),
    )?;
    Ok(())
}

/// Ends those of the jobs `keys` that no longer run on any node.
fn end_whole_jobs(
    connection: &mut dyn Connection,
    keys: Vec<i64>,
    queue: EndQueue,
) -> Result<(), DatabaseError> {
    let ended = connection.select_batch(
        "UPDATE job SET ended = (SELECT max(job_node.ended) FROM job_node WHERE job_node.job_key = job.job_key)
         WHERE job_key IN (SELECT job_key FROM {new})
             AND NOT EXISTS (SELECT 1 FROM job_node WHERE job_node.job_key = job.job_key AND job_node.ended IS NULL)
             AND job.ended IS DISTINCT FROM (SELECT max(job_node.ended) FROM job_node WHERE job_node.job_key = job.job_key)
         RETURNING job_key",
        &batch(keys),
    )?;
    job_usage::add(connection, ended.clone())?;
    if queue == EndQueue::Off {
        return Ok(());
    }
    job_end_queue::add(connection, ended)
}

/// Ends jobs whose agents were lost before `cutoff`, at the time of their last message. Returns their keys.
pub(super) fn end_lost_jobs(
    connection: &mut dyn Connection,
    cutoff: &Value<'_>,
    queue: EndQueue,
) -> Result<Vec<i64>, DatabaseError> {
    let select = format!("SELECT DISTINCT job_node.job_key {LOST}");
    let keys: Vec<i64> = connection.select(&select, std::slice::from_ref(cutoff))?;
    if keys.is_empty() {
        return Ok(keys);
    }
    lock(connection, keys.clone())?;
    let update = format!(
        "UPDATE job_node AS its SET lost = true, ended = greatest(its.started, (
             SELECT max(coalesce(session.last_sample, session.last_seen)) FROM session
             WHERE session.session_id = its.session_id))
         WHERE its.ended IS NULL AND (its.job_key, its.node) IN (SELECT job_node.job_key, job_node.node {LOST})"
    );
    connection.execute(&update, std::slice::from_ref(cutoff))?;
    end_whole_jobs(connection, keys.clone(), queue)?;
    Ok(keys)
}
