//! Open pages whose collector is killed or stopped: they say so, keep what they show, and go on when it is
//! there again.

use polymeter_e2e::browser::Browser;
use polymeter_e2e::{pause, tests};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::site_fixture::{OWNER, Site};

tests![
    a_page_survives_a_killed_collector_and_draws_the_gap,
    a_page_tells_that_a_collector_is_stopped,
    the_overview_tells_that_its_collector_is_away,
    the_figures_of_a_running_job_follow_it,
];

/// How often live values were drawn.
const LIVE: &str = "Number(document.querySelector('.charts').dataset.live ?? 0)";

const NOTICES: &str = "[...document.querySelectorAll('.notice')].map((notice) => notice.textContent)";

/// Longest time between two values of the first chart, in seconds, where its line is drawn as a gap.
const GAP_S: &str = "(() => { \
    const { times, lines } = document.querySelector('.charts').data.charts[0].whole; \
    let [last, gap, isGap] = [null, 0, false]; \
    times.forEach((time, point) => { \
        if (lines[1][point] === null) { isGap = true; return; } \
        if (isGap && last !== null) gap = Math.max(gap, time - last); \
        [last, isGap] = [time, false]; \
    }); \
    return gap; })()";

/// Time for which the agent does not sample.
const PAUSE_MS: u64 = 5_000;

/// Title of the page, and its numbers of charts, of points and of rows of tables.
fn shown(browser: &mut Browser) -> Value {
    browser.eval(
        "[document.querySelector('h1').textContent, document.querySelectorAll('.uplot').length, \
          document.querySelectorAll('.metrics tbody tr').length, document.querySelectorAll('.meters li').length]",
    )
}

fn opened(site: &Site) -> Browser {
    let mut browser = site.open_job("x");
    browser.wait_until("document.documentElement.dataset.complete");
    browser.wait_until("document.querySelectorAll('.metrics tbody tr').length > 0");
    browser.wait_until(&format!("{LIVE} > 2 && document.querySelectorAll('.uplot').length > 2"));
    browser.eval("window.isSame = true");
    browser
}

/// Waits until the page is up to date again, without having been loaded anew.
fn assert_returned(browser: &mut Browser) {
    browser.wait_until(&format!("{NOTICES}.length === 0"));
    let live = browser.eval(LIVE);
    browser.wait_until(&format!("{LIVE} > {live}"));
    assert_eq!(browser.eval("window.isSame"), true, "the page was not loaded anew");
}

fn a_page_survives_a_killed_collector_and_draws_the_gap() {
    let mut site = Site::new();
    let mut browser = opened(&site);
    let before = shown(&mut browser);
    site.kill_collector();
    browser.wait_until(&format!(
        "{NOTICES}.some((text) => /^No connection to the collector since [0-9:]+/.test(text))"
    ));
    assert_eq!(shown(&mut browser), before, "the last values stay");
    // The agent keeps what it samples meanwhile. What it does not sample is lacking.
    site.agent.daemon.signal(Signal::STOP);
    pause(PAUSE_MS);
    site.agent.daemon.signal(Signal::CONT);
    assert_eq!(shown(&mut browser), before);
    site.start_collector();
    assert_returned(&mut browser);
    browser.wait_until(&format!("{GAP_S} > {}", PAUSE_MS as f64 / 1e3 - 1.0));
    // Nor is the time before the collector returned a gap: the agent has sent what it had kept.
    browser.wait_until(&format!("{GAP_S} < {}", PAUSE_MS as f64 / 1e3 + 2.0));
    site.proxy.assert_own_requests(&mut browser);
}

fn a_page_tells_that_a_collector_is_stopped() {
    let site = Site::new();
    let mut browser = opened(&site);
    let before = shown(&mut browser);
    // Its connections stay open, and accept requests that have no answer.
    site.collector().signal(Signal::STOP);
    browser
        .wait_until(&format!("{NOTICES}.some((text) => text.startsWith('No connection to the collector'))"));
    assert_eq!(shown(&mut browser), before);
    site.collector().signal(Signal::CONT);
    assert_returned(&mut browser);
}

fn the_overview_tells_that_its_collector_is_away() {
    let mut site = Site::new();
    let mut browser = site.proxy.open(OWNER.0, "");
    let ids = "[...document.querySelectorAll('.jobs tbody th a')].map((link) => link.textContent)";
    browser.wait_until(&format!("{ids}.length > 0"));
    site.kill_collector();
    browser
        .wait_until(&format!("{NOTICES}.some((text) => text.startsWith('The values are not up to date'))"));
    assert_eq!(browser.eval(ids), json!(["x"]), "the list stays");
    site.start_collector();
    browser.wait_until(&format!("{NOTICES}.length === 0"));
    assert_eq!(browser.eval(ids), json!(["x"]));
}

fn the_figures_of_a_running_job_follow_it() {
    let site = Site::new();
    let mut browser = opened(&site);
    let elapsed = "[...document.querySelectorAll('.job-head dt')].find(({ textContent }) => textContent === 'Elapsed')\
                   .nextSibling.textContent";
    let before = browser.eval(elapsed);
    browser.wait_until(&format!("{elapsed} !== {before}"));
    // The figures above a chart have the live values as well.
    let has_live = "(() => { const { extent, lines, times, begin_s } = document.querySelector('.charts').data.charts[0].whole; \
                    const known = lines[2].filter((value) => value !== null); \
                    return known.length > 0 && extent.max >= Math.max(...known) && times.at(-1) > begin_s; })()";
    let live = browser.eval(LIVE);
    browser.wait_until(&format!("{LIVE} > {live} && {has_live}"));
    site.proxy.assert_own_requests(&mut browser);
}
