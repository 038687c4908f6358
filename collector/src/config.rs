//! What was said on the command line and in a file, and what is meant by it.
//!
//! All faults are found before anything is opened, and reported together.

mod clock;
mod control;
mod endpoint;
mod file;
mod security;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;

pub use self::clock::{Reach, SaidClock};
pub use self::control::SaidControl;
pub use self::endpoint::Endpoint;
pub use self::file::Said;
pub use self::security::SaidSecurity;
use crate::control::ControlConfig;
use crate::ingest::TimeRange;
use crate::keys::KeyFiles;
use polymeter_store::{StoreUrl, TimescaleMode};

/// Where agents reach a collector for which nothing else is said.
pub const LISTEN: &str = "tcp://127.0.0.1:7717";

/// Where the configuration is looked for.
pub const DEFAULT_PATH: &str = "/etc/polymeter/collector.toml";

/// The store of a collector for which nothing else is said.
pub const STORE: &str = "sqlite:polymeter.db";

/// What a collector is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The ZeroMQ endpoint to bind.
    pub listen: String,
    /// Where the samples go.
    pub store: StoreUrl,
    /// Whether TimescaleDB is used where the store is PostgreSQL.
    pub timescaledb: TimescaleMode,
    /// How many writers work side by side, at least one. SQLite has one in any case.
    pub writers: usize,
    /// How long samples may wait for others, to be committed with them.
    pub commit_interval: Duration,
    /// How many samples are committed together at most, but for the frame that goes beyond it.
    pub commit_rows: usize,
    /// The silence after which an agent's session, and the jobs that it followed, count as ended.
    pub silent_after: Duration,
    /// When samples may be dated, and what becomes of others.
    pub clock: TimeRange,
    /// Where users ask for changes of whole jobs.
    pub control: ControlConfig,
    /// Where the keys are; none for connections without encryption.
    pub keys: Option<KeyFiles>,
    /// Whether an agent may speak only for the node that its key is named after.
    pub bind_node_to_key: bool,
    /// Where the collector's own metrics are served; none for nowhere.
    pub metrics: Option<SocketAddr>,
}

impl Config {
    /// What is meant when only the endpoint and the store are said.
    pub fn new(listen: impl Into<String>, store: StoreUrl) -> Self {
        Self {
            listen: listen.into(),
            store,
            timescaledb: TimescaleMode::default(),
            writers: 2,
            commit_interval: Duration::from_secs(1),
            commit_rows: 50_000,
            silent_after: crate::limits::SILENT_AFTER,
            clock: TimeRange::default(),
            control: ControlConfig::default(),
            keys: None,
            bind_node_to_key: true,
            metrics: None,
        }
    }
}

/// All that is wrong in a configuration file whose text this is.
pub fn check(path: &Path, text: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    file::parse(path, text, &mut faults);
    faults
}

/// Takes samples from Polymeter's agents and stores each of them once.
#[derive(Debug, Parser)]
#[command(name = "polymeter-collector", version)]
pub struct Arguments {
    /// The endpoint that agents connect to, such as tcp://0.0.0.0:7717 or ipc:///run/polymeter/collector.
    #[arg(long, value_name = "ENDPOINT")]
    listen: Option<String>,
    /// Where the samples go: sqlite:PATH, postgres://USER@HOST/DATABASE, or words such as
    /// "host=/run/postgresql dbname=polymeter".
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// Whether TimescaleDB is used: auto, off, require.
    #[arg(long, value_name = "WHEN")]
    timescaledb: Option<String>,
    /// Let other machines connect although nothing is encrypted and nobody is asked who they are.
    #[arg(long)]
    insecure: bool,
    /// A file with these and further settings, which the command line overrides; without it, /etc/polymeter/collector.toml
    /// where that exists.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Only say whether the configuration is valid.
    #[arg(long)]
    pub check: bool,
    /// With --check: as this user, whether it can read the keys and write to the store.
    #[arg(long, value_name = "NAME", requires = "check")]
    pub user: Option<String>,
}

/// Something wrong in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The file and line, or the option.
    pub place: String,
    /// What is wrong, and what is allowed.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// All that is wrong in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Faults {}

impl Arguments {
    /// What is meant by the command line and the file that it names.
    ///
    /// # Errors
    /// All that is wrong in either.
    pub fn resolve(&self) -> Result<Config, Faults> {
        self.resolve_with(Path::new(DEFAULT_PATH))
    }

