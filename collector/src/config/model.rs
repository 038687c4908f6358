//! Configuration: its values, their defaults, and the keys that set them.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use polymeter_api::ApiConfig;
use polymeter_proto::period::{InvalidPeriod, Period};
use polymeter_proto::trigger::StragglerRule;
use polymeter_service::keys::Kind::{Flag, Integer, OneOf, Table, Tables, Text, Texts};
use polymeter_service::keys::Stated::{Example, Set, Usual};
use polymeter_service::keys::{Value, docs};
use polymeter_service::users::user_or_group;
use polymeter_service::{keys, log};
use polymeter_store::{ExtensionMode, OpenOptions, Retention, StoreUrl};

use super::endpoint::Endpoint;
use super::value_parsers::{absolute, coarse_duration};
use super::{
    api, control, federation, influx, job_end, notices, otlp, outbound, remote_write, retention, security,
    trigger_tables,
};
use crate::control::ControlConfig;
use crate::federation::FederationConfig;
use crate::ingest::{DeviceAgents, TimeRange};
use crate::job_end::JobEndConfig;
use crate::keys::CollectorKeyFiles;
use crate::limits;
use crate::notices::NoticesConfig;
use crate::roles::RolesConfig;
use crate::sinks::SinkUrl;
use crate::sinks::outbound::OutboundConfig;

pub const DEFAULT_LISTEN: &str = "tcp://127.0.0.1:7717";

/// Used if the command line names no file.
pub const DEFAULT_PATH: &str = "/etc/polymeter/collector.toml";

/// SQLite file of the store if none is configured.
const DEFAULT_STORE: &str = "polymeter.db";

/// More connections do not make a server faster.
const WRITERS_MAX: u64 = 64;

/// Larger transactions take longer than agents should wait for an acknowledgement.
const COMMIT_ROWS_MAX: u64 = 10_000_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectorConfig {
    /// ZeroMQ endpoint for agents.
    pub listen: String,
    pub store: StoreUrl,
    pub timescaledb: ExtensionMode,
    pub citus: ExtensionMode,
    /// At least one. SQLite always has one.
    pub writers: usize,
    /// Longest time that samples wait for a commit.
    pub commit_interval: Duration,
    /// Samples in one commit; a single frame may exceed it.
    pub commit_rows: usize,
    /// Silence after which an agent's session and its jobs count as ended.
    pub session_timeout: Duration,
    /// Accepted times of samples, and the treatment of others.
    pub clock: TimeRange,
    /// How long samples and rollups are kept; none leaves the policy of the store in force.
    pub retention: Option<Retention>,
    pub control: ControlConfig,
    pub roles: RolesConfig,
    /// None for connections without encryption.
    pub keys: Option<CollectorKeyFiles>,
    /// Restricts each agent to the node that its key is named after.
    pub bind_node_to_key: bool,
    /// Agents that may state values about other nodes.
    pub device_agents: DeviceAgents,
    /// Lets other machines connect without keys.
    pub insecure: bool,
    /// Address of the collector's own metrics; none if they are not served.
    pub metrics_listen: Option<SocketAddr>,
    pub sinks: Vec<SinkUrl>,
    /// Receiver of samples by remote_write.
    pub remote_write: Option<OutboundConfig>,
    /// Receiver of samples by InfluxDB's line protocol.
    pub influx: Option<OutboundConfig>,
    /// Receiver of samples by OTLP.
    pub otlp: Option<OutboundConfig>,
    /// Page of the newest values.
    pub federation: Option<FederationConfig>,
    pub job_end: Option<JobEndConfig>,
    pub notices: Option<NoticesConfig>,
    /// Rules about stragglers.
    pub stragglers: Vec<StragglerRule>,
    pub api: Option<ApiConfig>,
    /// Name of this run of the program in the store.
    pub collector_id: Option<String>,
    pub log_level: log::Filter,
    pub log_format: log::Format,
}

impl Default for CollectorConfig {
    fn default() -> Self {
        Self::new(DEFAULT_LISTEN, StoreUrl::sqlite(DEFAULT_STORE))
    }
}

impl CollectorConfig {
    /// Sinks that send to other databases.
    pub(crate) fn senders(&self) -> Vec<OutboundConfig> {
        [&self.remote_write, &self.influx, &self.otlp].into_iter().flatten().cloned().collect()
    }

