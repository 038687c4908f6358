//! Energy by several sources beside each other, in a line. Pure.

use std::collections::BTreeMap;

use polymeter_proto::units::{self, to_f64};

use crate::model::Report;

#[derive(Default)]
struct Sum {
    joules: f64,
    error_joules: f64,
    nodes: u64,
    is_best: bool,
    delays_s: Vec<f64>,
}

/// Sums over the nodes for each source; none if no node has several sources.
pub fn energy_sources_text(report: &Report) -> Option<String> {
    let mut sums: BTreeMap<(&str, &str), Sum> = BTreeMap::new();
    // Sources of one node with the same name, such as two wattmeters, cannot be told apart in a sum.
    for one in &report.energy_sources {
        let name = match (one.devices.as_slice(), report.nodes.len()) {
            ([device], 1) => device.as_str(),
            _ => one.sensor.as_str(),
        };
        let sum = sums.entry((&one.name, name)).or_default();
        sum.joules += one.joules;
        sum.error_joules += one.error_joules;
        sum.nodes += 1;
        sum.is_best |= one.is_best;
        sum.delays_s.extend(one.delay_s);
    }
    let parts: Vec<String> = sums.iter().map(|((name, of), sum)| sum.text(name, of)).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

impl Sum {
    fn text(&self, name: &str, of: &str) -> String {
        let of = if of.is_empty() { String::new() } else { format!(" ({of})") };
        let joules = units::value("joules", self.joules);
        let error = units::value("joules", self.error_joules);
        let best = if self.is_best { ", best" } else { "" };
        let delay = self.delays_s.iter().sum::<f64>() / to_f64(self.delays_s.len().max(1) as u64);
        let delay = if self.delays_s.is_empty() { String::new() } else { format!(", {delay:+.2} s") };
        format!("{name}{of} {joules} ± {error}{delay}{best}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::EnergyBySource;

    #[test]
    fn sources_stand_beside_each_other_with_error_and_delay() {
        let source = |name: &str, device: &str, is_best, joules, delay_s| EnergyBySource {
            node: "n1".to_owned(),
            name: name.to_owned(),
            devices: vec![device.to_owned()],
            sensor: String::new(),
            part: "node",
            is_best,
            joules,
            error_joules: 300.0,
            period_s: 1.0,
            delay_s,
            delay_error_s: delay_s.map(|_| 0.1),
        };
        let mut report = Report { nodes: vec!["n1".to_owned()], ..Report::default() };
        assert_eq!(energy_sources_text(&report), None);
        report.energy_sources = vec![
            source("power", "meter1", true, 2.9e4, None),
            source("outlet.power", "pdu3", false, 2.8e4, Some(1.4)),
        ];
        assert_eq!(
            energy_sources_text(&report).unwrap(),
            "outlet.power (pdu3) 28.0 kJ ± 300 J, +1.40 s; power (meter1) 29.0 kJ ± 300 J, best"
        );
    }
}
