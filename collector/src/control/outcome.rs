//! Final states of jobs, from the scheduler's controller: an epilog on a node does not know them. A writer stores them, for
//! the agents do not track the job any more by then.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use polymeter_proto::control::{Refusal, StateRequest};
use polymeter_store::accepted::JobOutcome;
use tokio::sync::oneshot;

use crate::limits;

/// The outcome in a `state` request.
///
/// # Errors
/// When a field is invalid; the refusal names it.
pub(super) fn outcome_of(request: &StateRequest) -> Result<JobOutcome, Refusal> {
    let (job_id, cluster, facts) = request.facts()?;
    Ok(JobOutcome { job_id, cluster, facts })
}

/// An outcome on its way to the store.
#[derive(Debug)]
pub(crate) struct OutcomeReport {
    pub(crate) outcome: JobOutcome,
    /// Receives true if the store knows the job.
    pub(crate) reply: oneshot::Sender<bool>,
}

/// Control's end of the queue to the writer.
pub(crate) type OutcomeSender = SyncSender<OutcomeReport>;

/// Creates the queue of outcomes, from control to one writer.
pub(crate) fn queue() -> (OutcomeSender, Receiver<OutcomeReport>) {
    sync_channel(limits::OUTCOMES)
}
