//! Command line of `polymeter-collector`, and its combination with the file.

use std::path::{Path, PathBuf};

use clap::Parser;
use polymeter_service::document::Faults;
use polymeter_service::log;
use polymeter_store::ExtensionMode;

use super::endpoint::Endpoint;
use super::file::File;
use super::model::{CollectorConfig, DEFAULT_PATH};
use super::security;

/// Polymeter's collector: receives samples from agents and stores each of them once.
#[derive(Debug, Parser)]
#[command(name = "polymeter-collector", version)]
#[command(
    after_help = "Exit status: 0 stopped as requested, 1 failed, 2 invalid command line, configuration or keys, 3 cannot \
    open an endpoint or the store.\n\
    Signals: SIGHUP reloads the configuration; SIGTERM and SIGINT stop the collector."
)]
pub struct CollectorArguments {
    /// The endpoint for agents, such as tcp://0.0.0.0:7717 or ipc:///run/polymeter/collector.
    #[arg(long, value_name = "ENDPOINT")]
    listen: Option<String>,
    /// The store: sqlite:PATH, postgres://USER@HOST/DATABASE, or keywords such as
    /// "host=/run/postgresql dbname=polymeter".
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// The use of TimescaleDB: auto, off, or require.
    #[arg(long, value_name = "MODE")]
    timescaledb: Option<String>,
    /// The use of Citus: auto, off, or require.
    #[arg(long, value_name = "MODE")]
    citus: Option<String>,
    /// Let other machines connect without encryption and authentication.
    #[arg(long)]
    insecure: bool,
    /// The configuration file, which the command line overrides [default: /etc/polymeter/collector.toml if it
    /// exists].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the configuration, report all faults, and exit.
    #[arg(long)]
    pub check: bool,
    /// With --check: also test, as this user, whether the keys can be read and the store be written.
    #[arg(long, value_name = "NAME", requires = "check")]
    pub user: Option<String>,
    /// With --check: also connect to the store, and test whether it can be used.
    #[arg(long, requires = "check")]
    pub connect: bool,
    /// The events to log: off, error, warn, info, debug or trace, also per module
    /// (info,polymeter_collector::writer=debug); overrides `log_level` and the variable POLYMETER_LOG.
    #[arg(long, value_name = "FILTER")]
    log: Option<log::Filter>,
    /// The form of log lines, text or json; overrides `log_format`.
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<log::Format>,
}

impl CollectorArguments {
    /// Combines the configuration of the command line with the file that it names. Fails with all faults of
    /// both.
    pub fn resolve(&self) -> Result<CollectorConfig, Faults> {
        self.resolve_with(Path::new(DEFAULT_PATH))
    }

