//! Series and their samples.

use std::ops::Range;

use super::connection::Reader;
use super::rows::{SeriesRow, SeriesScope, SeriesSummary};
use crate::StoreError;
use crate::labels::parse_labels;
use crate::value::Value;

impl Reader {
    /// Returns the series of a job or a node with the extents of their samples, sorted by node, metric and
    /// labels.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn series(&mut self, scope: SeriesScope<'_>) -> Result<Vec<SeriesRow>, StoreError> {
        let (condition, parameter) = match scope {
            SeriesScope::Job(key) => ("series.job_key = $1", Value::Integer(key)),
            SeriesScope::Node(node) => ("series.job_key IS NULL AND series.node = $1", node.into()),
        };
        let select = format!(
            "SELECT series.series_id, node, metric, unit, kind, CAST(labels AS text), count(samples.time),
                 min(samples.time), max(samples.time)
             FROM series JOIN metric USING (metric) LEFT JOIN samples ON samples.series_id = series.series_id
             WHERE {condition} GROUP BY series.series_id, node, metric, unit, kind, CAST(labels AS text)
             ORDER BY node, metric, series.series_id"
        );
        self.rows(&select, &[parameter], |row| SeriesRow {
            series_id: row.integer(),
            node: row.text(),
            metric: row.text(),
            unit: row.text(),
            kind: row.text(),
            labels: parse_labels(&row.text()),
            count: row.count(),
            first_time_ns: row.optional_time_ns(),
            last_time_ns: row.optional_time_ns(),
        })
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

    /// Returns the samples of a series within `span_ns`, whose end is excluded, in the order of their times:
    /// nanoseconds since the epoch, and values.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn points(&mut self, series_id: i64, span_ns: Range<i64>) -> Result<Vec<(i64, f64)>, StoreError> {
        // Times have a resolution of microseconds, so that both bounds are rounded up.
        let bound =
            |time_ns: i64| Value::time(time_ns.div_euclid(1000) + i64::from(time_ns.rem_euclid(1000) > 0));
        let select =
            "SELECT time, value FROM samples WHERE series_id = $1 AND time >= $2 AND time < $3 ORDER BY time";
        let parameters = [Value::Integer(series_id), bound(span_ns.start), bound(span_ns.end)];
        self.rows(select, &parameters, |row| (row.time_ns(), row.real()))
    }

    /// Returns statistics of the samples of a series; none if it has no samples.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn summary(&mut self, series_id: i64) -> Result<Option<SeriesSummary>, StoreError> {
        let end = |order: &str| {
            format!("(SELECT value FROM samples WHERE series_id = $1 ORDER BY time {order} LIMIT 1)")
        };
        let select = format!(
            "SELECT count(*), min(value), max(value), avg(value), {}, {} FROM samples WHERE series_id = $1",
            end("ASC"),
            end("DESC")
        );
        let summaries = self.rows(&select, &[Value::Integer(series_id)], |row| SeriesSummary {
            count: row.count(),
            min: row.real(),
            max: row.real(),
            mean: row.real(),
            first: row.real(),
            last: row.real(),
        })?;
        Ok(summaries.into_iter().find(|summary| summary.count > 0))
    }
}
