//! Who may ask what, and what the answer is.

use std::sync::atomic::Ordering::Relaxed;

use polymeter_proto::series::Identifier;
use tokio::sync::{mpsc, oneshot};

use super::Context;
use super::wire::{Answer, Counts, Lease, Predicted, Refusal, Register, Status, Verb};
use crate::clock;
use crate::counters::Counters;
use crate::manager::ask;
use crate::request::{RegisterError, Request, SetError, View};
use crate::source::own::resident_bytes;

/// One asker's side of the agent.
pub(super) struct Office<'a> {
    /// Who asks. The agent's own user is as good as root.
    uid: u32,
    requests: &'a mpsc::Sender<Request>,
    context: &'a Context,
}

/// What is answered when something is wrong.
type Answered = Result<Answer, Refusal>;

impl<'a> Office<'a> {
    pub(super) fn new(uid: u32, requests: &'a mpsc::Sender<Request>, context: &'a Context) -> Self {
        let own = uid == rustix::process::geteuid().as_raw();
        Self { uid: if own { 0 } else { uid }, requests, context }
    }

    /// The answer to one request.
    pub(super) async fn answer(&self, verb: Verb) -> Answer {
        let answered = match verb {
            Verb::Status | Verb::Jobs => self.status().await,
            Verb::Plan { job } => self.plan(job).await,
            Verb::Set(lease) => self.set(lease).await,
            Verb::Reset { job } => self.reset(job).await,
            Verb::Register(wanted) => self.register(wanted).await,
            Verb::Unregister { job } => self.unregister(&job).await,
            Verb::Flush => self.flush().await,
        };
        answered.unwrap_or_else(Answer::refused)
    }

    async fn ask<T>(&self, make: impl FnOnce(oneshot::Sender<T>) -> Request) -> Result<T, Refusal> {
        let stopping = || Refusal::new("stopping", None, "the agent is about to end");
        let (request, answer) = ask(make);
        self.requests.send(request).await.ok().ok_or_else(stopping)?;
        answer.await.ok().ok_or_else(stopping)
    }

    fn administrators_only(&self) -> Result<(), Refusal> {
        let message = "only root and the agent's own user may ask that; run this with sudo";
        if self.uid == 0 { Ok(()) } else { Err(Refusal::new("forbidden", None, message)) }
    }

    /// Everything for administrators, for others the jobs that they own.
    async fn view(&self) -> Result<View, Refusal> {
        let mut view = self.ask(Request::View).await?;
        let may_see = |owner: Option<u32>| self.uid == 0 || owner == Some(self.uid);
        view.subjects.retain(|subject| may_see(subject.owner_uid));
        Ok(view)
    }

    async fn status(&self) -> Answered {
        let view = self.view().await?;
        let status = Status::new(self.context.session, &counts(&self.context.counters), &view);
        Ok(Answer::Status(Box::new(status)))
    }

    async fn plan(&self, job: Option<String>) -> Answered {
        let job = job.as_deref().map(job_id).transpose()?;
        let view = self.view().await?;
        let subject = view.subjects.iter().find(|subject| subject.job_id == job);
        let subject = subject.ok_or_else(|| refuse_set(&SetError::UnknownJob))?;
        Ok(Answer::plan(subject))
    }

    async fn set(&self, lease: Lease) -> Answered {
        let set = lease.spec(self.uid)?;
        match self.ask(|reply| Request::Set(Box::new(set), reply)).await? {
            Ok(granted) => Ok(Answer::granted(granted)),
            Err(error) => Err(refuse_set(&error)),
        }
    }

    async fn reset(&self, job: Option<String>) -> Answered {
        let job = job.as_deref().map(job_id).transpose()?;
        match self.ask(|reply| Request::Reset(self.uid, job, reply)).await? {
            Ok(ended) => Ok(Answer::Reset { ended }),
            Err(error) => Err(refuse_set(&error)),
        }
    }

    async fn register(&self, wanted: Register) -> Answered {
        self.administrators_only()?;
        let spec = wanted.spec()?;
        match self.ask(|reply| Request::Register(Box::new(spec), reply)).await? {
            Ok(unavailable) => Ok(Answer::Registered { unavailable }),
            Err(error) => {
                let (code, field) = match error {
                    RegisterError::Known => ("known_job", Some("job")),
                    RegisterError::TooMany => ("too_many", None),
                    RegisterError::NoSuchCgroup(_) | RegisterError::NoCgroup => ("invalid", Some("cgroups")),
                };
                Err(Refusal::new(code, field, &error.to_string()))
            }
        }
    }

    async fn unregister(&self, job: &str) -> Answered {
        self.administrators_only()?;
        let job_id = job_id(job)?;
        if self.ask(|reply| Request::Unregister(job_id, reply)).await? {
            return Ok(Answer::Done {});
        }
        Err(Refusal::new("unknown_job", Some("job"), "no job with this id was registered"))
    }

    async fn flush(&self) -> Answered {
        self.administrators_only()?;
        self.ask(Request::Flush).await?;
        Ok(Answer::Done {})
    }
}

fn job_id(job: &str) -> Result<Identifier, Refusal> {
    job.try_into().map_err(|error: polymeter_proto::series::InvalidIdentifier| {
        Refusal::new("invalid", Some("job"), &format!("it cannot be the name of a job: {error}"))
    })
}

fn refuse_set(error: &SetError) -> Refusal {
    let (code, field) = match error {
        SetError::UnknownJob => ("unknown_job", Some("job")),
        SetError::Forbidden => ("forbidden", Some("job")),
        SetError::Unavailable(_) => ("unavailable", Some("plan")),
        SetError::TooShort(_) => ("shortest_period", Some("plan")),
        SetError::TooLong(_) => ("longest_lease", Some("for")),
        SetError::TooMany(_) => ("too_many", None),
        SetError::OverBudget { limit, .. } => (*limit, Some("plan")),
    };
    let mut refusal = Refusal::new(code, field, &error.to_string());
    if let SetError::OverBudget { cost, instead, .. } = error {
        refusal.cost = Some(Box::new(Predicted::of(*cost)));
        refusal.instead = instead.map(|period| period.to_string());
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
        dropped: counters.dropped.load(Relaxed),
        frames_sent: counters.frames_sent.load(Relaxed),
        frames_acknowledged: counters.frames_acknowledged.load(Relaxed),
        bytes_sent: counters.bytes_sent.load(Relaxed),
        outbox_bytes: counters.outbox_bytes.load(Relaxed),
        cpu_ns: clock::process_cpu_ns(),
        resident_bytes: resident_bytes(),
    }
}
