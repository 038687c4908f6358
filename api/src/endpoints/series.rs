//! The series of a job.

use polymeter_store::reader::SeriesScope;
use serde_json::Value;

use super::parameters::{KEY, METRIC, NODE, find_job, key, series_filter};
use crate::endpoint::{Endpoint, Method, TABLE};
use crate::rows;

pub(super) static SERIES: Endpoint = Endpoint {
    method: Method::Get,
    path: "/api/v1/jobs/{key}/series",
    id: "series",
    summary: "The series of a job, sorted by node and metric.",
    parameters: &[KEY, METRIC, NODE],
    formats: TABLE,
    answer: || rows::SERIES.schema(&[]),
    body: None,
    handler: |call| {
        let (key, format, filter) = (key(&call.arguments), call.format, series_filter(&call.arguments));
        Box::pin(call.stream(move |reader, _, chunks| {
            find_job(reader, key)?;
            let rows = reader.series(SeriesScope::Job(key))?;
            let mut out = rows::SERIES.writer(format, chunks)?;
            rows.iter().filter(|row| filter.has(row)).try_for_each(|row| out.push(row))?;
            out.end(&[] as &[(&str, Value)])
        }))
    },
};
