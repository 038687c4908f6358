//! What a cell measures, as the file of an experiment says it.

use polymeter_benches::store::Kind;
use serde::Deserialize;

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
    /// Mock agents deliver samples of 50 values to one collector, which stores them.
    Deliver {
        agents: u32,
        /// Frames of all agents.
        frames: u32,
        /// Samples in each frame.
        ticks: u16,
        /// Connections that the collector writes with; by default its own default.
        writers: Option<u32>,
    },
    /// The sink of remote_write sends to a receiver, which closes connections after each request, or not.
    RemoteWrite { is_persistent: bool, requests: u32, samples_per_request: u32 },
    /// Pages of metrics are read one after the other.
    Gather,
    /// wrk reads pages of metrics.
    Wrk { threads: u32, connections: u32 },
    /// The tool samples a job, or the node.
    Sample { period_us: u64 },
    /// The command of the file is timed, alone or while the tool samples it.
    Command { period_us: Option<u64>, metrics: Option<u32> },
}

impl Measure {
    /// True if the tool is started by a command of the experiment's file.
    pub(crate) fn needs_tool(&self, tool: &str) -> bool {
        match self {
            Self::Gather | Self::Wrk { .. } | Self::Command { period_us: Some(_), .. } => tool != OURS,
            Self::Sample { .. } => true,
            Self::Reads | Self::Agent { .. } | Self::Deliver { .. } | Self::RemoteWrite { .. } => false,
            Self::Command { period_us: None, .. } => false,
        }
    }

    /// The program, other than the tool, that it requires.
    pub(crate) fn needs(&self) -> Option<&'static str> {
        matches!(self, Self::Wrk { .. }).then_some("wrk")
    }

    /// The store that it fills.
    pub(crate) fn store(&self) -> Option<Kind> {
        matches!(self, Self::Deliver { .. }).then(Kind::best)
    }

    /// Reduces what is not limited by time, for a functional check.
    pub(crate) fn shorten(&mut self) {
        match self {
            Self::Deliver { agents, frames, .. } => *frames = (*frames / 50).max(*agents),
            Self::RemoteWrite { requests, .. } => *requests /= 50,
            Self::Reads | Self::Agent { .. } | Self::Sample { .. } => {}
            Self::Gather | Self::Wrk { .. } | Self::Command { .. } => {}
        }
    }
}
