//! `trigger_remove`: the end of a trigger of a job.

use polymeter_proto::control::{Answer, Refusal, TriggerRemoveRequest, identifier};
use polymeter_proto::series::Identifier;

use super::Execute;
use super::trigger_add::{job_of, refuse};
use crate::control::request_handler::RequestHandler;
use crate::principal::Principal;
use crate::request::SupervisorRequest;

impl Execute for TriggerRemoveRequest {
    type Spec = (Principal, Identifier, Identifier);

    fn parse(self, principal: Principal) -> Result<Self::Spec, Refusal> {
        Ok((principal, job_of(self.job.as_deref())?, identifier("name", &self.name)?))
    }

    async fn execute(spec: Self::Spec, handler: &RequestHandler<'_>) -> Result<Answer, Refusal> {
        let (principal, job_id, name) = spec;
        let job = job_id.clone();
        let removed =
            handler.ask(|reply| SupervisorRequest::RemoveTrigger(principal, job_id, name, reply)).await?;
        removed.map_err(|error| refuse(handler, &job, &error))?;
        Ok(Answer::Done {})
    }
}
