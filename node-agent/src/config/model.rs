//! The resolved configuration.

use std::path::PathBuf;

use polymeter_proto::endpoint;
use polymeter_proto::period::Period;
use polymeter_proto::series::Identifier;
use polymeter_service::log;

use crate::cgroups::Pattern;
use crate::keys::AgentKeyFiles;
use crate::plan::Layer;

/// The path of the configuration file if the command line names none.
pub const DEFAULT_PATH: &str = "/etc/polymeter/agent.toml";

/// The collector's endpoint if the configuration names none.
pub const DEFAULT_COLLECTOR: &str = "tcp://127.0.0.1:7717";

/// The example configuration, which states the defaults.
pub const EXAMPLE: &str = include_str!("../../../deploy/agent.toml");

/// The agent's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentConfig {
    /// The node's name in the data; none for the host's name.
    pub node: Option<Identifier>,
    /// The cluster of jobs that are announced without one.
    pub cluster: Option<Identifier>,
    /// The ZeroMQ endpoints of the collectors to which frames can be sent, at least one.
    pub collectors: Vec<String>,
    /// The order in which they are tried.
    pub collector_order: CollectorOrder,
    /// The time after which the agent tries to return to the first collector; none for never.
    pub collector_return: Option<Period>,
    /// The key files; none for a connection without encryption.
    pub keys: Option<AgentKeyFiles>,
    /// The directory that contains `/sys` and `/proc`.
    pub root: PathBuf,
    /// The time between two sample batches that are sent.
    pub flush_interval: Period,
    /// The memory for frames that wait for an acknowledgement, in bytes.
    pub outbox_bytes: usize,
    /// The memory for frames that were acknowledged, in bytes; 0 for none. A database may lack them after a
    /// failover.
    pub keep_acknowledged_bytes: usize,
    /// The directory for frames that exceed the outbox or outlive the agent; none for no spool.
    pub spool: Option<PathBuf>,
    /// The size of the spool, in bytes.
    pub spool_bytes: u64,
    /// The `SCHED_FIFO` priority of the sampler and of the exit watcher; none for the ordinary scheduling
    /// policy.
    pub realtime_priority: Option<u8>,
    /// The baseline of every job, the node and the agent itself.
    pub baseline: Layer,
    /// The baseline of each step of every job.
    pub steps: Layer,
    /// The baseline of each task of every step.
    pub tasks: Layer,
    /// The patterns of jobs' cgroups.
    pub jobs: Vec<Pattern>,
    /// The time between two checks for changes without a notification from the kernel.
    pub rescan_interval: Period,
    /// The most file descriptors that the perf events of one job may use.
    pub perf_fd_limit: usize,
    /// The most processes of one job that have series of their own at a time.
    pub busiest_processes: usize,
    /// True if eBPF programs may be loaded into the kernel, for metrics that nothing else counts.
    pub ebpf: bool,
    /// The path of the control socket; none for no control.
    pub control_socket: Option<PathBuf>,
    /// The answer to requests that users send through the collector, if the file decides it.
    pub remote_control: Option<bool>,
    /// The limits of users' requests.
    pub limits: Limits,
    /// The users, and groups with a leading `@`, that have all rights, besides root and the agent's own user.
    pub administrators: Vec<String>,
    /// The jobs that ordinary users can see.
    pub job_visibility: JobVisibility,
    /// The events that are logged.
    pub log_level: log::Filter,
    /// The form of log lines.
    pub log_format: log::Format,
    /// Ends the agent when it has been idle for a while. Set on the command line only.
    pub exit_when_idle: bool,
}

/// The order in which an agent tries its collectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CollectorOrder {
    /// The order of the configuration; the addresses of one name in an order of the node's own.
    #[default]
    Listed,
    /// An order of the node's own, so that the nodes share all collectors and, after a failure, those that
    /// are left.
    Spread,
}

/// The jobs that an ordinary user can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum JobVisibility {
    /// The user's own.
    #[default]
    Own,
    /// All jobs, and the node.
    All,
}

/// The limits of what users may request with a lease. They do not apply to administrators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The shortest period of metrics that `shortest_periods` does not name.
    pub shortest_period: Period,
    /// The shortest periods of some metrics.
    pub shortest_periods: Layer,
    /// The longest duration of a lease.
    pub longest_lease: Period,
    /// The samples per second of one job, its baseline included.
    pub samples_per_second: u64,
    /// The percentage of one CPU for one job, its baseline included.
    pub job_cpu_percent: u64,
    /// The percentage of one CPU for everything that the agent samples.
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

impl Limits {
    /// Returns the shortest period that users may request of `metric`.
    pub fn shortest_period(&self, metric: &str) -> Period {
        self.shortest_periods.period(metric).unwrap_or(self.shortest_period)
    }
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            node: None,
            cluster: None,
            collectors: vec![DEFAULT_COLLECTOR.to_owned()],
            collector_order: CollectorOrder::Listed,
            collector_return: Some(Period::TEN_MINUTES),
            keys: None,
            root: PathBuf::from("/"),
            flush_interval: Period::SECOND,
            outbox_bytes: 64 * 1024 * 1024,
            keep_acknowledged_bytes: 1024 * 1024,
            spool: None,
            spool_bytes: 1024 * 1024 * 1024,
            realtime_priority: Some(10),
            baseline: Layer::default(),
            steps: Layer::default(),
            tasks: Layer::default(),
            jobs: Vec::new(),
            rescan_interval: Period::SECOND,
            perf_fd_limit: 4096,
            busiest_processes: 5,
            ebpf: false,
            control_socket: Some(PathBuf::from("/run/polymeter/agent.sock")),
            remote_control: None,
            limits: Limits::default(),
            administrators: Vec::new(),
            job_visibility: JobVisibility::Own,
            log_level: log::Filter::default(),
            log_format: log::Format::default(),
            exit_when_idle: false,
        }
    }
}

impl AgentConfig {
    /// True if users' requests from the collector are answered. The collector states the requester and is
    /// trusted; therefore by default only collectors that are known by their keys or run on this machine are
    /// answered.
    pub fn accepts_remote_control(&self) -> bool {
        let are_local = || self.collectors.iter().all(|collector| endpoint::is_local(collector));
        self.remote_control.unwrap_or_else(|| self.keys.is_some() || are_local())
    }
}
