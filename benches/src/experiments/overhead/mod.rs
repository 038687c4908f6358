//! Measures the slowdown of a command while it is sampled: period x number of metrics x tool, in random
//! order.

mod design;
mod kernel;
mod report;
mod results;

use std::error::Error;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use polymeter_benches::agent::Running;
use polymeter_benches::clock::now_ns;
use polymeter_benches::job::{Job, pause};
use polymeter_benches::journal::Journal;
use polymeter_benches::table::{say, to_f64};
use polymeter_benches::tool::RunningTool;
use polymeter_benches::{machine, plan, table};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

pub(crate) use self::design::{Design, Run, Treatment};

/// Measures the slowdown of a command while it is sampled.
///
/// Needs root, for cgroups. experiments/overhead.toml explains the keys of FILE. Each replicate has every
/// combination once, in random order. DIRECTORY gets runs.csv (every run, below a header with the machine,
/// the revision, the hash of flake.lock and the experiment), table.md and plot.svg. Each run is synced to
/// the disk before the next one starts: after a kill the same command resumes the experiment, unless the
/// machine, the revision or the experiment differs. `contains 0` means that with this number of replicates
/// the slowdown does not differ significantly from 0. After a SIGKILL the agent still runs, and must be
/// stopped by hand.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// File that describes the experiment.
    #[arg(required_unless_present = "quick")]
    file: Option<PathBuf>,
    /// File with further tools to compare, as `[[tool]]` tables; see experiments/tools.toml.
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    /// Directory of the results. Runs of the same experiment that it already has are not repeated.
    #[arg(long, value_name = "DIRECTORY", required_unless_present = "quick")]
    out: Option<PathBuf>,
    /// Run a small experiment and only print its results, as a functional check.
    #[arg(long)]
    quick: bool,
}

const QUICK: &str = include_str!("../../../experiments/overhead-quick.toml");

/// Time for which a tool runs before the command starts.
const SETTLE_NS: i64 = 1_000_000_000;

pub(crate) fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let read =
        |path: &PathBuf| fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
    let mut text = arguments.file.as_ref().map_or_else(|| Ok(QUICK.to_owned()), read)?;
    if let Some(path) = &arguments.tools {
        // Appended to the text, where further tables may follow, so that the results name the compared tools.
        text = format!("{text}\n{}", read(path)?);
    }
    let design = Design::parse(&text)?;
    let out = arguments.out.unwrap_or_else(|| scratch.path().join("out"));
    fs::create_dir_all(&out)?;
    table::machine();
    let runs = design.runs();
    let (mut file, lines) = Journal::open(&out.join("runs.csv"), &text, results::COLUMNS)?;
    let mut walls = results::walls(&lines, &design, &runs)?;
    if !walls.is_empty() {
        say(&format!("{} of {} runs are there already", walls.len(), runs.len()));
    }
    let job = Job::make_for("overhead", 0)?;
    for (number, run) in (1..).zip(&runs).skip(walls.len()) {
        let wall_s = run_once(&design, run, &job, scratch.path())?;
        file.add(&results::line(&design, number, run, wall_s))?;
        walls.push(wall_s);
    }
    show(&design, &runs, &walls, &out)
}

/// Runs the command under a treatment, and returns its wall time in seconds.
pub(crate) fn run_once(design: &Design, run: &Run, job: &Job, scratch: &Path) -> Result<f64, Box<dyn Error>> {
    let (mut agent, mut other) = (None, None);
    if let Treatment::Watched { tool, period, metrics } = &run.treatment {
        match tool.and_then(|index| design.tools.get(index)) {
            None => {
                let metrics = plan::job_metrics(true).into_iter().take(*metrics as usize);
                let baseline = plan::baseline(metrics, *period);
                let config = format!("jobs = [\"{}\"]\n{baseline}", job.pattern());
                agent = Some(Running::start(scratch, &config)?);
            }
            Some(tool) => {
                other = Some(tool.start(vec![
                    ("PERIOD_MS", (to_f64(period.as_micros()) / 1e3).to_string()),
                    ("METRICS", metrics.to_string()),
                    ("CGROUPS", job.cgroups()),
                ])?);
            }
        }
    }
    // `Nothing` pauses, too, so that the command starts with the machine in the same state.
    pause(SETTLE_NS);
    let wall_s = timed(design, job)?;
    agent.map_or(Ok(()), Running::stop)?;
    other.map_or(Ok(()), RunningTool::stop)?;
    Ok(wall_s)
}

fn timed(design: &Design, job: &Job) -> Result<f64, Box<dyn Error>> {
    let mut command = match design.command.split_first() {
        Some((program, arguments)) => {
            let mut command = job.command(Path::new(program));
            command.args(arguments);
            command
        }
        None => {
            let mut command = job.command(&std::env::current_exe()?);
            command.args(["part", "draw", &design.pairs.to_string()]);
            command
        }
    };
    let begin_ns = now_ns();
    let status = within(&mut command, design.limit_s)?;
    let wall_s = to_f64(now_ns() - begin_ns) / 1e9;
    if status.success() { Ok(wall_s) } else { Err(format!("the command failed: {status}").into()) }
}

/// Runs the command. Kills its process group if it exceeds the time limit.
fn within(command: &mut Command, limit_s: u32) -> Result<std::process::ExitStatus, Box<dyn Error>> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0).spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or("the command has no pid")?;
    let ended = pidfd_open(pid, PidfdFlags::empty())?;
    let patience = Timespec { tv_sec: i64::from(limit_s), tv_nsec: 0 };
    if poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&patience))? == 0 {
        kill_process_group(pid, Signal::KILL)?;
        child.wait()?;
        return Err(format!("the command takes longer than {limit_s} s").into());
    }
    Ok(child.wait()?)
}

/// Runs the built-in command: a thread on each CPU.
pub(crate) fn draw(pairs: u64) -> Result<(), Box<dyn Error>> {
    let threads = std::thread::available_parallelism()?.get() as u64;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..threads).map(|seed| scope.spawn(move || kernel::draw(pairs, seed))).collect();
        for thread in threads {
            // Printing the result keeps the compiler from removing the work, and allows comparisons.
            let drawn = thread.join().map_err(|_panic| "a thread of the kernel broke")?;
            say(&format!("{:?} {:?}", drawn.rings, drawn.sums));
        }
        Ok(())
    })
}

fn show(design: &Design, runs: &[Run], walls: &[f64], out: &Path) -> Result<(), Box<dyn Error>> {
    let lines = report::lines(design, runs, walls);
    let rows = report::rows(design, &lines);
    let what = if design.command.is_empty() {
        format!("the built-in kernel, {} pairs on each CPU", design.pairs)
    } else {
        format!("`{}`", design.command.join(" "))
    };
    let title = format!("{what}; {} replicates in random order, seed {}", design.replicates, design.seed);
    say(&title);
    say("");
    table::table(&report::HEAD, &rows);
    let text = format!(
        "machine: {}; revision {}\n\n{title}\n\n{}",
        machine::description(),
        machine::revision(),
        table::markdown(&report::HEAD, &rows)
    );
    fs::write(out.join("table.md"), text)?;
    fs::write(out.join("plot.svg"), report::plot(design, &lines).render())?;
    Ok(())
}
