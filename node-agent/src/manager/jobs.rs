//! Jobs come and go: by registration, and by discovery.

use std::time::Duration;

use polymeter_proto::ledger::Event;
use polymeter_proto::series::{Identifier, JobDescriptor};
use tokio::sync::oneshot;

use super::owner_lookup::uid_of;
use super::tracked_target::TrackedTarget;
use super::{Manager, TargetKey};
use crate::cgroups::JobCgroups;
use crate::clock;
use crate::lanes::{Command, EventRecord};
use crate::lifecycle::discovery::Found;
use crate::plan::Plan;
use crate::request::{JobSpec, RegisterError};
use crate::sources::Target;

/// The longest wait for the first reading of a registered job.
const CONFIRM: Duration = Duration::from_secs(2);

impl Manager {
    pub(super) async fn register(&mut self, spec: JobSpec) -> Result<Vec<(String, String)>, RegisterError> {
        let key = Some(spec.job_id.clone());
        if self.followed.contains_key(&key) {
            return Err(RegisterError::Known);
        }
        if !self.has_room_for(spec.owner_uid) {
            return Err(RegisterError::TooMany);
        }
        let target = match spec.process {
            Some(root) if spec.cgroups.is_empty() => Target::Processes(root),
            _ => {
                let mut cgroups = JobCgroups::default();
                for path in &spec.cgroups {
                    if !path.is_dir() {
                        return Err(RegisterError::NoSuchCgroup(path.clone()));
                    }
                    cgroups.add(&self.mounts, path);
                }
                if cgroups.is_empty() {
                    return Err(RegisterError::NoCgroup);
                }
                Target::Cgroups(cgroups)
            }
        };
        let descriptor = JobDescriptor {
            job_id: spec.job_id,
            cluster: spec.cluster.or(self.config.cluster.clone()),
            owner_uid: owner_uid(spec.owner_uid, spec.owner.as_ref()).await,
            owner: spec.owner,
            started_us: clock::realtime_us(),
        };
        let plan = Plan { registration: spec.sampling, ..self.standing_plan() };
        self.follow(key.clone(), Some(descriptor), target, plan, None).await;
        self.look_at(&key).await;
        self.confirm_first_reading().await;
        Ok(self.followed.get(&key).map(|followed| followed.unavailable.clone()).unwrap_or_default())
    }

    /// Waits until the sampler has taken the first reading of what was opened: the caller may be holding the job's first
    /// process until then.
    async fn confirm_first_reading(&self) {
        let (reply, taken) = oneshot::channel();
        self.command(Command::Confirm(reply)).await;
        // A sampler that has ended does not answer, and takes no readings either.
        tokio::time::timeout(CONFIRM, taken).await.ok();
    }

    /// Takes the last readings of a job and lets it go.
    pub(super) async fn end(&mut self, key: &TargetKey) {
        if let Some(job_id) = key {
            self.refuse_deferred(job_id).await;
        }
        let Some(followed) = self.followed.remove(key) else { return };
        if let Some(job_id) = key {
            self.started.gone(job_id);
            self.unwatch(job_id);
        }
        self.read_once(&followed).await;
        for id in followed.source_ids() {
            self.command(Command::Remove(id)).await;
        }
        if let Some(job) = followed.job {
            let event = Event::JobEnded { job: job.handle, at_us: clock::realtime_us() };
            self.command(Command::RecordEvent(Box::new(EventRecord { job: Some(job), event }))).await;
        }
        self.count();
    }

    /// Follows the jobs that discovery finds, and lets those go that it finds no more.
    pub(super) async fn look_for_jobs(&mut self) {
        let mut found = self.discovery.walk();
        self.make_fit(&mut found);
        self.sluids.retain(found.values());
        let gone: Vec<TargetKey> = self
            .followed
            .iter()
            .filter(|(_, followed)| followed.found_at.as_ref().is_some_and(|path| !found.contains_key(path)))
            .map(|(key, _)| key.clone())
            .collect();
        for key in gone {
            self.end(&key).await;
        }
        for job in found.into_values() {
            self.meet(job).await;
            // To open a job's files takes about as long as a scheduler takes to remove another's.
            self.heed_ends().await;
        }
        self.end_registered_without_cgroups().await;
    }

