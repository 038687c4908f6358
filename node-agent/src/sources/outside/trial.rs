//! What a device offers, for whom has not configured it yet.

use std::path::Path;

use polymeter_proto::catalogue::DeviceValue;
use polymeter_proto::series::Unit;

use super::connection::{DeviceError, Found};
use super::protocols::connect;
use super::settings::{DeviceMetric, DeviceSettings};

/// A metric that a device offers.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    pub metric: DeviceMetric,
    /// Unit that the protocol states.
    pub unit: Unit,
    pub is_counter: bool,
    pub values: Vec<OfferedValue>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct OfferedValue {
    /// Port, outlet or sensor; empty for the only value.
    pub name: String,
    /// None if the device has none now.
    pub value: Option<f64>,
}

/// Asks a device what it offers, and reads each value once. Its metrics are ignored.
///
/// # Errors
///
/// Fails if the device cannot be read.
pub fn offers(device: &DeviceSettings, root: &Path) -> Result<Vec<Offer>, DeviceError> {
    let mut connection = connect(device, root)?;
    let metrics = connection.offers()?;
    let found = connection.find(&metrics)?;
    let mut numbers = vec![None; found.len()];
    if !found.is_empty() {
        let addresses: Vec<&str> = found.iter().map(|found| &*found.address).collect();
        connection.read(&addresses, &mut numbers)?;
    }
    let mut offers: Vec<Offer> = Vec::new();
    for (number, metric) in metrics.into_iter().enumerate() {
        let of_metric = found.iter().zip(&numbers).filter(|(found, _)| found.metric == number);
        let value = |(found, number): (&Found, &Option<super::Number>)| OfferedValue {
            name: found.labels.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(" "),
            value: number.map(|number| number.to_f64() * found.factor),
        };
        let values: Vec<OfferedValue> = of_metric.clone().map(value).collect();
        if let Some((first, _)) = of_metric.into_iter().next() {
            let is_counter = first.of_type != DeviceValue::Gauge;
            offers.push(Offer { metric, unit: first.unit, is_counter, values });
        }
    }
    Ok(offers)
}
