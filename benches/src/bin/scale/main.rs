//! How many nodes one collector holds: N mock agents, each with a session of its own, against one collector's process and a
//! real store.
//!
//! `cargo run --release --bin scale -- [--quick] [--agents 500,2000,8000,16000] [--store timescaledb]`. Needs nothing of the
//! machine but descriptors: the collector has one for each connection, a mock process two.

mod fleet;

use std::error::Error;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use clap::Parser;
use polymeter_benches::clock::{SECOND_NS, now_ns, sleep_until};
use polymeter_benches::collector::Collector;
use polymeter_benches::process::Usage;
use polymeter_benches::store::{Kind, Store};
use polymeter_benches::table::{self, say, to_f64};
use polymeter_proto::period::Period;

use self::fleet::{Fleet, Summary};

#[derive(Debug, Parser)]
struct Arguments {
    /// How many agents, one run for each number.
    #[arg(long, value_delimiter = ',', default_value = "500,1000,2000,4000,8000,16000")]
    agents: Vec<u64>,
    /// Seconds of each run, after every agent was heard once.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// How often each agent sends a sample of all its metrics.
    #[arg(long, default_value = "10s")]
    period: Period,
    /// The store; the best that is installed, if none is named.
    #[arg(long, value_enum)]
    store: Option<Kind>,
    /// Processes that the agents are spread over; one for every 4000, if nothing is said.
    #[arg(long)]
    processes: Option<u64>,
    /// Agents that share a connection. A collector remembers 8 sessions of each.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=8))]
    per_connection: u64,
    /// A few agents for seconds, to see that it works.
    #[arg(long)]
    quick: bool,
    /// Be some of the agents: what this program calls itself with.
    #[arg(long, hide = true, value_name = "JSON")]
    fleet: Option<String>,
}

/// Agents of one process, if nothing else is said: two descriptors each.
const AGENTS_PER_PROCESS: u64 = 4_000;

/// What one number of agents took.
#[derive(Debug)]
struct Outcome {
    agents: u64,
    expected: u64,
    stored: u64,
    seconds: f64,
    first_s: f64,
    collector: Usage,
    server: Usage,
    mocks_cpu_s: f64,
    bytes: u64,
    stuck: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = Arguments::parse();
    if let Some(fleet) = &arguments.fleet {
        return serde_json::from_str::<Fleet>(fleet)?.run();
    }
    if arguments.quick {
        (arguments.agents, arguments.seconds) = (vec![100], 5);
        (arguments.period, arguments.processes) = (Period::SECOND, Some(2));
    }
    table::machine();
    let kind = arguments.store.unwrap_or_else(Kind::best);
    let mut outcomes = Vec::new();
    for agents in &arguments.agents {
        outcomes.push(one(&arguments, kind, *agents)?);
    }
    report(&arguments, kind, &outcomes);
    let lost = outcomes.iter().find(|outcome| outcome.stored != outcome.expected);
    lost.map_or(Ok(()), |outcome| {
        let Outcome { agents, expected, stored, .. } = outcome;
        Err(format!("with {agents} agents {expected} samples were sent, and {stored} are stored").into())
    })
}

/// A process that is some of the agents.
#[derive(Debug)]
struct MockProcess {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl MockProcess {
    fn start(fleet: &Fleet) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--fleet", &serde_json::to_string(fleet)?]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().ok_or("a mock process has no stdout")?;
        Ok(Self { child, lines: BufReader::new(stdout).lines() })
    }

    fn line(&mut self) -> Result<String, Box<dyn Error>> {
        Ok(self.lines.next().ok_or("a mock process broke")??)
    }

    fn go(&mut self) -> Result<(), Box<dyn Error>> {
        Ok(self.child.stdin.as_mut().ok_or("a mock process has no stdin")?.write_all(b"go\n")?)
    }
}

