//! Parameters and look-ups that several endpoints have in common.

use polymeter_service::clock;
use polymeter_store::reader::{JobFilter, JobRow, Read};

use crate::answer::{Failure, Problem};
use crate::limits;
use crate::live::SeriesFilter;
use crate::request::{Arguments, Kind, Parameter};

pub(super) const KEY: Parameter =
    Parameter::path("key", Kind::Integer(0, i64::MAX), "The key of the job, as `jobs` returns it.");

pub(super) const FROM_US: Parameter = Parameter::query(
    "from_us",
    Kind::Integer(0, limits::LATEST_US),
    "The begin of the time, in microseconds since the epoch.",
);

pub(super) const UNTIL_US: Parameter = Parameter::query(
    "until_us",
    Kind::Integer(0, limits::LATEST_US),
    "The end of the time, which is excluded, in microseconds since the epoch.",
);

pub(super) const METRIC: Parameter = Parameter::query(
    "metric",
    Kind::Selectors,
    "Metrics: names or globs such as `cpu.*`, separated by commas.",
);

pub(super) const OF: Parameter = Parameter::query(
    "of",
    Kind::Choice(&["job", "nodes"]),
    "`job`: the series of the job (default); `nodes`: those of its nodes, while it ran there.",
);

pub(super) const NODE_NAME: Parameter = Parameter::path("name", Kind::Text, "The name of the node.");

/// Name that Kwollect gives the parameter.
pub(super) const METRICS: Parameter = Parameter { name: "metrics", ..METRIC };

pub(super) const NODE: Parameter = Parameter::query("node", Kind::Text, "The name of a node.");

pub(super) const SERIES_IDS: Parameter =
    Parameter::query("series", Kind::Integers(limits::LISTED_SERIES), "Ids of series, separated by commas.");

pub(super) fn series_filter(arguments: &Arguments) -> SeriesFilter {
    let (metrics, node) = (arguments.selectors(METRIC.name), arguments.text(NODE.name));
    SeriesFilter::new(metrics, node, arguments.integers(SERIES_IDS.name))
}

pub(super) fn time_ns(arguments: &Arguments, name: &str) -> Option<i64> {
    arguments.integer(name).map(|time_us| time_us.saturating_mul(1000))
}

pub(super) fn now_ns() -> i64 {
    clock::realtime_us().saturating_mul(1000)
}

/// Refuses a request about too many series, which `parameter` selects.
pub(super) fn check_number(series: usize, max: usize, parameter: &Parameter) -> Result<(), Problem> {
    if series <= max {
        return Ok(());
    }
    Err(Problem::invalid(parameter.name, format_args!("{series} series match; ask for at most {max}")))
}

pub(super) fn key(arguments: &Arguments) -> i64 {
    // A path without it does not lead here.
    arguments.integer(KEY.name).unwrap_or_default()
}

/// Returns the job if the user may see it.
pub(super) fn find_job(reader: &mut dyn Read, job_key: i64) -> Result<JobRow, Failure> {
    let filter = JobFilter { job_key: Some(job_key), limit: 1, ..JobFilter::default() };
    Ok(reader.jobs(&filter)?.pop().ok_or_else(Problem::unknown_job)?)
}
