//! The collector's pages answer first: what came of a job and what to change, and which jobs are worth a
//! look.

use polymeter_e2e::browser::Browser;
use polymeter_e2e::tests;
use serde_json::{Value, json};

use crate::site_fixture::{Ended, OWNER, assert_calm};

tests![a_page_of_a_job_begins_with_its_verdict, the_overview_is_filtered_sorted_and_folded];

/// A job of 50 minutes that has requested four cores for an hour, and has used few.
const JOB: &str = "UPDATE job SET job_id = '17', display_id = NULL, cores = 4, gpus = 0, memory_bytes = 1073741824, time_limit_s = 3600, \
    state = 'COMPLETED', started = ended - 3000000000000; UPDATE job_node SET started = ended - 3000000000000; \
    UPDATE job_usage SET elapsed_s = 3000, cores = 4, cpu_s = 600;";

fn a_page_of_a_job_begins_with_its_verdict() {
    let site = Ended::with("answers", |store| store.execute_batch(JOB).unwrap());
    let mut browser = site.proxy.open(OWNER.0, "job/17");
    browser.wait_until("document.documentElement.dataset.complete");
    assert_eq!(browser.eval("location.pathname + location.search"), "/job?id=17");
    let verdict = browser.eval("document.querySelector('.verdict').textContent").to_string();
    assert!(verdict.contains("COMPLETED") && verdict.contains("4 cores"), "{verdict}");
    assert_eq!(
        browser.eval("document.querySelector('.facts').textContent.includes('4 cores, 1 GiB a node')"),
        true
    );
    let in_order = "['.verdict', '#findings', '.meters', '.chart', '[role=tablist]'].map((one) => document.querySelector(one)) \
        .every((one, number, all) => number === 0 || all[number - 1].compareDocumentPosition(one) & 4)";
    assert_eq!(browser.eval(in_order), true);
    // What was requested is in the scale, also after a zoom; of the time limit five sixths are used.
    for place in [".facts", ".meters li:last-child"] {
        let bar = format!("document.querySelector('{place} .bar .plain').getAttribute('width')");
        let share: f64 = browser.eval(&bar).as_str().unwrap().parse().unwrap();
        assert!((share - 100.0 * 3000.0 / 3600.0).abs() < 0.1, "{place}: {share}");
    }
    let scale = "[...document.querySelector('.charts').axis.plots][0].scales";
    let label = browser.eval("document.querySelector('.plot').getAttribute('aria-label')").to_string();
    assert!(label.contains("requested: 2 cores a node"), "{label}");
    assert_eq!(browser.eval(&format!("{scale}.y.max >= 2 && {scale}.x.max < 3002")), true);
    browser.eval("document.querySelector('.charts').axis.show(2800, 2901)");
    browser.wait_until("document.querySelector('.charts').dataset.busy === 'false' && document.querySelector('.range').textContent !== ''");
    assert_eq!(browser.eval(&format!("{scale}.y.max >= 2 && {scale}.x.max < 2902")), true);
    // The menu: a link to this range, and data without formulas.
    browser.eval("document.querySelector('.chart-menu').open = true");
    let link = browser.eval("document.querySelector('.chart-menu a').href");
    assert!(link.as_str().unwrap().contains("&from=2800.000&until=2901.000"), "{link}");
    browser.open_url(link.as_str().unwrap());
    browser.wait_until(
        "document.documentElement.dataset.complete && document.querySelector('.range').textContent !== ''",
    );
    browser.eval("document.querySelector('.charts').axis.reset()");
    check_folded(&mut browser);
    check_tabs(&mut browser);
    browser.resize(400, 900);
    browser.wait_until("innerWidth === 400");
    let top = browser.eval("document.querySelector('[role=tablist]').getBoundingClientRect().top + scrollY");
    assert!(top.as_f64().unwrap() < 3000.0, "the tabs are {top} px below the top");
    assert_calm(&site.proxy, &mut browser);
    check_words(&mut browser);
    check_modules(&mut browser);
}

/// Charts that show nothing, here without any samples, are one sentence, and can be shown.
fn check_folded(browser: &mut Browser) {
    let folded = "document.querySelectorAll('.chart[hidden]').length";
    browser.eval("document.querySelector('.charts').fold({})");
    assert_eq!(browser.eval(folded), 3, "page cache, read, written");
    let sentence = browser.eval("document.querySelector('.folded span').textContent").to_string();
    assert!(sentence.contains("No samples of “Page cache”"), "{sentence}");
    browser.eval("document.querySelector('.folded button').click()");
    assert_eq!(browser.eval(folded), 0);
    assert_eq!(
        browser.eval("document.querySelector('.folded button').getAttribute('aria-expanded')"),
        "true"
    );
    browser.eval("document.querySelector('.folded button').click()");
    assert_eq!(browser.eval(folded), 3);
}

