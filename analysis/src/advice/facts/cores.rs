//! Cores of a job and those in use, where a scheduler counts hardware threads as cores. Pure.
//!
//! A core is in use while any of its hardware threads is. Which of them are is not known: `n` busy threads
//! count as `n` cores, and at most as those that the job has on the node. Threads beyond the job's own run on
//! other cores.

use polymeter_proto::units::to_f64;

use crate::model::{NodeReport, Report, Scheduler, SeriesReport};
use crate::resources::{CPU_TIME, first_of, of_metric};

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Cores {
    /// Number on all nodes, if the scheduler reported it.
    pub(super) count: Option<f64>,
    /// Scheduler's units for each core: 1, or more if it counts hardware threads.
    pub(super) cpus_per_core: f64,
    /// Cores of each node, in the order of the report, and their number in the scheduler's units; empty if
    /// they are not known.
    on_nodes: Vec<(f64, f64)>,
    counts_threads: bool,
}

impl Cores {
    pub(crate) fn of(report: &Report, series: &[&SeriesReport]) -> Self {
        let count = report.submission.cores.map(to_f64).filter(|cores| *cores > 0.0);
        let as_counted = Self { count, cpus_per_core: 1.0, ..Self::default() };
        let Some(all) = count.filter(|_| !report.by_node.is_empty()) else { return as_counted };
        let known: Option<Vec<f64>> = report.by_node.iter().map(|node| node.job_cores.map(to_f64)).collect();
        let nodes = to_f64(report.by_node.len() as u64);
        let on_nodes = known
            .filter(|known| (known.iter().sum::<f64>() - all).abs() < 0.5)
            .unwrap_or_else(|| vec![all / nodes; report.by_node.len()]);
        if !counts_threads(report, series, &on_nodes) {
            return Self {
                on_nodes: on_nodes.into_iter().map(|cores| (cores, cores)).collect(),
                ..as_counted
            };
        }
        let nodes = report.by_node.iter().zip(on_nodes);
        let on_nodes: Vec<(f64, f64)> =
            nodes.map(|(node, cpus)| (cpus / threads_per_core(node), cpus)).collect();
        let cores: f64 = on_nodes.iter().map(|(cores, _)| cores).sum();
        Self { count: Some(cores), cpus_per_core: all / cores, on_nodes, counts_threads: true }
    }

    /// Cores of the job on a node, given by its place in the report.
    pub(crate) fn on_node(&self, place: usize) -> Option<f64> {
        self.on_nodes.get(place).map(|(cores, _)| *cores)
    }

    /// Cores in use on a node while `threads` are busy there.
    fn in_use(&self, place: usize, threads: f64) -> f64 {
        let own = self.on_nodes.get(place).filter(|_| self.counts_threads);
        own.map_or(threads, |(cores, cpus)| threads.min(*cores) + (threads - cpus).max(0.0))
    }

    /// CPU time of a node, in which each core counts once.
    pub(crate) fn used_s(&self, place: usize, node: &NodeReport, series: &[&SeriesReport]) -> Option<f64> {
        if !self.counts_threads {
            return node.used.cpu_s;
        }
        let (mut counted, mut all) = (0.0, 0.0);
        let of_node: Vec<&SeriesReport> =
            series.iter().copied().filter(|series| series.node == node.node).collect();
        for series in first_of(&of_node, &CPU_TIME) {
            for interval in series.curve.intervals().iter().filter(|interval| interval.sum.is_finite()) {
                let time_ns = to_f64(interval.weight_ns);
                all += interval.sum;
                counted += self.in_use(place, interval.sum / time_ns) * time_ns;
            }
        }
        let share = if all > 0.0 { counted / all } else { 1.0 };
        node.used.cpu_s.map(|cpu_s| cpu_s * share)
    }

    pub(super) fn peak(&self, place: usize, node: &NodeReport) -> Option<f64> {
        node.used.cores_max.map(|peak| self.in_use(place, peak))
    }
}

/// Mean number of hardware threads of a node's cores; 1 if it is not known.
fn threads_per_core(node: &NodeReport) -> f64 {
    let known = node.cpus.zip(node.cores).filter(|(cpus, cores)| *cores > 0 && cpus > cores);
    known.map_or(1.0, |(cpus, cores)| to_f64(cpus) / to_f64(cores))
}

/// Tells whether the cores of a job, of which it has `on_nodes`, are hardware threads. The CPUs that the job
/// may use tell. Where they are not known, Slurm counts threads, as it does unless it is configured to count
/// cores, and so does who gave more than the cores of a node.
fn counts_threads(report: &Report, series: &[&SeriesReport], on_nodes: &[f64]) -> bool {
    let nodes = || report.by_node.iter().zip(on_nodes.iter().copied());
    if nodes().all(|(node, _)| threads_per_core(node) <= 1.0) {
        return false;
    }
    let allowed = |node: &NodeReport| {
        of_metric(series, "cpu.allowed").find(|series| series.node == node.node).and_then(|series| series.max)
    };
    let is_as = |of_node: fn(&NodeReport, f64) -> f64| {
        nodes().all(|(node, cpus)| {
            allowed(node).is_some_and(|allowed| (allowed - of_node(node, cpus)).abs() < 0.5)
        })
    };
    if is_as(|_, cpus| cpus) {
        return true;
    }
    if is_as(|node, cores| cores * threads_per_core(node)) {
        return false;
    }
    let exceeds =
        |(node, cpus): (&NodeReport, f64)| node.cores.is_some_and(|cores| cpus > to_f64(cores) + 0.5);
    report.likely_scheduler() == Some(Scheduler::Slurm) || nodes().any(exceeds)
}
