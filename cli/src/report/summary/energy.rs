//! Energy of a job in a line. Pure.

use polymeter_analysis::model::{Energy, Report};
use polymeter_proto::units;

use super::figures::on_nodes;

const KWH: f64 = 3.6e6;

/// Text with its origin; none if it is unknown on all nodes.
pub(crate) fn energy(report: &Report) -> Option<String> {
    let Energy { joules, error_joules, watts_mean, carbon_grams, is_estimate, nodes, parts } =
        report.energy.as_ref()?;
    let power =
        watts_mean.map_or_else(String::new, |watts| format!(", {} on average", units::value("watts", watts)));
    let carbon = carbon_grams.map_or_else(String::new, |grams| format!(", {} of CO2", mass(grams)));
    let names: Vec<&str> = parts.iter().map(|part| part.part).map(name).collect();
    let known = on_nodes(*nodes, report);
    let origin = if *is_estimate { "estimated by CPU time on shared nodes" } else { "measured" };
    Some(format!(
        "{} ({:.3} kWh){power}{carbon}; {}{known}, {origin}",
        units::with_error("joules", *joules, *error_joules),
        joules / KWH,
        names.join(" and ")
    ))
}

/// Three figures of a mass in grams.
fn mass(grams: f64) -> String {
    let (value, unit) = match grams {
        1e6.. => (grams / 1e6, "t"),
        1e3.. => (grams / 1e3, "kg"),
        _ => (grams, "g"),
    };
    let decimals = match value {
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {unit}")
}

fn name(part: &str) -> &str {
    match part {
        "node" => "whole nodes",
        "gpus" => "GPUs",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use polymeter_analysis::model::EnergyPart;

    use super::*;

    fn known(is_estimate: bool, nodes: u64, parts: Vec<EnergyPart>) -> Energy {
        let (joules, error_joules, watts_mean, carbon_grams) = (1.8e6, None, Some(500.0), None);
        Energy { joules, error_joules, watts_mean, carbon_grams, is_estimate, nodes, parts }
    }

    #[test]
    fn the_line_states_what_was_measured_and_how() {
        let part = |part, joules| EnergyPart { part, joules };
        let nodes = ["n1", "n2"].map(str::to_owned).to_vec();
        let mut report = Report { nodes, ..Report::default() };
        assert_eq!(energy(&report), None);
        report.energy = Some(known(false, 2, vec![part("node", 1.8e6)]));
        let text = "1.80 MJ (0.500 kWh), 500 W on average; whole nodes, measured";
        assert_eq!(energy(&report).as_deref(), Some(text));
        report.energy.as_mut().unwrap().error_joules = Some(3e4);
        let text = "1.80 ± 0.03 MJ (0.500 kWh), 500 W on average; whole nodes, measured";
        assert_eq!(energy(&report).as_deref(), Some(text));
        report.energy.as_mut().unwrap().carbon_grams = Some(190.4);
        let text = "1.80 ± 0.03 MJ (0.500 kWh), 500 W on average, 190 g of CO2; whole nodes, measured";
        assert_eq!(energy(&report).as_deref(), Some(text));
        let masses = [0.0, 9.994, 12.34, 999.0, 1500.0, 2.5e6].map(mass);
        assert_eq!(masses, ["0.00 g", "9.99 g", "12.3 g", "999 g", "1.50 kg", "2.50 t"]);
        report.energy = Some(known(true, 1, vec![part("memory", 1e6), part("processors", 8e5)]));
        let text = "1.80 MJ (0.500 kWh), 500 W on average; memory and processors on 1 of 2 nodes, estimated by CPU time on shared nodes";
        assert_eq!(energy(&report).as_deref(), Some(text));
    }
}
