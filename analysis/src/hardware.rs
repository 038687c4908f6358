//! The number of CPUs of a job's nodes, which limits the rate of CPU time.

use std::collections::{BTreeMap, BTreeSet};

use polymeter_store::StoreError;
use polymeter_store::reader::{JobRow, Read, SeriesRow};

use polymeter_proto::units;

/// The CPU time of one CPU in a second, in nanoseconds.
const CPU_NS: f64 = 1e9;

/// The maximum of a rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limit {
    /// The maximum increase per second, in the unit of the counter.
    pub(crate) rate: f64,
    /// True if the hardware sets the limit, and not the number of cores that the scheduler assigned.
    pub(crate) is_hard: bool,
}

/// The known numbers of CPUs of a job's nodes.
#[derive(Debug, Default)]
pub(crate) struct Hardware {
    /// The number by node, and whether it is that of the hardware.
    cpus: BTreeMap<String, (u64, bool)>,
}

impl Hardware {
    /// Determines the numbers: `known`, else the number of per-CPU series of a node, else the job's cores.
    pub(crate) fn gather(
        reader: &mut dyn Read,
        job: &JobRow,
        rows: &[SeriesRow],
        known: Option<usize>,
    ) -> Result<Self, StoreError> {
        let mut cpus = BTreeMap::new();
        for node in &job.nodes {
            let of_node = match known.and_then(|known| u64::try_from(known).ok()) {
                Some(known) => Some(known),
                None => cpus_with_series(rows, node).max(reader.cpus(node)?),
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

    /// Returns the number of CPUs of a node, if it is that of the hardware.
    pub(crate) fn cpus(&self, node: &str) -> Option<u64> {
        self.cpus.get(node).filter(|(_, is_hard)| *is_hard).map(|(count, _)| *count)
    }

    /// Returns the limit for the rates of a series; none for other quantities than CPU time.
    pub(crate) fn limit(&self, row: &SeriesRow) -> Option<Limit> {
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

/// Counts the CPUs for which the job has a series on a node.
fn cpus_with_series(rows: &[SeriesRow], node: &str) -> Option<u64> {
    let of_node = rows.iter().filter(|row| row.node == node && row.metric.ends_with(".per_cpu"));
    let cpus: BTreeSet<&str> = of_node.filter_map(|row| row.labels.get("cpu")).collect();
    (!cpus.is_empty()).then_some(cpus.len() as u64)
}
