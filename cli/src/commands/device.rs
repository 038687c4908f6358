//! `polymeter device try`: asks a device outside the nodes what it offers, and proposes a configuration.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use polymeter_agent::sources::outside::{DeviceSettings, DeviceUrl, Offer, OfferedValue, offers};
use polymeter_proto::period::Period;
use polymeter_proto::series::{Identifier, Unit};

use crate::failure::Failure;
use crate::output::terminal;

/// Values that are shown of each metric.
const EXAMPLES: usize = 4;

#[derive(Debug, clap::Args)]
pub(crate) struct DeviceArguments {
    #[command(subcommand)]
    command: DeviceCommand,
}

#[derive(Debug, Subcommand)]
enum DeviceCommand {
    /// Ask a device what it offers, and print a configuration for it.
    Try(TryArguments),
}

#[derive(Debug, clap::Args)]
struct TryArguments {
    /// The device: snmp://HOST, ipmi://HOST, http://HOST:PORT/metrics, https://HOST/redfish/v1,
    /// tcp://HOST:PORT or file:///PATH.
    #[arg(value_name = "URL")]
    url: DeviceUrl,

    /// The file with the credentials of the device, which nobody else can read.
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,

    /// The longest wait for one answer.
    #[arg(long, value_name = "PERIOD", default_value = "2s")]
    timeout: Period,
}

pub(crate) fn execute(arguments: &DeviceArguments) -> Result<(), Failure> {
    let DeviceCommand::Try(arguments) = &arguments.command;
    let device = device(arguments)?;
    let offers = offers(&device, Path::new("/"))
        .map_err(|error| Failure::because(&format!("cannot read {}", arguments.url), &error))?;
    if offers.is_empty() {
        let message = "cannot propose a configuration: the device answers, and has none of the usual tables; \
                       name its objects yourself, see docs/how-to/devices.md";
        return Err(Failure::Failed(message.to_owned()));
    }
    terminal::print(&text(&device, &offers))
}

fn device(arguments: &TryArguments) -> Result<DeviceSettings, Failure> {
    let url = &arguments.url;
    let short = url.host.split('.').next().filter(|_| url.host.parse::<std::net::IpAddr>().is_err());
    let file = Path::new(&url.path).file_stem().and_then(|name| name.to_str());
    let name = short.filter(|name| !name.is_empty()).or(file).unwrap_or("device1");
    let name = Identifier::try_from(name)
        .map_err(|error| Failure::because(&format!("cannot name the device `{name}`"), &error))?;
    Ok(DeviceSettings {
        word: DeviceSettings::word_of(name.as_str()),
        name,
        url: url.clone(),
        credentials: arguments.credentials.clone(),
        timeout: arguments.timeout,
        node: None,
        nodes: BTreeMap::new(),
        job_label: None,
        metrics: Vec::new(),
    })
}

/// Configuration of a device, with examples of its values in comments.
fn text(device: &DeviceSettings, offers: &[Offer]) -> String {
    let mut text = format!(
        "[[device]]\nname = {}\nurl = {}\n",
        quoted(device.name.as_str()),
        quoted(&device.url.to_string())
    );
    if let Some(path) = &device.credentials {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        writeln!(text, "credentials = {}", quoted(&path.display().to_string())).ok();
    }
    for Offer { metric, unit, is_counter, values } in offers {
        let address = quoted(&metric.address);
        writeln!(text, "\n# {}\n[[device.metric]]\nname = \"{}\"", examples(values, *unit), metric.name).ok();
        writeln!(text, "address = {address}").ok();
        if *unit == Unit::Labelled {
            let kind = if *is_counter { "counter" } else { "gauge" };
            writeln!(text, "kind = \"{kind}\"\n# unit = \"watts\"").ok();
        }
        text.push_str("period = \"10s\"\n");
    }
    text
}

fn examples(values: &[OfferedValue], unit: Unit) -> String {
    let unit = if unit == Unit::Labelled { String::new() } else { format!(" {}", unit.as_str()) };
    let mut examples = Vec::new();
    for OfferedValue { name, value } in values.iter().take(EXAMPLES) {
        let value = value.map_or("no value now".to_owned(), |value| format!("{value}{unit}"));
        examples.push(if name.is_empty() { value } else { format!("{}: {value}", quoted(name)) });
    }
    let more = values.len().saturating_sub(EXAMPLES);
    if more > 0 {
        examples.push(format!("and {more} more"));
    }
    examples.join(", ")
}

/// A string of TOML, whose escapes are those of JSON. A device's text ends no line.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use polymeter_agent::config::AgentConfig;
    use polymeter_agent::sources::outside::DeviceMetric;
    use polymeter_proto::name::MetricName;

    use super::*;

    fn offer(name: &'static str, address: &str, unit: Unit, names: &[&str]) -> Offer {
        let values = names.iter().map(|name| OfferedValue { name: (*name).to_owned(), value: Some(221.5) });
        let metric = DeviceMetric::new(MetricName::new(name).unwrap(), address.to_owned());
        Offer { metric, unit, is_counter: unit == Unit::Bytes, values: values.collect() }
    }

    #[test]
    fn proposes_a_valid_configuration() {
        let arguments = TryArguments {
            url: "snmp://sw2.example".parse().unwrap(),
            credentials: Some("/etc/polymeter/sw2".into()),
            timeout: Period::SECOND,
        };
        let device = device(&arguments).unwrap();
        let ports = ["Ethernet1", "Ethernet2", "Ethernet3", "Ethernet4", "Ethernet5", "mgmt\n[[device]]"];
        let offers = [
            offer("port.receive.bytes", "ports.receive", Unit::Bytes, &ports),
            offer("sensor.power", "sensors.power", Unit::Watts, &["PSU\n[[device]]"]),
        ];
        let proposed = text(&device, &offers);
        let config = AgentConfig::parse(Path::new("devices.toml"), &proposed).unwrap();
        assert_eq!(config.devices.len(), 1);
        assert_eq!(config.devices[0].metrics.len(), 2);
        let from_device = offer("power", "a\"\\\u{7f}\n", Unit::Labelled, &[""]);
        let file = DeviceSettings { url: "file:///run/x".parse().unwrap(), ..device };
        let config = AgentConfig::parse(Path::new("devices.toml"), &text(&file, &[from_device])).unwrap();
        assert_eq!(config.devices[0].metrics[0].address, "a\"\\\u{7f}\n");
        crate::snapshot::check("device_try", &proposed);
    }

    #[test]
    fn devices_have_the_name_of_their_host_or_file() {
        let name = |url: &str| {
            let arguments =
                TryArguments { url: url.parse().unwrap(), credentials: None, timeout: Period::SECOND };
            device(&arguments).unwrap().name.as_str().to_owned()
        };
        assert_eq!(
            ["snmp://pdu3.example", "tcp://10.0.0.1:2000", "file:///run/power.txt"].map(name),
            ["pdu3", "device1", "power"]
        );
    }
}
