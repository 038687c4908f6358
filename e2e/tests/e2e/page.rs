//! `polymeter report --html`, its file, and the page in a browser.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use polymeter_e2e::browser::Browser;
use polymeter_e2e::{Need, program, require, tests, text, workload};
use rusqlite::Connection;
use serde_json::Value;

tests![
    the_file_appears_when_it_is_complete,
    jobs_without_much_data_have_pages,
    the_page_is_drawn_without_network,
    charts_zoom_with_mouse_and_keyboard,
    names_are_text,
    the_page_suits_dark_narrow_and_paper,
];

const HOSTILE: &str = "</script><img src=x onerror=\"document.title='hacked'\"><b>&amp; שלום 🦀";

struct Store {
    directory: tempfile::TempDir,
}

impl Store {
    /// Runs a workload, and adds copies of its series as those of further nodes.
    fn new(commands: &str, nodes: u32) -> Self {
        let store = Self { directory: tempfile::tempdir().unwrap() };
        let ran = program("polymeter")
            .args(["run", "--report", "/dev/null", "-o"])
            .arg(store.path())
            .arg("--")
            .arg(workload::program())
            .arg(commands)
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", text(&ran.stderr));
        for node in 1..nodes {
            let script = format!(
                "INSERT INTO series_block (first_id, shape_id, job_key, node, job_id)
                 SELECT first_id + {node} * 1000000, shape_id, job_key, 'other{node}', job_id FROM series_block
                 WHERE job_key IS NOT NULL AND node NOT LIKE 'other%';
                 INSERT INTO samples (time, series_id, value)
                 SELECT time, series_id + {node} * 1000000, value * (1 + {node} * 0.3) FROM samples
                 WHERE series_id IN (SELECT series_id FROM series WHERE job_key IS NOT NULL AND node NOT LIKE 'other%');
                 INSERT INTO job_node (job_key, node, started, ended)
                 SELECT job_key, 'other{node}', started, ended FROM job_node WHERE node NOT LIKE 'other%';"
            );
            store.sql(&script);
        }
        store
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("run.db")
    }

    fn sql(&self, script: &str) {
        Connection::open(self.path()).unwrap().execute_batch(script).unwrap();
    }

    fn add_phase(&self, name: &str) {
        let connection = Connection::open(self.path()).unwrap();
        for (kind, share) in [("begin", 0.2), ("end", 0.7)] {
            let insert = "INSERT INTO mark (time, node, job_key, job_id, name, detail)
                SELECT CAST(started + (ended - started) * ?1 AS INTEGER), (SELECT min(node) FROM job_node), job_key, job_id, ?2,
                       json_object('kind', ?3) FROM job";
            connection.execute(insert, (share, name, kind)).unwrap();
        }
    }

    fn report(&self, arguments: &[&str]) -> Output {
        let url = format!("sqlite:{}", self.path().display());
        program("polymeter")
            .args(["report", "--store", &url])
            .args(arguments)
            .current_dir(self.directory.path())
            .output()
            .unwrap()
    }

    fn page(&self) -> PathBuf {
        let written = self.report(&["--html", "page.html", "--force"]);
        assert!(written.status.success(), "{}", text(&written.stderr));
        self.directory.path().join("page.html")
    }
}

fn opened(page: &Path) -> Browser {
    let mut browser = Browser::start();
    browser.resize(1280, 900);
    browser.open(page);
    browser.wait_until("document.documentElement.dataset.charts || document.querySelector('#figures')?.textContent.includes('cannot be drawn')");
    browser
}

fn the_file_appears_when_it_is_complete() {
    let store = Store::new("burn 50", 1);
    let page = store.page();
    let mode = fs::metadata(&page).unwrap().permissions().mode() & 0o777;
    let plain = store.directory.path().join("plain");
    fs::write(&plain, "").unwrap();
    assert_eq!(mode, fs::metadata(&plain).unwrap().permissions().mode() & 0o777, "the user's mask applies");
    let again = store.report(&["--html", "page.html"]);
    assert_eq!(again.status.code(), Some(1));
    let message = text(&again.stderr);
    assert!(
        message.contains("cannot write page.html: the file exists; name another, or replace it with --force"),
        "{message}"
    );
    let nowhere = store.report(&["--html", "no/such/page.html"]);
    let message = text(&nowhere.stderr);
    assert!(message.contains("cannot write no/such/page.html: No such file or directory"), "{message}");
    assert!(message.trim_end().ends_with("create the directory, or name another"), "{message}");
    let unknown = store.report(&["no-such-job", "--html", "other.html"]);
    assert!(!unknown.status.success() && !store.directory.path().join("other.html").exists());
    let names: Vec<_> =
        fs::read_dir(store.directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().starts_with(".polymeter")), "{names:?}");
    let printed = store.report(&["--html", "-"]);
    let times = |page: &str| page.split("<footer>").next().unwrap().to_owned();
    assert_eq!(times(&text(&printed.stdout)), times(&fs::read_to_string(&page).unwrap()));
}

