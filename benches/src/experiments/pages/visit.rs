//! One visit of a page, in a new browser.

use polymeter_benches::statistics::median;
use polymeter_benches::table::{self, say};
use polymeter_e2e::browser::Browser;
use polymeter_e2e::pause;
use polymeter_e2e::site::Proxy;

use super::jobs::USER;
use super::weight::Weight;

/// Steps of the zoom, each to a thirtieth of the time: from a day to less than a minute.
const STEPS: u32 = 3;

/// Time between the start of the browser and the visit.
const SETTLED_MS: u64 = 2_000;

/// Time after the last visible part in which a page may still ask for what its readers see, such as the
/// findings of the rows of a list.
const LOADED_MS: u64 = 2_000;

/// Times of one visit, in milliseconds, and its sizes.
#[derive(Debug, Clone)]
pub(crate) struct Visit {
    document: f64,
    first_chart: f64,
    complete: f64,
    zoom: f64,
    /// First chart in the same browser, which has the files.
    again: f64,
    weight: Weight,
    elements: f64,
}

impl Visit {
    /// Visits the page of a job.
    pub(crate) fn of_job(proxy: &Proxy, page: &str) -> Self {
        let (mut browser, mut visit) = Self::first(proxy, page);
        visit.zoom = zoom(&mut browser);
        visit.again(proxy, page, &mut browser);
        visit
    }

    /// Visits the overview, which has no charts that one may zoom.
    pub(crate) fn of_overview(proxy: &Proxy) -> Self {
        let (mut browser, mut visit) = Self::first(proxy, "");
        visit.again(proxy, "", &mut browser);
        visit
    }

    fn first(proxy: &Proxy, page: &str) -> (Browser, Self) {
        let mut browser = proxy.browser(Some(USER));
        // Its own start takes both CPUs for a while.
        pause(SETTLED_MS);
        browser.open_url(&proxy.url(page));
        browser.wait_until("document.documentElement.dataset.complete");
        pause(LOADED_MS);
        let visit = Self::complete(&mut browser);
        (browser, visit)
    }

    fn again(&mut self, proxy: &Proxy, page: &str, browser: &mut Browser) {
        browser.open_url(&proxy.url(page));
        browser.wait_until("document.documentElement.dataset.complete");
        self.again = Self::complete(browser).first_chart;
    }

    /// Times of a page that is complete, without those of the zoom.
    pub(crate) fn complete(browser: &mut Browser) -> Self {
        let weight = Weight::of(&browser.transfers());
        let mut of = |expression: &str| browser.eval(expression).as_f64().unwrap_or(f64::NAN);
        Self {
            document: of("performance.getEntriesByType('paint').at(-1).startTime"),
            first_chart: of("performance.getEntriesByName('polymeter-ready')[0].startTime"),
            complete: of("performance.getEntriesByName('polymeter-complete')[0].startTime"),
            zoom: f64::NAN,
            again: f64::NAN,
            weight,
            elements: of("document.querySelectorAll('*').length"),
        }
    }
}

/// Zooms into the middle of the visible time, and returns the time of the last step, in milliseconds.
fn zoom(browser: &mut Browser) -> f64 {
    let mut zoom = f64::NAN;
    for _ in 0..STEPS {
        // The visible charts have their values before the next step.
        browser.wait_until("document.querySelector('.charts').dataset.busy === 'false'");
        let (x, y) = browser.middle(".u-over");
        let width =
            browser.eval("document.querySelector('.u-over').clientWidth").as_f64().unwrap_or(f64::NAN);
        browser.mouse("mousePressed", (x - width / 60.0, y), 1);
        browser.mouse("mouseMoved", (x, y), 1);
        browser.mouse("mouseReleased", (x + width / 60.0, y), 1);
        browser.wait_until("document.querySelector('.charts').dataset.busy === 'false' && Number(document.querySelector('.charts').dataset.zoomed) > 0");
        let taken = browser.eval("Number(document.querySelector('.charts').dataset.zoomed)");
        zoom = taken.as_f64().unwrap_or(f64::NAN);
        browser.eval("document.querySelector('.charts').dataset.zoomed = '0'");
    }
    zoom
}

/// Prints the times of visits, and what the last one transferred.
pub(crate) fn print(visits: &[Visit]) {
    table::head(&[
        "ms",
        "document",
        "first contents",
        "all visible parts",
        "zoom to samples",
        "first contents again",
        "kB transferred",
        "elements",
    ]);
    for (number, visit) in visits.iter().enumerate() {
        row(&format!("run {}", number + 1), visit.columns());
    }
    let all: Vec<[f64; 7]> = visits.iter().map(Visit::columns).collect();
    let mut medians = [f64::NAN; 7];
    for (position, value) in medians.iter_mut().enumerate() {
        *value = median(all.iter().filter_map(|columns| columns.get(position).copied()));
    }
    row("median", medians);
    if let Some(visit) = visits.last() {
        say("");
        visit.weight.print();
    }
}

impl Visit {
    fn columns(&self) -> [f64; 7] {
        let Self { document, first_chart, complete, zoom, again, weight, elements } = self;
        [*document, *first_chart, *complete, *zoom, *again, weight.transferred_kb(), *elements]
    }
}

fn row(name: &str, columns: [f64; 7]) {
    let mut cells = vec![name.to_owned()];
    cells.extend(columns.map(|value| format!("{value:.0}")));
    table::row(&cells);
}
