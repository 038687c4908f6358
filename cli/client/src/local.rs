//! Additions of a program to the commands of the client.

use std::sync::Arc;

use clap_complete::engine::CompletionCandidate;
use polymeter_proto::control::Answer;
use polymeter_proto::name::Selector;
use polymeter_proto::period::Period;
use tokio::sync::mpsc;

use crate::connection::collector::Collector;
use crate::failure::Failure;
use crate::version::LocalVersion;

/// A program of commands.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// Defines its command line.
    pub definition: fn() -> clap::Command,
    /// The additions of the full program; none in the client.
    pub local: Option<&'static Local>,
}

/// The abilities that need stores, an agent and a collector in the program.
#[derive(Debug)]
pub struct Local {
    /// Returns the versions of libraries and formats.
    pub version: fn() -> LocalVersion,
    /// Defines the command lines of the daemons, for their manual pages.
    pub daemons: fn() -> Vec<clap::Command>,
    /// Returns the ids of the jobs that run on any node, for completion.
    pub running_jobs: fn() -> Vec<CompletionCandidate>,
    /// Begins to watch a job on all its nodes: the metrics that the selectors choose.
    pub watch_nodes: fn(Collector, &str, Vec<Selector>) -> Result<WatchedNodes, Failure>,
    /// Shows the functions of a job again and again.
    pub watch_functions: fn(&FunctionsView) -> Result<(), Failure>,
}

/// A view of the functions in which a job spends its time.
#[derive(Debug)]
pub struct FunctionsView {
    /// The collector that reads the samples; none for the file of a run, or the configured source.
    pub collector: Option<Collector>,
    /// The job.
    pub job: String,
    /// The time before now whose samples are shown.
    pub last: Period,
    /// The time after which the view ends; none for the end of the job.
    pub duration: Option<Period>,
    /// Print a line of JSON each time.
    pub is_json: bool,
}

/// The samples of a job on all its nodes.
#[derive(Debug)]
pub struct WatchedNodes {
    /// The samples, until the job ends.
    pub lines: mpsc::Receiver<Result<WatchLine, Failure>>,
    /// The receiver of requests to all nodes.
    pub collector: Arc<Collector>,
    /// Facts about the job that its samples do not have.
    pub facts: JobFacts,
}

/// A line of a stream of samples.
#[derive(Debug)]
pub struct WatchLine {
    /// The line without its end.
    pub text: String,
    /// The parsed line.
    pub answer: Answer,
}

/// Facts about a job that its samples do not have.
#[derive(Debug, Clone, Copy, Default)]
pub struct JobFacts {
    /// The time at which it began to be tracked, in microseconds since the epoch.
    pub started_us: Option<i64>,
    /// Its number of cores, if the scheduler reported it.
    pub cores: Option<i64>,
}
