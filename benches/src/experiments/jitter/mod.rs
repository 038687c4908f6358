//! Measures the time that the agent takes from a program: a gap between two reads of the clock shows that
//! something else ran.

mod arguments;
mod hanging;

use std::error::Error;
use std::path::Path;
use std::process::Stdio;
use std::sync::Barrier;
use std::thread;

use polymeter_benches::agent::Running;
use polymeter_benches::bare::{self, Bare};
use polymeter_benches::clock::{SECOND_NS, now_ns, process_cpu_ns};
use polymeter_benches::histogram::Histogram;
use polymeter_benches::job::{Job, pause};
use polymeter_benches::statistics::{Estimate, Random};
use polymeter_benches::table::{self, say, to_f64};
use polymeter_benches::tool::{RunningTool, Tool};
use polymeter_benches::{plan, process};
use polymeter_proto::period::Period;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

pub(crate) use self::arguments::Arguments;

/// Shortest gap that is counted as an interruption.
const GAP_NS: u64 = 1_000;

/// Additional time for which the bare reads are started; they are stopped when the threads end.
const BARE_MORE_S: u64 = 60;

/// Time for which a tool runs before the measurement; it opens its files meanwhile.
const SETTLE_NS: i64 = 1_000_000_000;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Seen {
    /// Time in gaps longer than [`GAP_NS`].
    stolen_ns: u64,
    /// Part of that time that the hypervisor took.
    steal_s: f64,
    /// Histogram of the gaps: its buckets that are not empty, and the longest gap. In nanoseconds.
    gaps: (Vec<(usize, u64)>, u64),
}

#[derive(Debug)]
enum Subject {
    Nothing,
    Bare(Period),
    Agent(Period),
    Tool(Tool),
}

/// Runs while the threads read the clock.
enum Started<'a> {
    Nothing,
    Bare(bare::Running),
    Agent(Running),
    Tool(RunningTool<'a>),
}

impl Started<'_> {
    fn cpu_s(&self) -> Result<f64, Box<dyn Error>> {
        Ok(match self {
            Self::Nothing => 0.0,
            Self::Bare(bare) => process::usage(bare.pid())?.cpu_s,
            Self::Agent(agent) => process::usage(agent.pid())?.cpu_s,
            Self::Tool(tool) => tool.cpu_s()?,
        })
    }

    /// Fails if it has ended before.
    fn stop(self) -> Result<(), Box<dyn Error>> {
        match self {
            Self::Agent(agent) => agent.stop(),
            Self::Tool(tool) => tool.stop(),
            Self::Nothing | Self::Bare(_) => Ok(()),
        }
    }
}

/// Runs of one subject, one value per round. Times are in milliseconds per second, summed over all CPUs.
#[derive(Debug, Default)]
struct Runs {
    /// Time without the hypervisor's part.
    stolen: Vec<f64>,
    steal: Vec<f64>,
    tool_cpu: Vec<f64>,
    collector_cpu: Vec<f64>,
    gaps: Histogram,
}

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Box<dyn Error>> {
    if arguments.quick {
        (arguments.seconds, arguments.rounds, arguments.periods) = (1, 2, vec!["1ms".parse()?]);
    }
    table::machine();
    if arguments.hanging {
        let Arguments { seconds, rounds, seed, slow_period, .. } = arguments;
        let runs = hanging::Runs { seconds, rounds, seed, slow_period };
        let short = hanging::Runs { seconds: 6, rounds: 1, seed, slow_period: "100ms".parse()? };
        return hanging::compare(if arguments.quick { short } else { runs });
    }
    let subjects = subjects(&arguments)?;
    let scratch = tempfile::tempdir()?;
    let job = Job::make_for("jitter", 0)?;
    let mut runs: Vec<Runs> = subjects.iter().map(|_| Runs::default()).collect();
    let mut random = Random::new(arguments.seed);
    for _ in 0..arguments.rounds {
        let mut turns: Vec<_> = subjects.iter().zip(&mut runs).collect();
        random.shuffle(&mut turns);
        for (subject, runs) in turns {
            runs.one(subject, &arguments, &job, scratch.path())?;
        }
    }
    report(&arguments, &subjects, &runs);
    Ok(())
}

