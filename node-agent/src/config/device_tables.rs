//! The tables `[[device]]`.

use std::collections::BTreeMap;
use std::convert::Infallible;

use polymeter_proto::limits::LABEL_KEY_BYTES;
use polymeter_proto::name::MetricName;
use polymeter_proto::period::{Period, Sampling};
use polymeter_proto::series::Identifier;
use polymeter_service::document::{Reporter, Section, Span};
use polymeter_service::keys::Value;

use super::node_lines::nodes_in;
use super::value_parsers::absolute;
use crate::sources::outside::{
    DEVICES_MAX, DeviceMetric, DeviceSettings, InvalidSetting, JobLabel, Scale, check_address,
};

/// Metrics of one device, each of which may be of many ports.
const METRICS_MAX: usize = 256;

/// Longest time for one answer: a read of a device blocks others of the same device only.
const TIMEOUT_MAX: Period = Period::MINUTE;

/// Takes the devices. All faults of all of them are reported.
pub(super) fn devices(value: Value<'_, '_, '_>) -> Option<Vec<DeviceSettings>> {
    let Value { section, reporter, key } = value;
    let tables = section.tables(key.name, reporter)?;
    let mut devices: Vec<DeviceSettings> = Vec::new();
    for (number, (table, span)) in tables.into_iter().enumerate() {
        if number == DEVICES_MAX {
            reporter.fault(&span, format_args!("`device`: expected at most {DEVICES_MAX} devices"));
        }
        let Some(device) = device(table, &span, reporter) else { continue };
        if let Some(known) = devices.iter().find(|known| known.word == device.word) {
            let (name, other) = (&device.name, &known.name);
            let message =
                format_args!("`device`: `{name}` has the same name in metrics as `{other}`; rename one");
            reporter.fault(&span, message);
        }
        devices.push(device);
    }
    Some(devices)
}

fn device(mut table: Section<'_>, span: &Span, reporter: &mut Reporter<'_>) -> Option<DeviceSettings> {
    for key in ["name", "url"] {
        if table.span(key).is_none() {
            reporter.fault(span, format_args!("`device`: `{key}` is missing"));
        }
    }
    let name = table.parse("name", reporter, |text| Identifier::try_from(text));
    let url = table.parse("url", reporter, str::parse);
    let credentials = table.parse("credentials", reporter, absolute);
    let timeout = table.parse("timeout", reporter, str::parse).unwrap_or(Period::SECOND);
    if timeout > TIMEOUT_MAX {
        reporter.fault(span, format_args!("`device`: expected a timeout of at most {TIMEOUT_MAX}"));
    }
    let node = table.parse("node", reporter, |text| Identifier::try_from(text));
    let device = name.as_ref().map(Identifier::as_str).unwrap_or_default();
    let mut nodes_by_port =
        table.parse("nodes_file", reporter, |path| nodes_in(path, device)).unwrap_or_default();
    nodes_by_port.extend(nodes(&mut table, reporter));
    let job_label = job_label(&mut table, reporter);
    let tables = table.tables("metric", reporter).unwrap_or_default();
    table.finish(reporter);
    if tables.is_empty() || tables.len() > METRICS_MAX {
        let message = format_args!("`device`: expected 1 to {METRICS_MAX} tables [[device.metric]]");
        reporter.fault(span, message);
    }
    let mut metrics: Vec<DeviceMetric> = Vec::new();
    for (table, span) in tables {
        let Some(metric) = metric(table, &span, reporter) else { continue };
        if metrics.iter().any(|known| known.name == metric.name) {
            reporter.fault(&span, format_args!("`metric`: there are two of the name `{}`", metric.name));
        }
        metrics.push(metric);
    }
    let name = name?;
    let word = DeviceSettings::word_of(name.as_str());
    let nodes = nodes_by_port;
    let device =
        DeviceSettings { name, word, url: url?, credentials, timeout, node, nodes, job_label, metrics };
    check_metrics(&device, span, reporter);
    Some(device)
}

/// Takes the label that names jobs, with its pattern and the cluster of the jobs.
fn job_label(table: &mut Section<'_>, reporter: &mut Reporter<'_>) -> Option<JobLabel> {
    let others = ["job_pattern", "job_cluster"].into_iter().find_map(|key| Some((key, table.span(key)?)));
    let name = table.parse("job_label", reporter, exported_label);
    let pattern = table.parse("job_pattern", reporter, str::parse);
    let cluster = table.parse("job_cluster", reporter, |text| Identifier::try_from(text));
    if let (None, Some((key, span))) = (&name, others) {
        reporter.fault(&span, format_args!("`{key}`: requires `job_label`, the label that names jobs"));
    }
    Some(JobLabel { label: name?, pattern, cluster })
}

