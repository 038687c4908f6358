//! The lines of the control socket: version 1. Shared with the `polymeter` command.

use std::path::PathBuf;

use polymeter_proto::ledger::Tally;
use polymeter_proto::series::SessionId;
use serde::{Deserialize, Serialize};

use crate::config;
use crate::plan::Layer;
use crate::request::{JobSpec, JobView, View};

/// What is asked: `{"verb": "status"}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case")]
pub enum Verb {
    /// What is followed and how it goes.
    Status,
    /// The same; kept apart because its answer will be narrower for ordinary users.
    Jobs,
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
    pub plan: std::collections::BTreeMap<String, String>,
}

/// A request that is not granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// A word for programs: `invalid`, `forbidden`, `unknown_job`, ...
    pub code: String,
    /// The field that is at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// A sentence for people.
    pub message: String,
}

impl Refusal {
    pub(super) fn new(code: &str, field: Option<&str>, message: &str) -> Self {
        Self { code: code.to_owned(), field: field.map(str::to_owned), message: message.to_owned() }
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
    /// To what has no other answer.
    Done {},
    /// The request is not granted.
    Refused(Refusal),
}

impl Answer {
    pub(super) const fn refused(refusal: Refusal) -> Self {
        Self::Refused(refusal)
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
