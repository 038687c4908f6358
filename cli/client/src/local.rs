//! Additions of a program to the commands of the client.

use std::sync::Arc;

use clap_complete::engine::CompletionCandidate;
use polymeter_proto::control::{Answer, JobAnswer};
use polymeter_proto::name::Selector;
use polymeter_proto::period::Period;
use tokio::sync::mpsc;

use crate::connection::collector::Collector;
use crate::failure::Failure;
use crate::version::LocalVersion;

#[derive(Debug, Clone, Copy)]
pub struct Program {
    pub definition: fn() -> clap::Command,
    /// Additions of the full program; none in the client.
    pub local: Option<&'static Local>,
}

/// What needs stores, an agent and a collector in the program.
#[derive(Debug)]
pub struct Local {
    pub version: fn() -> LocalVersion,
    /// Command lines of the daemons, for their manual pages.
    pub daemons: fn() -> Vec<clap::Command>,
    /// Ids of the jobs that run on any node, for completion.
    pub running_jobs: fn() -> Vec<CompletionCandidate>,
    /// Watches the metrics of a job that the selectors choose, on all its nodes.
    pub watch_nodes: fn(Collector, &str, Vec<Selector>) -> Result<WatchedNodes, Failure>,
    /// Stored triggers that fired of a job, as its agents would answer; none for a job that the user does not
    /// see.
    pub stored_firings: fn(&Collector, &str) -> Result<Option<JobAnswer>, Failure>,
    pub watch_functions: fn(&FunctionsView) -> Result<(), Failure>,
}

#[derive(Debug)]
pub struct FunctionsView {
    /// None for the file of a run, or the configured source.
    pub collector: Option<Collector>,
    pub job: String,
    /// How far back samples are shown.
    pub last: Period,
    /// Time until the view ends; none for the end of the job.
    pub duration: Option<Period>,
    pub is_json: bool,
}

#[derive(Debug)]
pub struct WatchedNodes {
    pub lines: mpsc::Receiver<Result<WatchLine, Failure>>,
    pub collector: Arc<Collector>,
    pub facts: JobFacts,
}

#[derive(Debug)]
pub struct WatchLine {
    pub text: String,
    pub answer: Answer,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct JobFacts {
    /// Time at which the job began to be tracked, in microseconds since the epoch.
    pub started_us: Option<i64>,
    /// None if the scheduler did not report them.
    pub cores: Option<i64>,
}
