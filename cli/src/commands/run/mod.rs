//! `polymeter run`: runs a command and samples it, with agent, collector and store in one process.

mod baseline;
mod cgroup;
mod destination;
mod held_command;
mod identity;
mod requests;
mod signals;
mod totals;
mod unstored_end;

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use clap_complete::engine::ArgValueCompleter;
use polymeter_agent::Agent;
use polymeter_agent::config::AgentConfig;
use polymeter_agent::plan::Layer;
use polymeter_agent::principal::Principal;
use polymeter_agent::request::{AnnotateError, JobSpec, PushSpec};
use polymeter_agent::sources::online_cpus;
use polymeter_client::completion::{metrics, periods};
use polymeter_collector::Collector;
use polymeter_proto::ledger::JobDetails;
use polymeter_proto::name::MetricName;
use polymeter_proto::period::{Period, Sampling};
use polymeter_proto::series::{Identifier, Kind, Labels, MetricDescriptor, Number, Unit};
use polymeter_proto::units;
use polymeter_service::cgroup_mounts::Mounts;
use polymeter_service::log::chain;
use polymeter_service::{clock, users};
use polymeter_store::reader::{JobRow, Reader};
use polymeter_store::{JobUsageTable, StoreError, StoreUrl};

use crate::client::dead_runs::RUN_PREFIX;
use crate::failure::{ErrorFormat, Failure};
use crate::output::printable::printable_json;
use crate::output::terminal;
use crate::report::findings::add_findings;
use crate::report::render::{self, Beginning, Sections};
use cgroup::RunCgroup;
use destination::{ReportDestination, SampleFile};
use held_command::HeldCommand;
use identity::IdentityOptions;
use polymeter_analysis::advice::DIRECTORY;
use polymeter_analysis::command_totals::CPUS;
use polymeter_analysis::gather::gather;
use polymeter_analysis::job_usage::{array_id, job_energy, job_usage};
use polymeter_analysis::model::Report;
use requests::ControlSocket;
use signals::CaughtSignals;
pub(crate) use signals::ignore_file_size_signal;
use totals::Before;
use unstored_end::CommandEnd;

/// Endpoint within the process.
const ENDPOINT: &str = "inproc://polymeter-run";

const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// Longest wait for the record of the run in its file, before the command begins: no slow disk delays it
/// longer.
const RECORD_TIMEOUT: Duration = Duration::from_millis(500);

/// Pause between two looks for it.
const RECORD_PAUSE: Duration = Duration::from_millis(1);

/// The agent sends every second: a few frames together, for which one commit is enough.
const COMMIT_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Debug, clap::Args)]
pub(crate) struct RunArguments {
    /// The period of the standard metrics: 100us, 10ms, 1s, 5min; 1ms/1s for windows of 1 s,
    /// 1ms/1s/histogram for windows with histograms.
    #[arg(long, value_name = "PERIOD", default_value = "100ms", add = ArgValueCompleter::new(periods::period))]
    every: Sampling,

    /// Further metrics, or other periods: -m 'cpu.*=10ms' -m memory.current=1s -m 'io.*=off'.
    #[arg(short, long = "metric", value_name = "SELECTOR[=PERIOD]", add = ArgValueCompleter::new(metrics::metric_with_period))]
    metrics: Vec<String>,

    /// Sample the call stacks of the command at this period, such as 10ms: the same as -m stacks.cpu=10ms.
    #[arg(long, value_name = "PERIOD", add = ArgValueCompleter::new(periods::period))]
    stacks: Option<Period>,

    /// Keep the samples in this SQLite file. The job is added to an existing file.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// The interval at which samples are sent.
    #[arg(long = "flush", value_name = "PERIOD", default_value = "1s", hide = true)]
    flush_interval: Period,

    /// Write the report to this file instead of stderr.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    #[command(flatten)]
    identity: IdentityOptions,

    /// Report as JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    sections: Sections,

    /// The command and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl RunArguments {
    /// Requests in the form `SELECTOR[=PERIOD]`.
    fn requested(&self) -> Vec<String> {
        let stacks = self.stacks.map(|period| format!("stacks.cpu={period}"));
        self.metrics.iter().cloned().chain(stacks).collect()
    }
}

struct CommandOutcome {
    status: u8,
    end: CommandEnd,
    /// What was not measured or not stored.
    notes: Vec<String>,
}