    /// A job that discovery has found: new, or with cgroups that came since, or known.
    async fn meet(&mut self, found: Found) {
        let Some(job_id) = self.id_of(&found) else { return };
        let key = Some(job_id.clone());
        let replaced = self.followed.get(&key).is_some_and(|followed| {
            let same_place = followed.found_at.as_ref() == Some(&found.relative);
            same_place
                && matches!(&followed.target, Target::Cgroups(cgroups) if found.cgroups.replaces(cgroups))
        });
        if replaced {
            // It went and came again between two looks, as when a job is requeued.
            self.end(&key).await;
        }
        if let Some(followed) = self.followed.get_mut(&key) {
            if followed.found_at.as_ref() == Some(&found.relative)
                && let Target::Cgroups(cgroups) = &mut followed.target
                && *cgroups != found.cgroups
            {
                // The scheduler makes the cgroups of the controllers one after the other, and removes them so. What
                // goes needs no reopening.
                let grew = found.cgroups.directories().len() > cgroups.directories().len();
                *cgroups = found.cgroups;
                if grew {
                    self.reopen(&key).await;
                    self.look_at(&key).await;
                    self.grant_sampling(&job_id).await;
                }
            }
            return;
        }
        let has_place = |followed: &TrackedTarget| {
            found.captured.is_sluid && followed.found_at.as_ref() == Some(&found.relative)
        };
        let other =
            self.followed.iter().find(|(_, followed)| has_place(followed)).map(|(key, _)| key.clone());
        if let Some(other) = other {
            // Only now the scheduler has said what the job is called.
            self.end(&other).await;
        }
        let told = self.started.came(&job_id);
        let owner = found.captured.user.as_deref().and_then(|user| Identifier::try_from(user).ok());
        let owner = told.as_ref().and_then(|told| told.owner.clone()).or(owner);
        // The cgroup's path is the scheduler's word, too, and what the kernel acts upon.
        let uid = found.captured.uid.or(told.as_ref().and_then(|told| told.owner_uid));
        let descriptor = JobDescriptor {
            job_id: job_id.clone(),
            cluster: told.as_ref().and_then(|told| told.cluster.clone()).or(self.config.cluster.clone()),
            owner_uid: owner_uid(uid, owner.as_ref()).await,
            owner,
            started_us: told.as_ref().map_or_else(clock::realtime_us, |told| told.since_us),
        };
        let plan = self.standing_plan();
        let target = Target::Cgroups(found.cgroups);
        self.follow(key.clone(), Some(descriptor), target, plan, Some(found.relative)).await;
        self.look_at(&key).await;
        self.tell_facts(&job_id).await;
        self.grant_sampling(&job_id).await;
    }

    async fn end_registered_without_cgroups(&mut self) {
        let gone = |followed: &TrackedTarget| match &followed.target {
            Target::Cgroups(cgroups) => {
                followed.found_at.is_none() && !cgroups.directories().iter().any(|path| path.is_dir())
            }
            Target::Processes(_) | Target::Node(_) => false,
        };
        let ended: Vec<TargetKey> =
            self.followed.iter().filter(|(_, followed)| gone(followed)).map(|(key, _)| key.clone()).collect();
        for key in ended {
            self.end(&key).await;
        }
    }
}

/// The owner's number: as it was told, else that of the name.
pub(super) async fn owner_uid(uid: Option<u32>, name: Option<&Identifier>) -> Option<u32> {
    match (uid, name) {
        (None, Some(name)) => uid_of(name.as_str().to_owned()).await,
        (uid, _) => uid,
    }
}