/// Nodes by port, outlet or name.
fn nodes(table: &mut Section<'_>, reporter: &mut Reporter<'_>) -> BTreeMap<String, Identifier> {
    let mut nodes = BTreeMap::new();
    let entries = table.section("nodes", reporter).map(Section::into_entries).unwrap_or_default();
    for (key, value) in entries {
        match value.get_ref().as_str().map(Identifier::try_from) {
            Some(Ok(node)) => drop(nodes.insert(key.into_inner(), node)),
            Some(Err(error)) => reporter.fault(&value.span(), format_args!("`nodes`: {error}")),
            None => {
                reporter.fault(&value.span(), format_args!("`nodes`: expected the name of a node in quotes"))
            }
        }
    }
    nodes
}

/// A name of a device or metric may be valid alone, and too long together. An address is one of the protocol.
fn check_metrics(device: &DeviceSettings, span: &Span, reporter: &mut Reporter<'_>) {
    for (name, _) in device.periods() {
        if let Err(error) = MetricName::new(name.clone()) {
            reporter.fault(span, format_args!("`device`: `{name}` is no name of a metric: {error}"));
        }
    }
    for metric in &device.metrics {
        if let Err(error) = check_address(&device.url, &metric.address) {
            reporter.fault(span, format_args!("`device`: {error}"));
        }
    }
}

fn metric(mut table: Section<'_>, span: &Span, reporter: &mut Reporter<'_>) -> Option<DeviceMetric> {
    for key in ["name", "address", "period"] {
        if table.span(key).is_none() {
            reporter.fault(span, format_args!("`metric`: `{key}` is missing"));
        }
    }
    let name = table.parse("name", reporter, |text| MetricName::new(text.to_owned()));
    let address = table.parse("address", reporter, |text| Ok::<_, Infallible>(text.to_owned()));
    let unit = table.parse("unit", reporter, str::parse);
    let scale = scale(&mut table, reporter);
    let is_counter = table.parse("kind", reporter, kind);
    let label = table.parse("label", reporter, label);
    let sampling = table.parse("period", reporter, period);
    table.finish(reporter);
    let metric = DeviceMetric::new(name?, address?);
    Some(DeviceMetric { unit, is_counter, scale, label, sampling: sampling?, ..metric })
}

