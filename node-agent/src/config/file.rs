//! Configuration file.

use std::path::Path;

use polymeter_service::document::{Faults, Reporter, read_text};
use polymeter_service::keys::{self, Changes};

use super::model::{AgentConfig, EXAMPLE, KEYS};
use crate::sources::outside::DeviceSettings;

impl AgentConfig {
    /// Configuration of an agent without a file, and the defaults of one with a file: those of the example.
    pub fn standard() -> Self {
        // The test `example_is_valid_and_samples_metrics` proves that the fallback is never used.
        Self::default().with(Path::new("agent.toml"), EXAMPLE).unwrap_or_default()
    }

    /// Reads the configuration file at `path`. The error holds all faults.
    pub fn load(path: &Path) -> Result<Self, Faults> {
        Self::parse(path, &read_text(path)?)
    }

    /// Parses `text`, the contents of the configuration file at `path`. The error holds all faults, each with
    /// its line.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Faults> {
        Self::standard().with(path, text)
    }

    fn with(mut self, path: &Path, text: &str) -> Result<Self, Faults> {
        let mut reporter = Reporter::new(path, text);
        let root = reporter.root();
        keys::read(KEYS, &mut self, root, &mut reporter);
        let periods = self.devices.iter().flat_map(DeviceSettings::periods);
        self.baseline = self.baseline.with_devices(periods);
        reporter.into_faults().into_result(self)
    }

    /// Takes over the values of `wanted` that can change in a running agent. Returns the keys with other
    /// values.
    pub fn update(&mut self, wanted: &Self) -> Changes {
        keys::update(KEYS, self, wanted)
    }
}

#[cfg(test)]
mod tests {
    use polymeter_service::keys::{Kind, Stated};

    use super::super::model::LIMITS;
    use super::super::value_parsers::JobVisibility;
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
        let commented = EXAMPLE.lines().take_while(|line| !line.starts_with('['));
        let settings: Vec<&str> = commented
            .filter_map(|line| line.strip_prefix("# "))
            .filter(|line| {
                let key = line.split(" = ").next().unwrap_or_default();
                line.contains(" = ") && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
            })
            .collect();
        assert!(settings.len() > 10, "{settings:?}");
        parse(&settings.join("\n")).unwrap();
    }

    #[test]
    fn the_example_states_the_usual_values() {
        for (head, docs) in [("", keys::docs(KEYS)), ("[limits]\n", keys::docs(LIMITS))] {
            let usual: Vec<_> = docs
                .iter()
                .flat_map(|doc| doc.keys)
                .filter(|key| {
                    matches!(key.stated, Stated::Usual(_))
                        && !matches!(key.kind, Kind::Table(_) | Kind::Periods | Kind::Tables)
                })
                .collect();
            let lines = usual.iter().map(|key| format!("{} = {}\n", key.name, key.toml()));
            let text = lines.fold(head.to_owned(), |text, line| text + &line);
            assert!(usual.len() > 3, "{text}");
            assert_eq!(parse(&text).unwrap(), AgentConfig::standard(), "{text}");
        }
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
        for key in KEYS.iter().flat_map(|setting| setting.doc.keys) {
            let (value, section) = (format!("{} = ", key.name), format!("[{}]", key.name));
            let sections = format!("[{section}]");
            let mut lines = EXAMPLE.lines().map(|line| line.trim_start_matches("# "));
            let is_stated = lines.any(|line| line.starts_with(&value) || line == section || line == sections);
            assert!(is_stated, "the example lacks {}", key.name);
        }
        let head: Vec<&str> =
            EXAMPLE.lines().map_while(|line| line.strip_prefix('#')).map(str::trim).collect();
        let head = head.join(" ");
        let (_, rule) = head.split_once("SIGHUP reloads it: ").unwrap();
        let (stated, _) = rule.split_once(" change at once").unwrap();
        let mut stated: Vec<&str> =
            stated.split([' ', ',']).filter(|word| !word.is_empty() && *word != "and").collect();
        stated.sort_unstable();
        let at_once = KEYS.iter().filter(|setting| setting.doc.changes_at_once);
        let mut expected: Vec<String> = at_once
            .flat_map(|setting| setting.doc.keys)
            .map(|key| match key.name {
                "trigger" => "[[trigger]]".to_owned(),
                "device" => "[[device]]".to_owned(),
                section @ ("baseline" | "limits" | "steps" | "tasks") => format!("[{section}]"),
                name => name.to_owned(),
            })
            .collect();
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
