//! The collector's pages in a browser: as two users, with hostile names, and in narrow and dark windows.

use polymeter_e2e::browser::Browser;
use polymeter_e2e::{program, tests, wait_until};
use polymeter_store::reader::PlanChangeRow;
use serde_json::{Value, json};

use crate::site_fixture::{ADMINISTRATOR, Ended, MANAGER, OTHER, OWNER, Site, assert_calm, insert_runs};

tests![
    users_see_their_own_jobs_in_the_browser,
    zoom_loads_finer_values,
    a_key_changes_the_period_in_the_store,
    names_are_text_on_all_pages,
    pages_suit_narrow_and_dark_windows,
    a_user_without_credentials_signs_in_with_a_token,
    modules_compute_columns_phases_and_periods,
];

const HOSTILE: &str = "</script><img src=x onerror=\"document.title='hacked'\"><b>&amp; שלום 🦀";

fn users_see_their_own_jobs_in_the_browser() {
    let site = Site::new();
    let ids = "[...document.querySelectorAll('.jobs tbody th a')].map((link) => link.textContent)";
    for ((user, _), own, other) in [(OWNER, "x", "y"), (OTHER, "y", "x")] {
        let mut browser = site.proxy.open(user, "");
        browser.wait_until(&format!("{ids}.length > 0"));
        assert_eq!(browser.eval(ids), json!([own]), "{user}");
        assert_eq!(browser.eval("document.querySelector('#account bdi').textContent"), user);
        // The node, with the present use by the jobs that the user may see.
        browser.wait_until("document.querySelectorAll('.node-map a').length === 1");
        let label = "document.querySelector('.node-map a').getAttribute('aria-label')";
        assert_eq!(browser.eval(&format!("{label}.startsWith('{}: ')", site.env.node)), true);
        browser.wait_until("document.querySelector('.jobs td.findings-cell:not(:empty)') !== null");
        assert_calm(&site.proxy, &mut browser);
        // The link leads to the job; that of another user is unknown.
        let link = browser.eval("document.querySelector('.jobs tbody th a').href");
        browser.open_url(link.as_str().unwrap());
        browser.wait_until("document.documentElement.dataset.complete");
        assert_eq!(browser.eval("document.querySelector('h1 bdi').textContent"), own);
        assert_calm(&site.proxy, &mut browser);
        browser.open_url(&site.proxy.url(&format!("job?key={}", site.key(other))));
        browser.wait_until("document.documentElement.dataset.ready === 'failed'");
        let told = browser.eval("document.querySelector('.notice').textContent");
        assert!(told.as_str().unwrap().contains("unknown job"), "{told}");
        assert_eq!(browser.eval("document.querySelectorAll('.uplot').length"), 0);
    }
    jobs_are_compared(&site);
    insert_runs(&rusqlite::Connection::open(site.env.path("store.db")).unwrap());
    trends_are_shown(&site);
    a_manager_sees_the_jobs_of_the_account(&site);
}

fn texts(browser: &mut Browser, selector: &str) -> String {
    let text =
        format!("[...document.querySelectorAll('{selector}')].map((one) => one.textContent).join('; ')");
    browser.eval(&text).as_str().unwrap().to_owned()
}

fn trends_are_shown(site: &Site) {
    for ((user, _), account) in [(OWNER, "physics"), (OTHER, "chem")] {
        let mut browser = site.proxy.open(user, "trend?name=train");
        browser.wait_until("document.documentElement.dataset.complete");
        let verdict = texts(&mut browser, ".verdict");
        assert!(verdict.starts_with("Elapsed +18 %, CPU time +18 % since job"), "{verdict}");
        assert!(verdict.contains(&format!("job {account}-24, 2025-11-")), "{verdict}");
        assert_eq!(
            texts(&mut browser, ".changes .with"),
            "nodes: n0 before, n1 after; command: secret-0 before, secret-1 after"
        );
        assert_eq!(browser.eval("document.querySelectorAll('.uplot').length"), 6);
        assert!(texts(&mut browser, ".chart .readout").contains(", now 1 h 11 min"), "{account}");
        assert_eq!(browser.eval("document.querySelectorAll('.runs tbody tr').length"), 20);
        let compared = "document.querySelectorAll('.runs tbody a[href^=\"compare?a=\"]').length";
        assert_eq!(browser.eval(compared), 20, "each with the run before");
        assert_calm(&site.proxy, &mut browser);
        // A link leads from the run to its job, and back.
        let link = browser.eval("document.querySelector('.changes a').href");
        browser.open_url(link.as_str().unwrap());
        browser.wait_until("document.documentElement.dataset.complete");
        assert_eq!(texts(&mut browser, "h1 bdi"), format!("{account}-24; train"));
        let back = browser.eval("document.querySelector('a[href^=trend]').href");
        assert_eq!(
            back,
            site.proxy.url(&format!("trend?name=train&user={}", if user == OWNER.0 { 1 } else { 2 }))
        );
    }
    let mut browser = site.proxy.open(OTHER.0, "trend?name=train&user=1");
    assert_eq!(browser.eval("document.documentElement.dataset.ready"), "failed");
    assert!(texts(&mut browser, ".notice").contains("no ended job of this name, or not yours"));
}

