//! The contents of a report, and its JSON form.

use polymeter_proto::ledger::Tally;
use polymeter_store::reader::LedgerRow;
use serde::Serialize;

use crate::curve::Curve;
use polymeter_proto::units;

/// The report of a job.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The scheduler's id of the job.
    pub job: String,
    /// Its nodes, sorted.
    pub nodes: Vec<String>,
    /// The name of its owner, or the numeric id.
    pub owner: Option<String>,
    /// Seconds from the start to the end, or to the last sample of a running job.
    pub wall_s: f64,
    /// True if it ended on all nodes.
    pub ended: bool,
    /// The nodes whose agent was lost, so that the end of the job there is unknown.
    pub lost_nodes: Vec<String>,
    /// The final state.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The resource usage.
    pub used: Usage,
    /// The length of the intervals of the rollup from which the series are computed, in seconds; none if they are computed
    /// from samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollup_s: Option<f64>,
    /// The series, in the order of the store.
    pub series: Vec<SeriesReport>,
    /// The sums of the ledger.
    pub ledger: Tally,
    /// Samples taken and lost with frames that the agent dropped.
    pub skipped: u64,
    /// Samples taken and rejected by the collector.
    pub rejected: u64,
    /// Samples taken and quarantined because of their times.
    pub quarantined: u64,
    /// Samples taken whose fate is unknown.
    pub unknown: u64,
    /// The ledger by node and source.
    pub sources: Vec<SourceReport>,
    /// Samples that are stored.
    pub stored: u64,
    /// The losses.
    pub losses: Vec<LossReport>,
    /// The phases that users marked.
    pub phases: Vec<Phase>,
    /// The instants that users marked.
    pub marks: Vec<MarkedInstant>,
    /// The changes of the plan.
    pub plan_changes: Vec<PlanChange>,
    /// The refused requests of the submission.
    pub refused_requests: Vec<RefusedRequest>,
    /// The cost of the measurement, if known.
    pub measuring: Option<MeasuringCost>,
    /// Remarks on the origin of the numbers.
    pub notes: Vec<String>,
}

/// The final state of a job, as far as the scheduler reported it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// The state in the scheduler's terms.
    pub state: Option<String>,
    /// The exit status of its script.
    pub exit_code: Option<i64>,
    /// The signal that ended its script.
    pub exit_signal: Option<i64>,
}

/// The fate of the samples of one source.
#[derive(Debug, Serialize)]
pub struct SourceReport {
    /// The node.
    pub node: String,
    /// The source, if known.
    pub source: String,
    /// The counts of the agent.
    #[serde(flatten)]
    pub tally: Tally,
    /// Samples lost with frames that the agent dropped.
    pub skipped: u64,
    /// Samples that the collector rejected.
    pub rejected: u64,
    /// Samples that are quarantined.
    pub quarantined: u64,
    /// Samples that are stored.
    pub stored: u64,
    /// Samples with an unknown fate.
    pub unknown: u64,
}

impl SourceReport {
    /// The names of its counts, in the order of [`SourceReport::counts`].
    pub const COUNTS: [&'static str; 11] = [
        "due",
        "taken",
        "late",
        "missed",
        "absent",
        "dropped",
        "skipped",
        "rejected",
        "quarantined",
        "stored",
        "unknown",
    ];

    /// Returns its counts: those of the agent, then those of the store.
    pub const fn counts(&self) -> [u64; 11] {
        let Tally { due, taken, late, missed, absent, dropped } = self.tally;
        let Self { skipped, rejected, quarantined, stored, unknown, .. } = *self;
        [due, taken, late, missed, absent, dropped, skipped, rejected, quarantined, stored, unknown]
    }
}

impl From<LedgerRow> for SourceReport {
    fn from(row: LedgerRow) -> Self {
        let LedgerRow { session_id: _, node, source, tally, skipped, rejected, quarantined, stored, unknown } =
            row;
        Self { node, source, tally, skipped, rejected, quarantined, stored, unknown }
    }
}

/// Samples that never reached the store.
#[derive(Debug, Serialize)]
pub struct LossReport {
    /// The node.
    pub node: String,
    /// The source, if known.
    pub source: Option<String>,
    /// The number of samples; 0 for the reason `unknown`: the number of samples that a lost agent took is not
    /// known.
    pub samples: u64,
    /// The reason.
    pub reason: String,
    /// The time of the oldest of them, in seconds since the start of the job.
    pub first_s: f64,
    /// The time of the newest of them, in seconds since the start of the job.
    pub last_s: f64,
}

