//! The configuration: its values, their defaults, and the keys that set them.

use std::path::PathBuf;

use polymeter_proto::catalogue::derived::Machine;
use polymeter_proto::endpoint as address;
use polymeter_proto::name::Selector;
use polymeter_proto::period::Period;
use polymeter_proto::series::{Identifier, InvalidIdentifier};
use polymeter_proto::trigger::{Rule, RuleFields};
use polymeter_service::keys::Kind::{Flag, Integer, OneOf, Periods, Table, Tables, Text, Texts};
use polymeter_service::keys::Stated::{Example, Set, Usual};
use polymeter_service::keys::docs;
use polymeter_service::users::user_or_group;
use polymeter_service::{keys, log};

use super::device_tables::devices;
use super::key_settings;
use super::openmetrics::{self, OpenMetricsConfig};
use super::rules::{bound, cgroup_rule, layer, patterns, rule};
use super::trigger_tables::triggers;
use super::value_parsers::{
    CollectorOrder, JobVisibility, absolute, bytes, bytes_or_off, endpoint, path_or_off, period_or_off,
};
use crate::cgroups::Pattern;
use crate::keys::AgentKeyFiles;
use crate::plan::Layer;
use crate::roof_file;
use crate::sources::outside::DeviceSettings;

/// Read if the command line names no file.
pub const DEFAULT_PATH: &str = "/etc/polymeter/agent.toml";

/// Endpoint if the configuration names none.
pub const DEFAULT_COLLECTOR: &str = "tcp://127.0.0.1:7717";

/// Most processes of one job that may have series of their own at a time: each has five.
const BUSIEST_PROCESSES_MAX: u64 = 64;

/// Example configuration, which states the defaults. It is written from [`KEYS`].
pub const EXAMPLE: &str = include_str!("../../../deploy/agent.toml");

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentConfig {
    /// Name of the node in the data; none for the host's name.
    pub node: Option<Identifier>,
    /// Cluster of jobs that are announced without one.
    pub cluster: Option<Identifier>,
    /// ZeroMQ endpoints of the collectors to which frames can be sent, at least one.
    pub collectors: Vec<String>,
    /// Order in which they are tried.
    pub collector_order: CollectorOrder,
    /// Time at which the agent tries to return to the first collector; none for never.
    pub collector_return: Option<Period>,
    /// None for a connection without encryption.
    pub keys: Option<AgentKeyFiles>,
    /// Contains `/sys` and `/proc`.
    pub root: PathBuf,
    pub roofs: PathBuf,
    /// Time between two sample batches that are sent.
    pub flush_interval: Period,
    /// Memory for frames that wait for an acknowledgement, in bytes.
    pub outbox_bytes: usize,
    /// Memory for frames that were acknowledged, in bytes; 0 for none. A database may lack them after a
    /// failover.
    pub keep_acknowledged_bytes: usize,
    /// Directory for frames that exceed the outbox or outlive the agent; none for no spool.
    pub spool: Option<PathBuf>,
    /// Size limit of the spool, in bytes.
    pub spool_bytes: u64,
    /// `SCHED_FIFO` priority of the sampler and of the exit watcher; none for the ordinary scheduling policy.
    pub realtime_priority: Option<u8>,
    /// Baseline of every job, the node and the agent itself.
    pub baseline: Layer,
    /// Metrics whose windows have a histogram whether their periods say so or not.
    pub histograms: Vec<Selector>,
    /// Baseline of each step of every job.
    pub steps: Layer,
    /// Baseline of each task of every step.
    pub tasks: Layer,
    pub jobs: Vec<Pattern>,
    /// Time between two checks for changes without a notification from the kernel.
    pub rescan_interval: Period,
    /// Most file descriptors that the perf events of one job may use.
    pub perf_fd_limit: usize,
    /// Most processes of one job that have series of their own at a time.
    pub busiest_processes: usize,
    /// True if eBPF programs may be loaded into the kernel, for metrics that nothing else counts.
    pub ebpf: bool,
    /// None for no control.
    pub control_socket: Option<PathBuf>,
    /// True if requests that users send through the collector are answered, if the file decides it.
    pub remote_control: Option<bool>,
    pub limits: Limits,
    pub hindsight: Hindsight,
    /// Devices outside the nodes that this agent polls.
    pub devices: Vec<DeviceSettings>,
    /// Triggers of every job, which were checked.
    pub triggers: Vec<RuleFields>,
    /// Users, and groups with a leading `@`, that have all rights, besides root and the agent's own user.
    pub administrators: Vec<String>,
    /// Jobs that ordinary users can see.
    pub job_visibility: JobVisibility,
    pub openmetrics: OpenMetricsConfig,
    /// Events that are logged.
    pub log_level: log::Filter,
    pub log_format: log::Format,
    /// Ends the agent when it has been idle for a while. Set on the command line only.
    pub exit_when_idle: bool,
}

