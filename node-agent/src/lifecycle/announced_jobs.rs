//! Jobs that the scheduler has announced here. The scheduler's metadata is kept until the scheduler reports
//! the end, because the cgroups appear later and disappear earlier. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_proto::batch::Job;
use polymeter_proto::ledger::{JobDetails, JobFacts};
use polymeter_proto::series::Identifier;
use polymeter_proto::trigger::Rule;

use crate::admission::JOBS;
use crate::request::{RefusedRequest, RegisterError, SamplingRequest, StartSpec, SubmittedRelease};
use crate::targets::Now;

/// How long a job is kept after its cgroups disappeared, until the scheduler reports its end. Without an
/// epilog the scheduler never does.
const AFTER_CGROUPS_NS: u64 = 60 * 1_000_000_000;

/// How long a job without cgroups is kept: an allocation may last long before its first step.
const WITHOUT_CGROUPS_NS: u64 = 24 * 60 * 60 * 1_000_000_000;

#[derive(Debug, Clone)]
pub(super) struct JobMetadata {
    pub(super) cluster: Option<Identifier>,
    pub(super) owner_uid: Option<u32>,
    pub(super) owner: Option<Identifier>,
    /// Time at which the job started according to the scheduler, in microseconds since the epoch. Cgroups
    /// that disappear and reappear between the start and the end are those of the same job.
    pub(super) since_us: i64,
    pub(super) facts: JobFacts,
    pub(super) details: JobDetails,
    pub(super) gpu_devices: Option<Arc<str>>,
}

#[derive(Debug)]
pub(super) struct AnnouncedJob {
    pub(super) metadata: JobMetadata,
    alias: Option<Identifier>,
    pub(super) job: Option<Arc<Job>>,
    /// Its cgroups were found; its number or its owner may still be looked up.
    is_found: bool,
    /// Requests until they are granted or refused.
    pub(super) sampling: Vec<SamplingRequest>,
    pub(super) pmu_release: Option<SubmittedRelease>,
    /// Triggers that its owner requests, until they are added.
    pub(super) triggers: Vec<Rule>,
    pub(super) refused: Option<RefusedRequest>,
    /// Time at which it is forgotten; none while its cgroups exist.
    forget_ns: Option<u64>,
    is_over: bool,
}

#[derive(Debug, Default)]
pub(super) struct AnnouncedJobs(BTreeMap<Identifier, AnnouncedJob>);

impl AnnouncedJobs {
    /// Adds a job, unless there are too many. A second announcement of a job that is not over updates the
    /// same job.
    pub(super) fn announce(&mut self, spec: StartSpec, now: Now) -> Result<(), RegisterError> {
        let known = self.0.remove(&spec.job_id).filter(|known| !known.is_over);
        if known.is_none() && self.0.len() >= JOBS {
            return Err(RegisterError::TooMany);
        }
        let mut job = known.unwrap_or_else(|| AnnouncedJob {
            metadata: JobMetadata {
                cluster: None,
                owner_uid: None,
                owner: None,
                since_us: now.realtime_us,
                facts: JobFacts::default(),
                details: JobDetails::default(),
                gpu_devices: None,
            },
            alias: None,
            job: None,
            is_found: false,
            sampling: Vec::new(),
            pmu_release: None,
            triggers: Vec::new(),
            refused: None,
            forget_ns: Some(now.monotonic_ns.saturating_add(WITHOUT_CGROUPS_NS)),
            is_over: false,
        });
        let metadata = &mut job.metadata;
        metadata.cluster = spec.cluster.or(metadata.cluster.take());
        metadata.owner_uid = spec.owner_uid.or(metadata.owner_uid);
        metadata.owner = spec.owner.or(metadata.owner.take());
        if !spec.facts.is_empty() {
            metadata.facts = spec.facts;
        }
        if !spec.details.is_empty() {
            metadata.details = spec.details;
        }
        metadata.gpu_devices = spec.gpu_devices.or(metadata.gpu_devices.take());
        job.alias = spec.alias.or(job.alias);
        if !spec.sampling.is_empty() {
            job.sampling = spec.sampling;
        }
        if !spec.triggers.is_empty() {
            job.triggers = spec.triggers;
        }
        job.pmu_release = spec.pmu_release.or(job.pmu_release);
        job.refused = spec.refused.or(job.refused);
        self.0.insert(spec.job_id, job);
        Ok(())
    }

    pub(super) fn id_of(&self, name: Identifier) -> Identifier {
        let aliased = self.0.iter().find(|(_, job)| job.alias.as_ref() == Some(&name));
        aliased.map_or(name, |(job_id, _)| job_id.clone())
    }

    pub(super) fn get(&self, job_id: &Identifier) -> Option<&AnnouncedJob> {
        self.0.get(job_id)
    }

