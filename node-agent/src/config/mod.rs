//! The agent's configuration: what `agent.toml` says, and what it means.

mod document;
mod keys;
mod rules;
mod values;

use std::fmt;
use std::path::{Path, PathBuf};

use polymeter_proto::endpoint;
use polymeter_proto::period::Period;
use polymeter_proto::series::Identifier;

pub use document::{Fault, Faults};
use document::{Reporter, Section};
pub use rules::{RuleError, rule};
use rules::{layer, part_rule, patterns};
pub use values::endpoint;
use values::{absolute, bytes, look, socket};

use crate::cgroups::Pattern;
use crate::keys::KeyFiles;
use crate::plan::Layer;

/// Where the configuration is looked for.
pub const DEFAULT_PATH: &str = "/etc/polymeter/agent.toml";

/// Where the collector is looked for.
pub const DEFAULT_COLLECTOR: &str = "tcp://127.0.0.1:7717";

/// The example configuration, which says the defaults.
pub const EXAMPLE: &str = include_str!("../../../deploy/agent.toml");

/// What the agent does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The node's name in the data; none for the host's name.
    pub node: Option<Identifier>,
    /// The cluster whose jobs run here, for jobs of which nobody says.
    pub cluster: Option<Identifier>,
    /// Where frames go: a ZeroMQ endpoint.
    pub collector: String,
    /// Where the keys are; none for a connection without encryption.
    pub keys: Option<KeyFiles>,
    /// The directory below which `/sys` and `/proc` are.
    pub root: PathBuf,
    /// How often the samples are sent.
    pub flush: Period,
    /// The most bytes of frames that wait for an acknowledgement.
    pub outbox_bytes: usize,
    /// Where frames go that memory has no room for, and that wait for the next life of the agent; none for nowhere.
    pub spool: Option<PathBuf>,
    /// The most bytes of them.
    pub spool_bytes: u64,
    /// The priority of the sampler's thread and of the lookout's under `SCHED_FIFO`; none for the ordinary policy.
    pub realtime_priority: Option<u8>,
    /// The standing plan for every job, the node and the agent itself.
    pub baseline: Layer,
    /// The standing plan for each step of every job.
    pub steps: Layer,
    /// The standing plan for each task of every step.
    pub tasks: Layer,
    /// Where jobs' cgroups are.
    pub jobs: Vec<Pattern>,
    /// How often jobs are looked for even if inotify is silent.
    pub rescan: Period,
    /// How many descriptors the perf events of one job may take.
    pub perf_descriptors: usize,
    /// The control socket; none for no control.
    pub socket: Option<PathBuf>,
    /// Whether users may ask through the collector, too, where that is said.
    pub remote_control: Option<bool>,
    /// What users may ask for.
    pub limits: Limits,
    /// Who may do all, beside root and the agent's own user: names of users, and of groups behind an `@`.
    pub administrators: Vec<String>,
    /// Whose jobs ordinary users may look at.
    pub look: Look,
    /// Whether the agent ends when it has had nothing to do for a while. No key of the file: whoever starts an agent for
    /// a job says so.
    pub exit_when_idle: bool,
}

/// Whose jobs an ordinary user may look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Look {
    /// Her own.
    #[default]
    Own,
    /// Everybody's, and the node.
    All,
}

