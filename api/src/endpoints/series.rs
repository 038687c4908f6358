//! The series of a job.

use polymeter_proto::units;
use polymeter_store::reader::{SeriesRow, SeriesScope};
use serde_json::{Value, json};

use super::parameters::{KEY, METRIC, NODE, find_job, key};
use crate::arguments::Arguments;
use crate::endpoint::{Endpoint, Method, TABLE};
use crate::table::{Column, Table, Type};

static TABLE_OF_SERIES: Table<SeriesRow> = Table {
    name: "series",
    columns: &[
        Column::new("id", Type::Integer, "The id of the series, for `samples`.", |row| json!(row.series_id)),
        Column::new("node", Type::Text, "The node.", |row| json!(row.node)),
        Column::new("metric", Type::Text, "The metric.", |row| json!(row.metric)),
        Column::new("unit", Type::Text, "The unit of the values.", |row| json!(row.unit)),
        Column::new("kind", Type::Text, "`counter` or `gauge`.", |row| json!(row.kind)),
        Column::optional("rate_unit", Type::Text, "The unit of the rates of a counter.", |row| {
            json!(rate(row).map(|(unit, _)| unit))
        }),
        Column::new("labels", Type::Labels, "The labels.", labels),
    ],
};

/// Returns the labels of a series as an object.
pub(super) fn labels(row: &SeriesRow) -> Value {
    Value::Object(row.labels.iter().map(|(key, value)| (key.to_owned(), json!(value))).collect())
}

/// Returns the unit of the rates of a counter, and the factor from its increase per second; none for a gauge.
pub(super) fn rate(row: &SeriesRow) -> Option<(&'static str, f64)> {
    (row.kind == "counter").then(|| units::rate_unit(&row.metric, &row.unit))
}

/// Returns true if the request is for the series.
pub(super) fn is_wanted(row: &SeriesRow, arguments: &Arguments) -> bool {
    arguments.text(NODE.name).is_none_or(|node| node == row.node)
        && arguments
            .selectors(METRIC.name)
            .is_none_or(|selectors| selectors.iter().any(|selector| selector.matches(&row.metric)))
}

pub(super) static SERIES: Endpoint = Endpoint {
    method: Method::Get,
    path: "/api/v1/jobs/{key}/series",
    id: "series",
    summary: "The series of a job, sorted by node and metric.",
    parameters: &[KEY, METRIC, NODE],
    formats: TABLE,
    answer: || TABLE_OF_SERIES.schema(&[]),
    body: None,
    handler: |call| {
        let (key, format, arguments) = (key(&call.arguments), call.format, call.arguments.clone());
        Box::pin(call.stream(move |reader, _, chunks| {
            find_job(reader, key)?;
            let rows = reader.series(SeriesScope::Job(key))?;
            let mut out = TABLE_OF_SERIES.writer(format, chunks)?;
            rows.iter().filter(|row| is_wanted(row, &arguments)).try_for_each(|row| out.push(row))?;
            out.end(&[] as &[(&str, Value)])
        }))
    },
};
