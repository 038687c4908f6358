//! How many nodes one collector holds: N mock agents, each with a session of its own, against one collector's process and a
//! real store; and, if wished, in turns with that a Prometheus server that scrapes N mock exporters of the same values.
//!
//! `cargo run --release --bin scale -- [--quick] [--agents 500,2000,8000,16000] [--store timescaledb] [--prometheus]`. Needs
//! nothing of the machine but descriptors: the collector, or Prometheus, has one for each connection, a mock process two.

mod collected;
mod exporters;
mod fleet;
mod page;
mod part;
mod prometheus;
mod report;
mod request;
mod scraped;

use std::error::Error;

use clap::Parser;
use polymeter_benches::failure::Failure;
use polymeter_benches::store::Kind;
use polymeter_benches::table::{self, say};
use polymeter_proto::period::Period;

use self::collected::Collected;
use self::exporters::Exporters;
use self::fleet::Fleet;
use self::scraped::Scraped;

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
    /// Measure Prometheus as well, with as many exporters that show the same values: Debian's package, if it is installed.
    #[arg(long)]
    prometheus: bool,
    /// A few agents for seconds, to see that it works.
    #[arg(long)]
    quick: bool,
    /// Be some of the agents: what this program calls itself with.
    #[arg(long, hide = true, value_name = "JSON")]
    fleet: Option<String>,
    /// Be some of the exporters: what this program calls itself with.
    #[arg(long, hide = true, value_name = "JSON")]
    exporters: Option<String>,
}

/// Agents of one process, if nothing else is said: two descriptors each.
const AGENTS_PER_PROCESS: u64 = 4_000;

impl Arguments {
    /// How many processes so many agents are spread over.
    fn processes_for(&self, agents: u64) -> u64 {
        self.processes.unwrap_or(agents.div_ceil(AGENTS_PER_PROCESS)).clamp(1, agents.max(1))
    }

    /// Why Prometheus cannot be measured so.
    fn check_prometheus(&self) -> Result<(), Box<dyn Error>> {
        prometheus::program()?;
        if !self.period.as_micros().is_multiple_of(1_000) {
            return Err(format!(
                "--prometheus: it scrapes every few milliseconds at the most, not every {}",
                self.period
            )
            .into());
        }
        if self.agents.iter().any(|agents| *agents > exporters::MOST) {
            return Err(format!("--prometheus: at most {} exporters have addresses", exporters::MOST).into());
        }
        Ok(())
    }
}

fn main() -> Result<(), Failure> {
    let mut arguments = Arguments::parse();
    if let Some(fleet) = &arguments.fleet {
        return Ok(serde_json::from_str::<Fleet>(fleet)?.run()?);
    }
    if let Some(exporters) = &arguments.exporters {
        return Ok(serde_json::from_str::<Exporters>(exporters)?.run()?);
    }
    if arguments.quick {
        (arguments.agents, arguments.seconds) = (vec![100], 5);
        (arguments.period, arguments.processes) = (Period::SECOND, Some(2));
    }
    if arguments.prometheus {
        arguments.check_prometheus()?;
        // Prometheus has a descriptor for each exporter, and takes the limit from us.
        polymeter_agent::kernel::raise_descriptor_limit();
    }
    table::machine();
    let kind = arguments.store.unwrap_or_else(Kind::best);
    let (mut collected, mut scraped) = (Vec::new(), Vec::new());
    let mut measure = |agents: u64| {
        collected.push(Collected::measure(&arguments, kind, agents)?);
        if arguments.prometheus {
            scraped.push(Scraped::measure(&arguments, agents)?);
        }
        Ok::<(), Box<dyn Error>>(())
    };
    // Where one number is too much for this machine, what the smaller ones gave is shown all the same.
    let failed = arguments
        .agents
        .iter()
        .find_map(|agents| measure(*agents).err().map(|error| format!("with {agents} agents: {error}")));
    report::collected(&arguments, kind, &collected);
    if arguments.prometheus {
        say("");
        report::scraped(&arguments, &prometheus::version()?, &scraped);
        say("");
        report::compared(&collected, &scraped);
    }
    if let Some(failed) = failed {
        return Err(failed.into());
    }
    let lost = collected.iter().find(|outcome| outcome.stored != outcome.expected);
    lost.map_or(Ok(()), |outcome| {
        let Collected { agents, expected, stored, .. } = outcome;
        Err(format!("with {agents} agents {expected} samples were sent, and {stored} are stored").into())
    })
}