/// `Nothing` is the first subject, as the reference for the others.
fn subjects(arguments: &Arguments) -> Result<Vec<Subject>, Box<dyn Error>> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Tools {
        tool: Vec<Tool>,
    }
    let mut subjects = vec![Subject::Nothing];
    subjects.extend(arguments.periods.iter().copied().map(Subject::Bare));
    subjects.extend(arguments.periods.iter().copied().map(Subject::Agent));
    if let Some(path) = &arguments.tools {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let tools: Tools = toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        let (here, missing): (Vec<_>, Vec<_>) = tools.tool.into_iter().partition(Tool::is_here);
        for tool in missing {
            say(&format!("left out, since it is not installed or does not work here: {}", tool.name));
        }
        subjects.extend(here.into_iter().map(Subject::Tool));
    }
    Ok(subjects)
}

impl Runs {
    fn one(
        &mut self,
        subject: &Subject,
        arguments: &Arguments,
        job: &Job,
        scratch: &Path,
    ) -> Result<(), Box<dyn Error>> {
        let perf = !arguments.without_perf;
        let started = match subject {
            Subject::Nothing => Started::Nothing,
            Subject::Bare(period) => {
                let seconds = arguments.seconds + BARE_MORE_S;
                Started::Bare(Bare::of(*period, seconds, perf, std::slice::from_ref(job)).start()?)
            }
            Subject::Agent(period) => {
                let baseline = plan::baseline(plan::job_metrics(perf), *period);
                let config = format!("jobs = [\"{}\"]\n{baseline}", job.pattern());
                Started::Agent(Running::start(scratch, &config)?)
            }
            Subject::Tool(tool) => Started::Tool(tool.start(vec![("CGROUPS", job.cgroups())])?),
        };
        pause(SETTLE_NS);
        let (before, own_before_ns, begin_ns) = (started.cpu_s()?, process_cpu_ns(), now_ns());
        let seen = measured(job, arguments.seconds)?;
        let used = started.cpu_s()? - before;
        let window_s = to_f64(now_ns() - begin_ns) / 1e9;
        let seconds = to_f64(arguments.seconds);
        self.tool_cpu.push(1e3 * used / window_s);
        self.collector_cpu.push(to_f64(process_cpu_ns() - own_before_ns) / 1e6 / window_s);
        self.stolen.push((to_f64(seen.stolen_ns) / 1e6 - seen.steal_s * 1e3) / seconds);
        self.steal.push(seen.steal_s * 1e3 / seconds);
        self.gaps.add(&Histogram::from_filled(&seen.gaps.0, seen.gaps.1));
        started.stop()
    }
}

