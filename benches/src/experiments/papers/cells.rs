//! Measures a cell once.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use polymeter_benches::agent::program;
use polymeter_benches::clock::now_ns;
use polymeter_benches::delivery::{Layer, store_all_through};
use polymeter_benches::job::{Job, pause};
use polymeter_benches::load::Load;
use polymeter_benches::mock::Script;
use polymeter_benches::process;
use polymeter_benches::recording::RECORDED;
use polymeter_benches::store::Kind;
use polymeter_benches::table::to_f64;
use polymeter_collector::sinks::remote_write::V1;
use polymeter_proto::period::Period;

use super::measure::Measure;
use super::node::SETTLE_NS;
use super::paper::{Cell, Paper};
use super::results::Values;
use super::stamps::Stamps;
use super::{api, kwollect, node, scaled, served, stamps};
use crate::experiments::overhead::{Design, Run, Treatment, run_once};
use crate::experiments::remote_write::{Receiver, Workload, send};

/// Longest time of a command.
const LIMIT_S: u32 = 3_600;

pub(super) fn measure<'a>(
    paper: &'a Paper,
    cell: &Cell,
    scratch: &Path,
) -> Result<Values<'a>, Box<dyn Error>> {
    match &cell.measure {
        Measure::Reads => node::read(paper.seconds),
        Measure::Agent { period_us } => {
            node::sample(Period::from_micros(*period_us)?, paper.seconds, scratch)
        }
        Measure::Deliver { .. } => deliver(&cell.measure),
        Measure::RemoteWrite { is_persistent, requests, samples_per_request } => {
            remote_write(*is_persistent, *requests, *samples_per_request)
        }
        Measure::Gather => served::gather(paper, cell, scratch),
        Measure::Wrk { threads, connections } => served::wrk(paper, cell, (*threads, *connections), scratch),
        Measure::WrkApi { .. } => api::wrk(paper, cell),
        Measure::Copy { workers, rows } => kwollect::copy(usize::try_from(*workers)?, *rows),
        Measure::Read { .. } => api::read(paper, cell),
        Measure::Sample { .. } => sample(paper, cell, scratch),
        Measure::Command { .. } => time(paper, cell, scratch),
        Measure::Stamps { each, on_all_cpus, has_barriers, period_us } => {
            let stamps = Stamps { each: *each, on_all_cpus: *on_all_cpus, has_barriers: *has_barriers };
            stamps::measure(paper, cell, (stamps, *period_us), scratch)
        }
        Measure::Scale { .. } => scaled::measure(paper, cell),
        Measure::Printed { set } => printed(paper, cell, set),
    }
}

/// A complete sample is one of every node, and counts once it is stored.
fn deliver(measure: &Measure) -> Result<Values<'static>, Box<dyn Error>> {
    let Measure::Deliver { agents, frames, ticks, writers, through } = *measure else {
        return Err("the cell does not deliver".into());
    };
    let script = Script::read(Path::new(RECORDED), Period::MILLISECOND)?;
    let load = Load { agents, frames: frames.div_ceil(agents), ticks };
    let more = writers.map(|writers| format!("writers = {writers}\n")).unwrap_or_default();
    let layer = through.unwrap_or(Layer::Collectors(1));
    let taken = store_all_through(layer, Kind::best(), &more, &script, load.sampled(&script)?)?;
    let complete = f64::from(load.frames) * f64::from(ticks);
    let cpu_us = (taken.collector_cpu_s + taken.server_cpu_s) * 1e6;
    Ok(vec![
        ("rate_per_s", complete / taken.seconds),
        ("values_per_s", taken.per_second()),
        ("cpu_us", cpu_us / complete),
        ("value_cpu_us", cpu_us / to_f64(taken.samples)),
    ])
}

