//! Who may ask what, and what the answer is.

use std::sync::atomic::Ordering::Relaxed;

use polymeter_proto::series::Identifier;
use polymeter_proto::text::Text;
use tokio::sync::{mpsc, oneshot};

use super::Context;
use super::answer::{Answer, CollectorStatus, Counts, Missing, Predicted, Refusal, Status};
use super::client_quota::{ClientQuota, QuotaPermit};
use super::scheduler_hooks::{End, Start};
use super::verb::{Lease, Mark, Push, Register, Subject, Verb, Watch};
use crate::clock;
use crate::counters::Counters;
use crate::delivery::tap::WatchReceiver;
use crate::principal::Principal;
use crate::request::{
    AccessError, AnnotateError, JobView, LeaseError, LeaseGrant, LeaseRequest, ManagerRequest, RegisterError,
    View, ask, by_reason,
};
use crate::sources::agent_self::resident_bytes;

/// One principal's side of the agent.
pub(super) struct RequestHandler<'a> {
    principal: Principal,
    /// From when on her leases count, in microseconds since the epoch; none for now.
    since_us: Option<i64>,
    requests: &'a mpsc::Sender<ManagerRequest>,
    context: &'a Context,
}

/// What is answered when something is wrong.
type Answered = Result<Answer, Refusal>;

impl<'a> RequestHandler<'a> {
    pub(super) const fn new(
        principal: Principal,
        requests: &'a mpsc::Sender<ManagerRequest>,
        context: &'a Context,
    ) -> Self {
        Self { principal, since_us: None, requests, context }
    }

    /// Counts the time of leases from `at_us`, in microseconds since the epoch, and not from now.
    pub(super) const fn since(self, at_us: i64) -> Self {
        Self { since_us: Some(at_us), ..self }
    }

    /// The answer to one request.
    pub(super) async fn answer(&self, verb: Verb) -> Answer {
        let answered = match verb {
            Verb::Status | Verb::Jobs => self.status().await,
            Verb::Metrics(of) => self.metrics(&of).await,
            Verb::Plan(of) => self.plan(&of).await,
            Verb::Set(lease) => self.set(lease).await,
            Verb::Reset(of) => self.reset(&of).await,
            Verb::Mark(mark) => self.mark(mark).await,
            Verb::Push(push) => self.push(push).await,
            Verb::Watch(_) => {
                Err(Refusal::new("forbidden", Some("verb"), "only the socket shows a live stream"))
            }
            Verb::Register(wanted) => self.register(wanted).await,
            Verb::Unregister(of) => self.unregister(&of).await,
            Verb::Start(start) => self.start(*start).await,
            Verb::End(end) => self.end(end).await,
            Verb::Flush => self.flush().await,
        };
        answered.unwrap_or_else(Answer::refused)
    }

    async fn ask<T>(&self, make: impl FnOnce(oneshot::Sender<T>) -> ManagerRequest) -> Result<T, Refusal> {
        let stopping = || Refusal::new("stopping", None, "the agent is about to end");
        let (request, answer) = ask(make);
        self.requests.send(request).await.ok().ok_or_else(stopping)?;
        answer.await.ok().ok_or_else(stopping)
    }

    fn administrators_only(&self) -> Result<(), Refusal> {
        let message = "only root, the agent's own user and the configured administrators may ask that";
        if self.principal.administrator { Ok(()) } else { Err(Refusal::new("forbidden", None, message)) }
    }

    /// Everything for administrators, for others the jobs that they may look at.
    async fn view(&self) -> Result<View, Refusal> {
        let mut view = self.ask(ManagerRequest::View).await?;
        let rights = self.context.rights.borrow();
        view.subjects.retain(|subject| rights.can_see(self.principal, subject.owner_uid));
        Ok(view)
    }

    async fn status(&self) -> Answered {
        let view = self.view().await?;
        let counters = &self.context.counters;
        let collector = collector(&self.context.collector, counters);
        let status = Status::new(self.context.session, &counts(counters), collector, &view);
        Ok(Answer::Status(Box::new(status)))
    }

    /// A job or the node, if this principal may see it.
    pub(super) async fn look(&self, job: &Option<Identifier>) -> Result<JobView, Denied> {
        let view = self.ask(|reply| ManagerRequest::ViewOne(self.principal, job.clone(), reply)).await;
        view.map_err(Denied::Refused)?.map_err(|error| match error {
            AccessError::Unknown => Denied::Unknown(self.denied(job.as_ref(), error)),
            AccessError::Hidden | AccessError::Forbidden => Denied::Refused(self.denied(job.as_ref(), error)),
        })
    }

