//! `trigger_add`: a trigger of a job.

use polymeter_proto::control::{Answer, Refusal, TriggerAddRequest, TriggerAddedAnswer, identifier, invalid};
use polymeter_proto::series::Identifier;
use polymeter_proto::trigger::{Rule, RuleFault};

use super::Execute;
use crate::control::request_handler::RequestHandler;
use crate::principal::Principal;
use crate::request::{SupervisorRequest, TriggerError, TriggerSpec};

impl Execute for TriggerAddRequest {
    type Spec = TriggerSpec;

    fn parse(self, principal: Principal) -> Result<TriggerSpec, Refusal> {
        let job_id = job_of(self.job.as_deref())?;
        let rule = Rule::parse(&self.rule).map_err(|faults| invalid("rule", &all_faults(&faults)))?;
        Ok(TriggerSpec { principal, job_id, rule })
    }

    async fn execute(spec: TriggerSpec, handler: &RequestHandler<'_>) -> Result<Answer, Refusal> {
        let job_id = spec.job_id.clone();
        let added = handler.ask(|reply| SupervisorRequest::AddTrigger(Box::new(spec), reply)).await?;
        let notes = added.map_err(|error| refuse(handler, &job_id, &error))?;
        Ok(Answer::TriggerAdded(TriggerAddedAnswer { notes }))
    }
}

pub(super) fn all_faults(faults: &[RuleFault]) -> String {
    let faults: Vec<String> = faults.iter().map(RuleFault::to_string).collect();
    faults.join("; ")
}

pub(super) fn job_of(job: Option<&str>) -> Result<Identifier, Refusal> {
    let job = job.ok_or_else(|| invalid("job", &"missing field; triggers belong to a job"))?;
    identifier("job", job)
}

pub(super) fn refuse(handler: &RequestHandler<'_>, job_id: &Identifier, error: &TriggerError) -> Refusal {
    let (code, field) = match error {
        TriggerError::Access(error) => return handler.denied(Some(job_id), *error),
        TriggerError::Add(_) => ("too_many", Some("rule")),
        TriggerError::Busy => ("busy", None),
        TriggerError::TooLong { .. } => ("too_long", Some("begin_us")),
        TriggerError::Ahead => ("too_far", Some("end_us")),
        TriggerError::NoRing | TriggerError::NotYet | TriggerError::Empty | TriggerError::Outside { .. } => {
            ("unavailable", None)
        }
        TriggerError::Unknown(_) => ("unknown_trigger", Some("name")),
    };
    Refusal::new(code, field, &error.to_string())
}
