//! Which job is meant: said, told by the scheduler, or that in whose cgroup the command was typed.

use std::path::{Path, PathBuf};

use polymeter_agent::cgroups::Mounts;
use polymeter_agent::control::{SubjectStatus, Verb};

use super::ask_status;
use crate::failure::Failure;
use crate::own::OwnCgroups;

/// Where schedulers tell a job its id.
const VARIABLES: [&str; 2] = ["SLURM_JOB_ID", "OAR_JOB_ID"];

/// Which job.
#[derive(Debug, clap::Args)]
pub(crate) struct Job {
    /// The job; without it that of SLURM_JOB_ID or OAR_JOB_ID, or the one in whose cgroup this runs.
    #[arg(long, value_name = "ID")]
    job: Option<String>,

    /// The node's own metrics, not a job's.
    #[arg(long, conflicts_with = "job")]
    node: bool,
}

impl Job {
    /// Whether it is a job at all, and not the node.
    pub(super) const fn is_one(&self) -> bool {
        !self.node
    }

    /// The job that is meant; none for the node. The agent at `socket` is asked where nobody says it.
    pub(crate) fn id(&self, socket: &Path) -> Result<Option<String>, Failure> {
        if self.node {
            return Ok(None);
        }
        let told = VARIABLES.iter().find_map(|name| std::env::var(name).ok().filter(|id| !id.is_empty()));
        if let Some(job) = self.job.clone().or(told) {
            return Ok(Some(job));
        }
        let which = |why: &str| Failure::Usage(format!("which job? --job ID says it; {why}"));
        let status = ask_status(socket, &Verb::Jobs).map_err(|failure| match failure {
            Failure::Unreachable(why) | Failure::Nobody(why) => {
                Failure::Unreachable(format!("cannot find out which job is meant: {why}; --job ID says it"))
            }
            other @ (Failure::Refused(_)
            | Failure::Answered(_)
            | Failure::Partly(_)
            | Failure::Usage(_)
            | Failure::NotRun { .. }) => other,
        })?;
        let found = job_of(&status.subjects, &own_directories()).map(|id| Some(id.to_owned()));
        found.ok_or_else(|| {
            which("this runs in none that the agent follows for you, and `polymeter jobs` lists those")
        })
    }
}

/// The cgroup directories of this process; none where the machine does not say.
fn own_directories() -> Vec<PathBuf> {
    let Ok(mounts) = Mounts::read(Path::new("/")) else { return Vec::new() };
    OwnCgroups::read(&mounts.proc).map_or_else(|_| Vec::new(), |own| own.directories(&mounts))
}

/// The job in whose cgroups a process with these directories is; of jobs within jobs the innermost.
fn job_of<'a>(subjects: &'a [SubjectStatus], own: &[PathBuf]) -> Option<&'a str> {
    let depth = |subject: &SubjectStatus| {
        let around = subject.cgroups.iter().filter(|cgroup| own.iter().any(|own| own.starts_with(cgroup)));
        around.map(|cgroup| cgroup.components().count()).max()
    };
    let within = subjects.iter().filter_map(|subject| Some((depth(subject)?, subject.job.as_deref()?)));
    within.max_by_key(|(depth, _)| *depth).map(|(_, job)| job)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(job: Option<&str>, cgroups: &[&str]) -> SubjectStatus {
        SubjectStatus {
            job: job.map(str::to_owned),
            uid: None,
            user: None,
            started_us: None,
            cgroups: cgroups.iter().map(PathBuf::from).collect(),
            sources: Vec::new(),
            unavailable: Vec::new(),
        }
    }

    #[test]
    fn a_process_is_in_the_innermost_job_around_it() {
        let subjects = [
            subject(None, &[]),
            subject(Some("4"), &["/cg/memory/job_4", "/cg/cpu/job_4"]),
            subject(Some("42"), &["/cg/memory/job_42"]),
            subject(Some("42.inner"), &["/cg/memory/job_42/inner"]),
        ];
        let of = |own: &[&str]| job_of(&subjects, &own.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(of(&["/cg/cpu", "/cg/memory/job_42/step_0"]), Some("42"));
        assert_eq!(of(&["/cg/cpu/job_4", "/cg/memory"]), Some("4"));
        assert_eq!(of(&["/cg/memory/job_42/inner/x"]), Some("42.inner"));
        assert_eq!(of(&["/cg/memory/job_421"]), None);
        assert_eq!(of(&[]), None);
    }
}
