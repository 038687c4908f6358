//! `polymeter run`: the one-machine mode. The same agent, wire, collector and store as the big installation, in one
//! process around one command.

mod cgroup;
mod child;

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use polymeter_agent::cgroups::Mounts;
use polymeter_agent::config::{self, Config};
use polymeter_agent::plan::{Layer, Rule};
use polymeter_agent::request::JobSpec;
use polymeter_agent::sources::online_cpus;
use polymeter_agent::{Agent, clock};
use polymeter_collector::Collector;
use polymeter_proto::period::Period;
use polymeter_proto::series::Identifier;
use polymeter_store::StoreUrl;
use polymeter_store::reader::Reader;
use rustix::time::{ClockId, clock_gettime};

use crate::failure::{Failure, Form};
use crate::report::{self, Detail, Totals};
use crate::terminal;
use cgroup::RunCgroup;

/// Where agent and collector meet within the process.
const ENDPOINT: &str = "inproc://polymeter-run";

/// How long the end waits for the last samples to be committed.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is sampled when nothing else is said. What a machine does not have is left out.
const METRICS: [&str; 16] = [
    "cpu.usage",
    "cpu.user",
    "cpu.system",
    "memory.current",
    "memory.peak",
    "memory.anon",
    "memory.file",
    "io.read.bytes",
    "io.write.bytes",
    "pids.current",
    "perf.page_faults",
    "perf.page_faults_major",
    "perf.context_switches",
    "perf.cpu_migrations",
    "perf.task_clock",
    "process.*",
];

/// What to run, and how closely to look.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The period of the standard metrics: 100us, 10ms, 1s, 5min.
    #[arg(long, value_name = "PERIOD", default_value = "100ms")]
    every: Period,

    /// Sample these as well, or at another period: -m 'cpu.*=10ms' -m memory.current=1s -m 'io.*=off'.
    #[arg(short, long = "metric", value_name = "SELECTOR[=PERIOD]")]
    metrics: Vec<String>,

    /// Keep the samples in this SQLite file; one that exists gets one more job.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// How often samples are handed on.
    #[arg(long, value_name = "PERIOD", default_value = "1s", hide = true)]
    flush: Period,

    /// Write the report into this file, and not on stderr.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Report as JSON.
    #[arg(long)]
    json: bool,

    /// A line in the report for every series, also for those that never changed.
    #[arg(long)]
    all: bool,

    /// The command and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Arguments {
    pub(crate) const fn is_json(&self) -> bool {
        self.json
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let mounts = Mounts::read(Path::new("/"))
        .map_err(|error| Failure::refused("cannot find the cgroup hierarchies", &error))?;
    let baseline = Layer::new(rules(arguments)?);
    // Before the command runs: afterwards it would be too late for another place.
    let destination = Destination::open(arguments.report.as_deref())?;
    let place = Place::of(arguments)?;
    let job_id = format!("run-{}-{}", std::process::id(), clock::realtime_us() / 1_000_000);
    let job_id =
        Identifier::try_from(job_id).map_err(|error| Failure::refused("cannot name the job", &error))?;

    let context = zmq::Context::new();
    let store = StoreUrl::sqlite(&place.path);
    let mut collecting = polymeter_collector::Config::new(ENDPOINT, store.clone());
    collecting.commit_interval = Duration::from_millis(200);
    let collector = Collector::start(&collecting, &context)
        .map_err(|error| Failure::refused("cannot store samples", &error))?;
    let realtime_priority = rustix::process::geteuid().is_root().then_some(10);
    let sampling = Config {
        collector: ENDPOINT.to_owned(),
        baseline,
        flush_interval: arguments.flush,
        realtime_priority,
        control_socket: None,
        ..Config::default()
    };
    let agent =
        Agent::start(sampling, &context).map_err(|error| Failure::refused("cannot sample", &error))?;

    let signals =
        child::Signals::take().map_err(|error| Failure::refused("cannot follow the command", &error))?;
    let group = RunCgroup::make(&mounts, job_id.as_str());
    let mut notes: Vec<String> = group.remove_dead(&mounts.proc).iter().map(ToString::to_string).collect();
    let ran = run_sampled(arguments, &agent, &group, signals, &job_id);
    agent.unregister(job_id.clone());
    drop(group);
    let stopped = agent.stop(PATIENCE);
    collector.stop().map_err(|error| Failure::refused("cannot store samples", &error))?;
    let ran = ran?;
    if !stopped.all_acknowledged {
        notes.push("not all samples could be stored in time".to_owned());
    }
    let written = tell(arguments, &store, &job_id, &ran, notes)
        .and_then(|report| destination.write(&(report + &place.note(arguments, &job_id)), arguments.json));
    match written {
        // The status is the command's, where that says that something is wrong.
        Err(failure) if ran.status != 0 => failure.print(Form::Text),
        written => written?,
    }
    Ok(ExitCode::from(ran.status))
}

/// How the command ran.
struct Ran {
    status: u8,
    /// Metrics that could not be had, with the reasons.
    unavailable: Vec<(String, String)>,
    /// Its totals, as the kernel tells them at the end.
    totals: Option<Totals>,
    had_cgroup: bool,
}

