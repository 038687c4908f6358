//! `time`: the time of the node's clock, and that by which its samples are dated.

use polymeter_proto::control::{Answer, DeviceReport, Refusal, TimeAnswer, TimeRequest};

use super::Execute;
use crate::clock;
use crate::control::context::Context;
use crate::control::request_handler::RequestHandler;
use crate::principal::Principal;

impl Execute for TimeRequest {
    type Spec = ();

    fn parse(self, _: Principal) -> Result<(), Refusal> {
        Ok(())
    }

    async fn execute((): (), handler: &RequestHandler<'_>) -> Result<Answer, Refusal> {
        Ok(answer(handler.context, handler.is_of_collector()))
    }
}

/// Time, and what the agent has to do with devices: that is for the collector alone.
pub(crate) fn answer(context: &Context, is_for_collector: bool) -> Answer {
    let devices = if is_for_collector { context.devices.borrow().clone() } else { DeviceReport::default() };
    Answer::Time(TimeAnswer { now_us: clock::steady_us(), clock_us: clock::realtime_us(), devices })
}
