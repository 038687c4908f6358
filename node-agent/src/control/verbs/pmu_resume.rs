//! `pmu_resume`: the end of releases of the hardware's counters.

use polymeter_proto::control::{Answer, PmuResumeRequest, Refusal, ResetAnswer, optional_identifier};
use polymeter_proto::series::Identifier;

use super::Execute;
use crate::control::request_handler::RequestHandler;
use crate::principal::Principal;
use crate::request::SupervisorRequest;

impl Execute for PmuResumeRequest {
    type Spec = Option<Identifier>;

    fn parse(self, _: Principal) -> Result<Self::Spec, Refusal> {
        optional_identifier("job", self.job.as_deref())
    }

    async fn execute(job: Self::Spec, handler: &RequestHandler<'_>) -> Result<Answer, Refusal> {
        let ended = handler
            .ask_about(job.as_ref(), |reply| SupervisorRequest::Resume(handler.principal, job.clone(), reply))
            .await?;
        Ok(Answer::Reset(ResetAnswer { ended }))
    }
}
