//! Measures the agent's whole cost of sampling against bare reads of the same files.

use std::error::Error;
use std::fmt;
use std::path::Path;

use clap::ValueEnum;
use polymeter_benches::agent::{Running, tally_of_jobs};
use polymeter_benches::bare::Bare;
use polymeter_benches::clock::now_ns;
use polymeter_benches::histogram::Histogram;
use polymeter_benches::job::{Job, pause};
use polymeter_benches::table::{self, say, to_f64};
use polymeter_benches::{plan, process};
use polymeter_proto::period::Sampling;

/// Measures the agent's CPU time against bare reads of the same files.
///
/// Needs root, for cgroups. The agent has a collector that acknowledges without storing; a process of its
/// own does the bare reads with the same kind of timer. Both alternate. `ratio` is the CPU time of all
/// threads of the agent divided by that of the bare reads. `agent late` is the share of samples that were
/// read later than a tenth of their period. Lateness is measured at the read of each source for the agent,
/// and at the wake-up for the bare reads. All settings at once: --jobs 1,10,50 --load works,sleeps --perf
/// on,off.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Seconds of each run.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Number of rounds in which agent and bare reads alternate.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Sampling periods; 1ms/1s reads every millisecond and sends windows of a second.
    #[arg(long, value_delimiter = ',', default_value = "1s,100ms,10ms,1ms,1ms/1s,100us")]
    periods: Vec<Sampling>,
    /// Numbers of jobs to sample.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    jobs: Vec<u32>,
    /// With perf events, without, or both.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "on")]
    perf: Vec<Perf>,
    /// Load of the first job; the other jobs are idle.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "works")]
    load: Vec<Load>,
    /// Run one short round at 1 ms, raw and in windows, as a functional check.
    #[arg(long)]
    quick: bool,
}

/// The perf events: read or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Perf {
    On,
    Off,
}

/// The load of the first job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Load {
    Works,
    Sleeps,
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Works { "works" } else { "sleeps" })
    }
}

/// Time for which the agent samples before the measurement; it discovers all jobs meanwhile.
const SETTLE_NS: i64 = 1_500_000_000;

/// Cost and kept deadlines of a run, or the sums over several runs.
#[derive(Debug, Clone, Default)]
struct Run {
    cpu_s: f64,
    /// Part of `cpu_s` that was used by the thread which encodes, spools and sends frames.
    sender_cpu_s: f64,
    seconds: f64,
    due: u64,
    kept: u64,
    late: u64,
    resident_bytes: u64,
    bytes: u64,
    lateness_us: Histogram,
}

impl Run {
    fn add(&mut self, other: &Self) {
        self.cpu_s += other.cpu_s;
        self.sender_cpu_s += other.sender_cpu_s;
        self.seconds += other.seconds;
        self.due += other.due;
        self.kept += other.kept;
        self.late += other.late;
        self.resident_bytes = self.resident_bytes.max(other.resident_bytes);
        self.bytes += other.bytes;
        self.lateness_us.add(&other.lateness_us);
    }
}

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Box<dyn Error>> {
    if arguments.quick {
        (arguments.seconds, arguments.rounds, arguments.periods) =
            (2, 1, vec!["1ms".parse()?, "1ms/1s".parse()?]);
    }
    table::machine();
    let scratch = tempfile::tempdir()?;
    let mut rows = Vec::new();
    for load in &arguments.load {
        for count in &arguments.jobs {
            let mut jobs =
                (0..*count).map(|number| Job::make_for("gather", number)).collect::<Result<Vec<_>, _>>()?;
            if *load == Load::Works
                && let Some(job) = jobs.first_mut()
            {
                job.work(&scratch.path().join("file"))?;
            }
            for (perf, period) in arguments
                .perf
                .iter()
                .flat_map(|perf| arguments.periods.iter().map(move |period| (perf, period)))
            {
                let perf = *perf == Perf::On;
                let (mut agent, mut bare) = (Run::default(), Run::default());
                for _ in 0..arguments.rounds {
                    agent.add(&with_agent(*period, arguments.seconds, perf, &jobs, scratch.path())?);
                    bare.add(&with_bare(
                        &Bare::of(period.period, arguments.seconds, perf, &jobs),
                        arguments.seconds,
                    )?);
                }
                let mut cells = vec![period.to_string(), count.to_string(), load.to_string()];
                cells.push(if perf { "on" } else { "off" }.to_owned());
                cells.extend(row(&agent, &bare));
                rows.push(cells);
            }
        }
    }
    report(&arguments, &rows);
    Ok(())
}

