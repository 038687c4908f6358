//! Stops the database for ten minutes and kills the collector three times, while real agents sample 100,000 values a second,
//! and checks that each sample is stored exactly once or accounted for.
//!
//! `cargo run --release --bin outage -- [--quick] [--agents 100] [--outage 600]`. Needs root, for the job's cgroups, and
//! PostgreSQL; the store grows by some 10 GB.

use polymeter_proto::control::AgentCounts;
use std::error::Error;
use std::fs;
use std::path::Path;

use clap::Parser;
use polymeter_benches::agent::Agent;
use polymeter_benches::clock::{SECOND_NS, now_ns, sleep_until};
use polymeter_benches::collector::Collector;
use polymeter_benches::failure::Failure;
use polymeter_benches::job::Job;
use polymeter_benches::store::{Kind, Store};
use polymeter_benches::sums::{Sums, stored_twice};
use polymeter_benches::table::{self, say, to_f64};
use polymeter_benches::{plan, process};

#[derive(Debug, Parser)]
struct Arguments {
    /// Number of agents, each a separate process with its own node name that samples the same job.
    #[arg(long, default_value_t = 100)]
    agents: usize,
    /// Duration of the database outage, in seconds.
    #[arg(long, default_value_t = 600)]
    outage: u64,
    /// Time between any two other events, in seconds.
    #[arg(long, default_value_t = 20)]
    pause: u64,
    /// Timeout for the delivery of all pending frames at the end, in seconds.
    #[arg(long, default_value_t = 1800)]
    patience: u64,
    /// Store; by default the best server that is installed.
    #[arg(long, value_enum)]
    store: Option<Kind>,
    /// Run three agents and an outage of some seconds, as a functional check.
    #[arg(long)]
    quick: bool,
}

/// The period of every metric of the job: with some fifty metrics, each agent takes a thousand samples a second.
const PERIOD: &str = "50ms";

/// The number of progress lines during the outage.
const LINES: u64 = 10;

/// The outbox size below which an agent has caught up: an outbox always holds the frame that waits for its acknowledgement,
/// and this is no more than one or two seconds of samples.
const SETTLED_BYTES: u64 = 16 * 1024;

struct Scene {
    agents: Vec<Agent>,
    collector: Collector,
    store: Store,
    begin_ns: u64,
    most_outbox_bytes: u64,
}

fn main() -> Result<(), Failure> {
    let mut arguments = Arguments::parse();
    if arguments.quick {
        (arguments.agents, arguments.outage, arguments.pause) = (3, 4, 1);
    }
    let kind = arguments.store.unwrap_or_else(Kind::best);
    if kind == Kind::Sqlite {
        say("SKIPPED: no PostgreSQL server is installed");
        return Ok(());
    }
    table::machine();
    let scratch = tempfile::tempdir()?;
    let mut job = Job::make_for("outage", 1)?;
    job.work(&scratch.path().join("file"))?;
    let mut scene = Scene::start(scratch.path(), kind, &job, arguments.agents)?;
    say(&format!("{kind}; {} agents, all of one job every {PERIOD}", arguments.agents));
    say("");
    say(&format!("| {} |", HEAD.join(" | ")));
    say(&format!("|{}", " --- |".repeat(HEAD.len())));
    scene.wait(arguments.pause, "begins")?;
    scene.collector.kill_and_start()?;
    scene.wait(arguments.pause, "collector killed")?;
    scene.store.fail()?;
    for line in 0..LINES {
        if line == LINES / 2 {
            scene.collector.kill_and_start()?;
        }
        let killed = line == LINES / 2;
        let what = if killed { "no database; collector killed" } else { "no database" };
        scene.wait(arguments.outage.div_ceil(LINES), what)?;
    }
    scene.store.recover()?;
    scene.wait(arguments.pause, "database is back")?;
    scene.collector.kill_and_start()?;
    scene.wait(arguments.pause, "collector killed")?;
    scene.catch_up(arguments.pause, arguments.patience)?;
    drop(job);
    Ok(scene.end()?)
}

const HEAD: [&str; 7] = ["s", "event", "due", "missed", "dropped", "in all outboxes", "largest outbox"];

