//! Plans in requests: selectors and periods, and the level that they concern.

use polymeter_proto::control::{PlanFields, Refusal, invalid};
use polymeter_proto::name::Selector;
use polymeter_proto::period::Sampling;
use polymeter_proto::series::Identifier;
use polymeter_proto::step_level::StepLevel;

use crate::config;
use crate::plan::Rule;

/// Parses rules that may switch metrics off.
pub(super) fn rules(field: &str, plan: &PlanFields) -> Result<Vec<Rule>, Refusal> {
    let rules = plan.iter().map(|(selector, period)| config::rule(selector, period));
    rules.collect::<Result<_, _>>().map_err(|error| invalid(field, &error))
}

/// Parses metrics that may not be switched off.
pub(super) fn leased_metrics(field: &str, plan: &PlanFields) -> Result<Vec<(Selector, Sampling)>, Refusal> {
    let off = "a lease cannot switch a metric off; give a period";
    rules(field, plan)?
        .into_iter()
        .map(|Rule { selector, sampling }| match sampling {
            Some(sampling) => Ok((selector, sampling)),
            None => Err(invalid(field, &off)),
        })
        .collect()
}

/// Parses metrics that go to the ring of a job.
pub(super) fn ring_metrics(field: &str, plan: &PlanFields) -> Result<Vec<(Selector, Sampling)>, Refusal> {
    let metrics = leased_metrics(field, plan)?;
    for (selector, Sampling { period, window, .. }) in &metrics {
        if window.is_some() {
            let message = format!("the ring holds each sample, without windows; write {selector}={period}");
            return Err(invalid(field, &message));
        }
        if selector.as_str().starts_with("stacks") {
            return Err(invalid(field, &format!("{selector}: the ring holds no call stacks; omit --ring")));
        }
    }
    Ok(metrics)
}

/// Refuses the ring in a request for the node, or for steps or tasks.
pub(super) fn check_ring(level: Option<StepLevel>, job_id: Option<&Identifier>) -> Result<(), Refusal> {
    if level.is_some() || job_id.is_none() {
        return Err(invalid("ring", &"only jobs as a whole have a ring; name a job, without steps or tasks"));
    }
    Ok(())
}

/// Refuses the level of steps or tasks in a request for the node.
pub(super) fn check_level(level: Option<StepLevel>, job_id: Option<&Identifier>) -> Result<(), Refusal> {
    match (level, job_id) {
        (Some(_), None) => Err(invalid("level", &"the node has no steps or tasks; name a job")),
        (Some(_), Some(_)) | (None, _) => Ok(()),
    }
}