/// Runs the command in the cgroup, or beside it where there is none.
fn run_sampled(
    arguments: &Arguments,
    agent: &Agent,
    group: &RunCgroup,
    signals: child::Signals,
    job_id: &Identifier,
) -> Result<Ran, Failure> {
    let cgroups = group.directories();
    let spec = JobSpec {
        job_id: job_id.clone(),
        cluster: None,
        owner_uid: Some(rustix::process::getuid().as_raw()),
        owner: None,
        cgroups: cgroups.clone(),
        process: None,
        sampling: Layer::default(),
    };
    let register =
        |spec| agent.register(spec).map_err(|error| Failure::refused("cannot follow the command", &error));
    let failed = |error: std::io::Error| Failure::refused("cannot follow the command", &error);
    let entrances = group.entrances().map_err(failed)?;
    // Nothing of the command goes before the first reading: its program begins when all its sources are open.
    let held = child::hold(&arguments.command, entrances, signals.before())?;
    let process = cgroups.is_empty().then(|| held.pid());
    let unavailable = register(JobSpec { process, ..spec })?;
    let mut child = held.release()?;
    let status = signals.wait(&mut child).map_err(failed)?;
    let totals = child::totals();
    Ok(Ran { status: child::status_code(status), unavailable, totals, had_cgroup: !cgroups.is_empty() })
}

/// The standard metrics, and what was asked for: whatever an asked selector chooses is no longer standard.
fn rules(arguments: &Arguments) -> Result<Vec<Rule>, Failure> {
    let every = arguments.every.to_string();
    let (mut asked, mut faults) = (Vec::new(), Vec::new());
    for metric in &arguments.metrics {
        let (selector, period) = metric.split_once('=').unwrap_or((metric, &every));
        match config::rule(selector, period) {
            Ok(rule) => asked.push(rule),
            Err(fault) => faults.push(fault.to_string()),
        }
    }
    if !faults.is_empty() {
        return Err(Failure::Usage(faults.join("\npolymeter: ")));
    }
    let standard = METRICS.iter().map(|metric| (*metric, every.as_str())).chain([("agent.*", "1s")]);
    let left = standard.filter(|(metric, _)| !asked.iter().any(|rule: &Rule| rule.selector.matches(metric)));
    let standard: Vec<Rule> = left.filter_map(|(metric, period)| config::rule(metric, period).ok()).collect();
    Ok(standard.into_iter().chain(asked).collect())
}

/// The report, as text or JSON.
fn tell(
    arguments: &Arguments,
    store: &StoreUrl,
    job_id: &Identifier,
    ran: &Ran,
    notes: Vec<String>,
) -> Result<String, Failure> {
    let failed = |error| Failure::refused("cannot read the samples", &error);
    let mut reader = Reader::open(store).map_err(failed)?;
    let jobs = reader.jobs().map_err(failed)?;
    let Some(job) = jobs.iter().rfind(|job| job.job_id == job_id.as_str()) else {
        return Err(Failure::Refused("no sample of the command was stored".to_owned()));
    };
    let cpus = online_cpus(Path::new("/")).ok().map(|cpus| cpus.len());
    let mut report = report::gather(&mut reader, job, cpus).map_err(failed)?;
    if let Some(totals) = &ran.totals {
        report.use_totals(totals, ran.had_cgroup);
    }
    report.notes.extend(notes);
    report.measure(cpu_s());
    if arguments.json {
        return report::json(&report);
    }
    let detail = if arguments.all { Detail::All } else { Detail::Changing };
    let bound = terminal::bound(&std::io::stderr()).filter(|_| arguments.report.is_none());
    let mut text = report::text(&report, detail, bound);
    // Of the standard metrics nobody expects all; who asked for one by name wants to know.
    for (metric, reason) in ran
        .unavailable
        .iter()
        .filter(|(metric, _)| arguments.metrics.iter().any(|asked| asked.split('=').next() == Some(metric)))
    {
        text.push_str(&format!("  {:<18}{metric}: {reason}\n", "not available"));
    }
    Ok(text)
}

/// Where the report goes: not to stdout, which is the command's.
enum Destination {
    Stderr,
    File(PathBuf, File),
}

impl Destination {
    fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self::Stderr) };
        let file = File::create(path).map_err(|error| cannot_write(path, &error))?;
        Ok(Self::File(path.to_owned(), file))
    }

    fn write(self, report: &str, json: bool) -> Result<(), Failure> {
        match self {
            Self::Stderr if json => terminal::complain_json(report),
            Self::Stderr => terminal::complain(&format!("\n{report}")),
            Self::File(path, mut file) => {
                file.write_all(report.as_bytes()).map_err(|error| cannot_write(&path, &error))?;
            }
        }
        Ok(())
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::refused(&format!("cannot write the report to {}", path.display()), error)
}

/// CPU time of this process, which is sampler, collector and all; the command's is not part of it.
fn cpu_s() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(used).map_or(0.0, |used| used.as_secs_f64())
}

/// Where the samples are while the command runs, and whether they stay there.
struct Place {
    path: PathBuf,
    /// Removed with everything in it at the end.
    _temporary: Option<tempfile::TempDir>,
}

impl Place {
    fn of(arguments: &Arguments) -> Result<Self, Failure> {
        if let Some(path) = &arguments.output {
            return Ok(Self { path: path.clone(), _temporary: None });
        }
        let directory = tempfile::Builder::new()
            .prefix("polymeter-")
            .tempdir()
            .map_err(|error| Failure::refused("cannot make a temporary file", &error))?;
        Ok(Self { path: directory.path().join("run.db"), _temporary: Some(directory) })
    }

    /// The line of a report that says so.
    fn note(&self, arguments: &Arguments, job_id: &Identifier) -> String {
        if arguments.json {
            return String::new();
        }
        let (label, told) = if arguments.output.is_some() {
            (
                "samples in",
                format!(
                    "{}; `polymeter report --store sqlite:{} --job {job_id}` shows them again",
                    self.path.display(),
                    self.path.display()
                ),
            )
        } else {
            ("samples", "not kept; -o FILE keeps them".to_owned())
        };
        format!("  {label:<18}{told}\n")
    }
}
