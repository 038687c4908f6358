//! Devices outside the nodes: wattmeters, power distribution units, switches, management controllers.
//!
//! Each device is a source with a thread of its own: a device that does not answer costs no other a deadline,
//! and a thread that waits takes some 20 KiB. The names of its metrics contain its name, since plans, leases
//! and the ledger work by names. A protocol is an implementation of [`Connection`].

mod connection;
mod credentials;
mod device;
mod exporter;
mod file;
mod http;
mod lines;
mod named_lines;
mod protocols;
mod redfish;
mod redfish_readings;
mod settings;
mod snmp;
mod source;
mod stream;
#[cfg(test)]
mod tests;
mod trial;

use polymeter_proto::catalogue::{DEVICE_KIND, Definition};

use super::kind::{Lane, OpenRequest, Opening, SourceKind};
use super::source::Source;
use super::target::Target;
use device::Device;
use source::{DeviceSource, DevicesWatch};

pub use connection::{Connection, DeviceError, Found, Number, VALUES_MAX};
pub use credentials::Credentials;
pub use device::OutsideDevices;
pub use protocols::{InvalidAddress, check_address, connect};
pub use settings::{DeviceMetric, DeviceSettings, DeviceUnit, DeviceUrl, InvalidSetting, Scale, Scheme};
pub use trial::{Offer, OfferedValue, offers};

/// Devices of one agent. Each has a thread.
pub const DEVICES_MAX: usize = 1000;

pub(super) fn check_lines(data: &[u8]) {
    lines::check(data);
}

pub(super) fn check_snmp(data: &[u8]) {
    snmp::check(data);
}

pub(super) fn check_redfish(data: &[u8]) {
    redfish_readings::check(data);
}

pub(super) struct OutsideKind;

impl SourceKind for OutsideKind {
    fn name(&self) -> &'static str {
        DEVICE_KIND
    }

    fn lane(&self) -> Lane {
        Lane::Slow
    }

    fn fields(&self) -> Vec<&'static str> {
        vec!["value"]
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        let (Target::Node(_), Some(devices)) = (request.target, request.host.outside) else {
            opening.unavailable_all(&request.wanted, "the configuration names no [[device]]");
            return;
        };
        let changes = devices.changes();
        let mut left: Vec<Definition> = request.wanted.clone();
        for device in devices.iter() {
            let prefix = format!("{}.", device.settings.word);
            let is_of_device = |definition: &Definition| {
                definition.instance.as_ref().is_none_or(|instance| instance.starts_with(&prefix))
            };
            if request.wanted.iter().any(is_of_device) {
                open_device(device, opening, &mut left);
            }
        }
        left.retain(|definition| !definition.is_family());
        opening.unavailable_all(&left, "no [[device]] of the configuration has it");
        opening.push(DEVICE_KIND.to_owned(), Source::Custom(Box::new(DevicesWatch::new(changes))));
    }
}

/// Opens the source of a device. Takes what is wanted of it from `left`.
fn open_device(device: &std::sync::Arc<Device>, opening: &mut Opening<'_>, left: &mut Vec<Definition>) {
    let known = device.known();
    let name = format!("{DEVICE_KIND}/{}", device.settings.name);
    opening.push_custom(name, Box::new(DeviceSource::new(device, &known.places)));
    for metric in &device.settings.metrics {
        let name = device.settings.metric_name(metric);
        let is_found = known.places.iter().any(|place| place.slot.definition.name() == name);
        let missing = left.iter().position(|definition| definition.name() == name);
        let definition = missing.map(|position| left.swap_remove(position));
        if !is_found {
            let family = polymeter_proto::catalogue::find(&name);
            let reason = known.missing.clone().unwrap_or_else(|| "the device lacks it".to_owned());
            let reason = format!("{}: {reason}", device.settings.name);
            definition
                .or(family)
                .into_iter()
                .for_each(|missing| opening.unavailable(missing, reason.clone()));
        }
    }
}