    /// Defaults for an endpoint and a store.
    pub fn new(listen: impl Into<String>, store: StoreUrl) -> Self {
        Self {
            listen: listen.into(),
            store,
            timescaledb: ExtensionMode::default(),
            citus: ExtensionMode::default(),
            writers: 2,
            commit_interval: Duration::from_secs(1),
            commit_rows: 50_000,
            session_timeout: limits::SESSION_TIMEOUT,
            clock: TimeRange::default(),
            retention: Some(Retention::default()),
            control: ControlConfig::default(),
            roles: RolesConfig::default(),
            keys: None,
            bind_node_to_key: true,
            device_agents: DeviceAgents::default(),
            insecure: false,
            metrics_listen: None,
            sinks: Vec::new(),
            remote_write: None,
            influx: None,
            otlp: None,
            federation: None,
            job_end: None,
            notices: None,
            stragglers: Vec::new(),
            api: None,
            collector_id: None,
            log_level: log::Filter::default(),
            log_format: log::Format::default(),
        }
    }

    pub(crate) fn open_options(&self, may_create: bool) -> OpenOptions {
        OpenOptions {
            timescale: self.timescaledb,
            citus: self.citus,
            later_migrations: &[],
            may_create,
            queues_job_ends: self.job_end.is_some(),
            collector_id: self.collector_id.clone(),
        }
    }
}

/// What the example says before its first key; the rule of reloading follows.
pub const HEAD: &str = "The configuration of Polymeter's collector: /etc/polymeter/collector.toml, unless \
    `--config` names another file.\n\n\
    Every key may be left out. The values in this file, also those behind a `#`, are the defaults, except for \
    `store`. `polymeter-collector --check` reports all faults of this file.";