    /// The answer where access is denied. To whom may not see a job it is that for a job which does not exist, in code,
    /// text and fields: only administrators can tell the one from the other.
    fn denied(&self, job: Option<&Identifier>, error: AccessError) -> Refusal {
        let job = job.map_or("", Identifier::as_str);
        match error {
            AccessError::Forbidden if job.is_empty() => Refusal::new(
                "forbidden",
                Some("job"),
                "only administrators may do that with the node; name a job",
            ),
            AccessError::Forbidden => {
                let message = format!("cannot change job {job}: it belongs to another user");
                Refusal::new("forbidden", Some("job"), &message)
            }
            AccessError::Unknown | AccessError::Hidden if self.principal.administrator => {
                let message = format!(
                    "unknown job {job}: this agent does not track it; `polymeter jobs` lists the jobs"
                );
                Refusal::new("unknown_job", Some("job"), &message)
            }
            AccessError::Unknown | AccessError::Hidden => {
                let message =
                    format!("unknown job {job}, or not yours; `polymeter jobs` lists your jobs on this node");
                Refusal::new("unknown_job", Some("job"), &message)
            }
        }
    }

    async fn metrics(&self, of: &Subject) -> Answered {
        let job = of.id()?;
        let metrics = self.ask(|reply| ManagerRequest::Metrics(self.principal, job.clone(), reply)).await?;
        metrics.map(Answer::metrics).map_err(|error| self.denied(job.as_ref(), error))
    }

    async fn plan(&self, of: &Subject) -> Answered {
        let view = self.look(&of.id()?).await?;
        Ok(Answer::plan(&view))
    }

    /// Lets this client watch if there is a permit for her.
    pub(super) async fn watch<'w>(
        &self,
        wanted: Watch,
        watchers: &'w ClientQuota,
    ) -> Result<(Option<Identifier>, WatchReceiver, QuotaPermit<'w>), Refusal> {
        let (job, selectors) = wanted.spec()?;
        // Before the permit: whether there is one must not depend on whether there is a job.
        self.look(&job).await?;
        let permit = watchers.acquire(self.principal).ok_or_else(|| {
            Refusal::new(
                "busy",
                None,
                "too many are watching already; end one, or choose more metrics in one",
            )
        })?;
        let watching =
            self.ask(|reply| ManagerRequest::Watch(self.principal, job.clone(), selectors, reply)).await?;
        let watching = watching.map_err(|error| self.denied(job.as_ref(), error))?;
        Ok((job, watching, permit))
    }

    async fn set(&self, lease: Lease) -> Answered {
        let set = LeaseRequest { since_us: self.since_us, ..lease.spec(self.principal)? };
        let job = set.job_id.clone();
        let granted = self.ask(|reply| ManagerRequest::Set(Box::new(set), reply)).await?;
        granted.map(Answer::granted).map_err(|error| self.refuse_set(job.as_ref(), &error))
    }

    async fn reset(&self, of: &Subject) -> Answered {
        let job = of.id()?;
        let ended = self.ask(|reply| ManagerRequest::Reset(self.principal, job.clone(), reply)).await?;
        ended.map(|ended| Answer::Reset { ended }).map_err(|error| self.denied(job.as_ref(), error))
    }

    async fn mark(&self, mark: Mark) -> Answered {
        let spec = mark.spec(self.principal)?;
        let job = spec.job_id.clone();
        let marked = self.ask(|reply| ManagerRequest::Mark(Box::new(spec), reply)).await?;
        marked.map(|()| Answer::Done {}).map_err(|error| self.refuse_annotation(job.as_ref(), error))
    }

    async fn push(&self, push: Push) -> Answered {
        let spec = push.spec(self.principal)?;
        let job = spec.job_id.clone();
        let pushed = self.ask(|reply| ManagerRequest::Push(Box::new(spec), reply)).await?;
        pushed.map(|()| Answer::Done {}).map_err(|error| self.refuse_annotation(job.as_ref(), error))
    }

    async fn register(&self, wanted: Register) -> Answered {
        self.administrators_only()?;
        let spec = wanted.spec()?;
        match self.ask(|reply| ManagerRequest::Register(Box::new(spec), reply)).await? {
            Ok(unavailable) => Ok(Answer::Registered { unavailable }),
            Err(error) => Err(refuse_job(&error)),
        }
    }

    async fn start(&self, start: Start) -> Answered {
        self.administrators_only()?;
        let (spec, refused) = start.spec()?;
        let job = spec.job_id.clone();
        let told = self.ask(|reply| ManagerRequest::Start(Box::new(spec), reply)).await?;
        let (granted, refused) = match told.map_err(|error| refuse_job(&error))? {
            None => (None, refused),
            Some(Ok(granted)) => (Some(granted), refused),
            Some(Err(error)) => (None, Some(self.refuse_set(Some(&job), &error))),
        };
        let periods = |granted: LeaseGrant| {
            granted.metrics.into_iter().map(|(metric, period)| (metric, period.to_string())).collect()
        };
        Ok(Answer::Started { granted: granted.map(periods), refused: refused.map(Box::new) })
    }

    async fn end(&self, end: End) -> Answered {
        self.administrators_only()?;
        let (job_id, facts) = end.spec()?;
        self.ask(|reply| ManagerRequest::End(job_id, Box::new(facts), reply)).await?;
        Ok(Answer::Done {})
    }

    async fn unregister(&self, of: &Subject) -> Answered {
        self.administrators_only()?;
        if let Some(job_id) = of.id()?
            && self.ask(|reply| ManagerRequest::Unregister(job_id, reply)).await?
        {
            return Ok(Answer::Done {});
        }
        Err(Refusal::new("unknown_job", Some("job"), "no job with this id was registered"))
    }

    async fn flush(&self) -> Answered {
        self.administrators_only()?;
        self.ask(ManagerRequest::Flush).await?;
        Ok(Answer::Done {})
    }

    fn refuse_annotation(&self, job: Option<&Identifier>, error: AnnotateError) -> Refusal {
        let (code, field) = match error {
            AnnotateError::Access(error) => return self.denied(job, error),
            AnnotateError::TooManySeries(_) => ("too_many", Some("labels")),
            AnnotateError::TooFast { .. } => ("too_fast", None),
        };
        Refusal::new(code, field, &error.to_string())
    }

    fn refuse_set(&self, job: Option<&Identifier>, error: &LeaseError) -> Refusal {
        if let LeaseError::Access(error) = error { self.denied(job, *error) } else { refuse_lease(error) }
    }
}

