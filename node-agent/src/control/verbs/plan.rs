//! `plan`: the metrics that are sampled, with their periods.

use polymeter_proto::catalogue::RING_METRICS;
use polymeter_proto::control::{
    Answer, PlanAnswer, PlanLine, PlanRequest, Refusal, RefusedLine, optional_identifier,
};
use polymeter_proto::series::{DEVICE_METRICS, Identifier};
use polymeter_proto::step_level::StepLevel;

use super::Execute;
use crate::control::request_handler::RequestHandler;
use crate::in_force::InForce;
use crate::plan::is_of_hardware;
use crate::principal::Principal;
use crate::request::{JobView, OF_DEVICES};

impl Execute for PlanRequest {
    type Spec = Option<Identifier>;

    fn parse(self, _: Principal) -> Result<Self::Spec, Refusal> {
        optional_identifier("job", self.job.as_deref())
    }

    async fn execute(job: Self::Spec, handler: &RequestHandler<'_>) -> Result<Answer, Refusal> {
        Ok(Answer::Plan(plan_of(&handler.view_one(job.as_ref()).await?)))
    }
}

pub(crate) fn plan_of(view: &JobView) -> PlanAnswer {
    let whole = view.plan.iter().map(|planned| (None, planned));
    let of_steps = view.step_plans.iter().map(|(level, planned)| (Some(*level), planned));
    let planned = whole.chain(of_steps);
    let refused = view.refused.iter().map(|part| RefusedLine {
        request: part.request.to_string(),
        period: part.period.map(|period| period.to_string()),
        reason: part.reason.to_string(),
    });
    PlanAnswer {
        plan: planned
            .map(|(level, (metric, in_force))| PlanLine {
                reason: reason(view, metric, in_force),
                ..line(level, metric, in_force)
            })
            .collect(),
        unavailable: view.unavailable.clone(),
        refused: refused.collect(),
    }
}

fn line(level: Option<StepLevel>, metric: &str, in_force: &InForce) -> PlanLine {
    PlanLine {
        metric: metric.to_owned(),
        level,
        period: in_force.sampling.to_string(),
        cause: in_force.cause.as_str().to_owned(),
        actor: in_force.by.as_ref().map(ToString::to_string),
        until_us: in_force.until_us,
        requested: in_force.requested.map(|sampling| sampling.to_string()),
        reason: None,
        input_of: in_force.input_of.iter().map(|derived| (*derived).to_owned()).collect(),
    }
}

fn reason(view: &JobView, metric: &str, in_force: &InForce) -> Option<String> {
    let measured = metric.strip_prefix(RING_METRICS).unwrap_or(metric);
    let release = view.release.filter(|_| is_of_hardware(measured));
    let is_demand = view.job_id.is_some() && metric.starts_with(DEVICE_METRICS);
    let reason = release.map(|release| release.reason());
    reason.or_else(|| is_demand.then(|| OF_DEVICES.to_owned())).or_else(|| in_force.reason())
}
