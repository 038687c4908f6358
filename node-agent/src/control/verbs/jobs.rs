//! `jobs`: the tracked jobs.

use polymeter_proto::control::{Answer, JobsRequest, Refusal};

use super::{Execute, status};
use crate::control::request_handler::RequestHandler;
use crate::principal::Principal;

impl Execute for JobsRequest {
    type Spec = ();

    fn parse(self, _: Principal) -> Result<(), Refusal> {
        Ok(())
    }

    async fn execute((): (), handler: &RequestHandler<'_>) -> Result<Answer, Refusal> {
        status::report(handler).await
    }
}
