//! What is answered over the control socket: version 1 of the lines. Shared with the `polymeter` command.

use std::collections::BTreeMap;
use std::path::PathBuf;

use polymeter_proto::catalogue;
use polymeter_proto::ledger::Tally;
use polymeter_proto::series::SessionId;
use polymeter_proto::text::Text;
use serde::{Deserialize, Serialize};

use crate::plan::InForce;
use crate::request::{Availability, Cost, JobView, LeaseGrant, MetricView, RefusedRequest, View};

/// What all sampling of a job is predicted to cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    /// Percent of one CPU.
    pub cpu_percent: f64,
    /// Samples per second.
    pub samples_per_s: f64,
    /// Bytes per second on the wire.
    pub bytes_per_s: f64,
}

impl Predicted {
    pub(super) const fn of(cost: Cost) -> Self {
        Self {
            cpu_percent: cost.cpu_percent,
            samples_per_s: cost.samples_per_s,
            bytes_per_s: cost.bytes_per_s,
        }
    }
}

/// One metric of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanLine {
    /// The metric.
    pub metric: String,
    /// The period in force.
    pub period: String,
    /// Because of what: `baseline`, `registration`, `lease`.
    pub cause: String,
    /// Whose lease it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When the lease ends, in microseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_us: Option<i64>,
    /// The period that the lease asks for, where the governor has stretched it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
}

/// A request at submission that is not granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedLine {
    /// The selector, or the request as it was written where it cannot be read.
    pub request: String,
    /// The period that was asked for, where it can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<String>,
    /// Why it is refused.
    pub reason: String,
}

/// One metric of the catalogue, as a subject has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricLine {
    /// The metric.
    pub metric: String,
    /// Its unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Whether it can be had now.
    pub available: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What it is read from, together with the other metrics of that source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What one read of the source takes, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_ns: Option<f64>,
    /// The period at which it is sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<String>,
}

impl MetricLine {
    fn of(view: MetricView) -> Self {
        let definition = catalogue::find(&view.name);
        let (reason, source, read_ns) = match view.availability {
            Availability::From { source, read_ns } => (None, Some(source), Some(read_ns.round())),
            Availability::NotNow => (Some("its file has no line of it at the moment".to_owned()), None, None),
            Availability::No(reason) => (Some(reason), None, None),
        };
        Self {
            unit: definition.map(|definition| definition.metric.unit.as_str().to_owned()),
            metric: view.name,
            available: reason.is_none(),
            reason,
            source,
            read_ns,
            period: view.period.map(|period| period.to_string()),
        }
    }
}

/// Metrics that cannot be had for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The reason.
    pub reason: Text,
    /// The metrics.
    pub metrics: Vec<String>,
}

/// A request that is not granted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// A word for programs: `invalid`, `forbidden`, `unknown_job`, ...
    pub code: String,
    /// The field that is at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// A sentence for people. Its type has no empty one.
    pub message: Text,
    /// What cannot be had, by the reason, where that is why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<Box<[Missing]>>,
    /// What it would have cost, where that is the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Box<Predicted>>,
    /// The period that would be granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
}

impl Refusal {
    /// A refusal with a word for programs, the field that is at fault, and a sentence for people.
    pub fn new(code: &str, field: Option<&str>, message: &str) -> Self {
        Self {
            code: code.to_owned(),
            field: field.map(|field| Text::of(field).into()),
            message: Text::of(message),
            unavailable: None,
            cost: None,
            instead: None,
        }
    }
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// To `status` and `jobs`.
    Status(Box<Status>),
    /// To `register`.
    Registered {
        /// Metrics that cannot be had, with the reasons.
        unavailable: Vec<(String, String)>,
    },
    /// To `start`.
    Started {
        /// What the owner's wishes have come to. None yet where the job's cgroups are still to come, or nothing was wished.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        granted: Option<BTreeMap<String, String>>,
        /// Why they are not granted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<Box<Refusal>>,
    },
    /// To `plan`.
    Plan {
        /// What is sampled.
        plan: Vec<PlanLine>,
        /// Metrics that are wanted and cannot be had, with the reasons.
        unavailable: Vec<(String, String)>,
        /// What the owner requested at submission and is not granted.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        refused: Vec<RefusedLine>,
    },
    /// To `set`.
    Granted {
        /// The effective period of each metric that was chosen.
        metrics: BTreeMap<String, String>,
        /// Chosen metrics that cannot be had, with the reasons.
        unavailable: Vec<(String, String)>,
        /// What all sampling of the job is predicted to cost from now on.
        cost: Predicted,
        /// When the lease ends, in microseconds since the epoch.
        until_us: i64,
    },
    /// To `metrics`.
    Metrics {
        /// The catalogue.
        metrics: Vec<MetricLine>,
    },
    /// To `reset`.
    Reset {
        /// How many leases ended.
        ended: usize,
    },
    /// To `watch`: what came of one series since the last line of it.
    Samples {
        /// The metric.
        metric: String,
        /// The labels of the series.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        labels: BTreeMap<String, String>,
        /// The unit of the values.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unit: Option<String>,
        /// `counter` or `gauge`.
        kind: String,
        /// The period at which it was sampled; none for a value that a user gave.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        period: Option<String>,
        /// When each value was read, in microseconds since the epoch.
        times_us: Vec<i64>,
        /// The values; null for what is no number.
        values: Vec<Option<f64>>,
    },
    /// To `watch`, once a second: how sampling goes.
    Progress {
        /// How long it has been watched, in seconds.
        seconds: f64,
        /// What became of the samples of all sources of the job since then.
        tally: Tally,
        /// What the agent used of late, in percent of one CPU: for all jobs and the node.
        cpu_percent: f64,
    },
    /// To `watch`: samples that came faster than they were read, and are not shown.
    Lagged {
        /// How many since the last such line.
        samples: u64,
    },
    /// To `watch`, at the end: the job has ended.
    Ended {},
    /// To what has no other answer.
    Done {},
    /// The request is not granted.
    Refused(Refusal),
}