impl Drop for MockProcess {
    fn drop(&mut self) {
        // It is ours; after its last line it has gone anyway.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn one(arguments: &Arguments, kind: Kind, agents: u64) -> Result<Outcome, Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let store = Store::start(kind)?;
    let collector = Collector::start(scratch.path(), "tcp://127.0.0.1:*", &store, "")?;
    let mut mocks = start(arguments, agents, collector.endpoint())?;
    let begin_ns = now_ns();
    // The first frames bring the names, and the store makes its series: that is measured apart.
    for mock in &mut mocks {
        mock.line()?;
    }
    let first_s = to_f64(now_ns() - begin_ns) / 1e9;
    let (collector_before, server_before, begin_ns) = (collector.usage()?, store.usage()?, now_ns());
    mocks.iter_mut().try_for_each(MockProcess::go)?;
    let (mut collector_most, mut server_most) = (collector_before, server_before);
    while now_ns() < begin_ns + arguments.seconds * SECOND_NS {
        sleep_until(now_ns() + SECOND_NS);
        collector_most.memory_kib = collector_most.memory_kib.max(collector.usage()?.memory_kib);
        server_most.memory_kib = server_most.memory_kib.max(store.usage()?.memory_kib);
    }
    let mut sum = Summary::default();
    for mock in &mut mocks {
        sum.add(&serde_json::from_str(&mock.line()?)?);
    }
    let (collector_after, server_after) = (collector.usage()?, store.usage()?);
    let seconds = to_f64(now_ns() - begin_ns) / 1e9;
    collector.stop()?;
    let used = |after: Usage, before: Usage, most: Usage| Usage {
        cpu_s: after.cpu_s - before.cpu_s,
        memory_kib: most.memory_kib,
        descriptors: after.descriptors,
    };
    Ok(Outcome {
        agents,
        expected: sum.samples,
        stored: store.samples()?,
        seconds,
        first_s,
        collector: used(collector_after, collector_before, collector_most),
        server: used(server_after, server_before, server_most),
        mocks_cpu_s: sum.cpu_s,
        bytes: store.bytes()?,
        stuck: sum.stuck,
    })
}

/// Spreads the agents over processes.
fn start(arguments: &Arguments, agents: u64, endpoint: &str) -> Result<Vec<MockProcess>, Box<dyn Error>> {
    let processes =
        arguments.processes.unwrap_or(agents.div_ceil(AGENTS_PER_PROCESS)).clamp(1, agents.max(1));
    let start = |number| {
        MockProcess::start(&Fleet {
            endpoint: endpoint.to_owned(),
            // Every process has agents of all phases.
            first: number,
            step: processes,
            agents,
            per_connection: arguments.per_connection,
            period: arguments.period,
            seconds: arguments.seconds,
        })
    };
    (0..processes).map(start).collect()
}

fn report(arguments: &Arguments, kind: Kind, outcomes: &[Outcome]) {
    say(&format!(
        "{kind}; every agent sends 50 values every {}, for {} s; {} to a connection; CPU in seconds per minute; memory at most",
        arguments.period, arguments.seconds, arguments.per_connection
    ));
    say("");
    let row = |outcome: &Outcome| {
        let per_minute = |cpu_s: f64| format!("{:.2}", cpu_s * 60.0 / outcome.seconds);
        let mib = |usage: Usage| format!("{:.0} MiB", to_f64(usage.memory_kib) / 1024.0);
        let both_s = outcome.collector.cpu_s + outcome.server.cpu_s;
        // The first round is stored, but not in the time that is measured.
        let steady = outcome.expected - outcome.agents.min(outcome.expected) * 50;
        vec![
            outcome.agents.to_string(),
            outcome.expected.to_string(),
            outcome.stored.to_string(),
            outcome.stuck.to_string(),
            format!("{:.0}", to_f64(steady) / outcome.seconds),
            per_minute(outcome.collector.cpu_s),
            per_minute(outcome.server.cpu_s),
            per_minute(outcome.mocks_cpu_s),
            format!("{:.2}", both_s / outcome.mocks_cpu_s.max(1e-9)),
            format!("{:.0} k", to_f64(steady) / both_s.max(1e-9) / 1e3),
            mib(outcome.collector),
            mib(outcome.server),
            format!("{:.1}", to_f64(outcome.bytes) / to_f64(outcome.stored.max(1))),
            format!("{:.1}", outcome.first_s),
        ]
    };
    table::table(
        &[
            "agents",
            "sent",
            "stored",
            "stuck",
            "samples/s",
            "collector CPU",
            "server CPU",
            "agents' CPU",
            "both / agents'",
            "samples per CPU s of both",
            "collector",
            "server",
            "bytes per sample",
            "first round s",
        ],
        &outcomes.iter().map(row).collect::<Vec<_>>(),
    );
}