/// Limits of what users may request with a lease. They do not apply to administrators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Shortest period of metrics that `shortest_periods` does not name.
    pub shortest_period: Period,
    pub shortest_periods: Layer,
    pub longest_lease: Period,
    /// Of one job, its baseline included.
    pub samples_per_second: u64,
    /// Percentage of one CPU for one job, its baseline included.
    pub job_cpu_percent: u64,
    /// Percentage of one CPU for everything that the agent samples.
    pub node_cpu_percent: u64,
    /// True if users may sample into the rings of their jobs.
    pub ring_leases: bool,
}

/// Ring of each job: samples in memory that are sent only if something makes them worth it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hindsight {
    /// Empty for no ring.
    pub metrics: Layer,
    /// Age up to which samples are held.
    pub keep: Period,
    /// Time for which the ring of a job that has ended is held.
    pub after_end: Period,
    /// Memory of the ring of one job.
    pub memory_bytes: usize,
    /// Bytes a second that are sent from all rings.
    pub rate_bytes: usize,
}

impl Default for Hindsight {
    fn default() -> Self {
        Self {
            metrics: Layer::default(),
            keep: Period::MINUTE,
            after_end: Period::MINUTE,
            memory_bytes: 1024 * 1024,
            rate_bytes: 1024 * 1024,
        }
    }
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
            ring_leases: true,
        }
    }
}

impl Limits {
    /// Shortest period that users may request of `metric`.
    pub fn shortest_period(&self, metric: &str) -> Period {
        let bound = self.shortest_periods.sampling(Machine::Any, metric);
        bound.map_or(self.shortest_period, |bound| bound.period)
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
            roofs: PathBuf::from(roof_file::DEFAULT_PATH),
            flush_interval: Period::SECOND,
            outbox_bytes: 64 * 1024 * 1024,
            keep_acknowledged_bytes: 1024 * 1024,
            spool: None,
            spool_bytes: 1024 * 1024 * 1024,
            realtime_priority: Some(10),
            baseline: Layer::default(),
            histograms: Vec::new(),
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
            hindsight: Hindsight::default(),
            devices: Vec::new(),
            triggers: Vec::new(),
            administrators: Vec::new(),
            job_visibility: JobVisibility::Own,
            openmetrics: OpenMetricsConfig {
                metrics: openmetrics::every_metric(),
                ..OpenMetricsConfig::default()
            },
            log_level: log::Filter::default(),
            log_format: log::Format::default(),
            exit_when_idle: false,
        }
    }
}

impl AgentConfig {
    pub(crate) fn site_triggers(&self) -> Vec<Rule> {
        self.triggers.iter().filter_map(|fields| Rule::parse(fields).ok()).collect()
    }