/// One panel is visible at a time.
fn check_tabs(browser: &mut Browser) {
    browser.eval("document.querySelector('#tab-completeness').click()");
    let shown = "[...document.querySelectorAll('[role=tabpanel]')].filter((panel) => panel.checkVisibility()).map((panel) => panel.id)";
    assert_eq!(browser.eval(shown), json!(["completeness"]));
    let text = browser.eval("document.querySelector('#completeness').textContent").to_string();
    assert!(text.contains("Complete") || text.contains("Incomplete"), "{text}");
    browser.eval("document.querySelector('[role=tab][aria-selected=true]').focus()");
    browser.key("ArrowLeft");
    assert_eq!(browser.eval(shown), json!(["sampling"]));
}

/// Evaluates an expression of a module of the page, `m`.
fn result_of(browser: &mut Browser, module: &str, expression: &str) -> Value {
    let base = "document.querySelector('script[type=module]:not([async])').src.replace('job.js', '')";
    browser.eval(&format!("import({base} + '{module}.js').then((m) => ({expression}))"))
}

fn check_words(browser: &mut Browser) {
    let mut result = |module: &str, expression: &str| result_of(browser, module, expression);
    // A state that says why the job ended needs no signal, and what is wrong comes first. The remedy has the
    // line for the scheduler of the job.
    let jobs = "['COMPLETED', 'COMPLETED', 'FAILED', 'TIMEOUT'].map((state) => ({ ended_us: 1, state, exit_signal: state === 'COMPLETED' ? 0 : 15, lost_nodes: [] }))";
    assert_eq!(
        result("job_text", &format!("{jobs}.map(m.stateText)")),
        json!(["COMPLETED", "COMPLETED", "FAILED, signal 15", "TIMEOUT"])
    );
    assert_eq!(result("arrays", &format!("m.statesText({jobs})")), "1 FAILED, 1 TIMEOUT, 2 COMPLETED");
    assert_eq!(result("findings", &remedy_for("'slurm'")), "Next time: Use x. #SBATCH -c 1");
    assert_eq!(result("findings", &remedy_for("null")), "Next time: Use x.");
}

fn remedy_for(scheduler: &str) -> String {
    format!(
        "m.findingList({{ scheduler: {scheduler}, findings: [{{ severity: 'note', sentence: 's', evidence: 'e', \
             remedies: {{ any: 'Use `x`.', slurm: '#SBATCH -c 1', oar: '#OAR -l core=1' }} }}] }}).querySelector('.remedy').textContent"
    )
}

