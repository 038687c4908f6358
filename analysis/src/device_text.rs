//! Measurements of devices outside the nodes, in a line. Pure.

use std::collections::BTreeMap;

use polymeter_proto::units;

use crate::model::{DeviceMeasurement, DeviceQuantity, Report};

/// Sums over the nodes that the job had alone; none if there are none. Each measurement has a part of its
/// own: several of one node are not added up.
pub fn device_text(report: &Report) -> Option<String> {
    let mut sums: BTreeMap<(DeviceQuantity, &str, &str, usize), Sum> = BTreeMap::new();
    // Measurements of one node with the same name, such as those of two wattmeters, are counted apart.
    let mut seen: BTreeMap<(DeviceQuantity, &str, &str, &str), usize> = BTreeMap::new();
    for one in report.devices.iter().filter(|one| !one.is_shared) {
        let number = seen.entry((one.quantity, &one.name, &one.sensor, &one.node)).or_default();
        sums.entry((one.quantity, &one.name, &one.sensor, *number)).or_default().add(one);
        *number += 1;
    }
    let parts: Vec<String> = sums
        .iter()
        .map(|((quantity, name, sensor, _), sum)| {
            let sensor = if sensor.is_empty() { String::new() } else { format!(" ({sensor})") };
            let all = report.nodes.len();
            let on_nodes = if sum.nodes == all as u64 {
                String::new()
            } else {
                format!(" on {} of {}", sum.nodes, units::counted(all, "node"))
            };
            format!("{name}{sensor} {}{on_nodes}", sum.text(*quantity))
        })
        .collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

#[derive(Default)]
struct Sum {
    total: f64,
    watts: f64,
    nodes: u64,
}

impl Sum {
    fn add(&mut self, one: &DeviceMeasurement) {
        self.total += one.joules.or(one.bytes).unwrap_or_default();
        self.watts += one.watts_mean.unwrap_or_default();
        self.nodes += 1;
    }

    fn text(&self, quantity: DeviceQuantity) -> String {
        match quantity {
            DeviceQuantity::Power | DeviceQuantity::Energy => format!(
                "{}, {} on average",
                units::value("joules", self.total),
                units::value("watts", self.watts)
            ),
            DeviceQuantity::ToNode => format!("{} to the nodes", units::value("bytes", self.total)),
            DeviceQuantity::FromNode => format!("{} from the nodes", units::value("bytes", self.total)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(
        node: &str,
        quantity: DeviceQuantity,
        name: &str,
        device: &str,
        total: f64,
    ) -> DeviceMeasurement {
        let is_energy = matches!(quantity, DeviceQuantity::Power | DeviceQuantity::Energy);
        DeviceMeasurement {
            node: node.to_owned(),
            quantity,
            name: name.to_owned(),
            devices: vec![device.to_owned()],
            sensor: String::new(),
            series: 1,
            is_shared: node == "shared",
            joules: is_energy.then_some(total),
            watts_mean: is_energy.then_some(total / 100.0),
            bytes: (!is_energy).then_some(total),
        }
    }

    #[test]
    fn measurements_of_one_node_are_not_added_up() {
        let nodes = ["n1", "n2", "shared"].map(str::to_owned).to_vec();
        let mut report = Report { nodes, ..Report::default() };
        assert_eq!(device_text(&report), None);
        report.devices = vec![
            measured("n1", DeviceQuantity::Power, "outlet.power", "pdu3", 3e4),
            measured("n1", DeviceQuantity::Power, "power", "bmc1", 2.5e4),
            measured("n1", DeviceQuantity::Power, "power", "meter1", 2.9e4),
            measured("n1", DeviceQuantity::FromNode, "port.receive.bytes", "sw2", 1024.0),
            measured("n2", DeviceQuantity::Power, "outlet.power", "pdu3", 1e4),
            measured("shared", DeviceQuantity::Power, "outlet.power", "pdu3", 9e9),
        ];
        assert_eq!(
            device_text(&report).unwrap(),
            "outlet.power 40 kJ, 400 W on average on 2 of 3 nodes; \
             power 25 kJ, 250 W on average on 1 of 3 nodes; \
             power 29 kJ, 290 W on average on 1 of 3 nodes; \
             port.receive.bytes 1 KiB from the nodes on 1 of 3 nodes"
        );
    }
}
