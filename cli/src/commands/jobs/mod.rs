//! `polymeter jobs`: the jobs that this node's agent tracks, or those that have ended.

#[cfg(feature = "local")]
mod ended;
mod tracked;

use crate::client::agent::AgentOptions;
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct JobsArguments {
    #[command(flatten)]
    agent: AgentOptions,

    #[cfg(feature = "local")]
    #[command(flatten)]
    ended: ended::EndedJobs,
}

impl JobsArguments {
    pub(crate) const fn is_json(&self) -> bool {
        self.agent.json
    }
}

pub(crate) fn execute(arguments: &JobsArguments) -> Result<(), Failure> {
    #[cfg(feature = "local")]
    if arguments.ended.is_wanted()? {
        return ended::execute(&arguments.ended, arguments.agent.json);
    }
    tracked::execute(&arguments.agent)
}
