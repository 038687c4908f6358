//! Series of a job, of its nodes, or of a node.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use polymeter_proto::catalogue;
use polymeter_proto::name::Selector;
use polymeter_store::StoreError;
use polymeter_store::reader::{Access, JobRow, Read, SeriesOwner, SeriesRow, SeriesScope};

use super::parameters::{KEY, METRIC, NODE, NODE_NAME, OF, find_job, key, series_filter};
use crate::answer::{Failure, Problem, rows};
use crate::live::is_selected;
use crate::request::{Answer, Arguments, Call, Endpoint, TABLE};

/// Returns at least the series of a job that the selectors select. If these are names, no others are read: a
/// job on many nodes has tens of thousands.
pub(super) fn series_of_job(
    reader: &mut dyn Read,
    key: i64,
    selectors: Option<&[Selector]>,
) -> Result<Vec<SeriesRow>, StoreError> {
    match selectors {
        Some(selectors) if selectors.iter().all(Selector::is_exact) => {
            let names: Vec<&str> = selectors.iter().map(Selector::as_str).collect();
            reader.job_series(key, &names)
        }
        Some(_) | None => reader.series(SeriesScope::Job(key)),
    }
}

pub(super) fn series_of_nodes(
    reader: &mut dyn Read,
    access: &Access,
    key: i64,
    selectors: Option<&[Selector]>,
) -> Result<Vec<SeriesRow>, StoreError> {
    if access.sees_all() {
        return reader.series(SeriesScope::NodesOf(key));
    }
    // The guard answers users who name the metrics.
    let known = catalogue::all().map(|metric| metric.name).filter(|name| is_selected(name, selectors));
    let exact = selectors.into_iter().flatten().filter(|selector| selector.is_exact()).map(Selector::as_str);
    let metrics: BTreeSet<&str> = known.chain(exact).collect();
    let mut rows = reader.node_series(key, &metrics.into_iter().collect::<Vec<_>>())?;
    let found: BTreeSet<i64> = rows.iter().map(|row| row.series_id).collect();
    let of_devices = reader.device_series(key)?.into_iter();
    rows.extend(
        of_devices.filter(|row| is_selected(&row.metric, selectors) && !found.contains(&row.series_id)),
    );
    rows.sort_by(|one, other| {
        (&one.node, &one.metric, one.series_id).cmp(&(&other.node, &other.metric, other.series_id))
    });
    Ok(rows)
}

/// Returns the owner of the series, and the job if there is one.
pub(super) fn owner(
    reader: &mut dyn Read,
    access: &Access,
    arguments: &Arguments,
) -> Result<(SeriesOwner, Option<JobRow>), Failure> {
    if let Some(node) = arguments.text(NODE_NAME.name) {
        if !access.sees_all() {
            let detail = "only administrators and support staff can read the series of a node; those of the nodes of your jobs are in `jobs/{key}/series?of=nodes`";
            return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail).into());
        }
        return Ok((SeriesOwner::Node(node.to_owned()), None));
    }
    let job = find_job(reader, key(arguments))?;
    let of = match arguments.text(OF.name) {
        Some("nodes") => SeriesOwner::NodesOf(job.job_key),
        Some(_) | None => SeriesOwner::Job(job.job_key),
    };
    Ok((of, Some(job)))
}

pub(super) fn wanted_series(
    reader: &mut dyn Read,
    access: &Access,
    of: &SeriesOwner,
    arguments: &Arguments,
) -> Result<Vec<SeriesRow>, Failure> {
    let mut rows = match of {
        SeriesOwner::NodesOf(key) => series_of_nodes(reader, access, *key, arguments.selectors(METRIC.name))?,
        SeriesOwner::Job(key) => series_of_job(reader, *key, arguments.selectors(METRIC.name))?,
        SeriesOwner::Node(_) => reader.series(of.into())?,
    };
    let filter = series_filter(arguments);
    rows.retain(|row| filter.has(row));
    Ok(rows)
}

pub(super) static SERIES: Endpoint = Endpoint {
    path: "/api/v1/jobs/{key}/series",
    id: "series",
    summary: "The series of a job, sorted by node and metric.",
    parameters: &[KEY, METRIC, NODE, OF],
    formats: TABLE,
    answer: || rows::SERIES.schema(&[]),
    body: None,
    handler: list,
};

pub(super) static NODE_SERIES: Endpoint = Endpoint {
    path: "/api/v1/nodes/{name}/series",
    id: "node_series",
    summary: "The series of a node itself, for administrators and support staff, sorted by metric.",
    parameters: &[NODE_NAME, METRIC],
    ..SERIES
};

fn list(call: Call) -> Answer {
    let arguments = call.arguments.clone();
    Box::pin(call.stream(move |reader, access, chunks| {
        let (of, _) = owner(reader, &access, &arguments)?;
        let rows = wanted_series(reader, &access, &of, &arguments)?;
        rows::SERIES.write(chunks, rows, &[])
    }))
}
