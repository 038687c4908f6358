//! Exporters that an agent scrapes for a collector and a store, and Prometheus for itself.

use std::error::Error;
use std::path::Path;

use polymeter_benches::agent::Agent;
use polymeter_benches::clock::{SECOND_NS, now_ns, sleep_until, wall_us};
use polymeter_benches::collector::Collector;
use polymeter_benches::process::{Usage, resident_kib, usage};
use polymeter_benches::store::{Kind, Store};
use polymeter_benches::table::{self, say, to_f64};

use super::super::scale::part::Part;
use super::super::scale::prometheus::{self, Prometheus, Scraper};
use super::arguments::Arguments;
use super::stand_ins::{StandIns, Stood, address, names};

/// Use of a program that scraped the exporters.
#[derive(Debug)]
struct Scraped {
    name: String,
    cpu_s: f64,
    memory_kib: u64,
    seconds: f64,
    pages: u64,
    stored: u64,
    expected: u64,
    stand_in_cpu_s: f64,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let mut rows = by_polymeter(arguments)?;
    if arguments.prometheus {
        rows.push(by_prometheus(arguments)?);
    }
    let Arguments { exporters, series, exporter_period, .. } = arguments;
    say(&format!("\n{exporters} exporters of {series} series every {exporter_period}:\n"));
    let all_series = u64::from(*exporters) * u64::from(*series);
    let row = |scraped: &Scraped| {
        let of_store = |value: String| if scraped.expected == 0 { String::new() } else { value };
        vec![
            scraped.name.clone(),
            format!("{:.2}", 100.0 * scraped.cpu_s / scraped.seconds),
            format!("{:.1} MiB", to_f64(scraped.memory_kib) / 1024.0),
            (scraped.memory_kib * 1024 / all_series.max(1)).to_string(),
            scraped.pages.to_string(),
            of_store(format!("{} of {}", scraped.stored, scraped.expected)),
            format!("{:.2}", 100.0 * scraped.stand_in_cpu_s / scraped.seconds),
        ]
    };
    let rows: Vec<_> = rows.iter().map(row).collect();
    table::table(
        &[
            "program",
            "CPU, % of a core",
            "memory",
            "bytes for each series",
            "pages",
            "samples stored",
            "exporters' CPU, % of a core",
        ],
        &rows,
    );
    Ok(())
}

/// The measured time, a whole number of periods, from a time that is not that of a scrape.
struct Window {
    begin_ns: u64,
    begin_us: i64,
    periods: u64,
    period_ns: u64,
}

impl Window {
    /// Waits for the warm-up.
    fn begin(arguments: &Arguments) -> Self {
        sleep_until(now_ns() + arguments.warm_up * SECOND_NS);
        let period_ns = arguments.exporter_period.as_nanos();
        let periods = (arguments.seconds * SECOND_NS).div_ceil(period_ns);
        Self { begin_ns: now_ns(), begin_us: wall_us(), periods, period_ns }
    }

    fn end_us(&self) -> Result<i64, Box<dyn Error>> {
        Ok(self.begin_us + i64::try_from(self.periods * self.period_ns / 1_000)?)
    }

    /// Calls `each` every second until the end.
    fn wait(&self, mut each: impl FnMut() -> Result<(), Box<dyn Error>>) -> Result<(), Box<dyn Error>> {
        let end_ns = self.begin_ns + self.periods * self.period_ns;
        while now_ns() < end_ns {
            sleep_until(end_ns.min(now_ns() + SECOND_NS));
            each()?;
        }
        Ok(())
    }

    fn seconds(&self) -> f64 {
        to_f64(self.periods * self.period_ns) / 1e9
    }
}

struct Exporters {
    part: Part,
    port: u16,
}

impl Exporters {
    fn start(arguments: &Arguments) -> Result<Self, Box<dyn Error>> {
        let mut part = Part::start("stand-ins", &StandIns { devices: 0, series: arguments.series })?;
        let port = part.line()?.parse()?;
        Ok(Self { part, port })
    }

    fn stood(&mut self) -> Result<Stood, Box<dyn Error>> {
        self.part.go()?;
        self.part.parsed_line()
    }
}

