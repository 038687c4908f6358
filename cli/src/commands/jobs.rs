//! `polymeter jobs`: the jobs that this node's agent tracks.

use polymeter_agent::control::{SubjectStatus, Verb};
use polymeter_proto::ledger::Tally;

use crate::client::agent::{AgentOptions, ask_status};
use crate::failure::Failure;
use crate::output::table::{head, table};
use crate::output::terminal;

#[derive(Debug, clap::Args)]
pub(crate) struct JobsArguments {
    #[command(flatten)]
    agent: AgentOptions,
}

impl JobsArguments {
    pub(crate) const fn is_json(&self) -> bool {
        self.agent.json
    }
}

pub(crate) fn execute(arguments: &JobsArguments) -> Result<(), Failure> {
    let mut status = ask_status(&arguments.agent.socket, &Verb::Jobs)?;
    status.subjects.retain(|subject| subject.job.is_some());
    if arguments.is_json() {
        terminal::print_json(&status.subjects)
    } else {
        terminal::print(&text(&status.subjects))
    }
}

fn text(jobs: &[SubjectStatus]) -> String {
    if jobs.is_empty() {
        return "no job is tracked\n".to_owned();
    }
    let row = |job: &SubjectStatus| {
        let owner =
            job.user.clone().or_else(|| job.uid.map(|uid| uid.to_string())).unwrap_or_else(|| "-".to_owned());
        let sum = |count: fn(&Tally) -> u64| {
            job.sources.iter().map(|source| count(&source.tally)).sum::<u64>().to_string()
        };
        vec![
            job.job.clone().unwrap_or_default(),
            owner,
            job.sources.len().to_string(),
            sum(|tally| tally.taken),
            sum(|tally| tally.missed),
        ]
    };
    let head = head(["JOB", "OWNER", "SOURCES", "SAMPLES", "MISSED"]);
    table(&std::iter::once(head).chain(jobs.iter().map(row)).collect::<Vec<_>>())
}
