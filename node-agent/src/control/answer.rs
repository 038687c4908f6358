//! The lines of the control socket: version 1. Shared with the `polymeter` command.

use std::collections::BTreeMap;
use std::path::PathBuf;

use polymeter_proto::ledger::Tally;
use polymeter_proto::period::Period;
use polymeter_proto::series::{Identifier, SessionId};
use serde::{Deserialize, Serialize};

use crate::config;
use crate::plan::{InForce, Layer};
use crate::request::{Cost, Granted, JobSpec, JobView, SetSpec, View};

/// What is asked: `{"verb": "status"}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case")]
pub enum Verb {
    /// What is followed and how it goes.
    Status,
    /// The same; kept apart because its answer will be narrower for ordinary users.
    Jobs,
    /// What of a job is sampled, at which period, and because of whom; without a job, of the node.
    Plan {
        /// The job's id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job: Option<String>,
    },
    /// Sample at other periods for a while.
    Set(Lease),
    /// End one's leases on a job.
    Reset {
        /// The job's id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job: Option<String>,
    },
    /// Follow a job.
    Register(Register),
    /// Take a registered job's last reading and let it go.
    Unregister {
        /// The job's id.
        job: String,
    },
    /// Send what has been sampled so far.
    Flush,
}

/// A job to be followed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Register {
    /// The job's id.
    pub job: String,
    /// The cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The owner's numeric id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The owner's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Its cgroup directories.
    #[serde(default)]
    pub cgroups: Vec<PathBuf>,
    /// Without cgroups: its first process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    /// Selectors and periods beyond the baseline.
    #[serde(default)]
    pub plan: BTreeMap<String, String>,
}

/// A wish to sample at other periods for a while.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    /// The job's id; without it, the node's own metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Selectors and periods.
    pub plan: BTreeMap<String, String>,
    /// For how long: `10min`; without it, for as long as is allowed.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
}

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
}

/// A request that is not granted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// A word for programs: `invalid`, `forbidden`, `unknown_job`, ...
    pub code: String,
    /// The field that is at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// A sentence for people.
    pub message: String,
    /// What it would have cost, where that is the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Box<Predicted>>,
    /// The period that would be granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
}

