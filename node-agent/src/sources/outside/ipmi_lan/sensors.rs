//! Sensors of a controller: their records, and their readings.

use std::collections::{BTreeMap, BTreeSet};

use super::controller::Controller;
use super::packet::Command;
use super::sensor_record::{FULL_RECORD, Sensor};
use crate::sources::outside::connection::DeviceError;

const NETFN_STORAGE: u8 = 0x0a;
const REPOSITORY: u8 = 0x20;
const RESERVE: u8 = 0x22;
const GET_RECORD: u8 = 0x23;

const NETFN_SENSOR: u8 = 0x04;
const GET_READING: u8 = 0x2d;

const DONE: u8 = 0;

/// Completion code of a command for which the user has too few rights.
const NO_PRIVILEGE: u8 = 0xd4;

/// Completion codes of a controller without records.
const WITHOUT_RECORDS: [u8; 2] = [0xc1, 0xcb];

/// Completion code behind a change of the records.
const RESERVATION_CANCELLED: u8 = 0xc5;

/// Records of one controller. Large machines have some hundred.
const RECORDS_MAX: usize = 2048;

/// Bytes of a record in one answer. Many controllers have no room for more.
const PART_BYTES: u8 = 16;

/// Id, version, type and length of a record.
const HEADER_BYTES: u8 = 5;

/// Id behind the last record.
const NO_RECORD: u16 = 0xffff;

/// Attempts to read all records while they change.
const WALKS: usize = 3;

/// A reading is no value: the controller does not have one now. Another bit is set while it looks for it.
const IS_UNAVAILABLE: u8 = 1 << 5;
const IS_SCANNED: u8 = 1 << 6;

#[derive(Debug, Default)]
pub(super) struct Sensors {
    /// State of the records by the controller: their number, and the times of changes. None before they are
    /// read.
    version: Option<Vec<u8>>,
    /// Sensors by what their values are found at later: unit, number and name.
    pub(super) known: BTreeMap<String, Sensor>,
}

impl Sensors {
    /// Reads the records unless they are as before: a few hundred take minutes of some controllers.
    pub(super) fn renew(&mut self, controller: &mut Controller) -> Result<(), DeviceError> {
        let version = Some(ask(controller, NETFN_STORAGE, REPOSITORY, &[])?);
        if self.version != version {
            self.known = named(records(controller)?);
            self.version = version;
        }
        Ok(())
    }

    /// Value of a sensor, unless it has none now, or another sensor took its place.
    pub(super) fn value(
        &mut self,
        controller: &mut Controller,
        address: &str,
    ) -> Result<Option<f64>, DeviceError> {
        if self.version.is_none() {
            self.renew(controller)?;
        }
        let Some(sensor) = self.known.get(address) else { return Ok(None) };
        let command =
            Command { netfn: NETFN_SENSOR, unit: sensor.unit, command: GET_READING, data: &[sensor.number] };
        Ok(match *controller.ask(&command)? {
            [DONE, reading, state, ..] if state & (IS_SCANNED | IS_UNAVAILABLE) == IS_SCANNED => {
                Some(sensor.value(reading)).filter(|value| value.is_finite())
            }
            _ => None,
        })
    }
}

fn ask(controller: &mut Controller, netfn: u8, command: u8, data: &[u8]) -> Result<Vec<u8>, DeviceError> {
    let answer = controller.ask(&Command { netfn, unit: 0, command, data })?;
    if answer.first() == Some(&NO_PRIVILEGE) {
        return Err(DeviceError::Refused("its user may not read sensors".to_owned()));
    }
    Ok(answer)
}

/// Gives sensors of the same name their numbers, too.
fn named(sensors: Vec<Sensor>) -> BTreeMap<String, Sensor> {
    let mut names = BTreeMap::new();
    for sensor in &sensors {
        *names.entry(sensor.name.clone()).or_insert(0) += 1;
    }
    let mut by_address = BTreeMap::new();
    for mut sensor in sensors {
        if names.get(&sensor.name).is_some_and(|count| *count > 1) {
            sensor.name = format!("{} #{}", sensor.name, sensor.number);
        }
        by_address.insert(format!("{}/{}/{}", sensor.unit, sensor.number, sensor.name), sensor);
    }
    by_address
}

fn records(controller: &mut Controller) -> Result<Vec<Sensor>, DeviceError> {
    for _ in 0..WALKS {
        if let Some(sensors) = walk(controller)? {
            return Ok(sensors);
        }
    }
    Err(DeviceError::Malformed("its records of sensors change all the time"))
}

/// Reads all records; none if they changed meanwhile.
fn walk(controller: &mut Controller) -> Result<Option<Vec<Sensor>>, DeviceError> {
    let reservation = match *ask(controller, NETFN_STORAGE, RESERVE, &[])? {
        [DONE, low, high, ..] => [low, high],
        [code, ..] if WITHOUT_RECORDS.contains(&code) => return Ok(Some(Vec::new())),
        _ => return Err(DeviceError::Malformed("it reserves no records of sensors")),
    };
    let (mut sensors, mut seen, mut id) = (Vec::new(), BTreeSet::new(), 0);
    while id != NO_RECORD {
        if !seen.insert(id) || seen.len() > RECORDS_MAX {
            return Err(DeviceError::Malformed("its records of sensors do not end"));
        }
        let Some((next, record)) = record(controller, reservation, id)? else { return Ok(None) };
        sensors.extend(Sensor::parse(&record));
        id = next;
    }
    Ok(Some(sensors))
}

/// Id of the next record, and this one, of which only the header is read if it is no sensor with a formula.
fn record(
    controller: &mut Controller,
    reservation: [u8; 2],
    id: u16,
) -> Result<Option<(u16, Vec<u8>)>, DeviceError> {
    let Some((next, mut record)) = part(controller, reservation, id, 0, HEADER_BYTES)? else {
        return Ok(None);
    };
    let [_, _, _, kind, length] = *record else {
        return Err(DeviceError::Malformed("a record of a sensor is cut off"));
    };
    let mut left = if kind == FULL_RECORD { length } else { 0 };
    while left > 0 {
        // A record ends with its 256th byte at the latest, as its offsets do.
        let Ok(offset) = u8::try_from(record.len()) else { break };
        let Some((_, more)) = part(controller, reservation, id, offset, left.min(PART_BYTES))? else {
            return Ok(None);
        };
        left = left.saturating_sub(u8::try_from(more.len()).unwrap_or(u8::MAX));
        record.extend(more);
    }
    Ok(Some((next, record)))
}

/// Up to `count` bytes of a record, and the id of the next one; none if the records have changed.
fn part(
    controller: &mut Controller,
    [low, high]: [u8; 2],
    id: u16,
    offset: u8,
    count: u8,
) -> Result<Option<(u16, Vec<u8>)>, DeviceError> {
    let [id_low, id_high] = id.to_le_bytes();
    let request = [low, high, id_low, id_high, offset, count];
    match &*ask(controller, NETFN_STORAGE, GET_RECORD, &request)? {
        [DONE, low, high, bytes @ ..] if !bytes.is_empty() && bytes.len() <= usize::from(count) => {
            Ok(Some((u16::from_le_bytes([*low, *high]), bytes.to_vec())))
        }
        [RESERVATION_CANCELLED, ..] => Ok(None),
        _ => Err(DeviceError::Malformed("it does not read out its records of sensors")),
    }
}
