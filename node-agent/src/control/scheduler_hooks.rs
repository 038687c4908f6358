//! What a scheduler tells of its jobs: that one starts here, and that it has ended. `polymeter job` asks these.

use std::collections::BTreeMap;

use polymeter_proto::ledger::JobFacts;
use polymeter_proto::period::Period;
use polymeter_proto::series::Identifier;
use polymeter_proto::text::Text;
use serde::Serialize;

use super::answer::Refusal;
use super::fields::{Fields, invalid};
use super::verb::{identifier, name, wishes};
use crate::request::{RefusedRequest, SamplingRequest, StartSpec};

/// A job that the scheduler starts on this node; its cgroups may come later.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Start {
    /// The job's id.
    pub job: String,
    /// Another name, which its cgroups carry: Slurm's SLUID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// The cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The owner's numeric id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The owner's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What its owner wishes: selectors and periods.
    pub plan: BTreeMap<String, String>,
    /// For how long she wishes it; without it, for as long as is allowed.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// The request as the owner wrote it, where it cannot be read as a plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_error: Option<String>,
    /// The account or project that the job is charged to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The queue or partition that it was submitted to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Its nodes, as the scheduler writes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<String>,
    /// How many cores it has on all nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
}

/// A job that the scheduler says has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct End {
    /// The job's id.
    pub job: String,
    /// How it ended, in the scheduler's word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The exit status of its script.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u32>,
    /// The signal that ended its script.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_signal: Option<u32>,
}

impl Start {
    pub(super) fn take(fields: &mut Fields) -> Result<Self, Refusal> {
        Ok(Self {
            job: fields.needed_text("job", "\"4242\"")?,
            alias: fields.text("alias")?,
            cluster: fields.text("cluster")?,
            uid: fields.number("uid")?,
            user: fields.text("user")?,
            plan: fields.table("plan")?,
            duration: fields.text("for")?,
            request: fields.text("request")?,
            request_error: fields.text("request_error")?,
            account: fields.text("account")?,
            queue: fields.text("queue")?,
            nodes: fields.text("nodes")?,
            cores: fields.number("cores")?,
        })
    }

    /// What is meant, and what is wrong with the owner's wishes: they harm nothing but themselves.
    pub(super) fn spec(self) -> Result<(StartSpec, Option<Refusal>), Refusal> {
        let (wishes, refusal) = match wishes_of(&self.plan, self.duration.as_deref()) {
            Ok(wishes) => (wishes, None),
            Err(refusal) => (None, Some(refusal)),
        };
        let unreadable = self.request_error.map(|error| invalid("request", &error));
        let refusal = refusal.or(unreadable);
        let written = self.request.unwrap_or_else(|| {
            let pairs = self.plan.iter().map(|(selector, period)| format!("{selector}={period}"));
            pairs.collect::<Vec<_>>().join(", ")
        });
        let refused = refusal.as_ref().map(|refusal| RefusedRequest {
            request: Text::of(&written),
            period: None,
            reason: refusal.message.clone(),
        });
        let spec = StartSpec {
            job_id: identifier("job", &self.job)?,
            alias: name("alias", self.alias)?,
            cluster: name("cluster", self.cluster)?,
            owner_uid: self.uid,
            owner: name("user", self.user)?,
            sampling: wishes,
            refused,
            facts: JobFacts {
                account: name("account", self.account)?,
                queue: name("queue", self.queue)?,
                nodes: name("nodes", self.nodes)?,
                cores: self.cores,
                ..JobFacts::default()
            },
        };
        Ok((spec, refusal))
    }
}

fn wishes_of(
    plan: &BTreeMap<String, String>,
    duration: Option<&str>,
) -> Result<Option<SamplingRequest>, Refusal> {
    if plan.is_empty() {
        return Ok(None);
    }
    let duration = duration.map(str::parse::<Period>).transpose().map_err(|error| invalid("for", &error))?;
    Ok(Some(SamplingRequest { metrics: wishes(plan)?, duration_us: duration.map(Period::as_micros) }))
}

impl End {
    pub(super) fn take(fields: &mut Fields) -> Result<Self, Refusal> {
        Ok(Self {
            job: fields.needed_text("job", "\"4242\"")?,
            state: fields.text("state")?,
            exit_code: fields.number("exit_code")?,
            exit_signal: fields.number("exit_signal")?,
        })
    }

    /// The job that is meant, and what is told of its end.
    pub(super) fn spec(self) -> Result<(Identifier, JobFacts), Refusal> {
        let state = name("state", self.state)?;
        let (exit_code, exit_signal) = (self.exit_code, self.exit_signal);
        let facts = JobFacts { state, exit_code, exit_signal, ..JobFacts::default() };
        Ok((identifier("job", &self.job)?, facts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Verb;

    fn start(line: &str) -> Start {
        match Verb::parse(line.as_bytes()) {
            Ok(Verb::Start(start)) => *start,
            other => panic!("{line} is {other:?}"),
        }
    }

    #[test]
    fn a_start_says_whose_job_it_is() {
        let said =
            start(r#"{"verb":"start","job":"42","uid":7,"user":"zoe","plan":{"cpu.*":"10ms"},"for":"1h"}"#);
        let (spec, refused) = said.spec().unwrap();
        assert_eq!((spec.job_id.as_str(), spec.owner_uid, refused), ("42", Some(7), None));
        assert_eq!(spec.sampling.unwrap().duration_us, Some(3_600_000_000));
    }

    #[test]
    fn bad_wishes_harm_nothing_but_themselves() {
        for plan in [
            r#""plan":{"cpu.usge":"10ms"}"#,
            r#""plan":{"cpu.*":"soon"}"#,
            r#""plan":{"cpu.*":"off"}"#,
            r#""plan":{"cpu.*":"1s"},"for":"ever""#,
        ] {
            let said = start(&format!(r#"{{"verb":"start","job":"42",{plan}}}"#));
            let (spec, refused) = said.spec().unwrap();
            assert_eq!((spec.sampling, refused.unwrap().code.as_str()), (None, "invalid"), "{plan}");
            let kept = spec.refused.unwrap();
            assert!(kept.request.as_str().starts_with("cpu."), "{kept:?}");
        }
        let said = start(r#"{"verb":"start","job":"42","request":"faster","request_error":"no period"}"#);
        let (spec, refused) = said.spec().unwrap();
        let kept = spec.refused.unwrap();
        assert_eq!((kept.request.as_str(), kept.reason.as_str()), ("faster", "no period"));
        assert_eq!(refused.unwrap().field.as_deref(), Some("request"));
        assert!(start(r#"{"verb":"start","job":"<b>"}"#).spec().is_err());
    }
}
