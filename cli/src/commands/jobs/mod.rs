//! `polymeter jobs`: the jobs that this node's agent tracks, or stored jobs: those that run on all nodes, or have ended.

#[cfg(feature = "local")]
mod stored;
mod tracked;

use crate::client::agent::AgentOptions;
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct JobsArguments {
    #[command(flatten)]
    agent: AgentOptions,

    #[cfg(feature = "local")]
    #[command(flatten)]
    stored: stored::StoredJobs,
}

impl JobsArguments {
    pub(crate) const fn is_json(&self) -> bool {
        self.agent.json
    }
}

pub(crate) fn execute(arguments: &JobsArguments) -> Result<(), Failure> {
    #[cfg(feature = "local")]
    if arguments.stored.is_wanted() {
        return stored::execute(&arguments.stored, arguments.agent.json);
    }
    let printed = tracked::execute(&arguments.agent);
    #[cfg(feature = "local")]
    if matches!(printed, Err(Failure::NotRunning(_)))
        && arguments.agent.is_default()
        && stored::StoredJobs::has_collector()
    {
        return stored::execute(&arguments.stored, arguments.agent.json);
    }
    printed
}
