//! `keep`: an interval of a job's ring.

use polymeter_proto::control::{Answer, KeepRequest, KeepsAnswer, Refusal, identifier, invalid};
use polymeter_proto::series::Identifier;

use super::Execute;
use super::trigger_add::refuse;
use crate::control::request_handler::RequestHandler;
use crate::principal::Principal;
use crate::request::{AccessError, KeepSpec, KeptPart, SupervisorRequest, TriggerError};

impl Execute for KeepRequest {
    type Spec = KeepSpec;

    fn parse(self, principal: Principal) -> Result<KeepSpec, Refusal> {
        spec_of(self, principal)
    }

    async fn execute(spec: KeepSpec, handler: &RequestHandler<'_>) -> Result<Answer, Refusal> {
        execute_keep(spec, handler).await
    }
}

pub(super) fn spec_of(request: KeepRequest, principal: Principal) -> Result<KeepSpec, Refusal> {
    let KeepRequest { job, begin_us, end_us, trigger, reason, owner_uid } = request;
    let job_id = identifier("job", &job)?;
    if begin_us >= end_us {
        return Err(invalid("end_us", &"expected a time after `begin_us`"));
    }
    Ok(KeepSpec { principal, job_id, owner_uid, begin_us, end_us, trigger, reason })
}

pub(super) async fn execute_keep(spec: KeepSpec, handler: &RequestHandler<'_>) -> Result<Answer, Refusal> {
    let job_id = spec.job_id.clone();
    let kept = handler.ask(|reply| SupervisorRequest::Keep(Box::new(spec), reply)).await?;
    let KeptPart { begin_us, end_us, part } = kept.map_err(|error| refuse_keep(handler, &job_id, &error))?;
    Ok(Answer::Keeps(KeepsAnswer {
        begin_us,
        end_us,
        from_us: part.map(|part| part.first_us),
        until_us: part.map(|part| part.last_us),
        samples: part.map_or(0, |part| part.samples),
    }))
}

/// Refusal of a job that is unknown, or not the principal's: the same for every id.
fn refuse_keep(handler: &RequestHandler<'_>, job_id: &Identifier, error: &TriggerError) -> Refusal {
    let refusal = refuse(handler, job_id, error);
    if !matches!(error, TriggerError::Access(AccessError::Unknown | AccessError::Hidden)) {
        return refusal;
    }
    let message = format!(
        "{}; the ring of a job that has ended is held for the time `after_end` in [hindsight]",
        refusal.message
    );
    Refusal::new(&refusal.code, refusal.field.as_deref(), &message)
}
