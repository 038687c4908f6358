//! Removal of metadata: series, ledger lines, changes of plan, marks and losses of a time of which
//! retention left no row at any level. Jobs themselves stay, and ids are never used again.
//!
//! As long as summaries of an hour are kept for ever, nothing is removed here.

use tracing::info;

use super::old_rows::{ALL, OldRows};
use super::{Progress, progress};
use crate::StoreError;
use crate::backend::{Connection, Task};
use crate::error::{Context, DatabaseError};
use crate::retention::Level;
use crate::stop::Stop;
use crate::value::Value;

/// Removes what no row refers to.
pub(crate) const REMOVE: Task = Task { name: "remove metadata of old jobs", rounds: 60, run: remove };

/// How far rows of a job may lie after its end.
const MARGIN_US: i64 = 3600 * 1_000_000;

/// Condition for the rows about the jobs of old blocks.
const OF_JOBS: &str = "job_key IN (SELECT job_key FROM series_block WHERE first_id {keys})";

/// Conditions for the rows about the nodes of old blocks.
const OF_NODES: &[&str] =
    &["node IN (SELECT node FROM series_block WHERE first_id {keys} AND job_key IS NULL)", OF_NODES_ALONE];

/// Condition that a ledger line is of a session that has ended: an open one may count in it.
const IS_OF_ENDED_SESSION: &str = "NOT EXISTS (SELECT 1 FROM session
     WHERE session.session_key = old.session_key AND session.ended IS NULL)";

/// Condition that no kept job ran on the node of a row at its time.
const IS_NOT_OF_KEPT_JOB: &str = "NOT EXISTS (SELECT 1 FROM job_node
     WHERE job_node.job_key IN (SELECT job_key FROM kept_job) AND job_node.node = old.node
         AND old.time >= job_node.started AND (job_node.ended IS NULL OR old.time <= job_node.ended))";

/// Condition for the rows before `{before}` that are about a node and no job.
const OF_NODES_ALONE: &str = "job_key IS NULL AND time < {before}";

/// Blocks of series of jobs that ended before `{before}`, and of nodes that no agent has sent for since, with
/// what is recorded about these jobs and nodes. An OFFSET makes PostgreSQL look for the rows of each block,
/// in place of all rows once.
///
/// A node that sends again after the decision must find its series, or register them anew: a writer inserts
/// the session before it searches for series, and waits for the node's row, which is locked.
const BLOCKS: OldRows = OldRows {
    table: "series_block",
    key: "first_id",
    of: "first_id > -1",
    is_old: "CASE WHEN next_row.job_key IS NULL
             THEN NOT EXISTS (SELECT 1 FROM session WHERE session.node = next_row.node
                                  AND (ended IS NULL OR last_seen >= {before}) LIMIT 1 OFFSET 0)
                 AND NOT EXISTS (SELECT 1 FROM job_node
                                 WHERE job_node.job_key IN (SELECT job_key FROM kept_job)
                                     AND job_node.node = next_row.node LIMIT 1 OFFSET 0)
             ELSE EXISTS (SELECT 1 FROM job WHERE job.job_key = next_row.job_key AND job.ended < {before}
                          LIMIT 1 OFFSET 0)
                 AND NOT EXISTS (SELECT 1 FROM job_node WHERE job_node.job_key = next_row.job_key
                                     AND (ended IS NULL OR ended >= {before}) LIMIT 1 OFFSET 0)
                 AND NOT EXISTS (SELECT 1 FROM kept_job WHERE kept_job.job_key = next_row.job_key)
         END",
    step_rows: 500,
    lock: "SELECT node FROM node WHERE node IN (SELECT node FROM {next} WHERE job_key IS NULL)
         ORDER BY node{for_update}",
    delete: &[
        ("ledger_line", &[OF_JOBS, IS_OF_ENDED_SESSION]),
        ("plan_change_event", &[OF_JOBS]),
        ("mark", &[OF_JOBS]),
        ("loss", &[OF_JOBS]),
        ("plan_change_event", OF_NODES),
        ("loss", OF_NODES),
        ("series_block", &["first_id {keys}"]),
    ],
};

/// Sessions that ended before `{before}`, with their ledger lines; lines of jobs whose series are left stay.
/// A session that sends again meanwhile is open, and stays.
const SESSIONS: OldRows = OldRows {
    table: "session",
    key: "session_key",
    of: "session_key > -1 AND ended < {before} AND last_seen < {before}",
    is_old:
        "NOT EXISTS (SELECT 1 FROM ledger_line JOIN series_block ON series_block.job_key = ledger_line.job_key
                         WHERE ledger_line.session_key = next_row.session_key LIMIT 1 OFFSET 0)",
    delete: &[
        ("ledger_line", &["session_key {keys}", IS_OF_ENDED_SESSION]),
        ("session", &["session_key {keys} AND ended IS NOT NULL"]),
    ],
    ..ALL
};

/// Lists of series that no block refers to. If a writer refers to one at this moment, the statement fails,
/// and the next round tries again. A writer may begin to use a list at any moment: its members go after the
/// list itself is gone.
const SHAPES: OldRows = OldRows {
    table: "series_shape",
    key: "shape_id",
    is_old: "NOT EXISTS (SELECT 1 FROM series_block AS used WHERE used.shape_id = next_row.shape_id
                         LIMIT 1 OFFSET 0)",
    delete: &[
        (
            "series_shape",
            &["shape_id {keys} AND NOT EXISTS (
             SELECT 1 FROM series_block AS used WHERE used.shape_id = old.shape_id)"],
        ),
        (
            "series_shape_member",
            &["shape_id {keys} AND NOT EXISTS (
             SELECT 1 FROM series_shape AS list WHERE list.shape_id = old.shape_id)"],
        ),
    ],
    ..ALL
};