fn scale(table: &mut Section<'_>, reporter: &mut Reporter<'_>) -> Scale {
    let Some(value) = table.take("scale") else { return Scale::ONE };
    let integer = value.get_ref().as_integer().map(|integer| integer.as_str());
    let text = integer.or_else(|| value.get_ref().as_float().map(|float| float.as_str()));
    match text.unwrap_or("no number").parse() {
        Ok(scale) => scale,
        Err::<_, InvalidSetting>(error) => {
            reporter.fault(&value.span(), format_args!("`scale`: {error}"));
            Scale::ONE
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("expected {expected}, found `{found}`")]
struct Unexpected {
    expected: &'static str,
    found: String,
}

fn kind(text: &str) -> Result<bool, Unexpected> {
    match text {
        "counter" => Ok(true),
        "gauge" => Ok(false),
        _ => Err(Unexpected { expected: "\"gauge\" or \"counter\"", found: text.to_owned() }),
    }
}

fn label(text: &str) -> Result<String, Unexpected> {
    let is_word = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if is_word && (1..=32).contains(&text.len()) && text != "device" && text != "unit" {
        Ok(text.to_owned())
    } else {
        Err(Unexpected {
            expected: "a word of a-z, 0-9 and _ other than `device` and `unit`",
            found: text.to_owned(),
        })
    }
}

/// Label of an exporter, which may have capitals.
fn exported_label(text: &str) -> Result<String, Unexpected> {
    let is_word = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_word && (1..=LABEL_KEY_BYTES).contains(&text.len()) {
        Ok(text.to_owned())
    } else {
        Err(Unexpected { expected: "the name of a label, such as `jobid`", found: text.to_owned() })
    }
}

fn period(text: &str) -> Result<Option<Sampling>, polymeter_proto::period::InvalidSampling> {
    if text == "off" { Ok(None) } else { text.parse().map(Some) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::model::AgentConfig;
    use polymeter_proto::catalogue::derived::Machine;

    fn parse(text: &str) -> Result<AgentConfig, String> {
        AgentConfig::parse(Path::new("devices.toml"), text).map_err(|faults| faults.to_string())
    }

    const DEVICE: &str = "[[device]]\nname = 'pdu-3'\nurl = 'tcp://pdu3.example:2000'\n";

    #[test]
    fn each_metric_of_each_device_has_a_period() {
        let text = format!(
            "{DEVICE}[[device.metric]]\nname = 'power'\naddress = 'p'\nunit = 'watts'\nscale = 0.1\nperiod = '1s'\n\
             [[device.metric]]\nname = 'energy'\naddress = 'e'\nkind = 'counter'\nperiod = 'off'\n\
             [baseline]\n'agent.*' = '10s'\n'device.*' = '1min'\n"
        );
        let config = parse(&text).unwrap();
        let period = |name: &str| {
            config.baseline.sampling(Machine::Any, name).map(|sampling| sampling.period.to_string())
        };
        assert_eq!(period("device.pdu_3.power").as_deref(), Some("1s"));
        assert_eq!(period("device.pdu_3.energy"), None);
        assert_eq!(period("device.pdu_4.power").as_deref(), Some("1min"));
        assert_eq!(period("agent.cpu.time").as_deref(), Some("10s"));
    }

    #[test]
    fn a_file_has_the_nodes_that_the_table_does_not_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ports");
        std::fs::write(&path, "pdu-3 1 node1\npdu-3 2 node2\nsw2 3 node3\n").unwrap();
        let metric = "[[device.metric]]\nname = 'power'\naddress = 'p'\nperiod = '1s'\n";
        let text = format!(
            "{DEVICE}node = 'node9'\nnodes = {{ '2' = 'node7' }}\nnodes_file = '{}'\n{metric}",
            path.display()
        );
        let device = parse(&text).unwrap().devices.remove(0);
        let nodes: Vec<_> = device.nodes.iter().map(|(port, node)| format!("{port}={node}")).collect();
        assert_eq!(nodes, ["1=node1", "2=node7"]);
        assert_eq!(device.node.unwrap().as_str(), "node9");
        std::fs::write(&path, "pdu-3 1\n").unwrap();
        let faults = parse(&text).unwrap_err();
        assert!(
            faults.contains("devices.toml:6: `nodes_file`: ") && faults.contains("ports:1: expected"),
            "{faults}"
        );
    }

    #[test]
    fn a_label_names_jobs_with_a_pattern_and_a_cluster() {
        let metric = "[[device.metric]]\nname = 'power'\naddress = 'p'\nperiod = '1s'\n";
        let of = |keys: &str| parse(&format!("{DEVICE}{keys}{metric}"));
        let keys = "job_label = 'JobID'\njob_pattern = '{number}.*'\njob_cluster = 'lab'\n";
        let label = of(keys).unwrap().devices.remove(0).job_label.unwrap();
        let pattern = label.pattern.unwrap();
        assert_eq!((label.label.as_str(), pattern.as_str()), ("JobID", "{number}.*"));
        assert_eq!(label.cluster.unwrap().as_str(), "lab");
        assert_eq!(of("").unwrap().devices.remove(0).job_label, None);
        let faults = of("job_label = 'a b'\njob_pattern = '{user}'\n").unwrap_err();
        for expected in
            ["devices.toml:4: `job_label`: expected the name of a label", "devices.toml:5: `job_pattern`: "]
        {
            assert!(faults.contains(expected), "{expected}\n{faults}");
        }
        let alone = of("job_cluster = 'lab'\n").unwrap_err();
        assert!(alone.contains("devices.toml:4: `job_cluster`: requires `job_label`"), "{alone}");
    }

    #[test]
    fn the_example_is_valid() {
        let config = parse(include_str!("../../../deploy/devices.toml")).unwrap();
        let names: Vec<&str> = config.devices.iter().map(|device| device.name.as_str()).collect();
        assert_eq!(names, ["pdu3", "sw2", "meter1", "hall"]);
    }

    #[test]
    fn all_faults_are_reported_with_their_lines() {
        let text = format!(
            "{DEVICE}node = ' '\ncredentials = 'x'\ntimeout = '2min'\n[[device.metric]]\nname = 'Power'\naddress = 'p'\n\
             scale = 'x'\nkind = 'sum'\nlabel = 'device'\nperiod = 'often'\ncolour = 'red'\n\
             [[device]]\nname = 'PDU_3'\nurl = 'ftp://x'\n{DEVICE}[[device.metric]]\nname = 'power'\n"
        );
        let faults = parse(&text).unwrap_err();
        for expected in [
            "devices.toml:1: `device`: expected a timeout of at most 1min",
            "devices.toml:4: `node`: ",
            "devices.toml:5: `credentials`: expected an absolute path",
            "devices.toml:8: `name`: ",
            "devices.toml:10: `scale`: expected a number other than 0",
            "devices.toml:11: `kind`: expected \"gauge\" or \"counter\", found `sum`",
            "devices.toml:12: `label`: ",
            "devices.toml:13: `period`: ",
            "devices.toml:14: unknown key `colour`",
            "devices.toml:15: `device`: expected 1 to 256 tables [[device.metric]]",
            "devices.toml:17: `url`: unknown scheme `ftp`",
            "devices.toml:21: `metric`: `address` is missing",
        ] {
            assert!(faults.contains(expected), "{expected}\n{faults}");
        }
        let metric = "[[device.metric]]\nname = 'power'\naddress = 'p'\nperiod = '1s'\n";
        let twice = parse(&format!("{DEVICE}{metric}{DEVICE}{metric}")).unwrap_err();
        assert!(twice.contains("`pdu-3` has the same name in metrics as `pdu-3`"), "{twice}");
    }
}
