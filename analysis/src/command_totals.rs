//! Figures of a command that `polymeter run` measures itself, as metrics that no source reads. Pure.

use polymeter_proto::series::Unit;

use crate::model::{MemoryKind, Report, SeriesReport};

/// Number of the machine's CPUs, stored at the start.
pub const CPUS: &str = "run.cpus";

/// Metrics that are stored at the end.
const USER: &str = "run.cpu.user";
const SYSTEM: &str = "run.cpu.system";
const PEAK_MEMORY: &str = "run.memory.peak";
const FAULTS: &str = "run.page_faults";
const MAJOR_FAULTS: &str = "run.page_faults.major";
const SWITCHES: &str = "run.context_switches";
const MEASURING: &str = "run.measuring.cpu.time";

/// Exact totals of a command and of the processes it waited for, which the kernel reports at its end, and the
/// cost of its measurement.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CommandTotals {
    pub user_ns: f64,
    pub system_ns: f64,
    /// Largest peak of one process; none where the kernel does not tell it from that of the process before it
    /// executed the command.
    pub peak_memory_bytes: Option<f64>,
    pub page_faults: f64,
    /// Faults that required I/O.
    pub page_faults_major: f64,
    pub context_switches: f64,
    /// CPU time of `polymeter run` itself until the command ended.
    pub measuring_ns: f64,
}

impl CommandTotals {
    /// Values to be stored, by metric.
    pub fn values(&self) -> Vec<(&'static str, Unit, f64)> {
        let Self { peak_memory_bytes, .. } = *self;
        let known = [
            (USER, Unit::Nanoseconds, self.user_ns),
            (SYSTEM, Unit::Nanoseconds, self.system_ns),
            (FAULTS, Unit::Count, self.page_faults),
            (MAJOR_FAULTS, Unit::Count, self.page_faults_major),
            (SWITCHES, Unit::Count, self.context_switches),
            (MEASURING, Unit::Nanoseconds, self.measuring_ns),
        ];
        known.into_iter().chain(peak_memory_bytes.map(|bytes| (PEAK_MEMORY, Unit::Bytes, bytes))).collect()
    }

    /// Removes the metrics of `polymeter run` from the series of a job, and returns the totals; none for
    /// other jobs, and for a run that was killed.
    pub(crate) fn take(series: &mut Vec<SeriesReport>) -> Option<Self> {
        let of_run: Vec<SeriesReport> =
            series.extract_if(.., |series| series.metric.starts_with("run.")).collect();
        let value = |metric| of_run.iter().find(|series| series.metric == metric)?.max;
        Some(Self {
            user_ns: value(USER)?,
            system_ns: value(SYSTEM)?,
            peak_memory_bytes: value(PEAK_MEMORY),
            page_faults: value(FAULTS)?,
            page_faults_major: value(MAJOR_FAULTS)?,
            context_switches: value(SWITCHES)?,
            measuring_ns: value(MEASURING)?,
        })
    }

    /// Puts the totals into a report.
    ///
    /// Counters of a cgroup contain the processes that were not waited for, which the totals lack; the totals
    /// fill in what was not sampled. If they exceed these counters, the command has left its cgroup. Without
    /// a cgroup they replace the values of the sampled processes, unless these had clearly more CPU time:
    /// then some were not waited for.
    pub fn add_to(&self, report: &mut Report) {
        if self.fill(report) {
            report.notes.push(
                "the command moved to another cgroup: the totals above are from wait4(2); the series and the other totals cover only processes in the original cgroup"
                    .to_owned(),
            );
        }
    }

    /// Puts the totals into the report of a command whose samples end before it did.
    pub fn add_unsampled(&self, report: &mut Report) {
        self.fill(report);
    }

    /// Returns true if the totals clearly exceed the counters of the cgroup.
    fn fill(&self, report: &mut Report) -> bool {
        let has_cgroup = report.series.iter().any(|series| is_of_cgroup(&series.metric));
        let (user_s, system_s) = (self.user_ns / 1e9, self.system_ns / 1e9);
        let total_s = user_s + system_s;
        let used = &mut report.used;
        let has_left = has_cgroup && used.cpu_s.is_some_and(|counted_s| exceeds(total_s, counted_s));
        let has_orphans = !has_cgroup && used.cpu_s.is_some_and(|counted_s| exceeds(counted_s, total_s));
        let is_exact = !has_cgroup && !has_orphans;
        let put = |value: &mut Option<f64>, total: f64| {
            if is_exact || value.is_none() || (!has_cgroup || has_left) && *value < Some(total) {
                *value = Some(total);
            }
        };
        put(&mut used.page_faults, self.page_faults);
        put(&mut used.page_faults_major, self.page_faults_major);
        put(&mut used.context_switches, self.context_switches);
        put(&mut used.user_s, user_s);
        put(&mut used.system_s, system_s);
        put(&mut used.cpu_s, total_s);
        if let Some(total) = self.peak_memory_bytes {
            let peak = used.peak_memory_bytes.unwrap_or(0.0);
            put(&mut used.peak_memory_bytes, peak.max(total));
        }
        if !has_cgroup {
            // It is counted in user mode only, in which no migration occurs.
            used.cpu_migrations = None;
        }
        if let [node] = report.by_node.as_mut_slice() {
            node.used.cpu_s = used.cpu_s;
            if !has_cgroup && node.used.memory_bytes < used.peak_memory_bytes {
                node.used.memory_bytes = used.peak_memory_bytes;
                node.used.memory_kind = Some(MemoryKind::Resident);
            }
        }
        report.set_measuring_cost(self.measuring_ns / 1e9);
        has_left
    }
}

