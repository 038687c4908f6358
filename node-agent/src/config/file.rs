//! The configuration file.

use std::path::Path;

use polymeter_proto::series::{Identifier, InvalidIdentifier};
use polymeter_service::document::{Faults, Reporter, Section, Span, read_text};

use super::key_settings;
use super::model::{AgentConfig, EXAMPLE, Limits};
use super::rules::{cgroup_rule, layer, patterns, rule};
use super::values::{absolute, bytes, bytes_or_off, endpoint, order, path_or_off, period_or_off, visibility};

/// The most processes of one job that may have series of their own at a time: each has five.
const BUSIEST_PROCESSES_MAX: u64 = 64;

impl AgentConfig {
    /// Returns the configuration of an agent without a file, and the defaults of one with a file: those of
    /// the example.
    pub fn standard() -> Self {
        // The test `example_is_valid_and_samples_metrics` proves that the fallback is never used.
        Self::default().with(Path::new("agent.toml"), EXAMPLE).unwrap_or_default()
    }

    /// Reads the configuration file at `path`.
    ///
    /// # Errors
    /// Returns all faults, if the file cannot be read or has any.
    pub fn load(path: &Path) -> Result<Self, Faults> {
        Self::parse(path, &read_text(path)?)
    }

    /// Parses `text`, the contents of the configuration file at `path`.
    ///
    /// # Errors
    /// Returns all faults, each with its line.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Faults> {
        Self::standard().with(path, text)
    }

    fn with(mut self, path: &Path, text: &str) -> Result<Self, Faults> {
        let mut reporter = Reporter::new(path, text);
        let mut root = reporter.root();
        for key in KEYS {
            (key.take)(&mut self, &mut root, &mut reporter);
        }
        root.finish(&mut reporter);
        reporter.into_faults().into_result(self)
    }

    /// Takes over the values of `wanted` that can change in a running agent. Returns the keys with other
    /// values.
    pub fn update(&mut self, wanted: &Self) -> Changes {
        let mut changes = Changes::default();
        for key in KEYS {
            if !(key.differs)(self, wanted) {
                continue;
            }
            match key.change {
                Change::AtOnce => {
                    (key.copy)(self, wanted);
                    changes.at_once.push(key.name);
                }
                Change::AtRestart => changes.at_restart.push(key.name),
            }
        }
        changes
    }
}

/// The names of changed keys.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Those that a running agent takes over.
    pub at_once: Vec<&'static str>,
    /// Those that keep their values until the agent is restarted.
    pub at_restart: Vec<&'static str>,
}

/// The time at which a changed value takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// When the configuration is reloaded.
    AtOnce,
    AtRestart,
}

/// A key of the file, or a section, or keys that depend on each other: the parser and the rule of reloading.
#[derive(Debug)]
struct Key {
    name: &'static str,
    change: Change,
    take: fn(&mut AgentConfig, &mut Section<'_>, &mut Reporter<'_>),
    differs: fn(&AgentConfig, &AgentConfig) -> bool,
    copy: fn(&mut AgentConfig, &AgentConfig),
}

/// Declares the keys, each with its time of change, its name, its field, and the expression that takes it
/// from the file.
macro_rules! keys {
    (|$config:ident, $root:ident, $key:ident, $reporter:ident|
     $($change:ident $name:literal => $field:ident: $take:expr;)*) => {
        &[$(Key {
            name: $name,
            change: Change::$change,
            take: |$config, $root, $reporter| {
                let $key = $name;
                if let Some(value) = $take {
                    $config.$field = value;
                }
            },
            differs: |one, other| one.$field != other.$field,
            copy: |to, from| to.$field.clone_from(&from.$field),
        }),*]
    };
}