fn jobs_without_much_data_have_pages() {
    let store = Store::new("burn 10", 1);
    let short = fs::read_to_string(store.page()).unwrap();
    assert!(short.contains("<h1>Job ") && short.ends_with("</html>\n"));
    store.sql("DELETE FROM samples");
    let empty = fs::read_to_string(store.page()).unwrap();
    assert!(empty.contains("<p>No samples.</p>") && empty.contains("none: no samples"), "{empty:.2000}");
    let running = Store::new("burn 300", 1);
    running.sql("UPDATE job SET ended = NULL; UPDATE job_node SET ended = NULL");
    let page = fs::read_to_string(running.page()).unwrap();
    assert!(page.contains("RUNNING - used ") && page.contains("<dt>End</dt><dd>not ended</dd>"));
}

fn the_page_is_drawn_without_network() {
    require(&[Need::Chromium]);
    let store = Store::new("burn 400; touch 4000; burn 400", 3);
    store.add_phase("solve");
    let page = store.page();
    let mut browser = opened(&page);
    assert_eq!(browser.complaints(), Vec::<String>::new());
    let requests = browser.requests();
    assert_eq!(requests, [format!("file://{}", page.display())]);
    // Each canvas has several colours: it is not blank.
    let blank = browser.eval(
        "[...document.querySelectorAll('.uplot canvas')].filter((canvas) => {
            const pixels = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer);
            return new Set(pixels).size < 3;
         }).length",
    );
    assert_eq!(blank, 0);
    let charts = browser.eval("document.querySelectorAll('.uplot').length");
    assert!(charts.as_u64() >= Some(4), "{charts}");
    let label = browser.eval("document.querySelector('.plot').getAttribute('aria-label')");
    assert!(label.as_str().unwrap().starts_with("Cores in use on 3 nodes: min "), "{label}");
    assert_eq!(browser.eval("document.querySelector('.phases').textContent"), "solve");
    // The colours of the heat map change with the order of the nodes; its tooltip names node and value.
    let heat = "document.querySelector('#heat-map')";
    let pixels = format!("{heat}.querySelector('.uplot canvas').toDataURL()");
    let by_name = browser.eval(&pixels);
    browser.eval(&format!(
        "{{ const sorting = {heat}.querySelectorAll('select')[1]; sorting.value = 'high'; sorting.dispatchEvent(new Event('change')); }}"
    ));
    assert_ne!(browser.eval(&pixels), by_name);
    let point = browser.middle("#heat-map .u-over");
    browser.mouse("mouseMoved", point, 0);
    let told = browser.eval(&format!("{heat}.querySelector('.readout').textContent"));
    assert!(told.as_str().unwrap().contains("after the start"), "{told}");
    // Another metric is drawn on request.
    let metric = "document.querySelector('#any-metric select')";
    browser.eval(&format!("{metric}.value = {metric}.options[{metric}.options.length - 1].value; {metric}.dispatchEvent(new Event('change'))"));
    let shown = browser.eval(&format!(
        "[{metric}.selectedOptions[0].textContent, document.querySelector('#any-metric h3').textContent]"
    ));
    assert!(shown[1].as_str().unwrap().starts_with(shown[0].as_str().unwrap()), "{shown}");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

