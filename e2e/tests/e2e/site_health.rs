//! The collector's pages about nodes and agents: their own series, their clocks, and a thousand of them.

use polymeter_e2e::{tests, wait_until};
use serde_json::{Value, json};

use crate::site_fixture::{ADMINISTRATOR, Ended, OWNER, Site, assert_calm};

tests![
    a_node_shows_its_own_series_with_its_jobs,
    clocks_of_agents_are_shown_with_their_error,
    a_thousand_agents_are_sorted_filtered_and_bounded,
    modules_compute_the_health_of_agents_and_quantities_of_nodes,
];

const NODE: [(&str, &str); 6] = [
    ("node.cpu.user", "500ms"),
    ("node.cpu.system", "500ms"),
    ("node.memory.total", "500ms"),
    ("node.memory.available", "500ms"),
    ("node.network.*.bytes", "500ms"),
    ("node.load1", "500ms"),
];

const TITLES: &str =
    "[...document.querySelectorAll('.grid h3')].map((title) => title.firstChild.textContent.trim())";

fn a_node_shows_its_own_series_with_its_jobs() {
    let site = Site::with_baseline(&NODE);
    let page = format!("node?name={}", site.env.node);
    let mut browser = site.proxy.open(ADMINISTRATOR, &page);
    let own = ["Busy cores", "Memory in use", "Received over the network", "Transmitted over the network"];
    let titles = browser.eval(TITLES);
    for title in own {
        assert!(titles.as_array().unwrap().contains(&json!(title)), "{title}: {titles}");
    }
    // The values are drawn, and newer ones follow.
    let loaded = "Number(document.querySelector('.charts').dataset.loaded)";
    browser.wait_until(&format!("{loaded} >= 4"));
    let busy = "document.querySelector('.chart .readout').textContent";
    browser.wait_until(&format!("/mean [0-9.]+, max/.test({busy})"));
    // The jobs are beside them: as bands, and as a choice.
    browser.wait_until("document.querySelectorAll('.phases bdi').length === 2");
    let jobs = "[...document.querySelectorAll('.phases bdi')].map((job) => job.textContent).sort()";
    assert_eq!(browser.eval(jobs), json!(["job x", "job y"]));
    assert_calm(&site.proxy, &mut browser);
    browser.wait_until("/Agent .*connected/.test(document.querySelector('.state').textContent)");
    // In the time of a job, the job and the node have the same axis.
    let key = site.key("x").to_string();
    browser.eval(&format!(
        "(() => {{ const choice = document.querySelector('[aria-labelledby=node-charts] select'); choice.value = '{key}'; \
         choice.dispatchEvent(new Event('change')); }})()"
    ));
    browser.wait_until(&format!(
        "document.querySelector('[aria-labelledby=node-charts]').dataset.shown === '{key}'"
    ));
    let titles = browser.eval(TITLES).to_string();
    assert!(titles.contains("Node: Busy cores") && titles.contains("Job: Cores in use"), "{titles}");
    browser.wait_until(&format!("{loaded} >= 4"));
    assert_calm(&site.proxy, &mut browser);
    // Users see the node in the times of their own jobs.
    let mut browser = site.proxy.open(OWNER.0, &page);
    let choices = "[...document.querySelector('[aria-labelledby=node-charts] select').options].map((option) => option.value)";
    assert_eq!(browser.eval(choices), json!([key]));
    let titles = browser.eval(TITLES).to_string();
    assert!(titles.contains("Node: Busy cores") && titles.contains("Job: Cores in use"), "{titles}");
    browser.wait_until(&format!("/mean [0-9.]+, max/.test({busy})"));
    assert_calm(&site.proxy, &mut browser);
}

fn clocks_of_agents_are_shown_with_their_error() {
    let site = Site::new();
    let mut browser = site.proxy.open(ADMINISTRATOR, "status");
    let row = format!(
        "[...document.querySelectorAll('.agents tbody tr')].find((row) => row.querySelector('th').textContent === '{}')",
        site.env.node
    );
    browser.wait_until(&format!("{row} !== undefined"));
    // The first measurement follows within seconds, and the page asks for it.
    let mut clock = String::new();
    wait_until("the clock is measured", || {
        browser.open_url(&site.proxy.url("status"));
        browser.wait_until(&format!("{row} !== undefined"));
        let cell = browser.eval(&format!("{row}.querySelectorAll('td')[2].textContent"));
        cell.as_str().unwrap().clone_into(&mut clock);
        clock.contains('±')
    });
    // Both clocks are the same: the offset is not more than the error.
    let api = "fetch('api/v1/agents').then((answer) => answer.json()).then(({ agents }) => agents[0])";
    let agent = browser.eval(api);
    let number = |name: &str| agent[name].as_i64().unwrap();
    assert!(number("clock_offset_us").abs() <= number("clock_error_us"), "{agent}");
    assert!(clock.contains("ago") && (clock.starts_with('+') || clock.starts_with('−')), "{clock}");
    let sections = "document.querySelector('[aria-labelledby=agents]').hidden";
    assert_eq!(browser.eval(sections), false);
    // Users do not see agents.
    let mut browser = site.proxy.open(OWNER.0, "status");
    assert_eq!(browser.eval(sections), true);
    assert_calm(&site.proxy, &mut browser);
}

