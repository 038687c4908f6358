//! What can be asked over the control socket: the requests as programs write them, and their meaning.

use std::collections::BTreeMap;
use std::path::{Component, PathBuf};

use polymeter_proto::ledger::MarkKind;
use polymeter_proto::name::{InvalidName, MetricName, Selector};
use polymeter_proto::period::Period;
use polymeter_proto::series::{Identifier, Labels};
use serde::Serialize;

use super::answer::Refusal;
use super::fields::{Fields, invalid};
use super::scheduler_hooks::{End, Start};
use crate::config;
use crate::plan::{Layer, Rule};
use crate::principal::Principal;
use crate::request::{JobSpec, LeaseRequest, MarkSpec, PushSpec};

/// Selectors of one who watches: each is held against the name of every series of the job.
const SELECTORS: usize = 64;

/// What is asked: `{"verb": "status"}`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "verb", rename_all = "snake_case")]
pub enum Verb {
    /// What is followed and how it goes.
    Status,
    /// The jobs that are followed.
    Jobs,
    /// The catalogue: what of it can be had, and what a read of it costs.
    Metrics(Subject),
    /// What is sampled, at which period, and because of whom.
    Plan(Subject),
    /// Sample at other periods for a while.
    Set(Lease),
    /// End one's leases on a job.
    Reset(Subject),
    /// Put an instant, or the begin or end of a phase, into the data.
    Mark(Mark),
    /// Put a value of the user's own into the data.
    Push(Push),
    /// WatchStream what is sampled, as it is sampled.
    Watch(Watch),
    /// Follow a job.
    Register(Register),
    /// Take a registered job's last reading and let it go.
    Unregister(Subject),
    /// Know of a job that the scheduler starts.
    Start(Box<Start>),
    /// Know that the scheduler has ended a job.
    End(End),
    /// Send what has been sampled so far.
    Flush,
}

/// Whose metrics are meant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Subject {
    /// The job's id; without it, the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

/// A job to be followed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Register {
    /// The job's id.
    pub job: String,
    /// The cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The owner's numeric id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The owner's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Its cgroup directories.
    pub cgroups: Vec<PathBuf>,
    /// Without cgroups: its first process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    /// Selectors and periods beyond the baseline.
    pub plan: BTreeMap<String, String>,
}

/// A wish to sample at other periods for a while.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Lease {
    /// The job's id; without it, the node's own metrics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Selectors and periods.
    pub plan: BTreeMap<String, String>,
    /// For how long: `10min`; without it, for as long as is allowed.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
}

/// An instant, or an end of a phase, to be marked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Mark {
    /// The job's id; without it, the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// What is marked.
    pub name: String,
    /// `instant`, `begin` or `end`; without it, an instant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// A value of the user's own metric.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Push {
    /// The job's id; without it, the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The metric's name; in the data it begins with `user.`.
    pub metric: String,
    /// Its value.
    pub value: f64,
    /// Its unit, such as `images/s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// What tells the series from others of the metric.
    pub labels: BTreeMap<String, String>,
}

/// What is to be shown as it is sampled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Watch {
    /// The job's id; without it, the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Selectors of metrics; all without any.
    pub metrics: Vec<String>,
}

impl Verb {
    /// The request that a line is.
    pub(super) fn parse(line: &[u8]) -> Result<Self, Refusal> {
        let mut fields = Fields::of(line)?;
        let verb = fields.needed_text("verb", "\"status\"")?;
        let request = match verb.as_str() {
            "status" => Self::Status,
            "jobs" => Self::Jobs,
            "metrics" => Self::Metrics(Subject { job: fields.text("job")? }),
            "plan" => Self::Plan(Subject { job: fields.text("job")? }),
            "set" => Self::Set(Lease::take(&mut fields)?),
            "reset" => Self::Reset(Subject { job: fields.text("job")? }),
            "mark" => Self::Mark(Mark::take(&mut fields)?),
            "push" => Self::Push(Push::take(&mut fields)?),
            "watch" => Self::Watch(Watch::take(&mut fields)?),
            "register" => Self::Register(Register::take(&mut fields)?),
            "unregister" => Self::Unregister(Subject { job: Some(fields.needed_text("job", "\"4242\"")?) }),
            "start" => Self::Start(Box::new(Start::take(&mut fields)?)),
            "end" => Self::End(End::take(&mut fields)?),
            "flush" => Self::Flush,
            _ => {
                let known = "status, jobs, metrics, plan, set, reset, mark, push, watch, register, unregister, start, end, flush";
                let shown: String = verb.chars().take(64).collect();
                return Err(invalid("verb", &format!("nothing is called `{shown}`; there are: {known}")));
            }
        };
        fields.finish()?;
        Ok(request)
    }
}

