//! Tables that many devices have: ports (IF-MIB) and sensors (ENTITY-SENSOR-MIB).

use std::collections::BTreeMap;

use polymeter_proto::catalogue::DeviceValue;
use polymeter_proto::series::Unit;

use super::agent::Agent;
use super::object_id::{InvalidObjectId, ObjectId, index_text};
use super::value;
use crate::sources::outside::connection::{DeviceError, Number};

/// `ifName`.
const PORT_NAMES: &str = "1.3.6.1.2.1.31.1.1.1.1";

/// `entPhysicalDescr` and `entPhysicalName`, the better one last.
const SENSOR_NAMES: [&str; 2] = ["1.3.6.1.2.1.47.1.1.1.1.2", "1.3.6.1.2.1.47.1.1.1.1.7"];

/// `entPhySensorType`, `entPhySensorScale`, `entPhySensorPrecision` and `entPhySensorValue`.
const SENSOR_TYPE: &str = "1.3.6.1.2.1.99.1.1.1.1";
const SENSOR_SCALE: &str = "1.3.6.1.2.1.99.1.1.1.2";
const SENSOR_PRECISION: &str = "1.3.6.1.2.1.99.1.1.1.3";
const SENSOR_VALUE: &str = "1.3.6.1.2.1.99.1.1.1.4";

/// A counter of all ports, by the name that a configuration uses for it.
#[derive(Debug)]
pub(super) struct PortCounter {
    pub(super) name: &'static str,
    /// Column with 64 bits.
    long: &'static str,
    /// Column with 32 bits, of devices that lack the other.
    short: &'static str,
    pub(super) metric: &'static str,
}

pub(super) const PORT_COUNTERS: [PortCounter; 2] = [
    PortCounter {
        name: "ports.receive",
        long: "1.3.6.1.2.1.31.1.1.1.6",
        short: "1.3.6.1.2.1.2.2.1.10",
        metric: "port.receive.bytes",
    },
    PortCounter {
        name: "ports.transmit",
        long: "1.3.6.1.2.1.31.1.1.1.10",
        short: "1.3.6.1.2.1.2.2.1.16",
        metric: "port.transmit.bytes",
    },
];

/// Quantity of sensors, by the name that a configuration uses for it, with the numbers that the MIB has for
/// it.
#[derive(Debug)]
pub(super) struct Quantity {
    pub(super) name: &'static str,
    types: &'static [u64],
    unit: Unit,
    pub(super) metric: &'static str,
}

pub(super) const QUANTITIES: [Quantity; 7] = [
    quantity("sensors.voltage", &[3, 4], Unit::Volts, "sensor.voltage"),
    quantity("sensors.current", &[5], Unit::Amperes, "sensor.current"),
    quantity("sensors.power", &[6], Unit::Watts, "sensor.power"),
    quantity("sensors.frequency", &[7], Unit::Hertz, "sensor.frequency"),
    quantity("sensors.temperature", &[8], Unit::Celsius, "sensor.temperature"),
    quantity("sensors.humidity", &[9], Unit::Percent, "sensor.humidity"),
    quantity("sensors.fan", &[10], Unit::RevolutionsPerMinute, "sensor.fan"),
];

const fn quantity(name: &'static str, types: &'static [u64], unit: Unit, metric: &'static str) -> Quantity {
    Quantity { name, types, unit, metric }
}

/// A value of a table.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) object: ObjectId,
    /// Name of the port or sensor, or the index in the table.
    pub(super) name: String,
    pub(super) unit: Unit,
    pub(super) of_type: DeviceValue,
    pub(super) factor: f64,
}

/// Reads what a column has, with the index of each value as its name.
pub(super) fn column(agent: &mut Agent, column: &ObjectId) -> Result<Vec<Entry>, DeviceError> {
    let mut entries = Vec::new();
    for (object, (_, of_type)) in agent.walk(column, value::number)? {
        let name = object.below(column).map(index_text).unwrap_or_default();
        entries.push(Entry { object, name, unit: Unit::Labelled, of_type, factor: 1.0 });
    }
    Ok(entries)
}

pub(super) fn ports(agent: &mut Agent, counter: &PortCounter) -> Result<Vec<Entry>, DeviceError> {
    let names = names(agent, PORT_NAMES)?;
    for text in [counter.long, counter.short] {
        let mut entries = column(agent, &known(text)?)?;
        for entry in &mut entries {
            entry.unit = Unit::Bytes;
            if let Some(name) = names.get(&entry.name) {
                entry.name.clone_from(name);
            }
        }
        if !entries.is_empty() {
            return Ok(entries);
        }
    }
    Ok(Vec::new())
}

