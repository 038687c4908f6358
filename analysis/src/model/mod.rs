//! Contents of a report, and its JSON form.

mod derived;
mod devices;
mod distribution;
mod energy;
mod events;
mod finding;
mod kept;
mod parts;
mod regions;
mod roofline;
mod series;
mod stacks;
mod traffic;
mod verdict;

use std::collections::BTreeMap;

use polymeter_proto::ledger::Tally;
use polymeter_proto::run::Run;
use polymeter_proto::units;
use polymeter_store::reader::LedgerRow;
use serde::Serialize;

pub use derived::DerivedReport;
pub use devices::{DeviceMeasurement, DeviceQuantity};
pub use distribution::DistributionReport;
pub(crate) use energy::MeasuredPart;
pub use energy::{CountedEnergy, Energy, EnergyBySource, EnergyPart, NodeEnergy};
pub use events::{FiringReport, LossReport, MarkedInstant, Phase, PlanChange, RefusedRequest};
pub use finding::{Finding, Resource, Scheduler, Severity};
pub use kept::{KeptGrowth, KeptReport};
pub use parts::{MemoryKind, NodeReport, Resources, StepReport, TaskReport};
pub use regions::{RegionReport, RegionSpread};
pub use roofline::{LeftOutNodes, Roof, Roofline, RooflinePart};
pub use series::{PeriodUse, SeriesReport};
pub use stacks::{
    ActivityReport, FunctionImbalance, FunctionReport, FunctionShare, FunctionSpread, StackPart, StackReport,
};
pub use traffic::Traffic;
pub use verdict::Verdict;

#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub schema_version: u32,
    pub job: String,
    /// The store's key of this run.
    pub key: i64,
    #[serde(flatten)]
    pub submission: Submission,
    /// Sorted.
    pub nodes: Vec<String>,
    /// Name of the owner, or the numeric id.
    pub owner: Option<String>,
    pub started_us: i64,
    /// None while the job runs.
    pub ended_us: Option<i64>,
    /// Seconds from the start to the end, or to the last sample of a running job.
    pub wall_s: f64,
    /// True if it ended on all nodes.
    pub ended: bool,
    /// Their agent was lost: the end of the job there is unknown.
    pub lost_nodes: Vec<String>,
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Given by the rules of advice.
    pub verdict: Verdict,
    pub used: Usage,
    /// None if no counter of it was sampled.
    pub energy: Option<Energy>,
    /// Course over time, by node.
    #[serde(skip)]
    pub node_energy: BTreeMap<String, NodeEnergy>,
    /// Parts of `energy`, by node.
    #[serde(skip)]
    pub counted_energy: Vec<CountedEnergy>,
    /// Traffic with networks and file systems, on the nodes that the job had alone; none where no counter of
    /// it was sampled.
    pub traffic: Vec<Traffic>,
    /// Power, energy and traffic of each node by devices outside the nodes.
    pub devices: Vec<DeviceMeasurement>,
    /// Energy of each node by all sources that measure it.
    pub energy_sources: Vec<EnergyBySource>,
    pub findings: Vec<Finding>,
    /// Shortest time of a job from which on a rule would have a finding for which this job is too short; none
    /// if there is no such rule.
    pub advice_from_s: Option<f64>,
    /// Scheduler for whose directives the site asked.
    #[serde(skip)]
    pub scheduler: Option<Scheduler>,
    /// Listed in the order of `nodes`.
    pub by_node: Vec<NodeReport>,
    /// Sorted by name.
    pub steps: Vec<StepReport>,
    /// Sampled ones, sorted by step and name.
    pub tasks: Vec<TaskReport>,
    /// Length of the intervals of the rollup from which the series are computed; none if they are computed
    /// from samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollup_s: Option<f64>,
    /// Listed in the order of the store.
    pub series: Vec<SeriesReport>,
    /// Those of which at least one input was sampled, sorted by name and node.
    pub derived: Vec<DerivedReport>,
    /// Metrics whose windows have histograms, sorted by name.
    pub distributions: Vec<DistributionReport>,
    /// Without the samples of rings.
    pub ledger: Tally,
    /// Intervals that rings kept, in the order of their begin, but the last one explains the job's end best.
    pub kept: Vec<KeptReport>,
    /// Triggers that fired, in the order of their times.
    pub firings: Vec<FiringReport>,
    /// Samples of rings, those that they did not keep included; none without a ring.
    pub ring: Option<RingReport>,
    /// Taken, and lost with frames that the agent dropped.
    pub skipped: u64,
    /// Taken, and rejected by the collector.
    pub rejected: u64,
    /// Taken, and quarantined because of their times.
    pub quarantined: u64,
    /// Taken, with an unknown fate.
    pub unknown: u64,
    /// Ledger by node and source.
    pub sources: Vec<SourceReport>,
    pub stored: u64,
    pub losses: Vec<LossReport>,
    pub phases: Vec<Phase>,
    pub marks: Vec<MarkedInstant>,
    pub plan_changes: Vec<PlanChange>,
    pub refused_requests: Vec<RefusedRequest>,
    /// Functions that took the time, by metric of call stacks; empty without samples.
    pub call_stacks: Vec<StackReport>,
    /// Those with the most time of their own first; empty without instrumented programs.
    pub regions: Vec<RegionReport>,
    pub roofline: Option<Roofline>,
    pub measuring: Option<MeasuringCost>,
    /// First one first; empty if the job ran once.
    pub runs: Vec<RunReport>,
    /// Remarks on the origin of the numbers.
    pub notes: Vec<String>,
}

