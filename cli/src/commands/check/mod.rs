//! `polymeter check`: the state of an agent or a collector as a plugin for Nagios and Icinga reports it.
//!
//! ```text
//! status of an agent, store, pages of a collector -> figures -> verdict -> one line, exit status
//! ```

mod agent_figures;
mod collector;
mod local_agent;
mod range;
mod stored_agent;
mod threshold;
mod verdict;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use polymeter_agent::config::DEFAULT_PATH as AGENT_CONFIG;
use polymeter_client::connection::agent::default_socket;
use polymeter_collector::config::DEFAULT_PATH as COLLECTOR_CONFIG;
use polymeter_proto::period::Period;
use polymeter_store::StoreUrl;

use self::agent_figures::Budgets;
use self::threshold::Thresholds;
use self::verdict::Verdict;
use crate::client::read_source::ReadSource;
use crate::failure::Failure;
use crate::output::terminal;

/// The agent of this node is asked twice, this time apart.
const LOCAL_INTERVAL: Duration = Duration::from_secs(2);

/// Agents are sampled every 10 s by the usual baseline.
const STORED_INTERVAL: Duration = Duration::from_secs(300);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Figures of an agent: age (s of its newest data), loss (samples), late (% of samples), memory (B), cpu (% of one CPU), backlog (B). Figures of a collector: age (s of its newest commit), queue (messages), queue_bytes (B).\n\
    Exit status: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN."
)]
pub(crate) struct CheckArguments {
    /// Check the agent of this node, from any machine, by what the store has of it. Default: the agent of
    /// this machine, over its control socket.
    #[arg(long, value_name = "NODE")]
    node: Option<String>,

    /// Check a collector, by the pages at its `metrics_listen`. Default of the address: that of this
    /// machine's collector.
    #[arg(long, value_name = "HOST:PORT", num_args = 0..=1, conflicts_with = "node")]
    collector: Option<Option<String>>,

    #[command(flatten)]
    thresholds: Thresholds,

    /// The time over which loss, lateness and CPU time are judged. Default: 2s, which the check takes; 5min
    /// with --node.
    #[arg(long, value_name = "PERIOD", conflicts_with = "collector")]
    interval: Option<Period>,

    /// The agent's control socket.
    #[arg(long, value_name = "PATH", default_value_os_t = default_socket(), conflicts_with_all = ["node", "collector"])]
    socket: PathBuf,

    /// With --node: the store. Default: the collector, as for `polymeter report`.
    #[arg(long, value_name = "STORE", requires = "node")]
    store: Option<StoreUrl>,

    /// The configuration of the agent, which has the budgets of CPU time and memory.
    #[arg(long, value_name = "FILE", default_value = AGENT_CONFIG)]
    agent_config: PathBuf,

    /// The configuration of the collector, which has the address of its pages.
    #[arg(long, value_name = "FILE", default_value = COLLECTOR_CONFIG)]
    collector_config: PathBuf,
}

/// A failure is reported as UNKNOWN.
pub(crate) fn execute(arguments: &CheckArguments) -> Result<ExitCode, Failure> {
    let mut verdict = examine(arguments)?;
    if !verdict.figures.is_empty() {
        verdict.apply(&arguments.thresholds)?;
    }
    terminal::print(&(verdict.line() + "\n"))?;
    Ok(verdict.state().exit_code())
}

fn examine(arguments: &CheckArguments) -> Result<Verdict, Failure> {
    if let Some(address) = &arguments.collector {
        let address = collector::address(address.as_deref(), &arguments.collector_config)?;
        return Ok(collector::check(&address));
    }
    let budgets = Budgets::of(&arguments.agent_config);
    let interval = arguments.interval.map(|period| Duration::from_nanos(period.as_nanos()));
    match &arguments.node {
        Some(node) => {
            let source = ReadSource::of(arguments.store.clone());
            stored_agent::check(&source, node, interval.unwrap_or(STORED_INTERVAL), budgets)
        }
        None => local_agent::check(&arguments.socket, interval.unwrap_or(LOCAL_INTERVAL), budgets),
    }
}