/// All keys, in the order of the example.
#[allow(unused_variables, reason = "keys that depend on each other are taken together, by their own names")]
const KEYS: &[Key] = keys! { |config, root, key, reporter|
    AtRestart "node" => node: root.parse(key, reporter, identifier);
    AtOnce "cluster" => cluster: root.parse(key, reporter, identifier);
    AtRestart "collector" => collectors: root.one_or_more(key, reporter, endpoint);
    AtRestart "collector_order" => collector_order: root.parse(key, reporter, order);
    AtRestart "collector_return" => collector_return: root.parse(key, reporter, period_or_off);
    AtRestart "key, collector_key" => keys: Some(key_settings::take(root, config.collectors.len(), reporter));
    AtRestart "flush_interval" => flush_interval: root.parse(key, reporter, str::parse);
    AtRestart "outbox_bytes" => outbox_bytes: root.parse(key, reporter, bytes);
    AtRestart "keep_acknowledged" => keep_acknowledged_bytes: root.parse(key, reporter, bytes_or_off);
    AtRestart "spool" => spool: root.parse(key, reporter, |text| absolute(text).map(Some));
    AtRestart "spool_bytes" => spool_bytes: root.parse(key, reporter, bytes).map(|bytes| bytes as u64);
    AtOnce "log_level" => log_level: root.parse(key, reporter, str::parse);
    AtOnce "log_format" => log_format: root.parse(key, reporter, str::parse);
    AtRestart "root" => root: root.parse(key, reporter, absolute);
    AtRestart "realtime_priority" => realtime_priority: root.integer(key, reporter, 0..=50).map(priority);
    AtOnce "perf_fd_limit" => perf_fd_limit: root.integer(key, reporter, 0..=1_000_000).map(count);
    AtOnce "busiest_processes" => busiest_processes:
        root.integer(key, reporter, 0..=BUSIEST_PROCESSES_MAX).map(count);
    AtOnce "ebpf" => ebpf: root.boolean(key, reporter);
    AtOnce "jobs" => jobs: root.strings(key, reporter).map(|texts| patterns(texts, reporter));
    AtOnce "rescan_interval" => rescan_interval: root.parse(key, reporter, str::parse);
    AtRestart "control_socket" => control_socket: root.parse(key, reporter, path_or_off);
    AtRestart "remote_control" => remote_control: root.boolean(key, reporter).map(Some);
    AtOnce "administrators" => administrators:
        root.strings(key, reporter).map(|names| administrators(names, reporter));
    AtOnce "job_visibility" => job_visibility: root.parse(key, reporter, visibility);
    AtOnce "baseline" => baseline: root.section(key, reporter).map(|section| layer(section, rule, reporter));
    AtOnce "steps" => steps: root.section(key, reporter).map(|section| layer(section, cgroup_rule, reporter));
    AtOnce "tasks" => tasks: root.section(key, reporter).map(|section| layer(section, cgroup_rule, reporter));
    AtOnce "limits" => limits:
        root.section(key, reporter).map(|section| limits(config.limits.clone(), section, reporter));
};