/// Version of the JSON form of a report. It is raised when a field is removed or changes its meaning; new
/// fields do not raise it.
pub const SCHEMA_VERSION: u32 = 1;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Submission {
    pub name: Option<String>,
    /// Id as the scheduler displays it, such as `4009_1` for a task of an array.
    pub display_id: Option<String>,
    pub cluster: Option<String>,
    /// Account or project that the job is charged to.
    pub account: Option<String>,
    /// Queue or partition.
    pub queue: Option<String>,
    /// Sum over all nodes.
    pub cores: Option<u64>,
    pub gpus: Option<u64>,
    pub time_limit_s: Option<u64>,
    /// Requested on each node.
    pub memory_bytes: Option<u64>,
    /// How often the job was started again.
    pub restarts: Option<u64>,
    /// None unless `polymeter run` started the job.
    pub run: Option<Run>,
    /// Announced the job: `slurm` or `oar`.
    pub scheduler: Option<String>,
}

impl Submission {
    /// Tells whether it is a command of `polymeter run`, whose resources are those of the machine.
    pub const fn is_run(&self) -> bool {
        self.run.is_some()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunReport {
    /// The store's.
    pub key: i64,
    pub started_us: i64,
    /// None while it runs.
    pub ended_us: Option<i64>,
    /// Final, in the scheduler's terms.
    pub state: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// State in the scheduler's terms.
    pub state: Option<String>,
    pub exit_code: Option<i64>,
    pub exit_signal: Option<i64>,
}

impl Outcome {
    /// Slurm reports a job with this state that ran out of memory.
    const OUT_OF_MEMORY: &str = "OUT_OF_MEMORY";

    /// Slurm reports a job with this signal that ran out of memory: its SIG_OOM, 253, without the bit of a
    /// core dump.
    pub const SIGNAL_OUT_OF_MEMORY: i64 = 125;

    /// Tells whether a final state says why the job ended: the exit status and the signal that come with it,
    /// such as 15 with `TIMEOUT`, add nothing.
    pub fn is_cause(state: &str) -> bool {
        let causes = ["BOOT_FAIL", "CANCELLED", "DEADLINE", "NODE_FAIL", "PREEMPTED", "TIMEOUT"];
        state == Self::OUT_OF_MEMORY || causes.contains(&state)
    }

    /// Tells whether only Slurm reports this state or signal.
    fn is_of_slurm(&self) -> bool {
        const STATES: [&str; 4] = ["BOOT_FAIL", "DEADLINE", "NODE_FAIL", "REVOKED"];
        self.is_out_of_memory() || self.state.as_deref().is_some_and(|state| STATES.contains(&state))
    }

    /// Tells whether the scheduler reported that the job ran out of memory.
    pub fn is_out_of_memory(&self) -> bool {
        self.state.as_deref() == Some(Self::OUT_OF_MEMORY)
            || self.exit_signal == Some(Self::SIGNAL_OUT_OF_MEMORY)
    }
}

/// Samples that rings took. Those that nothing wanted are no loss.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RingReport {
    pub taken: u64,
    /// Never read, because the next deadline had passed already.
    pub missed: u64,
    /// Stored, as samples of kept intervals.
    pub kept: u64,
    /// Wanted, and lost on the way to the store.
    pub lost: u64,
    pub not_kept: u64,
    /// Of a running job: in its rings. Of another: lost with a killed agent.
    pub unknown: u64,
}

#[derive(Debug, Serialize)]
pub struct SourceReport {
    pub node: String,
    pub source: String,
    #[serde(flatten)]
    pub tally: Tally,
    /// Lost with frames that the agent dropped.
    pub skipped: u64,
    /// Samples that the collector rejected.
    pub rejected: u64,
    pub quarantined: u64,
    pub stored: u64,
    pub unknown: u64,
}

impl SourceReport {
    /// Listed in the order of [`SourceReport::counts`].
    pub const COUNTS: [&'static str; 12] = [
        "due",
        "taken",
        "late",
        "missed",
        "absent",
        "dropped",
        "not_kept",
        "skipped",
        "rejected",
        "quarantined",
        "stored",
        "unknown",
    ];

