//! `polymeter run`: runs a command and samples it, with agent, collector and store in one process.

mod baseline;
mod cgroup;
mod destination;
mod held_command;
mod signals;
mod totals;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap_complete::engine::ArgValueCompleter;
use polymeter_agent::Agent;
use polymeter_agent::config::AgentConfig;
use polymeter_agent::plan::Layer;
use polymeter_agent::request::JobSpec;
use polymeter_agent::sources::online_cpus;
use polymeter_client::completion::{metrics, periods};
use polymeter_collector::Collector;
use polymeter_proto::period::Period;
use polymeter_proto::series::Identifier;
use polymeter_service::cgroup_mounts::Mounts;
use polymeter_service::clock;
use polymeter_store::StoreUrl;
use polymeter_store::reader::Reader;

use crate::failure::{ErrorFormat, Failure};
use crate::output::printable::printable_json;
use crate::output::terminal;
use crate::report::findings::add_findings;
use crate::report::render::{self, Detail, LABEL};
use cgroup::RunCgroup;
use destination::{ReportDestination, SampleFile};
use polymeter_analysis::advice::DIRECTORY;
use polymeter_analysis::gather::gather;
use polymeter_analysis::model::KernelTotals;
use signals::CaughtSignals;

/// The address at which agent and collector connect within the process.
const ENDPOINT: &str = "inproc://polymeter-run";

/// The maximum time for committing the last samples at the end.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, clap::Args)]
pub(crate) struct RunArguments {
    /// The period of the standard metrics: 100us, 10ms, 1s, 5min.
    #[arg(long, value_name = "PERIOD", default_value = "100ms", add = ArgValueCompleter::new(periods::period))]
    every: Period,

    /// Further metrics, or other periods: -m 'cpu.*=10ms' -m memory.current=1s -m 'io.*=off'.
    #[arg(short, long = "metric", value_name = "SELECTOR[=PERIOD]", add = ArgValueCompleter::new(metrics::metric_with_period))]
    metrics: Vec<String>,

    /// Keep the samples in this SQLite file. The job is added to an existing file.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// The interval at which samples are sent.
    #[arg(long = "flush", value_name = "PERIOD", default_value = "1s", hide = true)]
    flush_interval: Period,

    /// Write the report to this file instead of stderr.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Report as JSON.
    #[arg(long)]
    json: bool,

    /// Include constant series, all events and the ledger by source in the report.
    #[arg(long)]
    all: bool,

    /// The command and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl RunArguments {
    /// Returns true if a metric was named in full, and not selected by a pattern.
    fn names(&self, metric: &str) -> bool {
        self.metrics.iter().any(|text| text.split('=').next() == Some(metric))
    }
}

/// The result of the command.
struct CommandOutcome {
    status: u8,
    /// Unavailable metrics with the reasons.
    unavailable: Vec<(String, String)>,
    totals: Option<KernelTotals>,
    had_cgroup: bool,
}

pub(crate) fn execute(arguments: &RunArguments) -> Result<ExitCode, Failure> {
    let mounts = Mounts::read(Path::new("/"))
        .map_err(|error| Failure::because("cannot find the cgroup hierarchies", &error))?;
    // Both are opened before the command runs, so that a failure costs nothing.
    let destination = ReportDestination::open(arguments.report.as_deref())?;
    let samples = SampleFile::new(arguments.output.as_deref())?;
    let job_id = format!("run-{}-{}", std::process::id(), clock::realtime_us() / 1_000_000);
    let job_id =
        Identifier::try_from(job_id).map_err(|error| Failure::because("cannot generate a job id", &error))?;
    let cgroup = RunCgroup::create(&mounts, job_id.as_str());
    let has_cgroup = !cgroup.paths().is_empty();
    let baseline = Layer::new(baseline::rules(arguments.every, &arguments.metrics, has_cgroup)?);

    let signals = CaughtSignals::catch()
        .map_err(|error| Failure::because("cannot forward signals to the command", &error))?;
    let context = zmq::Context::new();
    let store = StoreUrl::sqlite(&samples.path);
    let collector = start_collector(&store, &context)?;
    let agent = start_agent(baseline, arguments.flush_interval, &context)?;
    let mut notes: Vec<String> = cgroup.remove_dead().iter().map(ToString::to_string).collect();
    let outcome = run_sampled(&arguments.command, &agent, &cgroup, signals, &job_id);
    agent.unregister(job_id.clone());
    drop(cgroup);
    let stopped = agent.stop(STOP_TIMEOUT);
    collector.stop().map_err(|error| Failure::because("cannot store samples", &error))?;
    let outcome = outcome?;
    if !stopped.all_acknowledged {
        notes
            .push("some samples could not be stored before the end; the report may be incomplete".to_owned());
    }
    let report = report(arguments, &store, &job_id, &outcome, notes, destination.width_limit());
    let written = report.and_then(|report| {
        let note = if arguments.json { String::new() } else { samples.note(job_id.as_str()) };
        destination.write(&(report + &note), arguments.json)
    });
    match written {
        // A failure of the command takes precedence.
        Err(failure) if outcome.status != 0 => terminal::print_failure(&failure, ErrorFormat::Text),
        written => written?,
    }
    Ok(ExitCode::from(outcome.status))
}

