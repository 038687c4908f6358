//! `flush`: the samples taken so far, sent at once.

use polymeter_proto::control::{Answer, FlushRequest, Refusal};

use super::Execute;
use crate::control::request_handler::RequestHandler;
use crate::principal::Principal;
use crate::request::SupervisorRequest;

impl Execute for FlushRequest {
    type Spec = ();

    fn parse(self, _: Principal) -> Result<(), Refusal> {
        Ok(())
    }

    async fn execute((): (), handler: &RequestHandler<'_>) -> Result<Answer, Refusal> {
        handler.ask(SupervisorRequest::Flush).await?;
        Ok(Answer::Done {})
    }
}
