//! `start`: the announcement of a job by the scheduler's prolog.

use std::sync::Arc;

use polymeter_proto::control::{
    Answer, PlanFields, RING_PREFIX, Refusal, StartRequest, StartedAnswer, duration_us, identifier, invalid,
    optional_identifier,
};
use polymeter_proto::ledger::JobFacts;
use polymeter_proto::step_level::StepLevel;
use polymeter_proto::text::Text;
use polymeter_proto::trigger::{Rule, RuleFields};

use super::plan_rules::{leased_metrics, ring_metrics};
use super::{Execute, lease, register, trigger_add};
use crate::control::request_handler::RequestHandler;
use crate::principal::Principal;
use crate::request::{RefusedRequest, SamplingRequest, StartSpec, SubmittedRelease, SupervisorRequest};

/// Field of the plan for the ring.
const RING: &str = "ring";

/// Longest list of GPUs: more than the UUIDs of 64 MIG devices.
const GPU_DEVICES_BYTES: usize = 4096;

impl Execute for StartRequest {
    /// A job, and the refusal of a sampling request that cannot be parsed; the job itself is accepted
    /// nevertheless.
    type Spec = (StartSpec, Option<Refusal>);

    fn parse(self, _: Principal) -> Result<Self::Spec, Refusal> {
        let requests =
            sampling(&self).and_then(|sampling| Ok((sampling, pmu_release(&self)?, triggers(&self)?)));
        let ((sampling, pmu_release, triggers), refusal) = match requests {
            Ok(requests) => (requests, None),
            Err(refusal) => ((Vec::new(), None, Vec::new()), Some(refusal)),
        };
        let refusal = refusal.or_else(|| Some(invalid("request", self.request_error.as_ref()?)));
        let refused = refusal.as_ref().map(|refusal| RefusedRequest {
            request: as_written(&self),
            period: None,
            reason: refusal.message.clone(),
        });
        let optional = |field: &str, text: &Option<String>| optional_identifier(field, text.as_deref());
        let start = StartSpec {
            job_id: identifier("job", &self.job)?,
            alias: optional("alias", &self.alias)?,
            cluster: optional("cluster", &self.cluster)?,
            owner_uid: self.uid,
            owner: optional("user", &self.user)?,
            sampling,
            pmu_release,
            triggers,
            refused,
            facts: JobFacts {
                account: optional("account", &self.account)?,
                queue: optional("queue", &self.queue)?,
                nodes: optional("nodes", &self.nodes)?,
                cores: self.cores,
                unread: self.unread.map(|text| *text),
                ..JobFacts::default()
            },
            details: *self.details,
            gpu_devices: gpu_devices(self.gpu_devices)?,
        };
        Ok((start, refusal))
    }

    async fn execute((start, refused): Self::Spec, handler: &RequestHandler<'_>) -> Result<Answer, Refusal> {
        let job = start.job_id.clone();
        let started = handler.ask(|reply| SupervisorRequest::Start(Box::new(start), reply)).await?;
        let (granted, refused) = match started.map_err(|error| register::refuse(&error))? {
            None => (None, refused),
            Some(Ok(granted)) => (Some(granted), refused),
            Some(Err(error)) => (None, Some(lease::refuse(handler, Some(&job), &error))),
        };
        Ok(Answer::Started(StartedAnswer {
            granted: granted.map(|granted| {
                granted.metrics.into_iter().map(|(metric, period)| (metric, period.to_string())).collect()
            }),
            refused: refused.map(Box::new),
        }))
    }
}

fn gpu_devices(list: Option<String>) -> Result<Option<Arc<str>>, Refusal> {
    let Some(list) = list.filter(|list| !list.is_empty()) else { return Ok(None) };
    let is_listed = list.bytes().all(|byte| byte.is_ascii_alphanumeric() || b",-/:".contains(&byte));
    if !is_listed || list.len() > GPU_DEVICES_BYTES {
        return Err(invalid("gpu_devices", &"expected numbers or UUIDs such as `0,1`"));
    }
    Ok(Some(Arc::from(list)))
}

/// Owner's plans: for the job as a whole, its steps, its tasks and its ring.
fn plans(start: &StartRequest) -> [(Option<StepLevel>, &'static str, &PlanFields); 4] {
    [
        (None, "plan", &start.plan),
        (Some(StepLevel::Step), "steps", &start.steps),
        (Some(StepLevel::Task), "tasks", &start.tasks),
        (None, RING, &start.ring),
    ]
}

fn sampling(start: &StartRequest) -> Result<Vec<SamplingRequest>, Refusal> {
    let wanted = plans(start).into_iter().filter(|(_, _, plan)| !plan.is_empty());
    wanted
        .map(|(level, field, plan)| {
            let duration_us = duration_us("for", start.duration.as_deref())?;
            let is_ring = field == RING;
            let metrics = if is_ring { ring_metrics(field, plan)? } else { leased_metrics(field, plan)? };
            Ok(SamplingRequest { level, is_ring, metrics, duration_us })
        })
        .collect()
}

fn pmu_release(start: &StartRequest) -> Result<Option<SubmittedRelease>, Refusal> {
    if !start.pmu_release {
        return Ok(None);
    }
    Ok(Some(SubmittedRelease { duration_us: duration_us("for", start.duration.as_deref())? }))
}

fn triggers(start: &StartRequest) -> Result<Vec<Rule>, Refusal> {
    let parsed = start.triggers.iter().map(|fields| {
        Rule::parse(fields).map_err(|faults| {
            let faults = trigger_add::all_faults(&faults);
            invalid("triggers", &format!("{}: {faults}", fields.request_text()))
        })
    });
    parsed.collect()
}

fn as_written(start: &StartRequest) -> Text {
    let pairs = plans(start).into_iter().flat_map(|(level, field, plan)| {
        let prefix = match (level, field) {
            (Some(level), _) => level.selector_prefix(),
            (None, RING) => RING_PREFIX,
            (None, _) => "",
        };
        plan.iter().map(move |(selector, period)| format!("{prefix}{selector}={period}"))
    });
    let pairs = pairs.chain(start.triggers.iter().map(RuleFields::request_text));
    let pairs = pairs.chain(start.pmu_release.then(|| "pmu release".to_owned()));
    start.request.as_deref().map_or_else(|| Text::of(&pairs.collect::<Vec<_>>().join(", ")), Text::of)
}