    /// Those of the agent, then those of the store.
    pub const fn counts(&self) -> [u64; 12] {
        let Tally { due, taken, late, missed, absent, dropped, not_kept } = self.tally;
        let Self { skipped, rejected, quarantined, stored, unknown, .. } = *self;
        [due, taken, late, missed, absent, dropped, not_kept, skipped, rejected, quarantined, stored, unknown]
    }
}

impl From<LedgerRow> for SourceReport {
    fn from(row: LedgerRow) -> Self {
        let LedgerRow { session_id: _, node, source, tally, skipped, rejected, quarantined, stored, unknown } =
            row;
        Self { node, source, tally, skipped, rejected, quarantined, stored, unknown }
    }
}

/// Quantities that were not sampled are absent.
#[derive(Debug, Default, Serialize)]
pub struct Usage {
    pub cpu_s: Option<f64>,
    pub user_s: Option<f64>,
    pub system_s: Option<f64>,
    pub peak_memory_bytes: Option<f64>,
    pub read_bytes: Option<f64>,
    pub written_bytes: Option<f64>,
    pub page_faults: Option<f64>,
    /// Faults that required I/O.
    pub page_faults_major: Option<f64>,
    pub context_switches: Option<f64>,
    /// Moves of a task to another CPU.
    pub cpu_migrations: Option<f64>,
}

#[derive(Debug, Serialize)]
pub struct MeasuringCost {
    /// Sum over all nodes that report it.
    pub cpu_s: f64,
    /// Percent of one core over the job's wall time, the mean of these nodes; none for a job that is shorter
    /// than [`MeasuringCost::SHARE_FROM_S`], of which the cost of the start would be most.
    pub core_percent: Option<f64>,
    pub nodes: u64,
    pub highest_node: Option<String>,
    /// Percent of one core of that node; none as for `core_percent`.
    pub highest_core_percent: Option<f64>,
}

impl MeasuringCost {
    /// Shortest wall time for which the cost is also stated as a share of a core.
    pub const SHARE_FROM_S: f64 = 1.0;

    /// Takes the CPU time on each node, in seconds, of a job of `wall_s` seconds. None without nodes.
    pub fn of(nodes: &[(&str, f64)], wall_s: f64) -> Option<Self> {
        let (highest_node, highest_s) = nodes.iter().max_by(|one, other| one.1.total_cmp(&other.1))?;
        let cpu_s: f64 = nodes.iter().map(|(_, cpu_s)| cpu_s).sum();
        let count = nodes.len() as u64;
        let percent = |cpu_s: f64| (wall_s >= Self::SHARE_FROM_S).then(|| 100.0 * cpu_s / wall_s);
        Some(Self {
            cpu_s,
            core_percent: percent(cpu_s / units::to_f64(count)),
            nodes: count,
            highest_node: Some((*highest_node).to_owned()),
            highest_core_percent: percent(*highest_s),
        })
    }
}

impl Report {
    /// Seconds by step.
    pub fn step_durations(&self) -> BTreeMap<&str, f64> {
        self.steps.iter().map(|step| (step.step.as_str(), step.duration_s())).collect()
    }

    pub fn no_findings(&self) -> String {
        match self.advice_from_s {
            _ if self.series.is_empty() => "none: no samples".to_owned(),
            Some(from_s) => {
                format!(
                    "none: too short for advice, which needs {} or more",
                    polymeter_proto::units::elapsed(from_s)
                )
            }
            None => "none".to_owned(),
        }
    }

    /// Origin of the figures of used memory on the nodes.
    pub fn memory_kind(&self) -> Option<MemoryKind> {
        self.by_node.iter().find_map(|node| node.used.memory_kind)
    }

    /// Takes the peak for the used memory if the scheduler reported that the job ran out of memory, and its
    /// only node is known to be the one where it did.
    pub(crate) fn count_peak_of_one_node(&mut self) {
        if let [only] = self.by_node.as_mut_slice()
            && self.outcome.is_out_of_memory()
        {
            only.used.count_peak();
        }
    }

    /// Start, and end or last sample, in nanoseconds since the epoch.
    pub fn time_ns(&self) -> (i64, i64) {
        let end_us = self
            .ended_us
            .or_else(|| self.series.iter().map(|series| series.last_us).max())
            .unwrap_or(self.started_us);
        (self.started_us.saturating_mul(1000), end_us.saturating_mul(1000))
    }

    /// Scheduler that announced the job; else Slurm if the job has steps, a number of restarts or a final
    /// state that only Slurm reports.
    pub fn likely_scheduler(&self) -> Option<Scheduler> {
        let named = self.submission.scheduler.as_deref();
        if let Some(scheduler) = Scheduler::ALL.into_iter().find(|one| Some(one.name()) == named) {
            return Some(scheduler);
        }
        let is_of_slurm =
            !self.steps.is_empty() || self.submission.restarts.is_some() || self.outcome.is_of_slurm();
        is_of_slurm.then_some(Scheduler::Slurm)
    }

    pub fn set_measuring_cost(&mut self, cpu_s: f64) {
        let node = self.nodes.first().map_or("", String::as_str);
        self.measuring = MeasuringCost::of(&[(node, cpu_s)], self.wall_s);
    }
}
