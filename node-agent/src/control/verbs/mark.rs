//! `mark`: a named instant, or the begin or end of a phase.

use polymeter_proto::control::{Answer, MarkRequest, Refusal, identifier, invalid, optional_identifier};
use polymeter_proto::ledger::MarkKind;

use super::{Execute, annotation};
use crate::control::request_handler::RequestHandler;
use crate::principal::Principal;
use crate::request::{MarkSpec, SupervisorRequest};

impl Execute for MarkRequest {
    type Spec = MarkSpec;

    fn parse(self, principal: Principal) -> Result<MarkSpec, Refusal> {
        let kind = self.kind.as_deref().map_or(Some(MarkKind::Instant), MarkKind::of);
        let kind = kind.ok_or_else(|| invalid("kind", &"expected `instant`, `begin` or `end`"))?;
        let job_id = optional_identifier("job", self.job.as_deref())?;
        Ok(MarkSpec { principal, job_id, name: identifier("name", &self.name)?, kind })
    }

    async fn execute(mark: MarkSpec, handler: &RequestHandler<'_>) -> Result<Answer, Refusal> {
        let job = mark.job_id.clone();
        let marked = handler.ask(|reply| SupervisorRequest::Mark(Box::new(mark), reply)).await?;
        marked.map_err(|error| annotation::refuse(handler, job.as_ref(), error))?;
        Ok(Answer::Done {})
    }
}
