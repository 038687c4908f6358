//! The resource usage of Prometheus while it scrapes N mock exporters with the same values and the same
//! period.

use std::error::Error;
use std::path::Path;

use polymeter_benches::clock::{SECOND_NS, now_ns, sleep_until, wall_us};
use polymeter_benches::mock::Script;
use polymeter_benches::process::Usage;
use polymeter_benches::recording::RECORDED;
use polymeter_benches::table::to_f64;

use super::arguments::Arguments;
use super::exporters::{self, Exporters, Served};
use super::fleet::node;
use super::page::Page;
use super::part::Part;
use super::prometheus::{self, Block, JOB, Prometheus};

/// Maximum duration of the first round, in periods. Exporters that were not scraped by then are reported as
/// down.
const FIRST_ROUND_PERIODS: u64 = 12;

/// Timeout of a scrape, Prometheus' default; it is never longer than the period.
const SCRAPE_NS: u64 = 10 * SECOND_NS;

#[derive(Debug)]
pub(crate) struct Scraped {
    pub(crate) exporters: u64,
    /// Scrapes that were due in the measured time.
    pub(crate) due: u64,
    pub(crate) done: u64,
    pub(crate) answered: u64,
    /// Samples that were due, and those of them that are stored.
    pub(crate) expected: u64,
    pub(crate) stored: u64,
    /// Exporters whose last scrape failed or that were never scraped.
    pub(crate) down: u64,
    pub(crate) seconds: f64,
    /// Duration of the first round.
    pub(crate) first_s: f64,
    pub(crate) server: Usage,
    pub(crate) served: Served,
    /// Growth of the data on the disk in that time.
    pub(crate) grown_bytes: u64,
    /// All data as a block, including the first round.
    pub(crate) block: Block,
}

impl Scraped {
    pub(crate) fn measure(arguments: &Arguments, exporters: u64) -> Result<Self, Box<dyn Error>> {
        let scratch = tempfile::tempdir()?;
        let script = Script::read(Path::new(RECORDED), arguments.period)?;
        let mut mocks = Mocks::start(arguments, exporters)?;
        let configuration = prometheus::configuration(arguments.period, mocks.targets());
        let prometheus = Prometheus::start(scratch.path(), &configuration)?;
        let first_s = first_round(&prometheus, arguments, exporters)?;

        let period_ns = arguments.period.as_nanos();
        let rounds = (arguments.seconds * SECOND_NS).div_ceil(period_ns);
        let (served_before, disk_before) = (mocks.served()?, prometheus.disk_bytes()?);
        let (before, begin_ns, begin_us) = (prometheus.usage()?, now_ns(), wall_us());
        let end_ns = begin_ns + rounds * period_ns;
        let mut most = before;
        while now_ns() < end_ns {
            sleep_until(end_ns.min(now_ns() + SECOND_NS));
            most.memory_kib = most.memory_kib.max(prometheus.usage()?.memory_kib);
        }
        let (after, measured_ns) = (prometheus.usage()?, now_ns() - begin_ns);
        let (served, disk_after) = (mocks.served()?, prometheus.disk_bytes()?);

        // The last scrapes may still be running; their samples have the times at which the scrapes started.
        sleep_until(now_ns() + period_ns.min(SCRAPE_NS));
        let window = Window::new(begin_us / 1_000, rounds * period_ns / 1_000_000)?;
        let due = exporters * rounds;
        let outcome = Self {
            exporters,
            due,
            done: window.sum(&prometheus, "count_over_time", "up")?,
            answered: window.sum(&prometheus, "sum_over_time", "up")?,
            expected: due * script.samples_per_tick() as u64,
            stored: window.stored(&prometheus, &Page::of(&script))?,
            down: exporters.saturating_sub(up(&prometheus, window.end_ms)?),
            seconds: to_f64(measured_ns) / 1e9,
            first_s,
            server: Usage { cpu_s: after.cpu_s - before.cpu_s, ..most },
            served: served.since(&served_before),
            grown_bytes: disk_after.saturating_sub(disk_before),
            block: prometheus.block()?,
        };
        if outcome.answered == 0 {
            return Err(format!("Prometheus got no page of any of {exporters} exporters: {outcome:?}").into());
        }
        Ok(outcome)
    }
}

/// Waits until every exporter's first page is stored, which creates its series. Returns the duration, in
/// seconds.
fn first_round(
    prometheus: &Prometheus,
    arguments: &Arguments,
    exporters: u64,
) -> Result<f64, Box<dyn Error>> {
    let begin_ns = now_ns();
    let end_ns = begin_ns + FIRST_ROUND_PERIODS * arguments.period.as_nanos().max(SECOND_NS);
    while now_ns() < end_ns && up(prometheus, wall_us() / 1_000)? < exporters {
        sleep_until(now_ns() + SECOND_NS / 4);
    }
    Ok(to_f64(now_ns() - begin_ns) / 1e9)
}

/// How many exporters' last scrape returned a page.
fn up(prometheus: &Prometheus, at_ms: i64) -> Result<u64, Box<dyn Error>> {
    prometheus.count(&format!("sum(up{{job=\"{JOB}\"}})"), at_ms)
}

/// A span of time in which samples are counted.
#[derive(Debug)]
struct Window {
    end_ms: i64,
    /// One less than the window's length: Prometheus includes both ends, and timestamps are whole
    /// milliseconds.
    range_ms: u64,
}

impl Window {
    fn new(begin_ms: i64, length_ms: u64) -> Result<Self, Box<dyn Error>> {
        Ok(Self {
            end_ms: begin_ms + i64::try_from(length_ms)?,
            range_ms: length_ms.saturating_sub(1).max(1),
        })
    }

    fn sum(&self, prometheus: &Prometheus, function: &str, metric: &str) -> Result<u64, Box<dyn Error>> {
        let range_ms = self.range_ms;
        prometheus.count(&format!("sum({function}({metric}{{job=\"{JOB}\"}}[{range_ms}ms]))"), self.end_ms)
    }

    /// Counts the stored samples of the exporters' own metrics. Each metric is queried separately, since a
    /// query of all of them would exceed Prometheus' limit of samples per query.
    fn stored(&self, prometheus: &Prometheus, page: &Page) -> Result<u64, Box<dyn Error>> {
        page.names().map(|name| self.sum(prometheus, "count_over_time", name)).sum()
    }
}

#[derive(Debug)]
struct Mocks(Vec<Mock>);

#[derive(Debug)]
struct Mock {
    part: Part,
    which: Exporters,
    port: u16,
}

impl Mocks {
    /// Distributes the exporters over processes.
    fn start(arguments: &Arguments, exporters: u64) -> Result<Self, Box<dyn Error>> {
        let step = arguments.processes_for(exporters);
        let mut mocks = Vec::new();
        for first in 0..step {
            let which = Exporters { first, step, exporters, period: arguments.period };
            let mut part = Part::start("exporters", &which)?;
            let port = part.parsed_line()?;
            mocks.push(Mock { part, which, port });
        }
        Ok(Self(mocks))
    }

    /// Nodes and their addresses.
    fn targets(&self) -> impl Iterator<Item = (String, String)> {
        self.0.iter().flat_map(|mock| {
            mock.which
                .numbers()
                .map(|number| (node(number), format!("{}:{}", exporters::address(number), mock.port)))
        })
    }

    fn served(&mut self) -> Result<Served, Box<dyn Error>> {
        let mut sum = Served::default();
        for mock in &mut self.0 {
            mock.part.go()?;
            sum.add(&mock.part.parsed_line()?);
        }
        Ok(sum)
    }
}
