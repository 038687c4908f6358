//! The field `plan`: selectors and periods.

use polymeter_proto::control::{PlanFields, Refusal, invalid};
use polymeter_proto::name::Selector;
use polymeter_proto::period::Period;

use crate::config;
use crate::plan::Rule;

/// Parses the rules of a plan, which may switch metrics off.
pub(super) fn rules(plan: &PlanFields) -> Result<Vec<Rule>, Refusal> {
    let rule = |(selector, period): (&String, &String)| config::rule(selector, period);
    plan.iter().map(rule).collect::<Result<_, _>>().map_err(|error| invalid("plan", &error))
}

/// Parses the metrics of a lease, which may not switch metrics off.
pub(super) fn leased_metrics(plan: &PlanFields) -> Result<Vec<(Selector, Period)>, Refusal> {
    let off = "a lease can shorten a period, and not switch a metric off";
    let metric = |Rule { selector, period }: Rule| match period {
        Some(period) => Ok((selector, period)),
        None => Err(invalid("plan", &off)),
    };
    rules(plan)?.into_iter().map(metric).collect()
}
