//! `pmu_release`: a lease of the hardware's counters to other programs.

use polymeter_proto::control::{
    Answer, PmuReleaseAnswer, PmuReleaseRequest, Refusal, duration_us, optional_identifier,
};

use super::{Execute, lease};
use crate::control::request_handler::RequestHandler;
use crate::principal::Principal;
use crate::request::{ReleaseRequest, SupervisorRequest};

impl Execute for PmuReleaseRequest {
    type Spec = ReleaseRequest;

    fn parse(self, principal: Principal) -> Result<ReleaseRequest, Refusal> {
        let job_id = optional_identifier("job", self.job.as_deref())?;
        let duration_us = duration_us("for", self.duration.as_deref())?;
        Ok(ReleaseRequest { principal, job_id, since_us: None, duration_us })
    }

    async fn execute(request: ReleaseRequest, handler: &RequestHandler<'_>) -> Result<Answer, Refusal> {
        let request = ReleaseRequest { since_us: handler.since_us, ..request };
        let job = request.job_id.clone();
        let released = handler.ask(|reply| SupervisorRequest::Release(request, reply)).await?;
        let (until_us, metrics) = released.map_err(|error| lease::refuse(handler, job.as_ref(), &error))?;
        Ok(Answer::PmuReleased(PmuReleaseAnswer { until_us, metrics }))
    }
}