/// A manager sees the jobs of the account, not the commands of their runs, and no others.
fn a_manager_sees_the_jobs_of_the_account(site: &Site) {
    let mut browser = site.proxy.open(MANAGER, "");
    browser.wait_until("document.querySelectorAll('.jobs tbody th a').length > 0");
    assert!(texts(&mut browser, "#account").contains("manager of physics"));
    let ids = texts(&mut browser, ".jobs tbody th a");
    assert!(ids.split("; ").all(|id| id.starts_with("physics-")), "{ids}");
    assert_eq!(texts(&mut browser, ".jobs td.user").split("; ").next(), Some(OWNER.0));
    // The page of a job, and what it asks for, have no command.
    let link = browser.eval("document.querySelector('.jobs tbody th a').href");
    browser.open_url(link.as_str().unwrap());
    browser.wait_until("document.documentElement.dataset.complete");
    assert_eq!(browser.eval("document.querySelector('#tab-program')"), Value::Null);
    let words = "document.body.textContent.includes('secret')";
    assert_eq!(browser.eval(words), false);
    browser.open_url(&site.proxy.url("trend?name=train"));
    browser.wait_until("document.documentElement.dataset.complete");
    assert_eq!(texts(&mut browser, ".changes .with"), "nodes: n0 before, n1 after");
    assert_eq!(browser.eval(words), false);
    assert_calm(&site.proxy, &mut browser);
    let others = "(async () => (await (await fetch('api/v1/jobs?name=train&limit=100')).json()).jobs.map(({ account }) => account))()";
    let accounts = browser.eval(others);
    assert!(accounts.as_array().unwrap().iter().all(|account| account == "physics"), "{accounts}");
    for page in [
        format!("job?key={}", site.key("y")),
        format!("job?key={}", site.key("chem-3")),
        "trend?name=train&user=2".to_owned(),
    ] {
        let mut browser = site.proxy.open(MANAGER, &page);
        assert_eq!(browser.eval("document.documentElement.dataset.ready"), "failed", "{page}");
    }
}

/// An administrator compares the jobs of two users; one of these does not learn about the other's.
fn jobs_are_compared(site: &Site) {
    let page = format!("compare?a={}&b={}", site.key("x"), site.key("y"));
    let mut browser = site.proxy.open(ADMINISTRATOR, &page);
    browser.wait_until("document.documentElement.dataset.complete");
    assert_eq!(texts(&mut browser, "h1"), "Compare x with y");
    assert!(texts(&mut browser, ".comparison tbody tr:first-child").starts_with("elapsed"));
    let readouts = texts(&mut browser, ".chart .readout");
    assert!(readouts.contains("A x: mean") && readouts.contains("B y: mean"), "{readouts}");
    let differs = texts(&mut browser, ".facts .differs");
    assert!(differs.contains("Useruid 1uid 2"), "{differs}");
    assert_calm(&site.proxy, &mut browser);
    browser.open_url(&site.proxy.url("compare"));
    browser.wait_until("document.documentElement.dataset.complete");
    choose_jobs(&mut browser, "y");
    browser.wait_for("Page.loadEventFired");
    browser.wait_until("document.querySelector('.comparison') !== null");
    // With one job the others that may be compared with it are links.
    browser.open_url(&site.proxy.url(&format!("compare?a={}", site.key("x"))));
    browser.wait_until("document.documentElement.dataset.complete");
    assert_eq!(texts(&mut browser, "h1"), "Compare x with another job");
    assert_eq!(browser.eval("document.querySelector('[name=a]').value"), "x");
    let other = format!("document.querySelector('main ul a[href$=\"&b={}\"]')", site.key("y"));
    browser.eval(&format!("{other}.click()"));
    browser.wait_for("Page.loadEventFired");
    browser.wait_until("document.querySelector('.comparison') !== null");
    let mut browser = site.proxy.open(OWNER.0, "compare");
    browser.wait_until("document.documentElement.dataset.complete");
    choose_jobs(&mut browser, "y");
    browser.wait_until("document.querySelector('form + div .notice') !== null");
    assert_eq!(texts(&mut browser, "form + div .notice"), "There is no job y that you may see.");
    browser.open_url(&site.proxy.url(&page));
    browser.wait_until("document.documentElement.dataset.ready === 'failed'");
    assert!(texts(&mut browser, ".notice").contains("unknown job"));
}

