//! Execution of verbs, one file each. `polymeter_proto::control` declares their fields, answers and
//! rights; a verb that is registered there and has no file here does not compile.

mod annotation;
mod demand;
mod end;
mod flush;
mod jobs;
mod keep;
mod keep_last;
mod lease;
mod mark;
mod metrics;
pub(super) mod plan;
mod plan_rules;
mod pmu_release;
mod pmu_resume;
mod push;
mod regions;
mod register;
mod reset;
mod set;
mod start;
mod status;
pub(super) mod time;
mod trigger_add;
mod trigger_remove;
mod triggers;
mod unregister;
pub(super) mod watch;

use polymeter_proto::control::{Access, Answer, Refusal, Request, Verb};

use super::request_handler::RequestHandler;
use crate::principal::Principal;

pub(super) trait Execute: Verb {
    type Spec;

    /// Parses its fields. A refusal names the invalid field.
    fn parse(self, principal: Principal) -> Result<Self::Spec, Refusal>;

    fn execute(
        spec: Self::Spec,
        handler: &RequestHandler<'_>,
    ) -> impl Future<Output = Result<Answer, Refusal>> + Send;
}

macro_rules! dispatch {
    ($($module:ident: $variant:ident($request:ident) $(=> $($answer:ident($body:ident)),+)?;)*) => {
        /// Executes a request, if the principal may use its verb.
        pub(crate) async fn execute(request: Request, handler: &RequestHandler<'_>) -> Answer {
            let executed = match request {
                $(Request::$variant(request) => run(request, handler).await,)*
            };
            executed.unwrap_or_else(Answer::Refused)
        }

        /// Parses the fields of a request, without executing it. A refusal names the invalid field.
        pub(crate) fn check(request: Request, principal: Principal) -> Result<(), Refusal> {
            match request {
                $(Request::$variant(request) => request.parse(principal).map(drop),)*
            }
        }
    };
}

polymeter_proto::for_each_verb!(dispatch);

async fn run<R: Execute>(request: R, handler: &RequestHandler<'_>) -> Result<Answer, Refusal> {
    if R::ACCESS == Access::Administrator && !handler.principal.administrator {
        let message =
            "permission denied: only root, the agent's user and the configured `administrators` may do this";
        return Err(Refusal::new("forbidden", None, message));
    }
    if R::ACCESS == Access::Collector && !handler.is_of_collector() {
        let message = "permission denied: only the collector may do this; to sample devices for a job, use `polymeter set --job`";
        return Err(Refusal::new("forbidden", None, message));
    }
    R::execute(request.parse(handler.principal)?, handler).await
}

#[cfg(test)]
mod tests;