impl Refusal {
    pub(super) fn new(code: &str, field: Option<&str>, message: &str) -> Self {
        Self {
            code: code.to_owned(),
            field: field.map(str::to_owned),
            message: message.to_owned(),
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
    /// To `plan`.
    Plan {
        /// What is sampled.
        plan: Vec<PlanLine>,
        /// Metrics that are wanted and cannot be had, with the reasons.
        unavailable: Vec<(String, String)>,
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
    /// To `reset`.
    Reset {
        /// How many leases ended.
        ended: usize,
    },
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
        };
        Self::Plan { plan: view.plan.iter().map(line).collect(), unavailable: view.unavailable.clone() }
    }

    pub(super) fn granted(granted: Granted) -> Self {
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
    pub frames_sent: u64,
    pub frames_acknowledged: u64,
    pub bytes_sent: u64,
    pub outbox_bytes: u64,
    pub cpu_ns: u64,
    pub resident_bytes: u64,
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
    pub(super) fn new(session: SessionId, counts: &Counts, view: &View) -> Self {
        let subjects = view.subjects.iter().map(SubjectStatus::of).collect();
        Self { version: 1, session: session.to_string(), counts: counts.clone(), subjects }
    }
}

impl SubjectStatus {
    fn of(view: &JobView) -> Self {
        let source = |source: &crate::request::SourceView| SourceStatus {
            name: source.name.clone(),
            tally: source.tally,
            reads: source.reads,
            read_mean_ns: source.read_total_ns.checked_div(source.reads).unwrap_or(0),
            read_most_ns: source.read_most_ns,
        };
        Self {
            job: view.job_id.as_ref().map(ToString::to_string),
            uid: view.owner_uid,
            user: view.owner.as_ref().map(ToString::to_string),
            started_us: view.started_us,
            sources: view.sources.iter().map(source).collect(),
            unavailable: view.unavailable.clone(),
        }
    }
}

impl Lease {
    /// What is meant, by whom.
    pub(super) fn spec(self, uid: u32) -> Result<SetSpec, Refusal> {
        let invalid = |field: &str, message: &str| Refusal::new("invalid", Some(field), message);
        let job_id = self.job.as_deref().map(Identifier::try_from).transpose();
        let job_id = job_id.map_err(|error| invalid("job", &error.to_string()))?;
        let mut wishes = Vec::new();
        for (selector, period) in &self.plan {
            let rule = config::rule(selector, period).map_err(|error| invalid("plan", &error.to_string()))?;
            let off = "a lease can shorten a period, and not switch a metric off";
            wishes.push((rule.selector, rule.period.ok_or_else(|| invalid("plan", off))?));
        }
        if wishes.is_empty() {
            return Err(invalid("plan", "it names no metric"));
        }
        let duration = self.duration.as_deref().map(str::parse::<Period>).transpose();
        let duration = duration.map_err(|error| invalid("for", &error.to_string()))?;
        Ok(SetSpec { uid, job_id, wishes, duration_us: duration.map(Period::as_micros) })
    }
}

impl Register {
    /// What is meant.
    pub(super) fn spec(self) -> Result<JobSpec, Refusal> {
        let invalid = |field: &str, message: &str| Refusal::new("invalid", Some(field), message);
        let identifier = |field: &'static str, text: &str| {
            text.try_into().map_err(|error: polymeter_proto::series::InvalidIdentifier| {
                invalid(field, &error.to_string())
            })
        };
        let mut rules = Vec::new();
        for (selector, period) in &self.plan {
            rules.push(config::rule(selector, period).map_err(|error| invalid("plan", &error.to_string()))?);
        }
        let relative = |path: &&PathBuf| {
            !path.is_absolute() || path.components().any(|part| part == std::path::Component::ParentDir)
        };
        if let Some(path) = self.cgroups.iter().find(relative) {
            return Err(invalid(
                "cgroups",
                &format!("`{}` is no absolute path without `..`", path.display()),
            ));
        }
        Ok(JobSpec {
            job_id: identifier("job", &self.job)?,
            cluster: self.cluster.as_deref().map(|text| identifier("cluster", text)).transpose()?,
            owner_uid: self.uid,
            owner: self.user.as_deref().map(|text| identifier("user", text)).transpose()?,
            cgroups: self.cgroups,
            process: self.process,
            wishes: Layer::new(rules),
        })
    }
}

/// The request that a line is.
pub(super) fn parse(line: &[u8]) -> Result<Verb, Refusal> {
    let value: serde_json::Value = serde_json::from_slice(line)
        .map_err(|error| Refusal::new("malformed", None, &format!("it is no JSON: {error}")))?;
    let Some(object) = value.as_object() else {
        return Err(Refusal::new(
            "malformed",
            None,
            "a request is a JSON object, such as {\"verb\": \"status\"}",
        ));
    };
    if object.get("verb").and_then(serde_json::Value::as_str).is_none() {
        return Err(Refusal::new(
            "malformed",
            Some("verb"),
            "it must say what is asked: {\"verb\": \"status\"}",
        ));
    }
    serde_json::from_value(value).map_err(|error| Refusal::new("invalid", Some("verb"), &error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_objects_with_a_verb() {
        assert_eq!(parse(b"{\"verb\":\"status\"}"), Ok(Verb::Status));
        for (line, code) in [
            (&b"hello"[..], "malformed"),
            (b"[]", "malformed"),
            (b"{}", "malformed"),
            (b"{\"verb\":\"dance\"}", "invalid"),
            (b"{\"verb\":\"register\"}", "invalid"),
            (b"\xff", "malformed"),
        ] {
            assert_eq!(parse(line).unwrap_err().code, code, "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn a_registration_is_checked_field_by_field() {
        let register = |json: &str| {
            let Ok(Verb::Register(register)) = parse(json.as_bytes()) else { panic!("{json}") };
            register.spec()
        };
        let good = register("{\"verb\":\"register\",\"job\":\"42\",\"uid\":7,\"cgroups\":[\"/sys/fs/cgroup/x\"],\"plan\":{\"cpu.*\":\"10ms\"}}").unwrap();
        assert_eq!((good.job_id.as_str(), good.owner_uid), ("42", Some(7)));
        for (json, field) in [
            ("{\"verb\":\"register\",\"job\":\"\"}", "job"),
            ("{\"verb\":\"register\",\"job\":\"1\",\"cgroups\":[\"../x\"]}", "cgroups"),
            ("{\"verb\":\"register\",\"job\":\"1\",\"cgroups\":[\"/sys/../etc\"]}", "cgroups"),
            ("{\"verb\":\"register\",\"job\":\"1\",\"plan\":{\"cpu.usge\":\"1s\"}}", "plan"),
            ("{\"verb\":\"register\",\"job\":\"1\",\"plan\":{\"cpu.*\":\"1us\"}}", "plan"),
        ] {
            assert_eq!(register(json).unwrap_err().field.as_deref(), Some(field), "{json}");
        }
    }
}