impl Subject {
    /// The job that is meant; none for the node.
    pub(super) fn id(&self) -> Result<Option<Identifier>, Refusal> {
        self.job.as_deref().map(|job| identifier("job", job)).transpose()
    }
}

impl Lease {
    fn take(fields: &mut Fields) -> Result<Self, Refusal> {
        Ok(Self { job: fields.text("job")?, plan: fields.table("plan")?, duration: fields.text("for")? })
    }

    /// What is meant.
    pub(super) fn spec(self, principal: Principal) -> Result<LeaseRequest, Refusal> {
        let job_id = Subject { job: self.job }.id()?;
        let wishes = wishes(&self.plan)?;
        if wishes.is_empty() {
            return Err(invalid("plan", &"it names no metric; write \"plan\": {\"cpu.*\": \"10ms\"}"));
        }
        let duration = self.duration.as_deref().map(str::parse::<Period>).transpose();
        let duration = duration.map_err(|error| invalid("for", &error))?;
        Ok(LeaseRequest {
            principal,
            job_id,
            metrics: wishes,
            since_us: None,
            duration_us: duration.map(Period::as_micros),
        })
    }
}

impl Mark {
    fn take(fields: &mut Fields) -> Result<Self, Refusal> {
        Ok(Self {
            job: fields.text("job")?,
            name: fields.needed_text("name", "\"solver\"")?,
            kind: fields.text("kind")?,
        })
    }

    /// What is meant.
    pub(super) fn spec(self, principal: Principal) -> Result<MarkSpec, Refusal> {
        let kind = match self.kind.as_deref() {
            None => MarkKind::Instant,
            Some(text) => {
                MarkKind::of(text).ok_or_else(|| invalid("kind", &"it is `instant`, `begin` or `end`"))?
            }
        };
        let job_id = Subject { job: self.job }.id()?;
        Ok(MarkSpec { principal, job_id, name: identifier("name", &self.name)?, kind })
    }
}

impl Push {
    fn take(fields: &mut Fields) -> Result<Self, Refusal> {
        Ok(Self {
            job: fields.text("job")?,
            metric: fields.needed_text("metric", "\"loss\"")?,
            value: fields.needed_float("value", "0.25")?,
            unit: fields.text("unit")?,
            labels: fields.table("labels")?,
        })
    }

    /// What is meant.
    pub(super) fn spec(self, principal: Principal) -> Result<PushSpec, Refusal> {
        let name = self.metric.strip_prefix("user.").unwrap_or(&self.metric);
        let metric = MetricName::new(format!("user.{name}")).map_err(|error| invalid("metric", &error))?;
        if self.labels.contains_key("unit") {
            return Err(invalid("labels", &"the unit has a field of its own: `unit`"));
        }
        let unit = self.unit.map(|unit| identifier("unit", &unit)).transpose()?;
        let unit = unit.map(|unit| ("unit".to_owned(), unit.as_str().to_owned()));
        let labels = Labels::new(self.labels.into_iter().chain(unit).collect());
        Ok(PushSpec {
            principal,
            job_id: Subject { job: self.job }.id()?,
            metric,
            value: self.value,
            labels: labels.map_err(|error| invalid("labels", &error))?,
        })
    }
}

impl Watch {
    fn take(fields: &mut Fields) -> Result<Self, Refusal> {
        Ok(Self { job: fields.text("job")?, metrics: fields.texts("metrics")? })
    }

    /// What is meant: the job, and which metrics.
    pub(super) fn spec(self) -> Result<(Option<Identifier>, Vec<Selector>), Refusal> {
        if self.metrics.len() > SELECTORS {
            return Err(invalid("metrics", &format!("it has more than {SELECTORS} selectors")));
        }
        let selectors: Result<_, _> = self.metrics.iter().map(|selector| selector.parse()).collect();
        let selectors = selectors.map_err(|error: InvalidName| invalid("metrics", &error))?;
        Ok((Subject { job: self.job }.id()?, selectors))
    }
}

impl Register {
    fn take(fields: &mut Fields) -> Result<Self, Refusal> {
        Ok(Self {
            job: fields.needed_text("job", "\"4242\"")?,
            cluster: fields.text("cluster")?,
            uid: fields.number("uid")?,
            user: fields.text("user")?,
            cgroups: fields.texts("cgroups")?.into_iter().map(PathBuf::from).collect(),
            process: fields.number("process")?,
            plan: fields.table("plan")?,
        })
    }

    /// What is meant.
    pub(super) fn spec(self) -> Result<JobSpec, Refusal> {
        let elsewhere = |path: &&PathBuf| {
            !path.is_absolute() || path.components().any(|part| part == Component::ParentDir)
        };
        if let Some(path) = self.cgroups.iter().find(elsewhere) {
            let message = format!("`{}` is no absolute path without `..`", path.display());
            return Err(invalid("cgroups", &message));
        }
        Ok(JobSpec {
            job_id: identifier("job", &self.job)?,
            cluster: name("cluster", self.cluster)?,
            owner_uid: self.uid,
            owner: name("user", self.user)?,
            cgroups: self.cgroups,
            process: self.process,
            sampling: Layer::new(rules(&self.plan)?),
        })
    }
}

