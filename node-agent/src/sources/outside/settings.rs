//! Devices as the configuration names them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use polymeter_proto::name::MetricName;
use polymeter_proto::period::{Period, Sampling};
use polymeter_proto::series::{Identifier, Unit};

use crate::cgroups::Pattern;

/// A device outside the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceSettings {
    /// Value of the label `device`.
    pub name: Identifier,
    /// The name as one word of a metric's name: `sw2_rack1` of `sw2-rack1`.
    pub word: String,
    pub url: DeviceUrl,
    /// File with the credentials, in the form of [`super::Credentials`].
    pub credentials: Option<PathBuf>,
    /// Longest wait for one answer.
    pub timeout: Period,
    /// Node that all of it serves, unless `nodes` names another one.
    pub node: Option<Identifier>,
    /// Nodes behind its ports, outlets or names, which their series have as the label `node`.
    pub nodes: BTreeMap<String, Identifier>,
    /// Label that names the jobs that series are about.
    pub job_label: Option<JobLabel>,
    pub metrics: Vec<DeviceMetric>,
}

/// Label of the job that a series is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobLabel {
    pub label: String,
    /// Pattern of the value around the id of the job; none if the value is the id.
    pub pattern: Option<Pattern>,
    /// Cluster of the jobs; none for any.
    pub cluster: Option<Identifier>,
}

impl JobLabel {
    /// Returns the id of the job that a value names.
    pub(super) fn job_id(&self, value: &str) -> Option<String> {
        match &self.pattern {
            None => Some(value.to_owned()),
            Some(pattern) => pattern.captures(value)?.job,
        }
    }
}

impl DeviceSettings {
    /// Writes a device's name as a word of metric names: other characters become `_`.
    pub fn word_of(name: &str) -> String {
        let word = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
        name.chars().map(word).collect()
    }

    /// True if at most the periods differ.
    pub fn is_same_device(&self, other: &Self) -> bool {
        let timeless = |device: &Self| {
            let mut device = device.clone();
            device.metrics.iter_mut().for_each(|metric| metric.sampling = None);
            device
        };
        timeless(self) == timeless(other)
    }

    /// Name of a metric of this device in the plan and in the data.
    pub fn metric_name(&self, metric: &DeviceMetric) -> String {
        format!("device.{}.{}", self.word, metric.name)
    }

    /// Periods of its metrics, by name; none for one that is off until somebody asks for it.
    pub fn periods(&self) -> impl Iterator<Item = (String, Option<Sampling>)> {
        self.metrics.iter().map(|metric| (self.metric_name(metric), metric.sampling))
    }
}

/// A metric of a device: one value, or one of each port, outlet or sensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceMetric {
    /// Last words of the metric's name: `outlet.power`.
    pub name: MetricName,
    /// What the protocol reads: an OID, a table, the name of a line, a series of an exporter.
    pub address: String,
    /// None for the unit that the protocol states.
    pub unit: Option<DeviceUnit>,
    /// None for what the protocol states.
    pub is_counter: Option<bool>,
    pub scale: Scale,
    /// Label that tells the values of one metric apart; none for what the protocol calls it.
    pub label: Option<String>,
    /// None for a metric that is off until somebody asks for it.
    pub sampling: Option<Sampling>,
}

impl DeviceMetric {
    /// Creates a metric of which the protocol states the rest.
    pub const fn new(name: MetricName, address: String) -> Self {
        let (unit, is_counter, label, sampling) = (None, None, None, None);
        Self { name, address, unit, is_counter, scale: Scale::ONE, label, sampling }
    }
}

/// Unit of a metric: one that Polymeter knows, or another text, which the label `unit` then has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceUnit {
    Known(Unit),
    Other(String),
}

/// Bytes of the text of a unit.
const UNIT_BYTES: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSetting {
    #[error("expected SCHEME://HOST:PORT/PATH without a user, found `{0}`; credentials belong in a file")]
    Url(String),
    #[error("unknown scheme `{0}`; known ones are {known}", known = Scheme::names())]
    Scheme(String),
    #[error("the port of `{0}` is no number from 1 to 65535")]
    Port(String),
    #[error("expected the absolute path of a file, as in file:///run/power, found `{0}`")]
    FilePath(String),
    #[error("`{0}` has no host")]
    NoHost(String),
    #[error("expected a unit of 1 to {UNIT_BYTES} printable characters, found `{0}`")]
    Unit(String),
    #[error("expected a number other than 0, such as 0.1, found `{0}`")]
    Scale(String),
}

impl FromStr for DeviceUnit {
    type Err = InvalidSetting;

    fn from_str(text: &str) -> Result<Self, InvalidSetting> {
        if let Some(unit) = Unit::ALL.into_iter().find(|unit| unit.as_str() == text) {
            return Ok(Self::Known(unit));
        }
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic()) && !text.is_empty();
        if is_plain && text.len() <= UNIT_BYTES {
            Ok(Self::Other(text.to_owned()))
        } else {
            Err(InvalidSetting::Unit(text.to_owned()))
        }
    }
}

/// Factor from a device's number to the stored value, as the bits of a double.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale(u64);

