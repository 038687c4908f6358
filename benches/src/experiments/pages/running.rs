//! The page of a running job, whose agents sample once a second.

use std::error::Error;
use std::path::Path;
use std::thread;

use polymeter_benches::clock::{wait_for, wall_us};
use polymeter_benches::collector::Collector;
use polymeter_benches::mock::Script;
use polymeter_benches::paced;
use polymeter_benches::recording::RECORDED;
use polymeter_benches::table::{self, say};
use polymeter_e2e::site::Proxy;
use polymeter_proto::period::Period;
use serde_json::Value;

use super::jobs::{USER, jobs, page};
use super::visit::{self, Visit};

/// Time within which the job must be there, and the page open.
const PATIENCE_S: u64 = 60;
const BEFORE_S: u32 = 60;

pub(crate) fn measure(
    proxy: &Proxy,
    collector: &Collector,
    agents: u32,
    seconds: u32,
) -> Result<(), Box<dyn Error>> {
    let script = Script::read(Path::new(RECORDED), Period::SECOND)?.of_job("1".try_into()?, wall_us());
    say(&format!("{} series on each node, each sampled once a second", script.samples_per_tick()));
    let context = zmq::Context::new();
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            paced::send(&context, collector.endpoint(), &script, agents, BEFORE_S + seconds)
                .map_err(|error| error.to_string())
        });
        let mut browser = proxy.open(USER, "");
        let job = wait_for("the job runs on all nodes", PATIENCE_S, || {
            jobs(&mut browser, "?state=running")
                .into_iter()
                .find(|job| job["nodes"].as_array().map_or(0, Vec::len) == agents as usize)
        })?;
        drop(browser);
        watch(proxy, &page(&job), seconds);
        match sender.join() {
            Ok(sent) => sent.map(|_samples| ()).map_err(Into::into),
            Err(_panic) => Err("an agent broke".into()),
        }
    })
}

/// Opens the page and prints what it does with the values.
fn watch(proxy: &Proxy, page: &str, seconds: u32) {
    let mut browser = proxy.open(USER, page);
    browser.wait_until("document.documentElement.dataset.complete");
    visit::print(&[Visit::complete(&mut browser)]);
    browser.wait_until("Number(document.querySelector('.charts').dataset.live) > 0");
    let before = browser.transferred_bytes();
    let found = browser.eval(
        &"(async () => {
            const charts = document.querySelector('.charts');
            const chart = charts.data.charts[0];
            const [delays, tasks] = [[], []];
            new PerformanceObserver((list) => tasks.push(...list.getEntries().map(({ duration }) => duration))).observe({ type: 'longtask' });
            let seen = charts.dataset.live;
            const end = performance.now() + SECONDS * 1000;
            while (performance.now() < end) {
                await new Promise((next) => setTimeout(next, 5));
                if (charts.dataset.live === seen) continue;
                seen = charts.dataset.live;
                delays.push(Date.now() - (charts.data.begin_s + chart.whole.times.at(-1)) * 1000);
            }
            delays.sort((one, other) => one - other);
            return [delays.length, delays[delays.length >> 1], delays.at(-1), Math.max(0, ...tasks), document.querySelectorAll('*').length];
        })()"
            .replace("SECONDS", &seconds.to_string()),
    );
    let received = (browser.transferred_bytes() - before) / 1e3 / f64::from(seconds);
    say("");
    table::head(&["drawings/s", "delay, median ms", "delay, max ms", "longest task, ms", "kB/s", "elements"]);
    let of = |position: usize| found.get(position).and_then(Value::as_f64).unwrap_or(f64::NAN);
    let drawings = format!("{:.1}", of(0) / f64::from(seconds));
    let mut cells = vec![drawings];
    cells.extend([of(1), of(2), of(3), received, of(4)].map(|value| format!("{value:.0}")));
    table::row(&cells);
}
