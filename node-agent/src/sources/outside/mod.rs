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
mod ipmi_lan;
mod lines;
mod named_lines;
mod protocols;
mod redfish;
mod redfish_readings;
mod redfish_session;
mod settings;
mod snmp;
mod source;
mod stream;
#[cfg(test)]
mod tests;
mod trial;

pub(super) use device::Device;
pub(super) use ipmi_lan::check as check_ipmi_lan;
pub(super) use lines::check as check_lines;
pub(super) use redfish_readings::check as check_redfish;
pub(super) use snmp::check as check_snmp;
pub(super) use source::DeviceSource;

pub use connection::{Connection, DeviceError, Found, Number, VALUES_MAX};
pub use credentials::Credentials;
pub use device::OutsideDevices;
pub use protocols::{InvalidAddress, check_address, connect};
pub use settings::{
    DeviceMetric, DeviceSettings, DeviceUnit, DeviceUrl, InvalidSetting, JobLabel, Scale, Scheme,
};
pub use trial::{Offer, OfferedValue, offers};

/// Devices of one agent. Each has a thread.
pub const DEVICES_MAX: usize = 1000;
