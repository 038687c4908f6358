//! Options of the experiment.

use clap::ValueEnum;
use polymeter_benches::store::Kind;

/// Measures windows, rings and triggers against sampling at the full rate.
///
/// Needs root, for cgroups. `idle-ring` compares agents with and without a ring of the default metrics,
/// whose jobs sleep, in alternation. `windows` has an agent, a collector and a store: samples at 1 ms
/// against windows of a second of the same reads. `bursts` has a job that computes at random times for 50 to
/// 500 ms; a ring has its CPU time at 1 ms, and a trigger keeps what the ring has of a burst. A burst is
/// caught if at least nine tenths of its milliseconds are among the samples that were sent. `oom` has an agent
/// for each node of a job: after an OOM kill that one of them sees, all send the 30 s before it.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// What to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "idle-ring,windows,bursts,oom")]
    pub(super) parts: Vec<Part>,
    /// Seconds of each run; of `bursts` the whole time.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(5..=86_400))]
    pub(super) seconds: u64,
    /// Number of rounds in which the settings alternate.
    #[arg(long, default_value_t = 3)]
    pub(super) rounds: u32,
    /// Number of jobs of `idle-ring`.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub(super) jobs: u32,
    /// Mean number of bursts in an hour.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=3000))]
    pub(super) bursts: u64,
    /// Number of nodes of `oom`: each is an agent.
    #[arg(long, default_value_t = 68, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub(super) nodes: u32,
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Kind of the store [default: the best that is installed].
    #[arg(long, value_enum)]
    pub(super) store: Option<Kind>,
    /// Run one short round, as a functional check.
    #[arg(long)]
    pub(super) quick: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Part {
    IdleRing,
    Windows,
    Bursts,
    Oom,
}
