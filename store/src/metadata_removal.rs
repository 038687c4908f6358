//! The removal of metadata: series, ledger lines, changes of plan, marks and losses of which retention left no row at any
//! level. Jobs themselves stay, and ids are never used again.
//!
//! As long as summaries of an hour are kept for ever, nothing is removed here.

use tracing::info;

use crate::StoreError;
use crate::backend::{Connection, Task};
use crate::error::{Context, DatabaseError};
use crate::removal::states;
use crate::retention::{Level, LevelState};
use crate::stop::Stop;
use crate::value::{Row, Value};

/// Removes what no row refers to.
pub(crate) const REMOVE: Task = Task { name: "remove metadata of old jobs", rounds: 60, run: remove };

const ACTION: &str = "remove metadata of old jobs";

/// The number of blocks of series that one transaction examines.
const STEP_BLOCKS: u32 = 500;

/// The time by which rows of a job may lie after its end, in microseconds.
const MARGIN_US: i64 = 3600 * 1_000_000;

/// The number of sessions that one transaction removes.
const STEP_SESSIONS: u32 = 1000;

/// The condition that a ledger line is of a session that has ended: an open one may count in it.
const IS_OF_ENDED_SESSION: &str = "NOT EXISTS (SELECT 1 FROM session WHERE session.session_key = ledger_line.session_key AND ended IS NULL)";

/// Returns the blocks after `$1` of jobs that ended before `$2`, and of nodes that no agent has sent for since.
const BLOCKS: &str = "SELECT first_id, block.job_key, block.node,
         CASE WHEN block.job_key IS NULL
             THEN NOT EXISTS (SELECT 1 FROM session WHERE session.node = block.node AND (ended IS NULL OR last_seen >= $2))
                 AND NOT EXISTS (SELECT 1 FROM kept_job JOIN job_node ON job_node.job_key = kept_job.job_key WHERE job_node.node = block.node)
             ELSE EXISTS (SELECT 1 FROM job WHERE job.job_key = block.job_key AND job.ended < $2)
                 AND NOT EXISTS (SELECT 1 FROM job_node WHERE job_node.job_key = block.job_key AND (ended IS NULL OR ended >= $2))
                 AND NOT EXISTS (SELECT 1 FROM kept_job WHERE kept_job.job_key = block.job_key)
         END
     FROM (SELECT first_id, job_key, node FROM series_block WHERE first_id > $1 ORDER BY first_id LIMIT {limit}) AS block";

/// Removes the metadata before the time up to which every level is gone.
fn remove(connection: &mut dyn Connection, stop: &Stop) -> Result<(), StoreError> {
    let Some(before_us) = gone_before(&states(connection)?) else { return Ok(()) };
    let before_us = before_us - MARGIN_US;
    let mut last_id = i64::MIN;
    while !stop.is_requested() {
        let Some(next_id) = remove_step(connection, last_id, before_us)? else { break };
        last_id = next_id;
    }
    if stop.is_requested() {
        return Ok(());
    }
    remove_sessions(connection, before_us, stop).context(ACTION)?;
    remove_lists(connection).context(ACTION)
}

/// Returns the time before which every level was removed; none if one of them was not.
fn gone_before(states: &[LevelState]) -> Option<i64> {
    let dropped = Level::ALL.map(|level| {
        states.iter().find(|state| state.level == level).and_then(|state| state.dropped_before_us)
    });
    dropped.into_iter().collect::<Option<Vec<_>>>()?.into_iter().min()
}

/// Removes the metadata of the jobs and nodes of the next blocks. Returns the last block that was examined; none at the end.
fn remove_step(
    connection: &mut dyn Connection,
    last_id: i64,
    before_us: i64,
) -> Result<Option<i64>, StoreError> {
    let select = BLOCKS.replace("{limit}", &STEP_BLOCKS.to_string());
    let parameters = [last_id.into(), Value::Time(before_us)];
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
        return Ok(next_id);
    }
    jobs.dedup();
    remove_of(connection, &ids, &jobs, &nodes, before_us).context(ACTION)?;
    info!("removed {} blocks of series of {} jobs and {} nodes", ids.len(), jobs.len(), nodes.len());
    Ok(next_id)
}

/// Removes blocks of series, and what is recorded about their jobs and nodes, in one transaction.
fn remove_of(
    connection: &mut dyn Connection,
    blocks: &[i64],
    jobs: &[i64],
    nodes: &[String],
    before_us: i64,
) -> Result<(), DatabaseError> {
    let is_one_of = connection.dialect().is_one_of;
    connection.begin()?;
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
    let old = format!(
        "SELECT session_key FROM session WHERE ended < $1 AND last_seen < $1
             AND NOT EXISTS (SELECT 1 FROM ledger_line JOIN series_block ON series_block.job_key = ledger_line.job_key
                             WHERE ledger_line.session_key = session.session_key)
         LIMIT {STEP_SESSIONS}"
    );
    while !stop.is_requested() {
        let keys: Vec<i64> =
            connection.query(&old, &[Value::Time(before_us)])?.iter_mut().map(Row::integer).collect();
        if keys.is_empty() {
            break;
        }
        let is_old = (connection.dialect().is_one_of)(&keys);
        connection.begin()?;
        // A session that sends again meanwhile is open, and stays.
        connection.execute(
            &format!("DELETE FROM ledger_line WHERE session_key {is_old} AND {IS_OF_ENDED_SESSION}"),
            &[],
        )?;
        connection
            .execute(&format!("DELETE FROM session WHERE session_key {is_old} AND ended IS NOT NULL"), &[])?;
        connection.commit()?;
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
    use crate::retention::Keep;

    #[test]
    fn metadata_is_gone_with_the_last_level() {
        let states = |dropped: [Option<i64>; 4]| {
            Level::ALL
                .into_iter()
                .zip(dropped)
                .map(|(level, dropped_before_us)| LevelState {
                    level,
                    keep: Keep::Forever,
                    dropped_before_us,
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(gone_before(&states([Some(9), Some(8), Some(7), None])), None);
        assert_eq!(gone_before(&states([Some(9), Some(8), Some(7), Some(3)])), Some(3));
        assert_eq!(gone_before(&[]), None);
    }
}