fn by_polymeter(arguments: &Arguments) -> Result<Vec<Scraped>, Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let kind = arguments.store.unwrap_or_else(Kind::best);
    let store = Store::start(kind)?;
    let endpoint = format!("ipc://{}/collector", scratch.path().display());
    let collector = Collector::start(scratch.path(), &endpoint, &store, "")?;
    let mut exporters = Exporters::start(arguments)?;
    let agent =
        Agent::start(scratch.path(), collector.endpoint(), &configuration(arguments, exporters.port))?;
    let window = Window::begin(arguments);
    let usages = || -> Result<[Usage; 3], Box<dyn Error>> {
        Ok([usage(agent.pid())?, collector.usage()?, store.usage()?])
    };
    let (before, stood_before) = (usages()?, exporters.stood()?);
    let mut memory_kib = [0; 3];
    window.wait(|| {
        let now = [resident_kib(agent.pid())?, collector.usage()?.memory_kib, store.usage()?.memory_kib];
        memory_kib.iter_mut().zip(now).for_each(|(most, now)| *most = now.max(*most));
        Ok(())
    })?;
    let (after, stood) = (usages()?, exporters.stood()?);
    // What is on its way is stored when both have ended.
    if !agent.stop() {
        return Err("the agent failed".into());
    }
    collector.stop()?;
    let stored = stored(&store, &window)?;
    let expected = u64::from(arguments.exporters) * u64::from(arguments.series) * window.periods;
    let pages = stood.answered - stood_before.answered;
    let parts = ["agent", "collector", "database"];
    let mut rows = Vec::new();
    for (((name, before), after), memory_kib) in parts.iter().zip(before).zip(after).zip(memory_kib) {
        rows.push(Scraped {
            name: format!("Polymeter, {name}"),
            cpu_s: after.cpu_s - before.cpu_s,
            memory_kib,
            seconds: window.seconds(),
            pages,
            stored,
            expected: if *name == "database" { expected } else { 0 },
            stand_in_cpu_s: stood.cpu_s - stood_before.cpu_s,
        });
    }
    Ok(rows)
}

fn stored(store: &Store, window: &Window) -> Result<u64, Box<dyn Error>> {
    let (begin_us, end_us) = (window.begin_us, window.end_us()?);
    let time = |us: i64| match store.kind() {
        Kind::Sqlite => us.to_string(),
        Kind::Postgres | Kind::Timescaledb | Kind::Citus => format!("to_timestamp({us} / 1e6)"),
    };
    let sql = format!(
        "SELECT count(*) FROM samples JOIN series USING (series_id) WHERE metric LIKE 'device.%' \
         AND time >= {} AND time < {}",
        time(begin_us),
        time(end_us)
    );
    Ok(store.ask(&sql)?.trim().parse()?)
}

/// Configuration of an agent with a metric for each name of a page.
fn configuration(arguments: &Arguments, port: u16) -> String {
    let mut text = "node = \"devices1\"\njobs = []\n".to_owned();
    for number in 0..arguments.exporters {
        let address = address(number);
        text.push_str(&format!(
            "[[device]]\nname = \"node{number}\"\nurl = \"http://{address}:{port}/metrics\"\ntimeout = \"10s\"\n"
        ));
        for (index, name) in names(arguments.series).enumerate() {
            let period = arguments.exporter_period;
            text.push_str(&format!(
                "[[device.metric]]\nname = \"stand.in{index}\"\naddress = \"{name}\"\nperiod = \"{period}\"\n"
            ));
        }
    }
    text + "[baseline]\n\"agent.cpu.time\" = \"10s\"\n"
}

fn by_prometheus(arguments: &Arguments) -> Result<Scraped, Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let mut exporters = Exporters::start(arguments)?;
    let port = exporters.port;
    let targets =
        (0..arguments.exporters).map(|number| (format!("n{number}"), format!("{}:{port}", address(number))));
    let configuration = prometheus::configuration(arguments.exporter_period, targets);
    let server = Prometheus::start(Scraper::Prometheus, Path::new(scratch.path()), &configuration, None)?;
    let window = Window::begin(arguments);
    let (before, stood_before) = (server.usage()?, exporters.stood()?);
    let mut memory_kib = 0;
    window.wait(|| {
        memory_kib = memory_kib.max(server.usage()?.memory_kib);
        Ok(())
    })?;
    let (after, stood) = (server.usage()?, exporters.stood()?);
    let seconds = window.periods * window.period_ns / SECOND_NS;
    let mut stored = 0;
    for name in names(arguments.series) {
        let query = format!("sum(count_over_time({name}[{seconds}s]))");
        stored += server.count(&query, window.end_us()? / 1_000)?;
    }
    Ok(Scraped {
        name: prometheus::version()?,
        cpu_s: after.cpu_s - before.cpu_s,
        memory_kib,
        seconds: window.seconds(),
        pages: stood.answered - stood_before.answered,
        stored,
        expected: u64::from(arguments.exporters) * u64::from(arguments.series) * window.periods,
        stand_in_cpu_s: stood.cpu_s - stood_before.cpu_s,
    })
}