pub(super) fn identifier(field: &str, text: &str) -> Result<Identifier, Refusal> {
    Identifier::try_from(text).map_err(|error| invalid(field, &error))
}

/// A name that may be left out.
pub(super) fn name(field: &str, text: Option<String>) -> Result<Option<Identifier>, Refusal> {
    text.map(|text| identifier(field, &text)).transpose()
}

/// The wishes of a plan that shortens periods for a while.
pub(super) fn wishes(plan: &BTreeMap<String, String>) -> Result<Vec<(Selector, Period)>, Refusal> {
    let off = "a lease can shorten a period, and not switch a metric off";
    let wish = |Rule { selector, period }: Rule| match period {
        Some(period) => Ok((selector, period)),
        None => Err(invalid("plan", &off)),
    };
    rules(plan)?.into_iter().map(wish).collect()
}

fn rules(plan: &BTreeMap<String, String>) -> Result<Vec<Rule>, Refusal> {
    let rule = |(selector, period): (&String, &String)| config::rule(selector, period);
    plan.iter().map(rule).collect::<Result<_, _>>().map_err(|error| invalid("plan", &error))
}

#[cfg(test)]
mod tests {
    use polymeter_proto::text::Unprintable;
    use proptest::prelude::*;

    use super::*;

    fn fault(line: &str) -> (String, Option<String>) {
        let principal = Principal { uid: 1000, administrator: false };
        let refused = match Verb::parse(line.as_bytes()) {
            Err(refusal) => refusal,
            Ok(Verb::Set(lease)) => lease.spec(principal).unwrap_err(),
            Ok(Verb::Mark(mark)) => mark.spec(principal).unwrap_err(),
            Ok(Verb::Push(push)) => push.spec(principal).unwrap_err(),
            Ok(Verb::Watch(watch)) => watch.spec().unwrap_err(),
            Ok(Verb::Register(register)) => register.spec().unwrap_err(),
            Ok(Verb::Plan(subject)) => subject.id().unwrap_err(),
            Ok(other) => panic!("{line} is {other:?}"),
        };
        (refused.code, refused.field)
    }

    #[test]
    fn requests_are_objects_with_a_verb() {
        assert_eq!(Verb::parse(b"{\"verb\":\"status\"}"), Ok(Verb::Status));
        assert_eq!(Verb::parse(b"{\"verb\":\"plan\",\"job\":null}"), Ok(Verb::Plan(Subject { job: None })));
        for line in ["hello", "[]", "\"status\"", "{\"verb\":\"status\"", ""] {
            assert_eq!(fault(line), ("malformed".to_owned(), None), "{line}");
        }
        assert_eq!(Verb::parse(b"\xff").unwrap_err().code, "malformed");
    }

