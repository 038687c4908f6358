//! The configuration file.

use std::path::Path;

use polymeter_proto::series::Identifier;
use polymeter_service::document::{Faults, Reporter, Section, read_text};

use super::key_settings;
use super::model::{AgentConfig, EXAMPLE, Limits};
use super::rules::{cgroup_rule, layer, patterns, rule};
use super::values::{absolute, bytes, bytes_or_off, endpoint, order, path_or_off, period_or_off, visibility};

/// The most processes of one job that may have series of their own at a time: each has five.
const BUSIEST_PROCESSES_MAX: u64 = 64;

impl AgentConfig {
    /// Returns the configuration of an agent without a file, and the defaults of one with a file: those of the example.
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
        self.take_connection(&mut root, &mut reporter);
        self.take_sampling(&mut root, &mut reporter);
        self.take_access(&mut root, &mut reporter);
        self.take_plan(&mut root, &mut reporter);
        if let Some(limits) = root.section("limits", &mut reporter) {
            take_limits(&mut self.limits, limits, &mut reporter);
        }
        root.finish(&mut reporter);
        reporter.into_faults().into_result(self)
    }

    /// Takes the keys of the agent's identity and of the connection to the collector.
    fn take_connection(&mut self, root: &mut Section<'_>, reporter: &mut Reporter<'_>) {
        if let Some(node) = root.parse("node", reporter, |text| Identifier::try_from(text)) {
            self.node = Some(node);
        }
        if let Some(cluster) = root.parse("cluster", reporter, |text| Identifier::try_from(text)) {
            self.cluster = Some(cluster);
        }
        self.take_collectors(root, reporter);
        if let Some(interval) = root.parse("flush_interval", reporter, str::parse) {
            self.flush_interval = interval;
        }
        if let Some(bytes) = root.parse("outbox_bytes", reporter, bytes) {
            self.outbox_bytes = bytes;
        }
        if let Some(bytes) = root.parse("keep_acknowledged", reporter, bytes_or_off) {
            self.keep_acknowledged_bytes = bytes;
        }
        if let Some(spool) = root.parse("spool", reporter, absolute) {
            self.spool = Some(spool);
        }
        if let Some(bytes) = root.parse("spool_bytes", reporter, bytes) {
            self.spool_bytes = bytes as u64;
        }
        if let Some(level) = root.parse("log_level", reporter, str::parse) {
            self.log_level = level;
        }
        if let Some(format) = root.parse("log_format", reporter, str::parse) {
            self.log_format = format;
        }
    }

    /// Takes the collectors and their keys.
    fn take_collectors(&mut self, root: &mut Section<'_>, reporter: &mut Reporter<'_>) {
        if let Some(collectors) = root.one_or_more("collector", reporter, endpoint) {
            self.collectors = collectors;
        }
        if let Some(order) = root.parse("collector_order", reporter, order) {
            self.collector_order = order;
        }
        if let Some(after) = root.parse("collector_return", reporter, period_or_off) {
            self.collector_return = after;
        }
        self.keys = key_settings::take(root, self.collectors.len(), reporter);
    }

    /// Takes the keys of sampling.
    fn take_sampling(&mut self, root: &mut Section<'_>, reporter: &mut Reporter<'_>) {
        if let Some(directory) = root.parse("root", reporter, absolute) {
            self.root = directory;
        }
        if let Some(priority) = root.integer("realtime_priority", reporter, 0..=50) {
            self.realtime_priority = u8::try_from(priority).ok().filter(|priority| *priority > 0);
        }
        if let Some(limit) = root.integer("perf_fd_limit", reporter, 0..=1_000_000) {
            self.perf_fd_limit = usize::try_from(limit).unwrap_or(usize::MAX);
        }
        if let Some(count) = root.integer("busiest_processes", reporter, 0..=BUSIEST_PROCESSES_MAX) {
            self.busiest_processes = usize::try_from(count).unwrap_or_default();
        }
        if let Some(ebpf) = root.boolean("ebpf", reporter) {
            self.ebpf = ebpf;
        }
        if let Some(texts) = root.strings("jobs", reporter) {
            self.jobs = patterns(texts, reporter);
        }
        if let Some(interval) = root.parse("rescan_interval", reporter, str::parse) {
            self.rescan_interval = interval;
        }
    }

    /// Takes the keys of access control.
    fn take_access(&mut self, root: &mut Section<'_>, reporter: &mut Reporter<'_>) {
        if let Some(socket) = root.parse("control_socket", reporter, path_or_off) {
            self.control_socket = socket;
        }
        if let Some(remote_control) = root.boolean("remote_control", reporter) {
            self.remote_control = Some(remote_control);
        }
        for (name, span) in root.strings("administrators", reporter).unwrap_or_default() {
            match Identifier::try_from(name.strip_prefix('@').unwrap_or(&name)) {
                Ok(_) => self.administrators.push(name),
                Err(error) => reporter.fault(&span, format_args!("`administrators`: {error}")),
            }
        }
        if let Some(visibility) = root.parse("job_visibility", reporter, visibility) {
            self.job_visibility = visibility;
        }
    }

    /// Takes the sections of the plan.
    fn take_plan(&mut self, root: &mut Section<'_>, reporter: &mut Reporter<'_>) {
        if let Some(baseline) = root.section("baseline", reporter) {
            self.baseline = layer(baseline, rule, reporter);
        }
        for (name, part) in [("steps", &mut self.steps), ("tasks", &mut self.tasks)] {
            if let Some(section) = root.section(name, reporter) {
                *part = layer(section, cgroup_rule, reporter);
            }
        }
    }
}

fn take_limits(limits: &mut Limits, mut section: Section<'_>, reporter: &mut Reporter<'_>) {
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
