//! The resource usage of a server while it scrapes N mock exporters with the same values and the same
//! period.

use std::error::Error;
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use polymeter_benches::clock::{SECOND_NS, now_ns, sleep_until, wait_for, wall_us};
use polymeter_benches::mock::Script;
use polymeter_benches::process::{Usage, Waits};
use polymeter_benches::recording::RECORDED;
use polymeter_benches::table::to_f64;
use polymeter_benches::tool::{RunningTool, Tool};
use polymeter_proto::period::Period;

use super::arguments::Arguments;
use super::exporters::{self, Exporters, Served};
use super::fleet::node;
use super::page::Page;
use super::part::Part;
use super::prometheus::{self, Block, JOB, Prometheus, Scraper};

/// Maximum duration of the first round, in periods. Exporters that were not scraped by then are reported as
/// down.
const FIRST_ROUND_PERIODS: u64 = 12;

/// The same for a server with few open files, which may never finish it.
const LIMITED_ROUND_PERIODS: u64 = 2;

/// Timeout of a scrape, Prometheus' default; it is never longer than the period.
const SCRAPE_NS: u64 = 10 * SECOND_NS;

/// Limit for a tool to start its mocks.
const START_S: u64 = 300;

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
    /// All data as a block, including the first round; only Prometheus has blocks.
    pub(crate) block: Block,
    /// Waits of the machine.
    pub(crate) waits: Waits,
}

/// A server that scrapes exporters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scraping<'a> {
    pub(crate) scraper: Scraper,
    pub(crate) exporters: u64,
    pub(crate) period: Period,
    pub(crate) seconds: u64,
    /// Processes of the built-in exporters.
    pub(crate) processes: u64,
    /// Serves the pages instead of the built-in exporters.
    pub(crate) mocks: Option<&'a Tool>,
    /// Time in seconds after which the built-in exporters close an idle connection.
    pub(crate) idle_s: Option<u64>,
    /// Most open files of the server. It may have none left to answer queries, so that pages are counted
    /// where they are served.
    pub(crate) files: Option<u64>,
}

impl<'a> Scraping<'a> {
    /// A Prometheus server without limits and built-in exporters.
    pub(crate) fn by_prometheus(arguments: &Arguments, exporters: u64) -> Self {
        Self {
            scraper: Scraper::Prometheus,
            exporters,
            period: arguments.period,
            seconds: arguments.seconds,
            processes: arguments.processes_for(exporters),
            mocks: None,
            idle_s: None,
            files: None,
        }
    }

    pub(crate) fn measure(&self) -> Result<Scraped, Box<dyn Error>> {
        let (exporters, scratch) = (self.exporters, tempfile::tempdir()?);
        let script = Script::read(Path::new(RECORDED), self.period)?;
        let mut mocks = Mocks::start(self)?;
        let configuration = prometheus::configuration(self.period, mocks.targets().into_iter());
        let prometheus = Prometheus::start(self.scraper, scratch.path(), &configuration, self.files)?;
        let first_s = self.first_round(&prometheus, &mut mocks)?;

        let period_ns = self.period.as_nanos();
        let rounds = (self.seconds * SECOND_NS).div_ceil(period_ns);
        let (served_before, disk_before) = (mocks.served()?, prometheus.disk_bytes()?);
        let (before, begin_ns, begin_us) = (prometheus.usage()?, now_ns(), wall_us());
        let waits_before = Waits::read()?;
        let end_ns = begin_ns + rounds * period_ns;
        let mut most = before;
        while now_ns() < end_ns {
            sleep_until(end_ns.min(now_ns() + SECOND_NS));
            most.memory_kib = most.memory_kib.max(prometheus.usage()?.memory_kib);
        }
        let (after, measured_ns) = (prometheus.usage()?, now_ns() - begin_ns);
        let waits = Waits::read()?.since(&waits_before);
        let (served, disk_after) = (mocks.served()?, prometheus.disk_bytes()?);

        // The last scrapes may still be running; their samples have the times at which the scrapes started.
        sleep_until(now_ns() + period_ns.min(SCRAPE_NS));
        let window = Window::new(begin_us / 1_000, rounds * period_ns / 1_000_000)?;
        let due = exporters * rounds;
        let served = served.since(&served_before);
        let is_asked = self.files.is_none();
        let has_stored = is_asked && self.mocks.is_none();
        let asked = |function| window.sum(&prometheus, function, "up");
        Ok(Scraped {
            exporters,
            due,
            done: if is_asked { asked("count_over_time")? } else { served.pages },
            answered: if is_asked { asked("sum_over_time")? } else { served.pages },
            expected: if has_stored { due * script.samples_per_tick() as u64 } else { 0 },
            stored: if has_stored { window.stored(&prometheus, &Page::of(&script))? } else { 0 },
            down: if is_asked { exporters.saturating_sub(up(&prometheus, window.end_ms)?) } else { 0 },
            seconds: to_f64(measured_ns) / 1e9,
            first_s,
            server: Usage { cpu_s: after.cpu_s - before.cpu_s, ..most },
            served,
            grown_bytes: disk_after.saturating_sub(disk_before),
            block: if self.scraper == Scraper::Prometheus && is_asked {
                prometheus.block()?
            } else {
                Block::default()
            },
            waits,
        })
    }

