//! The protocols by which devices are asked, by the schemes of their URLs.

use std::path::Path;
use std::time::Duration;

use polymeter_proto::exposition::{InvalidSelector, SeriesSelector};

use super::connection::{Connection, DeviceError};
use super::credentials::Credentials;
use super::exporter::Exporter;
use super::file::FileLines;
use super::http::{self, HttpClient};
use super::ipmi_lan::{self, IpmiLan};
use super::redfish::Redfish;
use super::redfish_readings::{InvalidQuantity, Quantity};
use super::settings::{DeviceSettings, DeviceUrl, Scheme};
use super::snmp::{self, Snmp};
use super::stream::LineStream;

/// Makes a connection to a device, without waiting for it. Files are below `root`.
///
/// # Errors
///
/// Fails if its credentials cannot be used.
pub fn connect(device: &DeviceSettings, root: &Path) -> Result<Box<dyn Connection>, DeviceError> {
    match device.url.scheme {
        Scheme::File => Ok(Box::new(FileLines::new(root, &device.url.path))),
        Scheme::Snmp => {
            let timeout = Duration::from_micros(device.timeout.as_micros());
            Ok(Box::new(Snmp::new(&device.url, timeout, device.credentials.as_deref())?))
        }
        Scheme::Ipmi => {
            let timeout = Duration::from_micros(device.timeout.as_micros());
            Ok(Box::new(IpmiLan::new(&device.url, timeout, device.credentials.as_deref())?))
        }
        Scheme::Tcp => {
            Ok(Box::new(LineStream::new(&device.url, Duration::from_micros(device.timeout.as_micros()))))
        }
        Scheme::Http | Scheme::Https => {
            let path = device.credentials.as_deref();
            let credentials = path.map(|path| Credentials::read(path, &http::KEYS)).transpose()?;
            let client = HttpClient::new(device, credentials.as_ref())?;
            if is_redfish(&device.url) {
                Ok(Box::new(Redfish::new(client, &device.url.path, credentials.as_ref())))
            } else {
                Ok(Box::new(Exporter::new(client, device)?))
            }
        }
    }
}

fn is_redfish(url: &DeviceUrl) -> bool {
    url.path.starts_with("/redfish")
}

/// Why a device cannot have a value with this address.
#[derive(Debug, thiserror::Error)]
pub enum InvalidAddress {
    #[error(
        "`{0}` is no address of SNMP; write an object identifier, one with `.*` behind it, or a name such as `ports.receive` or `sensors.power`"
    )]
    Snmp(String),
    #[error(
        "`{0}` is no address of IPMI; write `power`, or `sensors.` and one of power, temperature, fan, voltage, current, percent or frequency, as in `sensors.temperature` or `sensors.temperature:CPU*`"
    )]
    Ipmi(String),
    #[error(transparent)]
    Series(#[from] InvalidSelector),
    #[error(transparent)]
    Quantity(#[from] InvalidQuantity),
}

/// Checks the address of a metric as far as its protocol has a form for it.
///
/// # Errors
///
/// Fails for an address that no device of this protocol understands.
pub fn check_address(url: &DeviceUrl, address: &str) -> Result<(), InvalidAddress> {
    match url.scheme {
        Scheme::File | Scheme::Tcp => {}
        Scheme::Snmp => {
            snmp::check_address(address).map_err(|_invalid| InvalidAddress::Snmp(address.to_owned()))?;
        }
        Scheme::Ipmi => {
            ipmi_lan::check_address(address).map_err(|_invalid| InvalidAddress::Ipmi(address.to_owned()))?;
        }
        Scheme::Http | Scheme::Https if is_redfish(url) => drop(address.parse::<Quantity>()?),
        Scheme::Http | Scheme::Https => drop(address.parse::<SeriesSelector>()?),
    }
    Ok(())
}
