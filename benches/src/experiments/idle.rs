//! Measures an agent with a plan of its own choice on a node whose jobs sleep.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use polymeter_benches::agent::{Running, program};
use polymeter_benches::clock::now_ns;
use polymeter_benches::job::{Job, pause};
use polymeter_benches::laid_out::{Hardware, LaidOut, with_devices};
use polymeter_benches::process::{self, KilledOnDrop};
use polymeter_benches::table::{self, say, to_f64};

/// Measures CPU time, waits and memory of an agent whose jobs sleep.
///
/// Needs root, for cgroups, and `cc` with --laid-out. Several --agent PATH alternate, so that revisions can
/// be compared. With --laid-out the agent takes a temporary directory for the root of its machine:
/// processes and cgroups are this machine's, /proc/stat has 64 CPUs, and devices are files with the texts
/// of the agent's tests. The library of the GPUs is a stand-in that reads a text file at each call; a real
/// driver takes longer.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Seconds of each run.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Number of rounds in which the programs alternate.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Numbers of jobs, each with a process that sleeps.
    #[arg(long, value_delimiter = ',', default_value = "0,4")]
    jobs: Vec<u32>,
    /// A program of an agent; more than one are compared [default: the one beside this program].
    #[arg(long, value_name = "PATH")]
    agent: Vec<PathBuf>,
    /// The agent's configuration [default: deploy/agent.toml]. Its list of jobs is extended.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Sample a laid-out node of 64 CPUs, 8 GPUs and 4 InfiniBand adapters, with all metrics of devices that
    /// the configuration has, also behind a `#`; two of the GPUs are of each job.
    #[arg(long)]
    laid_out: bool,
    /// Run one short round, as a functional check.
    #[arg(long)]
    quick: bool,
}

/// Time for which the agent runs before the measurement: it finds the jobs, measures its own speed, and
/// searches the owners of the jobs meanwhile.
const SETTLE_S: u64 = 15;

/// The same for a functional check.
const SETTLE_QUICK_S: u64 = 2;

const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/agent.toml");

/// Jobs of the default configuration begin with this line.
const JOBS: &str = "jobs = [";

/// Threads that have ended, such as those that measure the speed of the machine.
const ENDED: &str = "ended threads";

/// Duration of a run, in seconds.
#[derive(Debug, Clone, Copy)]
struct Times {
    settle_s: u64,
    seconds: u64,
}

struct Run {
    cpu_percent: f64,
    percent_by_thread: BTreeMap<String, f64>,
    waits_per_s: f64,
    resident_mib: f64,
}

/// A job whose only process sleeps until it is dropped.
struct SleepingJob {
    // Dropped before its cgroups.
    _process: KilledOnDrop,
    job: Job,
}

impl SleepingJob {
    fn start(number: u32) -> Result<Self, Box<dyn Error>> {
        let job = Job::make_for("idle", number)?;
        let gpus = format!("{},{}", 2 * number, 2 * number + 1);
        let mut command = job.command(Path::new("sleep"));
        let process = command.arg("infinity").env("SLURM_JOB_GPUS", gpus).stdin(Stdio::null()).spawn()?;
        Ok(Self { _process: KilledOnDrop(process), job })
    }
}

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Box<dyn Error>> {
    if arguments.quick {
        // Longer than the 5 s of most metrics of the node, so that each run sends something.
        (arguments.seconds, arguments.rounds) = (6, 1);
    }
    if arguments.agent.is_empty() {
        arguments.agent.push(program("polymeter-agent")?);
    }
    table::machine();
    compare(&arguments)
}

