//! Series.

use polymeter_proto::read::{CpusRow, JobNodeRow, SeriesRow};

use super::read::SeriesScope;
use super::recorded_statements::{Reader, Selection};
use crate::StoreError;
use crate::row::from_row;
use crate::value::Value;

impl Reader {
    /// Returns the series of a job, a node, or a job's nodes, sorted by node and metric.
    pub fn series(&mut self, scope: SeriesScope<'_>) -> Result<Vec<SeriesRow>, StoreError> {
        Ok(self.shaped_series(scope, None)?.rows().collect())
    }

    /// Returns what is known about the processors of a job's nodes, sorted by node. CPUs that the agent did
    /// not report are counted by the node's per-CPU series. The members of a shape are counted once: nodes of
    /// a kind share it.
    pub fn cpus(&mut self, job_key: i64) -> Result<Vec<CpusRow>, StoreError> {
        let select = "WITH own AS MATERIALIZED (
                 SELECT DISTINCT series_block.node, shape_id FROM job_node JOIN series_block ON series_block.node = job_node.node
                 WHERE job_node.job_key = $1 AND series_block.job_key IS NULL
             ), counted AS (
                 SELECT shape_id, metric, count(*) AS cpus FROM series_shape_member
                 WHERE shape_id IN (SELECT shape_id FROM own) AND metric LIKE 'node.cpu.%.per_cpu' GROUP BY shape_id, metric
             )
             SELECT job_node.node, coalesce(session.node_cpus, of_node.cpus), session.node_cores, job_cores, job_gpus,
                 session.roof_memory_bytes_per_s, session.roof_double_flop_per_s, session.roof_single_flop_per_s
             FROM job_node LEFT JOIN session ON session.session_id = job_node.session_id
             LEFT JOIN (SELECT node, CAST(max(cpus) AS bigint) AS cpus FROM (
                 SELECT node, metric, sum(cpus) AS cpus FROM own JOIN counted ON counted.shape_id = own.shape_id GROUP BY node, metric
             ) AS of_metric GROUP BY node) AS of_node ON of_node.node = job_node.node
             WHERE job_node.job_key = $1
                 AND coalesce(session.node_cpus, of_node.cpus, session.node_cores, job_cores, job_gpus,
                     session.roof_memory_bytes_per_s) IS NOT NULL
             ORDER BY job_node.node";
        self.rows(select, &[job_key.into()])
    }
}

impl Reader {
    /// Returns the times of a job on its nodes, sorted by node. Another job shares a node if it is among the
    /// last thousand that started there before the job, or started later.
    pub fn job_nodes(&mut self, job_key: i64) -> Result<Vec<JobNodeRow>, StoreError> {
        let select = "SELECT node, started, ended, is_shared, CAST(NULL AS bigint) FROM polymeter_job_node
             WHERE job_key = $1 ORDER BY node";
        let mut nodes = self.rows(select, &[job_key.into()])?;
        let clocks = self.clocks(&[job_key])?;
        nodes.iter_mut().for_each(|row| clocks.correct_node(job_key, row));
        Ok(nodes)
    }

    /// Returns the series of a job's nodes that have one of `metrics`, sorted by node and metric.
    pub fn node_series(&mut self, job_key: i64, metrics: &[String]) -> Result<Vec<SeriesRow>, StoreError> {
        self.collect(&node_series_of(job_key, metrics))
    }
}

pub(super) fn job_series_of(job_key: i64, metrics: &[String]) -> Selection<'_, SeriesRow> {
    let statement = format!(
        "SELECT series_id, node, metric, unit, kind, CAST(labels AS text), role FROM series JOIN metric USING (metric)
         WHERE series.job_key = $1 AND metric IN ({}) ORDER BY node, metric, series_id",
        places(metrics)
    );
    Selection::new(statement, parameters(job_key, metrics))
}

/// Returns the places of `metrics` after the first parameter.
fn places(metrics: &[String]) -> String {
    let places: Vec<String> = (2..metrics.len() + 2).map(|number| format!("${number}")).collect();
    // An empty list is not valid SQL.
    if places.is_empty() { "NULL".to_owned() } else { places.join(", ") }
}

fn parameters(job_key: i64, metrics: &[String]) -> Vec<Value<'_>> {
    let metrics = metrics.iter().map(|metric| metric.as_str().into());
    [Value::Integer(job_key)].into_iter().chain(metrics).collect()
}

/// Selects the series of a job's nodes that have one of `metrics`.
pub(super) fn node_series_of(job_key: i64, metrics: &[String]) -> Selection<'_, SeriesRow> {
    let statement = format!(
        "SELECT series_id, measured_node, metric, unit, kind, CAST(labels AS text), role
         FROM (SELECT node FROM job_node WHERE job_key = $1) AS own
         CROSS JOIN series JOIN metric USING (metric)
         WHERE measured_node = own.node || '' AND series.job_key IS NULL AND metric IN ({}) ORDER BY measured_node, metric, series_id",
        places(metrics)
    );
    Selection::new(statement, parameters(job_key, metrics))
}

from_row!(CpusRow {
    node,
    cpus,
    cores,
    job_cores,
    job_gpus,
    memory_bytes_per_s,
    double_flop_per_s,
    single_flop_per_s
});

from_row!(JobNodeRow { node, started_ns: TimeNs, ended_ns: TimeNs, is_shared, clock_offset_us });

from_row!(SeriesRow { series_id, node, metric, unit, kind, labels });
