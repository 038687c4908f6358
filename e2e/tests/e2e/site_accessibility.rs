//! The collector's pages for users of screen readers and keyboards, and with each colour scheme.

use polymeter_e2e::accessibility::{Tree, chart_faults, faults, focus_faults};
use polymeter_e2e::browser::Browser;
use polymeter_e2e::tests;

use crate::site_fixture::{ADMINISTRATOR, Ended, OWNER, Site, insert_runs};

tests![
    pages_have_names_headings_landmarks_and_contrast,
    charts_have_tables_with_their_figures,
    the_focus_is_visible_and_in_order,
    a_sign_in_and_an_error_are_accessible,
    the_checks_find_faults,
    pages_are_short_on_a_phone,
];

const NONE: Vec<String> = Vec::new();

/// Waits until all contents of a page are there.
fn settle(browser: &mut Browser, page: &str) {
    match page.split('?').next() {
        Some("job" | "compare") => browser.wait_until("document.documentElement.dataset.complete"),
        Some("node" | "status" | "trend") => {}
        _ => browser.wait_until("document.querySelector('.jobs td.findings-cell:not(:empty)') !== null"),
    }
}

/// Checks a page in both colour schemes and two widths, for a user who wants no motion.
fn assert_accessible(browser: &mut Browser, page: &str) {
    for scheme in ["light", "dark"] {
        browser.set_media(&[("prefers-color-scheme", scheme), ("prefers-reduced-motion", "reduce")]);
        for width in [1280, 360] {
            browser.resize(width, 900);
            browser.wait_until(&format!("innerWidth === {width}"));
            assert_eq!(faults(browser), NONE, "{page}, {scheme}, {width} px");
            let tree = Tree::of(browser);
            let tables = browser.eval(
                "[...document.querySelectorAll('table')].filter((table) => table.checkVisibility()).length",
            );
            assert_eq!(
                Some(tree.of_role("table").count() as u64),
                tables.as_u64(),
                "{page}, {width} px: tables remain tables"
            );
        }
    }
}

fn pages_have_names_headings_landmarks_and_contrast() {
    let running = Site::new();
    let ended = Ended::with("a job with a name", insert_runs);
    let node = format!("node?name={}", running.env.node);
    let job = format!("job?key={}", running.key("x"));
    let of_running = [String::new(), job, node, "status".to_owned(), "compare".to_owned()];
    let of_ended = [ended.pages(), vec!["trend?name=train".to_owned(), "trend".to_owned()]].concat();
    for (proxy, pages) in [(&running.proxy, of_running.to_vec()), (&ended.proxy, of_ended)] {
        for page in pages {
            // The job of the owner has keys that change its sampling; the administrator sees the agents.
            for user in [OWNER.0, ADMINISTRATOR] {
                let mut browser = proxy.open(user, &page);
                settle(&mut browser, &page);
                assert_accessible(&mut browser, &format!("{page} as {user}"));
            }
        }
    }
}

fn charts_have_tables_with_their_figures() {
    let ended = Ended::new("job");
    for page in ended.pages().iter().filter(|page| page.starts_with("job")) {
        let mut browser = ended.proxy.open(OWNER.0, page);
        settle(&mut browser, page);
        assert_eq!(chart_faults(&mut browser), NONE, "{page}");
        // The job has two nodes: there is a table with a row for each.
        let captions =
            "[...document.querySelectorAll('.figures caption')].map((caption) => caption.textContent)";
        let captions = browser.eval(captions).to_string();
        assert!(captions.contains("over time") && captions.contains("by node"), "{captions}");
        assert_eq!(faults(&mut browser), NONE, "{page} with open tables");
        // Another quantity.
        browser.eval(
            "(() => { const choice = document.querySelector('.figures select'); choice.selectedIndex = choice.options.length - 1; \
             choice.dispatchEvent(new Event('change')); window.chosen = choice.selectedOptions[0].textContent; })()",
        );
        browser.wait_until(
            "[...document.querySelectorAll('.figures caption')].some((caption) => caption.textContent.startsWith(window.chosen))",
        );
    }
}

fn the_focus_is_visible_and_in_order() {
    let site = Site::new();
    let pages = [
        String::new(),
        format!("job?key={}", site.key("x")),
        format!("node?name={}", site.env.node),
        "status".to_owned(),
    ];
    for page in pages {
        for scheme in ["light", "dark"] {
            let mut browser = site.proxy.open(ADMINISTRATOR, &page);
            settle(&mut browser, &page);
            browser.set_media(&[("prefers-color-scheme", scheme)]);
            assert_eq!(focus_faults(&mut browser), NONE, "{page}, {scheme}");
        }
    }
    // The first stop leads past the navigation.
    let mut browser = site.proxy.open(ADMINISTRATOR, "");
    browser.tab();
    assert_eq!(browser.eval("document.activeElement.className"), "skip");
    assert_eq!(browser.eval("document.querySelector('.skip').getBoundingClientRect().left >= 0"), true);
}

