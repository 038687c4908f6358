//! How many nodes one collector holds: N mock agents, each with a session of its own, against one collector's process and a
//! real store.
//!
//! `cargo run --release --bin scale -- [--quick] [--agents 500,2000,8000,16000] [--store timescaledb]`. Needs nothing of the
//! machine but descriptors: the collector has one for each connection, a mock process two.

mod collected;
mod fleet;
mod part;
mod report;

use std::error::Error;

use clap::Parser;
use polymeter_benches::store::Kind;
use polymeter_benches::table;
use polymeter_proto::period::Period;

use self::collected::Collected;
use self::fleet::Fleet;

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

impl Arguments {
    /// How many processes so many agents are spread over.
    fn processes_for(&self, agents: u64) -> u64 {
        self.processes.unwrap_or(agents.div_ceil(AGENTS_PER_PROCESS)).clamp(1, agents.max(1))
    }
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
        outcomes.push(Collected::measure(&arguments, kind, *agents)?);
    }
    report::collected(&arguments, kind, &outcomes);
    let lost = outcomes.iter().find(|outcome| outcome.stored != outcome.expected);
    lost.map_or(Ok(()), |outcome| {
        let Collected { agents, expected, stored, .. } = outcome;
        Err(format!("with {agents} agents {expected} samples were sent, and {stored} are stored").into())
    })
}
