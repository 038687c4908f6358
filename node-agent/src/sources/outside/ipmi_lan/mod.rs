//! Management controllers with IPMI over a network: version 2.0, with RMCP+.
//!
//! The few messages that reading needs are written here. The crates of IPMI panic on bytes of a controller
//! (`ipmi-rs` 0.6), accept answers without authentication in a session (`ipmi` 0.1), and have neither records
//! of sensors with all formulas nor cipher suite 17. A process of FreeIPMI for each read opens a session each
//! time, for which a controller takes longer than for the read, and has the password in its arguments or
//! another file. Hashes and ciphers are those of RustCrypto, which `snmp2` has in any case.

mod controller;
mod keys;
mod packet;
mod sensor_record;
mod sensors;

use std::path::Path;
use std::time::Duration;

use polymeter_proto::catalogue::DeviceValue;
use polymeter_proto::name::{MetricName, matches_glob};
use polymeter_proto::series::Unit;

use super::connection::{Connection, DeviceError, Found, Number, VALUES_MAX};
use super::settings::{DeviceMetric, DeviceUrl};
use crate::sources::dcmi::{self, NoPower};
use controller::{Access, Controller};
use packet::Command;
use sensor_record::Sensor;
use sensors::Sensors;

/// Address of the power that the controller states of the whole machine (DCMI).
const POWER: &str = "power";

/// Kinds of sensors: address, unit, and last words of a proposed metric's name.
const QUANTITIES: [(&str, Unit, &str); 7] = [
    ("sensors.power", Unit::Watts, "sensor.power"),
    ("sensors.temperature", Unit::Celsius, "sensor.temperature"),
    ("sensors.fan", Unit::RevolutionsPerMinute, "sensor.fan"),
    ("sensors.voltage", Unit::Volts, "sensor.voltage"),
    ("sensors.current", Unit::Amperes, "sensor.current"),
    ("sensors.percent", Unit::Percent, "sensor.percent"),
    ("sensors.frequency", Unit::Hertz, "sensor.frequency"),
];

#[derive(Debug)]
pub(super) struct IpmiLan {
    controller: Controller,
    sensors: Sensors,
}

/// Quantity of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Address<'a> {
    Power,
    /// Sensors of this unit, of which the names match the glob.
    Sensors(Unit, &'a str),
}

fn parse(text: &str) -> Option<Address<'_>> {
    if text == POWER {
        return Some(Address::Power);
    }
    let (quantity, glob) = text.split_once(':').unwrap_or((text, "*"));
    let unit = QUANTITIES.iter().find(|(name, ..)| *name == quantity)?.1;
    (!glob.is_empty()).then_some(Address::Sensors(unit, glob))
}

/// # Errors
///
/// Fails unless it is `power`, or a kind of sensors, perhaps with `:` and a name or glob behind it.
pub(super) fn check_address(address: &str) -> Result<(), DeviceError> {
    parse(address).map(drop).ok_or(DeviceError::Malformed("an address is no quantity"))
}

impl IpmiLan {
    pub(super) fn new(
        url: &DeviceUrl,
        timeout: Duration,
        credentials: Option<&Path>,
    ) -> Result<Self, DeviceError> {
        let controller = Controller::new(url.clone(), timeout, Access::read(credentials)?);
        Ok(Self { controller, sensors: Sensors::default() })
    }

    fn power(&mut self) -> Result<Result<u16, NoPower>, DeviceError> {
        let (netfn, command) = (dcmi::NETFN, dcmi::COMMAND);
        let answer = self.controller.ask(&Command { netfn, unit: 0, command, data: &dcmi::REQUEST })?;
        Ok(dcmi::power(&answer))
    }

    fn has_power(&mut self) -> Result<bool, DeviceError> {
        Ok(matches!(self.power()?, Ok(_) | Err(NoPower::Later)))
    }
}

impl Connection for IpmiLan {
    fn find(&mut self, metrics: &[DeviceMetric]) -> Result<Vec<Found>, DeviceError> {
        let mut found = Vec::new();
        let is_of_sensors =
            |metric: &DeviceMetric| matches!(parse(&metric.address), Some(Address::Sensors(..)));
        if metrics.iter().any(is_of_sensors) {
            self.sensors.renew(&mut self.controller)?;
        }
        for (metric, settings) in metrics.iter().enumerate() {
            match parse(&settings.address) {
                Some(Address::Power) if self.has_power()? => {
                    found.push(found_value(metric, POWER.to_owned(), None, Unit::Watts));
                }
                Some(Address::Sensors(unit, glob)) => {
                    let selected =
                        |sensor: &&Sensor| sensor.measures == unit && matches_glob(glob, &sensor.name);
                    for (address, sensor) in self.sensors.known.iter().filter(|(_, sensor)| selected(sensor))
                    {
                        let label = Some(("sensor".to_owned(), sensor.name.clone()));
                        found.push(found_value(metric, address.clone(), label, unit));
                    }
                }
                Some(Address::Power) | None => {}
            }
        }
        found.truncate(VALUES_MAX);
        Ok(found)
    }

    fn read(&mut self, wanted: &[&str], numbers: &mut [Option<Number>]) -> Result<(), DeviceError> {
        for (address, number) in wanted.iter().zip(numbers) {
            *number = if *address == POWER {
                self.power()?.ok().map(|watts| Number::Whole(watts.into()))
            } else {
                self.sensors.value(&mut self.controller, address)?.map(Number::Double)
            };
        }
        Ok(())
    }

    fn offers(&mut self) -> Result<Vec<DeviceMetric>, DeviceError> {
        let mut offers = Vec::new();
        if self.has_power()? {
            offers.push((POWER, POWER));
        }
        self.sensors.renew(&mut self.controller)?;
        for (address, unit, metric) in QUANTITIES {
            if self.sensors.known.values().any(|sensor| sensor.measures == unit) {
                offers.push((address, metric));
            }
        }
        let metric = |(address, name): (&str, &'static str)| {
            Some(DeviceMetric::new(MetricName::new(name).ok()?, address.to_owned()))
        };
        Ok(offers.into_iter().filter_map(metric).collect())
    }
}

fn found_value(metric: usize, address: String, label: Option<(String, String)>, unit: Unit) -> Found {
    let labels = label.into_iter().collect();
    Found { metric, address, labels, unit, of_type: DeviceValue::Gauge, factor: 1.0 }
}

pub(in crate::sources) fn check(data: &[u8]) {
    controller::check(data);
    sensor_record::check(data);
}

#[cfg(test)]
mod tests;