fn a_thousand_agents_are_sorted_filtered_and_bounded() {
    // The newest session of each node: three are silent, one has stopped, as has that of the job, and two
    // have another version.
    let site = Ended::with("job", |store| {
        store
            .execute_batch(
                "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 1000),
                      now(ns) AS (SELECT CAST(strftime('%s', 'now') AS INTEGER) * 1000000000)
                 INSERT INTO session (session_id, node, agent_version, started, last_sequence, last_seen, last_sample, ended, end_reason)
                 SELECT printf('%016x', n), printf('node%04d', n), CASE WHEN n IN (500, 501) THEN '0.0.1' ELSE '{version}' END,
                        now.ns - 3600000000000, 9, seen.ns, seen.ns - 1000000000,
                        CASE WHEN n = 700 THEN now.ns END, CASE WHEN n = 700 THEN 'stopped' END
                 FROM number, now, (
                     SELECT n AS of, CASE WHEN n IN (300, 600, 900) THEN ns - 1200000000000 ELSE ns + 3600000000000 END AS ns FROM number, now
                 ) AS seen WHERE seen.of = n;"
                    .replace("{version}", env!("CARGO_PKG_VERSION"))
                    .as_str(),
            )
            .unwrap();
    });
    let mut browser = site.proxy.open(ADMINISTRATOR, "status");
    let nodes = "[...document.querySelectorAll('.agents tbody th')].map((head) => head.textContent)";
    browser.wait_until(&format!("{nodes}.length === 100"));
    let first = browser.eval(&format!("{nodes}.slice(0, 3)"));
    assert_eq!(first, json!(["node0300", "node0600", "node0900"]), "problems come first");
    let summary = browser.eval("document.querySelector('.summary').textContent").to_string();
    assert!(summary.contains("3 silent") && summary.contains("2 stopped"), "{summary}");
    assert!(summary.contains("2 of another version"), "{summary}");
    let silent =
        browser.eval("document.querySelector('.agents tbody tr .state-cell').textContent").to_string();
    assert!(silent.contains("critical") && silent.contains("silent for 20 min"), "{silent}");
    browser.eval("[...document.querySelectorAll('button')].find((button) => button.textContent.includes('100 more')).click()");
    assert_eq!(browser.eval(&format!("{nodes}.length")), 200);
    let mut filter = |selector: &str, value: &str, event: &str| -> Value {
        browser.eval(&format!(
            "(() => {{ const field = document.querySelector('{selector}'); field.value = '{value}'; field.dispatchEvent(new Event('{event}')); \
             return {nodes}; }})()"
        ))
    };
    assert_eq!(filter(".filters input", "node0042", "input"), json!(["node0042"]));
    filter(".filters input", "", "input");
    assert_eq!(filter(".filters select", "stopped", "change")[0], "node0700");
    assert_eq!(filter(".filters select", "version", "change"), json!(["node0500", "node0501"]));
    filter(".filters select", "", "change");
    assert_eq!(
        filter(".filters label:last-child select", "0.0.1", "change"),
        json!(["node0500", "node0501"])
    );
    assert_calm(&site.proxy, &mut browser);
}

