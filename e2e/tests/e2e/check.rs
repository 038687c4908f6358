//! `polymeter check`: the line and the exit status of a plugin for Nagios, about agents and collectors that
//! run, and those that do not.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;

use polymeter_e2e::daemons::{Agent, Daemon, Plan, collector_with};
use polymeter_e2e::server::free_port;
use polymeter_e2e::tests;
use polymeter_e2e::{TestEnvironment, program, text, wait_until};

tests![
    an_agent_is_checked_over_its_socket,
    an_agent_is_checked_by_what_is_stored,
    a_collector_is_checked_by_its_pages,
    what_cannot_be_found_out_is_unknown,
];

const STATES: [&str; 4] = ["OK", "WARNING", "CRITICAL", "UNKNOWN"];

/// A value with its unit, and the fields behind it: warning, critical, least and greatest.
#[derive(Debug, PartialEq)]
struct Datum {
    /// None for `U`.
    value: Option<f64>,
    unit: String,
    fields: Vec<String>,
}

#[derive(Debug)]
struct Line {
    state: &'static str,
    text: String,
    data: BTreeMap<String, Datum>,
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let mut parts = digits.splitn(2, '.');
    let are_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    parts.next().is_some_and(are_digits) && parts.next().is_none_or(are_digits)
}

/// `[@][start:][end]`
fn is_range(text: &str) -> bool {
    let ends = text.strip_prefix('@').unwrap_or(text);
    match ends.split_once(':') {
        None => is_number(ends),
        Some((start, end)) => {
            (start == "~" || start.is_empty() || is_number(start)) && (end.is_empty() || is_number(end))
        }
    }
}

/// Reads `'label'=value[UOM];[warn];[crit];[min];[max]` as the guidelines of Monitoring Plugins define it.
fn datum(text: &str) -> (String, Datum) {
    let (label, rest) = text.split_once('=').unwrap_or_else(|| panic!("no label in {text}"));
    assert!(!label.is_empty() && !label.contains(['\'', ' ', '=']), "{text}");
    let mut fields = rest.split(';').map(str::to_owned);
    let value = fields.next().unwrap();
    let fields: Vec<String> = fields.collect();
    assert!(fields.len() <= 4, "{text}");
    assert!(fields.iter().take(2).all(|range| range.is_empty() || is_range(range)), "{text}");
    assert!(fields.iter().skip(2).all(|bound| bound.is_empty() || is_number(bound)), "{text}");
    if value == "U" {
        return (label.to_owned(), Datum { value: None, unit: String::new(), fields });
    }
    let end = value.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-')).unwrap_or(value.len());
    let (number, unit) = value.split_at(end);
    assert!(is_number(number), "{text}");
    let units = ["", "s", "us", "ms", "%", "B", "KB", "MB", "TB", "c"];
    assert!(units.contains(&unit), "{text}");
    (label.to_owned(), Datum { value: number.parse().ok(), unit: unit.to_owned(), fields })
}

/// Reads the output of a plugin, and compares its state with the exit status.
fn read(output: &Output) -> Line {
    let stdout = text(&output.stdout);
    let line = stdout.strip_suffix('\n').unwrap_or_else(|| panic!("no line: {output:?}"));
    assert!(!line.contains('\n'), "more than a line: {stdout}");
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    let (message, data) = match line.split_once('|') {
        Some((message, data)) => (message, data.trim()),
        None => (line, ""),
    };
    assert!(!data.contains('|'), "{line}");
    let (service, rest) = message.split_once(' ').unwrap();
    let (state, message) = rest.split_once(" - ").unwrap();
    assert_eq!(service, "POLYMETER");
    let status = usize::try_from(output.status.code().unwrap()).unwrap();
    assert_eq!(STATES[status], state, "{line}");
    let mut of_labels = BTreeMap::new();
    for (label, datum) in data.split(' ').filter(|text| !text.is_empty()).map(datum) {
        assert!(of_labels.insert(label, datum).is_none(), "a label twice: {line}");
    }
    Line { state: STATES[status], text: message.trim().to_owned(), data: of_labels }
}

fn check(arguments: &[&str]) -> Line {
    let mut command = program("polymeter");
    command.arg("check").args(arguments).env_remove("POLYMETER_COLLECTOR");
    read(&command.output().unwrap())
}

fn check_agent(socket: &Path, config: &Path, more: &[&str]) -> Line {
    let (socket, config) = (socket.to_str().unwrap(), config.to_str().unwrap());
    check(&[&["--socket", socket, "--agent-config", config, "--interval", "300ms"], more].concat())
}

/// Thresholds that this machine, beside other tests, does not exceed.
const AMPLE: [&str; 10] = [
    "--warning",
    "late=100",
    "--critical",
    "late=100",
    "--warning",
    "loss=~:",
    "--warning",
    "cpu=~:",
    "--critical",
    "cpu=~:",
];

const FREQUENT: (&str, &str) = ("node.load1", "50ms");

struct Cluster {
    agent: Agent,
    collector: Daemon,
    env: TestEnvironment,
}

impl Cluster {
    fn start(more: &str) -> Self {
        let env = TestEnvironment::new();
        let (collector, endpoint) = collector_with(&env, &env.endpoint(), more);
        let baseline = [FREQUENT, ("agent.*", "50ms")];
        let agent = Agent::start(&env, &Plan { collector: &endpoint, jobs: &[], baseline: &baseline });
        wait_until("frames are acknowledged", || agent.count("frames_acknowledged") > 0);
        Self { agent, collector, env }
    }

    fn check(&self, more: &[&str]) -> Line {
        check_agent(&self.agent.socket, &self.agent.config, more)
    }

