//! Power, energy and traffic of nodes by the devices outside them: wattmeters, outlets, controllers, ports.
//! Pure.

use std::collections::{BTreeMap, BTreeSet};

use polymeter_proto::series::DEVICE_METRICS;
use polymeter_proto::units;
use polymeter_store::reader::{JobNodeRow, SeriesRow};

use crate::cumulative::Cumulative;
use crate::model::{DeviceMeasurement, DeviceQuantity, Report};

/// Labels that do not tell parts of a node apart.
const OF_WHOLE: [&str; 3] = ["device", "node", "unit"];

/// Labels of sensors, which may measure the same power in several places.
const OF_SENSOR: [&str; 2] = ["sensor", "chassis"];

/// Label of the ports of switches.
const PORT: &str = "port";

/// Series of a node that are added up, since each is a part of the same measurement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Source<'a> {
    pub(crate) node: &'a str,
    pub(crate) quantity: DeviceQuantity,
    /// Name of the metric behind that of the device.
    pub(crate) name: &'a str,
    /// Sensor of the device; empty for outlets, ports, and devices that have one value.
    pub(crate) sensor: String,
    pub(crate) rows: Vec<&'a SeriesRow>,
}

impl Source<'_> {
    /// Devices that measure it, sorted.
    pub(crate) fn devices(&self) -> Vec<String> {
        let devices: BTreeSet<&str> = self.rows.iter().filter_map(|row| row.labels.get("device")).collect();
        devices.into_iter().map(str::to_owned).collect()
    }
}

/// Returns the name of a device's metric behind that of the device.
fn value_name(row: &SeriesRow) -> Option<&str> {
    Some(row.metric.strip_prefix(DEVICE_METRICS)?.split_once('.')?.1)
}

/// Returns what a series counts as; none for temperatures, packets and the like.
pub(crate) fn quantity(row: &SeriesRow) -> Option<DeviceQuantity> {
    let words = || value_name(row).unwrap_or_default().split(['.', '_']);
    match (row.unit.as_str(), row.kind.as_str()) {
        ("watts", "gauge") => Some(DeviceQuantity::Power),
        ("joules", "counter") => Some(DeviceQuantity::Energy),
        // A port sees the traffic of its node from the other end.
        ("bytes", "counter") if row.labels.get(PORT).is_some() => {
            if words().any(|word| word == "transmit") {
                Some(DeviceQuantity::ToNode)
            } else {
                words().any(|word| word == "receive").then_some(DeviceQuantity::FromNode)
            }
        }
        _ => None,
    }
}

/// Returns the measurements of the nodes that `rows` are about, sorted by node, quantity and name. Outlets
/// and ports of the same name are added up, also those of several devices: a node has two power supplies on
/// two power distribution units. Values of sensors, and of devices that measure the whole node, stand alone.
pub(crate) fn sources(rows: &[SeriesRow]) -> Vec<Source<'_>> {
    let mut sources: BTreeMap<_, Vec<&SeriesRow>> = BTreeMap::new();
    for row in rows {
        let (Some(quantity), Some(name)) = (quantity(row), value_name(row)) else { continue };
        let others = || row.labels.iter().filter(|(key, _)| !OF_WHOLE.contains(key));
        let sensor: Vec<&str> =
            others().filter(|(key, _)| OF_SENSOR.contains(key)).map(|(_, value)| value).collect();
        let is_part = sensor.is_empty() && others().next().is_some();
        let device = row.labels.get("device").filter(|_| !is_part).unwrap_or_default();
        let key = (row.node.as_str(), quantity, name, device, sensor.join(" "));
        sources.entry(key).or_default().push(row);
    }
    let source = |((node, quantity, name, _, sensor), rows)| Source { node, quantity, name, sensor, rows };
    sources.into_iter().map(source).collect()
}

