//! Final states and requested resources of jobs, from the scheduler's controller, since an epilog on a node
//! does not know them. A writer stores them, because the agents no longer track the job by then.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use polymeter_proto::control::{Refusal, StateRequest};
use polymeter_store::accepted::{JobOutcome, StoredOutcome};
use tokio::sync::oneshot;

use crate::limits;

/// Refuses an invalid field by its name.
pub(super) fn outcome_of(request: &StateRequest) -> Result<JobOutcome, Refusal> {
    let (job_id, cluster, facts) = request.facts()?;
    Ok(JobOutcome { job_id, cluster, facts, details: request.details.clone() })
}

/// Outcome to be stored, and the channel for the result.
#[derive(Debug)]
pub(crate) struct OutcomeReport {
    pub(crate) outcome: JobOutcome,
    pub(crate) reply: oneshot::Sender<StoredOutcome>,
}

pub(crate) type OutcomeSender = SyncSender<OutcomeReport>;

pub(crate) fn queue() -> (OutcomeSender, Receiver<OutcomeReport>) {
    sync_channel(limits::OUTCOMES)
}
