//! The removal of what is recorded about nodes, in place of jobs: losses, changes of plan and marks.

use crate::backend::Connection;
use crate::error::DatabaseError;
use crate::stop::Stop;
use crate::value::{Row, Value};

/// The number of rows that one transaction examines.
const STEP_ROWS: u32 = 1000;

/// A table with rows about nodes, among others about jobs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeRecords {
    table: &'static str,
    /// True if the index of the rows without a job is one of the node and the time, otherwise it is one of the job and the time.
    is_by_node: bool,
    /// The columns with the first and the last time of what a row records.
    times: [&'static str; 2],
    /// The condition that a row is not needed although its time is gone.
    is_obsolete: &'static str,
}

/// The condition that no metric of a change of plan has the period that this change gave it, before the time `$3`. A refused
/// request changes nothing.
const IS_SUPERSEDED: &str = "(cause = 'refused' OR NOT EXISTS (
     SELECT 1 FROM plan_change_set_member AS member
     WHERE member.set_id = plan_change_event.set_id AND NOT EXISTS (
         SELECT 1 FROM plan_change_event AS later
         JOIN plan_change_set_member AS later_member ON later_member.set_id = later.set_id AND later_member.metric = member.metric
         WHERE later.node = plan_change_event.node AND later.job_key IS NULL AND later.cause <> 'refused'
             AND later.time > plan_change_event.time AND later.time < $3)))";

impl NodeRecords {
    /// All such tables.
    pub(crate) const ALL: [Self; 3] = [
        Self { table: "loss", is_by_node: false, times: ["first_time", "last_time"], is_obsolete: "true" },
        Self { table: "mark", is_by_node: false, times: ["time", "time"], is_obsolete: "true" },
        // The period in force at the time from which on samples are left was set before it.
        Self {
            table: "plan_change_event",
            is_by_node: true,
            times: ["time", "time"],
            is_obsolete: IS_SUPERSEDED,
        },
    ];

    /// Removes the rows before `before_us`, except for those of nodes while a kept job ran there.
    pub(crate) fn remove(
        &self,
        connection: &mut dyn Connection,
        before_us: i64,
        stop: &Stop,
    ) -> Result<(), DatabaseError> {
        if !self.is_by_node {
            return self.remove_of(connection, None, before_us, stop);
        }
        let mut node = String::new();
        while !stop.is_requested() {
            let next = "SELECT node FROM node WHERE node > $1 ORDER BY node LIMIT 1";
            let mut rows = connection.query(next, &[node.as_str().into()])?;
            let Some(row) = rows.first_mut() else { break };
            node = row.text();
            self.remove_of(connection, Some(&node), before_us, stop)?;
        }
        Ok(())
    }

    /// Removes the rows of a node, or of all nodes, the oldest first, in small transactions.
    fn remove_of(
        &self,
        connection: &mut dyn Connection,
        node: Option<&str>,
        before_us: i64,
        stop: &Stop,
    ) -> Result<(), DatabaseError> {
        let Self { table, times: [first, last], is_obsolete, .. } = self;
        let of_node = |parameter: &str| node.map_or_else(String::new, |_| format!("node = {parameter} AND "));
        let next = format!(
            "SELECT time FROM {table} WHERE {}job_key IS NULL AND time >= $1 AND time < $2 ORDER BY time LIMIT 1 OFFSET {STEP_ROWS}",
            of_node("$3")
        );
        let delete = format!(
            "DELETE FROM {table} WHERE {}job_key IS NULL AND time >= $1 AND time < $2 AND time < $3 AND {is_obsolete}
                 AND NOT EXISTS (
                     SELECT 1 FROM job_node WHERE job_node.job_key IN (SELECT job_key FROM kept_job)
                         AND job_node.node = {table}.node AND {table}.{last} >= job_node.started
                         AND (job_node.ended IS NULL OR {table}.{first} <= job_node.ended))",
            of_node("$4")
        );
        let mut begin_us = 0;
        while !stop.is_requested() {
            let mut range = vec![Value::Time(begin_us), Value::Time(before_us)];
            range.extend(node.map(Value::from));
            let next_ns = connection.query(&next, &range)?.first_mut().map(Row::time_ns);
            // Rows of the same time are removed together.
            let end_us = next_ns.map_or(before_us, |time_ns| (time_ns / 1000).max(begin_us + 1));
            connection.begin()?;
            let mut range = vec![Value::Time(begin_us), Value::Time(end_us), Value::Time(before_us)];
            range.extend(node.map(Value::from));
            connection.execute(&delete, &range)?;
            connection.commit()?;
            if next_ns.is_none() {
                break;
            }
            begin_us = end_us;
        }
        Ok(())
    }
}