pub(crate) fn execute(arguments: &RunArguments) -> Result<ExitCode, Failure> {
    let mounts = Mounts::read(Path::new("/"))
        .map_err(|error| Failure::because("cannot find the cgroup hierarchies", &error))?;
    // libzmq ends a process that lacks descriptors.
    Agent::check_descriptors().map_err(|error| cannot_sample(&error))?;
    // Both are opened before the command runs, so that a failure costs nothing.
    let destination = ReportDestination::open(arguments.report.as_deref())?;
    let samples = SampleFile::new(arguments.output.as_deref())?;
    let job_id = format!("{RUN_PREFIX}{}-{}", std::process::id(), clock::realtime_us() / 1_000_000);
    let job_id =
        Identifier::try_from(job_id).map_err(|error| Failure::because("cannot generate a job id", &error))?;
    let cgroup = RunCgroup::create(&mounts, job_id.as_str());
    let has_cgroup = !cgroup.paths().is_empty();
    let requested = arguments.requested();
    let baseline = Layer::new(baseline::rules(arguments.every, &requested, has_cgroup)?);
    let socket = ControlSocket::create();
    let signals = CaughtSignals::catch()
        .map_err(|error| Failure::because("cannot forward signals to the command", &error))?;
    // A copy of this process is smallest before agent and collector run: until the command executes its
    // program, the memory of the copy is its peak.
    let environment =
        socket.as_ref().map(|socket| socket.environment(job_id.as_str(), &samples.path)).unwrap_or_default();
    let entrances = cgroup.entrances().map_err(|error| cannot_sample(&error))?;
    let held = held_command::hold(&arguments.command, entrances, signals.before(), environment)?;

    let context = zmq::Context::new();
    let store = StoreUrl::sqlite(&samples.path);
    let collector = start_collector(&store, &context)?;
    let agent = start_agent(baseline, arguments.flush_interval, socket.as_ref(), &context)?;
    let mut notes: Vec<String> = cgroup.remove_dead().iter().map(ToString::to_string).collect();
    let (details, missing) = arguments.identity.details(&arguments.command, &mounts);
    notes.extend(missing);
    let job = job_spec(&job_id, &cgroup, &held, details);
    let outcome = run_sampled(arguments, held, &agent, job, signals);
    notes.extend(cgroup.survivors().filter(|_| outcome.is_ok()));
    agent.unregister(job_id.clone());
    drop(cgroup);
    let stopped = agent.stop(STOP_TIMEOUT);
    collector.stop().map_err(|error| Failure::because("cannot store samples", &error))?;
    let outcome = outcome?;
    if !stopped.all_acknowledged {
        notes
            .push("some samples could not be stored before the end; the report may be incomplete".to_owned());
    }
    notes.extend(outcome.notes.iter().cloned());
    let limit = destination.width_limit();
    let report = report(arguments, &store, (&job_id, &outcome.end), notes, limit);
    let written = report.and_then(|report| {
        let note = if arguments.json { String::new() } else { samples.note(&store, job_id.as_str(), limit) };
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
    config.commit_interval = COMMIT_INTERVAL;
    // Earlier runs in the file are kept.
    config.retention = None;
    Collector::start(&config, context).map_err(|error| Failure::because("cannot store samples", &error))
}

fn start_agent(
    baseline: Layer,
    flush_interval: Period,
    socket: Option<&ControlSocket>,
    context: &zmq::Context,
) -> Result<Agent, Failure> {
    let config = AgentConfig {
        collectors: vec![ENDPOINT.to_owned()],
        baseline,
        flush_interval,
        realtime_priority: rustix::process::geteuid().is_root().then_some(10),
        control_socket: socket.map(ControlSocket::path),
        ..AgentConfig::default()
    };
    Agent::start(config, context).map_err(|error| Failure::because("cannot start sampling", &error))
}

fn cannot_sample(error: &(dyn std::error::Error + 'static)) -> Failure {
    Failure::because("cannot sample the command", error)
}

fn job_spec(job_id: &Identifier, cgroup: &RunCgroup, held: &HeldCommand, details: JobDetails) -> JobSpec {
    let (uid, cgroups) = (rustix::process::getuid().as_raw(), cgroup.paths());
    JobSpec {
        job_id: job_id.clone(),
        cluster: None,
        owner_uid: Some(uid),
        owner: users::name_of(uid).and_then(|name| Identifier::escaped(name.as_bytes())),
        process: cgroups.is_empty().then(|| held.pid()),
        cgroups,
        sampling: Layer::default(),
        facts: identity::facts(),
        details,
    }
}

/// Lets the command run in the cgroup, or samples its processes if there is none.
fn run_sampled(
    arguments: &RunArguments,
    held: HeldCommand,
    agent: &Agent,
    job: JobSpec,
    signals: CaughtSignals,
) -> Result<CommandOutcome, Failure> {
    let (job_id, has_cgroup) = (job.job_id.clone(), !job.cgroups.is_empty());
    let acknowledged = agent.counters().frames_acknowledged.load(Relaxed);
    agent.register(job).map_err(|error| cannot_sample(&error))?;
    let mut notes = requests::without_effect(&arguments.requested(), &agent.view(), has_cgroup);
    if !arguments.json {
        for note in &notes {
            terminal::print_error(&format!("polymeter: {note}\n"));
        }
    }
    let cpus =
        online_cpus(Path::new("/")).ok().map(|cpus| (CPUS, Unit::Count, units::to_f64(cpus.len() as u64)));
    push(agent, &job_id, cpus).map_err(|error| cannot_sample(&error))?;
    if arguments.output.is_some() {
        wait_for_record(agent, acknowledged);
    }
    let before = Before::read(held.pid());
    // The program begins when all its sources are open, so that no part of it is missed.
    let child = match held.release() {
        Ok(child) => child,
        Err(failure) => {
            if let Failure::NotStarted { not_found, .. } = &failure {
                agent.end(job_id.clone(), totals::facts(Some(if *not_found { 127 } else { 126 }), None));
            }
            return Err(failure);
        }
    };
    let (status, totals) = signals.wait(&child, before).map_err(|error| cannot_sample(&error))?;
    if let Err(error) = push(agent, &job_id, totals.values()) {
        notes.push(format!("the totals of the command could not be stored: {error}"));
    }
    let facts = totals::facts(status.code(), status.signal());
    let end = CommandEnd { at_us: clock::realtime_us(), facts: facts.clone(), totals };
    agent.end(job_id, facts);
    Ok(CommandOutcome { status: totals::status_code(status), end, notes })
}

/// Waits until the run is stored, even if this process is killed from then on. The agent sends the record of
/// a job before it opens its sources; the collector had acknowledged `before` frames until then.
fn wait_for_record(agent: &Agent, before: u64) {
    let began_ns = clock::monotonic_ns();
    while agent.counters().frames_acknowledged.load(Relaxed) <= before
        && Duration::from_nanos(clock::monotonic_ns().saturating_sub(began_ns)) < RECORD_TIMEOUT
    {
        clock::sleep(RECORD_PAUSE);
    }
}

fn push(
    agent: &Agent,
    job_id: &Identifier,
    values: impl IntoIterator<Item = (&'static str, Unit, f64)>,
) -> Result<(), AnnotateError> {
    for (metric, unit, value) in values {
        let Ok(name) = MetricName::new(metric.to_owned()) else { continue };
        agent.push(PushSpec {
            principal: Principal { uid: rustix::process::getuid().as_raw(), administrator: true },
            job_id: Some(job_id.clone()),
            metric: MetricDescriptor { name, unit, kind: Kind::Gauge, number: Number::Float },
            value,
            labels: Labels::default(),
        })?;
    }
    Ok(())
}

/// Does what the collector of a cluster does some time after the end of a job.
fn store_figures(store: &StoreUrl, job: &JobRow, report: &Report) -> Result<(), StoreError> {
    const LEASE_US: i64 = 60_000_000;
    let Some(ended_ns) = job.ended_ns else { return Ok(()) };
    let mut table = JobUsageTable::open(store)?;
    // It is the one that ended last.
    if table.claim(1, 0, LEASE_US)?.contains(&job.job_key) {
        let (usage, energy) = (job_usage(report), job_energy(report));
        table.put(job.job_key, ended_ns.div_euclid(1000), array_id(report), &usage, &energy)?;
    }
    Ok(())
}

/// What `polymeter report` shows, and notes that are not stored; as text or JSON.
fn report(
    arguments: &RunArguments,
    store: &StoreUrl,
    (job_id, end): (&Identifier, &CommandEnd),
    notes: Vec<String>,
    limit: Option<usize>,
) -> Result<String, Failure> {
    let failed = |error| Failure::because("cannot read the samples", &error);
    let mut reader = Reader::open(store).map_err(failed)?;
    let Some(mut job) = reader.last_job(Some(job_id.as_str())).map_err(failed)? else {
        return Err(Failure::Failed("cannot report: no sample of the command was stored".to_owned()));
    };
    let is_end_stored = job.ended_ns.is_some();
    if !is_end_stored {
        end.add_to_job(&mut job);
    }
    let mut report = gather(&mut reader, &job, None).map_err(failed)?;
    report.notes.extend(notes);
    if !is_end_stored {
        end.add_to(&mut report);
    } else if let Err(error) = store_figures(store, &job, &report) {
        report.notes.push(format!("the figures of the run could not be stored: {}", chain(&error)));
    }
    add_findings(&mut report, Path::new(DIRECTORY));
    if arguments.json {
        let text = serde_json::to_string_pretty(&report)
            .map_err(|error| Failure::because("cannot write the report", &error))?;
        return Ok(printable_json(&text).into_owned() + "\n");
    }
    Ok(render::chosen(&report, &arguments.sections, Beginning::Run, limit, false))
}
