//! Measures a job's page in a headless Chromium: the time until its first chart, and until finer values are drawn after a zoom.
//!
//! `cargo run --release --bin pages -- STORE [--runs N]`, where STORE is one that `world --into STORE` has filled.

use clap::Parser;
use polymeter_benches::collector::Collector;
use polymeter_benches::failure::Failure;
use polymeter_benches::store::Store;
use polymeter_benches::table::{self, say};
use polymeter_e2e::browser::Browser;
use polymeter_e2e::site::{Proxy, api_config};
use serde_json::Value;

/// Measures a job's page in a headless Chromium.
#[derive(Debug, Parser)]
struct Arguments {
    /// The store: sqlite:PATH, or a database of a running server.
    store: String,
    /// The scheduler's id of the job; by default, that with the most nodes of the newest hundred.
    #[arg(long)]
    job: Option<String>,
    /// Number of runs.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    runs: u16,
}

/// The user in whose name the page is opened: an administrator, whom every Debian has.
const USER: &str = "daemon";

/// The steps of the zoom, each to a thirtieth of the time: from a day to less than a minute.
const STEPS: u32 = 3;

/// The times of one run, in milliseconds.
struct Run {
    document: f64,
    first_chart: f64,
    complete: f64,
    zoom: f64,
}

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    table::machine();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    say(&format!("load before the runs: {}", load.trim()));
    let scratch = tempfile::tempdir()?;
    let socket = scratch.path().join("api.sock");
    let listen = format!("ipc://{}", scratch.path().join("collector").display());
    let administrators = format!("administrators = [\"{USER}\"]\n{}", api_config(&socket));
    let store = Store::existing(&arguments.store)?;
    let _collector = Collector::start(scratch.path(), &listen, &store, &administrators)?;
    let proxy = Proxy::start(&socket);
    let job = job(&proxy, arguments.job.as_deref())?;
    let key = job.get("key").and_then(Value::as_i64).unwrap_or_default();
    let page = format!("job?key={key}");
    let nodes = job.get("nodes").and_then(Value::as_array).map_or(0, Vec::len);
    let id = job.get("id").and_then(Value::as_str).unwrap_or_default();
    say(&format!("job {id} on {nodes} nodes"));
    let runs: Vec<Run> = (0..arguments.runs).map(|_| run(&proxy, &page)).collect();
    table::head(&["ms", "document", "first chart", "all visible parts", "zoom to samples"]);
    for (number, run) in runs.iter().enumerate() {
        row(&format!("run {}", number + 1), run);
    }
    let median = |value: fn(&Run) -> f64| {
        let mut values: Vec<f64> = runs.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    };
    let medians = Run {
        document: median(|run| run.document),
        first_chart: median(|run| run.first_chart),
        complete: median(|run| run.complete),
        zoom: median(|run| run.zoom),
    };
    row("median", &medians);
    Ok(())
}

fn row(name: &str, run: &Run) {
    let Run { document, first_chart, complete, zoom } = run;
    let mut cells = vec![name.to_owned()];
    cells.extend([document, first_chart, complete, zoom].map(|time| format!("{time:.0}")));
    table::row(&cells);
}

/// Returns the job with an id, or that with the most nodes.
fn job(proxy: &Proxy, id: Option<&str>) -> Result<Value, Failure> {
    let mut browser = proxy.open(USER, "");
    let query = id.map_or_else(String::new, |id| format!("?id={id}"));
    let jobs = browser.eval(&format!(
        "fetch('api/v1/jobs{query}').then((answer) => answer.json()).then((answer) => answer.jobs)"
    ));
    let most = jobs
        .as_array()
        .and_then(|jobs| jobs.iter().max_by_key(|job| job["nodes"].as_array().map_or(0, Vec::len)));
    most.cloned().ok_or_else(|| "the store has no such job".into())
}

/// Opens the page in a new browser, and zooms.
fn run(proxy: &Proxy, page: &str) -> Run {
    let mut browser = proxy.open(USER, page);
    browser.wait_until("document.documentElement.dataset.complete");
    let milliseconds =
        |browser: &mut Browser, expression: &str| browser.eval(expression).as_f64().unwrap_or(f64::NAN);
    let document = milliseconds(&mut browser, "performance.getEntriesByType('paint').at(-1).startTime");
    let first_chart =
        milliseconds(&mut browser, "performance.getEntriesByName('polymeter-ready')[0].startTime");
    let complete =
        milliseconds(&mut browser, "performance.getEntriesByName('polymeter-complete')[0].startTime");
    let mut zoom = f64::NAN;
    for _ in 0..STEPS {
        // The visible charts have their values before the next step.
        browser.wait_until("document.querySelector('.charts').dataset.busy === 'false'");
        let (x, y) = browser.middle(".u-over");
        let width = milliseconds(&mut browser, "document.querySelector('.u-over').clientWidth");
        browser.mouse("mousePressed", (x - width / 60.0, y), 1);
        browser.mouse("mouseMoved", (x, y), 1);
        browser.mouse("mouseReleased", (x + width / 60.0, y), 1);
        browser.wait_until("document.querySelector('.charts').dataset.busy === 'false' && Number(document.querySelector('.charts').dataset.zoomed) > 0");
        zoom = milliseconds(&mut browser, "Number(document.querySelector('.charts').dataset.zoomed)");
        browser.eval("document.querySelector('.charts').dataset.zoomed = '0'");
    }
    Run { document, first_chart, complete, zoom }
}
