//! The collector's pages with the keyboard alone, in a wide and in a narrow window: from the list of jobs to
//! a job, its charts, its periods, its node and the health of the measurement.

use polymeter_e2e::browser::Browser;
use polymeter_e2e::tests;
use serde_json::json;

use crate::site_fixture::{ADMINISTRATOR, OWNER, Site, assert_calm};

tests![the_pages_are_used_with_the_keyboard_alone];

/// Steps within which an element must get the focus.
const STEPS_MAX: usize = 200;

const RANGE: &str = "document.querySelector('.range').textContent";

/// Moves the focus with the Tab key to an element that a selector matches, which must then be visible in the
/// window.
fn tab_to(browser: &mut Browser, selector: &str) {
    for _ in 0..STEPS_MAX {
        browser.tab();
        if browser.eval(&format!("document.activeElement.matches('{selector}')")) == true {
            let place = browser.eval(
                "(() => { const { top, bottom, left, right } = document.activeElement.getBoundingClientRect(); \
                     return bottom > 0 && top < innerHeight && right > 0 && left < innerWidth; })()",
            );
            assert_eq!(place, true, "{selector} is outside of the window");
            return;
        }
    }
    panic!("the Tab key does not reach {selector}");
}

/// Opens the link with the focus and waits for the first contents of its page.
fn follow(browser: &mut Browser, page: &str) {
    browser.enter_link();
    browser.wait_until(&format!(
        "location.pathname.endsWith('{page}') && document.documentElement.dataset.ready === 'true'"
    ));
}

fn zoom(browser: &mut Browser) {
    tab_to(browser, ".chart .plot");
    browser.key("+");
    browser.wait_until(&format!("{RANGE} !== ''"));
    let half = browser.eval(RANGE);
    browser.key("ArrowRight");
    browser.wait_until(&format!("{RANGE} !== {half}"));
    browser.key("0");
    browser.wait_until(&format!("{RANGE} === ''"));
    // The buttons of the axis do the same.
    browser.eval("scrollTo(0, 0)");
}

/// Samples a metric more often, in the tab about the sampling.
fn change_period(browser: &mut Browser) {
    tab_to(browser, "[role=tab][aria-selected=true]");
    while browser.eval("document.querySelector('.tabbed').dataset.shown") != "sampling" {
        browser.key("ArrowRight");
    }
    assert_eq!(browser.eval("document.activeElement.textContent"), "Sampling");
    tab_to(browser, ".keys button[title*=\"more often\"]");
    let metric = browser.eval("document.activeElement.closest('tr').querySelector('th bdi').textContent");
    browser.enter();
    browser.wait_until("document.querySelector('.told .granted') !== null");
    let told = browser.eval("document.querySelector('.told .granted').textContent");
    assert!(told.as_str().unwrap().contains(metric.as_str().unwrap()), "{told}");
    // The focus stays where it was, so that the next key has the same effect.
    assert_eq!(browser.eval("document.activeElement.closest('.keys') !== null"), true);
}

fn the_pages_are_used_with_the_keyboard_alone() {
    let site = Site::new();
    for (user, width) in [(OWNER.0, 1280), (OWNER.0, 360), (ADMINISTRATOR, 640)] {
        let mut browser = site.proxy.open(user, "");
        browser.resize(width, 740);
        browser.wait_until(&format!(
            "innerWidth === {width} && document.querySelector('.jobs tbody th a') !== null"
        ));
        // The first stop leads past the navigation.
        browser.tab();
        assert_eq!(browser.eval("document.activeElement.className"), "skip");
        browser.enter();
        assert_eq!(browser.eval("location.hash"), "#main");
        tab_to(&mut browser, ".jobs tbody th a");
        let id = browser.eval("document.activeElement.textContent");
        follow(&mut browser, "/job");
        assert_eq!(browser.eval("document.querySelector('h1 bdi').textContent"), id);
        zoom(&mut browser);
        // Agents let owners change periods, and root.
        if user == OWNER.0 {
            browser.wait_until("document.querySelectorAll('.keys button:not([disabled])').length > 0");
            change_period(&mut browser);
        }
        // The figures of the charts, without pictures.
        browser.eval("document.activeElement.blur()");
        tab_to(&mut browser, ".figures summary");
        browser.enter();
        browser.wait_until("document.querySelectorAll('.figures[open] tbody tr').length > 0");
        assert_eq!(browser.eval("document.documentElement.scrollWidth <= innerWidth"), true, "{width} px");

        browser.eval("document.activeElement.blur()");
        tab_to(&mut browser, ".job-head a[href^=\"node?\"]");
        follow(&mut browser, "/node");
        assert_eq!(browser.eval("document.querySelector('h1 bdi').textContent"), json!(site.env.node));
        // It is in the footer, for administrators in the navigation.
        let place = if user == OWNER.0 { "footer" } else { "nav" };
        tab_to(&mut browser, &format!("{place} a[href=\"status\"]"));
        follow(&mut browser, "/status");
        assert_eq!(browser.eval("document.querySelector('a[aria-current]').textContent"), "Measurement");
        tab_to(&mut browser, "nav a[href=\"./\"]");
        follow(&mut browser, "/");
        if user == OWNER.0 {
            assert_calm(&site.proxy, &mut browser);
        }
    }
}