fn metrics() -> Vec<String> {
    plan::job_metrics(true)
}

impl Scene {
    fn start(scratch: &Path, kind: Kind, job: &Job, agents: usize) -> Result<Self, Box<dyn Error>> {
        let store = Store::start(kind)?;
        // The collectors that are started after a kill listen on the same port.
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let collector = Collector::start(scratch, &format!("tcp://127.0.0.1:{port}"), &store, "")?;
        let baseline = plan::baseline(metrics(), PERIOD.parse()?);
        let start = |number: usize| -> Result<Agent, Box<dyn Error>> {
            let directory = scratch.join(format!("agent{number}"));
            fs::create_dir(&directory)?;
            let head = format!("node = \"n{number}\"\njobs = [\"{}\"]\n", job.pattern());
            Agent::start(&directory, collector.endpoint(), &format!("{head}{baseline}"))
        };
        let agents = (0..agents).map(start).collect::<Result<_, _>>()?;
        Ok(Self { agents, collector, store, begin_ns: now_ns(), most_outbox_bytes: 0 })
    }

    /// Waits, then prints the state. Returns the size of the largest outbox, in bytes.
    fn wait(&mut self, seconds: u64, event: &str) -> Result<u64, Box<dyn Error>> {
        sleep_until(now_ns() + seconds * SECOND_NS);
        let mut counts = Vec::new();
        for agent in &self.agents {
            counts.push(agent.connect()?.status()?.counts);
        }
        let sum = |count: fn(&AgentCounts) -> u64| counts.iter().map(count).sum::<u64>();
        let largest = counts.iter().map(|counts| counts.outbox_bytes).max().unwrap_or(0);
        self.most_outbox_bytes = self.most_outbox_bytes.max(largest);
        let cells = [
            format!("{:.0}", to_f64(now_ns() - self.begin_ns) / 1e9),
            event.to_owned(),
            sum(|counts| counts.due).to_string(),
            sum(|counts| counts.missed).to_string(),
            sum(|counts| counts.dropped).to_string(),
            format!("{:.1} MB", to_f64(sum(|counts| counts.outbox_bytes)) / 1e6),
            format!("{:.1} kB", to_f64(largest) / 1e3),
        ];
        say(&format!("| {} |", cells.join(" | ")));
        Ok(largest)
    }

    /// Waits until every outbox is smaller than [`SETTLED_BYTES`].
    fn catch_up(&mut self, pause_s: u64, patience_s: u64) -> Result<(), Box<dyn Error>> {
        let end_ns = now_ns() + patience_s * SECOND_NS;
        while self.wait(pause_s, "catches up")? > SETTLED_BYTES {
            if now_ns() > end_ns {
                return Err(format!("not caught up after {patience_s} s").into());
            }
        }
        Ok(())
    }

    /// Stops agents and collector, in the direction of the data flow, and compares the stored samples with the taken ones.
    fn end(self) -> Result<(), Box<dyn Error>> {
        let seconds = to_f64(now_ns() - self.begin_ns) / 1e9;
        let mut agents_cpu_s = 0.0;
        for agent in self.agents {
            agents_cpu_s += process::usage(agent.pid())?.cpu_s;
            if !agent.stop() {
                return Err("an agent was not content when it was stopped".into());
            }
        }
        let log = self.collector.stop()?;
        let sums = Sums::read(&self.store)?;
        let twice = stored_twice(&self.store)?;
        say("");
        say(&format!("{sums}; stored twice {twice}"));
        say(&format!(
            "{:.0} samples/s; largest outbox {:.1} kB; {:.1} bytes per sample in the store; the agents used {:.1} % of a CPU; the collectors logged {} lines",
            to_f64(sums.taken) / seconds,
            to_f64(self.most_outbox_bytes) / 1e3,
            to_f64(self.store.bytes()?) / to_f64(sums.stored.max(1)),
            100.0 * agents_cpu_s / seconds,
            log.lines().count(),
        ));
        sums.check()?;
        if sums.dropped + sums.lost > 0 || twice > 0 {
            return Err("samples were lost or stored twice".into());
        }
        Ok(())
    }
}
