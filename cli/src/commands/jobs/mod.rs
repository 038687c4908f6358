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

#[cfg(feature = "local")]
pub(crate) fn execute(arguments: &JobsArguments) -> Result<(), Failure> {
    let JobsArguments { agent, stored } = arguments;
    if stored.is_wanted() {
        return stored::execute(stored, agent.json);
    }
    match tracked::execute(agent) {
        Err(Failure::NotRunning(_)) if agent.is_default() && stored::StoredJobs::has_collector() => {
            stored::execute(stored, agent.json)
        }
        printed => printed,
    }
}

#[cfg(not(feature = "local"))]
pub(crate) fn execute(arguments: &JobsArguments) -> Result<(), Failure> {
    tracked::execute(&arguments.agent)
}