fn check_modules(browser: &mut Browser) {
    let mut result = |module: &str, expression: &str| result_of(browser, module, expression);
    let csv = "m.csvOf({ begin_s: 10, is_of_one_node: true, rows: [] }, { shown: { times: [0, 1.5, 9], lines: [[1, 2, 3], [1.5, null, 3], [2, 4, 3]], means: [] } }, [0, 2], false)";
    assert_eq!(
        result("chart_menu", csv),
        "time_us,seconds,min,mean,max\r\n10000000,0,1,1.5,2\r\n11500000,1.5,2,,4"
    );
    let by_row = "m.csvOf({ begin_s: 0, rows: [{ first: '=cmd(\"x\")', nodes: 1 }] }, \
        { shown: { begin_s: 0, end_s: 2, times: [], lines: [], means: [[1, 2]] }, cells: () => ({ columns: 2 }) }, [0, 9], true)";
    assert_eq!(result("chart_menu", by_row), "time_us,seconds,\"'=cmd(\"\"x\"\")\"\r\n0,0,1\r\n1000000,1,2");
    // Reasons that differ only by node and job are one; the one with the most metrics comes first.
    let reasons = "m.byReason(['gpu.power: no driver', 'a.x: /sys/n1/job_1/x: No such file', 'b.y: /sys/n2/job_2/x: No such file', 'a.x: /sys/n3/x: No such file'])";
    assert_eq!(
        result("reasons", reasons),
        json!([{"reason": "x: No such file", "metrics": ["a.x", "b.y"]}, {"reason": "no driver", "metrics": ["gpu.power"]}])
    );
    // Two quantities without values are one word; one that is always small has its bound; one that changes,
    // and the cores, are drawn.
    let quantities =
        [("read", "r"), ("write", "w"), ("cache", "c"), ("receive", "v"), ("transmit", "s"), ("cores", "r")]
            .map(|(id, metric)| {
                format!(
                    "{{ id: '{id}', title: '{id}', unit: 'bytes', is_main: true, terms: [{{ metric: '{metric}', factor: 1 }}] }}"
                )
            });
    let folded = format!(
        "m.foldedText(m.foldable([{}], {{ r: [0, 0, 0], w: [0, 0, 0], c: [1048576, 1048576, 1048576], v: [1, 2e6, 1.5], s: [1, 2, 1.5] }}))",
        quantities.join(", ")
    );
    assert_eq!(result("folded_charts", &folded), "No I/O, cache always 1 MiB, transmit below 1 MiB.");
    let extents = "{ 'a.b': [1, 1.1, 1], 'c.d': [0, 9, 1], 'agent.x': [0, 99, 1] }";
    for (metrics, most_telling) in
        [(["a.b", "agent.x", "c.d"], "metric:c.d"), (["a.b", "c.d", "user.loss"], "metric:user.loss")]
    {
        let list =
            metrics.map(|metric| format!("{{ id: 'metric:{metric}', terms: [{{ metric: '{metric}' }}] }}"));
        let expression = format!("m.mostTelling([{}], {extents}).id", list.join(", "));
        assert_eq!(result("folded_charts", &expression), most_telling);
    }
    // Small charts of processes: the highest mean first, on one scale.
    let parts = "(async () => { \
        const series = [['a', [1, 1, 0, 0]], ['b', [2, 1, 1, 2]]].map(([comm, values], id) => ({ id, node: 'n', metric: 'busiest.cpu.usage', \
            labels: { comm, pid: String(id), started: '9' }, time_us: [0, 1e6, 2e6, 3e6], count: [1, 1, 1, 1], min: values, mean: values, max: values })); \
        const real = window.fetch; \
        window.fetch = async () => new Response(JSON.stringify({ from_us: 0, until_us: 4e6, part_s: 1, series })); \
        const [panel] = m.partPanels({ key: 1, nodes: ['n'] }, [{ metric: 'busiest.cpu.usage', level: null, series: 2, unit: 'nanoseconds', rate_unit: 'cores' }]); \
        await panel.shown(); \
        window.fetch = real; \
        const all = (selector) => [...panel.contents.querySelectorAll(selector)]; \
        return [panel.title, all('figcaption').map((name) => name.textContent), all('.spark path').length, all('.remark')[0].textContent]; })()";
    let scale = "The busiest processes of the job. The highest mean is first; all have the scale from 0 to 2 cores (busiest.cpu.usage).";
    assert_eq!(result("part_panels", parts), json!(["Processes", ["b (1)1.50", "a (0)0.500"], 2, scale]));
    let search = "['wing', '4009_1', 'Failed', 'user: zoe', 'foo:bar'].map((text) => m.parsedSearch(text, ['user', 'name', 'id', 'state']))";
    assert_eq!(
        result("filters", search),
        json!([
            ["name", "wing"],
            ["id", "4009_1"],
            ["state", "Failed"],
            ["user", "zoe"],
            ["name", "foo:bar"]
        ])
    );
}

/// Adds jobs: an array of 30 tasks, two that failed today and long ago, one of another user, and two with one
/// id.
const JOBS: &str = "
    CREATE TEMP TABLE now AS SELECT CAST(strftime('%s', 'now') AS INTEGER) * 1000000000 AS ns;
    WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 30)
    INSERT INTO job (job_id, display_id, owner, owner_uid, started, ended, name, state, cores)
    SELECT 1000 + n, '77_' || n, 'daemon', 1, ns - 4000000000000 - n * 1000000000, ns - 3900000000000, 'sweep', 'COMPLETED', n FROM number, now;
    INSERT INTO job (job_id, owner, owner_uid, started, ended, name, state)
    SELECT id, owner, uid, ns - ago * 1000000000 - 600000000000, ns - ago * 1000000000, name, state FROM now, (
        SELECT '90' AS id, 'daemon' AS owner, 1 AS uid, 3600 AS ago, 'mesh' AS name, 'FAILED' AS state
        UNION ALL SELECT '91', 'daemon', 1, 200000, 'mesh', 'OUT_OF_MEMORY' UNION ALL SELECT '92', 'bin', 2, 3600, 'mesh', 'FAILED'
        UNION ALL SELECT '95', 'daemon', 1, 9000, 'first run', 'COMPLETED' UNION ALL SELECT '95', 'daemon', 1, 8000, 'second run', 'COMPLETED');";