fn choose_jobs(browser: &mut Browser, b: &str) {
    browser.eval(&format!(
        "document.querySelector('[name=a]').value = 'x'; document.querySelector('[name=b]').value = '{b}'; \
             document.querySelector('form button').click()"
    ));
}

fn zoom_loads_finer_values() {
    let site = Site::new();
    let mut browser = site.open_job("x");
    let range = "document.querySelector('.range').textContent";
    assert_eq!(browser.eval(range), "");
    let loads = |browser: &mut Browser| -> usize {
        browser.requests().iter().filter(|url| url.contains("/course?") && url.contains("from_us=")).count()
    };
    assert_eq!(loads(&mut browser), 0, "the whole time needs no bounds");
    // What the page asks for first is asked for once.
    let requests = browser.requests();
    for first in ["/whoami", "/metrics", "/course?quantity=cores"] {
        assert_eq!(requests.iter().filter(|url| url.ends_with(first)).count(), 1, "{first}: {requests:?}");
    }
    browser.wait_until("document.querySelector('.live.on')?.textContent.startsWith('live, ')");
    is_light(&mut browser);
    let drawn = "document.querySelector('.uplot canvas').toDataURL()";
    let whole = browser.eval(drawn);
    let (x, y) = browser.middle(".u-over");
    browser.mouse("mousePressed", (x - 60.0, y), 1);
    browser.mouse("mouseMoved", (x, y), 1);
    browser.mouse("mouseReleased", (x + 60.0, y), 1);
    browser.wait_until(&format!("{range} !== ''"));
    wait_until("finer values are loaded", || loads(&mut browser) > 0);
    assert_ne!(browser.eval(drawn), whole);
    // The points of a part of the time are closer to each other.
    browser.eval("document.querySelector('.plot').focus()");
    browser.key("0");
    browser.wait_until(&format!("{range} === ''"));
    browser.key("+");
    browser.wait_until(&format!("{range} !== ''"));
    // The table has the figures of the visible time, for readers without pictures.
    browser.eval("document.querySelector('.figures').open = true");
    browser.wait_until("document.querySelectorAll('.figures tbody tr').length > 0");
    assert_calm(&site.proxy, &mut browser);
}

/// A first visit with its data is small, since what is drawn is compressed.
fn is_light(browser: &mut Browser) {
    let transfers = browser.transfers();
    let transferred: f64 = transfers.iter().map(|transfer| transfer.transferred_bytes).sum();
    assert!(transferred < 100_000.0, "{transfers:?}");
    for part in ["/site/job.js", "/summary"] {
        let found = transfers.iter().find(|transfer| transfer.url.ends_with(part)).unwrap();
        assert!(found.transferred_bytes < found.decoded_bytes, "{found:?}");
    }
    // The list has text of several users: it is sent as it is.
    let encoding = "fetch('api/v1/jobs').then((answer) => answer.headers.get('Content-Encoding'))";
    assert_eq!(browser.eval(encoding), Value::Null);
}

