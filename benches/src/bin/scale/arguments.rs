//! The command line.

use std::error::Error;

use clap::Parser;
use polymeter_benches::store::Kind;
use polymeter_proto::period::Period;

use crate::{exporters, prometheus};

/// The command line.
#[derive(Debug, Parser)]
pub(crate) struct Arguments {
    /// How many agents, one run for each number.
    #[arg(long, value_delimiter = ',', default_value = "500,1000,2000,4000,8000,16000")]
    pub(crate) agents: Vec<u64>,
    /// Seconds of each run, after every agent was heard once.
    #[arg(long, default_value_t = 60)]
    pub(crate) seconds: u64,
    /// How often each agent sends a sample of all its metrics.
    #[arg(long, default_value = "10s")]
    pub(crate) period: Period,
    /// The store; the best that is installed, if none is named.
    #[arg(long, value_enum)]
    pub(crate) store: Option<Kind>,
    /// Processes that the agents are spread over; one for every 4000, if nothing is said.
    #[arg(long)]
    pub(crate) processes: Option<u64>,
    /// Agents that share a connection. A collector remembers 8 sessions of each.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=8))]
    pub(crate) per_connection: u64,
    /// Measure Prometheus as well, with as many exporters that show the same values: Debian's package, if it is installed.
    #[arg(long)]
    pub(crate) prometheus: bool,
    /// A few agents for seconds, to see that it works.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Be some of the agents: what this program calls itself with.
    #[arg(long, hide = true, value_name = "JSON")]
    pub(crate) fleet: Option<String>,
    /// Be some of the exporters: what this program calls itself with.
    #[arg(long, hide = true, value_name = "JSON")]
    pub(crate) exporters: Option<String>,
}

/// Agents of one process, if nothing else is said: two descriptors each.
const AGENTS_PER_PROCESS: u64 = 4_000;

impl Arguments {
    /// How many processes so many agents are spread over.
    pub(crate) fn processes_for(&self, agents: u64) -> u64 {
        self.processes.unwrap_or(agents.div_ceil(AGENTS_PER_PROCESS)).clamp(1, agents.max(1))
    }

    /// Why Prometheus cannot be measured so.
    pub(crate) fn check_prometheus(&self) -> Result<(), Box<dyn Error>> {
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
