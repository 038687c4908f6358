//! `reset`: the end of leases.

use polymeter_proto::control::{Answer, Refusal, ResetAnswer, ResetRequest, optional_identifier};
use polymeter_proto::series::Identifier;
use polymeter_proto::step_level::StepLevel;

use super::Execute;
use super::plan_rules::check_level;
use crate::control::request_handler::RequestHandler;
use crate::principal::Principal;
use crate::request::SupervisorRequest;

impl Execute for ResetRequest {
    /// A job, and the level of the leases that end.
    type Spec = (Option<Identifier>, Option<StepLevel>);

    fn parse(self, _: Principal) -> Result<Self::Spec, Refusal> {
        let job_id = optional_identifier("job", self.job.as_deref())?;
        check_level(self.level, job_id.as_ref())?;
        Ok((job_id, self.level))
    }

    async fn execute((job, level): Self::Spec, handler: &RequestHandler<'_>) -> Result<Answer, Refusal> {
        let ended = handler
            .ask_about(job.as_ref(), |reply| {
                SupervisorRequest::Reset(handler.principal, job.clone(), level, reply)
            })
            .await?;
        Ok(Answer::Reset(ResetAnswer { ended }))
    }
}
