//! `polymeter watch`: shows samples as the agent takes them, or those of all nodes of a job as the collector
//! stores them, in a live view or as lines.

mod plain;
mod screen;
mod selectors;
mod source;
mod stream;
mod view;

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap_complete::engine::ArgValueCompleter;
use polymeter_proto::control::{Answer, JobsRequest, Request, WatchRequest};
use polymeter_proto::name::Selector;
use polymeter_proto::period::Period;

use crate::completion::{metrics, periods};
use crate::connection::agent::ask_status;
use crate::connection::target::{ALL_NODES_REMEDY, ControlTarget};
use crate::failure::Failure;
use crate::job_choice::JobChoice;
use crate::local::{FunctionsView, JobFacts, Local, WatchLine, WatchedNodes};
use crate::output::terminal;
use plain::LineOptions;
use source::{RequestTarget, WatchSource};
use stream::WatchStream;

#[derive(Debug, clap::Args)]
pub struct WatchArguments {
    /// The metrics to show, such as 'cpu.*' memory.current.
    #[arg(value_name = "SELECTOR", add = ArgValueCompleter::new(metrics::metric))]
    selectors: Vec<Selector>,

    /// Print one line per sample (time, metric, value, unit) instead of the live view.
    #[arg(long)]
    plain: bool,

    /// Print lines and exit after this time.
    #[arg(long = "for", value_name = "TIME", add = ArgValueCompleter::new(periods::duration))]
    duration: Option<Period>,

    /// Print lines and exit after this number of samples.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Show the functions in which the job spent its time in the last seconds: 30s, or as long as given.
    /// Needs a lease of call stacks.
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "30s",
        conflicts_with_all = ["selectors", "plain", "count", "node"]
    )]
    functions: Option<Period>,

    #[command(flatten)]
    job: JobChoice,

    #[command(flatten)]
    target: ControlTarget,
}

impl WatchArguments {
    fn prints_lines(&self) -> bool {
        let is_dumb = std::env::var_os("TERM").is_none_or(|terminal| terminal == "dumb");
        let is_requested = self.plain || self.target.json || self.duration.is_some() || self.count.is_some();
        is_requested || is_dumb || !std::io::stdout().is_terminal()
    }
}

pub(crate) fn execute(arguments: &WatchArguments, local: Option<&Local>) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|error| Failure::because("cannot watch", &error))?;
    let job = arguments.job.id(&arguments.target.socket())?;
    if let (Some(last), Some(job)) = (arguments.functions, &job) {
        return watch_functions(arguments, last, job, local).map(|()| ExitCode::SUCCESS);
    }
    selectors::check(&arguments.selectors, job.is_some())?;
    let result = runtime.block_on(watch(arguments, job, local));
    // Do not wait for a request that the agent has not answered yet.
    runtime.shutdown_background();
    result
}

fn watch_functions(
    arguments: &WatchArguments,
    last: Period,
    job: &str,
    local: Option<&Local>,
) -> Result<(), Failure> {
    let Some(local) = local else {
        let message =
            "cannot show functions: this build cannot read stored samples; use the full build of polymeter";
        return Err(Failure::Failed(message.to_owned()));
    };
    let collector = if arguments.target.prefers_collector() { arguments.target.collector()? } else { None };
    (local.watch_functions)(&FunctionsView {
        collector,
        job: job.to_owned(),
        last,
        duration: arguments.duration,
        is_json: arguments.target.json,
    })
}

struct Watched {
    lines: WatchSource,
    target: RequestTarget,
    facts: JobFacts,
}

