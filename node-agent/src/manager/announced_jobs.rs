//! Jobs of which the scheduler has said that they start here: what it told of them is kept until it says that they ended,
//! since their cgroups come later, and go earlier.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use polymeter_proto::batch::Job;
use polymeter_proto::ledger::{Event, JobFacts, JobTold};
use polymeter_proto::series::Identifier;
use tokio::time::Instant;

use super::jobs::owner_uid;
use super::refused_requests::refused_of;
use super::{Manager, TargetKey};
use crate::clock;
use crate::lanes::{Command, EventRecord};
use crate::lifecycle::discovery;
use crate::principal::Principal;
use crate::request::{
    LeaseError, LeaseGrant, LeaseRequest, RefusedRequest, RegisterError, SamplingRequest, StartSpec,
};

/// How long a job is remembered after its cgroups went, for the scheduler to say that it has ended. An epilog that was not
/// set up says so never.
const OVER: Duration = Duration::from_secs(60);

/// How long a job is remembered whose cgroups never come: an allocation without a step may last.
const NEVER: Duration = Duration::from_secs(24 * 60 * 60);

/// How long there must be nothing to do before an agent ends that was started for a job: the next job often comes at once.
const IDLE: Duration = Duration::from_secs(5);

/// What was told of one job.
#[derive(Debug, Clone)]
pub(super) struct JobMetadata {
    pub(super) cluster: Option<Identifier>,
    pub(super) owner_uid: Option<u32>,
    pub(super) owner: Option<Identifier>,
    /// When the scheduler said that it starts, in microseconds since the epoch. Cgroups that go and come again between
    /// that and its end are those of the same job.
    pub(super) since_us: i64,
    facts: JobFacts,
}

#[derive(Debug)]
struct AnnouncedJob {
    said: JobMetadata,
    alias: Option<Identifier>,
    /// The job as the data name it, since it was there.
    job: Option<Arc<Job>>,
    /// The owner's wishes, until the job is there.
    sampling: Option<SamplingRequest>,
    /// A request of the owner's that cannot be read, until the job is there.
    refused: Option<RefusedRequest>,
    /// When it is to be forgotten; not while its cgroups are there.
    forget_at: Option<Instant>,
    /// Whether its cgroups were there, and went.
    is_over: bool,
}

/// All of them, by their ids.
#[derive(Debug, Default)]
pub(super) struct AnnouncedJobs(BTreeMap<Identifier, AnnouncedJob>);

impl AnnouncedJobs {
    /// Remembers what was told. What is told again of a job that is not over is the same job.
    fn tell(&mut self, spec: StartSpec, now: Instant) -> Result<(), RegisterError> {
        let known = self.0.remove(&spec.job_id).filter(|known| !known.is_over);
        if known.is_none() && self.0.len() >= discovery::JOBS {
            return Err(RegisterError::TooMany);
        }
        let mut started = known.unwrap_or_else(|| AnnouncedJob {
            said: JobMetadata {
                cluster: None,
                owner_uid: None,
                owner: None,
                since_us: clock::realtime_us(),
                facts: JobFacts::default(),
            },
            alias: None,
            job: None,
            sampling: None,
            refused: None,
            forget_at: Some(now + NEVER),
            is_over: false,
        });
        started.said.cluster = spec.cluster.or(started.said.cluster);
        started.said.owner_uid = spec.owner_uid.or(started.said.owner_uid);
        started.said.owner = spec.owner.or(started.said.owner);
        if !spec.facts.is_empty() {
            started.said.facts = spec.facts;
        }
        started.alias = spec.alias.or(started.alias);
        started.sampling = spec.sampling.or(started.sampling);
        started.refused = spec.refused.or(started.refused);
        self.0.insert(spec.job_id, started);
        Ok(())
    }

    /// The job's id, where its cgroups carry another name.
    pub(super) fn id_of(&self, name: Identifier) -> Identifier {
        let aliased = self.0.iter().find(|(_, started)| started.alias.as_ref() == Some(&name));
        aliased.map_or(name, |(job_id, _)| job_id.clone())
    }

