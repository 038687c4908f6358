//! Metrics of devices that send lines: an address is a name, or a glob over names.

use polymeter_proto::catalogue::DeviceValue;
use polymeter_proto::name::{MetricName, matches_glob};
use polymeter_proto::series::Unit;

use super::connection::{Found, VALUES_MAX};
use super::settings::{DeviceMetric, DeviceSettings};

/// Label of the names that a glob matches, if the configuration states no other.
const LABEL: &str = "name";

/// Values of the names that the addresses of the metrics match.
pub(super) fn find_names<'a>(
    metrics: &[DeviceMetric],
    names: impl Iterator<Item = &'a String> + Clone,
) -> Vec<Found> {
    let mut found = Vec::new();
    for (number, metric) in metrics.iter().enumerate() {
        for name in names.clone().filter(|name| matches_glob(&metric.address, name)) {
            let is_glob = *name != metric.address;
            found.push(Found {
                metric: number,
                address: name.clone(),
                labels: is_glob.then(|| (LABEL.to_owned(), name.clone())).into_iter().collect(),
                unit: Unit::Labelled,
                of_type: DeviceValue::Gauge,
                factor: 1.0,
            });
        }
    }
    found.truncate(VALUES_MAX);
    found
}

/// A metric for each name, which has its words.
pub(super) fn offer_names<'a>(names: impl Iterator<Item = &'a String>) -> Vec<DeviceMetric> {
    let metric = |address: &String| {
        let name = MetricName::new(DeviceSettings::word_of(address)).ok()?;
        Some(DeviceMetric::new(name, address.clone()))
    };
    names.filter_map(metric).collect()
}
