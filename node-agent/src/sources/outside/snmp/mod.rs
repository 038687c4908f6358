//! Devices with SNMP, version 2c or 3.
//!
//! The library `snmp2` decodes answers and has the cryptography of version 3. Its sessions are not used: they
//! have two buffers of 64 KiB each, on the stack of each device's thread.

mod access;
mod agent;
mod message;
mod object_id;
mod tables;
mod value;

use std::path::Path;
use std::time::Duration;

use polymeter_proto::catalogue::DeviceValue;
use polymeter_proto::name::MetricName;
use polymeter_proto::series::Unit;

use super::connection::{Connection, DeviceError, Found, Number, VALUES_MAX};
use super::settings::{DeviceMetric, DeviceUrl};
use agent::Agent;
use object_id::ObjectId;
use tables::{Entry, PORT_COUNTERS, QUANTITIES};

/// How an address ends that is a column of a table.
const COLUMN: &str = ".*";

/// `sysUpTime.0`, which every agent has.
const UPTIME: &str = "1.3.6.1.2.1.1.3.0";

#[derive(Debug)]
pub(super) struct Snmp {
    agent: Agent,
}

impl Snmp {
    pub(super) fn new(
        url: &DeviceUrl,
        timeout: Duration,
        credentials: Option<&Path>,
    ) -> Result<Self, DeviceError> {
        Ok(Self { agent: Agent::new(url, timeout, credentials)? })
    }

    /// Entries of an address, and the label that tells them apart.
    fn entries(&mut self, address: &str) -> Result<(Vec<Entry>, Option<&'static str>), DeviceError> {
        if let Some(counter) = PORT_COUNTERS.iter().find(|counter| counter.name == address) {
            return Ok((tables::ports(&mut self.agent, counter)?, Some("port")));
        }
        if let Some(quantity) = QUANTITIES.iter().find(|quantity| quantity.name == address) {
            return Ok((tables::sensors(&mut self.agent, quantity)?, Some("sensor")));
        }
        if let Some(column) = address.strip_suffix(COLUMN) {
            return Ok((tables::column(&mut self.agent, &tables::known(column)?)?, Some("index")));
        }
        let objects = [tables::known(address)?];
        let read = self.agent.get(&objects, value::number)?;
        let entry = |(object, (_, of_type)): (ObjectId, (Number, DeviceValue))| Entry {
            object,
            name: String::new(),
            unit: Unit::Labelled,
            of_type,
            factor: 1.0,
        };
        Ok((read.into_iter().map(entry).collect(), None))
    }
}

/// # Errors
///
/// Fails unless it is the name of a table, an object identifier, or one with `.*` behind it.
pub(super) fn check_address(address: &str) -> Result<(), DeviceError> {
    let is_table = PORT_COUNTERS.iter().any(|counter| counter.name == address)
        || QUANTITIES.iter().any(|quantity| quantity.name == address);
    if is_table { Ok(()) } else { tables::known(address.strip_suffix(COLUMN).unwrap_or(address)).map(drop) }
}

impl Connection for Snmp {
    fn find(&mut self, metrics: &[DeviceMetric]) -> Result<Vec<Found>, DeviceError> {
        let mut found = Vec::new();
        for (metric, settings) in metrics.iter().enumerate() {
            let (entries, label) = self.entries(&settings.address)?;
            for Entry { object, name, unit, of_type, factor } in entries {
                let labels = label.map(|label| (label.to_owned(), name)).into_iter().collect();
                found.push(Found { metric, address: object.to_string(), labels, unit, of_type, factor });
            }
            if found.len() >= VALUES_MAX {
                break;
            }
        }
        found.truncate(VALUES_MAX);
        Ok(found)
    }

    fn read(&mut self, wanted: &[&str], numbers: &mut [Option<Number>]) -> Result<(), DeviceError> {
        let objects: Vec<ObjectId> =
            wanted.iter().map(|address| tables::known(address)).collect::<Result<_, _>>()?;
        let mut read = self.agent.get(&objects, value::number)?;
        read.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (object, number) in objects.iter().zip(numbers) {
            let position = read.binary_search_by(|(known, _)| known.cmp(object)).ok();
            *number = position.and_then(|position| read.get(position)).map(|(_, (number, _))| *number);
        }
        Ok(())
    }

    fn offers(&mut self) -> Result<Vec<DeviceMetric>, DeviceError> {
        self.agent.get(&[tables::known(UPTIME)?], value::number)?;
        let ports = PORT_COUNTERS.iter().map(|counter| (counter.name, counter.metric));
        let sensors = QUANTITIES.iter().map(|quantity| (quantity.name, quantity.metric));
        let mut offers = Vec::new();
        for (address, metric) in ports.chain(sensors) {
            if !self.entries(address)?.0.is_empty()
                && let Ok(name) = MetricName::new(metric)
            {
                offers.push(DeviceMetric::new(name, address.to_owned()));
            }
        }
        Ok(offers)
    }
}

pub(in crate::sources) fn check(data: &[u8]) {
    agent::check(data);
    object_id::check(data);
}

#[cfg(test)]
mod tests;
