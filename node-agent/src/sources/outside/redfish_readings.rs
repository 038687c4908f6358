//! Readings in the resources of Redfish. Pure.

use std::str::FromStr;

use polymeter_proto::series::Unit;
use serde_json::Value;

/// What a metric of a controller measures: its address in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantity {
    /// Power of a chassis, by its controller.
    Power,
    SupplyPower,
    Energy,
    Temperature,
    /// Speed of a fan.
    Fan,
    FanPercent,
    Voltage,
    Current,
}

impl Quantity {
    pub(super) const ALL: [Self; 8] = [
        Self::Power,
        Self::SupplyPower,
        Self::Energy,
        Self::Temperature,
        Self::Fan,
        Self::FanPercent,
        Self::Voltage,
        Self::Current,
    ];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Power => "power",
            Self::SupplyPower => "supply_power",
            Self::Energy => "energy",
            Self::Temperature => "temperature",
            Self::Fan => "fan",
            Self::FanPercent => "fan_percent",
            Self::Voltage => "voltage",
            Self::Current => "current",
        }
    }

    /// Unit, and the factor from the number of the resource.
    pub(super) const fn unit(self) -> (Unit, f64) {
        match self {
            Self::Power | Self::SupplyPower => (Unit::Watts, 1.0),
            // From kilowatt-hours.
            Self::Energy => (Unit::Joules, 3.6e6),
            Self::Temperature => (Unit::Celsius, 1.0),
            Self::Fan => (Unit::RevolutionsPerMinute, 1.0),
            Self::FanPercent => (Unit::Percent, 1.0),
            Self::Voltage => (Unit::Volts, 1.0),
            Self::Current => (Unit::Amperes, 1.0),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected one of {known}, found `{0}`", known = Quantity::ALL.map(Quantity::as_str).join(", "))]
pub struct InvalidQuantity(String);

impl FromStr for Quantity {
    type Err = InvalidQuantity;

    fn from_str(text: &str) -> Result<Self, InvalidQuantity> {
        let found = Self::ALL.into_iter().find(|quantity| quantity.as_str() == text);
        found.ok_or_else(|| InvalidQuantity(text.to_owned()))
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reading {
    pub(super) quantity: Quantity,
    /// PATH#POINTER, see [`number`].
    pub(super) address: String,
    pub(super) chassis: String,
    /// Name within the chassis. May be empty.
    pub(super) sensor: String,
}

/// Numbers of the elements of an array.
const ELEMENTS: [(&str, &str, Quantity); 6] = [
    ("PowerControl", "PowerConsumedWatts", Quantity::Power),
    ("PowerSupplies", "PowerInputWatts", Quantity::SupplyPower),
    ("PowerSupplies", "LastPowerOutputWatts", Quantity::SupplyPower),
    ("Voltages", "ReadingVolts", Quantity::Voltage),
    ("Temperatures", "ReadingCelsius", Quantity::Temperature),
    ("Fans", "Reading", Quantity::Fan),
];

/// Numbers of the resource `EnvironmentMetrics`, each the `Reading` of an object.
const EXCERPTS: [(&str, Quantity); 3] = [
    ("PowerWatts", Quantity::Power),
    ("EnergykWh", Quantity::Energy),
    ("TemperatureCelsius", Quantity::Temperature),
];

/// Elements of one array that are looked at.
const ELEMENTS_MAX: usize = 1024;

/// All readings of a resource: `Power`, `Thermal`, `EnvironmentMetrics` or a sensor.
pub(super) fn readings(path: &str, chassis: &str, resource: &Value) -> Vec<Reading> {
    let mut found = Vec::new();
    for (array, field, quantity) in ELEMENTS {
        for element in elements(resource, array) {
            let Some(id) = id(element).filter(|_| has_number(element, field)) else { continue };
            let is_percent = quantity == Quantity::Fan
                && element.get("ReadingUnits").and_then(Value::as_str) == Some("Percent");
            let quantity = if is_percent { Quantity::FanPercent } else { quantity };
            let sensor = name(element).unwrap_or(id).to_owned();
            let is_known = |known: &Reading| known.quantity == quantity && known.sensor == sensor;
            // The second field of a power supply stands in for the first.
            if !found.iter().any(is_known) {
                let address = format!("{path}#/{array}/{}/{field}", escaped(id));
                found.push(Reading { quantity, address, chassis: chassis.to_owned(), sensor });
            }
        }
    }
    for (object, quantity) in EXCERPTS {
        if resource.get(object).is_some_and(|excerpt| has_number(excerpt, "Reading")) {
            let address = format!("{path}#/{object}/Reading");
            found.push(Reading { quantity, address, chassis: chassis.to_owned(), sensor: String::new() });
        }
    }
    if let Some(quantity) = quantity_of_sensor(resource) {
        let sensor = name(resource).unwrap_or_default().to_owned();
        let address = format!("{path}#/Reading");
        found.push(Reading { quantity, address, chassis: chassis.to_owned(), sensor });
    }
    found
}

/// Readings of a collection of sensors that has its members and not only their paths.
pub(super) fn sensor_readings(path: &str, chassis: &str, collection: &Value) -> Vec<Reading> {
    let mut found = Vec::new();
    for member in elements(collection, "Members") {
        let (Some(quantity), Some(id)) = (quantity_of_sensor(member), id(member)) else { continue };
        let sensor = name(member).unwrap_or(id).to_owned();
        let address = format!("{path}#/Members/{}/Reading", escaped(id));
        found.push(Reading { quantity, address, chassis: chassis.to_owned(), sensor });
    }
    found
}

fn quantity_of_sensor(sensor: &Value) -> Option<Quantity> {
    let units = sensor.get("ReadingUnits")?.as_str().filter(|_| has_number(sensor, "Reading"))?;
    Some(match units {
        "W" => Quantity::Power,
        "kW.h" => Quantity::Energy,
        "Cel" => Quantity::Temperature,
        "RPM" | "{rev}/min" => Quantity::Fan,
        "V" => Quantity::Voltage,
        "A" => Quantity::Current,
        _ => return None,
    })
}

fn elements<'a>(resource: &'a Value, array: &str) -> impl Iterator<Item = &'a Value> {
    resource.get(array).and_then(Value::as_array).into_iter().flatten().take(ELEMENTS_MAX)
}

/// True if the resource has the value, although it may be unknown now.
fn has_number(object: &Value, field: &str) -> bool {
    let is_absent = object.pointer("/Status/State").and_then(Value::as_str) == Some("Absent");
    !is_absent && object.get(field).is_some_and(|value| value.is_number() || value.is_null())
}

/// What tells an element of an array from the others. Its position may change.
fn id(element: &Value) -> Option<&str> {
    ["MemberId", "Id", "Name"].iter().find_map(|key| element.get(*key)?.as_str()).filter(|id| !id.is_empty())
}

fn name(element: &Value) -> Option<&str> {
    element.get("Name")?.as_str()
}

/// One word of a pointer, as in RFC 6901.
fn escaped(word: &str) -> String {
    word.replace('~', "~0").replace('/', "~1")
}

/// Number at a pointer of RFC 6901, with one difference: an element of an array is named by its id.
pub(super) fn number(resource: &Value, pointer: &str) -> Option<f64> {
    let mut value = resource;
    for word in pointer.strip_prefix('/')?.split('/') {
        let word = word.replace("~1", "/").replace("~0", "~");
        value = match value {
            Value::Array(elements) => elements.iter().find(|element| id(element) == Some(&*word))?,
            Value::Object(object) => object.get(&word)?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
        };
    }
    value.as_f64()
}

/// Any JSON gives readings whose addresses lead to numbers, or to nulls.
pub(in crate::sources) fn check(data: &[u8]) {
    let Ok(resource) = serde_json::from_slice::<Value>(data) else { return };
    let mut found = readings("/p", "c", &resource);
    found.extend(sensor_readings("/p", "c", &resource));
    for reading in found {
        let pointer = reading.address.strip_prefix("/p#").unwrap_or_default();
        assert!(pointer.starts_with('/'), "{reading:?}");
        number(&resource, pointer);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(resource: &Value) -> Vec<(Quantity, String, Option<f64>)> {
        let found = readings("/p", "1", resource).into_iter();
        found
            .map(|reading| {
                let value = number(resource, reading.address.strip_prefix("/p#").unwrap());
                (reading.quantity, reading.sensor, value)
            })
            .collect()
    }

    #[test]
    fn old_resources_have_arrays() {
        let power = json!({
            "PowerControl": [{"MemberId": "0", "Name": "System Power Control", "PowerConsumedWatts": 344}],
            "PowerSupplies": [
                {"MemberId": "a/b", "Name": "PSU 1", "PowerInputWatts": null, "LastPowerOutputWatts": 170.5},
                {"MemberId": "1", "Name": "PSU 2", "LastPowerOutputWatts": 174, "Status": {"State": "Absent"}},
            ],
            "Voltages": [{"Name": "12V", "ReadingVolts": 12.1}, {"ReadingVolts": 3}, "text"],
        });
        assert_eq!(
            of(&power),
            [
                (Quantity::Power, "System Power Control".to_owned(), Some(344.0)),
                (Quantity::SupplyPower, "PSU 1".to_owned(), None),
                (Quantity::Voltage, "12V".to_owned(), Some(12.1)),
            ]
        );
        let thermal = json!({
            "Temperatures": [{"MemberId": "0", "Name": "CPU", "ReadingCelsius": 41}],
            "Fans": [
                {"MemberId": "0", "Name": "Fan 1", "Reading": 2100, "ReadingUnits": "RPM"},
                {"MemberId": "1", "Name": "Fan 2", "Reading": 35, "ReadingUnits": "Percent"},
            ],
        });
        assert_eq!(
            of(&thermal),
            [
                (Quantity::Temperature, "CPU".to_owned(), Some(41.0)),
                (Quantity::Fan, "Fan 1".to_owned(), Some(2100.0)),
                (Quantity::FanPercent, "Fan 2".to_owned(), Some(35.0)),
            ]
        );
    }

    #[test]
    fn new_resources_have_excerpts_and_sensors() {
        let metrics =
            json!({"PowerWatts": {"DataSourceUri": "/x", "Reading": 374}, "EnergykWh": {"Reading": 2.5}});
        assert_eq!(
            of(&metrics),
            [(Quantity::Power, String::new(), Some(374.0)), (Quantity::Energy, String::new(), Some(2.5)),]
        );
        let sensor = json!({"Id": "CPU1", "Name": "CPU #1", "Reading": 44.5, "ReadingUnits": "Cel"});
        assert_eq!(of(&sensor), [(Quantity::Temperature, "CPU #1".to_owned(), Some(44.5))]);
        let collection = json!({"Members": [{"@odata.id": "/a"}, sensor, {"Id": "x", "Reading": 1, "ReadingUnits": "lx"}]});
        let found = sensor_readings("/p", "1", &collection);
        assert_eq!(found.len(), 1);
        assert_eq!(number(&collection, found[0].address.strip_prefix("/p#").unwrap()), Some(44.5));
    }

    #[test]
    fn an_element_is_found_by_its_id_wherever_it_is() {
        let before = json!({"Temperatures": [{"MemberId": "0", "ReadingCelsius": 1}, {"MemberId": "1", "ReadingCelsius": 2}]});
        let after = json!({"Temperatures": [{"MemberId": "1", "ReadingCelsius": 3}]});
        let address = readings("/p", "1", &before)[1].address.clone();
        let pointer = address.strip_prefix("/p#").unwrap();
        assert_eq!((number(&before, pointer), number(&after, pointer)), (Some(2.0), Some(3.0)));
        assert_eq!(number(&after, "/Temperatures/0/ReadingCelsius"), None);
        assert_eq!(number(&after, ""), None);
    }

    #[test]
    fn quantities_have_words() {
        for quantity in Quantity::ALL {
            assert_eq!(quantity.as_str().parse(), Ok(quantity));
        }
        assert!("lux".parse::<Quantity>().is_err());
    }
}
