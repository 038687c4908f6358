//! A collector under many mock agents, or a server that scrapes as many mock exporters.

use std::error::Error;

use polymeter_benches::process::{Usage, Waits};
use polymeter_benches::store::Kind;
use polymeter_benches::table::to_f64;
use polymeter_proto::period::Period;

use super::measure::Measure;
use super::paper::{Cell, Paper};
use super::results::Values;
use crate::experiments::scale::{Arguments, Collected, Scraper, Scraping, processes_for};

/// Period of the report.
const PERIOD_US: u64 = 10_000_000;

/// Values of an agent or exporter.
const VALUES: f64 = 50.0;

pub(super) fn measure(paper: &Paper, cell: &Cell) -> Result<Values<'static>, Box<dyn Error>> {
    let Measure::Scale { nodes, mocks, set, idle_s, files } = &cell.measure else {
        return Err("the cell does not measure scale".into());
    };
    // Prometheus needs a descriptor for each exporter, and inherits the limit of this process.
    polymeter_agent::kernel::raise_descriptor_limit();
    // A functional check does not wait for whole periods.
    let period = Period::from_micros(PERIOD_US.min(paper.seconds * 1_000_000))?;
    let Some(scraper) = Scraper::of(&cell.tool) else {
        return collect(*nodes, period, paper.seconds);
    };
    let tool = mocks.as_deref().and_then(|name| paper.tool(name)).map(|tool| tool.with(set));
    let scraping = Scraping {
        scraper,
        exporters: *nodes,
        period,
        seconds: paper.seconds,
        processes: processes_for(*nodes),
        mocks: tool.as_ref(),
        idle_s: *idle_s,
        files: *files,
    };
    let outcome = scraping.measure()?;
    let rate_per_s = to_f64(outcome.answered) * VALUES / outcome.seconds;
    let answered = 100.0 * to_f64(outcome.answered) / to_f64(outcome.due);
    Ok(values((answered, rate_per_s), outcome.server, (outcome.seconds, outcome.first_s), outcome.waits))
}

fn collect(nodes: u64, period: Period, seconds: u64) -> Result<Values<'static>, Box<dyn Error>> {
    let arguments = Arguments {
        agents: Vec::new(),
        seconds,
        period,
        store: None,
        processes: None,
        per_connection: 1,
        collectors: 1,
        warm_up: 0,
        prometheus: false,
        quick: false,
    };
    let outcome = Collected::measure(&arguments, Kind::best(), nodes)?;
    // The first round is stored, but not in the measured time.
    let steady = to_f64(outcome.expected) - to_f64(nodes) * VALUES;
    let stored = 100.0 * to_f64(outcome.stored) / to_f64(outcome.expected);
    let both = Usage {
        cpu_s: outcome.collector.cpu_s + outcome.server.cpu_s,
        memory_kib: outcome.collector.memory_kib + outcome.server.memory_kib,
        ..outcome.collector
    };
    let rate_per_s = steady / outcome.seconds;
    Ok(values((stored, rate_per_s), both, (outcome.seconds, outcome.first_s), outcome.waits))
}

fn values(
    (answered_percent, rate_per_s): (f64, f64),
    usage: Usage,
    (seconds, first_s): (f64, f64),
    waits: Waits,
) -> Values<'static> {
    vec![
        ("answered_percent", answered_percent),
        ("rate_per_s", rate_per_s),
        ("cpu_percent", 100.0 * usage.cpu_s / seconds),
        ("memory_mib", to_f64(usage.memory_kib) / 1024.0),
        ("first_s", first_s),
        ("idle_percent", 100.0 * waits.idle_s / waits.cpus_s),
        ("for_cpu_percent", 100.0 * waits.for_cpu_s / seconds),
        ("for_disk_percent", 100.0 * waits.for_disk_s / seconds),
        ("for_memory_percent", 100.0 * waits.for_memory_s / seconds),
        ("switches_per_s", to_f64(waits.switches) / seconds),
    ]
}