fn row(agent: &Run, bare: &Run) -> Vec<String> {
    let percent = |run: &Run| format!("{:.2} %", 100.0 * run.cpu_s / run.seconds);
    vec![
        agent.kept.to_string(),
        percent(agent),
        percent(bare),
        format!("{:.2}", agent.cpu_s / bare.cpu_s.max(1e-9)),
        format!("{:.1} %", 100.0 * agent.sender_cpu_s / agent.cpu_s.max(1e-9)),
        share(agent.kept, agent.due),
        share(bare.kept, bare.due),
        share(agent.late, agent.due),
        lateness(agent),
        lateness(bare),
        format!("{:.1} MiB", to_f64(agent.resident_bytes) / 1024.0 / 1024.0),
        format!("{:.4}", to_f64(agent.bytes) / to_f64(agent.kept.max(1))),
    ]
}

fn lateness(run: &Run) -> String {
    let at = |part| run.lateness_us.quantile(part);
    format!("{} / {} / {} / {}", at(0.5), at(0.99), at(0.999), run.lateness_us.most())
}

fn share(part: u64, of: u64) -> String {
    if of == 0 { "-".to_owned() } else { format!("{:.3} %", 100.0 * to_f64(part) / to_f64(of)) }
}

fn report(arguments: &Arguments, rows: &[Vec<String>]) {
    say(&format!(
        "{} rounds of {} s; CPU in percent of one core, all threads, and how much of it is encoding, keeping and sending; lateness in µs (p50 / p99 / p99.9 / most): the agent's when it read, the bare reads' when they woke",
        arguments.rounds, arguments.seconds
    ));
    say("");
    table::table(
        &[
            "period",
            "jobs",
            "first job",
            "perf",
            "values",
            "agent CPU",
            "bare CPU",
            "ratio",
            "delivery",
            "agent kept",
            "bare kept",
            "agent late",
            "agent's lateness",
            "bare lateness",
            "agent RSS",
            "bytes per value",
        ],
        rows,
    );
}

fn with_bare(bare: &Bare, seconds: u64) -> Result<Run, Box<dyn Error>> {
    let outcome = bare.start()?.outcome()?;
    Ok(Run {
        cpu_s: outcome.cpu_s,
        seconds: to_f64(seconds),
        due: outcome.due,
        kept: outcome.kept,
        lateness_us: outcome.lateness_us(),
        ..Run::default()
    })
}

/// Runs the agent once, with a collector that acknowledges frames without storing them.
fn with_agent(
    sampling: Sampling,
    seconds: u64,
    perf: bool,
    jobs: &[Job],
    scratch: &Path,
) -> Result<Run, Box<dyn Error>> {
    let pattern = jobs.first().map(Job::pattern).unwrap_or_default();
    let baseline = plan::baseline(plan::job_metrics(perf), sampling);
    let running = Running::start(scratch, &format!("jobs = [\"{pattern}\"]\n{baseline}"))?;
    pause(SETTLE_NS);
    let before = view(&running)?;
    running.frames().for_each(drop);
    pause(i64::try_from(seconds)? * 1_000_000_000);
    let after = view(&running)?;
    let period_us = i64::try_from(sampling.period.as_micros())?;
    let mut lateness_us = Histogram::default();
    for time_us in running.frames().flat_map(|frame| frame.blocks).flat_map(|block| block.times_us) {
        // Deadlines are multiples of the period on the wall clock. A sample that is late by more than a
        // period is counted as missed.
        lateness_us.record(time_us.rem_euclid(period_us).unsigned_abs());
    }
    Ok(Run {
        cpu_s: after.cpu_s - before.cpu_s,
        sender_cpu_s: after.sender_cpu_s - before.sender_cpu_s,
        seconds: after.seconds - before.seconds,
        due: after.due - before.due,
        kept: after.kept - before.kept,
        late: after.late - before.late,
        resident_bytes: after.resident_bytes,
        bytes: after.bytes - before.bytes,
        lateness_us,
    })
}

fn view(running: &Running) -> Result<Run, Box<dyn Error>> {
    let status = running.connect()?.status()?;
    let tally = tally_of_jobs(&status);
    if tally.due == 0 {
        return Err("the agent does not sample the jobs".into());
    }
    Ok(Run {
        cpu_s: to_f64(status.counts.cpu_ns) / 1e9,
        sender_cpu_s: process::threads_cpu_s(running.pid(), "sender")?,
        seconds: to_f64(now_ns()) / 1e9,
        due: tally.due,
        kept: tally.taken,
        late: tally.late,
        resident_bytes: status.counts.resident_bytes,
        bytes: status.counts.bytes_sent,
        lateness_us: Histogram::default(),
    })
}