fn start_collector(store: &StoreUrl, context: &zmq::Context) -> Result<Collector, Failure> {
    let mut config = polymeter_collector::CollectorConfig::new(ENDPOINT, store.clone());
    config.commit_interval = Duration::from_millis(200);
    // Earlier runs in the file are kept.
    config.retention = None;
    Collector::start(&config, context).map_err(|error| Failure::because("cannot store samples", &error))
}

fn start_agent(baseline: Layer, flush_interval: Period, context: &zmq::Context) -> Result<Agent, Failure> {
    let config = AgentConfig {
        collectors: vec![ENDPOINT.to_owned()],
        baseline,
        flush_interval,
        realtime_priority: rustix::process::geteuid().is_root().then_some(10),
        control_socket: None,
        ..AgentConfig::default()
    };
    Agent::start(config, context).map_err(|error| Failure::because("cannot start sampling", &error))
}

/// Runs the command in the cgroup, or samples its processes if there is none.
fn run_sampled(
    command: &[OsString],
    agent: &Agent,
    cgroup: &RunCgroup,
    signals: CaughtSignals,
    job_id: &Identifier,
) -> Result<CommandOutcome, Failure> {
    let failed = |error: std::io::Error| Failure::because("cannot sample the command", &error);
    let cgroups = cgroup.paths();
    // The program begins when all its sources are open, so that no part of it is missed.
    let held = held_command::hold(command, cgroup.entrances().map_err(failed)?, signals.before())?;
    let had_cgroup = !cgroups.is_empty();
    let job = JobSpec {
        job_id: job_id.clone(),
        cluster: None,
        owner_uid: Some(rustix::process::getuid().as_raw()),
        owner: None,
        cgroups,
        process: (!had_cgroup).then(|| held.pid()),
        sampling: Layer::default(),
    };
    let unavailable =
        agent.register(job).map_err(|error| Failure::because("cannot sample the command", &error))?;
    let mut child = held.release()?;
    let status = signals.wait(&mut child).map_err(failed)?;
    let totals = totals::of_children();
    Ok(CommandOutcome { status: totals::status_code(status), unavailable, totals, had_cgroup })
}

/// Returns the report as text or JSON.
fn report(
    arguments: &RunArguments,
    store: &StoreUrl,
    job_id: &Identifier,
    outcome: &CommandOutcome,
    notes: Vec<String>,
    limit: Option<usize>,
) -> Result<String, Failure> {
    let failed = |error| Failure::because("cannot read the samples", &error);
    let mut reader = Reader::open(store).map_err(failed)?;
    let Some(job) = reader.last_job(Some(job_id.as_str())).map_err(failed)? else {
        return Err(Failure::Failed("cannot report: no sample of the command was stored".to_owned()));
    };
    let cpus = online_cpus(Path::new("/")).ok().map(|cpus| cpus.len());
    let mut report = gather(&mut reader, &job, cpus).map_err(failed)?;
    if let Some(totals) = &outcome.totals {
        report.add_kernel_totals(totals, outcome.had_cgroup);
    }
    report.notes.extend(notes);
    // The process contains sampler, collector and store, but not the command.
    report.add_measuring_cost(Duration::from_nanos(clock::process_cpu_ns()).as_secs_f64());
    add_findings(&mut report, Path::new(DIRECTORY));
    if arguments.json {
        let text = serde_json::to_string_pretty(&report)
            .map_err(|error| Failure::because("cannot write the report", &error))?;
        return Ok(printable_json(&text).into_owned() + "\n");
    }
    let mut text = render::text(&report, Detail::of(arguments.all), limit);
    // A standard metric or a metric of a pattern may be unavailable without a message.
    for (metric, reason) in outcome.unavailable.iter().filter(|(metric, _)| arguments.names(metric)) {
        text.push_str(&format!("  {:<LABEL$}{metric}: {reason}\n", "not available"));
    }
    Ok(text)
}
