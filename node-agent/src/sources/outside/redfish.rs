//! Redfish: management controllers of servers and racks.
//!
//! Power and temperatures are in the resources `Power` and `Thermal` of old schemas, or in `EnvironmentMetrics`
//! and `Sensors` of new ones; a controller may have both. The first that has a quantity counts, in this order.

use std::collections::BTreeMap;

use polymeter_proto::catalogue::DeviceValue;
use polymeter_proto::name::MetricName;
use serde_json::Value;

use super::connection::{Connection, DeviceError, Found, Number, VALUES_MAX};
use super::credentials::Credentials;
use super::http::HttpClient;
use super::redfish_readings::{Quantity, Reading, number, readings, sensor_readings};
use super::redfish_session::{Session, path_of, resource};
use super::settings::DeviceMetric;

const CHASSIS_MAX: usize = 64;

/// Sensors of a chassis that are asked one by one, where the controller does not list them with their values.
/// Each answer may take seconds.
const SENSORS_MAX: usize = 64;

/// Query for a collection with its members.
const EXPANDED: &str = "?$expand=.($levels=1)";

/// Resources of a chassis, in the order in which they count.
const RESOURCES: [&str; 3] = ["Power", "Thermal", "EnvironmentMetrics"];

#[derive(Debug)]
pub(super) struct Redfish {
    client: HttpClient,
    /// Path of the service, without `/` at its end.
    root: String,
    session: Session,
}

impl Redfish {
    pub(super) fn new(client: HttpClient, path: &str, credentials: Option<&Credentials>) -> Self {
        Self { client, root: path.trim_end_matches('/').to_owned(), session: Session::new(credentials) }
    }

    fn resource(&mut self, path: &str) -> Result<Value, DeviceError> {
        self.session.begin(&mut self.client, &self.root)?;
        match resource(&mut self.client, path) {
            // The controller has ended the session.
            Err(DeviceError::Refused(_)) if self.session.is_open() => {
                self.session.forget();
                self.session.begin(&mut self.client, &self.root)?;
                resource(&mut self.client, path)
            }
            read => read,
        }
    }

    /// Readings of the wanted quantities of all chassis.
    fn search(&mut self, wanted: &[Quantity]) -> Result<Vec<Reading>, DeviceError> {
        let root = self.root.clone();
        let service = self.resource(&format!("{root}/"))?;
        let expands = ["Levels", "NoLinks"].iter().any(|feature| {
            service.pointer(&format!("/ProtocolFeaturesSupported/ExpandQuery/{feature}"))
                == Some(&Value::Bool(true))
        });
        let chassis = self.resource(&format!("{root}/Chassis"))?;
        let mut found = Vec::new();
        for path in members(&chassis).into_iter().take(CHASSIS_MAX) {
            self.search_chassis(&path, wanted, expands, &mut found)?;
        }
        Ok(found)
    }

    fn search_chassis(
        &mut self,
        path: &str,
        wanted: &[Quantity],
        expands: bool,
        found: &mut Vec<Reading>,
    ) -> Result<(), DeviceError> {
        let chassis = self.resource(path)?;
        let id =
            text(&chassis, "Id").unwrap_or_else(|| path.rsplit('/').next().unwrap_or_default().to_owned());
        let mut left = wanted.to_vec();
        for name in RESOURCES {
            if let Some(path) = link(&chassis, name).filter(|_| !left.is_empty()) {
                let resource = self.resource(&path)?;
                take(readings(&path, &id, &resource), &mut left, found);
            }
        }
        if let Some(path) = link(&chassis, "Sensors").filter(|_| !left.is_empty()) {
            let sensors = self.sensors(&path, &id, expands)?;
            take(sensors, &mut left, found);
        }
        Ok(())
    }