/// Only a job with a cgroup has such a metric.
fn is_of_cgroup(metric: &str) -> bool {
    ["cpu.", "memory.", "pids."].iter().any(|prefix| metric.starts_with(prefix))
}

/// Tells whether one CPU time clearly exceeds another one of the same processes: by more than rounding, and
/// than the time before the command entered its cgroup.
fn exceeds(one_s: f64, other_s: f64) -> bool {
    const ROUNDING: f64 = 1.05;
    const BEFORE_ENTRY_S: f64 = 0.05;
    one_s > other_s * ROUNDING + BEFORE_ENTRY_S
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::gauge;

    #[test]
    fn only_clearly_more_cpu_time_means_that_the_cgroup_was_left() {
        assert!(exceeds(1.2, 1.0) && exceeds(0.1, 0.0));
        assert!(!exceeds(1.04, 1.0) && !exceeds(0.04, 0.0));
    }

    fn totals() -> CommandTotals {
        CommandTotals {
            user_ns: 3e9,
            system_ns: 1e9,
            peak_memory_bytes: Some(5e6),
            page_faults: 70.0,
            page_faults_major: 2.0,
            context_switches: 90.0,
            measuring_ns: 6e7,
        }
    }

    fn stored(totals: CommandTotals) -> (Option<CommandTotals>, Vec<String>) {
        let values = totals.values().into_iter();
        let mut series: Vec<SeriesReport> =
            values.map(|(metric, _, value)| gauge(metric, &[value])).collect();
        series.extend([gauge("cpu.usage", &[1.0]), gauge(CPUS, &[2.0])]);
        let taken = CommandTotals::take(&mut series);
        (taken, series.into_iter().map(|series| series.metric).collect::<Vec<_>>())
    }

    #[test]
    fn stored_values_give_the_same_totals() {
        for totals in [totals(), CommandTotals { peak_memory_bytes: None, ..totals() }] {
            assert_eq!(stored(totals), (Some(totals), vec!["cpu.usage".to_owned()]));
        }
        assert_eq!(CommandTotals::take(&mut vec![gauge(CPUS, &[2.0])]), None, "a killed run");
    }

    /// CPU time and faults of a report with one sampled metric and sampled figures.
    fn figures(metric: &str, cpu_s: Option<f64>, faults: Option<f64>) -> (Option<f64>, Option<f64>, usize) {
        let mut report = Report { series: vec![gauge(metric, &[1.0])], ..Report::default() };
        (report.used.cpu_s, report.used.page_faults) = (cpu_s, faults);
        totals().add_to(&mut report);
        (report.used.cpu_s, report.used.page_faults, report.notes.len())
    }

    #[test]
    fn totals_take_the_place_of_what_was_not_counted() {
        // Processes that were not waited for are in the counters of the cgroup only.
        assert_eq!(figures("cpu.usage", Some(9.0), Some(99.0)), (Some(9.0), Some(99.0), 0));
        assert_eq!(figures("cpu.usage", Some(3.99), None), (Some(3.99), Some(70.0), 0));
        // The command left its cgroup.
        assert_eq!(figures("cpu.usage", Some(1.0), Some(99.0)), (Some(4.0), Some(99.0), 1));
        // Without a cgroup, the samples lack what happened behind the last of them.
        assert_eq!(figures("process.cpu.usage", Some(3.5), Some(60.0)), (Some(4.0), Some(70.0), 0));
        assert_eq!(figures("process.cpu.usage", Some(4.01), Some(99.0)), (Some(4.0), Some(70.0), 0));
        assert_eq!(figures("process.cpu.usage", Some(9.0), Some(99.0)), (Some(9.0), Some(99.0), 0));
        assert_eq!(figures("agent.job.cpu.time", None, None), (Some(4.0), Some(70.0), 0));
    }
}