impl Answer {
    pub(super) const fn refused(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }

    pub(super) fn plan(view: &JobView) -> Self {
        let line = |(metric, in_force): &(String, InForce)| PlanLine {
            metric: metric.clone(),
            period: in_force.period.to_string(),
            cause: in_force.cause.as_str().to_owned(),
            by: in_force.by.as_ref().map(ToString::to_string),
            until_us: in_force.until_us,
            asked: in_force.asked.map(|period| period.to_string()),
        };
        let refused = |refused: &RefusedRequest| RefusedLine {
            request: refused.request.to_string(),
            period: refused.period.map(|period| period.to_string()),
            reason: refused.reason.to_string(),
        };
        Self::Plan {
            plan: view.plan.iter().map(line).collect(),
            unavailable: view.unavailable.clone(),
            refused: view.refused.iter().map(refused).collect(),
        }
    }

    pub(super) fn metrics(metrics: Vec<MetricView>) -> Self {
        Self::Metrics { metrics: metrics.into_iter().map(MetricLine::of).collect() }
    }

    pub(super) fn granted(granted: LeaseGrant) -> Self {
        let metrics = granted.metrics.into_iter().map(|(metric, period)| (metric, period.to_string()));
        Self::Granted {
            metrics: metrics.collect(),
            unavailable: granted.unavailable,
            cost: Predicted::of(granted.cost),
            until_us: granted.until_us,
        }
    }

    /// The answer as one line.
    pub(super) fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).unwrap_or_else(|_| {
            b"{\"answer\":\"refused\",\"code\":\"internal\",\"message\":\"the answer cannot be written\"}"
                .to_vec()
        });
        line.push(b'\n');
        line
    }
}

/// How the agent goes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The version of these lines.
    pub version: u32,
    /// The agent's session.
    pub session: String,
    /// Its totals.
    pub counts: Counts,
    /// Whether the collector can be reached; none from an agent that does not say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collector: Option<CollectorStatus>,
    /// The node and the jobs.
    pub subjects: Vec<SubjectStatus>,
}

/// Totals of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    missing_docs,
    reason = "the catalogue describes each under the same name: agent.samples.due and so on"
)]
pub struct Counts {
    pub due: u64,
    pub taken: u64,
    pub late: u64,
    pub missed: u64,
    pub absent: u64,
    pub dropped: u64,
    #[serde(default)]
    pub refused: u64,
    pub frames_sent: u64,
    pub frames_acknowledged: u64,
    pub bytes_sent: u64,
    pub outbox_bytes: u64,
    #[serde(default)]
    pub spool_bytes: u64,
    pub cpu_ns: u64,
    pub resident_bytes: u64,
    #[serde(default)]
    pub jobs: u64,
    #[serde(default)]
    pub jobs_left_out: u64,
    #[serde(default)]
    pub descriptors: u64,
    #[serde(default)]
    pub descriptor_limit: u64,
}

/// The way to the collector. Times are in microseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectorStatus {
    /// Where it is looked for.
    pub address: String,
    /// Whether there is a connection.
    pub connected: bool,
    /// Since when that is so.
    pub since_us: Option<i64>,
    /// When it acknowledged something last.
    pub acknowledged_us: Option<i64>,
    /// When this was said.
    pub now_us: i64,
    /// Bytes that wait to be acknowledged, in memory and in the spool.
    pub backlog_bytes: u64,
}

/// The node, or one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubjectStatus {
    /// The job's id; none for the node.
    pub job: Option<String>,
    /// Its owner's numeric id.
    pub uid: Option<u32>,
    /// Its owner's name.
    pub user: Option<String>,
    /// When it began to be followed, in microseconds since the epoch.
    pub started_us: Option<i64>,
    /// Its cgroup directories.
    #[serde(default)]
    pub cgroups: Vec<PathBuf>,
    /// Its sources.
    pub sources: Vec<SourceStatus>,
    /// Metrics that cannot be had, with the reasons.
    pub unavailable: Vec<(String, String)>,
}

/// One source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceStatus {
    /// What it is called.
    pub name: String,
    /// What became of its samples.
    pub tally: Tally,
    /// How often it was read.
    pub reads: u64,
    /// The mean time of a read, in nanoseconds.
    pub read_mean_ns: u64,
    /// The longest time of a read, in nanoseconds.
    pub read_most_ns: u64,
}

impl Status {
    pub(super) fn new(session: SessionId, counts: &Counts, collector: CollectorStatus, view: &View) -> Self {
        let subjects = view.subjects.iter().map(SubjectStatus::of).collect();
        let (session, collector) = (session.to_string(), Some(collector));
        Self { version: 1, session, counts: counts.clone(), collector, subjects }
    }
}

impl SubjectStatus {
    fn of(view: &JobView) -> Self {
        let source = |source: &crate::request::SourceView| SourceStatus {
            name: source.name.clone(),
            tally: source.tally,
            reads: source.reads,
            read_mean_ns: source.read_total_ns.checked_div(source.reads).unwrap_or(0),
            read_most_ns: source.read_max_ns,
        };
        Self {
            job: view.job_id.as_ref().map(ToString::to_string),
            uid: view.owner_uid,
            user: view.owner.as_ref().map(ToString::to_string),
            started_us: view.started_us,
            cgroups: view.cgroups.clone(),
            sources: view.sources.iter().map(source).collect(),
            unavailable: view.unavailable.clone(),
        }
    }
}
