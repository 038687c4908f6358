//! Samples at 1 kHz for an hour while jobs start and end, and checks that memory and descriptors do not grow and that every
//! sample is stored or accounted for.
//!
//! `cargo run --release --bin sustain -- [--quick] [--minutes 60]`. Needs root, for the jobs' cgroups; the store grows by
//! about 10 000 samples a second for each job.

use polymeter_proto::control::AgentCounts;
use std::collections::VecDeque;
use std::error::Error;
use std::path::{Path, PathBuf};

use clap::Parser;
use polymeter_benches::agent::Agent;
use polymeter_benches::clock::{SECOND_NS, now_ns, sleep_until};
use polymeter_benches::collector::Collector;
use polymeter_benches::failure::Failure;
use polymeter_benches::job::Job;
use polymeter_benches::plan;
use polymeter_benches::process::{self, Usage};
use polymeter_benches::statistics::Random;
use polymeter_benches::store::{Kind, Store};
use polymeter_benches::sums::Sums;
use polymeter_benches::table::{self, say, to_f64};

#[derive(Debug, Parser)]
struct Arguments {
    /// Duration, in minutes.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Number of concurrent jobs.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Shortest and longest run time of a job, in seconds.
    #[arg(long, num_args = 2, default_values_t = [5, 60])]
    lives: Vec<u64>,
    /// Seed of the jobs' run times.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Store; by default the best that is installed.
    #[arg(long, value_enum)]
    store: Option<Kind>,
    /// Run for twenty seconds, as a functional check.
    #[arg(long)]
    quick: bool,
}

/// The number of lines in the table, without the first and the last.
const LINES: u64 = 30;

/// The metrics that are sampled every millisecond.
const FAST: [&str; 5] = ["cpu.usage", "cpu.user", "cpu.system", "memory.current", "pids.current"];

/// The running jobs, ordered by their end.
struct Jobs {
    running: VecDeque<(u64, Job)>,
    random: Random,
    lives_s: (u64, u64),
    started: u32,
    scratch: PathBuf,
}

impl Jobs {
    /// Ends the jobs whose time is over, and starts jobs until `wanted` are running.
    fn turn(&mut self, wanted: usize) -> std::io::Result<()> {
        while self.running.front().is_some_and(|(end_ns, _)| *end_ns <= now_ns()) {
            self.running.pop_front();
        }
        while self.running.len() < wanted {
            self.started += 1;
            let mut job = Job::make_for("sustain", self.started)?;
            job.work(&self.scratch.join(format!("job{}", self.running.len())))?;
            let (least, most) = self.lives_s;
            let life_ms = least * 1_000 + self.random.below(most.saturating_sub(least) * 1_000 + 1);
            let end_ns = now_ns() + life_ms * 1_000_000;
            let behind = self.running.partition_point(|(other_ns, _)| *other_ns <= end_ns);
            self.running.insert(behind, (end_ns, job));
        }
        Ok(())
    }
}

/// The processes that each line of the table reports on.
struct Scene {
    agent: Agent,
    collector: Collector,
    store: Store,
    begin_ns: u64,
}

fn main() -> Result<(), Failure> {
    let mut arguments = Arguments::parse();
    let mut duration_s = arguments.minutes * 60;
    if arguments.quick {
        (duration_s, arguments.lives) = (20, vec![1, 4]);
    }
    table::machine();
    let scratch = tempfile::tempdir()?;
    let [least, most] = arguments.lives.as_slice() else { return Err("--lives wants two times".into()) };
    let mut jobs = Jobs {
        running: VecDeque::new(),
        random: Random::new(arguments.seed),
        lives_s: (*least, *most),
        started: 0,
        scratch: scratch.path().to_owned(),
    };
    let kind = arguments.store.unwrap_or_else(Kind::best);
    let scene = Scene::start(scratch.path(), kind, &mut jobs)?;
    say(&format!(
        "{kind}; {} jobs at a time, {least} to {most} s each, seed {}; {} metrics every ms, {} every 100 ms",
        arguments.jobs,
        arguments.seed,
        FAST.len(),
        others().len()
    ));
    say("");
    say(&format!("| {} |", HEAD.join(" | ")));
    say(&format!("|{}", " --- |".repeat(HEAD.len())));
    let mut lines = Vec::new();
    let line_ns = duration_s * SECOND_NS / LINES;
    for line in 0..=LINES {
        while now_ns() < scene.begin_ns + line * line_ns {
            jobs.turn(arguments.jobs)?;
            sleep_until((now_ns() + SECOND_NS / 10).min(scene.begin_ns + line * line_ns));
        }
        lines.push(scene.line(jobs.started)?);
    }
    jobs.turn(0)?;
    jobs.running.clear();
    say("");
    growth(&lines);
    Ok(scene.end()?)
}

