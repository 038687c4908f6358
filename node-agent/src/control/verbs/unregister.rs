//! `unregister`: the end of a registered job.

use polymeter_proto::control::{Answer, Refusal, UnregisterRequest, identifier};
use polymeter_proto::series::Identifier;

use super::Execute;
use crate::control::request_handler::RequestHandler;
use crate::principal::Principal;
use crate::request::SupervisorRequest;

impl Execute for UnregisterRequest {
    type Spec = Identifier;

    fn parse(self, _: Principal) -> Result<Identifier, Refusal> {
        identifier("job", &self.job)
    }

    async fn execute(job: Identifier, handler: &RequestHandler<'_>) -> Result<Answer, Refusal> {
        let message = format!("unknown job {job}: no job of this id was registered");
        if handler.ask(|reply| SupervisorRequest::Unregister(job, reply)).await? {
            return Ok(Answer::Done {});
        }
        Err(Refusal::new("unknown_job", Some("job"), &message))
    }
}