fn measured(job: &Job, seconds: u64) -> Result<Seen, Box<dyn Error>> {
    let mut command = job.command(&std::env::current_exe()?);
    let output = command.args(["part", "clock", &seconds.to_string()]).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err("the threads that read the clock failed".into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Runs in the job: a thread on each CPU reads the clock for some seconds.
pub(crate) fn read_clocks(seconds: u64) -> Result<(), Box<dyn Error>> {
    let allowed = sched_getaffinity(None)?;
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    let all_ready = Barrier::new(cpus.len());
    let mut sum = Histogram::default();
    let mut seen = Seen::default();
    let steal_before_s = process::steal_s();
    thread::scope(|scope| {
        let threads: Vec<_> =
            cpus.iter().map(|cpu| scope.spawn(|| read_clock_on(*cpu, &all_ready, seconds))).collect();
        for thread in threads {
            let (of_one, gaps) = thread.join().map_err(|_panic| "a thread that reads the clock broke")?;
            seen.stolen_ns += of_one.stolen_ns;
            sum.add(&gaps);
        }
        Ok::<(), Box<dyn Error>>(())
    })?;
    seen.steal_s = process::steal_s() - steal_before_s;
    seen.gaps = (sum.filled(), sum.most());
    say(&serde_json::to_string(&seen)?);
    Ok(())
}

fn read_clock_on(cpu: usize, all_ready: &Barrier, seconds: u64) -> (Seen, Histogram) {
    let mut only = CpuSet::new();
    only.set(cpu);
    // If the kernel refuses it, the thread may migrate, which makes gaps longer, never shorter.
    sched_setaffinity(None, &only).ok();
    all_ready.wait();
    read_clock(seconds * SECOND_NS)
}

fn read_clock(duration_ns: u64) -> (Seen, Histogram) {
    let (mut seen, mut gaps) = (Seen::default(), Histogram::default());
    let mut last_ns = now_ns();
    let end_ns = last_ns + duration_ns;
    while last_ns < end_ns {
        let read_ns = now_ns();
        let gap_ns = read_ns - last_ns;
        gaps.record(gap_ns);
        if gap_ns > GAP_NS {
            seen.stolen_ns += gap_ns;
        }
        last_ns = read_ns;
    }
    (seen, gaps)
}

fn report(arguments: &Arguments, subjects: &[Subject], runs: &[Runs]) {
    say(&format!(
        "{} rounds of {} s in random order, seed {}; a thread on each CPU reads the clock{}; times in ms per second, all CPUs together, with 95 % intervals; what the hypervisor took is not in what was stolen",
        arguments.rounds,
        arguments.seconds,
        arguments.seed,
        if arguments.without_perf { "; no perf events" } else { "" }
    ));
    say("");
    let Some(baseline) = runs.first() else { return };
    let rows: Vec<_> =
        subjects.iter().zip(runs).map(|(subject, runs)| row(subject, runs, baseline)).collect();
    table::table(
        &[
            "runs",
            "hypervisor",
            "stolen > 1 µs",
            "beyond nothing",
            "its CPU",
            "collector's CPU",
            "beyond / CPU of both",
            "gap p99",
            "p99.9",
            "p99.99",
            "p99.999",
            "most",
        ],
        &rows,
    );
}

fn row(subject: &Subject, runs: &Runs, baseline: &Runs) -> Vec<String> {
    let name = match subject {
        Subject::Nothing => "nothing".to_owned(),
        Subject::Bare(period) => format!("bare reads at {period}"),
        Subject::Agent(period) => format!("agent at {period}"),
        Subject::Tool(tool) => tool.name.clone(),
    };
    let cpu = |values: &[f64]| Estimate::of(values).mean;
    let (tool, collector) = (cpu(&runs.tool_cpu), cpu(&runs.collector_cpu) - cpu(&baseline.collector_cpu));
    // Differences within a round: a temporary slowdown of the machine affects both runs.
    let beyond: Vec<f64> =
        runs.stolen.iter().zip(&baseline.stolen).map(|(with, without)| with - without).collect();
    let beyond = Estimate::of(&beyond);
    let is_agent = matches!(subject, Subject::Agent(_));
    let is_nothing = matches!(subject, Subject::Nothing);
    let only = |wanted: bool, text: String| if wanted { text } else { "-".to_owned() };
    let both = if is_agent { tool + collector } else { tool };
    let micros = |part| format!("{:.2} µs", to_f64(runs.gaps.quantile(part)) / 1e3);
    vec![
        name,
        format!("{:.2}", Estimate::of(&runs.steal)),
        format!("{:.2}", Estimate::of(&runs.stolen)),
        only(!is_nothing, format!("{beyond:.2}")),
        only(!is_nothing, format!("{tool:.2}")),
        only(is_agent, format!("{collector:.2}")),
        only(!is_nothing, format!("{:.2}", beyond.in_units_of(both))),
        micros(0.99),
        micros(0.999),
        micros(0.9999),
        micros(0.99999),
        format!("{:.0} µs", to_f64(runs.gaps.most()) / 1e3),
    ]
}