    /// The same, where the configuration is looked for at `default`.
    fn resolve_with(&self, default: &Path) -> Result<Config, Faults> {
        let mut faults = Vec::new();
        let file = match &self.config {
            Some(path) => file::read(path, &mut faults),
            None if default.exists() => file::read(default, &mut faults),
            None => Said::default(),
        };
        let store = option("--store", self.store.as_deref(), &mut faults).or(file.store);
        let timescaledb =
            option("--timescaledb", self.timescaledb.as_deref(), &mut faults).or(file.timescaledb);
        let listen: Option<Endpoint> =
            option("--listen", self.listen.as_deref(), &mut faults).or(file.listen);
        if let Some(listen) = &listen {
            file.security.check_endpoint(listen, self.listen.is_some(), self.insecure, &mut faults);
        }
        if !faults.is_empty() {
            return Err(Faults(faults));
        }
        let store = match store {
            Some(store) => store,
            None => STORE.parse().map_err(|error| fault("the default store", &error))?,
        };
        let listen = listen.map_or_else(|| LISTEN.to_owned(), |listen| listen.to_string());
        let meant = Config::new(listen, store);
        Ok(Config {
            timescaledb: timescaledb.unwrap_or(meant.timescaledb),
            writers: file.writers.unwrap_or(meant.writers),
            commit_interval: file.commit_interval.unwrap_or(meant.commit_interval),
            commit_rows: file.commit_rows.unwrap_or(meant.commit_rows),
            silent_after: file.silent_after.unwrap_or(meant.silent_after),
            clock: file.clock.meant(),
            control: file.control.meant(),
            bind_node_to_key: file.security.bind_node_to_key.unwrap_or(meant.bind_node_to_key),
            metrics: file.metrics,
            keys: file.security.keys(),
            ..meant
        })
    }
}

fn fault(place: &str, error: &impl fmt::Display) -> Faults {
    Faults(vec![Fault { place: place.to_owned(), message: error.to_string() }])
}

