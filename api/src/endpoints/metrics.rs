//! Metrics of a job: one row for each metric and level, whatever the number of nodes.

use polymeter_analysis::derived::known;
use polymeter_proto::step_level::StepLevel;
use polymeter_store::reader::JobMetricRow;
use serde_json::json;

use super::parameters::{KEY, METRIC, NODE, find_job, key};
use crate::answer::{Column, Table, Type, rate_of};
use crate::live::is_selected;
use crate::request::{Endpoint, TABLE};

static JOB_METRICS: Table<JobMetricRow> = Table {
    name: "metrics",
    columns: &[
        Column::new("metric", Type::Text, "The metric.", |of| json!(of.metric)),
        Column::optional("level", Type::Text, "`step` or `task`; none for series of the whole job.", |of| {
            json!(of.level.map(StepLevel::as_str))
        }),
        Column::new("unit", Type::Text, "The unit of the values.", |of| json!(of.unit)),
        Column::new("kind", Type::Text, "`counter`, `gauge` or `derived`.", |of| json!(of.kind)),
        Column::optional("rate_unit", Type::Text, "The unit of the rates of a counter.", |of| {
            json!(rate_of(&of.metric, &of.unit, &of.kind).map(|(unit, _)| unit))
        }),
        Column::new("series", Type::Integer, "The number of its series.", |of| json!(of.series)),
        Column::new("nodes", Type::Integer, "The number of nodes that have some.", |of| json!(of.nodes)),
    ],
};

/// Returns the derived metrics that can be computed from those that were sampled of the whole job.
fn derived_rows(rows: &[JobMetricRow]) -> Vec<JobMetricRow> {
    let sampled = |metric: &str| rows.iter().find(|row| row.metric == metric && row.level.is_none());
    let mut found = Vec::new();
    for derived in known(|metric| sampled(metric).is_some()) {
        let inputs = derived.formulas.iter().flat_map(|formula| formula.inputs);
        let of_inputs = inputs.filter_map(|input| sampled(&input.definition()?.name()));
        let nodes = of_inputs.map(|row| row.nodes).min().unwrap_or_default();
        found.push(JobMetricRow {
            metric: derived.name.to_owned(),
            level: None,
            unit: derived.unit.to_owned(),
            kind: "derived".to_owned(),
            series: nodes,
            nodes,
        });
    }
    found
}

pub(super) static METRICS: Endpoint = Endpoint {
    path: "/api/v1/jobs/{key}/metrics",
    id: "job_metrics",
    summary: "The metrics of a job, with the numbers of their series and nodes.",
    parameters: &[KEY, METRIC, NODE],
    formats: TABLE,
    answer: || JOB_METRICS.schema(&[]),
    body: None,
    handler: |call| {
        let arguments = call.arguments.clone();
        Box::pin(call.stream(move |reader, _, chunks| {
            let job = find_job(reader, key(&arguments))?;
            let mut rows = reader.job_metrics(job.job_key, arguments.text(NODE.name))?;
            rows.extend(derived_rows(&rows));
            let selectors = arguments.selectors(METRIC.name);
            let wanted = rows.iter().filter(|row| is_selected(&row.metric, selectors));
            JOB_METRICS.write(chunks, wanted, &[])
        }))
    },
};
