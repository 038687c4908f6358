//! Measures the cost of the agent's eBPF programs per event, with a job that causes as many events as it
//! can.

mod counting;
mod load;

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Stdio};

use polymeter_agent::cgroups::Mounts;
use polymeter_benches::job::Job;
use polymeter_benches::process::KilledOnDrop;
use polymeter_benches::statistics::Estimate;
use polymeter_benches::table::{self, to_f64};

use self::counting::{Counted, open};
use self::load::Measured;
pub(crate) use self::load::{Kind, cause};

/// Measures the cost of the eBPF programs per packet, switch and read.
///
/// Needs root, cgroup version 2, `ip`, `tc` and `unshare`. Runs with and without the programs alternate.
/// `packets` are datagrams over the loopback interface, `sends` as many packets as this machine can send.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Number of rounds, in each of which every variant runs once.
    #[arg(long, default_value_t = 15)]
    rounds: u32,
    /// Duration of each run, in milliseconds.
    #[arg(long, default_value_t = 500)]
    ms: u64,
    /// Run two short rounds, as a functional check.
    #[arg(long)]
    quick: bool,
}

/// A process of the job that causes events on command.
struct Load {
    _child: KilledOnDrop,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Load {
    fn start(kind: Kind, job: &Job) -> Result<Self, Box<dyn Error>> {
        let program = std::env::current_exe()?;
        let mut command = if kind == Kind::Sends {
            let mut command = job.command(Path::new("unshare"));
            command.arg("--net").arg(program);
            command
        } else {
            job.command(&program)
        };
        command.args(["part", "events", &kind.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = KilledOnDrop(command.spawn()?);
        let input = child.stdin.take().ok_or("no input")?;
        let output = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut load = Self { _child: child, input, output };
        // The first run makes the sockets.
        load.run(1)?;
        Ok(load)
    }

    fn run(&mut self, ms: u64) -> Result<Measured, Box<dyn Error>> {
        writeln!(self.input, "{ms}")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Box<dyn Error>> {
    if arguments.quick {
        (arguments.rounds, arguments.ms) = (2, 20);
    }
    table::machine();
    table::head(&["load", "counted", "events/s", "ns/event", "more, ns/event", "ratio", "counted of 100"]);
    for kind in [Kind::Packets, Kind::Sends, Kind::Switches, Kind::Reads] {
        measure(kind, &arguments)?;
    }
    Ok(())
}

/// Measures the variants of one load in turns, and prints a row for each.
fn measure(kind: Kind, arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let mounts = Mounts::read(Path::new("/"))?;
    let (job, other) = (Job::make_for("ebpf", 1)?, Job::make_for("ebpf", 2)?);
    let mut load = Load::start(kind, &job)?;
    let variants = kind.variants();
    let mut runs: Vec<Vec<(Measured, u64)>> = vec![Vec::new(); variants.len()];
    for _ in 0..arguments.rounds {
        for (counted, runs) in variants.iter().zip(&mut runs) {
            let cgroup = match counted {
                Counted::Nothing => None,
                Counted::Job => Some(&job),
                Counted::OtherJob => Some(&other),
            };
            let mut source = cgroup.map(|job| open(&mounts, job, kind.metrics())).transpose()?;
            let measured = load.run(arguments.ms)?;
            runs.push((measured, source.as_mut().map_or(0, |source| source.events(kind.counter()))));
        }
    }
    let cost_of =
        |runs: &[(Measured, u64)]| -> Vec<f64> { runs.iter().map(|(run, _)| run.cost_ns()).collect() };
    let base = runs.first().map(|runs| cost_of(runs)).unwrap_or_default();
    for (counted, runs) in variants.iter().zip(&runs) {
        let cost = cost_of(runs);
        let (mean, more) = (Estimate::of(&cost), Estimate::difference(&cost, &base));
        let sum = |of: fn(&Measured) -> u64| runs.iter().map(|(run, _)| of(run)).sum::<u64>();
        let rate = to_f64(sum(|run| run.events)) / to_f64(sum(|run| run.wall_ns).max(1)) * 1e9;
        let counts: u64 = runs.iter().map(|(_, count)| count).sum();
        let share = 100.0 * to_f64(counts) / to_f64(sum(|run| run.events).max(1));
        table::row(&[
            kind.to_string(),
            counted.to_string(),
            format!("{rate:.0}"),
            format!("{:.1} ± {:.1}", mean.mean, mean.half),
            format!("{:.1} ± {:.1}", more.mean, more.half),
            format!("{:.3}", mean.mean / Estimate::of(&base).mean),
            format!("{share:.1}"),
        ]);
    }
    Ok(())
}
