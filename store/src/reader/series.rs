//! Series.

use polymeter_proto::read::SeriesRow;

use super::connection::{Reader, Selection};
use super::read::SeriesScope;
use crate::StoreError;
use crate::labels::parse_labels;
use crate::value::{Row, Value};

impl Reader {
    /// Returns the series of a job or a node, sorted by node and metric.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn series(&mut self, scope: SeriesScope<'_>) -> Result<Vec<SeriesRow>, StoreError> {
        self.collect(&series_of(scope))
    }

    /// Returns the number of CPUs of a node, counted by its per-CPU series; none without such series.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn cpus(&mut self, node: &str) -> Result<Option<u64>, StoreError> {
        let select = "SELECT count(DISTINCT CAST(labels AS text)) FROM series
             WHERE job_key IS NULL AND node = $1 AND metric LIKE 'node.cpu.%.per_cpu' GROUP BY metric";
        let counts = self.rows(select, &[node.into()], |row| row.count())?;
        Ok(counts.into_iter().max())
    }
}

/// Selects the series of a job or a node.
pub(super) fn series_of(scope: SeriesScope<'_>) -> Selection<'_, SeriesRow> {
    let (condition, parameter) = match scope {
        SeriesScope::Job(key) => ("series.job_key = $1", Value::Integer(key)),
        SeriesScope::Node(node) => ("series.job_key IS NULL AND series.node = $1", node.into()),
    };
    let statement = format!(
        "SELECT series_id, node, metric, unit, kind, CAST(labels AS text) FROM series JOIN metric USING (metric)
         WHERE {condition} ORDER BY node, metric, series_id"
    );
    let read = |row: &mut Row| SeriesRow {
        series_id: row.integer(),
        node: row.text(),
        metric: row.text(),
        unit: row.text(),
        kind: row.text(),
        labels: parse_labels(&row.text()),
    };
    Selection { statement, parameters: vec![parameter], read }
}
