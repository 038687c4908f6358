//! The arguments of the experiment.

use std::path::PathBuf;

use clap::Parser;
use polymeter_proto::period::Period;

#[derive(Debug, Parser)]
pub(super) struct Arguments {
    /// Seconds of each run.
    #[arg(long, default_value_t = 5)]
    pub(super) seconds: u64,
    /// Number of rounds; each runs every subject once.
    #[arg(long, default_value_t = 10)]
    pub(super) rounds: u32,
    /// Sampling periods of the agent.
    #[arg(long, value_delimiter = ',', default_value = "1s,100ms,10ms,1ms")]
    pub(super) periods: Vec<Period>,
    /// Sample without perf events.
    #[arg(long)]
    pub(super) without_perf: bool,
    /// File with other tools to compare, as `[[tool]]` tables; see experiments/tools.toml.
    #[arg(long, value_name = "FILE")]
    pub(super) tools: Option<PathBuf>,
    /// Seed of the order of the runs.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Run two short rounds at 1 ms, as a functional check.
    #[arg(long)]
    pub(super) quick: bool,
    /// Count the deadlines that the agent keeps at 1 ms on this busy node instead: alone, with all sources of the
    /// slow lane, and while one of these hangs for 10 s of a run.
    #[arg(long)]
    pub(super) hanging: bool,
    /// Period of the sources of the slow lane, with --hanging.
    #[arg(long, default_value = "1s")]
    pub(super) slow_period: Period,
    /// Run the bare reads; used internally.
    #[arg(long, hide = true, value_name = "JSON")]
    pub(super) bare: Option<String>,
    /// Read the clock for some seconds; used internally.
    #[arg(long, hide = true, value_name = "SECONDS")]
    pub(super) measure: Option<u64>,
}
