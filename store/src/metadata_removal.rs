//! The removal of metadata: series, ledger lines, changes of plan, marks and losses of a time of which retention left no row at
//! any level. Jobs themselves stay, and ids are never used again.
//!
//! As long as summaries of an hour are kept for ever, nothing is removed here.

use tracing::info;

use crate::StoreError;
use crate::backend::{Connection, Task};
use crate::error::{Context, DatabaseError};
use crate::node_records::NodeRecords;
use crate::removal::{Progress, progress};
use crate::retention::Level;
use crate::stop::Stop;
use crate::value::Value;

/// Removes what no row refers to.
pub(crate) const REMOVE: Task = Task { name: "remove metadata of old jobs", rounds: 60, run: remove };

const ACTION: &str = "remove metadata of old jobs";

/// The number of blocks of series that one transaction examines.
const STEP_BLOCKS: u32 = 500;

/// The time by which rows of a job may lie after its end, in microseconds.
const MARGIN_US: i64 = 3600 * 1_000_000;

/// The number of sessions that one transaction examines.
const STEP_SESSIONS: u32 = 1000;

/// The condition that a ledger line is of a session that has ended: an open one may count in it.
const IS_OF_ENDED_SESSION: &str = "NOT EXISTS (SELECT 1 FROM session WHERE session.session_key = ledger_line.session_key AND ended IS NULL)";

/// Returns the blocks after `$1` of jobs that ended before `$2`, and of nodes that no agent has sent for since. An OFFSET makes
/// PostgreSQL look for the rows of each block, in place of all rows once.
const BLOCKS: &str = "SELECT first_id, next_block.job_key, next_block.node,
         CASE WHEN next_block.job_key IS NULL
             THEN NOT EXISTS (SELECT 1 FROM session WHERE session.node = next_block.node AND (ended IS NULL OR last_seen >= $2) LIMIT 1 OFFSET 0)
                 AND NOT EXISTS (SELECT 1 FROM job_node WHERE job_node.job_key IN (SELECT job_key FROM kept_job)
                                     AND job_node.node = next_block.node LIMIT 1 OFFSET 0)
             ELSE EXISTS (SELECT 1 FROM job WHERE job.job_key = next_block.job_key AND job.ended < $2 LIMIT 1 OFFSET 0)
                 AND NOT EXISTS (SELECT 1 FROM job_node WHERE job_node.job_key = next_block.job_key AND (ended IS NULL OR ended >= $2)
                                 LIMIT 1 OFFSET 0)
                 AND NOT EXISTS (SELECT 1 FROM kept_job WHERE kept_job.job_key = next_block.job_key)
         END
     FROM (SELECT first_id, job_key, node FROM series_block WHERE first_id > $1 ORDER BY first_id LIMIT {limit}) AS next_block";

/// Returns the sessions after `$1` that ended before `$2`, with the answer to whether no series of their jobs is left.
const SESSIONS: &str = "SELECT session_key,
         NOT EXISTS (SELECT 1 FROM ledger_line JOIN series_block ON series_block.job_key = ledger_line.job_key
                     WHERE ledger_line.session_key = next_session.session_key LIMIT 1 OFFSET 0)
     FROM (SELECT session_key FROM session WHERE session_key > $1 AND ended < $2 AND last_seen < $2
           ORDER BY session_key LIMIT {limit}) AS next_session";

/// Removes the metadata before the time up to which every level is gone.
fn remove(connection: &mut dyn Connection, stop: &Stop) -> Result<(), StoreError> {
    let Some(before_us) = gone_before(&progress(connection)?) else { return Ok(()) };
    let before_us = before_us - MARGIN_US;
    let mut last_id = i64::MIN;
    while !stop.is_requested() {
        let Some(next_id) = remove_step(connection, last_id, before_us)? else { break };
        last_id = next_id;
    }
    if stop.is_requested() {
        return Ok(());
    }
    for records in NodeRecords::ALL {
        records.remove(connection, before_us, stop).context(ACTION)?;
    }
    remove_sessions(connection, before_us, stop).context(ACTION)?;
    remove_lists(connection).context(ACTION)
}

/// Returns the time before which no row of any level is left; none if there is no such time.
fn gone_before(levels: &[Progress]) -> Option<i64> {
    let gone = Level::ALL.map(|level| {
        let Progress { dropped_us, complete_us, .. } = levels.iter().find(|of| of.level == level)?;
        dropped_us.zip(*complete_us).map(|(dropped_us, complete_us)| dropped_us.min(complete_us))
    });
    gone.into_iter().collect::<Option<Vec<_>>>()?.into_iter().min()
}