    pub(super) fn note_found(&mut self, job_id: &Identifier) {
        if let Some(job) = self.0.get_mut(job_id) {
            job.is_found = true;
        }
    }

    /// True if a job was announced and its cgroups were never found.
    pub(super) fn awaits(&self, job_id: &Identifier) -> bool {
        self.0.get(job_id).is_some_and(|job| job.job.is_none() && !job.is_found)
    }

    pub(super) fn get_mut(&mut self, job_id: &Identifier) -> Option<&mut AnnouncedJob> {
        self.0.get_mut(job_id)
    }

    /// Returns the scheduler's metadata.
    pub(super) fn cgroups_came(&mut self, job_id: &Identifier) -> Option<JobMetadata> {
        let job = self.0.get_mut(job_id)?;
        (job.forget_ns, job.is_over) = (None, false);
        Some(job.metadata.clone())
    }

    pub(super) fn cgroups_went(&mut self, job_id: &Identifier, now: Now) {
        if let Some(job) = self.0.get_mut(job_id) {
            job.forget_ns = Some(now.monotonic_ns.saturating_add(AFTER_CGROUPS_NS));
            job.is_over = true;
        }
    }

    /// Removes the job when the scheduler reports its end.
    pub(super) fn remove(&mut self, job_id: &Identifier) -> Option<AnnouncedJob> {
        self.0.remove(job_id)
    }

    pub(super) fn forget_old(&mut self, now: Now) {
        self.0.retain(|_, job| job.forget_ns.is_none_or(|at_ns| at_ns > now.monotonic_ns));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Identifier {
        Identifier::try_from(text).unwrap()
    }

    fn at(monotonic_ns: u64) -> Now {
        Now { monotonic_ns, realtime_us: i64::try_from(monotonic_ns).unwrap() }
    }

    fn spec(job: &str, alias: Option<&str>) -> StartSpec {
        StartSpec {
            job_id: name(job),
            alias: alias.map(name),
            cluster: None,
            owner_uid: Some(7),
            owner: None,
            sampling: Vec::new(),
            pmu_release: None,
            triggers: Vec::new(),
            refused: None,
            facts: JobFacts::default(),
            details: JobDetails::default(),
            gpu_devices: None,
        }
    }

    #[test]
    fn a_repeated_announcement_is_one_job_and_a_requeued_job_is_another() {
        let mut jobs = AnnouncedJobs::default();
        jobs.announce(spec("1", None), at(1)).unwrap();
        jobs.cgroups_came(&name("1"));
        jobs.announce(spec("1", None), at(2)).unwrap();
        assert_eq!(jobs.cgroups_came(&name("1")).unwrap().since_us, 1);
        jobs.cgroups_went(&name("1"), at(3));
        // The job is between two steps of an allocation.
        assert_eq!(jobs.cgroups_came(&name("1")).unwrap().since_us, 1);
        jobs.cgroups_went(&name("1"), at(4));
        // The job is requeued.
        jobs.announce(spec("1", None), at(5)).unwrap();
        assert_eq!(jobs.cgroups_came(&name("1")).unwrap().since_us, 5);
        assert!(!jobs.0[&name("1")].is_over);
    }

    #[test]
    fn cgroups_may_have_another_name() {
        let mut jobs = AnnouncedJobs::default();
        jobs.announce(spec("42", Some("s9K2")), at(1)).unwrap();
        assert_eq!(jobs.id_of(name("s9K2")), name("42"));
        assert_eq!(jobs.id_of(name("43")), name("43"));
    }

    #[test]
    fn jobs_that_are_over_are_forgotten() {
        let mut jobs = AnnouncedJobs::default();
        for job in ["runs", "over", "never came"] {
            jobs.announce(spec(job, None), at(0)).unwrap();
        }
        jobs.cgroups_came(&name("runs"));
        jobs.cgroups_went(&name("over"), at(0));
        jobs.forget_old(at(AFTER_CGROUPS_NS));
        assert_eq!(jobs.0.keys().map(Identifier::as_str).collect::<Vec<_>>(), ["never came", "runs"]);
        jobs.forget_old(at(WITHOUT_CGROUPS_NS));
        assert_eq!(jobs.0.len(), 1);
    }

    #[test]
    fn the_number_of_announced_jobs_is_bounded() {
        let mut jobs = AnnouncedJobs::default();
        for job in 0..JOBS {
            jobs.announce(spec(&job.to_string(), None), at(0)).unwrap();
        }
        assert_eq!(jobs.announce(spec("one more", None), at(0)), Err(RegisterError::TooMany));
        assert!(jobs.announce(spec("1", None), at(0)).is_ok());
    }
}