fn charts_zoom_with_mouse_and_keyboard() {
    require(&[Need::Chromium]);
    let store = Store::new("burn 500", 1);
    let mut browser = opened(&store.page());
    let range =
        |browser: &mut Browser| -> Value { browser.eval("document.querySelector('.range').textContent") };
    let ticks = "[...document.querySelectorAll('.uplot canvas')].map((canvas) => canvas.toDataURL())";
    let whole = browser.eval(ticks);
    assert_eq!(range(&mut browser), "");
    let (x, y) = browser.middle(".u-over");
    browser.mouse("mousePressed", (x - 60.0, y), 1);
    browser.mouse("mouseMoved", (x, y), 1);
    browser.mouse("mouseReleased", (x + 60.0, y), 1);
    assert_ne!(range(&mut browser), "", "a drag zooms");
    let zoomed = browser.eval(ticks);
    for (whole, zoomed) in whole.as_array().unwrap().iter().zip(zoomed.as_array().unwrap()) {
        assert_ne!(whole, zoomed, "all charts share the axis");
    }
    for clicks in [1, 2] {
        browser.mouse("mousePressed", (x, y), clicks);
        browser.mouse("mouseReleased", (x, y), clicks);
    }
    browser.wait_until("document.querySelector('.range').textContent === ''");
    browser.eval("document.querySelector('.plot').focus()");
    browser.key("+");
    let half = range(&mut browser);
    assert_ne!(half, "", "a key zooms");
    browser.key("ArrowRight");
    assert_ne!(range(&mut browser), half, "a key moves");
    browser.key("0");
    assert_eq!(range(&mut browser), "");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

fn names_are_text() {
    require(&[Need::Chromium]);
    let store = Store::new("burn 200", 2);
    store.add_phase(HOSTILE);
    let quoted = HOSTILE.replace('\'', "''");
    store.sql(&format!(
        "UPDATE job SET name = '{quoted}', account = '{quoted}', queue = '{quoted}', state = '{quoted}', display_id = '{quoted}';
         UPDATE job_node SET node = '{quoted}' WHERE node = 'other1';
         UPDATE series_block SET node = '{quoted}' WHERE node = 'other1';
         UPDATE job SET nodes = NULL"
    ));
    let mut browser = opened(&store.page());
    assert_eq!(browser.complaints(), Vec::<String>::new());
    assert_eq!(browser.eval("document.querySelectorAll('img').length"), 0);
    assert_eq!(browser.eval("document.querySelector('.job-name').textContent"), HOSTILE);
    assert_eq!(browser.eval("document.querySelector('.phases bdi').textContent"), HOSTILE);
    assert_ne!(browser.eval("document.title"), "hacked");
    let nodes =
        browser.eval("[...document.querySelectorAll('tbody th bdi')].map((name) => name.textContent)");
    assert!(nodes.as_array().unwrap().iter().any(|node| node == HOSTILE), "{nodes}");
    // Even an element that became part of the page could not act: its policy stops it, and says so.
    browser.eval(
        "document.body.insertAdjacentHTML('beforeend', '<img src=\"data:,x\" onerror=\"document.title=1\"><b style=\"color:red\">b</b>')",
    );
    browser.wait_until("document.images.length === 1 && document.images[0].complete");
    let stopped = browser.complaints();
    assert!(
        stopped.len() >= 2 && stopped.iter().all(|one| one.contains("Content Security Policy")),
        "{stopped:?}"
    );
    assert_ne!(browser.eval("document.title"), "1");
}

fn the_page_suits_dark_narrow_and_paper() {
    require(&[Need::Chromium]);
    let store = Store::new("burn 300", 2);
    let mut browser = opened(&store.page());
    let background = "getComputedStyle(document.body).backgroundColor";
    let light = browser.eval(background);
    let canvas = "document.querySelector('.uplot canvas').toDataURL()";
    let drawn = browser.eval(canvas);
    let media = |media: &str, scheme: &str| serde_json::json!({"media": media, "features": [{"name": "prefers-color-scheme", "value": scheme}]});
    browser.call("Emulation.setEmulatedMedia", media("", "dark"));
    assert_ne!(browser.eval(background), light);
    let sources = format!("{canvas} !== {drawn}");
    browser.wait_until(&sources);
    browser.call("Emulation.setEmulatedMedia", media("print", "dark"));
    assert_eq!(browser.eval(background), light, "paper is white");
    browser.call("Emulation.setEmulatedMedia", media("", "light"));
    browser.resize(360, 740);
    browser.wait_until("document.querySelector('.uplot').offsetWidth < 360");
    let overflow = browser.eval("document.documentElement.scrollWidth - innerWidth");
    assert!(overflow.as_i64() <= Some(0), "the page is {overflow} px too wide");
    let printed = browser.call("Page.printToPDF", serde_json::json!({"printBackground": false}));
    // The begin of a PDF file in Base64.
    assert!(printed["data"].as_str().unwrap().starts_with("JVBERi0x"));
    assert!(printed["data"].as_str().unwrap().len() > 20_000);
    // The static parts do not need the script.
    browser.call("Emulation.setScriptExecutionDisabled", serde_json::json!({"value": true}));
    browser.call("Page.reload", serde_json::json!({}));
    browser.wait_for("Page.loadEventFired");
    browser.call("Emulation.setScriptExecutionDisabled", serde_json::json!({"value": false}));
    let text = browser.eval("document.body.innerText");
    for part in ["Use of the resources", "Findings", "Nodes", "Charts need JavaScript"] {
        assert!(text.as_str().unwrap().contains(part), "no {part}: {text}");
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
}