    /// True if users' requests from the collector are answered. The collector states the requester and is
    /// trusted; therefore by default only collectors that are known by their keys or run on this machine are
    /// answered.
    pub fn accepts_remote_control(&self) -> bool {
        self.remote_control.unwrap_or_else(|| {
            self.keys.is_some() || self.collectors.iter().all(|collector| address::is_local(collector))
        })
    }
}

/// What the example says before its first key; the rule of reloading follows.
pub const HEAD: &str = "The configuration of Polymeter's node agent.\n\n\
    Every key may be left out. The values in this file, also those behind a `#`, are the defaults. A list or \
    section that is given replaces the default as a whole: a [baseline] of your own contains nothing of the \
    one below. `polymeter-agent --check` reports all faults of this file.";

keys! {
    /// The keys of the file.
    pub const KEYS: AgentConfig = |config, value|

    /// The node's name in the data. Default: the host name.
    "node": Text("string"), Example("node17") => node = value.parse(identifier);

    /// The cluster of jobs whose scheduler scripts do not name one. Job ids are unique within a cluster.
    "cluster": Text("string"), Example("lab"), AT_ONCE => cluster = value.parse(identifier);

    /// The collector's endpoint: tcp://HOST:PORT, or ipc:///PATH on the same machine. Several collectors with
    /// the same store are a list, or a name with several addresses. The agent stays while its collector
    /// acknowledges samples, moves to the next one when it has not for 5 to 15 s, and returns to the first.
    "collector": Text("endpoints"), Usual("tcp://127.0.0.1:7717")
        => collectors = value.one_or_more(endpoint);

    /// The order in which collectors are tried: "listed", the order of the list, or "spread", an order of the
    /// node's own, so that nodes with the same file share all collectors. The addresses of one name are
    /// always spread.
    "collector_order": OneOf(&["listed", "spread"]), Usual("listed")
        => collector_order = value.parse(str::parse);

    /// The time after which the agent tries to return to its first collector, or "off". It is up to half
    /// longer, differently on each node, and doubles after each attempt that fails, up to 16 times as long.
    "collector_return": Text("periodOrOff"), Usual("10min")
        => collector_return = value.parse(period_or_off);

    /// Encryption: the agent's key file, made by `polymeter keygen`, and the collector's public key or a file
    /// that contains it. Both or neither. Several collectors share a key, or have a list of keys, one for
    /// each. The collector needs the agent's .pub file. See docs/explanation/security.md.
    "key": Text("path"), Example("/etc/polymeter/node17.key");
    "collector_key": Text("stringOrStrings"), Example("/etc/polymeter/collector.pub")
        => keys = Some(key_settings::take(value.section, config.collectors.len(), value.reporter));

    /// The time between two transmissions. A longer interval needs less bandwidth and delays the data.
    "flush_interval": Text("period"), Usual("1s") => flush_interval = value.parse(str::parse);

    /// The memory for samples while the collector is unreachable. When it is full, the oldest samples are
    /// dropped and counted.
    "outbox_bytes": Text("size"), Usual("64MiB") => outbox_bytes = value.parse(bytes);

    /// The memory for samples that the collector has acknowledged: after a failover of the database to a
    /// standby that replicates asynchronously, the newest of them may be missing there, and are sent again.
    /// "off" keeps none, and so does an agent with a spool.
    "keep_acknowledged": Text("sizeOrOff"), Usual("1MiB")
        => keep_acknowledged_bytes = value.parse(bytes_or_off);

    /// A directory for samples that exceed the outbox, or that are not acknowledged when the agent stops: the
    /// next start sends them. It must belong to this agent alone. Without it such samples are dropped and
    /// counted. While the collector is unreachable, the samples in memory are written to it and flushed to
    /// the disk every 5 s.
    "spool": Text("path"), Example("/var/lib/polymeter/spool")
        => spool = value.parse(|text| absolute(text).map(Some));
    "spool_bytes": Text("size"), Usual("1GiB")
        => spool_bytes = value.parse(bytes).map(|bytes| bytes as u64);

    /// The directory that contains /sys and /proc.
    "root": Text("path"), Usual("/") => root = value.parse(absolute);

    /// The file in which `polymeter calibrate` keeps the roofs of the node: the bandwidth of its memory and
    /// its peaks of floating-point operations. Without the file the roofs are unknown.
    "roofs": Text("path"), Usual("/var/lib/polymeter/roofs.json") => roofs = value.parse(absolute);

    /// The SCHED_FIFO priority of the sampler and of the thread that watches for job exits; 0 for the
    /// ordinary scheduling policy, under which a busy node misses deadlines below 10 ms and the last samples
    /// of some jobs. Without the right to set it the agent logs a warning and continues. The sampler runs on
    /// an idle CPU, or on each CPU in turn if all are busy; CPUAffinity= of the systemd unit, or taskset,
    /// restricts it to some.
    "realtime_priority": Integer(0, 50), Usual("10")
        => realtime_priority = value.integer().map(|priority| (priority > 0).then_some(priority));

    /// The most file descriptors that the perf events of one job may use: events x CPUs.
    "perf_fd_limit": Integer(0, 1_000_000), Usual("4096"), AT_ONCE => perf_fd_limit = value.integer();

    /// The most processes of one job that have series of their own at a time (the metrics busiest.*), from 0
    /// to 64: those with the most CPU time, once they have used a second. Over a job's lifetime four times as
    /// many.
    "busiest_processes": Integer(0, BUSIEST_PROCESSES_MAX), Usual("5"), AT_ONCE
        => busiest_processes = value.integer();

    /// The metrics whose windows have a histogram also without `/histogram` in their periods, from which the
    /// report has quantiles: of a counter it is that of the rates between two samples. Each takes 4 KiB of
    /// memory, and sends some hundred bytes a window.
    "histograms": Texts, Example(r#"["cpu.usage", "gpu.*"]"#) => histograms = value.list(str::parse);

    /// Permit eBPF programs in the kernel, which count network.*, runqueue.wait.* and vfs.* of jobs. Two of
    /// them add work to every system call and every switch of a thread of the node, even if one job alone
    /// has the metric.
    "ebpf": Flag, Usual("false"), AT_ONCE => ebpf = value.boolean();

    /// The path of the control socket, or "off".
    "control_socket": Text("pathOrOff"), Usual("/run/polymeter/agent.sock")
        => control_socket = value.parse(path_or_off);

    /// Answer requests that users on other machines send through the collector. The collector states who
    /// asks, and the agent believes it. Default: true if the collector runs on this machine or is known by
    /// its key, else false.
    "remote_control": Flag, Example("true") => remote_control = value.boolean().map(Some);

    /// The cgroups of jobs, below the mount point of any cgroup hierarchy. {job} is the job's id, {number} an
    /// id that must be a number, {sluid} a SLUID of Slurm, which is translated to the job's id, {uid} or
    /// {user} the owner, * any text. The default recognises Slurm and OAR. For the sessions of a login node
    /// add "user.slice/user-{uid}.slice/session-{job}.scope"; it is not in the default because session
    /// numbers could be mistaken for job ids.
    "jobs": Texts, Set(JOBS), AT_ONCE => jobs = patterns(value);

    /// The time between two checks for changes that the kernel did not announce. While it announces new
    /// cgroups (inotify), every tenth check searches for jobs, at least every 10 s; else every check does.
    /// After ten checks without an event, a request or a lease it is five times as long, up to 5 s, until
    /// there is one.
    "rescan_interval": Text("period"), Usual("1s"), AT_ONCE
        => rescan_interval = value.parse(str::parse);

    /// The users, and groups behind an @, that may do everything on the control socket, besides root and the
    /// agent's own user.
    "administrators": Texts, Example(r#"["alice", "@hpc-admin"]"#), AT_ONCE
        => administrators = value.list(user_or_group);

    /// The jobs that ordinary users can see: "own", or "all" (with the node).
    "job_visibility": OneOf(&["own", "all"]), Usual("own"), AT_ONCE
        => job_visibility = value.parse(str::parse);

    /// The events to log: off, error, warn, info, debug or trace; also per module, as in
    /// "info,polymeter_agent::delivery=debug". The variable POLYMETER_LOG and the option --log override it.
    "log_level": Text("string"), Usual("info"), AT_ONCE => log_level = value.parse(str::parse);

    /// The form of log lines: "text" or "json".
    "log_format": OneOf(&["text", "json"]), Usual("text"), AT_ONCE
        => log_format = value.parse(str::parse);

    /// The limits of `polymeter set`; they do not apply to administrators. The budgets include the baseline.
    /// If the measured cost exceeds a budget, users' leases are slowed down; the baseline is not.
    "limits": Table(|| docs(LIMITS)), Set(""), AT_ONCE
        => limits = value.section(LIMITS, config.limits.clone());

    /// Hindsight: samples of every job at shorter periods, which stay in memory and are dropped when they are
    /// old. They are sent for an interval that a user or a trigger wants to keep (`polymeter keep`). Reading
    /// costs as much as any sampling at these periods.
    "hindsight": Table(|| docs(HINDSIGHT)), Set("")
        => hindsight = value.section(HINDSIGHT, config.hindsight.clone());

    /// The page of the newest values of the node and its jobs, which Prometheus and its relatives read at
    /// /metrics. See docs/how-to/openmetrics.md. Without this section it is off.
    "openmetrics": Table(|| docs(openmetrics::KEYS)), Usual("") => openmetrics = openmetrics::take(value);

    /// The baseline: the metrics of every job, of the node and of the agent that are sampled, and their
    /// periods. Selectors are names or globs; the more specific selector decides. Periods: 100us, 10ms, 1s,
    /// 5min, or "off". "1ms/1s" takes a sample every millisecond, and sends one row every second with the
    /// last value, the count, the extremes and the sum; of counters the extremes are rates.
    /// "1ms/1s/histogram" adds a histogram of the samples to each row.
    "baseline": Periods, Set(include_str!("baseline.toml")), AT_ONCE => baseline = layer(value, rule);

    /// The baseline of each step of every job, and of each task of every step, if the scheduler gives them
    /// cgroups as Slurm does. They become series of their own with the labels `step` and `task`. Only metrics
    /// that are read from files of cgroups are available, and perf events that are named
    /// (`perf.instructions`, `perf.*`), which take a descriptor on every CPU for every step; a job's values
    /// include all of its steps. Each step or task costs as much as a job at these periods.
    "steps": Periods, Set(STEPS), AT_ONCE => steps = layer(value, cgroup_rule);
    "tasks": Periods, Set("# \"cpu.usage\" = \"5s\""), AT_ONCE => tasks = layer(value, cgroup_rule);

    /// Devices outside the nodes, which this agent polls: wattmeters, power distribution units, switches. Each
    /// metric is `device.NAME.METRIC` with a period of its own. See docs/how-to/devices.md.
    "device": Tables, Example(DEVICE), AT_ONCE => devices = devices(value);

    /// Triggers of every job: when the condition becomes true, the agent keeps the ring of the job
    /// (`[hindsight]`), on all of its nodes, raises the periods of metrics for a while, marks or notices it.
    "trigger": Tables, Example(TRIGGER), AT_ONCE => triggers = triggers(value);
}

keys! {
    /// The keys of the section `[limits]`.
    pub(super) const LIMITS: Limits = |limits, value|

    "shortest_period": Text("period"), Usual("1ms") => shortest_period = value.parse(str::parse);
    "longest_lease": Text("period"), Usual("1h") => longest_lease = value.parse(str::parse);
    "samples_per_second": Integer(1, 100_000_000), Usual("200000 # per job")
        => samples_per_second = value.integer();
    "job_cpu_percent": Integer(1, 100), Usual("5 # of one CPU, per job")
        => job_cpu_percent = value.integer();
    "node_cpu_percent": Integer(1, 100), Usual("20 # of one CPU, for everything that the agent samples")
        => node_cpu_percent = value.integer();

    /// Permit `polymeter set --ring`: a job then has a ring with the memory of `[hindsight]`.
    "ring_leases": Flag, Usual("true") => ring_leases = value.boolean();

    /// The shortest periods of metrics for which `shortest_period` does not apply.
    "shortest_periods": Periods, Set("# \"perf.*\" = \"10ms\"") => shortest_periods = layer(value, bound);
}

keys! {
    /// The keys of the section `[hindsight]`.
    pub(super) const HINDSIGHT: Hindsight = |hindsight, value|

    /// The time for which samples are held, and that for which those of a job that has ended are held.
    "keep": Text("period"), Usual("1min") => keep = value.parse(str::parse);
    "after_end": Text("period"), Usual("1min") => after_end = value.parse(str::parse);

    /// The memory for the samples of one job: when it is full, the oldest are dropped before their time.
    "memory": Text("size"), Usual("1MiB") => memory_bytes = value.parse(bytes);

    /// The bytes a second that are sent from all rings of the node.
    "rate": Text("size"), Usual("1MiB") => rate_bytes = value.parse(bytes);

    /// The metrics and their periods, as in the baseline. Without any, only jobs whose owners ask for it
    /// (`polymeter set --ring`) have a ring.
    "metrics": Periods, Set(RING_METRICS) => metrics = layer(value, rule);
}

/// Metrics whose reading costs less than a tenth of a percent of a core for each job.
const RING_METRICS: &str = r#"# "cpu.usage" = "100ms"
# "memory.current" = "100ms"
# "memory.anon" = "100ms"
# "memory.swap.current" = "100ms"
# "memory.pgmajfault" = "100ms"
# "memory.events.*" = "100ms"
# "pids.current" = "100ms"
# "pressure.*.total" = "100ms"
# "io.*" = "1s"
# "busiest.memory.resident" = "1s""#;

/// The cgroups of Slurm and OAR.
const JOBS: &str = r#"[
    "slurm*/uid_{uid}/job_{job}",                       # Slurm, version 1, with and without the node's name
    "*.slice/*slurmstepd.scope/job_{job}",              # Slurm, version 2
    "*.slice/*slurmstepd.scope/{sluid}",                # Slurm 26.05 and later; id by prolog or processes
    "oar/{user}_{number}",                              # OAR 2, version 1
    "oar.slice/oar-u{uid}.slice/oar-u*-j{number}.slice", # OAR 3, version 2
    "oar.slice/{user}_{number}.scope",
    "oar.slice/{user}_{number}.slice",
    "{user}_{number}.slice",
]"#;

const DEVICE: &str = r#"# name = "meter1"
# url = "tcp://meter1.example:2000"
# timeout = "1s"
# metric = [{ name = "power", address = "node*", label = "node", unit = "watts", period = "1s" }]"#;

const TRIGGER: &str = r#"# name = "oom"
# when = "oom" # or xid, exit_status, signal, time_limit, or such as "rate(cpu.usage) < 1000 for 30s"
# keep = "30s" # before the instant, and 5 s after it
# raise = { "cpu.*" = "10ms" } # for a minute; beside them: stacks = "10ms", mark = true, notice = true
# hold_off = "1min"
# firings = 5 # for each job and day"#;

const STEPS: &str = r#"# "cpu.usage" = "5s"
# "memory.current" = "5s"
# "perf.instructions" = "5s""#;

fn identifier(text: &str) -> Result<Option<Identifier>, InvalidIdentifier> {
    Identifier::try_from(text).map(Some)
}
