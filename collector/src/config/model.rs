//! The resolved configuration.

use std::net::SocketAddr;
use std::time::Duration;

use polymeter_api::ApiConfig;
use polymeter_service::log;
use polymeter_store::{ExtensionMode, OpenOptions, Retention, StoreUrl};

use crate::control::ControlConfig;
use crate::ingest::TimeRange;
use crate::job_end::JobEndConfig;
use crate::keys::CollectorKeyFiles;
use crate::limits;
use crate::sinks::SinkUrl;
use crate::sinks::remote_write::RemoteWriteConfig;

/// The endpoint for agents if none is configured.
pub const DEFAULT_LISTEN: &str = "tcp://127.0.0.1:7717";

/// The path of the configuration file if the command line names none.
pub const DEFAULT_PATH: &str = "/etc/polymeter/collector.toml";

/// The store if none is configured.
pub const DEFAULT_STORE: &str = "sqlite:polymeter.db";

/// The collector's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectorConfig {
    /// The ZeroMQ endpoint for agents.
    pub listen: String,
    /// The store of the samples.
    pub store: StoreUrl,
    /// The use of TimescaleDB in a PostgreSQL store.
    pub timescaledb: ExtensionMode,
    /// The use of Citus in a PostgreSQL store.
    pub citus: ExtensionMode,
    /// The number of writers, at least one. SQLite always has one.
    pub writers: usize,
    /// The longest time that samples wait for a commit.
    pub commit_interval: Duration,
    /// The maximum number of samples in one commit; a single frame may exceed it.
    pub commit_rows: usize,
    /// The silence after which an agent's session and its jobs count as ended.
    pub session_timeout: Duration,
    /// The accepted times of samples, and the treatment of others.
    pub clock: TimeRange,
    /// The time for which samples and rollups are kept; none leaves the policy of the store in force.
    pub retention: Option<Retention>,
    /// The endpoints for control requests of users.
    pub control: ControlConfig,
    /// The key files; none for connections without encryption.
    pub keys: Option<CollectorKeyFiles>,
    /// Restricts each agent to the node that its key is named after.
    pub bind_node_to_key: bool,
    /// The address of the collector's own metrics; none if they are not served.
    pub metrics_listen: Option<SocketAddr>,
    /// The sinks of committed rows.
    pub sinks: Vec<SinkUrl>,
    /// The receiver of samples by remote_write; none if there is none.
    pub remote_write: Option<RemoteWriteConfig>,
    /// The command at the end of each job; none if nothing runs.
    pub job_end: Option<JobEndConfig>,
    /// The HTTP API; none if it is not served.
    pub api: Option<ApiConfig>,
    /// The name of this run of the program in the store.
    pub collector_id: Option<String>,
    /// The events that are logged.
    pub log_level: log::Filter,
    /// The form of log lines.
    pub log_format: log::Format,
}

impl CollectorConfig {
    /// The default configuration for an endpoint and a store.
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
            keys: None,
            bind_node_to_key: true,
            metrics_listen: None,
            sinks: Vec::new(),
            remote_write: None,
            job_end: None,
            api: None,
            collector_id: None,
            log_level: log::Filter::default(),
            log_format: log::Format::default(),
        }
    }

    /// Returns the options with which the store is opened to write.
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
