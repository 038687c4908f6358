//! The metrics of a job: one row for each metric and level, whatever the number of nodes.

use std::collections::BTreeMap;

use polymeter_store::reader::SeriesRow;
use serde_json::{Value, json};

use super::parameters::{KEY, METRIC, NODE, find_job, key};
use super::series::{is_wanted, series_of_job};
use crate::endpoint::{Endpoint, Method, TABLE};
use crate::rows::{level, rate};
use crate::table::{Column, Table, Type};

/// A metric of a job.
struct JobMetric {
    /// One of its series.
    row: SeriesRow,
    series: u64,
    nodes: u64,
    /// The node of its last series.
    node: String,
}

static JOB_METRICS: Table<JobMetric> = Table {
    name: "metrics",
    columns: &[
        Column::new("metric", Type::Text, "The metric.", |of| json!(of.row.metric)),
        Column::optional("level", Type::Text, "`step` or `task`; none for series of the whole job.", |of| {
            json!(level(&of.row))
        }),
        Column::new("unit", Type::Text, "The unit of the values.", |of| json!(of.row.unit)),
        Column::new("kind", Type::Text, "`counter` or `gauge`.", |of| json!(of.row.kind)),
        Column::optional("rate_unit", Type::Text, "The unit of the rates of a counter.", |of| {
            json!(rate(&of.row).map(|(unit, _)| unit))
        }),
        Column::new("series", Type::Integer, "The number of its series.", |of| json!(of.series)),
        Column::new("nodes", Type::Integer, "The number of nodes that have some.", |of| json!(of.nodes)),
    ],
};

pub(super) static METRICS: Endpoint = Endpoint {
    method: Method::Get,
    path: "/api/v1/jobs/{key}/metrics",
    id: "job_metrics",
    summary: "The metrics of a job, with the numbers of their series and nodes.",
    parameters: &[KEY, METRIC, NODE],
    formats: TABLE,
    answer: || JOB_METRICS.schema(&[]),
    body: None,
    handler: |call| {
        let (format, arguments) = (call.format, call.arguments.clone());
        Box::pin(call.stream(move |reader, _, chunks| {
            let job = find_job(reader, key(&arguments))?;
            let rows = series_of_job(reader, job.job_key, arguments.selectors(METRIC.name))?;
            let mut out = JOB_METRICS.writer(format, chunks)?;
            let wanted = rows.into_iter().filter(|row| is_wanted(row, &arguments));
            job_metrics(wanted).iter().try_for_each(|row| out.push(row))?;
            out.end(&[] as &[(&str, Value)])
        }))
    },
};

/// Counts series, which are sorted by node, by metric and level.
fn job_metrics(rows: impl Iterator<Item = SeriesRow>) -> Vec<JobMetric> {
    let mut found: BTreeMap<(String, Option<&str>), JobMetric> = BTreeMap::new();
    for row in rows {
        let key = (row.metric.clone(), level(&row));
        let node = row.node.clone();
        let of = found.entry(key).or_insert(JobMetric { row, series: 0, nodes: 0, node: String::new() });
        of.series += 1;
        if of.node != node {
            of.nodes += 1;
            of.node = node;
        }
    }
    found.into_values().collect()
}

#[cfg(test)]
mod tests {
    use polymeter_proto::series::Labels;

    use super::*;

    #[test]
    fn series_are_counted_by_metric_and_level() {
        let row = |node: &str, metric: &str, labels: &[(&str, &str)]| SeriesRow {
            series_id: 1,
            node: node.to_owned(),
            metric: metric.to_owned(),
            unit: "bytes".to_owned(),
            kind: "gauge".to_owned(),
            labels: Labels::new(
                labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            )
            .unwrap(),
        };
        let rows = [
            row("a", "x", &[]),
            row("a", "x", &[("step", "0")]),
            row("a", "x", &[("step", "1")]),
            row("a", "y", &[("device", "1")]),
            row("b", "x", &[]),
            row("b", "x", &[("step", "0")]),
        ];
        let found = job_metrics(rows.into_iter());
        let found: Vec<_> =
            found.iter().map(|of| (of.row.metric.as_str(), level(&of.row), of.series, of.nodes)).collect();
        assert_eq!(found, [("x", None, 2, 2), ("x", Some("step"), 3, 2), ("y", None, 1, 1)]);
    }
}