fn compare(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let config = std::fs::read_to_string(arguments.config.as_deref().unwrap_or(Path::new(CONFIG)))?;
    let scratch = tempfile::tempdir()?;
    let settle_s = if arguments.quick { SETTLE_QUICK_S } else { SETTLE_S };
    let times = Times { settle_s, seconds: arguments.seconds };
    let mut rows = Vec::new();
    for count in &arguments.jobs {
        let jobs = (0..*count).map(SleepingJob::start).collect::<Result<Vec<_>, _>>()?;
        let pattern = jobs.first().map(|job| format!("\"{}\",", job.job.pattern())).unwrap_or_default();
        let mut config = config.replacen(JOBS, &format!("{JOBS}{pattern}"), 1);
        // It has the processes that exist when it is laid out.
        let node = arguments.laid_out.then(|| LaidOut::new(Hardware::LARGE)).transpose()?;
        if let Some(node) = &node {
            config = format!("root = \"{}\"\n{}", node.root().display(), with_devices(&config));
        }
        let mut runs: Vec<Vec<Run>> = arguments.agent.iter().map(|_| Vec::new()).collect();
        for _ in 0..arguments.rounds {
            for (program, runs) in arguments.agent.iter().zip(&mut runs) {
                runs.push(run_once(program, scratch.path(), &config, times, jobs.len())?);
            }
        }
        for (program, runs) in arguments.agent.iter().zip(&runs) {
            rows.push(row(*count, program, runs));
        }
    }
    say(&format!(
        "{} rounds of {} s; CPU in percent of one core, all threads, mean and range over the rounds; the means of the \
         threads that used most; waits of the threads that run per second; load of the machine at the end: {}",
        arguments.rounds,
        arguments.seconds,
        std::fs::read_to_string("/proc/loadavg")?.trim()
    ));
    say("");
    table::table(&["jobs", "agent", "CPU", "range", "threads", "waits/s", "resident"], &rows);
    Ok(())
}

/// Runs an agent once, with a collector that acknowledges frames without storing them.
fn run_once(
    program: &Path,
    scratch: &Path,
    config: &str,
    times: Times,
    jobs: usize,
) -> Result<Run, Box<dyn Error>> {
    let running = Running::start_program(program, scratch, config)?;
    pause(i64::try_from(times.settle_s)? * 1_000_000_000);
    let found = running.connect()?.status()?.subjects.iter().filter(|subject| subject.job.is_some()).count();
    if found != jobs {
        return Err(format!("{} samples {found} of {jobs} jobs", program.display()).into());
    }
    running.frames().for_each(drop);
    let pid = running.pid();
    let (before, waits, began_ns) = (process::cpu_s_by_thread(pid)?, process::waits(pid)?, now_ns());
    let before_s = process::cpu_s(pid)?;
    pause(i64::try_from(times.seconds)? * 1_000_000_000);
    let (after, waited) = (process::cpu_s_by_thread(pid)?, process::waits(pid)? - waits);
    let passed_s = to_f64(now_ns() - began_ns) / 1e9;
    let cpu_percent = 100.0 * (process::cpu_s(pid)? - before_s) / passed_s;
    if running.frames().count() == 0 {
        return Err(format!("{} has sent nothing", program.display()).into());
    }
    let mut percent_by_thread: BTreeMap<String, f64> = after
        .into_iter()
        .map(|(name, cpu_s)| {
            let used_s = cpu_s - before.get(&name).copied().unwrap_or(0.0);
            (name, 100.0 * used_s / passed_s)
        })
        .collect();
    percent_by_thread.insert(ENDED.to_owned(), cpu_percent - percent_by_thread.values().sum::<f64>());
    Ok(Run {
        cpu_percent,
        percent_by_thread,
        waits_per_s: to_f64(waited) / passed_s,
        resident_mib: to_f64(process::resident_kib(running.pid())?) / 1024.0,
    })
}

fn row(jobs: u32, program: &Path, runs: &[Run]) -> Vec<String> {
    const THREADS: usize = 5;
    let mean = |of: &dyn Fn(&Run) -> f64| runs.iter().map(of).sum::<f64>() / to_f64(runs.len() as u64);
    let cpu = || runs.iter().map(|run| run.cpu_percent);
    let names: std::collections::BTreeSet<&String> =
        runs.iter().flat_map(|run| run.percent_by_thread.keys()).collect();
    let mut threads: Vec<(f64, &String)> = names
        .into_iter()
        .map(|name| (mean(&|run| run.percent_by_thread.get(name).copied().unwrap_or(0.0)), name))
        .collect();
    threads.sort_by(|a, b| b.0.total_cmp(&a.0));
    let threads: Vec<String> =
        threads.iter().take(THREADS).map(|(percent, name)| format!("{name} {percent:.3} %")).collect();
    vec![
        jobs.to_string(),
        program.display().to_string(),
        format!("{:.3} %", mean(&|run| run.cpu_percent)),
        format!("{:.3} to {:.3} %", cpu().fold(f64::INFINITY, f64::min), cpu().fold(0.0, f64::max)),
        threads.join(", "),
        format!("{:.1}", mean(&|run| run.waits_per_s)),
        format!("{:.1} MiB", runs.iter().map(|run| run.resident_mib).fold(0.0, f64::max)),
    ]
}
