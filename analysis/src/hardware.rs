//! Number of CPUs of a job's nodes, which limits the rate of CPU time.

use std::collections::{BTreeMap, BTreeSet};

use polymeter_store::StoreError;
use polymeter_store::reader::{CpusRow, JobRow, Read, SeriesRow, SeriesScope};

use crate::command_totals;
use crate::model::NodeReport;
use polymeter_proto::units;

const CPU_NS: f64 = 1e9;

fn count_of(stored: Option<i64>) -> Option<u64> {
    stored.and_then(|count| u64::try_from(count).ok())
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limit {
    /// Increase per second, in the unit of the counter.
    pub(crate) rate: f64,
    /// True if the hardware sets the limit, and not the number of cores that the scheduler assigned.
    pub(crate) is_hard: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Hardware {
    /// Number by node, and whether it is that of the hardware.
    cpus: BTreeMap<String, (u64, bool)>,
    rows: Vec<CpusRow>,
    nodes: usize,
}

impl Hardware {
    /// Takes `known`, else the number that `polymeter run` stored, else the number of per-CPU series of a
    /// node, else the job's cores.
    pub(crate) fn gather(
        reader: &mut dyn Read,
        job: &JobRow,
        rows: &[SeriesRow],
        known: Option<usize>,
    ) -> Result<Self, StoreError> {
        let known = known.and_then(|known| u64::try_from(known).ok());
        let known = if known.is_none() { of_run(reader, job, rows)? } else { known };
        let of_nodes = reader.cpus(job.job_key)?;
        let counted = if known.is_none() { counted(&of_nodes, rows) } else { BTreeMap::new() };
        let cores = job.cores.filter(|_| job.nodes.len() == 1).and_then(|cores| u64::try_from(cores).ok());
        let mut cpus = BTreeMap::new();
        for node in &job.nodes {
            let of_node = known.or_else(|| counted.get(node.as_str()).copied());
            let found = of_node.map(|count| (count, true)).or(cores.map(|cores| (cores, false)));
            if let Some(found) = found.filter(|(count, _)| *count > 0) {
                cpus.insert(node.clone(), found);
            }
        }
        Ok(Self { cpus, rows: of_nodes, nodes: job.nodes.len() })
    }

    /// CPUs of a node, if the number is that of the hardware.
    pub(crate) fn cpus(&self, node: &str) -> Option<u64> {
        self.cpus.get(node).filter(|(_, is_hard)| *is_hard).map(|(count, _)| *count)
    }

    /// Completes nodes with their cores, and those that the scheduler gave to the job there.
    pub(crate) fn described(&self, mut nodes: Vec<NodeReport>) -> Vec<NodeReport> {
        for node in &mut nodes {
            if let Some(row) = self.rows.iter().find(|row| row.node == node.node) {
                (node.cores, node.job_cores) = (count_of(row.cores), count_of(row.job_cores));
                node.roofs = row.roofs();
            }
        }
        nodes
    }

    /// GPUs that the scheduler gave to the job on all nodes; none if it reported none, or if a node's script
    /// reported nothing.
    pub(crate) fn gpus(&self) -> Option<u64> {
        let is_known =
            self.rows.iter().filter(|row| row.job_cores.is_some() || row.job_gpus.is_some()).count()
                == self.nodes;
        let sum: u64 = self.rows.iter().filter_map(|row| count_of(row.job_gpus)).sum();
        (is_known && sum > 0).then_some(sum)
    }

    /// Limit for the rates of a series; none for other quantities than CPU time.
    pub(crate) fn limit(&self, row: &SeriesRow) -> Option<Limit> {
        if row.unit != "nanoseconds" || row.kind != "counter" || !units::is_cpu_time(&row.metric) {
            return None;
        }
        if row.metric.ends_with(".per_cpu") {
            return Some(Limit { rate: CPU_NS, is_hard: true });
        }
        let (count, is_hard) = self.cpus.get(&row.node)?;
        Some(Limit { rate: units::to_f64(*count) * CPU_NS, is_hard: *is_hard })
    }
}

/// CPUs that `polymeter run` stored at the start of its command.
fn of_run(reader: &mut dyn Read, job: &JobRow, rows: &[SeriesRow]) -> Result<Option<u64>, StoreError> {
    let Some(series) = rows.iter().find(|row| row.metric == command_totals::CPUS) else { return Ok(None) };
    let mut cpus = None;
    reader.samples(SeriesScope::Job(job.job_key), &[series.series_id], &job.sampled_ns, |sample| {
        cpus = Some(units::whole(sample.value));
        Ok::<_, StoreError>(())
    })?;
    Ok(cpus)
}

/// Counts the CPUs of each node by what is known about it, and by the per-CPU series of the job there.
fn counted(of_nodes: &[CpusRow], rows: &[SeriesRow]) -> BTreeMap<String, u64> {
    let mut of_job: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.metric.ends_with(".per_cpu")) {
        if let Some(cpu) = row.labels.get("cpu") {
            of_job.entry(&row.node).or_default().insert(cpu);
        }
    }
    let mut counted: BTreeMap<String, u64> =
        of_job.into_iter().map(|(node, cpus)| (node.to_owned(), cpus.len() as u64)).collect();
    for row in of_nodes {
        let count = counted.entry(row.node.clone()).or_default();
        *count = count_of(row.cpus).unwrap_or_default().max(*count);
    }
    counted
}