pub(super) fn sensors(agent: &mut Agent, quantity: &Quantity) -> Result<Vec<Entry>, DeviceError> {
    let types = numbers(agent, SENSOR_TYPE)?;
    let wanted = |number: &f64| {
        quantity.types.iter().any(|of_type| polymeter_proto::units::to_f64(*of_type) == *number)
    };
    if !types.values().any(wanted) {
        return Ok(Vec::new());
    }
    let (scales, precisions) = (numbers(agent, SENSOR_SCALE)?, numbers(agent, SENSOR_PRECISION)?);
    let mut all_names = BTreeMap::new();
    for column in SENSOR_NAMES {
        all_names.append(&mut names(agent, column)?);
    }
    let values = known(SENSOR_VALUE)?;
    let mut entries = Vec::new();
    for entry in column(agent, &values)? {
        let index = &entry.name;
        if types.get(index).is_some_and(wanted)
            && let Some(factor) = factor(scales.get(index), precisions.get(index))
        {
            let name = all_names.get(index).unwrap_or(index).clone();
            entries.push(Entry { name, unit: quantity.unit, of_type: DeviceValue::Gauge, factor, ..entry });
        }
    }
    Ok(entries)
}

/// Factor from the number of a sensor to its value in whole units. The numbers of the scales rise by one for
/// each factor of 1000, but for two that the MIB has in the wrong order.
fn factor(scale: Option<&f64>, precision: Option<&f64>) -> Option<f64> {
    const EXPONENTS: [i32; 17] = [-24, -21, -18, -15, -12, -9, -6, -3, 0, 3, 6, 9, 12, 18, 15, 21, 24];
    let exponent = match scale {
        None => 0,
        Some(scale) => {
            let position = (1_u8..).zip(EXPONENTS).find(|(number, _)| f64::from(*number) == *scale);
            position.map(|(_, exponent)| exponent)?
        }
    };
    // A negative precision is the number of significant digits.
    let decimals = (1_i32..=9).find(|decimals| Some(&f64::from(*decimals)) == precision).unwrap_or(0);
    Some(10_f64.powi(exponent - decimals))
}

fn numbers(agent: &mut Agent, text: &str) -> Result<BTreeMap<String, f64>, DeviceError> {
    let column = known(text)?;
    let read =
        agent.walk(&column, |value| value::number(value).map(|(number, _): (Number, _)| number.to_f64()))?;
    Ok(by_index(&column, read))
}

fn names(agent: &mut Agent, text: &str) -> Result<BTreeMap<String, String>, DeviceError> {
    let column = known(text)?;
    let read = agent.walk(&column, value::text)?;
    Ok(by_index(&column, read))
}

fn by_index<T>(column: &ObjectId, read: Vec<(ObjectId, T)>) -> BTreeMap<String, T> {
    let entries = read.into_iter();
    entries.filter_map(|(object, value)| Some((index_text(object.below(column)?), value))).collect()
}

/// Identifier of this file.
pub(super) fn known(text: &str) -> Result<ObjectId, DeviceError> {
    text.parse().map_err(|_invalid: InvalidObjectId| DeviceError::Malformed("an identifier is invalid"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sensors_state_their_scale_and_precision() {
        let of = |scale: f64, precision: f64| factor(Some(&scale), Some(&precision));
        // 2305 with units and one decimal: 230.5 V. 45123 with milli: 45.123 A.
        assert!((2305.0 * of(9.0, 1.0).unwrap() - 230.5).abs() < 1e-9);
        assert!((45_123.0 * of(8.0, 0.0).unwrap() - 45.123).abs() < 1e-9);
        assert_eq!((of(10.0, 0.0), of(9.0, -3.0)), (Some(1000.0), Some(1.0)));
        assert_eq!((of(14.0, 0.0), of(15.0, 0.0)), (Some(1e18), Some(1e15)));
        assert_eq!(
            (of(0.0, 0.0), of(18.0, 0.0), of(9.5, 0.0), factor(None, None)),
            (None, None, None, Some(1.0))
        );
    }

    #[test]
    fn identifiers_are_valid() {
        let counters = PORT_COUNTERS.iter().flat_map(|counter| [counter.long, counter.short]);
        let columns = [PORT_NAMES, SENSOR_TYPE, SENSOR_SCALE, SENSOR_PRECISION, SENSOR_VALUE];
        for text in counters.chain(columns).chain(SENSOR_NAMES) {
            assert!(known(text).is_ok(), "{text}");
        }
    }
}
