//! `watch`: a stream of samples. `watch_stream` executes it on the control socket.

use polymeter_proto::control::{Answer, Refusal, WatchRequest, optional_identifier, selectors};
use polymeter_proto::name::Selector;
use polymeter_proto::series::Identifier;

use super::Execute;
use crate::control::request_handler::RequestHandler;
use crate::principal::Principal;

/// Most selectors of one stream: each is matched with the name of every series of the job.
const SELECTORS: usize = 64;

impl Execute for WatchRequest {
    type Spec = (Option<Identifier>, Vec<Selector>);

    fn parse(self, _: Principal) -> Result<Self::Spec, Refusal> {
        let selectors = selectors("metrics", &self.metrics, SELECTORS)?;
        Ok((optional_identifier("job", self.job.as_deref())?, selectors))
    }

    async fn execute(_: Self::Spec, _: &RequestHandler<'_>) -> Result<Answer, Refusal> {
        Err(Refusal::new(
            "forbidden",
            Some("verb"),
            "cannot stream samples here: use the node's control socket",
        ))
    }
}
