//! Choice of a job: by option, by the scheduler's environment, or by the cgroup in which the command
//! runs; and of its steps or tasks in place of the job as a whole.

use std::path::{Path, PathBuf};

use clap_complete::engine::ArgValueCompleter;
use polymeter_proto::control::{JobsRequest, Request, SubjectStatus};
use polymeter_proto::step_level::StepLevel;
use polymeter_service::cgroup_mounts::Mounts;

use crate::completion::jobs;
use crate::connection::agent::{JOB_VARIABLE, ask_status, run_socket};
use crate::failure::Failure;
use crate::own_cgroups::OwnCgroups;

/// Variables in which schedulers pass a job its id.
const VARIABLES: [&str; 2] = ["SLURM_JOB_ID", "OAR_JOB_ID"];

pub fn scheduler_job() -> Option<String> {
    VARIABLES.iter().find_map(|name| std::env::var(name).ok().filter(|id| !id.is_empty()))
}

/// Job of the `polymeter run` in which this command runs, if its agent is the one at `socket`.
fn run_job(socket: &Path) -> Option<String> {
    run_socket().filter(|of_run| of_run == socket)?;
    std::env::var(JOB_VARIABLE).ok().filter(|id| !id.is_empty())
}

/// Options that choose a job or the node.
#[derive(Debug, clap::Args)]
pub struct JobChoice {
    /// The job's id. Default: the job of the `polymeter run` around the command, else SLURM_JOB_ID or
    /// OAR_JOB_ID, else the job in whose cgroup the command runs.
    #[arg(long, value_name = "ID", add = ArgValueCompleter::new(jobs::running))]
    job: Option<String>,

    /// The node's own metrics instead of a job's.
    #[arg(long, conflicts_with = "job")]
    node: bool,
}

impl JobChoice {
    /// Choice by the option of another command.
    pub const fn of(job: Option<String>) -> Self {
        Self { job, node: false }
    }

    /// False for the node.
    pub const fn is_job(&self) -> bool {
        !self.node
    }

    /// Id of the chosen job; none for the node. Without an option and a variable, the agent at `socket`
    /// determines it.
    pub fn id(&self, socket: &Path) -> Result<Option<String>, Failure> {
        if self.node {
            return Ok(None);
        }
        if let Some(job) = self.job.clone().or_else(|| run_job(socket)).or_else(scheduler_job) {
            return Ok(Some(job));
        }
        let status = ask_status(socket, &Request::Jobs(JobsRequest {})).map_err(|failure| match failure {
            Failure::Unreachable(cause) | Failure::NotRunning(cause) => Failure::Unreachable(format!(
                "cannot determine the job: {cause}, or name the job with --job ID"
            )),
            other @ (Failure::Failed(_)
            | Failure::Refused(_)
            | Failure::Partial(_)
            | Failure::Usage(_)
            | Failure::NotStarted { .. }) => other,
        })?;
        innermost_job(&status.subjects, &own_directories()).map(|id| Some(id.to_owned())).ok_or_else(|| {
            Failure::Usage(
                "cannot determine the job: the command does not run in a job of yours that the agent tracks; name the job with --job ID (`polymeter jobs` lists them)"
                    .to_owned(),
            )
        })
    }
}

/// The options that choose steps or tasks.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct LevelChoice {
    /// Apply to the steps of the job only.
    #[arg(long, conflicts_with = "tasks")]
    steps: bool,

    /// Apply to the tasks of its steps only.
    #[arg(long)]
    tasks: bool,
}

impl LevelChoice {
    pub fn level(self, job: &JobChoice) -> Result<Option<StepLevel>, Failure> {
        let level = match (self.steps, self.tasks) {
            (true, _) => StepLevel::Step,
            (false, true) => StepLevel::Task,
            (false, false) => return Ok(None),
        };
        if !job.is_job() {
            let message = "cannot change the periods of steps or tasks of the node; name a job with --job";
            return Err(Failure::Usage(message.to_owned()));
        }
        Ok(Some(level))
    }
}

/// Cgroup directories of this process; none if they cannot be read.
fn own_directories() -> Vec<PathBuf> {
    let Ok(mounts) = Mounts::read(Path::new("/")) else { return Vec::new() };
    OwnCgroups::read(&mounts.proc).map_or_else(|_| Vec::new(), |own| own.directories(&mounts))
}

/// Components of the deepest cgroup of the job that contains one of the directories `own`.
fn depth(subject: &SubjectStatus, own: &[PathBuf]) -> Option<usize> {
    let around = subject.cgroups.iter().filter(|cgroup| own.iter().any(|own| own.starts_with(cgroup)));
    around.map(|cgroup| cgroup.components().count()).max()
}

/// Finds the job in whose cgroups a process with the directories `own` runs; of nested jobs the innermost.
fn innermost_job<'a>(subjects: &'a [SubjectStatus], own: &[PathBuf]) -> Option<&'a str> {
    let jobs = subjects.iter().filter_map(|subject| Some((depth(subject, own)?, subject.job.as_deref()?)));
    jobs.max_by_key(|(depth, _)| *depth).map(|(_, job)| job)
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
    fn the_innermost_job_around_a_process_is_chosen() {
        let subjects = [
            subject(None, &[]),
            subject(Some("4"), &["/cg/memory/job_4", "/cg/cpu/job_4"]),
            subject(Some("42"), &["/cg/memory/job_42"]),
            subject(Some("42.inner"), &["/cg/memory/job_42/inner"]),
        ];
        let job_of =
            |own: &[&str]| innermost_job(&subjects, &own.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(job_of(&["/cg/cpu", "/cg/memory/job_42/step_0"]), Some("42"));
        assert_eq!(job_of(&["/cg/cpu/job_4", "/cg/memory"]), Some("4"));
        assert_eq!(job_of(&["/cg/memory/job_42/inner/x"]), Some("42.inner"));
        assert_eq!(job_of(&["/cg/memory/job_421"]), None);
        assert_eq!(job_of(&[]), None);
    }
}
