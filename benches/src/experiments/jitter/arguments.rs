//! The arguments of the experiment.

use std::path::PathBuf;

use polymeter_proto::period::Period;

/// Measures the time that the agent, or another tool, takes from a job.
///
/// Needs root, for cgroups, and `cc` with --hanging. The threads, one on each CPU, run in the job that the
/// agent samples. A gap of more than 1 µs between two reads is time that another task or an interrupt took;
/// the steal time of a hypervisor, as the kernel reports it, is subtracted. Each round runs all subjects in
/// a random order. `beyond nothing` is the difference to the run without a tool in the same round. Its
/// ratio to the CPU time of agent and stand-in collector is the time that one second of their CPU time
/// takes from the job: 1 is that second itself, the rest is caches and interrupts. The bare reads show the
/// part that no tool can avoid: interrupts and context switches that are charged to no process.
///
/// --hanging counts the deadlines that the agent keeps at 1 ms while a thread of the job is busy on every
/// CPU: alone, with all sources of the slow lane on a laid-out node, and while a GPU hangs for 10 s; beside
/// a timer without reads and bare reads.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
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
    /// Count the deadlines that the agent keeps at 1 ms on this busy node instead: alone, with call stacks at
    /// 10 ms, with all sources of the slow lane, and while one of these hangs for 10 s of a run.
    #[arg(long)]
    pub(super) hanging: bool,
    /// Period of the sources of the slow lane, with --hanging.
    #[arg(long, default_value = "1s")]
    pub(super) slow_period: Period,
}
