//! `keep`: an interval of a job's ring.

use polymeter_proto::control::{Answer, KeepRequest, Refusal, identifier, invalid};

use super::Execute;
use super::trigger_add::refuse;
use crate::control::request_handler::RequestHandler;
use crate::principal::Principal;
use crate::request::{KeepSpec, SupervisorRequest};

impl Execute for KeepRequest {
    type Spec = KeepSpec;

    fn parse(self, principal: Principal) -> Result<KeepSpec, Refusal> {
        let job_id = identifier("job", &self.job)?;
        let Self { begin_us, end_us, trigger, reason, .. } = self;
        if begin_us >= end_us {
            return Err(invalid("end_us", &"expected a time after `begin_us`"));
        }
        Ok(KeepSpec { principal, job_id, begin_us, end_us, trigger, reason })
    }

    async fn execute(spec: KeepSpec, handler: &RequestHandler<'_>) -> Result<Answer, Refusal> {
        let job_id = spec.job_id.clone();
        let kept = handler.ask(|reply| SupervisorRequest::Keep(Box::new(spec), reply)).await?;
        kept.map_err(|error| refuse(handler, &job_id, &error))?;
        Ok(Answer::Done {})
    }
}
