//! Endpoints, one file for each group of resources. A new one is declared there, and listed in [`ALL`].

mod agents;
mod compare;
mod control;
mod course;
mod events;
mod job;
mod job_cores;
mod jobs;
mod kwollect;
mod live;
mod losses;
mod metrics;
mod nodes;
mod notices;
mod parameters;
mod parts;
mod percentiles;
mod report;
mod samples;
mod samples_parquet;
mod sampling;
mod series;
mod stacks;
mod trend;
mod usage;
mod waste;

use crate::request::Endpoint;

/// Listed in the order of the OpenAPI document.
pub(crate) static ALL: &[&Endpoint] = &[
    &nodes::WHOAMI,
    &jobs::JOBS,
    &job_cores::JOB_CORES,
    &waste::OVERVIEW,
    &job::JOB,
    &job::JOB_NODES,
    &report::REPORT,
    &report::SUMMARY,
    &report::FINDINGS,
    &series::SERIES,
    &samples::SAMPLES,
    &metrics::METRICS,
    &percentiles::PERCENTILES,
    &course::COURSE,
    &stacks::STACKS,
    &compare::COMPARE,
    &trend::TREND,
    &live::LIVE,
    &events::MARKS,
    &events::KEPT_INTERVALS,
    &events::FIRINGS,
    &events::PLAN_CHANGES,
    &events::LOSSES,
    &events::REFUSED_REQUESTS,
    &control::PLAN,
    &sampling::SAMPLING,
    &control::SET_PERIODS,
    &control::RESET_PERIODS,
    &usage::USAGE,
    &usage::TOTAL,
    &notices::NOTICES,
    &nodes::NODES,
    &series::NODE_SERIES,
    &samples::NODE_SAMPLES,
    &percentiles::NODE_PERCENTILES,
    &agents::AGENTS,
    &losses::LOSS_TREND,
    &kwollect::KWOLLECT,
];
