//! `time`: the time of the node's clock, and that by which its samples are dated.

use polymeter_proto::control::{Answer, Refusal, TimeAnswer, TimeRequest};

use super::Execute;
use crate::clock;
use crate::control::request_handler::RequestHandler;
use crate::principal::Principal;

impl Execute for TimeRequest {
    type Spec = ();

    fn parse(self, _: Principal) -> Result<(), Refusal> {
        Ok(())
    }

    async fn execute((): (), _: &RequestHandler<'_>) -> Result<Answer, Refusal> {
        Ok(Answer::Time(TimeAnswer { now_us: clock::steady_us(), clock_us: clock::realtime_us() }))
    }
}