fn a_key_changes_the_period_in_the_store() {
    let site = Site::new();
    let mut browser = site.open_job("x");
    let faster = "document.querySelector('.keys button[title^=\"Sample cpu.usage more\"]')";
    browser.wait_until(&format!("{faster} !== null"));
    assert_eq!(
        browser.eval(&format!("{faster}.getAttribute('aria-label')")),
        "Sample cpu.usage more often: every 200ms"
    );
    // Two keys are one request: 500 ms, 200 ms, 100 ms.
    browser.eval(&format!("{faster}.click(); {faster}.click()"));
    browser.wait_until("document.querySelector('.told .granted') !== null");
    let told = browser.eval("document.querySelector('.told').textContent");
    assert!(told.as_str().unwrap().contains("cpu.usage every 100ms"), "{told}");
    wait_until("the change is stored", || lease_of_x(&site).is_some());
    let change = lease_of_x(&site).unwrap();
    assert_eq!((change.old_period_us, change.new_period_us), (Some(500_000), Some(100_000)));
    assert_eq!(change.actor.as_deref(), Some("uid 1"));
    wait_until("the samples are closer", || {
        let times = site.times_us("x", "cpu.usage");
        times.windows(2).rev().take(5).filter(|pair| pair[1] - pair[0] < 300_000).count() == 5
    });
    // The table shows what is in force.
    browser.wait_until(&format!("{faster}.closest('tr').textContent.includes('lease')"));
    // A period that the agent does not allow is refused, with the reason.
    let fastest = "document.querySelector('.keys button[title^=\"Sample pids.current more\"]')";
    browser.eval(&format!("for (let step = 0; step < 30 && {fastest}; step += 1) {fastest}.click()"));
    browser.wait_until("document.querySelector('.told .refused') !== null");
    let told = browser.eval("document.querySelector('.told .refused').textContent");
    assert!(
        told.as_str().unwrap().contains("refused") && told.as_str().unwrap().contains("pids.current"),
        "{told}"
    );
    let plan = site.agent.ask(&json!({"verb": "plan", "job": "x"}));
    let line = plan["plan"].as_array().unwrap().iter().find(|line| line["metric"] == "pids.current");
    assert_eq!(line.unwrap()["period"], "50ms", "a refusal changes nothing");
    // A refused request is logged by the browser, too: as its status.
    proxy_only(&site, &mut browser);
}

fn lease_of_x(site: &Site) -> Option<PlanChangeRow> {
    let mut reader = site.env.reader();
    let key = site.key("x");
    reader
        .plan_changes(key)
        .unwrap()
        .into_iter()
        .find(|change| change.metric == "cpu.usage" && change.cause == "lease")
}

fn proxy_only(site: &Site, browser: &mut Browser) {
    site.proxy.assert_own_requests(browser);
    let violations: Vec<String> =
        browser.complaints().into_iter().filter(|one| one.contains("Content Security Policy")).collect();
    assert_eq!(violations, Vec::<String>::new());
}

fn names_are_text_on_all_pages() {
    let site = Ended::new(HOSTILE);
    for page in site.pages() {
        let mut browser = site.proxy.open(OWNER.0, &page);
        if page.starts_with("job") {
            browser.wait_until(
                "document.documentElement.dataset.complete && document.querySelector('.phases bdi') !== null",
            );
            assert_eq!(browser.eval("document.querySelector('.job-name').textContent"), HOSTILE);
            assert_eq!(browser.eval("document.querySelector('.phases bdi').textContent"), HOSTILE);
            // Text cannot become markup even with a fault in the page: the policy forbids it.
            let attempt = "(() => { try { document.body.innerHTML = '<b>x</b>'; return 'done'; } catch { return 'refused'; } })()";
            assert_eq!(browser.eval(attempt), "refused");
        } else {
            assert_eq!(browser.complaints(), Vec::<String>::new(), "{page}");
        }
        if page.is_empty() {
            assert_eq!(browser.eval("document.querySelector('.jobs .job-name').textContent"), HOSTILE);
        }
        assert_eq!(browser.eval("document.querySelectorAll('img, main b').length"), 0, "{page}");
        assert_ne!(browser.eval("document.title"), "hacked");
        site.proxy.assert_own_requests(&mut browser);
    }
}