fn identifier(text: &str) -> Result<Option<Identifier>, InvalidIdentifier> {
    Identifier::try_from(text).map(Some)
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Returns a `SCHED_FIFO` priority; 0 stands for none.
fn priority(number: u64) -> Option<u8> {
    u8::try_from(number).ok().filter(|priority| *priority > 0)
}

/// Checks the names of users, and of groups with a leading `@`.
fn administrators(names: Vec<(String, Span)>, reporter: &mut Reporter<'_>) -> Vec<String> {
    let mut valid = Vec::new();
    for (name, span) in names {
        match Identifier::try_from(name.strip_prefix('@').unwrap_or(&name)) {
            Ok(_) => valid.push(name),
            Err(error) => reporter.fault(&span, format_args!("`administrators`: {error}")),
        }
    }
    valid
}

fn limits(mut limits: Limits, mut section: Section<'_>, reporter: &mut Reporter<'_>) -> Limits {
    if let Some(period) = section.parse("shortest_period", reporter, str::parse) {
        limits.shortest_period = period;
    }
    if let Some(periods) = section.section("shortest_periods", reporter) {
        limits.shortest_periods = layer(periods, rule, reporter);
    }
    if let Some(period) = section.parse("longest_lease", reporter, str::parse) {
        limits.longest_lease = period;
    }
    if let Some(samples) = section.integer("samples_per_second", reporter, 1..=100_000_000) {
        limits.samples_per_second = samples;
    }
    if let Some(percent) = section.integer("job_cpu_percent", reporter, 1..=100) {
        limits.job_cpu_percent = percent;
    }
    if let Some(percent) = section.integer("node_cpu_percent", reporter, 1..=100) {
        limits.node_cpu_percent = percent;
    }
    section.finish(reporter);
    limits
}

#[cfg(test)]
mod tests {
    use super::super::model::JobVisibility;
    use super::*;
    use crate::plan::Layer;

    fn parse(text: &str) -> Result<AgentConfig, Faults> {
        AgentConfig::parse(Path::new("agent.toml"), text)
    }

    fn first_fault(text: &str) -> String {
        parse(text).unwrap_err().0.remove(0).to_string()
    }

    #[test]
    fn defaults_are_those_of_the_example() {
        assert_eq!(parse("").unwrap(), parse(EXAMPLE).unwrap());
        let nothing = parse("jobs = []\n[baseline]\n").unwrap();
        assert_eq!(nothing, AgentConfig::default());
    }

    #[test]
    fn example_is_valid_and_samples_metrics() {
        let example = parse(EXAMPLE).unwrap();
        assert!(!example.baseline.is_empty());
        assert!(!example.jobs.is_empty());
        assert_eq!(
            AgentConfig { baseline: Layer::default(), jobs: Vec::new(), ..example },
            AgentConfig::default()
        );
    }

    #[test]
    fn every_commented_key_of_the_example_is_valid() {
        let is_setting = |line: &&str| {
            let key = line.split(" = ").next().unwrap_or_default();
            line.contains(" = ") && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        };
        let commented = EXAMPLE.lines().take_while(|line| !line.starts_with('['));
        let settings: Vec<&str> =
            commented.filter_map(|line| line.strip_prefix("# ")).filter(is_setting).collect();
        assert!(settings.len() > 10, "{settings:?}");
        parse(&settings.join("\n")).unwrap();
    }

    #[test]
    fn a_running_agent_takes_over_what_can_change() {
        let mut running = parse("node = 'n1'\nkey = '/k'\ncollector_key = '/c'\n").unwrap();
        let started = running.clone();
        assert_eq!(running.update(&started), Changes::default());
        let text =
            "node = 'n2'\ncluster = 'lab'\nspool = '/s'\njobs = []\n[limits]\nlongest_lease = '1min'\n";
        let wanted = parse(text).unwrap();
        let changes = running.update(&wanted);
        assert_eq!(changes.at_once, ["cluster", "jobs", "limits"]);
        assert_eq!(changes.at_restart, ["node", "key, collector_key", "spool"]);
        assert_eq!(
            running,
            AgentConfig { node: started.node, keys: started.keys, spool: None, ..wanted.clone() }
        );
        assert_eq!(running.update(&wanted).at_once, [""; 0], "what was taken over has not changed");
    }

    #[test]
    fn the_example_has_every_key_and_the_rule_of_reloading() {
        let is_stated = |key: &str| {
            let line = |line: &str| line.trim_start_matches("# ").starts_with(&format!("{key} = "));
            EXAMPLE.lines().any(|text| line(text) || text.trim_start_matches("# ") == format!("[{key}]"))
        };
        for key in KEYS.iter().flat_map(|key| key.name.split(", ")) {
            assert!(is_stated(key), "the example lacks {key}");
        }
        let head: Vec<&str> =
            EXAMPLE.lines().map_while(|line| line.strip_prefix('#')).map(str::trim).collect();
        let head = head.join(" ");
        let (_, rule) = head.split_once("SIGHUP reloads it: ").unwrap();
        let (stated, _) = rule.split_once(" change at once").unwrap();
        let mut stated: Vec<&str> =
            stated.split([' ', ',']).filter(|word| !word.is_empty() && *word != "and").collect();
        stated.sort_unstable();
        let is_section = |name: &&str| ["baseline", "limits", "steps", "tasks"].contains(name);
        let written = |name| if is_section(&name) { format!("[{name}]") } else { name.to_owned() };
        let at_once = KEYS.iter().filter(|key| key.change == Change::AtOnce);
        let mut expected: Vec<String> = at_once.map(|key| written(key.name)).collect();
        expected.sort_unstable();
        assert_eq!(stated, expected);
    }

    #[test]
    fn parses_values() {
        let config = parse(
            "node = \"n1\"\ncollector = \"ipc:///run/c\"\nflush_interval = \"100ms\"\noutbox_bytes = \"1MiB\"\nrealtime_priority = 0\ncontrol_socket = \"off\"\njobs = [\"slurm/uid_{uid}/job_{job}\"]\n[baseline]\n\"cpu.*\" = \"1s\"\nmemory.current = \"5s\"\n",
        );
        // TOML reads an unquoted dotted key as a table, which is no period.
        let faults = config.unwrap_err();
        assert_eq!(
            faults.to_string(),
            "agent.toml:10: `memory`: expected a period in quotes, such as \"10ms\", or \"off\""
        );
        let config = parse("node = \"n1\"\nrealtime_priority = 0\ncontrol_socket = \"off\"\nlog_level = 'debug'\nlog_format = 'json'\n[baseline]\n\"cpu.*\" = \"1s\"\n\"cpu.user\" = \"off\"\n").unwrap();
        assert_eq!((config.realtime_priority, config.control_socket), (None, None));
        assert_eq!(config.baseline.rules().len(), 2);
        assert_eq!(
            (config.log_level.to_string().as_str(), config.log_format),
            ("debug", polymeter_service::log::Format::Json)
        );
    }

    #[test]
    fn steps_and_tasks_accept_metrics_of_cgroups_only() {
        let config = parse("[steps]\n\"cpu.*\" = \"5s\"\n[tasks]\n\"*\" = \"1min\"\n").unwrap();
        assert_eq!((config.steps.rules().len(), config.tasks.rules().len()), (1, 1));
        for wrong in ["process.io.read.bytes", "node.load1"] {
            let fault = first_fault(&format!("[steps]\n\"cpu.*\" = \"5s\"\n\"{wrong}\" = \"1s\"\n"));
            assert!(fault.starts_with("agent.toml:3: "), "{fault}");
        }
    }

    #[test]
    fn remote_control_requires_a_known_collector() {
        let accepts = |text: &str| parse(text).unwrap().accepts_remote_control();
        assert!(accepts("") && accepts("collector = \"ipc:///run/c\"\n"));
        assert!(!accepts("remote_control = false\n"));
        assert!(!accepts("collector = \"tcp://10.0.0.1:7717\"\n"));
        assert!(accepts("collector = \"tcp://10.0.0.1:7717\"\nremote_control = true\n"));
        assert!(accepts("collector = \"tcp://10.0.0.1:7717\"\nkey = \"/k\"\ncollector_key = \"/c\"\n"));
    }

    #[test]
    fn shortest_periods_apply_per_metric() {
        let text = "administrators = [\"alice\", \"@hpc\"]\njob_visibility = \"all\"\n[limits]\nshortest_period = \"10ms\"\n[limits.shortest_periods]\n\"perf.*\" = \"1s\"\n\"cpu.usage\" = \"1ms\"\n";
        let config = parse(text).unwrap();
        let shortest = |metric: &str| config.limits.shortest_period(metric).to_string();
        assert_eq!(shortest("perf.page_faults"), "1s");
        assert_eq!(shortest("cpu.usage"), "1ms");
        assert_eq!(shortest("cpu.user"), "10ms");
        assert_eq!((config.administrators.len(), config.job_visibility), (2, JobVisibility::All));
        assert!(parse("job_visibility = \"none\"\nadministrators = [\"@\"]\n").unwrap_err().0.len() == 2);
    }

    #[test]
    fn all_faults_are_reported_with_their_lines() {
        let text = "nod = \"n1\"\nflush_interval = \"1 s\"\noutbox_bytes = 5\ncollector = \"http://x\"\njobs = [\"a/b\", \"x/{job}\", \"x/{job}\"]\nrealtime_priority = 99\nremote_control = 1\nlog_level = \"loud\"\n[baseline]\n\"cpu.usge\" = \"1s\"\n\"memory.*\" = \"fast\"\n\"Cpu\" = \"1s\"\n";
        let faults = parse(text).unwrap_err();
        let lines: Vec<String> = faults.0.iter().map(ToString::to_string).collect();
        let expected = [
            (1, "unknown key `nod`; did you mean `node`?"),
            (2, "`1 s`"),
            (3, "expected a string in quotes, found an integer"),
            (4, "invalid endpoint `http://x`"),
            (5, "expected exactly one of {job}"),
            (5, "`x/{job}` is listed twice"),
            (6, "a whole number from 0 to 50"),
            (7, "expected true or false"),
            (8, "unknown log level `loud`"),
            (10, "did you mean `cpu.usage`?"),
            (11, "`fast`"),
            (12, "invalid selector `Cpu`"),
        ];
        assert_eq!(lines.len(), expected.len(), "{lines:#?}");
        for ((line, message), found) in expected.iter().zip(&lines) {
            assert!(found.starts_with(&format!("agent.toml:{line}: ")) && found.contains(message), "{found}");
        }
    }

    #[test]
    fn invalid_toml_is_reported_with_the_rest() {
        let faults = parse("node = \nflush_interval = \"x\"\n").unwrap_err();
        assert!(faults.0.len() >= 2, "{faults}");
    }
}