fn the_overview_is_filtered_sorted_and_folded() {
    let site = Ended::with("used", |store| store.execute_batch(&format!("{JOB}{JOBS}")).unwrap());
    let mut browser = site.proxy.open(OWNER.0, "");
    let ids = "[...document.querySelectorAll('.jobs.ended tbody th a')].map((link) => link.textContent)";
    let keys = "[...document.querySelectorAll('.jobs.ended .array-key')].map((key) => key.textContent)";
    browser.wait_until("document.querySelector('.tiles').dataset.loaded && document.querySelector('.jobs .spark path') !== null");
    let figures = "[...document.querySelectorAll('.tile strong')].map((number) => number.textContent)";
    let shown = browser.eval(figures);
    assert_eq!((&shown[0], &shown[1]), (&json!("0"), &json!("1")), "own jobs of the last day");
    assert_eq!(shown[2], json!("3.17"), "4 cores for 3000 s, less 600 s");
    // One request for the cores of all rows; the tasks of the array are one row.
    assert_eq!(browser.requests().iter().filter(|url| url.contains("/job-cores?")).count(), 1);
    assert_eq!(browser.eval(keys), json!(["77 · 30 tasks"]));
    assert_eq!(browser.eval(ids), json!(["17", "90", "95", "95", "91"]));
    browser.eval("document.querySelector('.array-key').click()");
    assert_eq!(browser.eval(&format!("{ids}.length")), 35);
    assert_eq!(browser.eval("document.querySelector('.array-key').getAttribute('aria-expanded')"), "true");
    browser.eval("document.querySelector('.array-key').click()");
    // Tiles filter, and are pressed; the address keeps it.
    let press = |view: &str| format!("document.querySelector('[data-view={view}]').click()");
    browser.eval(&press("failed"));
    browser.wait_until(&format!("JSON.stringify({ids}) === '[\"90\"]'"));
    assert_eq!(
        browser.eval("[location.search, document.querySelector('[data-view=failed]').ariaPressed]"),
        json!(["?view=failed", "true"])
    );
    browser.eval(&press("wasted"));
    browser.wait_until(&format!("JSON.stringify({ids}) === '[\"17\"]'"));
    assert_eq!(browser.eval("document.querySelector('[aria-sort]').textContent"), "Wasted, core-h");
    browser.eval(&press("running"));
    browser.wait_until("document.querySelector('[aria-labelledby=ended]').hidden");
    browser.eval(&press("running"));
    browser.wait_until(&format!("{keys}.length === 1"));
    // Chips.
    browser.eval(&search("MES"));
    browser.wait_until(&format!("JSON.stringify({ids}) === '[\"90\",\"91\"]'"));
    browser.eval(&search("state: out_of_memory"));
    browser.wait_until(&format!("JSON.stringify({ids}) === '[\"91\"]'"));
    assert_eq!(browser.eval("location.search"), "?name=MES&state=out_of_memory");
    let chips = "[...document.querySelectorAll('.chips button')]";
    assert_eq!(
        browser.eval(&format!("{chips}.map((chip) => chip.ariaLabel)[1]")),
        "Remove the filter State out_of_memory"
    );
    browser.eval(&format!("{chips}[1].click()"));
    browser.eval(&format!("{chips}[0].click()"));
    browser.wait_until(&format!("{keys}.length === 1 && {chips}.length === 0"));
    // The server sorts: the longest job is the first, then the last.
    browser.eval("[...document.querySelectorAll('.jobs.ended .sort')].find((sort) => sort.textContent === 'Elapsed').click()");
    browser.wait_until(&format!(
        "{ids}[0] === '17' && document.querySelector('.ended [aria-sort]').ariaSort === 'descending'"
    ));
    browser.eval("document.querySelector('.jobs.ended [aria-sort] .sort').click()");
    browser.wait_until(&format!(
        "{ids}.at(-1) === '17' && document.querySelector('.ended [aria-sort]').ariaSort === 'ascending'"
    ));
    assert!(
        browser.requests().iter().any(|url| url.contains("sort=elapsed") && url.contains("order=ascending"))
    );
    assert_calm(&site.proxy, &mut browser);
    // Two jobs with one id are a list; one of another user is none.
    browser.open_url(&site.proxy.url("job/95"));
    browser.wait_until("document.querySelectorAll('.jobs tbody tr').length === 2");
    browser.open_url(&site.proxy.url("job?id=92"));
    browser.wait_until("document.documentElement.dataset.ready === 'failed'");
    let told = browser.eval("document.querySelector('.notice').textContent").to_string();
    assert!(told.contains("no job 92"), "{told}");
}

fn search(text: &str) -> String {
    format!(
        "(() => {{ document.querySelector('.search input').value = '{text}'; document.querySelector('.search').requestSubmit(); }})()"
    )
}
