//! The choice of the steps or the tasks of a job, in place of the job as a whole.

use polymeter_proto::step_level::StepLevel;

use super::job_choice::JobChoice;
use crate::failure::Failure;

/// The options that choose steps or tasks.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct LevelChoice {
    /// Apply to the steps of the job only.
    #[arg(long, conflicts_with = "tasks")]
    steps: bool,

    /// Apply to the tasks of its steps only.
    #[arg(long)]
    tasks: bool,
}

impl LevelChoice {
    /// Returns the chosen level; none without a choice.
    ///
    /// # Errors
    /// Returns an error if the target is the node.
    pub(crate) fn level(self, job: &JobChoice) -> Result<Option<StepLevel>, Failure> {
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
