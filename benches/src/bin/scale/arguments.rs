//! The command line.

use std::error::Error;

use clap::Parser;
use polymeter_benches::store::Kind;
use polymeter_proto::period::Period;

use crate::{exporters, prometheus};

/// Measures the number of nodes that collectors support, with mock agents and a real store.
#[derive(Debug, Parser)]
pub(crate) struct Arguments {
    /// Numbers of agents, with one run for each.
    #[arg(long, value_delimiter = ',', default_value = "500,1000,2000,4000,8000,16000")]
    pub(crate) agents: Vec<u64>,
    /// Duration of each run after the first round, in seconds.
    #[arg(long, default_value_t = 60)]
    pub(crate) seconds: u64,
    /// Period with which each agent sends a sample of all its metrics.
    #[arg(long, default_value = "10s")]
    pub(crate) period: Period,
    /// Store; by default the best that is installed.
    #[arg(long, value_enum)]
    pub(crate) store: Option<Kind>,
    /// Number of processes for the agents; by default one per 4000 agents.
    #[arg(long)]
    pub(crate) processes: Option<u64>,
    /// Number of agents that share a connection. A collector keeps 8 sessions per connection.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=8))]
    pub(crate) per_connection: u64,
    /// Number of collectors that share the store. Each takes an equal part of the agents.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=16))]
    pub(crate) collectors: u64,
    /// Rounds that each agent sends before the measurement, without waiting for its phase. ZeroMQ's queues have reached their
    /// full size after 512.
    #[arg(long, default_value_t = 0)]
    pub(crate) warm_up: u64,
    /// Also measure Prometheus with the same number of exporters of the same values: Debian's package, if it is installed.
    #[arg(long)]
    pub(crate) prometheus: bool,
    /// Run a few agents for some seconds, as a functional check.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Run a part of the agents; used internally.
    #[arg(long, hide = true, value_name = "JSON")]
    pub(crate) fleet: Option<String>,
    /// Run a part of the exporters; used internally.
    #[arg(long, hide = true, value_name = "JSON")]
    pub(crate) exporters: Option<String>,
}

/// The default number of agents in a process. Each uses two descriptors.
const AGENTS_PER_PROCESS: u64 = 4_000;

impl Arguments {
    /// Returns the number of processes for this number of agents.
    pub(crate) fn processes_for(&self, agents: u64) -> u64 {
        self.processes.unwrap_or(agents.div_ceil(AGENTS_PER_PROCESS)).clamp(1, agents.max(1))
    }

    /// Returns an error if the collectors cannot share a store of this kind.
    pub(crate) fn check_store(&self, kind: Kind) -> Result<(), Box<dyn Error>> {
        if self.collectors > 1 && kind == Kind::Sqlite {
            return Err("--collectors: an SQLite file has one collector; use --store postgres".into());
        }
        Ok(())
    }

    /// Returns an error if Prometheus cannot be measured with these arguments.
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
