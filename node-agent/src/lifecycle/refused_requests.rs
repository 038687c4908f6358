//! Requests at submission that are not granted. `plan` shows them while the job is tracked, and the data
//! contain them, because the owner gets no direct answer. Pure.

use polymeter_proto::control::RING_PREFIX;
use polymeter_proto::name::Selector;
use polymeter_proto::period::Sampling;
use polymeter_proto::step_level::StepLevel;
use polymeter_proto::text::Text;
use polymeter_proto::trigger::{Rule, TRIGGER_WORD};

use crate::request::{LeaseError, LeaseGrant, RefusedRequest, SamplingRequest};

/// Parts of `sampling` that `outcome` refuses: all of them in case of an error. For a granted lease, these
/// are the unavailable metrics that were requested by name; a glob may miss some.
pub(super) fn refused_by(
    sampling: &SamplingRequest,
    outcome: &Result<LeaseGrant, LeaseError>,
) -> Vec<RefusedRequest> {
    match outcome {
        Err(error) => refuse_all(sampling, &error.to_string()),
        Ok(granted) => sampling
            .metrics
            .iter()
            .filter_map(|(selector, period)| {
                let named = granted.unavailable.iter().find(|(metric, _)| metric == selector.as_str());
                named.map(|(_, reason)| refused(sampling, selector, *period, reason))
            })
            .collect(),
    }
}

pub(super) fn refuse_all(sampling: &SamplingRequest, reason: &str) -> Vec<RefusedRequest> {
    let metrics = sampling.metrics.iter();
    metrics.map(|(selector, period)| refused(sampling, selector, *period, reason)).collect()
}

pub(super) fn refused_trigger(rule: &Rule, reason: &str) -> RefusedRequest {
    let request = Text::of(&format!("{TRIGGER_WORD} {} when {}", rule.name, rule.when));
    RefusedRequest { request, period: None, reason: Text::of(reason) }
}

fn refused(
    sampling: &SamplingRequest,
    selector: &Selector,
    period: Sampling,
    reason: &str,
) -> RefusedRequest {
    let of_job = if sampling.is_ring { RING_PREFIX } else { "" };
    let prefix = sampling.level.map_or(of_job, StepLevel::selector_prefix);
    let request = Text::of(&format!("{prefix}{selector}"));
    RefusedRequest { request, period: Some(period), reason: Text::of(reason) }
}

#[cfg(test)]
mod tests {
    use polymeter_proto::period::Period;

    use super::*;
    use crate::request::Cost;

    #[test]
    fn an_error_refuses_all_and_a_missing_metric_only_what_named_it() {
        let metrics = ["perf.*", "perf.cycles"]
            .map(|selector| (selector.parse().unwrap(), Sampling::raw(Period::SECOND)));
        let of = |level| SamplingRequest {
            level,
            is_ring: false,
            metrics: metrics.clone().into(),
            duration_us: None,
        };
        let all = refused_by(&of(None), &Err(LeaseError::TooMany(64)));
        assert_eq!(all.iter().map(|one| one.request.as_str()).collect::<Vec<_>>(), ["perf.*", "perf.cycles"]);
        let of_steps = refuse_all(&of(Some(StepLevel::Step)), "too late");
        assert_eq!(of_steps[0].request.as_str(), "steps:perf.*");
        let of_ring = refuse_all(&SamplingRequest { is_ring: true, ..of(None) }, "too late");
        assert_eq!(of_ring[0].request.as_str(), "ring:perf.*");
        let missing = |metric: &str| (metric.to_owned(), "the CPU has no such counter".to_owned());
        let unavailable = vec![missing("perf.cycles"), missing("perf.instructions")];
        let granted = LeaseGrant {
            step_targets: None,
            metrics: Vec::new(),
            reasons: std::collections::BTreeMap::new(),
            unavailable,
            cost: Cost::default(),
            until_us: 0,
        };
        let some = refused_by(&of(None), &Ok(granted));
        assert_eq!(some.len(), 1);
        assert_eq!(some[0].request.as_str(), "perf.cycles");
        assert_eq!(some[0].reason.as_str(), "the CPU has no such counter");
    }
}
