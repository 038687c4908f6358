//! Series of an SQLite store that may have rows to remove.
//!
//! A table of rows by series has no order by time, and most of its series belong to jobs that are too young,
//! or whose rows are gone already. The times of the jobs tell which ones: rows of a job lie at most an hour
//! before its start and after its end, and the bucket of an hour begins at most an hour before its first row.

use crate::backend::Connection;
use crate::error::DatabaseError;
use crate::row::{TimeNs, TimeUs};
use crate::value::Value;

const MARGIN_NS: i64 = 2 * 3600 * 1_000_000_000;

const STEP_JOBS: u32 = 50;

/// Blocks of series that are listed at once.
const STEP_BLOCKS: u32 = 16;

pub(super) const KEPT: &str =
    "SELECT job_key FROM kept_job WHERE until IS NULL OR until > (SELECT accepted FROM clock_check)";

/// Jobs that were kept until a time.
const RELEASED: &str = "SELECT job_key FROM kept_job WHERE until <= (SELECT accepted FROM clock_check)";

/// Blocks of series, and the time of the rows to remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidates {
    of: Of,
    /// Begin of the time, in microseconds since the epoch.
    pub(super) from_us: i64,
    /// Excluded end of the time.
    pub(super) before_us: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    /// The jobs that ran in the time, and all nodes.
    Time,
    /// The jobs that were kept until a time, and their nodes: their rows are older than what was removed
    /// before.
    Released,
}

/// Returns the series that may have rows of a relation before `before_us`.
pub(super) fn of_relation(
    connection: &mut dyn Connection,
    relation: &str,
    before_us: i64,
) -> Result<Vec<Candidates>, DatabaseError> {
    let complete = "SELECT complete_before FROM retention WHERE relation = $1";
    let TimeUs(complete_us): TimeUs<Option<i64>> = connection.select_one(complete, &[relation.into()])?;
    let candidates = |of, from_us| Candidates { of, from_us, before_us };
    let Some(complete_us) = complete_us else {
        return Ok(vec![candidates(Of::Time, 0)]);
    };
    let mut all = Vec::new();
    if complete_us < before_us {
        all.push(candidates(Of::Time, complete_us));
    }
    if !connection.query(&format!("{RELEASED} LIMIT 1"), &[])?.is_empty() {
        all.push(candidates(Of::Released, 0));
    }
    Ok(all)
}

impl Candidates {
    fn is_job(&self) -> String {
        match self.of {
            Of::Time => {
                let from_ns = self.from_us.saturating_mul(1000).saturating_sub(MARGIN_NS);
                let before_ns = self.before_us.saturating_mul(1000).saturating_add(MARGIN_NS);
                format!(
                    "job.started < {before_ns} AND (job.ended IS NULL OR job.ended >= {from_ns}) AND job.job_key NOT IN ({KEPT})"
                )
            }
            Of::Released => format!("job.job_key IN ({RELEASED})"),
        }
    }

    /// Returns the condition on `block` that it is of one of the nodes.
    fn is_node(&self) -> String {
        match self.of {
            Of::Time => "block.job_key IS NULL".to_owned(),
            Of::Released => format!(
                "block.job_key IS NULL AND block.node IN (SELECT node FROM job_node WHERE job_node.job_key IN ({RELEASED}))"
            ),
        }
    }

    /// Returns the time of the oldest row of `table` for which the condition `is_due` on `old` holds; none if
    /// there is none.
    pub(super) fn oldest(
        &self,
        connection: &mut dyn Connection,
        table: &str,
        is_due: &str,
    ) -> Result<Option<i64>, DatabaseError> {
        // A search of the index for each series: a join would read all rows.
        let first = format!(
            "SELECT min((SELECT old.time FROM {table} AS old WHERE old.series_id = block.first_id + member.position
                     AND old.time >= $1 AND old.time < $2 AND {is_due} ORDER BY old.time LIMIT 1))
             FROM series_block AS block CROSS JOIN series_shape_member AS member ON member.shape_id = block.shape_id"
        );
        let range = [Value::Time(self.from_us), Value::Time(self.before_us)];
        let of_nodes = format!("{first} WHERE {}", self.is_node());
        let TimeNs(mut oldest_ns): TimeNs<Option<i64>> = connection.select_one(&of_nodes, &range)?;
        let of_jobs = format!(
            "SELECT job.started, job.job_key, ({first} WHERE block.job_key = job.job_key)
             FROM job WHERE (job.started, job.job_key) > ($3, $4) AND {}
             ORDER BY job.started, job.job_key LIMIT {STEP_JOBS}",
            self.is_job()
        );
        let (mut started_ns, mut job_key) = (i64::MIN, i64::MIN);
        // Jobs that started later have no older rows.
        while oldest_ns.is_none_or(|oldest_ns| started_ns.saturating_sub(MARGIN_NS) < oldest_ns) {
            let [from, before] = range.clone();
            let jobs: Vec<(i64, i64, TimeNs<Option<i64>>)> =
                connection.select(&of_jobs, &[from, before, started_ns.into(), job_key.into()])?;
            let Some((last_ns, last_key, _)) = jobs.last() else { break };
            (started_ns, job_key) = (*last_ns, *last_key);
            for (_, _, TimeNs(of_job_ns)) in jobs {
                oldest_ns = oldest_ns.into_iter().chain(of_job_ns).min();
            }
        }
        Ok(oldest_ns.map(|time_ns| time_ns / 1000))
    }

    /// Returns the last of the next blocks after `last_block`, and the series of these blocks; none if there
    /// are none.
    pub(super) fn next_series(
        &self,
        connection: &mut dyn Connection,
        last_block: i64,
    ) -> Result<Option<(i64, Vec<i64>)>, DatabaseError> {
        let next = format!(
            "SELECT next_block.first_id, next_block.first_id + member.position
             FROM (
                 SELECT first_id, shape_id FROM series_block AS block
                 WHERE first_id > $1 AND ({} OR EXISTS (SELECT 1 FROM job WHERE job.job_key = block.job_key AND {}))
                 ORDER BY first_id LIMIT {STEP_BLOCKS}
             ) AS next_block
             LEFT JOIN series_shape_member AS member ON member.shape_id = next_block.shape_id
             ORDER BY 1, 2",
            self.is_node(),
            self.is_job()
        );
        let rows: Vec<(i64, Option<i64>)> = connection.select(&next, &[last_block.into()])?;
        let (blocks, series): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        Ok(blocks.last().map(|last| (*last, series.into_iter().flatten().collect())))
    }
}