/// Adds the measurements of the nodes of a job to its report. One of which a part is not known over the time
/// of the job on the node is left out.
pub(crate) fn add_to(
    report: &mut Report,
    nodes: &[JobNodeRow],
    rows: &[SeriesRow],
    counters: &BTreeMap<i64, Cumulative>,
) {
    let (start_ns, end_ns) = report.time_ns();
    let nodes: BTreeMap<&str, &JobNodeRow> = nodes.iter().map(|row| (row.node.as_str(), row)).collect();
    for source in sources(rows) {
        let Some(node) = nodes.get(source.node) else { continue };
        let span_ns =
            node.started_ns.max(start_ns)..node.ended_ns.map_or(end_ns, |ended_ns| ended_ns.min(end_ns));
        let parts = source.rows.iter().map(|row| counters.get(&row.series_id)?.increase(&span_ns));
        let Some(total) = parts.sum::<Option<f64>>() else { continue };
        let seconds = units::seconds_between(span_ns.start, span_ns.end);
        let is_energy = matches!(source.quantity, DeviceQuantity::Power | DeviceQuantity::Energy);
        report.devices.push(DeviceMeasurement {
            node: source.node.to_owned(),
            quantity: source.quantity,
            name: source.name.to_owned(),
            devices: source.devices(),
            sensor: source.sensor,
            series: source.rows.len() as u64,
            is_shared: node.is_shared,
            joules: is_energy.then_some(total),
            watts_mean: (is_energy && seconds > 0.0).then(|| total / seconds),
            bytes: (!is_energy).then_some(total),
        });
    }
}

#[cfg(test)]
mod tests {
    use polymeter_proto::series::Labels;

    use super::*;

    fn row(series_id: i64, metric: &str, unit: &str, kind: &str, labels: &[(&str, &str)]) -> SeriesRow {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        SeriesRow {
            series_id,
            node: "n1".to_owned(),
            metric: format!("device.{metric}"),
            unit: unit.to_owned(),
            kind: kind.to_owned(),
            labels: Labels::new(labels).unwrap(),
        }
    }

    fn found(rows: &[SeriesRow]) -> Vec<(DeviceQuantity, &str, Vec<i64>)> {
        let ids = |source: &Source<'_>| source.rows.iter().map(|row| row.series_id).collect();
        sources(rows).iter().map(|source| (source.quantity, source.name, ids(source))).collect()
    }

    #[test]
    fn outlets_are_added_and_other_measurements_stand_beside_them() {
        let power = |id, metric: &str, labels: &[(&str, &str)]| row(id, metric, "watts", "gauge", labels);
        let rows = [
            power(1, "pdu3.outlet.power", &[("device", "pdu3"), ("node", "n1"), ("outlet", "7")]),
            power(2, "pdu4.outlet.power", &[("device", "pdu4"), ("node", "n1"), ("outlet", "7")]),
            row(
                3,
                "pdu3.outlet.energy",
                "joules",
                "counter",
                &[("device", "pdu3"), ("node", "n1"), ("outlet", "7")],
            ),
            power(4, "meter1.power", &[("device", "meter1"), ("node", "n1")]),
            power(5, "bmc1.power", &[("device", "bmc1"), ("node", "n1"), ("sensor", "System")]),
            power(6, "bmc1.power", &[("device", "bmc1"), ("node", "n1"), ("sensor", "CPU")]),
            row(7, "bmc1.temperature", "celsius", "gauge", &[("device", "bmc1"), ("node", "n1")]),
            power(8, "bmc2.power", &[("device", "bmc2"), ("node", "n1")]),
        ];
        use DeviceQuantity::{Energy, Power};
        let expected = [
            (Power, "outlet.power", vec![1, 2]),
            (Power, "power", vec![6]),
            (Power, "power", vec![5]),
            (Power, "power", vec![8]),
            (Power, "power", vec![4]),
            (Energy, "outlet.energy", vec![3]),
        ];
        assert_eq!(found(&rows), expected);
    }

    #[test]
    fn a_port_transmits_what_the_node_receives() {
        let bytes = |id, metric: &str, labels: &[(&str, &str)]| row(id, metric, "bytes", "counter", labels);
        let port = |port| [("device", "sw2"), ("node", "n1"), ("port", port)];
        let rows = [
            bytes(1, "sw2.port.receive.bytes", &port("12")),
            bytes(2, "sw2.port.transmit.bytes", &port("12")),
            bytes(3, "sw2.port.transmit.bytes", &port("13")),
            bytes(4, "sw2.port.dropped.bytes", &port("12")),
            bytes(5, "n1.network.receive.bytes", &[("device", "n1"), ("node", "n1"), ("interface", "eth0")]),
        ];
        let expected = [
            (DeviceQuantity::ToNode, "port.transmit.bytes", vec![2, 3]),
            (DeviceQuantity::FromNode, "port.receive.bytes", vec![1]),
        ];
        assert_eq!(found(&rows), expected);
    }
}
