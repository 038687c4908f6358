//! What a cell measures, as the file of an experiment says it.

use std::collections::BTreeMap;

use polymeter_benches::delivery::Layer;
use polymeter_benches::store::Kind;
use serde::Deserialize;

use crate::experiments::scale::Scraper;

/// Tool of cells that measure an agent or a collector.
const OURS: &str = "polymeter";

/// A measurement and its parameters.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Measure {
    /// Reads the files of a complete sample of the node, one sample after the other.
    Reads,
    /// An agent samples the node and delivers to a collector that acknowledges without storing.
    Agent { period_us: u64 },
    /// Mock agents deliver samples of 50 values, which are stored.
    Deliver {
        agents: u32,
        /// Frames of all agents.
        frames: u32,
        /// Samples in each frame.
        ticks: u16,
        /// Connections that the collector writes with; by default its own default.
        writers: Option<u32>,
        /// What is between the agents and the store; by default one collector.
        through: Option<Layer>,
    },
    /// The sink of remote_write sends to a receiver, which closes connections after each request, or not.
    RemoteWrite { is_persistent: bool, requests: u32, samples_per_request: u32 },
    /// Pages of metrics are read one after the other.
    Gather,
    /// wrk reads pages of metrics.
    Wrk { threads: u32, connections: u32 },
    /// wrk asks the HTTP API about a job of 10 nodes and 10 minutes, whose key stands for {key} in the path.
    WrkApi { threads: u32, connections: u32, path: String },
    /// Workers copy rows into Kwollect's schema.
    Copy { workers: u32, rows: u64 },
    /// Users read all values of a job with 50 series on each node and a value every 5 s: with this path over
    /// the HTTP API, else from Kwollect's schema.
    Read {
        nodes: u64,
        minutes: u16,
        /// Hours since its end.
        #[serde(default)]
        ago_h: u16,
        users: u32,
        /// The job's key stands for {key} in it, and its id for {job}.
        path: Option<String>,
    },
    /// The tool samples a job, or the node.
    Sample {
        period_us: u64,
        /// Time in seconds for which it runs before it is measured.
        settle_s: Option<i64>,
        /// Variables of its command.
        #[serde(default)]
        set: BTreeMap<String, String>,
    },
    /// The command of the file is timed, alone or while the tool samples it.
    Command {
        period_us: Option<u64>,
        metrics: Option<u32>,
        /// Name of the tool's command, by default that of the cell's tool.
        starts: Option<String>,
        /// Variables of that command. PROGRAM names a program that it requires, other than its own.
        #[serde(default)]
        set: BTreeMap<String, String>,
    },
    /// One process or one on each CPU stores time stamps, while an agent with this period, the tool, or
    /// nothing samples the job.
    Stamps {
        each: u64,
        on_all_cpus: bool,
        /// Waits for the others after each million of time stamps.
        #[serde(default)]
        has_barriers: bool,
        period_us: Option<u64>,
    },
    /// Mock agents with 50 values send to a collector, or a server scrapes as many mock exporters.
    Scale {
        nodes: u64,
        /// Name of the tool that serves the pages, instead of the built-in mock, and its variables.
        mocks: Option<String>,
        #[serde(default)]
        set: BTreeMap<String, String>,
        /// Time in seconds after which the built-in mocks close an idle connection; 0 closes it after its
        /// answer.
        idle_s: Option<u64>,
        /// Most open files of the server.
        files: Option<u64>,
    },
    /// The tool's command runs to its end, and prints figures: a name and a value on each line.
    Printed {
        #[serde(default)]
        set: BTreeMap<String, String>,
    },
}

impl Measure {
    /// Name of the command in the experiment's file that starts the tool, if the cell needs one.
    pub(crate) fn needs_tool<'a>(&'a self, tool: &'a str) -> Option<&'a str> {
        match self {
            Self::Gather | Self::Wrk { .. } => (tool != OURS).then_some(tool),
            Self::Command { period_us: Some(_), starts, .. } => {
                (tool != OURS).then(|| starts.as_deref().unwrap_or(tool))
            }
            Self::Sample { .. } | Self::Printed { .. } => Some(tool),
            Self::Scale { mocks, .. } => mocks.as_deref(),
            Self::Reads | Self::Agent { .. } | Self::Deliver { .. } | Self::RemoteWrite { .. } => None,
            Self::Command { period_us: None, .. } | Self::Stamps { .. } => None,
            Self::WrkApi { .. } | Self::Copy { .. } | Self::Read { .. } => None,
        }
    }

    /// The program, other than that of a command in the file, that it requires.
    pub(crate) fn needs(&self, tool: &str) -> Option<&str> {
        match self {
            Self::Wrk { .. } | Self::WrkApi { .. } => Some("wrk"),
            Self::Command { set, .. } => set.get("PROGRAM").map(String::as_str),
            Self::Scale { .. } => Scraper::of(tool).map(Scraper::program),
            // An SQLite file has one collector.
            Self::Deliver { through: Some(Layer::Collectors(2..)), .. } => {
                Kind::Postgres.missing().map(|_| "postgres")
            }
            Self::Reads | Self::Agent { .. } | Self::Deliver { .. } | Self::RemoteWrite { .. } => None,
            Self::Printed { set } => set.get("PROGRAM").map(String::as_str),
            Self::Gather | Self::Sample { .. } | Self::Stamps { .. } => None,
            Self::Copy { .. } | Self::Read { .. } => Kind::Postgres.missing().map(|_| "postgres"),
        }
    }

    /// The store that it fills.
    pub(crate) fn store(&self) -> Option<Kind> {
        let fills = matches!(self, Self::Deliver { .. } | Self::Scale { .. } | Self::WrkApi { .. });
        (fills || matches!(self, Self::Copy { .. } | Self::Read { .. })).then(Kind::best)
    }

    /// Reduces what is not limited by time, and makes cells alike that differ in load only, for a functional
    /// check.
    pub(crate) fn shorten(&mut self) {
        match self {
            Self::Deliver { agents, frames, .. } => *frames = (*frames / 50).max(*agents),
            Self::RemoteWrite { requests, .. } => *requests /= 50,
            Self::Stamps { each, .. } => *each /= 100,
            Self::Scale { nodes, .. } => *nodes = 20,
            Self::Copy { rows, workers } => (*rows, *workers) = (100_000, 2),
            // One load and one period of each tool.
            Self::Wrk { threads, connections } | Self::WrkApi { threads, connections, .. } => {
                (*threads, *connections) = (1, 10);
            }
            Self::Command { period_us: Some(period_us), metrics, .. } => {
                (*period_us, *metrics) = (10_000, None);
            }
            Self::Read { nodes, minutes, .. } => (*nodes, *minutes) = (2, 5),
            Self::Reads | Self::Agent { .. } | Self::Sample { .. } | Self::Printed { .. } => {}
            Self::Gather | Self::Command { period_us: None, .. } => {}
        }
    }
}
