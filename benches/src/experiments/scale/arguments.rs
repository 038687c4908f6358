//! The command line.

use std::error::Error;

use polymeter_benches::store::Kind;
use polymeter_proto::period::Period;

use super::{exporters, prometheus};

/// Measures collectors and a store under many mock agents.
///
/// Each mock agent has its own session and connection, sends 50 recorded values every period at its own
/// phase, and keeps frames until they are acknowledged. A connection takes a descriptor of the collector
/// and two of a mock process; --per-connection lets up to 8 agents share one. The first round, in which the
/// store creates the series, is measured separately. CPU is in seconds per minute, memory the maximum of
/// the proportional set size. Fails if the numbers of sent and stored samples differ.
///
/// --prometheus measures each number a second time: a Prometheus server with its default settings, but a
/// period of the agents' and the admin API, scrapes as many exporters. Exporter i exposes the values that
/// agent i sends, as uncompressed text with HELP and TYPE, at its own address in 127.64.0.0/10, and keeps
/// its connection open. A series has its name, `instance` and `job` only. The first round ends when `up` is
/// 1 for all exporters, or after 12 periods. The measurement takes as many whole periods as Polymeter's;
/// done are `count_over_time(up)`, answered `sum_over_time(up)`, stored the sum of `count_over_time` of the
/// 50 metrics. Prometheus writes no block in so short a time: `WAL bytes per sample` is the growth of its
/// directory, and at the end it writes a block of all data, whose chunks are what compares with Polymeter's
/// bytes. Samples that Prometheus misses do not fail the experiment.
#[derive(Debug, clap::Args)]
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
    /// Rounds that each agent sends before the measurement, without waiting for its phase. ZeroMQ's queues
    /// have reached their full size after 512.
    #[arg(long, default_value_t = 0)]
    pub(crate) warm_up: u64,
    /// Also measure Prometheus with the same number of exporters of the same values: Debian's package, if it
    /// is installed.
    #[arg(long)]
    pub(crate) prometheus: bool,
    /// Run a few agents for some seconds, as a functional check.
    #[arg(long)]
    pub(crate) quick: bool,
}

/// Default number of agents in a process. Each uses two descriptors.
const AGENTS_PER_PROCESS: u64 = 4_000;

/// Default number of processes.
pub(crate) const fn processes_for(agents: u64) -> u64 {
    agents.div_ceil(AGENTS_PER_PROCESS)
}

impl Arguments {
    pub(crate) fn processes_for(&self, agents: u64) -> u64 {
        self.processes.unwrap_or_else(|| processes_for(agents)).clamp(1, agents.max(1))
    }

    /// Fails if the collectors cannot share a store of this kind.
    pub(crate) fn check_store(&self, kind: Kind) -> Result<(), Box<dyn Error>> {
        if self.collectors > 1 && kind == Kind::Sqlite {
            return Err("--collectors: an SQLite file has one collector; use --store postgres".into());
        }
        Ok(())
    }

    /// Fails if Prometheus cannot be measured with these arguments.
    pub(crate) fn check_prometheus(&self) -> Result<(), Box<dyn Error>> {
        prometheus::require()?;
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