    fn sensors(&mut self, path: &str, chassis: &str, expands: bool) -> Result<Vec<Reading>, DeviceError> {
        let path = if expands { format!("{path}{EXPANDED}") } else { path.to_owned() };
        let collection = self.resource(&path)?;
        let expanded = sensor_readings(&path, chassis, &collection);
        if !expanded.is_empty() {
            return Ok(expanded);
        }
        let mut found = Vec::new();
        for path in members(&collection).into_iter().take(SENSORS_MAX) {
            let sensor = self.resource(&path)?;
            found.extend(readings(&path, chassis, &sensor));
        }
        Ok(found)
    }
}

/// Takes the readings of quantities that are still left, and then leaves those out.
fn take(readings: Vec<Reading>, left: &mut Vec<Quantity>, found: &mut Vec<Reading>) {
    let new: Vec<Reading> = readings.into_iter().filter(|reading| left.contains(&reading.quantity)).collect();
    left.retain(|quantity| new.iter().all(|reading| reading.quantity != *quantity));
    found.extend(new);
}

fn text(resource: &Value, key: &str) -> Option<String> {
    resource.get(key)?.as_str().map(str::to_owned)
}

/// Path of a linked resource of the same service.
fn link(resource: &Value, key: &str) -> Option<String> {
    path_of(resource.get(key)?)
}

fn members(collection: &Value) -> Vec<String> {
    let members = collection.get("Members").and_then(Value::as_array);
    members.into_iter().flatten().filter_map(path_of).collect()
}

impl Connection for Redfish {
    fn find(&mut self, metrics: &[DeviceMetric]) -> Result<Vec<Found>, DeviceError> {
        let quantity = |metric: &DeviceMetric| metric.address.parse::<Quantity>().ok();
        let wanted: Vec<Quantity> = metrics.iter().filter_map(quantity).collect();
        let readings = self.search(&wanted)?;
        let mut found = Vec::new();
        for (number, metric) in metrics.iter().enumerate() {
            let of_metric = readings.iter().filter(|reading| Some(reading.quantity) == quantity(metric));
            found.extend(of_metric.map(|reading| found_reading(number, reading)));
        }
        found.truncate(VALUES_MAX);
        Ok(found)
    }

    fn read(&mut self, wanted: &[&str], numbers: &mut [Option<Number>]) -> Result<(), DeviceError> {
        let mut resources: BTreeMap<&str, Option<Value>> = BTreeMap::new();
        for (address, place) in wanted.iter().zip(numbers) {
            let Some((path, pointer)) = address.split_once('#') else { continue };
            if !resources.contains_key(path) {
                let resource = match self.resource(path) {
                    // A part of the machine was taken out.
                    Err(DeviceError::Status(404)) => None,
                    read => Some(read?),
                };
                resources.insert(path, resource);
            }
            let resource = resources.get(path).and_then(Option::as_ref);
            *place = resource.and_then(|resource| number(resource, pointer)).map(Number::Double);
        }
        Ok(())
    }

    fn end(&mut self) {
        self.session.end(&mut self.client);
    }

    fn offers(&mut self) -> Result<Vec<DeviceMetric>, DeviceError> {
        let readings = self.search(&Quantity::ALL)?;
        let offered = Quantity::ALL
            .into_iter()
            .filter(|quantity| readings.iter().any(|reading| reading.quantity == *quantity));
        let metric = |quantity: Quantity| {
            let name = MetricName::new(quantity.as_str()).ok()?;
            Some(DeviceMetric::new(name, quantity.as_str().to_owned()))
        };
        Ok(offered.filter_map(metric).collect())
    }
}

fn found_reading(metric: usize, reading: &Reading) -> Found {
    let (unit, factor) = reading.quantity.unit();
    let labels = [("chassis", &reading.chassis), ("sensor", &reading.sensor)];
    Found {
        metric,
        address: reading.address.clone(),
        labels: labels.map(|(key, value)| (key.to_owned(), value.clone())).to_vec(),
        unit,
        of_type: if reading.quantity == Quantity::Energy { DeviceValue::Sum } else { DeviceValue::Gauge },
        factor,
    }
}