/// Returns the other metrics of memory.stat and the software events, which are sampled more slowly.
fn others() -> Vec<String> {
    plan::job_metrics(true).into_iter().filter(|metric| !FAST.contains(&metric.as_str())).collect()
}

const HEAD: [&str; 14] = [
    "s",
    "jobs so far",
    "agent",
    "its descriptors",
    "its CPU s",
    "collector",
    "its descriptors",
    "its CPU s",
    "due",
    "missed",
    "late",
    "absent",
    "dropped",
    "outbox bytes",
];

impl Scene {
    fn start(scratch: &Path, kind: Kind, jobs: &mut Jobs) -> Result<Self, Box<dyn Error>> {
        let store = Store::start(kind)?;
        let listen = format!("ipc://{}/collector", scratch.display());
        let collector = Collector::start(scratch, &listen, &store, "")?;
        jobs.turn(1)?;
        let pattern = jobs.running.front().map(|(_, job)| job.pattern()).unwrap_or_default();
        let fast = plan::baseline(FAST, "1ms".parse()?);
        let slow = plan::baseline(others(), "100ms".parse()?);
        // Both lists form one table, so that the second heading is removed.
        let slow = slow.strip_prefix("[baseline]\n").unwrap_or_default();
        let agent = Agent::start(scratch, &listen, &format!("jobs = [\"{pattern}\"]\n{fast}{slow}"))?;
        Ok(Self { agent, collector, store, begin_ns: now_ns() })
    }

    /// Prints the current state. Returns the usage of agent and collector.
    fn line(&self, jobs: u32) -> Result<(Usage, Usage), Box<dyn Error>> {
        let counts = self.agent.connect()?.status()?.counts;
        let (agent, collector) = (process::usage(self.agent.pid())?, self.collector.usage()?);
        let mut cells = vec![format!("{:.0}", to_f64(now_ns() - self.begin_ns) / 1e9), jobs.to_string()];
        for usage in [agent, collector] {
            cells.push(format!("{:.1} MiB", to_f64(usage.memory_kib) / 1024.0));
            cells.push(usage.descriptors.to_string());
            cells.push(format!("{:.1}", usage.cpu_s));
        }
        let AgentCounts { due, missed, late, absent, dropped, outbox_bytes, .. } = counts;
        cells.extend([due, missed, late, absent, dropped, outbox_bytes].map(|count| count.to_string()));
        say(&format!("| {} |", cells.join(" | ")));
        Ok((agent, collector))
    }

    /// Stops agent and collector, in the direction of the data flow, and compares the stored samples with the taken ones.
    fn end(self) -> Result<(), Box<dyn Error>> {
        // The final samples of jobs that have just ended may be pending.
        sleep_until(now_ns() + 2 * SECOND_NS);
        let counts = self.agent.connect()?.status()?.counts;
        if !self.agent.stop() {
            return Err("the agent was not content when it was stopped".into());
        }
        self.collector.stop()?;
        let sums = Sums::read(&self.store)?;
        let per_sample = to_f64(self.store.bytes()?) / to_f64(sums.stored.max(1));
        say(&format!("{sums}; {per_sample:.1} bytes per sample"));
        sums.check()?;
        if counts.due > sums.due {
            return Err(
                format!("the agent counted {} due, and its ledger has {}", counts.due, sums.due).into()
            );
        }
        Ok(())
    }
}

/// Compares memory and descriptors in the second quarter of the time with the last quarter. The first quarter is the
/// start-up.
fn growth(lines: &[(Usage, Usage)]) {
    let (agent, collector): (Vec<Usage>, Vec<Usage>) = lines.iter().copied().unzip();
    for (name, usages) in [("agent", agent), ("collector", collector)] {
        let quarter = usages.len() / 4;
        let (second, last) = (usages.get(quarter..2 * quarter), usages.get(3 * quarter..));
        let most = |part: Option<&[Usage]>, value: fn(&Usage) -> u64| {
            part.unwrap_or_default().iter().map(value).max().unwrap_or(0)
        };
        let (memory, descriptors) = (|usage: &Usage| usage.memory_kib, |usage: &Usage| usage.descriptors);
        say(&format!(
            "{name}: at most {} KiB and {} descriptors in the second quarter of the time, {} KiB and {} in the last",
            most(second, memory),
            most(second, descriptors),
            most(last, memory),
            most(last, descriptors),
        ));
    }
}