    fn check_stored(&self, more: &[&str]) -> Line {
        let store = self.env.store();
        check(&[&["--node", &self.env.node, "--store", &store], more].concat())
    }
}

fn an_agent_is_checked_over_its_socket() {
    let cluster = Cluster::start("");
    let line = cluster.check(&AMPLE);
    assert_eq!(line.state, "OK", "{line:?}");
    let names: Vec<&str> = line.data.keys().map(String::as_str).collect();
    assert_eq!(names, ["age", "backlog", "cpu", "late", "loss", "memory"]);
    let memory = &line.data["memory"];
    // The kernel's own figure, which moves a little.
    let status = std::fs::read_to_string(format!("/proc/{}/status", cluster.agent.daemon.pid())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let resident_kib: f64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    let ratio = memory.value.unwrap() / (resident_kib * 1024.0);
    assert!((0.5..2.0).contains(&ratio), "{memory:?}, {resident}");
    // The budgets of the configuration, and those of the user.
    assert_eq!(memory.fields, ["67108864", "134217728", "0", ""]);
    assert_eq!(line.data["cpu"].fields, ["~:", "~:", "0", ""]);
    // The configuration of the test has another budget of CPU time than the usual one.
    assert_eq!(cluster.check(&[]).data["cpu"].fields, ["100", "200", "0", ""]);

    let inside = cluster.check(&[&AMPLE[..], &["-w", "memory=@1:"]].concat());
    assert_eq!(inside.state, "WARNING", "{inside:?}");
    assert!(inside.text.contains("memory (range @1:)"), "{inside:?}");
    let outside = cluster.check(&[&AMPLE[..], &["-w", "memory=@1:", "-c", "memory=1:2"]].concat());
    assert_eq!(outside.state, "CRITICAL", "{outside:?}");

    let Cluster { agent, collector, env } = cluster;
    collector.terminate();
    wait_until("the agent notices it", || agent.status()["collector"]["connected"] == false);
    let line = check_agent(&agent.socket, &agent.config, &AMPLE);
    assert_eq!(line.state, "WARNING", "{line:?}");
    assert!(line.text.contains("NOT connected"), "{line:?}");
    agent.daemon.kill();
    let line = check_agent(&agent.socket, &agent.config, &AMPLE);
    drop(env);
    assert_eq!((line.state, line.data.len()), ("CRITICAL", 0), "{line:?}");
    assert!(line.text.contains("cannot reach the agent"), "{line:?}");
}

fn an_agent_is_checked_by_what_is_stored() {
    let cluster = Cluster::start("");
    wait_until("the store has figures of the agent", || {
        let line = cluster.check_stored(&AMPLE);
        line.state == "OK" && line.data.values().all(|datum| datum.value.is_some())
    });
    let line = cluster.check_stored(&AMPLE);
    let resident = cluster.agent.count("resident_bytes");
    let ratio = line.data["memory"].value.unwrap() / resident as f64;
    assert!((0.5..2.0).contains(&ratio), "{line:?}, {resident}");
    let unknown = check(&["--node", "nowhere", "--store", &cluster.env.store()]);
    assert_eq!(unknown.state, "CRITICAL", "{unknown:?}");
    let Cluster { agent, collector, env } = cluster;
    agent.daemon.terminate();
    let store = env.store();
    wait_until("its session has ended", || {
        let line = check(&["--node", &env.node, "--store", &store]);
        line.state == "CRITICAL" && line.text.contains("it ended")
    });
    // It is older than the thresholds from some time on.
    let aged = check(&["--node", &env.node, "--store", &store, "-w", "age=0.001"]);
    assert!(aged.text.contains("(range 0.001)"), "{aged:?}");
    collector.terminate();
}

fn a_collector_is_checked_by_its_pages() {
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let cluster = Cluster::start(&format!("metrics_listen = \"{address}\"\n"));
    let line = check(&["--collector", &address]);
    assert_eq!(line.state, "OK", "{line:?}");
    let names: Vec<&str> = line.data.keys().map(String::as_str).collect();
    assert_eq!(names, ["age", "queue", "queue_bytes"]);
    assert!(line.data["age"].value.unwrap() < 60.0, "{line:?}");
    let config = cluster.env.path("collector.toml");
    let line = check(&["--collector", "--collector-config", config.to_str().unwrap(), "-w", "age=~:"]);
    assert!(line.state == "OK" && line.text.contains(&address), "{line:?}");
    let line = check(&["--collector", &address, "-c", "queue=1:"]);
    assert!(matches!(line.state, "OK" | "CRITICAL"), "{line:?}");
    let Cluster { agent, collector, env } = cluster;
    agent.daemon.terminate();
    collector.terminate();
    let line = check(&["--collector", &address]);
    assert!(line.state == "CRITICAL" && line.text.contains("cannot reach it"), "{line:?}");
    drop(env);
}

fn what_cannot_be_found_out_is_unknown() {
    let line = check(&["--nonsense"]);
    assert!(line.state == "UNKNOWN" && line.text.contains("--nonsense"), "{line:?}");
    let line = check(&["--warning", "age=20:10"]);
    assert!(line.state == "UNKNOWN" && line.text.contains("20:10"), "{line:?}");
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("collector.toml");
    std::fs::write(&config, "").unwrap();
    let line = check(&["--collector", "--collector-config", config.to_str().unwrap()]);
    assert!(line.state == "UNKNOWN" && line.text.contains("metrics_listen"), "{line:?}");
    let line = check(&["--node", "n1", "--store", "sqlite:/nowhere/store.db"]);
    assert_eq!(line.state, "UNKNOWN", "{line:?}");
}