impl Scale {
    pub const ONE: Self = Self(1_f64.to_bits());

    /// Returns none for 0 and for what is no number.
    pub fn new(factor: f64) -> Option<Self> {
        (factor.is_finite() && factor != 0.0).then(|| Self(factor.to_bits()))
    }

    pub const fn factor(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl FromStr for Scale {
    type Err = InvalidSetting;

    fn from_str(text: &str) -> Result<Self, InvalidSetting> {
        let factor = text.parse().ok().and_then(Self::new);
        factor.ok_or_else(|| InvalidSetting::Scale(text.to_owned()))
    }
}

/// Protocol by which a device is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Version 2c or 3.
    Snmp,
    /// A management controller, version 2.0.
    Ipmi,
    /// A file of lines.
    File,
    /// A stream of lines.
    Tcp,
    /// An exporter, or Redfish.
    Http,
    /// The same with TLS.
    Https,
}

impl Scheme {
    const ALL: [Self; 6] = [Self::Snmp, Self::Ipmi, Self::File, Self::Tcp, Self::Http, Self::Https];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Snmp => "snmp",
            Self::Ipmi => "ipmi",
            Self::File => "file",
            Self::Tcp => "tcp",
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    fn names() -> String {
        Self::ALL.map(Self::as_str).join(", ")
    }
}

/// Address of a device, without credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceUrl {
    pub scheme: Scheme,
    /// Empty for a file. An address of IPv6 has no brackets here.
    pub host: String,
    pub port: Option<u16>,
    /// Everything behind the port, with its leading `/`; may be empty.
    pub path: String,
}

impl fmt::Display for DeviceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme.as_str())?;
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?;
        } else {
            f.write_str(&self.host)?;
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        f.write_str(&self.path)
    }
}

impl FromStr for DeviceUrl {
    type Err = InvalidSetting;

    fn from_str(text: &str) -> Result<Self, InvalidSetting> {
        let invalid = || InvalidSetting::Url(text.to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(invalid)?;
        let scheme = Scheme::ALL.into_iter().find(|known| known.as_str() == scheme);
        let Some(scheme) = scheme else {
            return Err(InvalidSetting::Scheme(text.split("://").next().unwrap_or_default().to_owned()));
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.contains('@') || text.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return Err(invalid());
        }
        if scheme == Scheme::File {
            let is_path = authority.is_empty() && path.len() > 1;
            let url = Self { scheme, host: String::new(), port: None, path: path.to_owned() };
            return if is_path { Ok(url) } else { Err(InvalidSetting::FilePath(text.to_owned())) };
        }
        let (host, port) = match authority.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
        };
        let port = port
            .map(|port| port.parse().ok().filter(|port| *port > 0))
            .map_or(Ok(None), |port| port.map(Some).ok_or_else(|| InvalidSetting::Port(text.to_owned())))?;
        if host.is_empty() {
            return Err(InvalidSetting::NoHost(text.to_owned()));
        }
        Ok(Self { scheme, host: host.to_owned(), port, path: path.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Result<(Scheme, String, Option<u16>, String), InvalidSetting> {
        let DeviceUrl { scheme, host, port, path } = text.parse()?;
        Ok((scheme, host, port, path))
    }

    #[test]
    fn urls_have_a_host_or_a_path() {
        let of = |scheme, host: &str, port, path: &str| Ok((scheme, host.to_owned(), port, path.to_owned()));
        assert_eq!(url("snmp://pdu3.example"), of(Scheme::Snmp, "pdu3.example", None, ""));
        assert_eq!(url("tcp://[fe80::1]:2000"), of(Scheme::Tcp, "fe80::1", Some(2000), ""));
        for text in ["snmp://pdu3.example", "tcp://[fe80::1]:2000", "file:///run/power"] {
            assert_eq!(text.parse::<DeviceUrl>().map(|url| url.to_string()).as_deref(), Ok(text));
        }
        assert_eq!(url("file:///run/power"), of(Scheme::File, "", None, "/run/power"));
        for wrong in [
            "pdu3",
            "tcp://",
            "tcp://u:p@pdu3",
            "tcp://pdu3:0",
            "tcp://pdu3:99999",
            "file://run/x",
            "file:///",
            "gopher://x",
            "tcp://a b:1",
            "tcp://[::1",
            "",
        ] {
            assert!(url(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_become_words() {
        assert_eq!(DeviceSettings::word_of("SW2-rack.1"), "sw2_rack_1");
    }

    #[test]
    fn units_and_scales() {
        assert_eq!("watts".parse(), Ok(DeviceUnit::Known(Unit::Watts)));
        assert_eq!("kWh".parse(), Ok(DeviceUnit::Other("kWh".to_owned())));
        assert!("".parse::<DeviceUnit>().is_err() && "a b".parse::<DeviceUnit>().is_err());
        assert_eq!("0.1".parse::<Scale>().map(Scale::factor), Ok(0.1));
        for wrong in ["0", "nan", "inf", "x", ""] {
            assert!(wrong.parse::<Scale>().is_err(), "{wrong}");
        }
    }
}