fn a_sign_in_and_an_error_are_accessible() {
    let site = Ended::new("job");
    let mut browser = site.proxy.browser(None);
    browser.open_url(&site.proxy.url(""));
    browser.wait_until("document.querySelector('.sign-in input') !== null");
    assert_accessible(&mut browser, "sign-in");
    let mut browser = site.proxy.browser(Some(OWNER.0));
    browser.open_url(&site.proxy.url("job?key=999999"));
    browser.wait_until("document.documentElement.dataset.ready === 'failed'");
    assert_accessible(&mut browser, "unknown job");
}

/// Puts faults into a page, so that the other tests are known to see them.
const FAULTS: &str = "(() => { \
    const main = document.getElementById('main'); \
    const add = (name, text) => { const made = document.createElement(name); made.textContent = text; main.append(made); return made; }; \
    add('p', 'pale').style.color = '#999'; \
    add('button', ''); \
    add('h4', 'too low'); \
    add('table', '').append(document.createElement('td')); \
    add('div', '').id = 'main'; \
    document.querySelector('.banner').style.transition = 'color 1s'; \
    for (const link of document.querySelectorAll('a')) link.style.outline = 'none'; })()";

fn the_checks_find_faults() {
    let site = Ended::new("job");
    let mut browser = site.proxy.open(OWNER.0, "");
    settle(&mut browser, "");
    browser.set_media(&[("prefers-color-scheme", "light"), ("prefers-reduced-motion", "reduce")]);
    browser.eval(FAULTS);
    let found = faults(&mut browser).join("\n");
    for fault in [
        "no name: ",
        "levels of headings are left out",
        "contrast 2.85 of \"pale\"",
        "a table has no name",
        "two elements have the id main",
        "1 elements move",
    ] {
        assert!(found.contains(fault), "{fault}: {found}");
    }
    assert!(!focus_faults(&mut browser).is_empty());
}

/// Largest height of a page on a phone, in pixels: what it has is found without long scrolling.
const HEIGHT_MAX_PX: f64 = 3000.0;

/// Height of a page, or of its part before the tabs, each of which has a list of its own.
const HEIGHT: &str = "(() => { const tabs = document.querySelector('[role=tablist]'); \
    return tabs?.checkVisibility() ? tabs.getBoundingClientRect().top + scrollY : document.documentElement.scrollHeight; })()";

const RUNNING: &str = "INSERT INTO job (job_id, owner, owner_uid, name, cores, started)
     WITH RECURSIVE run (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM run WHERE n < 39)
     SELECT 'running-' || n, 'bin', 2, 'a long name of a running job', 2, 1760000000000000000 + n FROM run";

fn pages_are_short_on_a_phone() {
    let running = Site::new();
    let ended = Ended::with("a job with a name", |store| {
        insert_runs(store);
        store.execute_batch(RUNNING).unwrap();
    });
    let (x, y) = (running.key("x"), running.key("y"));
    let of_running = vec![
        String::new(),
        format!("job?key={x}"),
        format!("node?name={}", running.env.node),
        "status".to_owned(),
        format!("compare?a={x}&b={y}"),
    ];
    // The first job was sampled, and the next one was not.
    let further = vec!["trend?name=train".to_owned(), "compare?a=1&b=2".to_owned()];
    let of_ended = [ended.pages(), further].concat();
    for (proxy, pages) in [(&running.proxy, of_running), (&ended.proxy, of_ended)] {
        for page in pages {
            let mut browser = proxy.open(ADMINISTRATOR, &page);
            settle(&mut browser, &page);
            browser.resize(400, 900);
            browser.wait_until("innerWidth === 400");
            // Charts follow the width.
            browser.eval("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))");
            let height = browser.eval(HEIGHT).as_f64().unwrap();
            assert!(height <= HEIGHT_MAX_PX, "{page} is {height} px tall");
        }
    }
    // Nothing is left out: the reader asks for the rest.
    let mut browser = ended.proxy.open(ADMINISTRATOR, "");
    settle(&mut browser, "");
    let rows =
        "[...document.querySelectorAll('.running tbody tr')].filter((row) => row.checkVisibility()).length";
    assert_eq!(browser.eval(rows), 40);
    browser.resize(400, 900);
    browser.wait_until(&format!("{rows} === 12"));
    browser.eval(
        "[...document.querySelectorAll('button')].find((one) => one.textContent === 'Show all 40').click()",
    );
    browser.wait_until(&format!("{rows} === 40"));
    assert_eq!(faults(&mut browser), NONE);
}
