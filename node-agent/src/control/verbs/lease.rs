//! Refusals of leases, for `set` and `start`.

use polymeter_proto::control::{Answer, LeaseAnswer, PredictedCost, Refusal, UnavailableGroup};
use polymeter_proto::series::Identifier;

use crate::control::request_handler::RequestHandler;
use crate::request::{Cost, LeaseError, LeaseGrant};

pub(super) fn refuse(handler: &RequestHandler<'_>, job: Option<&Identifier>, error: &LeaseError) -> Refusal {
    let (code, field) = match error {
        LeaseError::Access(error) => return handler.denied(job, *error),
        LeaseError::NothingChosen { .. } | LeaseError::NotServed(_) | LeaseError::Unavailable(_) => {
            ("unavailable", Some("plan"))
        }
        LeaseError::NoSteps(_) => ("unavailable", Some("level")),
        LeaseError::TooShort { .. } => ("shortest_period", Some("plan")),
        LeaseError::TooLong { .. } => ("longest_lease", Some("for")),
        LeaseError::Expired => ("expired", None),
        LeaseError::NoRings => ("unavailable", Some("ring")),
        LeaseError::TooMany(_) | LeaseError::TooManyDemands(_) => ("too_many", None),
        LeaseError::TooFast { .. } => ("too_fast", None),
        LeaseError::OverBudget { limit, .. } => (*limit, Some("plan")),
    };
    let mut refusal = Refusal::new(code, field, &error.to_string());
    match error {
        LeaseError::OverBudget { cost, instead, .. } => {
            refusal.cost = Some(Box::new(predicted(*cost)));
            refusal.instead = instead.map(|period| period.to_string());
        }
        LeaseError::TooShort { shortest, .. } => refusal.instead = Some(shortest.to_string()),
        LeaseError::TooLong { longest } => refusal.instead = Some(longest.to_string()),
        LeaseError::Unavailable(unavailable) => {
            refusal.unavailable = Some(UnavailableGroup::by_reason(unavailable).into());
        }
        LeaseError::Access(_)
        | LeaseError::NothingChosen { .. }
        | LeaseError::NoSteps(_)
        | LeaseError::NoRings
        | LeaseError::TooMany(_)
        | LeaseError::TooManyDemands(_)
        | LeaseError::NotServed(_)
        | LeaseError::TooFast { .. }
        | LeaseError::Expired => {}
    }
    refusal
}

pub(super) fn granted(grant: LeaseGrant) -> Answer {
    let metrics = grant.metrics.into_iter().map(|(metric, period)| (metric, period.to_string()));
    Answer::Granted(LeaseAnswer {
        metrics: metrics.collect(),
        reasons: grant.reasons,
        unavailable: grant.unavailable,
        cost: predicted(grant.cost),
        until_us: grant.until_us,
        level: grant.step_targets.map(|(level, _)| level),
        targets: grant.step_targets.map(|(_, targets)| targets),
    })
}

const fn predicted(cost: Cost) -> PredictedCost {
    PredictedCost {
        cpu_percent: cost.cpu_percent,
        samples_per_s: cost.samples_per_s,
        bytes_per_s: cost.bytes_per_s,
    }
}