fn modules_compute_the_health_of_agents_and_quantities_of_nodes() {
    let site = Ended::new("job");
    let mut browser = site.proxy.open(OWNER.0, "");
    let base = "document.querySelector('script[type=module]:not([async])').src.replace('overview.js', '')";
    let mut result = |module: &str, expression: &str| -> Value {
        browser.eval(&format!("import({base} + '{module}.js').then((m) => ({expression}))"))
    };
    // An agent without problems, and changes to it.
    let agent = "{ node: 'n', version: '1', is_connected: true, started_us: 0, last_seen_us: 99e6, last_sample_us: 98e6, delay_us: 1e6, \
                 clock_offset_us: null, clock_error_us: null, clock_measured_us: null, ended_us: null, end_reason: null, \
                 due: 1000, taken: 1000, late: 0, missed: 0, lost: 0 }";
    for (change, expected) in [
        ("{}", ""),
        ("{ last_seen_us: 0 }", "critical: silent for 1 min 40 s"),
        ("{ ended_us: 90e6, end_reason: 'stopped' }", "warning: stopped 1 s ago"),
        ("{ ended_us: 90e6, end_reason: 'silent' }", "warning: stopped 1 s ago: silent"),
        // The sign and the size are known as far as the error permits.
        (
            "{ clock_offset_us: 5e6, clock_error_us: 1000, clock_measured_us: 9e6 }",
            "warning: clock ahead by 5 s",
        ),
        (
            "{ clock_offset_us: -3.6e9, clock_error_us: 1000, clock_measured_us: 9e6 }",
            "critical: clock behind by 1 h",
        ),
        ("{ clock_offset_us: 5e6, clock_error_us: 5e6, clock_measured_us: 9e6 }", ""),
        // Without a measurement a sample that arrives before it was taken is the only proof.
        ("{ delay_us: -3e6 }", "warning: clock ahead by at least 3 s"),
        ("{ delay_us: 120e6 }", "warning: samples arrive after 2 min, or its clock is behind"),
        (
            "{ delay_us: 120e6, clock_offset_us: -119e6, clock_error_us: 0, clock_measured_us: 9e6 }",
            "critical: clock behind by 1 min 59 s",
        ),
        ("{ lost: 20, late: 2 }", "critical: 20 (2 %) lost; warning: 2 (0.200 %) late"),
        ("{ version: '2' }", "note: version 2, the collector has 1"),
    ] {
        let told = format!(
            "m.problemsOf({{ ...{agent}, ...{change} }}, 100e6, '1').map((one) => `${{one.level}}: ${{one.text}}`).join('; ')"
        );
        assert_eq!(result("agent_health", &told), expected, "{change}");
    }
    // The hottest sensor counts, partitions and the loopback interface do not, and sectors are bytes.
    let series = "[['node.hwmon.temperature', 'celsius', { sensor: 'a' }], ['node.hwmon.temperature', 'celsius', { sensor: 'b' }], \
                  ['node.disk.read.sectors', 'sectors', { device: 'nvme0n1' }, 'physical'], ['node.disk.read.sectors', 'sectors', { device: 'nvme0n1p1' }, 'part', ['nvme0n1']], \
                  ['node.network.receive.bytes', 'bytes', { interface: 'lo' }, 'local'], ['node.network.receive.bytes', 'bytes', { interface: 'eth0' }, 'physical'], \
                  ['node.memory.total', 'bytes', {}], ['node.energy.package', 'joules', { package: '0' }], ['node.energy.memory', 'joules', { package: '0' }]] \
                  .map(([metric, unit, labels, role = null, below = []], id) => ({ id, metric, unit, labels, role, below, node: 'n1', rate_unit: { joules: 'watts', sectors: '1/s', bytes: null }[unit] }))";
    let quantities = format!(
        "import({base} + 'node_quantities.js').then((own) => m.quantitiesOf({series}, own.OWN_QUANTITIES).filter((one) => one.is_main)
             .map((one) => [one.title, one.unit, [...one.factors], one.isHighest]))"
    );
    let expected = json!([
        ["Power of the processors and the memory", "watts", [[7, 1], [8, 1]], false],
        ["Temperature of the hottest sensor", "celsius", [[0, 1], [1, 1]], true],
        ["Received over the network", "bytes", [[5, 1]], false],
        ["Read from disks", "bytes/s", [[2, 512]], false],
    ]);
    assert_eq!(
        result("job_quantities", &quantities),
        expected,
        "without the available memory nothing is subtracted"
    );
    // Of devices that contain each other the lowest count that have series, on each node and at each level.
    let devices = "[['n1', {}, '253:0', 'stacked', ['8:32', '8:16']], ['n1', {}, '8:16', 'physical'], ['n1', {}, '252:0', 'local'], \
                   ['n2', {}, '253:0', 'stacked', ['8:32', '8:16']], ['n1', { step: '0' }, '253:0', 'stacked', ['8:16']], \
                   ['n1', {}, '7:0', 'stacked'], ['n3', {}, '7:0', 'stacked'], ['n1', {}, '9:9', null]] \
                   .map(([node, labels, device, role, below = []], id) => ({ id, node, role, below, metric: 'io.read.bytes', labels: { ...labels, device } }))";
    let ids = format!("m.summed({devices}).map((one) => one.id)");
    assert_eq!(result("summed", &ids), json!([1, 3, 4, 6, 7]));
    // Work that throws at once, since it was aborted while it waited, leaves its place to others.
    let queue = "(async () => { const turn = m.limited(1); const ends = []; for (let i = 0; i < 3; i += 1) \
                 ends.push(await turn(() => { throw new Error('aborted'); }).catch((error) => error.message)); \
                 return [...ends, await turn(async () => 'done')]; })()";
    assert_eq!(result("queue", queue), json!(["aborted", "aborted", "aborted", "done"]));
    let highest = "(() => { const sum = [[null, 2], [1, 2], [1, 2]]; m.keepHighest(sum, [[3, 1], [3, null], [0, 5]]); return sum; })()";
    assert_eq!(result("columns", highest), json!([[3, 2], [3, 2], [1, 5]]));
    assert_calm(&site.proxy, &mut browser);
}