keys! {
    /// The keys of the file.
    pub const KEYS: CollectorConfig = |config, value|

    /// The endpoint for agents: tcp://ADDRESS:PORT, or ipc://PATH on the same machine. Other machines can
    /// connect only with keys, or with insecure = true.
    "listen": Text("endpoint"), Set("tcp://127.0.0.1:7717")
        => listen = value.parse(Endpoint::from_str).map(|endpoint| endpoint.to_string());

    /// Encryption and authentication: the collector's key file, made by `polymeter keygen --name collector`,
    /// and the directory that contains a file NODE.pub for each node whose agent may connect. Files that are
    /// added or removed count at once. See docs/explanation/security.md.
    "key": Text("path"), Example("/etc/polymeter/collector.key");
    "authorised_agents": Text("path"), Example("/etc/polymeter/agents.d")
        => keys = Some(security::key_files(value));

    /// Accept from an agent only the data of the node that its .pub file is named after.
    "bind_node_to_key": Flag, Set("true") => bind_node_to_key = value.boolean();

    /// The agents whose devices may serve other nodes, and jobs there: names of the agents' nodes, or globs,
    /// "*" for all. "@without-jobs" stands for nodes on which no job has run: root of a compute node cannot
    /// state values about other nodes then. Refused values are counted as lost. See docs/how-to/devices.md.
    "device_agents": Texts, Usual(r#"["@without-jobs"]"#)
        => device_agents = value.list(security::device_agent).map(DeviceAgents::from_iter);

    /// Let other machines connect without keys: data is not encrypted, and agents are not authenticated.
    "insecure": Flag, Set("false"), AT_ONCE => insecure = value.boolean();

    /// The store: sqlite:PATH, postgres://USER@HOST/DATABASE, or keywords as libpq reads them. A new SQLite
    /// file is readable by its owner only; to change that, chmod it while no collector runs. Do not move,
    /// overwrite or delete the file, its -wal or its -shm while a collector runs: the collector would notice,
    /// stop acknowledging, and continue with the file at the path.
    "store": Text("string"), Set("host=/run/postgresql dbname=polymeter user=polymeter")
        => store = value.parse(str::parse);

    /// Use TimescaleDB if the PostgreSQL server has it: auto, off, or require. A store keeps the layout it
    /// was created with.
    "timescaledb": OneOf(&["auto", "off", "require"]), Set("auto") => timescaledb = value.parse(str::parse);

    /// Distribute the samples over the servers of Citus if the database has its extension: auto, off, or
    /// require. A store keeps the layout it was created with, but "require" also distributes the samples of a
    /// store with a partition per day, in one transaction.
    "citus": OneOf(&["auto", "off", "require"]), Set("auto") => citus = value.parse(str::parse);

    /// Further outputs of stored rows, best effort: a sink that is slow or fails loses rows, which are
    /// counted in the metrics, and never delays the store. jsonl:PATH writes JSON lines to a file, a FIFO or
    /// a Unix socket; SIGHUP opens it again after rotation.
    "sinks": Texts, Example(r#"["jsonl:/var/log/polymeter/samples.jsonl"]"#) => sinks = sinks(value);

    /// The Unix socket for users of this machine who change the sampling of their jobs on all nodes, or read
    /// the reports of their jobs, such as "/run/polymeter/collector.sock"; or "off".
    "control_socket": Text("pathOrOff"), Set("off") => control.socket = value.parse(control::path_or_off);

    /// The authentication of users of other machines: "munge", or "none". With "munge": the address for
    /// `polymeter set` and other commands on login nodes, and the command that decodes their credentials.
    "auth": OneOf(&["none", "munge"]), Set("none");
    "control_listen": Text("tcpAddress"), Example("tcp://127.0.0.1:7718");
    "unmunge_path": Text("path"), Usual("/usr/bin/unmunge");
    "munge_socket": Text("path"), Example("/run/munge/munge.socket.2")
        => control.network = Some(control::network(value));

    /// The user that may report how jobs ended (`polymeter job state`), besides root: the user of the
    /// scheduler's controller.
    "scheduler_user": Text("string"), Example("slurm")
        => control.scheduler_user = value.parse(control::user_name).map(Some);

    /// The users, and groups behind an @, that may read the reports of all jobs through control_socket and
    /// control_listen, besides root. Other users read their own jobs.
    "administrators": Texts, Example(r#"["alice", "@hpc-admin"]"#), AT_ONCE
        => roles.administrators = value.list(user_or_group);

    /// Support staff, who read what administrators read, and change nothing but the sampling of their own
    /// jobs; see docs/how-to/roles.md.
    "support": Texts, Example(r#"["@helpdesk"]"#), AT_ONCE => roles.support = value.list(user_or_group);

    /// The managers of accounts or projects, who read the jobs of these, too: ACCOUNT|USER,USER, also with
    /// groups behind an @. The file has the same on each line, as `sacctmgr -nP show account withcoord
    /// format=account,coordinators` prints it; SIGHUP reads it again.
    "managers": Texts, Example(r#"["physics|carol,@physics-pi"]"#), AT_ONCE
        => roles.managers = value.list(str::parse);
    "managers_file": Text("path"), Example("/etc/polymeter/managers"), AT_ONCE
        => roles.managers_file = value.parse(absolute).map(Some);

    /// The number of connections that write in parallel. SQLite always has one.
    "writers": Integer(1, WRITERS_MAX), Set("2") => writers = value.integer();

    /// The longest time that samples wait for a commit, and the most samples of one commit. Agents get an
    /// acknowledgement after it.
    "commit_interval": Text("period"), Set("1s"), AT_ONCE => commit_interval = value.parse(period);
    "commit_rows": Integer(1, COMMIT_ROWS_MAX), Set("50000"), AT_ONCE => commit_rows = value.integer();

    /// The silence after which an agent's session and its jobs count as ended, from 1s to 3660d. An agent
    /// that sends again later, for instance after a network outage, resumes both. A value below 2min ends
    /// sessions of agents that only wait to send again.
    "session_timeout": Text("reach"), Set("5min"), AT_ONCE => session_timeout = value.parse(coarse_duration);

    /// The address of the collector's own metrics, http://ADDRESS:PORT/metrics, for Prometheus. Default: not
    /// served.
    "metrics_listen": Text("address"), Example("127.0.0.1:9717")
        => metrics_listen = value.parse(address).map(Some);

    /// The events to log: off, error, warn, info, debug or trace; also per module, as in
    /// "info,polymeter_collector::writer=debug". The variable POLYMETER_LOG and the option --log override it.
    "log_level": Text("string"), Set("info"), AT_ONCE => log_level = value.parse(str::parse);

    /// The form of log lines: "text" or "json".
    "log_format": OneOf(&["text", "json"]), Set("text"), AT_ONCE => log_format = value.parse(str::parse);

    /// The HTTP API for programs and pages; see docs/reference/api.md. Without this section it is off.
    "api": Table(|| docs(api::KEYS)), Usual("") => api = api::take(value).map(Some);

    /// The command that runs at the end of each job, with the report of `polymeter report --json` on its
    /// standard input. See docs/how-to/job-end.md. Without this section nothing runs.
    "job_end": Table(|| docs(job_end::KEYS)), Usual("") => job_end = job_end::take(value).map(Some);

    /// Notices to the owners of running and ended jobs, by rules. See docs/how-to/notices.md. Without this
    /// section nothing is sent.
    "notices": Table(|| docs(notices::KEYS)), Usual("") => notices = notices::take(value).map(Some);

    /// Triggers that compare the nodes of each job while it runs. When one of at least four nodes is far from
    /// their median, all nodes of the job keep their rings (`[hindsight]` in agent.toml), and it is recorded.
    /// See docs/how-to/triggers.md.
    "trigger": Tables, Example(TRIGGER) => stragglers = trigger_tables::triggers(value);

    /// A receiver of remote_write: Prometheus, VictoriaMetrics, Mimir or Thanos. See
    /// docs/how-to/remote-write.md. Without this section nothing is sent.
    "remote_write": Table(|| outbound::all_docs(remote_write::KEYS)), Usual("")
        => remote_write = remote_write::take(value).map(Some);

    /// An InfluxDB, or another receiver of its line protocol. See docs/how-to/influx.md. Without this section
    /// nothing is sent.
    "influx": Table(|| outbound::all_docs(influx::KEYS)), Usual("") => influx = influx::take(value).map(Some);

    /// A receiver of metrics of OpenTelemetry (OTLP by HTTP), such as its Collector. See docs/how-to/otlp.md.
    /// Without this section nothing is sent.
    "otlp": Table(|| outbound::all_docs(otlp::KEYS)), Usual("") => otlp = otlp::take(value).map(Some);

    /// The page of the newest values of all nodes, for Prometheus. See docs/how-to/federation.md. Without
    /// this section it is not served.
    "federation": Table(|| docs(federation::KEYS)), Usual("")
        => federation = federation::take(value).map(Some);

    /// The accepted difference between a sample's time and its arrival, in whole s, min, h or d, up to 3660d.
    /// Old samples may come from a spool; samples from the future have a wrong clock. Samples out of range
    /// are logged, and either rejected ("reject") or stored in the table samples_quarantine ("quarantine").
    "clock": Table(|| docs(CLOCK)), Set(""), AT_ONCE => clock = value.section(CLOCK, TimeRange::default());

    /// The time for which samples and their summaries are kept, in whole d or y, or "forever"; a coarser
    /// level is not kept for a shorter time than a finer one. Older days are dropped, except for those of
    /// jobs that `polymeter store keep` exempts. Samples that arrive later than `raw` are out of range. Of
    /// several collectors with one store, the last that starts or reloads decides.
    "retention": Table(|| docs(retention::KEYS)), Set(""), AT_ONCE
        => retention = retention::take(value).map(Some);
}

keys! {
    /// The keys of the section `[clock]`: the accepted times of samples.
    const CLOCK: TimeRange = |range, value|

    "max_age": Text("reach"), Set("366d") => max_age = value.parse(coarse_duration);
    "max_skew": Text("reach"), Set("1d") => max_skew = value.parse(coarse_duration);
    "out_of_range": OneOf(&["reject", "quarantine"]), Set("reject") => out_of_range = value.parse(str::parse);
}

fn period(text: &str) -> Result<Duration, InvalidPeriod> {
    text.parse().map(|period: Period| Duration::from_nanos(period.as_nanos()))
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_invalid| {
        format!("invalid address `{text}`: expected ADDRESS:PORT, such as \"127.0.0.1:9717\"")
    })
}

const TRIGGER: &str = r#"# name = "straggler"
# when = "straggler(cpu.usage)" # below 95 % of the median for 15 s; or "straggler(cpu.usage) < 80% for 1min"
# keep = "30s" # before the instant, and 5 s after it
# notice = true # logs it
# hold_off = "1min"
# firings = 5 # for each job and day"#;

/// A repeated URL is a fault, since each row would be written twice.
fn sinks(mut value: Value<'_, '_, '_>) -> Option<Vec<SinkUrl>> {
    let mut sinks: Vec<SinkUrl> = Vec::new();
    for (text, span) in value.strings()? {
        match text.parse() {
            Ok(sink) if sinks.contains(&sink) => {
                value.reporter.fault(&span, format_args!("`sinks`: `{sink}` is listed twice"));
            }
            Ok(sink) => sinks.push(sink),
            Err(reason) => value.reporter.fault(&span, format_args!("`sinks`: {reason}")),
        }
    }
    Some(sinks)
}