    /// Its cgroups are there: what was told of it.
    pub(super) fn came(&mut self, job_id: &Identifier) -> Option<JobMetadata> {
        let started = self.0.get_mut(job_id)?;
        (started.forget_at, started.is_over) = (None, false);
        Some(started.said.clone())
    }

    /// Its cgroups are gone.
    pub(super) fn gone(&mut self, job_id: &Identifier) {
        if let Some(started) = self.0.get_mut(job_id) {
            (started.forget_at, started.is_over) = (Some(Instant::now() + OVER), true);
        }
    }

    /// The wishes of the owner of a job that were never granted nor refused, which are forgotten.
    pub(super) fn take_sampling(&mut self, job_id: &Identifier) -> Option<SamplingRequest> {
        self.0.get_mut(job_id)?.sampling.take()
    }

    fn forget_old(&mut self, now: Instant) {
        self.0.retain(|_, started| started.forget_at.is_none_or(|at| at > now));
    }
}

impl Manager {
    /// A job starts. Answers what its owner's wishes have come to, where its cgroups are there already.
    pub(super) async fn start(
        &mut self,
        spec: StartSpec,
    ) -> Result<Option<Result<LeaseGrant, LeaseError>>, RegisterError> {
        let job_id = spec.job_id.clone();
        let owner_uid = owner_uid(spec.owner_uid, spec.owner.as_ref()).await;
        let spec = StartSpec { owner_uid, ..spec };
        self.started.tell(spec, Instant::now())?;
        let key = Some(job_id.clone());
        if !self.followed.contains_key(&key) {
            return Ok(None);
        }
        if let Some(uid) = owner_uid {
            self.set_owner(&key, uid).await;
        }
        self.started.came(&job_id);
        self.tell_facts(&job_id).await;
        Ok(self.grant_sampling(&job_id).await)
    }

    /// Puts what the scheduler told of a job that is followed into the data.
    pub(super) async fn tell_facts(&mut self, job_id: &Identifier) {
        let job = self.followed.get(&Some(job_id.clone())).and_then(|followed| followed.job.clone());
        let (Some(job), Some(started)) = (job, self.started.0.get_mut(job_id)) else { return };
        started.job = Some(Arc::clone(&job));
        let (facts, refused) = (started.said.facts.clone(), started.refused.take());
        if !facts.is_empty() {
            self.tell_of(job, facts, false).await;
        }
        self.refuse_requests(job_id, refused.into_iter().collect()).await;
    }

    async fn tell_of(&self, job: Arc<Job>, facts: JobFacts, is_over: bool) {
        let event = Event::JobTold(JobTold { job: job.handle, is_over, facts });
        self.command(Command::RecordEvent(Box::new(EventRecord { job: Some(job), event }))).await;
    }

    /// Makes a lease of what the owner of a job that is followed wished when she submitted it, as if she asked now. Where
    /// nothing of it can be sampled yet, the wishes are kept: the cgroup of another controller may come.
    pub(super) async fn grant_sampling(
        &mut self,
        job_id: &Identifier,
    ) -> Option<Result<LeaseGrant, LeaseError>> {
        let SamplingRequest { metrics, duration_us } = self.started.0.get(job_id)?.sampling.clone()?;
        let key: TargetKey = Some(job_id.clone());
        // Whatever she may do elsewhere, a wish at submission is an ordinary user's.
        let principal = Principal { uid: self.followed.get(&key)?.owner_uid?, administrator: false };
        let set =
            LeaseRequest { principal, job_id: key, metrics: metrics.clone(), since_us: None, duration_us };
        let granted = self.set(set).await;
        let refused = refused_of(&metrics, &granted);
        if matches!(granted, Err(LeaseError::Unavailable(_))) {
            self.defer_requests(job_id, refused);
            return Some(granted);
        }
        self.forget_deferred(job_id);
        self.refuse_requests(job_id, refused).await;
        self.started.0.get_mut(job_id)?.sampling = None;
        Some(granted)
    }