fn pages_suit_narrow_and_dark_windows() {
    let site = Ended::new("a-rather-long-name-of-a-job-without-any-space-in-it");
    let background = "getComputedStyle(document.body).backgroundColor";
    for page in site.pages() {
        let mut browser = site.proxy.open(OWNER.0, &page);
        let light = browser.eval(background);
        let features = json!([{"name": "prefers-color-scheme", "value": "dark"}]);
        browser.call("Emulation.setEmulatedMedia", json!({"features": features}));
        assert_ne!(browser.eval(background), light, "{page}");
        browser.resize(360, 740);
        browser.wait_until("innerWidth === 360");
        if page.starts_with("job") {
            browser.wait_until("document.querySelector('.uplot').offsetWidth <= 360");
        }
        let overflow = browser.eval("document.documentElement.scrollWidth - innerWidth");
        assert!(overflow.as_i64() <= Some(0), "{page} is {overflow} px too wide");
        // As of a job on many nodes: the names of the facts are not broken.
        browser.eval(
            "document.querySelectorAll('.facts dd').forEach((value) => value.append(' node0001'.repeat(40)))",
        );
        let broken = "[...document.querySelectorAll('.facts dt')].filter((term) => { \
             const text = document.createRange(); text.selectNodeContents(term); \
             return text.getClientRects().length > 1; }).length";
        assert_eq!(browser.eval(broken), 0, "{page}");
        // Landmarks and names for readers without pictures.
        for (selector, wanted) in [("main", 1), ("h1", 1), ("nav[aria-label]", 1), ("a.skip", 1)] {
            assert_eq!(
                browser.eval(&format!("document.querySelectorAll('{selector}').length")),
                wanted,
                "{page}: {selector}"
            );
        }
        let unnamed = "[...document.querySelectorAll('input, select, button, [role=img]')].filter((one) => \
             !one.labels?.length && !one.getAttribute('aria-label') && !one.textContent.trim()).length";
        assert_eq!(browser.eval(unnamed), 0, "{page}");
        assert_calm(&site.proxy, &mut browser);
    }
}

fn a_user_without_credentials_signs_in_with_a_token() {
    let site = Ended::new("job");
    let mut browser = site.proxy.browser(None);
    browser.open_url(&site.proxy.url(""));
    browser.wait_until("document.querySelector('.sign-in input') !== null");
    assert_eq!(browser.eval("document.querySelectorAll('.jobs tbody tr').length"), 0);
    assert_eq!(browser.eval("document.activeElement.id"), "token");
    browser.eval("document.querySelector('#token').value = 'no-such-token'; document.querySelector('.sign-in').requestSubmit()");
    // It is sent as a header, refused, and asked for again.
    browser.wait_until("document.querySelector('.sign-in')?.textContent.includes('not accepted')");
    let created = program("polymeter")
        .args(["token", "create", "--scope", "admin", "--collector"])
        .arg(site.env.path("control.sock"))
        .output()
        .unwrap();
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
    let token = json!(String::from_utf8(created.stdout).unwrap().trim());
    browser.eval(&format!(
        "document.querySelector('#token').value = {token}; document.querySelector('.sign-in').requestSubmit()"
    ));
    browser.wait_until("document.querySelectorAll('.jobs tbody tr').length === 1");
    // It is kept in the tab alone: neither in a cookie nor beyond the tab.
    assert_eq!(browser.eval("[document.cookie, Object.keys(localStorage).length]"), json!(["", 0]));
    let signed_out = "document.querySelector('#account button').click()";
    browser.eval(signed_out);
    browser.wait_for("Page.loadEventFired");
    browser.wait_until("document.querySelector('.sign-in input') !== null");
    site.proxy.assert_own_requests(&mut browser);
}