/// What users may ask for with a lease; administrators may ask for anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The shortest period, of metrics for which nothing else is said.
    pub shortest_period: Period,
    /// The shortest periods of some metrics.
    pub shortest_periods: Layer,
    /// The longest time.
    pub longest_lease: Period,
    /// Samples per second of one job, its baseline included.
    pub samples_per_second: u64,
    /// Percent of one CPU for one job, its baseline included.
    pub job_cpu_percent: u64,
    /// Percent of one CPU for all that the agent samples.
    pub node_cpu_percent: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            shortest_period: Period::MILLISECOND,
            shortest_periods: Layer::default(),
            longest_lease: Period::HOUR,
            samples_per_second: 200_000,
            job_cpu_percent: 5,
            node_cpu_percent: 20,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            node: None,
            cluster: None,
            collector: DEFAULT_COLLECTOR.to_owned(),
            keys: None,
            root: PathBuf::from("/"),
            flush: Period::SECOND,
            outbox_bytes: 64 * 1024 * 1024,
            spool: None,
            spool_bytes: 1024 * 1024 * 1024,
            realtime_priority: Some(10),
            baseline: Layer::default(),
            steps: Layer::default(),
            tasks: Layer::default(),
            jobs: Vec::new(),
            rescan: Period::SECOND,
            perf_descriptors: 4096,
            socket: Some(PathBuf::from("/run/polymeter/agent.sock")),
            remote_control: None,
            limits: Limits::default(),
            administrators: Vec::new(),
            look: Look::Own,
            exit_when_idle: false,
        }
    }
}

/// Why there is no configuration.
#[derive(Debug)]
pub enum ConfigError {
    /// The file cannot be read.
    Read(PathBuf, std::io::Error),
    /// What it says is wrong.
    Faults(Faults),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Faults(faults) => faults.fmt(f),
        }
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Whether users may ask through the collector. It says who asks and is believed, so that by default it must be known
    /// to be the collector: by its key, or by its place.
    pub fn hears_collector(&self) -> bool {
        self.remote_control.unwrap_or_else(|| self.keys.is_some() || endpoint::is_local(&self.collector))
    }

    /// The configuration of an agent that was given none, and what counts where a file says nothing: what the example says.
    pub fn standard() -> Self {
        // The test `the_example_is_valid_and_samples_something` proves that this never falls back.
        Self::default().with(Path::new("agent.toml"), EXAMPLE).unwrap_or_default()
    }

    /// The configuration in the file at `path`.
    ///
    /// # Errors
    /// When it cannot be read, or says something wrong: then with everything that is wrong.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|error| ConfigError::Read(path.to_owned(), error))?;
        Self::parse(path, &text).map_err(ConfigError::Faults)
    }

    /// The configuration that `text`, which is in the file `path`, says.
    ///
    /// # Errors
    /// All faults together, each with its line.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Faults> {
        Self::standard().with(path, text)
    }

    /// This configuration with what `text` says in its place. A list or a table takes the place of the whole of it.
    fn with(mut self, path: &Path, text: &str) -> Result<Self, Faults> {
        let mut reporter = Reporter::new(path, text);
        let mut top = Section::new("", reporter.parse());
        self.take_top(&mut top, &mut reporter);
        if let Some(baseline) = top.section("baseline", &mut reporter) {
            self.baseline = layer(baseline, rule, &mut reporter);
        }
        for (name, of_parts) in [("steps", &mut self.steps), ("tasks", &mut self.tasks)] {
            if let Some(section) = top.section(name, &mut reporter) {
                *of_parts = layer(section, part_rule, &mut reporter);
            }
        }
        if let Some(limits) = top.section("limits", &mut reporter) {
            self.limits.take(limits, &mut reporter);
        }
        for (name, span) in top.strings("administrators", &mut reporter).unwrap_or_default() {
            match Identifier::try_from(name.strip_prefix('@').unwrap_or(&name)) {
                Ok(_) => self.administrators.push(name),
                Err(error) => reporter.fault(&span, format!("`administrators`: {error}")),
            }
        }
        if let Some(texts) = top.strings("jobs", &mut reporter) {
            self.jobs = patterns(texts, &mut reporter);
        }
        top.finish(&mut reporter);
        reporter.finish().map(|()| self)
    }

    fn take_top(&mut self, top: &mut Section<'_>, reporter: &mut Reporter<'_>) {
        if let Some(node) = top.parse("node", reporter, |text| Identifier::try_from(text)) {
            self.node = Some(node);
        }
        if let Some(cluster) = top.parse("cluster", reporter, |text| Identifier::try_from(text)) {
            self.cluster = Some(cluster);
        }
        if let Some(collector) = top.parse("collector", reporter, endpoint) {
            self.collector = collector;
        }
        self.keys = keys::take(top, reporter);
        if let Some(root) = top.parse("root", reporter, absolute) {
            self.root = root;
        }
        if let Some(socket) = top.parse("socket", reporter, socket) {
            self.socket = socket;
        }
        if let Some(look) = top.parse("look", reporter, look) {
            self.look = look;
        }
        if let Some(remote_control) = top.boolean("remote_control", reporter) {
            self.remote_control = Some(remote_control);
        }
        if let Some(flush) = top.parse("flush", reporter, str::parse) {
            self.flush = flush;
        }
        if let Some(rescan) = top.parse("rescan", reporter, str::parse) {
            self.rescan = rescan;
        }
        if let Some(bytes) = top.parse("outbox", reporter, bytes) {
            self.outbox_bytes = bytes;
        }
        if let Some(spool) = top.parse("spool", reporter, absolute) {
            self.spool = Some(spool);
        }
        if let Some(bytes) = top.parse("spool_bytes", reporter, bytes) {
            self.spool_bytes = bytes as u64;
        }
        if let Some(priority) = top.integer("realtime_priority", reporter, 0..=50) {
            self.realtime_priority = u8::try_from(priority).ok().filter(|priority| *priority > 0);
        }
        if let Some(descriptors) = top.integer("perf_descriptors", reporter, 0..=1_000_000) {
            self.perf_descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
        }
    }
}