    /// The scheduler says that a job has ended. Where its cgroups are still there, what they say now is the end of it.
    pub(super) async fn scheduler_ended(&mut self, job_id: &Identifier, facts: JobFacts) {
        let started = self.started.0.remove(job_id);
        let followed = self.followed.get(&Some(job_id.clone()));
        if let Some(followed) = followed {
            self.read_once(followed).await;
        }
        let is_over = followed.is_none();
        let here = followed.and_then(|followed| followed.job.clone());
        let job = here.or(started.and_then(|started| started.job));
        if let Some(job) = job.filter(|_| !facts.is_empty()) {
            self.tell_of(job, facts, is_over).await;
        }
    }

    /// Whether the agent was started for a job, and has had nothing to do for a while, and the collector has everything.
    pub(super) fn has_nothing_to_do(&mut self) -> bool {
        let now = Instant::now();
        self.started.forget_old(now);
        let busy = self.followed.keys().any(Option::is_some) || !self.started.0.is_empty();
        if busy {
            self.idle_since = now;
        }
        self.config.exit_when_idle
            && now.duration_since(self.idle_since) >= IDLE
            && self.counters.outbox_bytes.load(Relaxed) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Identifier {
        Identifier::try_from(text).unwrap()
    }

    fn spec(job: &str, alias: Option<&str>) -> StartSpec {
        StartSpec {
            job_id: name(job),
            alias: alias.map(name),
            cluster: None,
            owner_uid: Some(7),
            owner: None,
            sampling: None,
            refused: None,
            facts: JobFacts::default(),
        }
    }

    #[test]
    fn what_is_told_twice_is_one_job_and_a_job_that_comes_again_is_another() {
        let (mut jobs, now) = (AnnouncedJobs::default(), Instant::now());
        jobs.tell(spec("1", None), now).unwrap();
        let since = jobs.came(&name("1")).unwrap().since_us;
        jobs.tell(spec("1", None), now).unwrap();
        assert_eq!(jobs.came(&name("1")).unwrap().since_us, since);
        jobs.gone(&name("1"));
        // Between two steps of an allocation.
        assert_eq!(jobs.came(&name("1")).unwrap().since_us, since);
        jobs.gone(&name("1"));
        // Requeued.
        jobs.tell(spec("1", None), now).unwrap();
        assert!(jobs.came(&name("1")).unwrap().since_us >= since);
        assert!(!jobs.0[&name("1")].is_over);
    }

    #[test]
    fn cgroups_may_carry_another_name() {
        let mut jobs = AnnouncedJobs::default();
        jobs.tell(spec("42", Some("s9K2")), Instant::now()).unwrap();
        assert_eq!(jobs.id_of(name("s9K2")), name("42"));
        assert_eq!(jobs.id_of(name("43")), name("43"));
    }

    #[test]
    fn what_is_over_is_forgotten_and_what_runs_is_not() {
        let (mut jobs, now) = (AnnouncedJobs::default(), Instant::now());
        for job in ["runs", "over", "never came"] {
            jobs.tell(spec(job, None), now).unwrap();
        }
        jobs.came(&name("runs"));
        jobs.gone(&name("over"));
        jobs.forget_old(now + OVER + Duration::from_secs(1));
        assert_eq!(jobs.0.keys().map(Identifier::as_str).collect::<Vec<_>>(), ["never came", "runs"]);
        jobs.forget_old(now + NEVER);
        assert_eq!(jobs.0.len(), 1);
    }

    #[test]
    fn there_is_a_bound() {
        let (mut jobs, now) = (AnnouncedJobs::default(), Instant::now());
        for job in 0..discovery::JOBS {
            jobs.tell(spec(&job.to_string(), None), now).unwrap();
        }
        assert_eq!(jobs.tell(spec("one more", None), now), Err(RegisterError::TooMany));
        assert!(jobs.tell(spec("1", None), now).is_ok());
    }
}
