//! `keep_last`: the newest samples of a job's ring, by the clock of this node.

use polymeter_proto::control::{Answer, KeepLastRequest, Refusal};

use super::Execute;
use super::keep::{execute_keep, spec_of};
use crate::clock;
use crate::control::request_handler::RequestHandler;
use crate::principal::Principal;
use crate::request::KeepSpec;

impl Execute for KeepLastRequest {
    type Spec = KeepSpec;

    fn parse(self, principal: Principal) -> Result<KeepSpec, Refusal> {
        // No other request to this agent has this time to the nanosecond.
        let fixed = self.fixed(clock::steady_us(), clock::realtime_ns() >> 1)?;
        spec_of(fixed, principal)
    }

    async fn execute(spec: KeepSpec, handler: &RequestHandler<'_>) -> Result<Answer, Refusal> {
        execute_keep(spec, handler).await
    }
}
