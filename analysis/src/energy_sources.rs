//! Energy of the nodes of a job by all sources that measure it: devices, the node's own counters, GPUs. Pure.

use std::collections::BTreeMap;

use polymeter_store::reader::{JobNodeRow, SeriesRow};

use crate::cumulative::Cumulative;
use crate::devices::{self, Source};
use crate::energy::{self, NodeCounters};
use crate::model::{DeviceQuantity, EnergyBySource, MeasuredPart, NodeEnergy, Report, SeriesReport};
use crate::reconcile::{Covered, EnergySource, Reconciled, reconcile};

/// Power that a management controller reports inside the node.
const CONTROLLER_POWER: &str = "node.ipmi.power";

/// Part that stands for a whole node.
const NODE: &str = "node";

/// Part of one of several sensors of a device, some of which measure parts of the node.
const UNKNOWN: &str = "unknown";

struct Found {
    name: String,
    devices: Vec<String>,
    sensor: String,
    part: &'static str,
    is_power: bool,
    energy: Cumulative,
}

/// Adds the sources of the nodes that the job had alone, if they have several. Returns the energy of these
/// nodes by the best source of each, without its delay; none for those without a source of the whole node.
pub(crate) fn add_to(
    report: &mut Report,
    nodes: &[JobNodeRow],
    counters: &BTreeMap<String, NodeCounters>,
    (device_rows, by_series): (&[SeriesRow], &BTreeMap<i64, Cumulative>),
) -> BTreeMap<String, NodeEnergy> {
    let (start_ns, end_ns) = report.time_ns();
    let none = NodeCounters::new();
    let (mut by_source, mut energies) = (Vec::new(), BTreeMap::new());
    for node in nodes.iter().filter(|node| !node.is_shared) {
        let series: Vec<&SeriesReport> =
            report.series.iter().filter(|one| !one.is_of_step && one.node == node.node).collect();
        let mut found = of_devices(&node.node, device_rows, by_series);
        let own = energy::sources_of(counters.get(&node.node).unwrap_or(&none), &series);
        found.extend(own.into_iter().map(|(metric, part, energy)| Found {
            name: metric.to_owned(),
            devices: Vec::new(),
            sensor: String::new(),
            part,
            is_power: metric == CONTROLLER_POWER,
            energy,
        }));
        let sources: Vec<EnergySource<'_>> = found.iter().map(Found::source).collect();
        let span_ns =
            node.started_ns.max(start_ns)..node.ended_ns.map_or(end_ns, |ended_ns| ended_ns.min(end_ns));
        let Some(reconciled) = reconcile(&sources, &span_ns) else { continue };
        energies.extend(best(&found, &reconciled).map(|energy| (node.node.clone(), energy)));
        if sources.len() > 1 {
            by_source.extend(reported(&node.node, found, &reconciled));
        }
    }
    report.energy_sources = by_source;
    energies
}

fn best(found: &[Found], reconciled: &Reconciled) -> Option<NodeEnergy> {
    let number = reconciled.best?;
    let later_ns = (*reconciled.sources.get(number)?)?.later_ns;
    let Found { name, energy, .. } = found.get(number)?;
    let (source, energy) = (name.clone(), energy.earlier(later_ns));
    Some(NodeEnergy {
        parts: vec![MeasuredPart { part: NODE, source, energy }],
        is_estimate: false,
        error_joules: Some(reconciled.error_joules),
    })
}

impl Found {
    fn source(&self) -> EnergySource<'_> {
        let covered = match self.part {
            NODE => Covered::Node,
            UNKNOWN => Covered::Unknown,
            _ => Covered::Part,
        };
        EnergySource { energy: &self.energy, covered, is_power: self.is_power }
    }
}

