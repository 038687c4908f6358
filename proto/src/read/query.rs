//! Queries.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::id_ranges::IdRanges;
use super::row_types::Rollup;
use crate::control::{Refusal, invalid};
use crate::limits;

/// Order of listed jobs: by this value, the largest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobOrder {
    #[default]
    Started,
    /// Jobs without an end are not listed.
    Ended,
    /// Time from start to end; jobs without an end are not listed.
    Elapsed,
    /// Requested cores; unknown ones count as none.
    Cores,
}

/// Jobs of a user, and of the accounts that the user manages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobsOf {
    /// Numeric id. Jobs without a known owner are not the user's.
    pub uid: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accounts: Vec<String>,
}

impl JobsOf {
    pub const fn user(uid: u32) -> Self {
        Self { uid, accounts: Vec::new() }
    }
}

/// Choice of jobs. A field that is none admits any job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobFilter {
    /// Id of the scheduler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    /// Id in any form: the scheduler's own, the one that it prints, such as `4009_1`, or the one of an array
    /// or heterogeneous job, which stands for all of its tasks or components.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub named: Option<String>,
    /// Key in the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_key: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_uid: Option<i64>,
    /// Part of the job's name, in any case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whole_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Final states in the scheduler's terms, in any case and separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// True for jobs that have ended, false for running ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_ended: Option<bool>,
    /// Excludes jobs that ended before, in nanoseconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_ns: Option<i64>,
    /// Excludes jobs that started later, in nanoseconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_ns: Option<i64>,
    #[serde(skip_serializing_if = "is_usual")]
    pub order: JobOrder,
    /// True to list the smallest value first.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_ascending: bool,
    /// [`JobRow::listed`](super::JobRow) and the key of the last job of the previous page; none for the first
    /// page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<(i64, i64)>,
    /// Jobs that the reader may see; none for all. Only the guard in front of a store sets it.
    #[serde(skip)]
    pub visible: Option<JobsOf>,
    #[serde(default = "page")]
    pub limit: u32,
}

fn is_usual(order: &JobOrder) -> bool {
    *order == JobOrder::default()
}

const fn page() -> u32 {
    limits::QUERY_JOBS
}

