//! What a cell measures.

use std::error::Error;
use std::path::Path;

use polymeter_benches::delivery::store_all;
use polymeter_benches::job::Job;
use polymeter_benches::load::Load;
use polymeter_benches::mock::Script;
use polymeter_benches::process;
use polymeter_benches::recording::RECORDED;
use polymeter_benches::store::Kind;
use polymeter_benches::table::to_f64;
use polymeter_collector::sinks::remote_write::V1;
use polymeter_proto::period::Period;
use serde::Deserialize;

use super::paper::{Cell, Paper};
use super::results::Values;
use super::{node, served};
use crate::experiments::overhead::{Design, Run, Treatment, run_once};
use crate::experiments::remote_write::{Receiver, Workload, send};

/// Tool of cells that measure an agent.
const OURS: &str = "polymeter";

/// Longest time of a command.
const LIMIT_S: u32 = 3_600;

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
    /// The command of the file is timed, alone or while the tool samples it.
    Command { period_us: Option<u64>, metrics: Option<u32> },
}

impl Measure {
    /// True if the tool is started by a command of the experiment's file.
    pub(crate) fn needs_tool(&self, tool: &str) -> bool {
        let uses_tool =
            matches!(self, Self::Gather | Self::Wrk { .. } | Self::Command { period_us: Some(_), .. });
        uses_tool && tool != OURS
    }

    /// The program, other than the tool, that it requires.
    pub(crate) fn needs(&self) -> Option<&'static str> {
        matches!(self, Self::Wrk { .. }).then_some("wrk")
    }

    /// Reduces what is not limited by time, for a functional check.
    pub(crate) fn shorten(&mut self) {
        match self {
            Self::Deliver { agents, frames, .. } => *frames = (*frames / 50).max(*agents),
            Self::RemoteWrite { requests, .. } => *requests /= 50,
            Self::Reads | Self::Agent { .. } | Self::Gather | Self::Wrk { .. } | Self::Command { .. } => {}
        }
    }

    pub(crate) fn run(&self, paper: &Paper, cell: &Cell, scratch: &Path) -> Result<Values, Box<dyn Error>> {
        match *self {
            Self::Reads => node::read(paper.seconds),
            Self::Agent { period_us } => {
                node::sample(Period::from_micros(period_us)?, paper.seconds, scratch)
            }
            Self::Deliver { agents, frames, ticks, writers } => deliver(agents, frames, ticks, writers),
            Self::RemoteWrite { is_persistent, requests, samples_per_request } => {
                remote_write(is_persistent, requests, samples_per_request)
            }
            Self::Gather => served::gather(paper, cell, scratch),
            Self::Wrk { threads, connections } => served::wrk(paper, cell, (threads, connections), scratch),
            Self::Command { period_us, metrics } => time(paper, cell, (period_us, metrics), scratch),
        }
    }
}

/// A complete sample is one of every node, and counts once it is stored.
fn deliver(agents: u32, frames: u32, ticks: u16, writers: Option<u32>) -> Result<Values, Box<dyn Error>> {
    let script = Script::read(Path::new(RECORDED), Period::MILLISECOND)?;
    let load = Load { agents, frames: frames.div_ceil(agents), ticks };
    let more = writers.map(|writers| format!("writers = {writers}\n")).unwrap_or_default();
    let taken = store_all(Kind::best(), &more, &script, load.sampled(&script)?)?;
    let complete = f64::from(load.frames) * f64::from(ticks);
    let cpu_us = (taken.collector_cpu_s + taken.server_cpu_s) * 1e6;
    Ok(vec![
        ("rate_per_s", complete / taken.seconds),
        ("values_per_s", taken.per_second()),
        ("cpu_us", cpu_us / complete),
        ("value_cpu_us", cpu_us / to_f64(taken.samples)),
    ])
}

/// Runs the command once as `overhead` does.
fn time(
    paper: &Paper,
    cell: &Cell,
    (period_us, metrics): (Option<u64>, Option<u32>),
    scratch: &Path,
) -> Result<Values, Box<dyn Error>> {
    let design = Design {
        command: paper.command.clone(),
        pairs: paper.pairs,
        replicates: 1,
        seed: paper.seed,
        periods: Vec::new(),
        metrics: Vec::new(),
        limit_s: LIMIT_S,
        tools: paper.tools.clone(),
    };
    let treatment = match period_us {
        None => Treatment::Nothing,
        Some(period_us) => Treatment::Watched {
            tool: paper.tools.iter().position(|tool| tool.name == cell.tool),
            period: Period::from_micros(period_us)?,
            metrics: metrics.unwrap_or(1),
        },
    };
    let job = Job::make_for("papers", 0)?;
    let wall_s = run_once(&design, &Run { replicate: 1, treatment }, &job, scratch)?;
    Ok(vec![("wall_s", wall_s)])
}

/// 100 nodes with 100 series each, as many samples as `requests` take.
fn remote_write(is_persistent: bool, requests: u32, each: u32) -> Result<Values, Box<dyn Error>> {
    let receiver = Receiver::start(is_persistent)?;
    let workload =
        Workload { name: "", nodes: 100, series: 100, per_frame: 1, distance_us: 1_000_000, sent_of_10: 10 };
    let system_s = process::system_s(std::process::id())?;
    let samples = usize::try_from(requests)? * usize::try_from(each)?;
    let cost = send(&receiver, &V1, &workload, samples, each)?;
    let system_s = process::system_s(std::process::id())? - system_s;
    let waiting = process::time_wait_sockets(receiver.address.port())?;
    Ok(vec![
        ("time_wait_sockets", to_f64(waiting)),
        ("system_us", system_s * 1e6 / to_f64(cost.sent)),
        ("system_percent", 100.0 * system_s / cost.wall_s),
        ("rate_per_s", to_f64(cost.sent) / cost.wall_s),
    ])
}