impl LossReport {
    /// Returns true if it is an interval without any information.
    pub fn is_gap(&self) -> bool {
        self.reason == "unknown"
    }
}

/// The resource usage of a job. Quantities that were not sampled are absent.
#[derive(Debug, Default, Serialize)]
pub struct Usage {
    /// CPU time, in seconds.
    pub cpu_s: Option<f64>,
    /// CPU time in user mode, in seconds.
    pub user_s: Option<f64>,
    /// CPU time in the kernel, in seconds.
    pub system_s: Option<f64>,
    /// The peak of memory, in bytes.
    pub peak_memory_bytes: Option<f64>,
    /// Bytes read.
    pub read_bytes: Option<f64>,
    /// Bytes written.
    pub written_bytes: Option<f64>,
    /// Page faults.
    pub page_faults: Option<f64>,
    /// Page faults that required I/O.
    pub page_faults_major: Option<f64>,
    /// Context switches.
    pub context_switches: Option<f64>,
    /// Moves of a task to another CPU.
    pub cpu_migrations: Option<f64>,
}

/// The exact totals of a command and of the processes it waited for, which the kernel reports at its end.
#[derive(Debug, Clone, Copy)]
pub struct KernelTotals {
    /// CPU time in user mode, in seconds.
    pub user_s: f64,
    /// CPU time in the kernel, in seconds.
    pub system_s: f64,
    /// The peak of memory, in bytes.
    pub peak_memory_bytes: f64,
    /// Page faults.
    pub page_faults: f64,
    /// Page faults that required I/O.
    pub page_faults_major: f64,
    /// Context switches.
    pub context_switches: f64,
}

/// The cost of the measurement itself.
#[derive(Debug, Serialize)]
pub struct MeasuringCost {
    /// CPU time, in seconds.
    pub cpu_s: f64,
    /// Percent of one core over the job's wall time.
    pub core_percent: f64,
}

/// The summary of one series.
#[derive(Debug, Serialize)]
pub struct SeriesReport {
    /// The metric.
    pub metric: String,
    /// The labels, as `key=value,...`.
    pub labels: String,
    /// The node.
    pub node: String,
    /// The unit of the values.
    pub unit: String,
    /// `counter` or `gauge`.
    pub kind: String,
    /// The unit of `min`, `mean` and `max` of a counter; none for a gauge, where it is `unit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_unit: Option<&'static str>,
    /// The minimum length of the windows of a counter's rates, in seconds; none if each lies between two samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_s: Option<f64>,
    /// True if a rate exceeds the capacity of the node's CPUs even over the whole time, and was lowered to it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_clamped: bool,
    /// The number of samples.
    pub samples: u64,
    /// The last period in force.
    pub period: Option<String>,
    /// The minimum of the values of a gauge, or of the rates of a counter in `rate_unit`.
    pub min: Option<f64>,
    /// The mean of the values of a gauge, or of the rates of a counter in `rate_unit`.
    pub mean: Option<f64>,
    /// The maximum of the values of a gauge, or of the rates of a counter in `rate_unit`.
    pub max: Option<f64>,
    /// The total increase of a counter.
    pub growth: Option<f64>,
    /// True if it belongs to a step or a task, whose values are contained in the job's own.
    #[serde(skip)]
    pub is_of_step: bool,
    /// The values of a gauge, or the rates of a counter, over time.
    #[serde(skip)]
    pub curve: Curve,
}

impl SeriesReport {
    /// The metric with its labels; with the node in front if the job has several.
    pub fn name(&self, has_several_nodes: bool) -> String {
        let labels = if self.labels.is_empty() { String::new() } else { format!("{{{}}}", self.labels) };
        let node = if has_several_nodes { format!("{} ", self.node) } else { String::new() };
        format!("{node}{}{labels}", self.metric)
    }

    /// Formats one of its points.
    pub fn point_text(&self, value: Option<f64>) -> String {
        match (value, self.rate_unit) {
            (None, _) => "-".to_owned(),
            (Some(value), Some(rate_unit)) => units::rate_in(rate_unit, value),
            (Some(value), None) => units::value(&self.unit, value),
        }
    }

    /// Returns true if its value changed, or it has too few samples to know.
    pub fn has_changed(&self) -> bool {
        match self.growth {
            Some(growth) => growth != 0.0,
            None => self.min != self.max || self.samples <= 2,
        }
    }
}