/// The first page of all jobs.
impl Default for JobFilter {
    fn default() -> Self {
        Self {
            job_id: None,
            named: None,
            job_key: None,
            owner: None,
            owner_uid: None,
            name: None,
            whole_name: None,
            cluster: None,
            account: None,
            queue: None,
            state: None,
            node: None,
            is_ended: None,
            since_ns: None,
            until_ns: None,
            order: JobOrder::Started,
            is_ascending: false,
            before: None,
            visible: None,
            limit: 1000,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeriesOwner {
    /// A job, by its key in the store.
    Job(i64),
    /// A node, for its own series.
    Node(String),
    /// All nodes of a job, by its key in the store, for their own series.
    NodesOf(i64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageGroup {
    All,
    User,
    Account,
    Queue,
    /// Array or heterogeneous job; other jobs do not count.
    Array,
    Job,
}

/// Which samples of series are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SampleSet {
    /// Those of the sampling plan, of which figures and rollups are made.
    #[default]
    Plan,
    /// Those that rings kept.
    Kept,
    /// Both, one for each time of a series.
    All,
}

fn is_of_plan(set: &SampleSet) -> bool {
    *set == SampleSet::Plan
}

/// A query. Its answer is any number of rows of one type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "query", rename_all = "snake_case")]
pub enum Query {
    /// Jobs in the filter's order.
    Jobs(Box<JobFilter>),
    /// Sums over ended jobs by an attribute, the groups that wasted most first.
    Usage {
        by: UsageGroup,
        /// Span in which the jobs ended, in nanoseconds since the epoch.
        ended_ns: Range<i64>,
        /// Here `limit` counts groups.
        jobs: Box<JobFilter>,
    },
    /// Notices to persons, the newest first.
    Notices { owner_uid: Option<i64>, limit: u32 },
    /// Ids of jobs among which to search for one similar to an id.
    CandidateIds {
        job_id: String,
        /// Jobs to which the ids belong; none for all.
        #[serde(default)]
        of: Option<JobsOf>,
    },
    /// Series of a job or a node, sorted by node and metric.
    Series { of: SeriesOwner },
    /// Series of a job's nodes that have one of these metrics, sorted by node and metric.
    NodeSeries { job_key: i64, metrics: Vec<String> },
    /// Series of devices outside the nodes that are about a job's nodes, sorted by node and metric.
    DeviceSeries { job_key: i64 },
    /// Series of a job that have one of these metrics, sorted by node and metric.
    JobSeries { job_key: i64, metrics: Vec<String> },
    /// Metrics of a job, sorted by name and level, with the numbers of their series and nodes.
    JobMetrics {
        job_key: i64,
        /// Node whose series count; none for all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<String>,
    },
    /// Times of a job on its nodes.
    JobNodes { job_key: i64 },
    /// Samples of series in a span of time, sorted by series, then by time.
    Samples {
        of: SeriesOwner,
        series: IdRanges,
        /// Nanoseconds since the epoch.
        span_ns: Range<i64>,
        #[serde(default, skip_serializing_if = "is_of_plan")]
        set: SampleSet,
    },
    /// Intervals of a rollup with samples of series in a span of time, sorted by series, then by time.
    Buckets {
        rollup: Rollup,
        of: SeriesOwner,
        series: IdRanges,
        /// Nanoseconds since the epoch.
        span_ns: Range<i64>,
    },
    /// Numbers of CPUs of a job's nodes; no row for a node whose number is unknown.
    Cpus { job_key: i64 },
    /// Balance of the due samples of a job.
    Ledger { job_key: i64 },
    /// Changes of the sampling plan of a job.
    PlanChanges { job_key: i64 },
    /// Refused requests of a job's submission.
    RefusedRequests { job_key: i64 },
    /// Marks of a job.
    Marks { job_key: i64 },
    /// Intervals of a job that rings kept.
    KeptIntervals { job_key: i64 },
    /// Triggers of a job that fired.
    Firings { job_key: i64 },
    /// Histograms of the series of a job, or of a node itself, over the windows whose times are within the
    /// span, sorted by series and bucket. Without a span those over all windows; none of the nodes of a job.
    Histograms {
        of: SeriesOwner,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        span_ns: Option<Range<i64>>,
    },
    /// Samples of call stacks of a job, added up by metric, node, process and stack, or those of each
    /// interval.
    Stacks {
        job_key: i64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<String>,
        /// Span that contains the middles of the intervals, in nanoseconds since the epoch.
        span_ns: Range<i64>,
        /// True for the sums of each interval.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        by_interval: bool,
    },
    /// Sums over the intervals of call stacks of a job, by metric and node.
    StackIntervals {
        job_key: i64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<String>,
        /// Span that contains the middles of the intervals, in nanoseconds since the epoch.
        span_ns: Range<i64>,
    },
    /// Stacks of a job with their innermost functions.
    StackNodes { job_key: i64 },
    /// Losses of a job.
    Losses { job_key: i64 },
    /// The losses that were detected last, of all jobs and nodes.
    LastLosses { limit: u32 },
    /// Newest session of the agent of each node that sent something after a time.
    Agents {
        /// Nanoseconds since the epoch.
        since_ns: i64,
    },
    /// Finest rollup that has all of a job; no row if its samples are complete.
    FinestRollup {
        job_key: i64,
        /// Start of the job, in nanoseconds since the epoch.
        started_ns: i64,
    },
}

impl Query {
    pub const NAMES: [&str; 27] = [
        "jobs",
        "usage",
        "notices",
        "candidate_ids",
        "series",
        "node_series",
        "device_series",
        "job_series",
        "job_metrics",
        "job_nodes",
        "samples",
        "buckets",
        "cpus",
        "ledger",
        "plan_changes",
        "refused_requests",
        "marks",
        "kept_intervals",
        "firings",
        "histograms",
        "stacks",
        "stack_intervals",
        "stack_nodes",
        "losses",
        "last_losses",
        "agents",
        "finest_rollup",
    ];

    pub const fn name(&self) -> &'static str {
        match self {
            Self::Jobs(_) => "jobs",
            Self::Usage { .. } => "usage",
            Self::Notices { .. } => "notices",
            Self::CandidateIds { .. } => "candidate_ids",
            Self::Series { .. } => "series",
            Self::NodeSeries { .. } => "node_series",
            Self::DeviceSeries { .. } => "device_series",
            Self::JobSeries { .. } => "job_series",
            Self::JobMetrics { .. } => "job_metrics",
            Self::JobNodes { .. } => "job_nodes",
            Self::Samples { .. } => "samples",
            Self::Buckets { .. } => "buckets",
            Self::Cpus { .. } => "cpus",
            Self::Ledger { .. } => "ledger",
            Self::PlanChanges { .. } => "plan_changes",
            Self::RefusedRequests { .. } => "refused_requests",
            Self::Marks { .. } => "marks",
            Self::KeptIntervals { .. } => "kept_intervals",
            Self::Firings { .. } => "firings",
            Self::Histograms { .. } => "histograms",
            Self::Stacks { .. } => "stacks",
            Self::StackIntervals { .. } => "stack_intervals",
            Self::StackNodes { .. } => "stack_nodes",
            Self::Losses { .. } => "losses",
            Self::LastLosses { .. } => "last_losses",
            Self::Agents { .. } => "agents",
            Self::FinestRollup { .. } => "finest_rollup",
        }
    }

    /// Encodes the query as one line, with its newline.
    pub fn to_line(&self) -> Vec<u8> {
        // Serialising plain data into memory cannot fail.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }

    /// Parses one line. Refuses what is no query or exceeds a limit.
    pub fn parse(line: &[u8]) -> Result<Self, Refusal> {
        let query: Self = serde_json::from_slice(line)
            .map_err(|error| Refusal::new("malformed", None, &format!("invalid query: {error}")))?;
        match &query {
            Self::Samples { series, .. } | Self::Buckets { series, .. }
                if series.count_within(limits::QUERY_SERIES).is_none() =>
            {
                let limit = limits::QUERY_SERIES;
                Err(invalid("series", &format!("expected at most {limit} ids, as ranges in ascending order")))
            }
            Self::Jobs(filter) if filter.limit > limits::QUERY_JOBS => {
                let limit = limits::QUERY_JOBS;
                Err(invalid("limit", &format!("at most {limit} jobs; read the next page with `before`")))
            }
            Self::Usage { jobs, .. } if jobs.limit > limits::QUERY_GROUPS => {
                Err(invalid("limit", &format!("at most {} groups", limits::QUERY_GROUPS)))
            }
            Self::Notices { limit, .. } if *limit > limits::QUERY_NOTICES => {
                Err(invalid("limit", &format!("at most {} notices", limits::QUERY_NOTICES)))
            }
            Self::NodeSeries { metrics, .. } | Self::JobSeries { metrics, .. }
                if metrics.len() > limits::QUERY_METRICS =>
            {
                Err(invalid("metrics", &format!("at most {} metrics", limits::QUERY_METRICS)))
            }
            Self::LastLosses { limit } if *limit > limits::QUERY_LOSSES => {
                Err(invalid("limit", &format!("at most {} losses", limits::QUERY_LOSSES)))
            }
            Self::Samples { .. }
            | Self::Buckets { .. }
            | Self::Jobs(_)
            | Self::Usage { .. }
            | Self::Notices { .. }
            | Self::LastLosses { .. }
            | Self::Agents { .. }
            | Self::CandidateIds { .. }
            | Self::Series { .. }
            | Self::NodeSeries { .. }
            | Self::DeviceSeries { .. }
            | Self::JobSeries { .. }
            | Self::JobMetrics { .. }
            | Self::JobNodes { .. }
            | Self::Cpus { .. }
            | Self::Ledger { .. }
            | Self::PlanChanges { .. }
            | Self::RefusedRequests { .. }
            | Self::Marks { .. }
            | Self::KeptIntervals { .. }
            | Self::Firings { .. }
            | Self::Histograms { .. }
            | Self::Stacks { .. }
            | Self::StackIntervals { .. }
            | Self::StackNodes { .. }
            | Self::Losses { .. }
            | Self::FinestRollup { .. } => Ok(query),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(query: &Query) -> String {
        String::from_utf8(query.to_line()).unwrap()
    }

    #[test]
    fn queries_are_lines_of_json() {
        let filter = JobFilter {
            job_id: Some("7".to_owned()),
            before: Some((5, 2)),
            limit: 3,
            ..JobFilter::default()
        };
        let of = SeriesOwner::Job(9);
        let series: IdRanges = [4, 5, 6].into_iter().collect();
        for (query, expected) in [
            (Query::Jobs(Box::new(filter)), r#"{"query":"jobs","job_id":"7","before":[5,2],"limit":3}"#),
            (
                Query::Series { of: SeriesOwner::Node("n1".to_owned()) },
                r#"{"query":"series","of":{"node":"n1"}}"#,
            ),
            (
                Query::Samples {
                    of: of.clone(),
                    series: series.clone(),
                    span_ns: 0..10,
                    set: SampleSet::Plan,
                },
                r#"{"query":"samples","of":{"job":9},"series":[[4,6]],"span_ns":{"start":0,"end":10}}"#,
            ),
            (
                Query::Samples { of, series, span_ns: 0..10, set: SampleSet::All },
                r#"{"query":"samples","of":{"job":9},"series":[[4,6]],"span_ns":{"start":0,"end":10},"set":"all"}"#,
            ),
            (Query::Marks { job_key: 9 }, r#"{"query":"marks","job_key":9}"#),
        ] {
            assert_eq!(line(&query).trim_end(), expected);
            assert_eq!(Query::parse(expected.as_bytes()), Ok(query));
        }
    }

    #[test]
    fn queries_beyond_a_limit_are_refused() {
        let many_metrics =
            format!(r#"{{"query":"node_series","job_key":1,"metrics":["x"{}]}}"#, r#","x""#.repeat(100));
        for (line, code) in [
            (&b""[..], "malformed"),
            (b"{}", "malformed"),
            (b"\xff", "malformed"),
            (br#"{"query":"tables"}"#, "malformed"),
            (br#"{"query":"marks"}"#, "malformed"),
            (br#"{"query":"jobs","user":"x"}"#, "malformed"),
            (br#"{"query":"jobs","limit":1000000}"#, "invalid"),
            (br#"{"query":"last_losses","limit":4294967295}"#, "invalid"),
            (
                br#"{"query":"usage","by":"user","ended_ns":{"start":0,"end":1},"jobs":{"limit":10001}}"#,
                "invalid",
            ),
            (br#"{"query":"usage","by":"colour","ended_ns":{"start":0,"end":1},"jobs":{}}"#, "malformed"),
            (many_metrics.as_bytes(), "invalid"),
            (
                br#"{"query":"samples","of":{"job":1},"series":[[0,9223372036854775807]],"span_ns":{"start":0,"end":1}}"#,
                "invalid",
            ),
            (
                br#"{"query":"samples","of":{"job":1},"series":[[5,6],[1,2]],"span_ns":{"start":0,"end":1}}"#,
                "invalid",
            ),
        ] {
            let refusal = Query::parse(line).unwrap_err();
            assert_eq!(refusal.code, code, "{}: {refusal:?}", String::from_utf8_lossy(line));
        }
        let deep = "[".repeat(100_000);
        assert_eq!(Query::parse(deep.as_bytes()).unwrap_err().code, "malformed");
    }
}
