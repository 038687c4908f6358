//! Percentiles of series whose windows have histograms.

use polymeter_analysis::distributions;
use polymeter_analysis::model::DistributionReport;
use polymeter_store::reader::{SeriesRow, SeriesScope};
use serde_json::json;

use super::parameters::{FROM_US, KEY, METRIC, NODE, NODE_NAME, UNTIL_US, check_number, time_ns};
use super::series::{owner, wanted_series};
use crate::answer::{Column, Table, Type, labels, number};
use crate::limits;
use crate::request::{Answer, Call, Endpoint, TABLE};

static TABLE_OF_SERIES: Table<(SeriesRow, DistributionReport)> = Table {
    name: "percentiles",
    columns: &[
        Column::new("id", Type::Integer, "The id of the series, for `samples`.", |(row, _)| {
            json!(row.series_id)
        }),
        Column::new("node", Type::Text, "The node.", |(row, _)| json!(row.node)),
        Column::new("metric", Type::Text, "The metric.", |(row, _)| json!(row.metric)),
        Column::new(
            "unit",
            Type::Text,
            "The unit of the percentiles, of a counter that of its rates.",
            |of| json!(of.1.unit),
        ),
        Column::new("labels", Type::Labels, "The labels.", |(row, _)| labels(row)),
        Column::new("samples", Type::Integer, "The number of samples in the windows.", |(_, of)| {
            json!(of.samples)
        }),
        Column::new("p50", Type::Number, "The median, at most 3.1 % too small or too large.", |(_, of)| {
            number(of.p50)
        }),
        Column::new("p90", Type::Number, "The 90th percentile.", |(_, of)| number(of.p90)),
        Column::new("p99", Type::Number, "The 99th percentile.", |(_, of)| number(of.p99)),
        Column::new("max", Type::Number, "The largest value.", |(_, of)| number(of.max)),
    ],
};

pub(super) static PERCENTILES: Endpoint = Endpoint {
    path: "/api/v1/jobs/{key}/percentiles",
    id: "percentiles",
    summary: "The percentiles of the samples of a job's series whose windows have histograms, of counters those of the rates: over the \
        whole job, or over the windows that end in a range of times.",
    parameters: &[KEY, METRIC, NODE, FROM_US, UNTIL_US],
    formats: TABLE,
    answer: || TABLE_OF_SERIES.schema(&[]),
    body: None,
    handler: answer,
};

pub(super) static NODE_PERCENTILES: Endpoint = Endpoint {
    path: "/api/v1/nodes/{name}/percentiles",
    id: "node_percentiles",
    summary: "The percentiles of the samples of a node's own series, for administrators and support staff, as those of a job.",
    parameters: &[NODE_NAME, METRIC, FROM_US, UNTIL_US],
    ..PERCENTILES
};

fn answer(call: Call) -> Answer {
    let arguments = call.arguments.clone();
    Box::pin(call.stream(move |reader, access, chunks| {
        let (of, _) = owner(reader, &access, &arguments)?;
        let rows = wanted_series(reader, &access, &of, &arguments)?;
        let (from_ns, until_ns) = (time_ns(&arguments, FROM_US.name), time_ns(&arguments, UNTIL_US.name));
        let is_part = from_ns.is_some() || until_ns.is_some();
        let span_ns = is_part.then(|| from_ns.unwrap_or(0)..until_ns.unwrap_or(i64::MAX));
        let histograms = reader.histograms(SeriesScope::from(&of), span_ns)?;
        let found = distributions::of_series(rows, &histograms);
        check_number(found.len(), limits::SERIES, &METRIC)?;
        TABLE_OF_SERIES.write(chunks, found, &[])
    }))
}
