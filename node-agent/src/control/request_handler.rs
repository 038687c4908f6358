//! State of one principal's requests: the principal, the supervisor, and the refusals that depend on
//! both.

use polymeter_proto::control::Refusal;
use polymeter_proto::series::Identifier;
use tokio::sync::{mpsc, oneshot};

use super::context::Context;
use crate::principal::Principal;
use crate::request::{AccessError, JobView, SupervisorRequest, View};

#[derive(Debug)]
pub(super) struct RequestHandler<'a> {
    pub(super) principal: Principal,
    /// Time from which the durations of leases count, in microseconds since the epoch; none for now.
    pub(super) since_us: Option<i64>,
    pub(super) context: &'a Context,
    requests: &'a mpsc::Sender<SupervisorRequest>,
}

#[derive(Debug)]
pub(super) enum Denied {
    /// Not tracked, or not any more.
    Unknown(Refusal),
    Refused(Refusal),
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Self {
        let (Denied::Unknown(refusal) | Denied::Refused(refusal)) = denied;
        refusal
    }
}

impl<'a> RequestHandler<'a> {
    pub(super) const fn new(
        principal: Principal,
        requests: &'a mpsc::Sender<SupervisorRequest>,
        context: &'a Context,
    ) -> Self {
        Self { principal, since_us: None, context, requests }
    }

    /// Counts the durations of leases from `at_us`, in microseconds since the epoch, and not from now.
    pub(super) const fn since(self, at_us: i64) -> Self {
        Self { since_us: Some(at_us), ..self }
    }

    /// True if the request arrived through the collector.
    pub(super) const fn is_of_collector(&self) -> bool {
        self.since_us.is_some()
    }

    /// Returns a refusal if the agent stops.
    pub(super) async fn ask<T>(
        &self,
        make: impl FnOnce(oneshot::Sender<T>) -> SupervisorRequest,
    ) -> Result<T, Refusal> {
        let stopping = || Refusal::new("stopping", None, "the agent is stopping");
        let (reply, answer) = oneshot::channel();
        self.requests.send(make(reply)).await.ok().ok_or_else(stopping)?;
        answer.await.ok().ok_or_else(stopping)
    }

    /// Asks about a job or the node, to which access may be denied.
    pub(super) async fn ask_about<T>(
        &self,
        job: Option<&Identifier>,
        make: impl FnOnce(oneshot::Sender<Result<T, AccessError>>) -> SupervisorRequest,
    ) -> Result<T, Refusal> {
        self.ask(make).await?.map_err(|error| self.denied(job, error))
    }

    pub(super) async fn view(&self) -> Result<View, Refusal> {
        let mut view = self.ask(SupervisorRequest::View).await?;
        let rights = self.context.rights.borrow();
        view.subjects.retain(|subject| rights.can_see(self.principal, subject.owner_uid));
        Ok(view)
    }

    /// One job or the node, if the principal may see it.
    pub(super) async fn view_one(&self, job: Option<&Identifier>) -> Result<JobView, Denied> {
        let view = self
            .ask(|reply| SupervisorRequest::ViewOne(self.principal, job.cloned(), reply))
            .await
            .map_err(Denied::Refused)?;
        view.map_err(|error| match error {
            AccessError::Unknown => Denied::Unknown(self.denied(job, error)),
            AccessError::Hidden | AccessError::Forbidden => Denied::Refused(self.denied(job, error)),
        })
    }

    /// Refusal of access. For a principal that must not see a job, it equals that for a job that does not
    /// exist, in code, text and fields: only administrators can tell the one from the other.
    pub(super) fn denied(&self, job: Option<&Identifier>, error: AccessError) -> Refusal {
        let job = job.map_or("", Identifier::as_str);
        let (code, message) = match error {
            AccessError::Forbidden if job.is_empty() => (
                "forbidden",
                "permission denied: only administrators may do this for the node; name a job of yours"
                    .to_owned(),
            ),
            AccessError::Forbidden => {
                ("forbidden", format!("cannot change job {job}: it belongs to another user"))
            }
            AccessError::Unknown | AccessError::Hidden if self.principal.administrator => (
                "unknown_job",
                format!("unknown job {job}: this agent does not track it; `polymeter jobs` lists the jobs"),
            ),
            AccessError::Unknown | AccessError::Hidden => (
                "unknown_job",
                format!("unknown job {job}, or not yours; `polymeter jobs` lists your jobs on this node"),
            ),
        };
        Refusal::new(code, Some("job"), &message)
    }
}
