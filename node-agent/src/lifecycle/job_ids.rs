//! The ids of found jobs: the name of the cgroup, or the id that the scheduler or a process gives for it.
//! Pure.

use polymeter_proto::series::Identifier;

use super::announced_jobs::AnnouncedJobs;
use super::effect::LifecycleEffect;
use super::found_job::FoundJob;
use super::sluids::{SluidMeaning, Sluids};
use crate::targets::{Now, Targets};

/// None if a process is needed to determine the id.
pub(super) fn known(announced_jobs: &AnnouncedJobs, sluids: &Sluids, found: &FoundJob) -> Option<Identifier> {
    let name = found.name()?;
    let announced = announced_jobs.id_of(name.clone());
    if !found.captured.is_sluid || announced != name {
        return Some(announced);
    }
    sluids.known(&name).cloned()
}

/// Returns none while the id is unknown.
pub(super) fn resolve(
    announced_jobs: &AnnouncedJobs,
    sluids: &mut Sluids,
    targets: &Targets,
    found: &FoundJob,
    number: Option<Identifier>,
    now: Now,
    out: &mut Vec<LifecycleEffect>,
) -> Option<Identifier> {
    let name = found.name()?;
    let announced = announced_jobs.id_of(name.clone());
    if !found.captured.is_sluid {
        return Some(announced);
    }
    if announced != name {
        // The cgroups may outlive the announcement, which the scheduler withdraws at the job's end.
        sluids.learn(name, announced.clone());
        return Some(announced);
    }
    let number = number.filter(|job_id| targets.job(job_id).is_none());
    match sluids.resolve(&name, &found.cgroups, number, now) {
        SluidMeaning::Job(job_id) => Some(job_id),
        SluidMeaning::Unknown => None,
        SluidMeaning::GivenUp(sluid) => {
            out.push(LifecycleEffect::LogWarning(format!(
                "cannot find the job id of {sluid}: none of its processes has SLURM_JOB_ID; its SLUID is used instead; \
                 set up the prolog, or set CgroupJobIdPaths=yes in cgroup.conf"
            )));
            Some(sluid)
        }
    }
}