/// Sources of a node by devices; those of which a part is missing are left out.
fn of_devices(node: &str, rows: &[SeriesRow], by_series: &BTreeMap<i64, Cumulative>) -> Vec<Found> {
    let mut found = Vec::new();
    let is_energy =
        |source: &Source<'_>| matches!(source.quantity, DeviceQuantity::Power | DeviceQuantity::Energy);
    let mut sources = devices::sources(rows);
    sources.retain(|source| source.node == node && is_energy(source));
    let key = |source: &Source<'_>| (source.quantity, source.name.to_owned(), source.devices());
    let keys: Vec<_> = sources.iter().map(key).collect();
    for source in sources {
        let is_one_of_several = keys.iter().filter(|other| **other == key(&source)).count() > 1;
        let parts: Option<Vec<Cumulative>> =
            source.rows.iter().map(|row| by_series.get(&row.series_id).cloned()).collect();
        let Some(parts) = parts else { continue };
        found.push(Found {
            name: source.name.to_owned(),
            devices: source.devices(),
            sensor: source.sensor,
            part: if is_one_of_several { UNKNOWN } else { NODE },
            is_power: source.quantity == DeviceQuantity::Power,
            energy: energy::total(&parts),
        });
    }
    found
}

fn reported(node: &str, found: Vec<Found>, reconciled: &Reconciled) -> Vec<EnergyBySource> {
    let numbered = found.into_iter().zip(&reconciled.sources).enumerate();
    let rows = numbered.filter_map(|(number, (found, energy))| {
        let energy = (*energy)?;
        let is_best = reconciled.best == Some(number);
        Some(EnergyBySource {
            node: node.to_owned(),
            name: found.name,
            devices: found.devices,
            sensor: found.sensor,
            part: found.part,
            is_best,
            joules: energy.joules,
            error_joules: if is_best { reconciled.error_joules } else { energy.error_joules },
            period_s: energy.period_s,
            delay_s: energy.delay.map(|delay| delay.seconds),
            delay_error_s: energy.delay.map(|delay| delay.error_s),
        })
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use polymeter_proto::series::Labels;

    use super::*;
    use crate::testing::{START_S, busy, report};

    const S: i64 = 1_000_000_000;

    fn outlet(series_id: i64, node: &str, device: &str) -> SeriesRow {
        let labels = [("device", device), ("node", node), ("outlet", "7")];
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        SeriesRow {
            series_id,
            node: node.to_owned(),
            metric: format!("device.{device}.outlet.power"),
            unit: "watts".to_owned(),
            kind: "gauge".to_owned(),
            labels: Labels::new(labels).unwrap(),
        }
    }

    fn row(node: &str, is_shared: bool) -> JobNodeRow {
        let (started_ns, ended_ns) = (START_S * S, Some((START_S + 3600) * S));
        JobNodeRow { node: node.to_owned(), started_ns, ended_ns, is_shared, clock_offset_us: None }
    }

    fn constant(watts: f64) -> Cumulative {
        Cumulative::of_rate((-60..=3660).map(|second| ((START_S + second) * S, watts)))
    }

    #[test]
    fn two_outlets_of_a_node_are_one_source_beside_the_processors() {
        let mut report = report(60, 8, vec![busy("n1", &[4.0; 60])]);
        let rows = [outlet(1, "n1", "pdu3"), outlet(2, "n1", "pdu4"), outlet(3, "n2", "pdu3")];
        let by_series = BTreeMap::from([(1, constant(120.0)), (2, constant(130.0)), (3, constant(999.0))]);
        let package = NodeCounters::from([("node.energy.package".to_owned(), vec![constant(180.0)])]);
        let counters = BTreeMap::from([("n1".to_owned(), package.clone()), ("n2".to_owned(), package)]);
        add_to(&mut report, &[row("n1", false), row("n2", true)], &counters, (&rows, &by_series));
        let found: Vec<_> = report
            .energy_sources
            .iter()
            .map(|one| (one.node.as_str(), one.name.as_str(), one.part, one.is_best, one.joules.round()))
            .collect();
        let expected = [
            ("n1", "outlet.power", "node", true, 250.0 * 3600.0),
            ("n1", "node.energy.package", "processors", false, 180.0 * 3600.0),
        ];
        assert_eq!(found, expected, "n2 is shared");
        assert_eq!(report.energy_sources[0].devices, ["pdu3", "pdu4"]);
        add_to(&mut report, &[row("n1", false)], &BTreeMap::new(), (&rows[..1], &by_series));
        assert_eq!(report.energy_sources, [], "one source has nothing beside it");
        let by_best = add_to(&mut report, &[row("n1", false)], &counters, (&rows[..1], &by_series));
        assert!(by_best.is_empty(), "one of two outlets has less than the processors");
        let is_best: Vec<bool> = report.energy_sources.iter().map(|one| one.is_best).collect();
        assert_eq!(is_best, [false, false]);
    }
}