    #[test]
    fn a_refusal_names_the_field() {
        for (line, field) in [
            ("{}", "verb"),
            ("{\"verb\":7}", "verb"),
            ("{\"verb\":\"dance\"}", "verb"),
            ("{\"verb\":\"status\",\"jb\":1}", "jb"),
            ("{\"verb\":\"plan\",\"job\":4242}", "job"),
            ("{\"verb\":\"plan\",\"job\":\"\"}", "job"),
            ("{\"verb\":\"set\",\"job\":\"1\"}", "plan"),
            ("{\"verb\":\"set\",\"job\":\"1\",\"plan\":{}}", "plan"),
            ("{\"verb\":\"set\",\"job\":\"1\",\"plan\":[]}", "plan"),
            ("{\"verb\":\"set\",\"job\":\"1\",\"plan\":{\"cpu.*\":10}}", "plan"),
            ("{\"verb\":\"set\",\"job\":\"1\",\"plan\":{\"cpu.*\":\"off\"}}", "plan"),
            ("{\"verb\":\"set\",\"job\":\"1\",\"plan\":{\"cpu.*\":\"10ms\"},\"for\":600}", "for"),
            ("{\"verb\":\"set\",\"job\":\"1\",\"plan\":{\"cpu.*\":\"10ms\"},\"for\":\"ever\"}", "for"),
            ("{\"verb\":\"unregister\"}", "job"),
            ("{\"verb\":\"mark\",\"job\":\"1\"}", "name"),
            ("{\"verb\":\"mark\",\"job\":\"1\",\"name\":\"<b>\"}", "name"),
            ("{\"verb\":\"mark\",\"job\":\"1\",\"name\":\"x\",\"kind\":\"middle\"}", "kind"),
            ("{\"verb\":\"push\",\"metric\":\"loss\"}", "value"),
            ("{\"verb\":\"push\",\"metric\":\"loss\",\"value\":\"1\"}", "value"),
            ("{\"verb\":\"push\",\"metric\":\"Loss!\",\"value\":1}", "metric"),
            ("{\"verb\":\"push\",\"metric\":\"loss\",\"value\":1,\"labels\":{\"unit\":\"x\"}}", "labels"),
            ("{\"verb\":\"push\",\"metric\":\"loss\",\"value\":1,\"labels\":{\"a\":\"\\n\"}}", "labels"),
            ("{\"verb\":\"watch\",\"job\":\"\"}", "job"),
            ("{\"verb\":\"watch\",\"metrics\":\"cpu.*\"}", "metrics"),
            ("{\"verb\":\"watch\",\"metrics\":[\"cpu.[ab]\"]}", "metrics"),
            ("{\"verb\":\"register\",\"cgroups\":[]}", "job"),
            ("{\"verb\":\"register\",\"job\":\"1\",\"uid\":-1}", "uid"),
            ("{\"verb\":\"register\",\"job\":\"1\",\"uid\":1e99}", "uid"),
            ("{\"verb\":\"register\",\"job\":\"1\",\"cgroups\":[\"../x\"]}", "cgroups"),
            ("{\"verb\":\"register\",\"job\":\"1\",\"cgroups\":[\"/sys/../etc\"]}", "cgroups"),
            ("{\"verb\":\"register\",\"job\":\"1\",\"plan\":{\"cpu.usge\":\"1s\"}}", "plan"),
            ("{\"verb\":\"register\",\"job\":\"1\",\"plan\":{\"cpu.*\":\"1us\"}}", "plan"),
        ] {
            assert_eq!(fault(line), ("invalid".to_owned(), Some(field.to_owned())), "{line}");
        }
    }

    #[test]
    fn what_is_said_is_meant() {
        let principal = Principal { uid: 1000, administrator: false };
        let line = b"{\"verb\":\"register\",\"job\":\"42\",\"uid\":7,\"cgroups\":[\"/sys/fs/cgroup/x\"],\"plan\":{\"cpu.*\":\"10ms\"}}";
        let Ok(Verb::Register(register)) = Verb::parse(line) else { panic!("no registration") };
        let job = register.spec().unwrap();
        assert_eq!((job.job_id.as_str(), job.owner_uid), ("42", Some(7)));
        let line = b"{\"verb\":\"push\",\"job\":\"42\",\"metric\":\"loss\",\"value\":0.5,\"unit\":\"nats\",\"labels\":{\"rank\":\"3\"}}";
        let Ok(Verb::Push(push)) = Verb::parse(line) else { panic!("no push") };
        let pushed = push.spec(principal).unwrap();
        assert_eq!((pushed.metric.as_str(), pushed.value), ("user.loss", 0.5));
        assert_eq!(pushed.labels.to_string(), "rank=3,unit=nats");
    }

    #[test]
    fn what_programs_write_is_understood() {
        let verbs = [
            Verb::Status,
            Verb::Metrics(Subject { job: Some("1".to_owned()) }),
            Verb::Set(Lease { job: None, plan: [("*".to_owned(), "1s".to_owned())].into(), duration: None }),
            Verb::Mark(Mark { job: None, name: "x".to_owned(), kind: Some("begin".to_owned()) }),
            Verb::Push(Push { metric: "loss".to_owned(), value: 1.5, ..Push::default() }),
            Verb::Watch(Watch { job: None, metrics: vec!["cpu.*".to_owned()] }),
            Verb::Register(Register { job: "1".to_owned(), uid: Some(3), ..Register::default() }),
            Verb::Flush,
        ];
        for verb in verbs {
            let line = serde_json::to_vec(&verb).unwrap();
            assert_eq!(Verb::parse(&line), Ok(verb));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(line in prop::collection::vec(any::<u8>(), 0..200)) {
            Verb::parse(&line).ok();
        }

        #[test]
        fn a_name_is_printable_or_refused_in_printable_words(name in any::<String>(), deceiving in "[\u{200b}-\u{202e}\u{feff}a-z ]{0,8}") {
            let is_printable = |text: &str| text.chars().all(|c| Unprintable::of(c).is_none());
            for name in [name, deceiving] {
                let line = serde_json::json!({"verb": "mark", "job": name, "name": name}).to_string();
                let Ok(Verb::Mark(mark)) = Verb::parse(line.as_bytes()) else { panic!("{line}") };
                match mark.spec(Principal { uid: 1000, administrator: false }) {
                    Ok(spec) => prop_assert!(is_printable(spec.name.as_str()) && !name.trim().is_empty()),
                    Err(refusal) => prop_assert!(is_printable(refusal.message.as_str())),
                }
            }
        }
    }
}