/// Why a job or the node is not shown.
#[derive(Debug)]
pub(super) enum Denied {
    /// No such job is tracked any more, or none was.
    Unknown(Refusal),
    /// Anything else.
    Refused(Refusal),
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Self {
        let (Denied::Unknown(refusal) | Denied::Refused(refusal)) = denied;
        refusal
    }
}

fn refuse_job(error: &RegisterError) -> Refusal {
    let (code, field) = match error {
        RegisterError::Known => ("known_job", Some("job")),
        RegisterError::TooMany => ("too_many", None),
        RegisterError::NoSuchCgroup(_) | RegisterError::NoCgroup => ("invalid", Some("cgroups")),
    };
    Refusal::new(code, field, &error.to_string())
}

fn refuse_lease(error: &LeaseError) -> Refusal {
    let (code, field) = match error {
        LeaseError::Access(_) => ("forbidden", Some("job")),
        LeaseError::NothingChosen { .. } | LeaseError::Unavailable(_) => ("unavailable", Some("plan")),
        LeaseError::TooShort { .. } => ("shortest_period", Some("plan")),
        LeaseError::TooLong { .. } => ("longest_lease", Some("for")),
        LeaseError::Expired => ("ended", None),
        LeaseError::TooMany(_) => ("too_many", None),
        LeaseError::OverBudget { limit, .. } => (*limit, Some("plan")),
    };
    let mut refusal = Refusal::new(code, field, &error.to_string());
    match error {
        LeaseError::OverBudget { cost, instead, .. } => {
            refusal.cost = Some(Box::new(Predicted::of(*cost)));
            refusal.instead = instead.map(|period| period.to_string());
        }
        LeaseError::TooShort { shortest, .. } => refusal.instead = Some(shortest.to_string()),
        LeaseError::TooLong { longest } => refusal.instead = Some(longest.to_string()),
        LeaseError::Unavailable(missing) => {
            let group = |(reason, metrics): (&str, Vec<&str>)| Missing {
                reason: Text::of(reason),
                metrics: metrics.into_iter().map(str::to_owned).collect(),
            };
            refusal.unavailable = Some(by_reason(missing).into_iter().map(group).collect());
        }
        LeaseError::Access(_)
        | LeaseError::NothingChosen { .. }
        | LeaseError::TooMany(_)
        | LeaseError::Expired => {}
    }
    refusal
}

fn counts(counters: &Counters) -> Counts {
    Counts {
        due: counters.due.load(Relaxed),
        taken: counters.taken.load(Relaxed),
        late: counters.late.load(Relaxed),
        missed: counters.missed.load(Relaxed),
        absent: counters.absent.load(Relaxed),
        dropped: counters.all_dropped(),
        refused: counters.refused.load(Relaxed),
        frames_sent: counters.frames_sent.load(Relaxed),
        frames_acknowledged: counters.frames_acknowledged.load(Relaxed),
        bytes_sent: counters.bytes_sent.load(Relaxed),
        outbox_bytes: counters.outbox_bytes.load(Relaxed),
        spool_bytes: counters.spool_bytes.load(Relaxed),
        cpu_ns: clock::process_cpu_ns(),
        resident_bytes: resident_bytes(),
        jobs: counters.jobs.load(Relaxed),
        jobs_left_out: counters.jobs_left_out.load(Relaxed),
        descriptors: counters.descriptors.load(Relaxed),
        descriptor_limit: counters.descriptor_limit.load(Relaxed),
    }
}

fn collector(address: &str, counters: &Counters) -> CollectorStatus {
    let state = &counters.collector;
    let time = |us: i64| (us > 0).then_some(us);
    CollectorStatus {
        address: address.to_owned(),
        connected: state.is_connected.load(Relaxed),
        since_us: time(state.since_us.load(Relaxed)),
        acknowledged_us: time(state.acknowledged_us.load(Relaxed)),
        now_us: clock::realtime_us(),
        backlog_bytes: counters.outbox_bytes.load(Relaxed) + counters.spool_bytes.load(Relaxed),
    }
}