fn option<T: std::str::FromStr<Err: fmt::Display>>(
    place: &str,
    text: Option<&str>,
    faults: &mut Vec<Fault>,
) -> Option<T> {
    match text?.parse() {
        Ok(value) => Some(value),
        Err(error) => {
            faults.extend(fault(place, &error).0);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::Beyond;

    fn resolve(arguments: &[&str]) -> Result<Config, String> {
        let arguments = std::iter::once(&"polymeter-collector").chain(arguments);
        Arguments::try_parse_from(arguments).unwrap().resolve().map_err(|faults| faults.to_string())
    }

    #[test]
    fn nothing_said_means_one_machine() {
        let config = resolve(&[]).unwrap();
        assert_eq!(config, Config::new("tcp://127.0.0.1:7717", StoreUrl::sqlite("polymeter.db")));
    }

    #[test]
    fn the_file_is_looked_for_where_none_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("collector.toml");
        let resolve = |more: &[&str]| {
            let arguments = std::iter::once(&"polymeter-collector").chain(more);
            Arguments::try_parse_from(arguments).unwrap().resolve_with(&path)
        };
        assert_eq!(resolve(&[]).unwrap().writers, 2);
        std::fs::write(&path, "writers = 3\nstore = 'sqlite:a.db'\n").unwrap();
        assert_eq!(resolve(&[]).unwrap().writers, 3);
        let config = resolve(&["--store", "sqlite:b.db"]).unwrap();
        assert_eq!((config.writers, config.store), (3, StoreUrl::sqlite("b.db")));
        std::fs::write(&path, "writers = none\n").unwrap();
        assert!(resolve(&["--check"]).unwrap_err().to_string().contains("collector.toml:1: "));
    }

    #[test]
    fn the_example_says_what_is_meant_anyway() {
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/collector.toml");
        let config = resolve(&["--config", example]).unwrap();
        assert_eq!(config, Config::new(LISTEN, config.store.clone()));
    }

    #[test]
    fn the_command_line_goes_before_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("collector.toml");
        std::fs::write(
            &path,
            "listen = 'tcp://0.0.0.0:1'\ninsecure = true\nstore = 'sqlite:a.db'\ncommit_interval = '100ms'\nwriters = 3\n",
        )
        .unwrap();
        let config = resolve(&["--config", path.to_str().unwrap(), "--store", "sqlite:b.db"]).unwrap();
        assert_eq!(config.listen, "tcp://0.0.0.0:1");
        assert_eq!(config.store, StoreUrl::sqlite("b.db"));
        assert_eq!((config.writers, config.commit_interval), (3, Duration::from_millis(100)));
    }

    #[test]
    fn other_machines_are_let_in_with_keys_or_on_request_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("collector.toml");
        let resolve = |text: &str, more: &[&str]| {
            std::fs::write(&path, text).unwrap();
            self::resolve(&[&["--config", path.to_str().unwrap()], more].concat())
        };
        let open = "listen = 'tcp://10.1.2.3:7717'\n";
        let said = resolve(open, &[]).unwrap_err();
        assert!(said.contains("polymeter keygen") && said.contains("insecure = true"), "{said}");
        assert!(said.starts_with(&format!("{}:1: ", path.display())), "{said}");
        assert!(resolve(open, &["--insecure"]).is_ok());
        assert!(resolve("", &["--listen", "tcp://*:7717"]).unwrap_err().starts_with("--listen: "));
        let keys = "key = '/k'\nauthorised_agents = '/a'\n";
        let config = resolve(&format!("{open}{keys}"), &[]).unwrap();
        assert_eq!(config.keys, Some(KeyFiles { key: "/k".into(), authorised_agents: "/a".into() }));
        assert!(config.bind_node_to_key);
        for alone in ["\nkey = '/k'\n", "\nauthorised_agents = '/a'\n"] {
            let said = resolve(alone, &[]).unwrap_err();
            assert!(said.starts_with(&format!("{}:2: ", path.display())), "{said}");
            assert!(said.contains("`key`") && said.contains("`authorised_agents`"), "{said}");
        }
    }

    #[test]
    fn every_fault_is_reported_with_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("collector.toml");
        let text = "listen = 'here'\nstores = 'sqlite:a.db'\n\nwriters = 0\ncommit_interval = '1 s'\ncommit_rows = true\ntimescaledb = 'maybe'\ninsecure = 1\nmetrics = 'here'\n";
        std::fs::write(&path, text).unwrap();
        let faults = resolve(&["--config", path.to_str().unwrap(), "--store", "mysql:x"]).unwrap_err();
        for (line, part) in [
            (1, "tcp://ADDRESS:PORT"),
            (2, "`stores` is not known; known are"),
            (4, "from 1 to"),
            (5, "100us to 1d"),
            (6, "from 1 to"),
            (7, "auto, off, require"),
            (8, "true or false"),
            (9, "127.0.0.1:9717"),
        ] {
            let place = format!("collector.toml:{line}: ");
            assert!(
                faults.lines().any(|fault| fault.contains(&place) && fault.contains(part)),
                "{place} {part}: {faults}"
            );
        }
        assert!(faults.contains("--store: "), "{faults}");
        assert_eq!(faults.lines().count(), 9, "{faults}");
    }

    #[test]
    fn the_times_of_samples_are_bounded_as_said() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("collector.toml");
        let of = |text: &str| {
            std::fs::write(&path, text).unwrap();
            resolve(&["--config", path.to_str().unwrap()]).map(|config| config.clock)
        };
        assert_eq!(of("[clock]\n").unwrap(), TimeRange::default());
        let range = of("[clock]\nahead = '5min'\nbehind = '30d'\nbeyond = 'apart'\n").unwrap();
        let (ahead, behind) = (Duration::from_secs(300), Duration::from_secs(30 * 86_400));
        assert_eq!(range, TimeRange { ahead, behind, beyond: Beyond::Apart });
        for (text, line, part) in [
            ("clock = '1d'\n", 1, "a section [clock]"),
            ("[clock]\nahead = '1y'\n", 2, "from 1s to 3660d"),
            ("[clock]\nbeyond = 'keep'\n", 2, "none of refuse, apart"),
            ("[clock]\nback = '1d'\n", 2, "not known in [clock]; known are ahead, behind, beyond"),
        ] {
            let faults = of(text).unwrap_err();
            assert!(
                faults.contains(&format!("collector.toml:{line}: ")) && faults.contains(part),
                "{faults}"
            );
        }
    }

    #[test]
    fn a_file_that_is_no_toml_or_not_there_is_a_fault() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("collector.toml");
        std::fs::write(&path, "listen = 'tcp://*:1'\nwriters = = 2\n").unwrap();
        assert!(resolve(&["--config", path.to_str().unwrap()]).unwrap_err().contains("collector.toml:2: "));
        assert!(
            resolve(&["--config", "/nowhere/collector.toml"])
                .unwrap_err()
                .contains("/nowhere/collector.toml")
        );
    }

    #[test]
    fn whoever_can_be_reached_from_elsewhere_must_know_who_asks() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("collector.toml");
        let of = |text: &str| {
            std::fs::write(&path, text).unwrap();
            resolve(&["--config", path.to_str().unwrap()]).map(|config| config.control)
        };
        assert_eq!(of("control_socket = 'off'\nauth = 'none'\n").unwrap(), ControlConfig::default());
        let requests = of("control_requests = '/var/lib/r'\n").unwrap().requests;
        assert_eq!(requests, Some("/var/lib/r".into()));
        let control = of("control_socket = '/run/c'\ncontrol = 'tcp://[::]:7718'\nauth = 'munge'\n").unwrap();
        let network = control.network.unwrap();
        assert_eq!((control.socket, network.address.as_str()), (Some("/run/c".into()), "[::]:7718"));
        assert_eq!(network.unmunge.program, std::path::Path::new("/usr/bin/unmunge"));
        for (text, part) in [
            (
                "auth = 'none'\ncontrol = 'tcp://[::]:7718'\n",
                "collector.toml:2: `control` needs `auth = \"munge\"`",
            ),
            ("control = 'tcp://*:7718'\n", "write tcp://ADDRESS:PORT"),
            ("control_socket = 'c'\n", "no absolute path"),
            ("auth = 'password'\n", "none, munge"),
        ] {
            let faults = of(text).unwrap_err();
            assert!(faults.contains(part), "{text}: {faults}");
        }
    }
}