    /// Reads the file at `default` if the command line names none.
    fn resolve_with(&self, default: &Path) -> Result<CollectorConfig, Faults> {
        let mut faults = Faults::default();
        let File { mut config, mut listen_place } = match &self.config {
            Some(path) => File::read(path, &mut faults),
            None if default.exists() => File::read(default, &mut faults),
            None => File::default(),
        };
        if let Some(text) = &self.listen {
            let listen: Option<Endpoint> = faults.parse_option("--listen", Some(text));
            config.listen = listen.map_or(config.listen, |listen| listen.to_string());
            "--listen".clone_into(&mut listen_place);
        }
        let store = faults.parse_option("--store", self.store.as_deref());
        config.store = store.unwrap_or(config.store);
        let timescaledb = faults.parse_option("--timescaledb", self.timescaledb.as_deref());
        config.timescaledb = timescaledb.unwrap_or(config.timescaledb);
        config.citus = faults.parse_option("--citus", self.citus.as_deref()).unwrap_or(config.citus);
        config.insecure |= self.insecure;
        config.log_level = log::resolve_filter(self.log.as_ref(), config.log_level);
        config.log_format = self.log_format.unwrap_or(config.log_format);
        if [config.timescaledb, config.citus] == [ExtensionMode::Require; 2] {
            faults.add(
                "citus",
                "`timescaledb` and `citus` are both `require`, and do not work together in one database; set one of them to `off`",
            );
        }
        let is_permitted = config.insecure || config.keys.is_some();
        security::check_endpoint(&config.listen, is_permitted, &listen_place, &mut faults);
        faults.into_result(config)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use polymeter_service::keys::{Kind, Stated, docs};
    use polymeter_store::{Retention, StoreUrl};

    use super::super::outbound::all_docs;
    use super::super::{DEFAULT_LISTEN, api, federation, influx, job_end, notices, otlp, remote_write};
    use super::*;
    use crate::control::ControlConfig;
    use crate::ingest::{OutOfRangePolicy, TimeRange};
    use crate::job_end::JobEndConfig;
    use crate::keys::CollectorKeyFiles;

    fn resolve(arguments: &[&str]) -> Result<CollectorConfig, String> {
        let arguments = std::iter::once(&"polymeter-collector").chain(arguments);
        CollectorArguments::try_parse_from(arguments).unwrap().resolve().map_err(|faults| faults.to_string())
    }

    /// Resolves a file with the given contents, and further arguments.
    fn resolver() -> impl Fn(&str, &[&str]) -> Result<CollectorConfig, String> {
        let directory = tempfile::tempdir().unwrap();
        move |text: &str, more: &[&str]| {
            let path = directory.path().join("collector.toml");
            std::fs::write(&path, text).unwrap();
            resolve(&[&["--config", path.to_str().unwrap()], more].concat())
        }
    }

    #[test]
    fn defaults_are_for_one_machine() {
        let config = resolve(&[]).unwrap();
        assert_eq!(config, CollectorConfig::new("tcp://127.0.0.1:7717", StoreUrl::sqlite("polymeter.db")));
    }

    #[test]
    fn default_file_is_read_if_it_exists() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("collector.toml");
        let resolve = |more: &[&str]| {
            let arguments = std::iter::once(&"polymeter-collector").chain(more);
            CollectorArguments::try_parse_from(arguments).unwrap().resolve_with(&path)
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
    fn example_states_the_defaults() {
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/collector.toml");
        let config = resolve(&["--config", example]).unwrap();
        assert_eq!(config, CollectorConfig::new(DEFAULT_LISTEN, config.store.clone()));
    }

    #[test]
    fn the_example_states_the_usual_values() {
        let resolve = resolver();
        for (head, docs) in [
            ("auth = 'munge'\ncontrol_listen = 'tcp://[::]:1'\n", docs(super::super::KEYS)),
            ("[api]\nlisten = '/run/api.sock'\n", docs(api::KEYS)),
            ("[job_end]\ncommand = ['/c']\n", docs(job_end::KEYS)),
            ("[notices]\nactions = []\n", docs(notices::KEYS)),
            ("[remote_write]\nurl = 'http://x/'\n", all_docs(remote_write::KEYS)),
            ("[influx]\nurl = 'http://x/'\n", all_docs(influx::KEYS)),
            ("[federation]\n", docs(federation::KEYS)),
            ("[otlp]\nurl = 'http://x/'\n", all_docs(otlp::KEYS)),
        ] {
            let usual = docs.iter().flat_map(|doc| doc.keys).filter(|key| {
                matches!(key.stated, Stated::Usual(_))
                    && !matches!(key.kind, Kind::Table(_))
                    && !head.contains(key.name)
            });
            let lines = usual.map(|key| format!("{} = {}\n", key.name, key.toml()));
            let text = lines.fold(head.to_owned(), |text, line| text + &line);
            assert!(text.len() > head.len());
            assert_eq!(resolve(&text, &[]), resolve(head, &[]), "{text}");
            assert!(resolve(head, &[]).is_ok());
        }
    }

    #[test]
    fn a_file_that_every_user_can_read_has_no_password() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("collector.toml");
        let resolve = |store: &str, mode: u32| {
            std::fs::write(&path, format!("store = 'host=h user=u dbname=d {store}'\n")).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            resolve(&["--config", path.to_str().unwrap()]).map(|_| ())
        };
        let error = resolve("password=secret", 0o644).unwrap_err();
        assert!(error.contains("chmod o=") && !error.contains("secret"), "{error}");
        assert_eq!(resolve("password=secret", 0o640), Ok(()));
        assert_eq!(resolve("passfile=/etc/polymeter/pgpass", 0o644), Ok(()));
    }

    #[test]
    fn command_line_overrides_the_file() {
        let resolve = resolver();
        let text = "listen = 'tcp://0.0.0.0:1'\ninsecure = true\nstore = 'sqlite:a.db'\ncommit_interval = '100ms'\nwriters = 3\nlog_level = 'warn'\n";
        let config = resolve(text, &["--store", "sqlite:b.db", "--log-format", "json"]).unwrap();
        assert_eq!(config.listen, "tcp://0.0.0.0:1");
        assert_eq!(config.store, StoreUrl::sqlite("b.db"));
        assert_eq!((config.writers, config.commit_interval), (3, Duration::from_millis(100)));
        assert_eq!((config.log_level.to_string().as_str(), config.log_format), ("warn", log::Format::Json));
        assert_eq!(resolve(text, &["--log", "debug"]).unwrap().log_level.to_string(), "debug");
    }

    #[test]
    fn other_machines_need_keys_or_permission() {
        let resolve = resolver();
        let open = "listen = 'tcp://10.1.2.3:7717'\n";
        let fault = resolve(open, &[]).unwrap_err();
        assert!(fault.contains("polymeter keygen") && fault.contains("insecure = true"), "{fault}");
        assert!(fault.contains("collector.toml:1: "), "{fault}");
        assert!(resolve(open, &["--insecure"]).is_ok());
        assert!(resolve("", &["--listen", "tcp://*:7717"]).unwrap_err().starts_with("--listen: "));
        let keys = "key = '/k'\nauthorised_agents = '/a'\n";
        let config = resolve(&format!("{open}{keys}"), &[]).unwrap();
        assert_eq!(config.keys, Some(CollectorKeyFiles { key: "/k".into(), authorised_agents: "/a".into() }));
        assert!(config.bind_node_to_key);
        for alone in ["\nkey = '/k'\n", "\nauthorised_agents = '/a'\n"] {
            let fault = resolve(alone, &[]).unwrap_err();
            assert!(fault.contains("collector.toml:2: "), "{fault}");
            assert!(fault.contains("`key`") && fault.contains("`authorised_agents`"), "{fault}");
        }
    }

    #[test]
    fn all_faults_are_reported_with_their_places() {
        let text = "listen = 'here'\nstores = 'sqlite:a.db'\n\nwriters = 0\ncommit_interval = '1 s'\ncommit_rows = true\ntimescaledb = 'maybe'\ninsecure = 1\nmetrics_listen = 'here'\nlog_format = 'xml'\n";
        let faults = resolver()(text, &["--store", "mysql:x"]).unwrap_err();
        for (line, part) in [
            (1, "tcp://ADDRESS:PORT"),
            (2, "unknown key `stores`; did you mean `store`?"),
            (4, "from 1 to"),
            (5, "`commit_interval`"),
            (6, "from 1 to"),
            (7, "`auto`, `off` or `require`"),
            (8, "true or false"),
            (9, "127.0.0.1:9717"),
            (10, "text or json"),
        ] {
            let place = format!("collector.toml:{line}: ");
            assert!(
                faults.lines().any(|fault| fault.contains(&place) && fault.contains(part)),
                "{place} {part}: {faults}"
            );
        }
        assert!(faults.contains("--store: "), "{faults}");
        assert_eq!(faults.lines().count(), 10, "{faults}");
    }

    #[test]
    fn times_of_samples_are_configurable() {
        let resolve = resolver();
        let clock = |text: &str| resolve(text, &[]).map(|config| config.clock);
        assert_eq!(clock("[clock]\n").unwrap(), TimeRange::default());
        let range =
            clock("[clock]\nmax_skew = '5min'\nmax_age = '30d'\nout_of_range = 'quarantine'\n").unwrap();
        let (max_skew, max_age) = (Duration::from_secs(300), Duration::from_secs(30 * 86_400));
        assert_eq!(range, TimeRange { max_skew, max_age, out_of_range: OutOfRangePolicy::Quarantine });
        for (text, line, part) in [
            ("clock = '1d'\n", 1, "a section [clock]"),
            ("[clock]\nmax_skew = '1y'\n", 2, "from 1s to 3660d"),
            ("[clock]\nout_of_range = 'keep'\n", 2, "expected `reject` or `quarantine`"),
            ("[clock]\nback = '1d'\n", 2, "in [clock]; known keys are max_age, max_skew, out_of_range"),
        ] {
            let faults = clock(text).unwrap_err();
            let place = format!("collector.toml:{line}: ");
            assert!(faults.contains(&place) && faults.contains(part), "{faults}");
        }
    }

    #[test]
    fn retention_is_configurable() {
        let resolve = resolver();
        let retention = |text: &str| resolve(text, &[]).map(|config| config.retention.unwrap());
        assert_eq!(retention("[retention]\n").unwrap(), Retention::default());
        let of = retention("[retention]\nraw = '30d'\n10s = '60d'\n1min = '2y'\n1h = '10y'\n").unwrap();
        let days = [of.samples, of.ten_seconds, of.minute, of.hour].map(|keep| keep.days());
        assert_eq!(days, [Some(30), Some(60), Some(730), Some(3650)]);
        for (text, line, part) in [
            ("retention = '1d'\n", 1, "a section [retention]"),
            ("[retention]\nraw = '12h'\n", 2, "from 1d to 100y, or forever"),
            ("[retention]\nsamples = '9d'\n", 2, "in [retention]; known keys are raw, 10s, 1min, 1h"),
            (
                "\n[retention]\nraw = '1y'\n",
                2,
                "`10s` is kept for a shorter time (90d) than `raw` (1y); set `10s` to 1y or longer",
            ),
        ] {
            let faults = retention(text).unwrap_err();
            let place = format!("collector.toml:{line}: ");
            assert!(faults.contains(&place) && faults.contains(part), "{faults}");
        }
    }

    #[test]
    fn the_api_is_configurable_and_open_to_other_machines_only_on_purpose() {
        use polymeter_api::{ApiConfig, Listen, Proxy};
        let resolve = resolver();
        let api = |text: &str| resolve(&format!("[api]\n{text}"), &[]).map(|config| config.api);
        assert_eq!((api(""), api("listen = 'off'\n")), (Ok(None), Ok(None)));
        let usual = ApiConfig::new(Listen::Unix("/run/api.sock".into()));
        assert_eq!(api("listen = '/run/api.sock'\n"), Ok(Some(usual.clone())));
        let text = "listen = '/run/api.sock'\ntrusted_proxies = ['user:www-data', '192.0.2.0/24']\nuser_header = 'X-User'\nserver_names = ['meter.example']\nreaders = 2\nquery_timeout = '30s'\nuser_requests = 3\nuser_requests_per_second = 4\nuser_bytes_per_second = 5000\nstreams = 6\nuser_streams = 7\n";
        let config = api(text).unwrap().unwrap();
        let proxies = ["user:www-data", "192.0.2.0/24"].map(|proxy| proxy.parse::<Proxy>().unwrap());
        assert_eq!((config.trusted_proxies, config.user_header.as_str()), (proxies.to_vec(), "X-User"));
        assert_eq!(config.server_names, ["meter.example"]);
        let limits = config.limits;
        assert_eq!(
            (limits.readers, limits.query_timeout, limits.user_requests),
            (2, Duration::from_secs(30), 3)
        );
        assert_eq!((limits.user_requests_per_second, limits.user_bytes_per_second), (4, 5000));
        assert_eq!((limits.streams, limits.user_streams), (6, 7));
        let remote = "listen = '0.0.0.0:7719'\ninsecure = true\ntrusted_proxies = ['192.0.2.1']\n";
        assert!(api(remote).unwrap().is_some());
        for (text, line, part) in [
            ("listen = 'localhost:7719'\n", 2, "127.0.0.1:7719"),
            ("listen = '0.0.0.0:7719'\n", 2, "`insecure = true`"),
            ("listen = '0.0.0.0:7719'\ninsecure = true\n", 2, "`trusted_proxies`"),
            ("trusted_proxies = ['proxy.example']\n", 2, "user:NAME"),
            ("user_header = 'a b'\n", 2, "name of a header"),
            ("user_header = 'Authorization'\n", 2, "name of a header"),
            ("server_names = ['http://meter.example']\n", 2, "without a port"),
            ("server_names = ['meter.example:80']\n", 2, "without a port"),
            ("readers = 0\n", 2, "from 1 to"),
            ("tokens = 1\n", 2, "unknown key `tokens` in [api]"),
        ] {
            let faults = api(text).unwrap_err();
            assert!(
                faults.contains(&format!("collector.toml:{line}: ")) && faults.contains(part),
                "{faults}"
            );
        }
    }

    #[test]
    fn the_command_at_the_end_of_jobs_is_configurable() {
        let resolve = resolver();
        let job_end = |text: &str| resolve(text, &[]).map(|config| config.job_end);
        assert_eq!(job_end(""), Ok(None));
        let usual = JobEndConfig::new("/c");
        assert_eq!(job_end("[job_end]\ncommand = ['/c']\n"), Ok(Some(usual.clone())));
        let of = job_end(
            "[job_end]\ncommand = ['/c', '-x', '']\ntimeout = '5s'\nconcurrent = 8\nqueue = 7\ndelay = '1min'\nadvice = '/a'\n",
        );
        let expected = JobEndConfig {
            arguments: vec!["-x".to_owned(), String::new()],
            timeout: Duration::from_secs(5),
            concurrent: 8,
            queue: 7,
            delay: Duration::from_secs(60),
            advice: "/a".into(),
            ..usual
        };
        assert_eq!(of, Ok(Some(expected)));
        for (text, line, part) in [
            ("[job_end]\ntimeout = '5s'\n", 1, "missing `command`"),
            ("[job_end]\ncommand = []\n", 2, "expected an absolute path"),
            ("[job_end]\ncommand = ['c']\n", 2, "expected an absolute path, found `c`"),
            ("[job_end]\ncommand = ['/c', \"a\\u0000\"]\n", 2, "NUL"),
            ("[job_end]\ncommand = ['/c']\ntimeout = '2h'\n", 3, "from 1s to 1h"),
            ("[job_end]\ncommand = ['/c']\nconcurrent = 0\n", 3, "from 1 to 64"),
            ("[job_end]\ncommand = ['/c']\ncomand = 1\n", 3, "did you mean `command`?"),
            ("job_end = '/c'\n", 1, "a section [job_end]"),
        ] {
            let faults = job_end(text).unwrap_err();
            let place = format!("collector.toml:{line}: ");
            assert!(faults.contains(&place) && faults.contains(part), "{text}: {faults}");
        }
    }

    #[test]
    fn invalid_and_missing_files_are_faults() {
        let fault = resolver()("listen = 'tcp://*:1'\nwriters = = 2\n", &[]).unwrap_err();
        assert!(fault.contains("collector.toml:2: "), "{fault}");
        let fault = resolve(&["--config", "/nowhere/collector.toml"]).unwrap_err();
        assert!(fault.contains("/nowhere/collector.toml"), "{fault}");
    }

    #[test]
    fn control_from_other_machines_requires_authentication() {
        let resolve = resolver();
        let control = |text: &str| resolve(text, &[]).map(|config| config.control);
        assert_eq!(control("control_socket = 'off'\nauth = 'none'\n").unwrap(), ControlConfig::default());
        let config =
            control("control_socket = '/run/c'\ncontrol_listen = 'tcp://[::]:7718'\nauth = 'munge'\n")
                .unwrap();
        let network = config.network.unwrap();
        assert_eq!((config.socket, network.address.as_str()), (Some("/run/c".into()), "[::]:7718"));
        assert_eq!(network.unmunge.program, Path::new("/usr/bin/unmunge"));
        for (text, part) in [
            (
                "auth = 'none'\ncontrol_listen = 'tcp://[::]:7718'\n",
                "collector.toml:2: `control_listen`: requires `auth = \"munge\"`",
            ),
            ("control_listen = 'tcp://*:7718'\n", "expected tcp://ADDRESS:PORT"),
            ("control_socket = 'c'\n", "expected an absolute path"),
            ("auth = 'password'\n", "unknown auth method `password`: expected `none` or `munge`"),
        ] {
            let faults = control(text).unwrap_err();
            assert!(faults.contains(part), "{text}: {faults}");
        }
    }
}