fn modules_compute_columns_phases_and_periods() {
    let site = Ended::new("job");
    let mut browser = site.proxy.open(OWNER.0, "");
    let base = "document.querySelector('script[type=module]:not([async])').src.replace('overview.js', '')";
    let mut result = |module: &str, expression: &str| -> Value {
        browser.eval(&format!("import({base} + '{module}.js').then((m) => ({expression}))"))
    };
    // Samples at 0, 2, 4, then a gap, then closer ones: values hold within the period, and not over the gap.
    let columns = "m.columnsOf({ time_us: [0, 2e6, 4e6, 20e6, 21e6, 22e6], min: [1, 2, 3, 4, 5, 6], mean: [1, 2, 3, 4, 5, 6], max: [1, 2, 3, 4, 5, 6] }, \
                   { from_us: 0, until_us: 24e6, part_s: 1 }).columns[1]";
    let expected = json!([
        1, 1, 2, 2, 3, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
        null, 4, 5, 6, null
    ]);
    assert_eq!(result("columns", columns), expected);
    // The least, the median and the largest mean of three nodes, of which one has a gap.
    let nodes = "[[[0, 0], [1, 5], [9, 9]], [[0, 0], [2, null], [9, 9]], [[0, 0], [9, 7], [9, 9]]]";
    assert_eq!(result("columns", &format!("m.linesOf({nodes})")), json!([[1, 5], [2, 6], [9, 7]]));
    let periods = "[m.periodUs('500ms'), m.periodUs('1min'), m.periodUs('x'), m.periodText(1500), m.periodText(3.6e9), m.shorter(5e5), m.longer(8.64e10)]";
    assert_eq!(result("periods", periods), json!([500_000, 60_000_000, null, "1500us", "1h", 200_000, null]));
    let windows = "[m.periodUs('1ms/1s'), m.rowUs('1ms/1s'), m.rowUs('1s'), m.withWindow(2e3, 1e6), m.withWindow(5e5, 1e6), m.withWindow(1e6, 1e6), m.withWindow(1e3, null), m.periodUs('1ms/1s/histogram'), m.rowUs('1ms/1s/histogram'), m.withWindow(2e3, 1e6, true)]";
    assert_eq!(
        result("periods", windows),
        json!([
            1_000,
            1_000_000,
            1_000_000,
            "2ms/1s",
            "500ms/1s",
            "1s",
            "1ms",
            1_000,
            1_000_000,
            "2ms/1s/histogram"
        ])
    );
    // A live value joins the history, whose last parts have no value yet, unless that is a gap.
    let history = "[4, 4, 4, null, null, null]";
    let extent = json!({"min": 4, "mean": 4.5, "max": 6});
    assert_eq!(
        result("live_course", &append_to_course(history, 4.0, 6, false, false)),
        json!([[0, 0.5, 1, 4], [4, 4, 4, 6], {"min": 4, "mean": 5.5, "max": 6}])
    );
    assert_eq!(
        result("live_course", &append_to_course("[4, 4, 4]", 1.0 / 0.75, 6, false, true)),
        json!([[0, 0.5, 1, 1.0 / 0.75 - 1e-3, 1.0 / 0.75], [4, 4, 4, 4, 6], extent])
    );
    assert_eq!(
        result("live_course", &append_to_course("[4, 4, 4]", 2.0, 6, true, true)),
        json!([[0, 0.5, 1, 1.001, 2], [4, 4, 4, 6, 6], {"min": 4, "mean": 5, "max": 6}])
    );
    let gap = result("live_course", &append_to_course(history, 9.0, 6, false, true));
    assert_eq!(
        (&gap[0], &gap[1]),
        (&json!([0, 0.5, 1, 1.5, 2, 2.5, 9]), &json!([4, 4, 4, null, null, null, 6]))
    );
    // What is subtracted is sampled more often than that from which it is.
    let held = "m.holdOn([[null, 5, null, null, 7, null]])";
    assert_eq!(result("columns", held), json!([[null, 5, 5, 5, 7, 7]]));
    let alone = "m.pointsAlone([1, null, 2, 3, null, null, 4, null])";
    assert_eq!(result("../shared/course", alone), json!([0, 6]));
    assert_eq!(result("../shared/course", "m.pointsAlone([null, 2, 3])"), Value::Null);
    // Phases of two nodes that overlap are one band; one without an end lasts until the end.
    let rows = "[[1, 'a', 'x', 'begin'], [2, 'b', 'x', 'begin'], [3, 'a', 'x', 'end'], [4, 'b', 'x', 'end'], [5, 'a', 'y', 'begin'], [6, 'a', 'z', 'instant']] \
                .map(([at, node, name, kind]) => ({ time_us: at * 1e6, node, name, kind }))";
    let bands = result("marks", &format!("m.bandsOf({rows}, 0, 9)"));
    let expected = json!([{"name": "x", "begin_s": 1, "end_s": 4}, {"name": "y", "begin_s": 5, "end_s": 9}]);
    assert_eq!(bands["bands"], expected);
    assert_eq!(bands["marks"][0]["at_s"], 6);
    assert_calm(&site.proxy, &mut browser);
}

fn append_to_course(history: &str, at_s: f64, value: i32, is_rate: bool, is_raw: bool) -> String {
    format!(
        "(() => {{ const line = {history}; const course = {{ begin_s: 0, part_s: 0.5, distance: 2, isRaw: {is_raw}, \
             times: line.map((_, part) => part * 0.5), lines: [[...line], [...line], [...line]], \
             extent: {{ min: 4, mean: 4, max: 4 }} }}; \
             m.append(course, {at_s}, [{value}, {value}, {value}], {is_rate}, true); \
             return [course.times, course.lines[1], course.extent]; }})()"
    )
}