impl Limits {
    /// The shortest period that users may ask for of one metric.
    pub fn shortest_period(&self, metric: &str) -> Period {
        self.shortest_periods.period(metric).unwrap_or(self.shortest_period)
    }

    fn take(&mut self, mut section: Section<'_>, reporter: &mut Reporter<'_>) {
        if let Some(period) = section.parse("shortest_period", reporter, str::parse) {
            self.shortest_period = period;
        }
        if let Some(periods) = section.section("shortest_periods", reporter) {
            self.shortest_periods = layer(periods, rule, reporter);
        }
        if let Some(period) = section.parse("longest_lease", reporter, str::parse) {
            self.longest_lease = period;
        }
        if let Some(samples) = section.integer("samples_per_second", reporter, 1..=100_000_000) {
            self.samples_per_second = samples;
        }
        if let Some(percent) = section.integer("job_cpu_percent", reporter, 1..=100) {
            self.job_cpu_percent = percent;
        }
        if let Some(percent) = section.integer("node_cpu_percent", reporter, 1..=100) {
            self.node_cpu_percent = percent;
        }
        section.finish(reporter);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, Faults> {
        Config::parse(Path::new("agent.toml"), text)
    }

    #[test]
    fn what_a_file_does_not_say_is_what_the_example_says() {
        assert_eq!(parse("").unwrap(), parse(EXAMPLE).unwrap());
        let nothing = parse("jobs = []\n[baseline]\n").unwrap();
        assert_eq!(nothing, Config::default());
    }

    #[test]
    fn the_example_is_valid_and_samples_something() {
        let example = parse(EXAMPLE).unwrap();
        assert!(!example.baseline.is_empty());
        assert!(!example.jobs.is_empty());
        assert_eq!(Config { baseline: Layer::default(), jobs: Vec::new(), ..example }, Config::default());
    }

    #[test]
    fn says_what_it_means() {
        let config = parse(
            "node = \"n1\"\ncollector = \"ipc:///run/c\"\nflush = \"100ms\"\noutbox = \"1MiB\"\nrealtime_priority = 0\nsocket = \"off\"\njobs = [\"slurm/uid_{uid}/job_{job}\"]\n[baseline]\n\"cpu.*\" = \"1s\"\nmemory.current = \"5s\"\n",
        );
        // An unquoted dotted key is a table to TOML, and so no period.
        let faults = config.unwrap_err();
        assert_eq!(
            faults.to_string(),
            "agent.toml:10: `memory`: a period is a string in quotes, such as \"10ms\", or \"off\""
        );
        let config = parse("node = \"n1\"\nrealtime_priority = 0\nsocket = \"off\"\n[baseline]\n\"cpu.*\" = \"1s\"\n\"cpu.user\" = \"off\"\n").unwrap();
        assert_eq!((config.realtime_priority, config.socket), (None, None));
        assert_eq!(config.baseline.rules().len(), 2);
    }

    #[test]
    fn parts_of_jobs_have_plans_for_what_their_cgroups_have() {
        let config = parse("[steps]\n\"cpu.*\" = \"5s\"\n[tasks]\n\"*\" = \"1min\"\n").unwrap();
        assert_eq!((config.steps.rules().len(), config.tasks.rules().len()), (1, 1));
        for wrong in ["perf.page_faults", "node.load1"] {
            let faults = parse(&format!("[steps]\n\"cpu.*\" = \"5s\"\n\"{wrong}\" = \"1s\"\n")).unwrap_err();
            assert!(faults.to_string().contains("agent.toml:3: "), "{faults}");
        }
    }

    #[test]
    fn an_unknown_collector_is_not_believed_about_who_asks() {
        let hears = |text: &str| parse(text).unwrap().hears_collector();
        assert!(hears("") && hears("collector = \"ipc:///run/c\"\n"));
        assert!(!hears("remote_control = false\n"));
        assert!(!hears("collector = \"tcp://10.0.0.1:7717\"\n"));
        assert!(hears("collector = \"tcp://10.0.0.1:7717\"\nremote_control = true\n"));
        assert!(hears("collector = \"tcp://10.0.0.1:7717\"\nkey = \"/k\"\ncollector_key = \"/c\"\n"));
    }

    #[test]
    fn floors_are_of_metrics() {
        let text = "administrators = [\"alice\", \"@hpc\"]\nlook = \"all\"\n[limits]\nshortest_period = \"10ms\"\n[limits.shortest_periods]\n\"perf.*\" = \"1s\"\n\"cpu.usage\" = \"1ms\"\n";
        let config = parse(text).unwrap();
        let shortest = |metric: &str| config.limits.shortest_period(metric).to_string();
        assert_eq!(shortest("perf.page_faults"), "1s");
        assert_eq!(shortest("cpu.usage"), "1ms");
        assert_eq!(shortest("cpu.user"), "10ms");
        assert_eq!((config.administrators.len(), config.look), (2, Look::All));
        assert!(parse("look = \"none\"\nadministrators = [\"@\"]\n").unwrap_err().0.len() == 2);
    }

    #[test]
    fn all_faults_come_together_with_their_lines() {
        let text = "nod = \"n1\"\nflush = \"1 s\"\noutbox = 5\ncollector = \"http://x\"\njobs = [\"a/b\", \"x/{job}\", \"x/{job}\"]\nrealtime_priority = 99\nremote_control = 1\n[baseline]\n\"cpu.usge\" = \"1s\"\n\"memory.*\" = \"fast\"\n\"Cpu\" = \"1s\"\n";
        let faults = parse(text).unwrap_err();
        let lines: Vec<String> = faults.0.iter().map(ToString::to_string).collect();
        let expected = [
            (1, "unknown key `nod`"),
            (2, "`1 s` is no period"),
            (3, "must be a string in quotes, and is an integer"),
            (4, "`http://x` is no endpoint"),
            (5, "needs {job} exactly once"),
            (5, "`x/{job}` stands twice"),
            (6, "a whole number from 0 to 50"),
            (7, "it must be true or false"),
            (9, "did you mean `cpu.usage`?"),
            (10, "`fast` is no period"),
            (11, "`Cpu` selects nothing"),
        ];
        assert_eq!(lines.len(), expected.len(), "{lines:#?}");
        for ((line, message), found) in expected.iter().zip(&lines) {
            assert!(found.starts_with(&format!("agent.toml:{line}: ")) && found.contains(message), "{found}");
        }
    }

    #[test]
    fn broken_toml_is_reported_with_the_rest() {
        let faults = parse("node = \nflush = \"x\"\n").unwrap_err();
        assert!(faults.0.len() >= 2, "{faults}");
    }
}
