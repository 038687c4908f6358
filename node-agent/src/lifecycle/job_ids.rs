//! The ids of jobs that were found: the name of the cgroup, or what the scheduler or a process says it stands for. Pure.

use polymeter_proto::series::Identifier;

use super::announced_jobs::AnnouncedJobs;
use super::event::LifecycleEffect;
use super::found_job::FoundJob;
use super::sluids::{SluidMeaning, Sluids};
use crate::targets::{Now, Targets};

/// The id of a job that was found, where no process must be asked for it.
pub(super) fn known(announced_jobs: &AnnouncedJobs, sluids: &Sluids, found: &FoundJob) -> Option<Identifier> {
    let name = found.name()?;
    let announced = announced_jobs.id_of(name.clone());
    if !found.captured.is_sluid || announced != name {
        return Some(announced);
    }
    sluids.known(&name).cloned()
}

/// The id of a job that was found; none while it is not known.
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
    if !found.captured.is_sluid || announced != name {
        return Some(announced);
    }
    let number = number.filter(|job_id| targets.job(job_id).is_none());
    match sluids.resolve(&name, &found.cgroups, number, now) {
        SluidMeaning::Job(job_id) => Some(job_id),
        SluidMeaning::Unknown => None,
        SluidMeaning::GivenUp(sluid) => {
            out.push(LifecycleEffect::LogWarning(format!(
                "cannot find the number of job {sluid}: no process of it has SLURM_JOB_ID; it is called by its SLUID; \
                 set up the prolog, or CgroupJobIdPaths=yes in cgroup.conf"
            )));
            Some(sluid)
        }
    }
}