    /// Waits until every exporter's first page is stored, which creates its series. Returns the duration, in
    /// seconds.
    fn first_round(&self, prometheus: &Prometheus, mocks: &mut Mocks<'_>) -> Result<f64, Box<dyn Error>> {
        let begin_ns = now_ns();
        let periods = if self.files.is_none() { FIRST_ROUND_PERIODS } else { LIMITED_ROUND_PERIODS };
        let end_ns = begin_ns + periods * self.period.as_nanos().max(SECOND_NS);
        while now_ns() < end_ns {
            let is_limited = self.files.is_some();
            let done = if is_limited { mocks.served()?.pages } else { up(prometheus, wall_us() / 1_000)? };
            if done >= self.exporters {
                break;
            }
            sleep_until(now_ns() + SECOND_NS / 4);
        }
        Ok(to_f64(now_ns() - begin_ns) / 1e9)
    }
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

/// Exporters in processes of this program, or the tool that serves their pages at one port.
#[derive(Debug)]
enum Mocks<'a> {
    Builtin(Vec<Mock>),
    Tool { running: RunningTool<'a>, port: u16, exporters: u64 },
}

#[derive(Debug)]
struct Mock {
    part: Part,
    which: Exporters,
    port: u16,
}

impl<'a> Mocks<'a> {
    /// Distributes the exporters over processes. A tool finds their addresses in FIRST, COUNT and PORT.
    fn start(scraping: &Scraping<'a>) -> Result<Self, Box<dyn Error>> {
        let &Scraping { exporters, processes, period, idle_s, .. } = scraping;
        if let Some(tool) = scraping.mocks {
            let first = exporters::address(0);
            let port = TcpListener::bind((first, 0))?.local_addr()?.port();
            let running = tool.start(vec![
                ("FIRST", first.to_string()),
                ("COUNT", exporters.to_string()),
                ("PORT", port.to_string()),
            ])?;
            let last = exporters::address(exporters.saturating_sub(1));
            wait_for("the last mock answers", START_S, || TcpStream::connect((last, port)).ok())?;
            return Ok(Self::Tool { running, port, exporters });
        }
        let mut mocks = Vec::new();
        for first in 0..processes {
            let which = Exporters { first, step: processes, exporters, period, idle_s };
            let mut part = Part::start("exporters", &which)?;
            let port = part.parsed_line()?;
            mocks.push(Mock { part, which, port });
        }
        Ok(Self::Builtin(mocks))
    }

    /// Nodes and their addresses.
    fn targets(&self) -> Vec<(String, String)> {
        let target = |number, port: u16| (node(number), format!("{}:{port}", exporters::address(number)));
        match self {
            Self::Tool { port, exporters, .. } => {
                (0..*exporters).map(|number| target(number, *port)).collect()
            }
            Self::Builtin(mocks) => {
                let of_one = |mock: &Mock| {
                    let port = mock.port;
                    mock.which.numbers().map(move |number| target(number, port))
                };
                mocks.iter().flat_map(of_one).collect()
            }
        }
    }

    /// Of a tool, only the CPU time.
    fn served(&mut self) -> Result<Served, Box<dyn Error>> {
        let mut sum = Served::default();
        match self {
            Self::Tool { running, .. } => sum.cpu_s = running.cpu_s()?,
            Self::Builtin(mocks) => {
                for mock in mocks {
                    mock.part.go()?;
                    sum.add(&mock.part.parsed_line()?);
                }
            }
        }
        Ok(sum)
    }
}