/// Lists of changes of plan that no event refers to. They are removed as lists of series are.
const PLAN_CHANGE_SETS: OldRows = OldRows {
    table: "plan_change_set",
    key: "set_id",
    is_old: "NOT EXISTS (SELECT 1 FROM plan_change_event AS used WHERE used.set_id = next_row.set_id
                         LIMIT 1 OFFSET 0)",
    delete: &[
        (
            "plan_change_set",
            &["set_id {keys} AND NOT EXISTS (
             SELECT 1 FROM plan_change_event AS used WHERE used.set_id = old.set_id)"],
        ),
        (
            "plan_change_set_member",
            &["set_id {keys} AND NOT EXISTS (
             SELECT 1 FROM plan_change_set AS list WHERE list.set_id = old.set_id)"],
        ),
    ],
    ..ALL
};

const LOSSES: OldRows = OldRows {
    table: "loss",
    key: "time",
    of: OF_NODES_ALONE,
    delete: &[(
        "loss",
        &[
            OF_NODES_ALONE,
            "{step}",
            "NOT EXISTS (SELECT 1 FROM job_node
         WHERE job_node.job_key IN (SELECT job_key FROM kept_job) AND job_node.node = old.node
             AND old.last_time >= job_node.started
             AND (job_node.ended IS NULL OR old.first_time <= job_node.ended))",
        ],
    )],
    ..ALL
};

const MARKS: OldRows = OldRows {
    table: "mark",
    key: "time",
    of: OF_NODES_ALONE,
    delete: &[("mark", &[OF_NODES_ALONE, "{step}", IS_NOT_OF_KEPT_JOB])],
    ..ALL
};

/// Changes of the plan of node `$1`: the index is one of the node and the time. The period in force at the
/// time from which on samples are left was set before it: a change stays while a metric has the period that
/// it gave. A refused request changes nothing.
const PLAN_CHANGES: OldRows = OldRows {
    table: "plan_change_event",
    key: "time",
    of: "node = $1 AND job_key IS NULL AND time < {before}",
    delete: &[(
        "plan_change_event",
        &[
            "node = $1",
            OF_NODES_ALONE,
            "{step}",
            IS_NOT_OF_KEPT_JOB,
            "(cause = 'refused' OR NOT EXISTS (
             SELECT 1 FROM plan_change_set_member AS member
             WHERE member.set_id = old.set_id AND NOT EXISTS (
                 SELECT 1 FROM plan_change_event AS later
                 JOIN plan_change_set_member AS later_member
                     ON later_member.set_id = later.set_id AND later_member.metric = member.metric
                 WHERE later.node = old.node AND later.job_key IS NULL AND later.cause <> 'refused'
                     AND later.time > old.time AND later.time < {before})))",
        ],
    )],
    ..ALL
};

/// Removes the metadata before the time up to which every level is gone.
fn remove(connection: &mut dyn Connection, stop: &Stop) -> Result<(), StoreError> {
    let Some(gone_us) = gone_before(&progress(connection)?) else { return Ok(()) };
    remove_before(connection, gone_us - MARGIN_US, stop).context("remove metadata of old jobs")
}

fn remove_before(connection: &mut dyn Connection, before_us: i64, stop: &Stop) -> Result<(), DatabaseError> {
    let times = [("{before}", before_us)];
    let blocks = BLOCKS.remove(connection, &times, &[], stop)?;
    if blocks > 0 {
        info!("removed {blocks} blocks of series of old jobs and nodes");
    }
    for rows in [&LOSSES, &MARKS] {
        rows.remove(connection, &times, &[], stop)?;
    }
    let mut node = String::new();
    while !stop.is_requested() {
        let next = "SELECT node FROM node WHERE node > $1 ORDER BY node LIMIT 1";
        let Some(next) = connection.select_first(next, &[node.as_str().into()])? else { break };
        node = next;
        PLAN_CHANGES.remove(connection, &times, &[Value::from(node.as_str())], stop)?;
    }
    for rows in [&SESSIONS, &SHAPES, &PLAN_CHANGE_SETS] {
        rows.remove(connection, &times, &[], stop)?;
    }
    Ok(())
}

/// Returns the time before which no row of any level is left; none if there is no such time.
fn gone_before(levels: &[Progress]) -> Option<i64> {
    let gone = Level::ALL.map(|level| {
        let Progress { dropped_us, complete_us, .. } = levels.iter().find(|of| of.level == level)?;
        dropped_us.zip(*complete_us).map(|(dropped_us, complete_us)| dropped_us.min(complete_us))
    });
    gone.into_iter().collect::<Option<Vec<_>>>()?.into_iter().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone(times: [(Option<i64>, Option<i64>); 4]) -> Option<i64> {
        let levels = Level::ALL.into_iter().zip(times);
        let progress =
            levels.map(|(level, (dropped_us, complete_us))| Progress { level, dropped_us, complete_us });
        gone_before(&progress.collect::<Vec<_>>())
    }

    #[test]
    fn metadata_is_gone_with_the_last_level() {
        let same = |time| (Some(time), Some(time));
        assert_eq!(gone([same(9), same(8), same(7), (None, None)]), None);
        assert_eq!(gone([same(9), same(8), same(7), same(3)]), Some(3));
        // A removal that was interrupted, and chunks that are longer than a day.
        assert_eq!(gone([(Some(9), None), same(8), same(7), same(3)]), None);
        assert_eq!(gone([(Some(9), Some(2)), same(8), same(7), (Some(3), Some(5))]), Some(2));
        assert_eq!(gone_before(&[]), None);
    }
}
