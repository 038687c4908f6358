//! One visit of a job's page, in a new browser.

use polymeter_benches::statistics::median;
use polymeter_benches::table;
use polymeter_e2e::browser::Browser;
use polymeter_e2e::pause;
use polymeter_e2e::site::Proxy;

use super::jobs::USER;

/// Steps of the zoom, each to a thirtieth of the time: from a day to less than a minute.
const STEPS: u32 = 3;

/// Time between the start of the browser and the visit.
const SETTLED_MS: u64 = 2_000;

/// Times of one visit, in milliseconds, and its sizes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Visit {
    document: f64,
    first_chart: f64,
    complete: f64,
    zoom: f64,
    /// First chart in the same browser, which has the files.
    again: f64,
    kilobytes: f64,
    elements: f64,
}

impl Visit {
    pub(crate) fn of(proxy: &Proxy, page: &str) -> Self {
        let mut browser = proxy.browser(Some(USER));
        // Its own start takes both CPUs for a while.
        pause(SETTLED_MS);
        browser.open_url(&proxy.url(page));
        browser.wait_until("document.documentElement.dataset.complete");
        let mut visit = Self::complete(&mut browser);
        visit.zoom = zoom(&mut browser);
        browser.open_url(&proxy.url(page));
        browser.wait_until("document.documentElement.dataset.complete");
        visit.again = Self::complete(&mut browser).first_chart;
        visit
    }

    /// Times of a page that is complete, without those of the zoom.
    pub(crate) fn complete(browser: &mut Browser) -> Self {
        let kilobytes = browser.received_bytes() / 1e3;
        let mut of = |expression: &str| browser.eval(expression).as_f64().unwrap_or(f64::NAN);
        Self {
            document: of("performance.getEntriesByType('paint').at(-1).startTime"),
            first_chart: of("performance.getEntriesByName('polymeter-ready')[0].startTime"),
            complete: of("performance.getEntriesByName('polymeter-complete')[0].startTime"),
            zoom: f64::NAN,
            again: f64::NAN,
            kilobytes,
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

pub(crate) fn print(visits: &[Visit]) {
    table::head(&[
        "ms",
        "document",
        "first chart",
        "all visible parts",
        "zoom to samples",
        "first chart again",
        "kB",
        "elements",
    ]);
    for (number, visit) in visits.iter().enumerate() {
        row(&format!("run {}", number + 1), visit);
    }
    let of = |value: fn(&Visit) -> f64| median(visits.iter().map(value));
    let medians = Visit {
        document: of(|visit| visit.document),
        first_chart: of(|visit| visit.first_chart),
        complete: of(|visit| visit.complete),
        zoom: of(|visit| visit.zoom),
        again: of(|visit| visit.again),
        kilobytes: of(|visit| visit.kilobytes),
        elements: of(|visit| visit.elements),
    };
    row("median", &medians);
}

fn row(name: &str, visit: &Visit) {
    let Visit { document, first_chart, complete, zoom, again, kilobytes, elements } = visit;
    let mut cells = vec![name.to_owned()];
    cells.extend(
        [document, first_chart, complete, zoom, again, kilobytes, elements]
            .map(|value| format!("{value:.0}")),
    );
    table::row(&cells);
}
