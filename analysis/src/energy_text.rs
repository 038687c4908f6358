//! Energy by several sources beside each other, in a line. Pure.

use std::collections::BTreeMap;

use polymeter_proto::units::{self, to_f64};

use crate::model::Report;

#[derive(Default)]
struct Sum {
    joules: f64,
    error_joules: f64,
    nodes: u64,
    best_on: u64,
    delays_s: Vec<f64>,
}

/// Sums over the nodes for each source; none if no node has several sources.
pub fn energy_sources_text(report: &Report) -> Option<String> {
    let mut sums: BTreeMap<(&str, &str, usize), Sum> = BTreeMap::new();
    // Sources of one node with the same name, such as two wattmeters, are counted apart.
    let mut seen: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    for one in &report.energy_sources {
        let of = match (one.devices.as_slice(), report.nodes.len()) {
            ([device], 1) if one.sensor.is_empty() => device.as_str(),
            _ => one.sensor.as_str(),
        };
        let number = seen.entry((&one.name, of, &one.node)).or_default();
        let sum = sums.entry((&one.name, of, *number)).or_default();
        *number += 1;
        sum.joules += one.joules;
        sum.error_joules += one.error_joules;
        sum.nodes += 1;
        sum.best_on += u64::from(one.is_best);
        sum.delays_s.extend(one.delay_s);
    }
    let parts: Vec<String> =
        sums.iter().map(|((name, of, _), sum)| sum.text(name, of, report.nodes.len())).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

impl Sum {
    fn text(&self, name: &str, of: &str, nodes: usize) -> String {
        let of = if of.is_empty() { String::new() } else { format!(" ({of})") };
        let joules = units::with_error("joules", self.joules, Some(self.error_joules));
        let on_nodes = if self.nodes == nodes as u64 {
            String::new()
        } else {
            format!(" on {} of {}", self.nodes, units::counted(nodes, "node"))
        };
        let best = match self.best_on {
            0 => String::new(),
            all if all == self.nodes => ", best".to_owned(),
            some => format!(", best on {some}"),
        };
        let delay_s = self.delays_s.iter().sum::<f64>() / to_f64(self.delays_s.len().max(1) as u64);
        let side = if delay_s < 0.0 { "early" } else { "late" };
        let delay =
            if self.delays_s.is_empty() { String::new() } else { format!(", {:.2} s {side}", delay_s.abs()) };
        format!("{name}{of} {joules}{on_nodes}{delay}{best}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::EnergyBySource;

    fn source(node: &str, name: &str, device: &str, joules: f64) -> EnergyBySource {
        EnergyBySource {
            node: node.to_owned(),
            name: name.to_owned(),
            devices: vec![device.to_owned()],
            sensor: String::new(),
            part: "node",
            is_best: false,
            joules,
            error_joules: 300.0,
            period_s: 1.0,
            delay_s: None,
            delay_error_s: None,
        }
    }

    #[test]
    fn sources_stand_beside_each_other_with_error_and_delay() {
        let mut report = Report { nodes: vec!["n1".to_owned()], ..Report::default() };
        assert_eq!(energy_sources_text(&report), None);
        report.energy_sources = vec![
            EnergyBySource { is_best: true, ..source("n1", "power", "meter1", 2.912e4) },
            EnergyBySource { delay_s: Some(1.4), ..source("n1", "outlet.power", "pdu3", 2.8e4) },
            EnergyBySource { delay_s: Some(-0.25), ..source("n1", "power", "bmc1", 2.7e4) },
        ];
        assert_eq!(
            energy_sources_text(&report).unwrap(),
            "outlet.power (pdu3) 28.0 ± 0.3 kJ, 1.40 s late; power (bmc1) 27.0 ± 0.3 kJ, 0.25 s early; \
             power (meter1) 29.1 ± 0.3 kJ, best"
        );
    }

    #[test]
    fn sources_of_the_same_name_are_added_over_nodes_and_never_on_one() {
        let nodes = ["n1", "n2", "n3"].map(str::to_owned).to_vec();
        let mut report = Report { nodes, ..Report::default() };
        report.energy_sources = vec![
            EnergyBySource { is_best: true, ..source("n1", "power", "bmc1", 1e4) },
            source("n1", "power", "meter1", 2e4),
            source("n2", "power", "bmc2", 3e4),
            EnergyBySource { is_best: true, ..source("n2", "power", "meter2", 4e4) },
            EnergyBySource { is_best: true, ..source("n3", "power", "bmc3", 5e4) },
        ];
        assert_eq!(
            energy_sources_text(&report).unwrap(),
            "power 90.0 ± 0.9 kJ, best on 2; power 60.0 ± 0.6 kJ on 2 of 3 nodes, best on 1"
        );
    }
}
