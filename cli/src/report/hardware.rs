//! The CPUs of a job's nodes, which bound how much CPU time can pass in a second.

use std::collections::{BTreeMap, BTreeSet};

use polymeter_store::StoreError;
use polymeter_store::reader::{JobRow, Reader, SeriesRow};

use super::units;

/// CPU time that a CPU can give in a second, in nanoseconds.
const CPU_NS: f64 = 1e9;

/// The most that a rate can be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Limit {
    /// Per second, in the unit of the counter.
    pub(super) rate: f64,
    /// Whether more is impossible, and not only more than the scheduler gave the job.
    pub(super) is_hard: bool,
}

/// The CPUs of a job's nodes, where they are known.
#[derive(Debug, Default)]
pub(super) struct Hardware {
    /// Of each node, and whether the number is the hardware's.
    cpus: BTreeMap<String, (u64, bool)>,
}

impl Hardware {
    /// Takes the number that is known, else that of the series that each CPU of a node has, else the job's cores.
    pub(super) fn gather(
        reader: &mut Reader,
        job: &JobRow,
        rows: &[SeriesRow],
        known: Option<usize>,
    ) -> Result<Self, StoreError> {
        let mut cpus = BTreeMap::new();
        for node in &job.nodes {
            let of_node = match known.and_then(|known| u64::try_from(known).ok()) {
                Some(known) => Some(known),
                None => cpus_of_job(rows, node).max(reader.cpus(node)?),
            };
            let cores =
                job.cores.filter(|_| job.nodes.len() == 1).and_then(|cores| u64::try_from(cores).ok());
            let found = of_node.map(|count| (count, true)).or(cores.map(|cores| (cores, false)));
            if let Some(found) = found.filter(|(count, _)| *count > 0) {
                cpus.insert(node.clone(), found);
            }
        }
        Ok(Self { cpus })
    }

    /// The most that the rate of a series can be.
    pub(super) fn limit(&self, row: &SeriesRow) -> Option<Limit> {
        if row.unit != "nanoseconds" || !units::is_cpu_time(&row.metric) {
            return None;
        }
        if row.metric.ends_with(".per_cpu") {
            return Some(Limit { rate: CPU_NS, is_hard: true });
        }
        let (count, is_hard) = self.cpus.get(&row.node)?;
        Some(Limit { rate: units::to_f64(*count) * CPU_NS, is_hard: *is_hard })
    }
}

/// The CPUs of which the job has series on a node.
fn cpus_of_job(rows: &[SeriesRow], node: &str) -> Option<u64> {
    let of_node = rows.iter().filter(|row| row.node == node && row.metric.ends_with(".per_cpu"));
    let cpus: BTreeSet<&str> = of_node.filter_map(|row| row.labels.get("cpu")).collect();
    (!cpus.is_empty()).then_some(cpus.len() as u64)
}
