//! `end`: the end of a job, from the scheduler's epilog.

use polymeter_proto::control::{Answer, EndRequest, Refusal, identifier, optional_identifier};
use polymeter_proto::ledger::JobFacts;
use polymeter_proto::series::Identifier;

use super::Execute;
use crate::control::request_handler::RequestHandler;
use crate::principal::Principal;
use crate::request::SupervisorRequest;

impl Execute for EndRequest {
    type Spec = (Identifier, JobFacts);

    fn parse(self, _: Principal) -> Result<Self::Spec, Refusal> {
        let state = optional_identifier("state", self.state.as_deref())?;
        let (exit_code, exit_signal) = (self.exit_code, self.exit_signal);
        let unread = self.unread;
        let facts = JobFacts { state, exit_code, exit_signal, unread, ..JobFacts::default() };
        Ok((identifier("job", &self.job)?, facts))
    }

    async fn execute((job, facts): Self::Spec, handler: &RequestHandler<'_>) -> Result<Answer, Refusal> {
        handler.ask(|reply| SupervisorRequest::End(job, Box::new(facts), reply)).await?;
        Ok(Answer::Done {})
    }
}