/// Removes the metadata of the jobs and nodes of the next blocks. Returns the last block that was examined; none at the end.
fn remove_step(
    connection: &mut dyn Connection,
    last_id: i64,
    before_us: i64,
) -> Result<Option<i64>, StoreError> {
    let select = BLOCKS.replace("{limit}", &STEP_BLOCKS.to_string());
    let parameters = [last_id.into(), Value::Time(before_us)];
    // A node that sends again after this decision must find its series: SQLite excludes its writer until the commit, in
    // PostgreSQL only milliseconds are left.
    connection.begin().context(ACTION)?;
    let blocks = connection.query(&select, &parameters).context(ACTION)?;
    let mut next_id = None;
    let (mut ids, mut jobs, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
    for mut block in blocks {
        let (id, job_key, node) = (block.integer(), block.optional_integer(), block.text());
        next_id = Some(id);
        if !block.boolean() {
            continue;
        }
        ids.push(id);
        match job_key {
            Some(key) => jobs.push(key),
            None => nodes.push(node),
        }
    }
    if ids.is_empty() {
        connection.commit().context(ACTION)?;
        return Ok(next_id);
    }
    jobs.dedup();
    remove_of(connection, &ids, &jobs, &nodes, before_us).context(ACTION)?;
    info!("removed {} blocks of series of {} jobs and {} nodes", ids.len(), jobs.len(), nodes.len());
    Ok(next_id)
}

/// Removes blocks of series, and what is recorded about their jobs and nodes, and commits the transaction.
fn remove_of(
    connection: &mut dyn Connection,
    blocks: &[i64],
    jobs: &[i64],
    nodes: &[String],
    before_us: i64,
) -> Result<(), DatabaseError> {
    let is_one_of = connection.dialect().is_one_of;
    connection.execute(&format!("DELETE FROM series_block WHERE first_id {}", is_one_of(blocks)), &[])?;
    if !jobs.is_empty() {
        let lines =
            format!("DELETE FROM ledger_line WHERE job_key {} AND {IS_OF_ENDED_SESSION}", is_one_of(jobs));
        connection.execute(&lines, &[])?;
        for table in ["plan_change_event", "mark", "loss"] {
            let delete = format!("DELETE FROM {table} WHERE job_key {}", is_one_of(jobs));
            connection.execute(&delete, &[])?;
        }
    }
    for node in nodes {
        for table in ["plan_change_event", "loss"] {
            let delete = format!("DELETE FROM {table} WHERE node = $1 AND time < $2 AND job_key IS NULL");
            connection.execute(&delete, &[node.as_str().into(), Value::Time(before_us)])?;
        }
    }
    connection.commit()
}

/// Removes the sessions that ended before `before_us`, with their ledger lines, except for those of jobs whose series are left.
fn remove_sessions(
    connection: &mut dyn Connection,
    before_us: i64,
    stop: &Stop,
) -> Result<(), DatabaseError> {
    let select = SESSIONS.replace("{limit}", &STEP_SESSIONS.to_string());
    let mut last_key = i64::MIN;
    while !stop.is_requested() {
        connection.begin()?;
        let mut sessions = connection.query(&select, &[last_key.into(), Value::Time(before_us)])?;
        let sessions: Vec<_> = sessions.iter_mut().map(|row| (row.integer(), row.boolean())).collect();
        let is_old = sessions.iter().filter(|(_, is_old)| *is_old).map(|(key, _)| *key).collect::<Vec<_>>();
        if !is_old.is_empty() {
            let is_old = (connection.dialect().is_one_of)(&is_old);
            // A session that sends again meanwhile is open, and stays.
            connection.execute(
                &format!("DELETE FROM ledger_line WHERE session_key {is_old} AND {IS_OF_ENDED_SESSION}"),
                &[],
            )?;
            connection.execute(
                &format!("DELETE FROM session WHERE session_key {is_old} AND ended IS NOT NULL"),
                &[],
            )?;
        }
        connection.commit()?;
        let Some((key, _)) = sessions.last() else { break };
        last_key = *key;
    }
    Ok(())
}

/// Removes the lists that no row refers to. A list to which a writer refers at this moment makes the statement fail: it is
/// tried again by the next round.
fn remove_lists(connection: &mut dyn Connection) -> Result<(), DatabaseError> {
    for (table, member, id, user) in [
        ("series_shape", "series_shape_member", "shape_id", "series_block"),
        ("plan_change_set", "plan_change_set_member", "set_id", "plan_change_event"),
    ] {
        let without = |of: &str, other: &str| {
            format!(
                "DELETE FROM {of} WHERE NOT EXISTS (SELECT 1 FROM {other} WHERE {other}.{id} = {of}.{id})"
            )
        };
        connection.begin()?;
        // A writer may begin to use a list at any moment: its members go after the list itself is gone.
        connection.execute(&without(table, user), &[])?;
        connection.execute(&without(member, table), &[])?;
        connection.commit()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_gone_with_the_last_level() {
        let gone = |times: [(Option<i64>, Option<i64>); 4]| {
            let progress = |(level, (dropped_us, complete_us))| Progress { level, dropped_us, complete_us };
            gone_before(&Level::ALL.into_iter().zip(times).map(progress).collect::<Vec<_>>())
        };
        let same = |time| (Some(time), Some(time));
        assert_eq!(gone([same(9), same(8), same(7), (None, None)]), None);
        assert_eq!(gone([same(9), same(8), same(7), same(3)]), Some(3));
        // A removal that was interrupted, and chunks that are longer than a day.
        assert_eq!(gone([(Some(9), None), same(8), same(7), same(3)]), None);
        assert_eq!(gone([(Some(9), Some(2)), same(8), same(7), (Some(3), Some(5))]), Some(2));
        assert_eq!(gone_before(&[]), None);
    }
}
