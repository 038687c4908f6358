//! Nodes that devices outside the nodes serve.

use super::{Identifier, Labels};

/// Beginning of the names of all metrics of devices outside the nodes.
pub const DEVICE_METRICS: &str = "device.";

/// Label of the node that a device, its outlet or its port serves.
const NODE: &str = "node";

/// Returns the node that a series of the node `sampler` is about if that is another one: of a series of a
/// device, the node that the device, its outlet or its port serves.
pub fn served_node<'a>(sampler: &Identifier, metric: &str, labels: &'a Labels) -> Option<&'a str> {
    let served = metric.starts_with(DEVICE_METRICS).then(|| labels.get(NODE))??;
    (served != sampler.as_str()).then_some(served)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_devices_serve_other_nodes() {
        let sampler = Identifier::try_from("devices1").unwrap();
        let labels = |node: &str| Labels::new(vec![("node".to_owned(), node.to_owned())]).unwrap();
        let served = |metric: &str, labels: &Labels| served_node(&sampler, metric, labels).map(str::to_owned);
        assert_eq!(served("device.pdu3.outlet.power", &labels("node17")).as_deref(), Some("node17"));
        for (metric, labels) in [
            ("device.pdu3.outlet.power", labels("devices1")),
            ("device.pdu3.total.power", Labels::default()),
            ("devices", labels("node17")),
            ("node.network.receive.bytes", labels("node17")),
        ] {
            assert_eq!(served(metric, &labels), None, "{metric}");
        }
    }
}