/// CPU time of the tool while it samples a job that works.
fn sample(paper: &Paper, cell: &Cell, scratch: &Path) -> Result<Values<'static>, Box<dyn Error>> {
    let Measure::Sample { period_us, settle_s, set } = &cell.measure else {
        return Err("the cell does not sample".into());
    };
    let tool = paper.tool(&cell.tool).ok_or("the experiment's file does not say how to start the tool")?;
    let tool = tool.with(set);
    let mut job = Job::make_for("papers", 0)?;
    job.work(&scratch.join("file"))?;
    let period_ms = (to_f64(*period_us) / 1e3).to_string();
    let agent = program("polymeter-agent")?.display().to_string();
    let running = tool.start(vec![("PERIOD_MS", period_ms), ("CGROUPS", job.cgroups()), ("AGENT", agent)])?;
    pause(settle_s.map_or(SETTLE_NS, |settle_s| settle_s * 1_000_000_000));
    let (begin_ns, cpu_s) = (now_ns(), running.cpu_s()?);
    pause(i64::try_from(paper.seconds)? * 1_000_000_000);
    let cpu_s = running.cpu_s()? - cpu_s;
    let samples = to_f64(now_ns() - begin_ns) / 1e3 / to_f64(*period_us);
    running.stop()?;
    let cpu_us = cpu_s * 1e6 / samples;
    Ok(vec![("cpu_us", cpu_us), ("core_percent_at_10s", cpu_us / 1e5)])
}

/// Runs the command once as `overhead` does.
fn time(paper: &Paper, cell: &Cell, scratch: &Path) -> Result<Values<'static>, Box<dyn Error>> {
    let Measure::Command { period_us, metrics, set, .. } = &cell.measure else {
        return Err("the cell does not time the command".into());
    };
    let tool = cell.measure.needs_tool(&cell.tool).and_then(|name| paper.tool(name));
    let design = Design {
        command: paper.command.clone(),
        pairs: paper.pairs,
        replicates: 1,
        seed: paper.seed,
        periods: Vec::new(),
        metrics: Vec::new(),
        limit_s: LIMIT_S,
        tools: tool.map(|tool| tool.with(set)).into_iter().collect(),
    };
    let treatment = match period_us {
        None => Treatment::Nothing,
        Some(period_us) => Treatment::Watched {
            tool: tool.map(|_| 0),
            period: Period::from_micros(*period_us)?,
            metrics: metrics.unwrap_or(1),
        },
    };
    let job = Job::make_for("papers", 0)?;
    let wall_s = run_once(&design, &Run { replicate: 1, treatment }, &job, scratch)?;
    Ok(vec![("wall_s", wall_s)])
}

/// Lets the tool's command measure: it finds the duration in SECONDS, and the program `polymeter` in
/// POLYMETER.
fn printed<'a>(
    paper: &'a Paper,
    cell: &Cell,
    set: &BTreeMap<String, String>,
) -> Result<Values<'a>, Box<dyn Error>> {
    let tool = paper.tool(&cell.tool).ok_or("the experiment's file does not say how to start the tool")?;
    let polymeter = program("polymeter")?.display().to_string();
    let environment = [("SECONDS", paper.seconds.to_string()), ("POLYMETER", polymeter)];
    let printed = tool.with(set).print(&environment)?;
    let mut values = Values::new();
    for line in printed.lines() {
        let pair = line.split_once(' ').and_then(|(name, value)| Some((name, value.trim().parse().ok()?)));
        let figure = pair.and_then(|(name, _)| paper.measured().find(|figure| figure.name == name));
        let (Some(figure), Some((_, value))) = (figure, pair) else {
            return Err(format!("{} printed `{line}`, which is no figure and its value", tool.name).into());
        };
        values.push((figure.name.as_str(), value));
    }
    Ok(values)
}

/// 100 nodes with 100 series each, as many samples as `requests` take.
fn remote_write(is_persistent: bool, requests: u32, each: u32) -> Result<Values<'static>, Box<dyn Error>> {
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
