//! `plan`: the metrics that are sampled, with their periods.

use polymeter_proto::catalogue;
use polymeter_proto::control::{
    Answer, PlanAnswer, PlanLine, PlanRequest, Refusal, RefusedLine, optional_identifier,
};
use polymeter_proto::series::Identifier;
use polymeter_proto::step_level::StepLevel;

use super::Execute;
use crate::control::request_handler::RequestHandler;
use crate::in_force::InForce;
use crate::principal::Principal;
use crate::request::{JobView, RefusedRequest};

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
    let released = |metric: &str| {
        let is_of_hardware = catalogue::find(metric).is_some_and(|definition| definition.is_of_hardware());
        view.release.filter(|_| is_of_hardware).map(|release| release.reason())
    };
    let line = |level: Option<StepLevel>, (metric, in_force): &(String, InForce)| PlanLine {
        metric: metric.clone(),
        level,
        period: in_force.period.to_string(),
        cause: in_force.cause.as_str().to_owned(),
        actor: in_force.by.as_ref().map(ToString::to_string),
        until_us: in_force.until_us,
        requested: in_force.requested.map(|period| period.to_string()),
        reason: released(metric).or_else(|| in_force.reason()),
        input_of: in_force.input_of.iter().map(|derived| (*derived).to_owned()).collect(),
    };
    let refused = |part: &RefusedRequest| RefusedLine {
        request: part.request.to_string(),
        period: part.period.map(|period| period.to_string()),
        reason: part.reason.to_string(),
    };
    let whole = view.plan.iter().map(|planned| line(None, planned));
    let of_steps = view.step_plans.iter().map(|(level, planned)| line(Some(*level), planned));
    PlanAnswer {
        plan: whole.chain(of_steps).collect(),
        unavailable: view.unavailable.clone(),
        refused: view.refused.iter().map(refused).collect(),
    }
}