async fn watch(
    arguments: &WatchArguments,
    job: Option<String>,
    local: Option<&Local>,
) -> Result<ExitCode, Failure> {
    let (first, watched) = begin(arguments, job.as_deref(), local).await?;
    let Watched { lines, target, facts } = watched;
    if !arguments.prints_lines() {
        let mut view = view::View::new(job, arguments.selectors.clone());
        view.set_facts(facts, terminal::has_colours(&std::io::stdout()));
        return screen::show(view, first, lines, target).await;
    }
    for hint in selectors::hints(&arguments.selectors, &first.answer) {
        terminal::print_error(&hint);
    }
    let options = LineOptions { json: arguments.target.json, count: arguments.count };
    let printing = plain::print(first, lines, options);
    match arguments.duration.map(|time| Duration::from_micros(time.as_micros())) {
        None => printing.await?,
        // The end of the requested time is success.
        Some(time) => tokio::time::timeout(time, printing).await.unwrap_or(Ok(()))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn is_elsewhere<T>(of_agent: &Result<T, Failure>) -> bool {
    match of_agent {
        Err(Failure::NotRunning(_)) => true,
        Err(Failure::Refused(refusal)) => refusal.code == "unknown_job",
        _ => false,
    }
}

/// Watches this node's agent, or all nodes of the job if the user wants that, or no agent here tracks it.
/// Returns the first line, so that a refusal is reported before the screen changes.
async fn begin(
    arguments: &WatchArguments,
    job: Option<&str>,
    local: Option<&Local>,
) -> Result<(WatchLine, Watched), Failure> {
    if arguments.target.prefers_collector() {
        let Some(local) = local else {
            let message = "cannot watch through a collector: this build cannot read stored samples; use the full build of polymeter";
            return Err(Failure::Failed(message.to_owned()));
        };
        return begin_nodes(arguments, job, local).await?.ok_or_else(|| {
            Failure::Usage("cannot watch the node through a collector; name a job with --job".to_owned())
        });
    }
    let mut of_agent = begin_agent(arguments, job, &arguments.target.socket()).await;
    if is_elsewhere(&of_agent)
        && let Some(socket) = arguments.target.node_socket()
    {
        of_agent = begin_agent(arguments, job, socket).await;
    }
    let Some(local) = local else { return of_agent };
    if is_elsewhere(&of_agent)
        && arguments.target.allows_collector()
        && let Some(of_nodes) = begin_nodes(arguments, job, local).await?
    {
        return Ok(of_nodes);
    }
    match of_agent {
        Err(Failure::NotRunning(message)) => Err(Failure::NotRunning(message + ALL_NODES_REMEDY)),
        of_agent => of_agent,
    }
}

async fn begin_agent(
    arguments: &WatchArguments,
    job: Option<&str>,
    socket: &Path,
) -> Result<(WatchLine, Watched), Failure> {
    let mut metrics: Vec<String> = arguments.selectors.iter().map(ToString::to_string).collect();
    if !metrics.is_empty() && !arguments.prints_lines() {
        metrics.extend(view::SUMMARY.map(str::to_owned));
    }
    let request = WatchRequest { job: job.map(str::to_owned), metrics };
    let mut stream = WatchStream::open(socket, request).await?;
    let first = stream.next().await?;
    if let Answer::Refused(refusal) = first.answer {
        return Err(Failure::Refused(Box::new(refusal)));
    }
    // The time is shown if it is known.
    let status = ask_status(socket, &Request::Jobs(JobsRequest {})).ok();
    let subjects = status.map(|status| status.subjects).unwrap_or_default();
    let subject = subjects.into_iter().find(|subject| job.is_some() && subject.job.as_deref() == job);
    let facts = JobFacts { started_us: subject.and_then(|subject| subject.started_us), cores: None };
    let target = RequestTarget::Agent(socket.to_owned());
    Ok((first, Watched { lines: WatchSource::Agent(stream), target, facts }))
}

/// Watches all nodes of a job. None for the node, and if no collector is configured.
async fn begin_nodes(
    arguments: &WatchArguments,
    job: Option<&str>,
    local: &Local,
) -> Result<Option<(WatchLine, Watched)>, Failure> {
    let (Some(job), Some(collector)) = (job, arguments.target.collector()?) else { return Ok(None) };
    let mut selectors = arguments.selectors.clone();
    if !selectors.is_empty() && !arguments.prints_lines() {
        selectors.extend(view::SUMMARY.into_iter().filter_map(|metric| metric.parse().ok()));
    }
    let WatchedNodes { lines, collector, facts } = (local.watch_nodes)(collector, job, selectors)?;
    let mut lines = WatchSource::Collector(lines);
    let first = lines.next().await?;
    Ok(Some((first, Watched { lines, target: RequestTarget::Collector(collector), facts })))
}