/// A phase that a user marked.
#[derive(Debug, PartialEq, Serialize)]
pub struct Phase {
    /// The name.
    pub name: String,
    /// The node.
    pub node: String,
    /// Seconds after the start of the job; none if only the end was marked.
    pub begin_s: Option<f64>,
    /// Seconds after the start of the job; none if only the begin was marked.
    pub end_s: Option<f64>,
    /// The user that requested it, if known.
    pub actor: Option<String>,
}

/// An instant that a user marked.
#[derive(Debug, PartialEq, Serialize)]
pub struct MarkedInstant {
    /// The name.
    pub name: String,
    /// The node.
    pub node: String,
    /// Seconds after the start of the job.
    pub at_s: f64,
    /// The user that requested it, if known.
    pub actor: Option<String>,
}

/// A change of a metric's period.
#[derive(Debug, PartialEq, Serialize)]
pub struct PlanChange {
    /// Seconds after the start of the job.
    pub at_s: f64,
    /// The node.
    pub node: String,
    /// The metric.
    pub metric: String,
    /// The previous period; none if the metric was not sampled.
    pub old: Option<String>,
    /// The new period; none if the metric is no longer sampled.
    pub new: Option<String>,
    /// The layer of the plan, or the event: `baseline`, `registration`, `lease`, `lease_end`, ...
    pub cause: String,
    /// The user that requested it, if known.
    pub actor: Option<String>,
    /// The end of a lease, in seconds after the start of the job.
    pub until_s: Option<f64>,
}

/// A request of the submission that was refused.
#[derive(Debug, PartialEq, Serialize)]
pub struct RefusedRequest {
    /// Seconds after the start of the job.
    pub at_s: f64,
    /// The node.
    pub node: String,
    /// The selector, or the whole request as it was written if it cannot be parsed.
    pub request: String,
    /// The requested period.
    pub period: Option<String>,
    /// The user that requested it, if known.
    pub actor: Option<String>,
    /// The reason.
    pub reason: String,
}

impl Report {
    /// Adds the exact totals of a command. With a cgroup they only fill in quantities that were not sampled,
    /// since they omit processes that were not waited for. Without a cgroup they replace the values of its
    /// sampled processes. If they exceed the counters of the cgroup, the command has left it.
    pub fn add_kernel_totals(&mut self, totals: &KernelTotals, has_cgroup: bool) {
        let total_s = totals.user_s + totals.system_s;
        let has_left = has_cgroup && self.used.cpu_s.is_some_and(|counted_s| exceeds(total_s, counted_s));
        let used = &mut self.used;
        let put = |value: &mut Option<f64>, total: f64| {
            if !has_cgroup || value.is_none() || (has_left && *value < Some(total)) {
                *value = Some(total);
            }
        };
        put(&mut used.user_s, totals.user_s);
        put(&mut used.system_s, totals.system_s);
        put(&mut used.cpu_s, total_s);
        let peak = totals.peak_memory_bytes.max(used.peak_memory_bytes.unwrap_or(0.0));
        put(&mut used.peak_memory_bytes, peak);
        put(&mut used.page_faults, totals.page_faults);
        put(&mut used.page_faults_major, totals.page_faults_major);
        put(&mut used.context_switches, totals.context_switches);
        if !has_cgroup {
            // It is counted in user mode only, in which no migration occurs.
            used.cpu_migrations = None;
        }
        if has_left {
            self.notes.push(
                "the command moved to another cgroup: the totals above are from getrusage(2); the series and the other totals cover only processes in the original cgroup"
                    .to_owned(),
            );
        }
    }

    /// Adds the CPU time that the measurement used.
    pub fn add_measuring_cost(&mut self, cpu_s: f64) {
        let core_percent = if self.wall_s > 0.0 { 100.0 * cpu_s / self.wall_s } else { 0.0 };
        self.measuring = Some(MeasuringCost { cpu_s, core_percent });
    }
}

/// Returns true if the kernel's total of CPU time exceeds that of the cgroup by more than rounding and the time before the command
/// entered the cgroup.
fn exceeds(total_s: f64, counted_s: f64) -> bool {
    const ROUNDING: f64 = 1.05;
    const BEFORE_ENTRY_S: f64 = 0.05;
    total_s > counted_s * ROUNDING + BEFORE_ENTRY_S
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clearly_more_cpu_time_means_that_the_cgroup_was_left() {
        assert!(exceeds(1.2, 1.0) && exceeds(0.1, 0.0));
        assert!(!exceeds(1.04, 1.0) && !exceeds(0.04, 0.0));
    }
}
