//! The agent's page of metrics, read by others.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use polymeter_e2e::cgroup::TestCgroups;
use polymeter_e2e::daemons::{Agent, Daemon, Plan, collector};
use polymeter_e2e::fixture::{NEEDS, OWNER};
use polymeter_e2e::receivers::{Receiver, promtool};
use polymeter_e2e::workload::Workload;
use polymeter_e2e::{Need, TestEnvironment, require, skip, stored, tests, wait_until};
use polymeter_store::reader::SeriesScope;
use polymeter_test_harness::certificates::Authority;
use serde_json::json;

tests![the_page_has_values_of_the_store_until_the_job_ends, prometheus_scrapes_the_page_with_a_token];

const BASELINE: [(&str, &str); 3] =
    [("cpu.usage", "100ms"), ("pids.current", "100ms"), ("node.memory.*", "1s")];

/// An agent with a job of two processes at most, and its page.
struct Node {
    agent: Agent,
    _collector: Daemon,
    _cgroups: TestCgroups,
    job: polymeter_e2e::cgroup::Job,
    workload: Workload,
}

fn start(env: &TestEnvironment, page: &str) -> Node {
    let cgroups = TestCgroups::new();
    let (collector, endpoint) = collector(env, &env.endpoint());
    let plan = Plan { collector: &endpoint, jobs: &[], baseline: &BASELINE };
    let agent = Agent::start_with(env, &plan, "", &format!("[openmetrics]\n{page}"));
    let (job, workload) = (cgroups.job("x"), Workload::start());
    job.enter(workload.pid());
    let register = json!({"verb": "register", "job": "x", "uid": OWNER, "cgroups": job.directories});
    assert_eq!(agent.ask(&register)["answer"], "registered");
    Node { agent, _collector: collector, _cgroups: cgroups, job, workload }
}

fn curl(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("curl").args(["--silent", "--fail", "--max-time", "60"]).args(arguments).output();
    output
        .ok()
        .filter(|output| output.status.success())
        .map(|output| String::from_utf8(output.stdout).unwrap())
}

/// Values by the text of the series.
fn values(page: &str) -> BTreeMap<String, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            (series.to_owned(), value.parse().unwrap())
        })
        .collect()
}

fn the_page_has_values_of_the_store_until_the_job_ends() {
    require(&NEEDS);
    if Command::new("curl").arg("--version").stdout(Stdio::null()).status().is_err() {
        skip("curl", "curl is not installed");
    }
    let env = TestEnvironment::new();
    let socket = env.path("metrics.sock").display().to_string();
    let mut node = start(&env, &format!("listen = \"{socket}\"\n"));
    node.workload.execute("burn 100");
    let page = || values(&curl(&["--unix-socket", &socket, "http://x/metrics"]).unwrap_or_default());
    let labels = format!("{{jobid=\"x\",node=\"{}\"}}", env.node);
    let usage = format!("polymeter_cpu_usage_seconds_total{labels}");
    let memory = format!("polymeter_node_memory_total_bytes{{node=\"{}\"}}", env.node);
    let processes = format!("polymeter_pids_current{labels}");
    let mut shown = BTreeMap::new();
    wait_until("job and node are on the page", || {
        shown = page();
        [&usage, &memory, &processes].into_iter().all(|series| shown.contains_key(series))
    });
    assert_eq!(shown.get(&processes), Some(&1.0), "{shown:?}");
    let info = shown.keys().find(|series| series.starts_with("polymeter_job_info{")).unwrap();
    assert!(info.contains(&format!("uid=\"{OWNER}\"")), "{info}");
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap();
    let kib: f64 = meminfo.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert_eq!(shown.get(&memory), Some(&(kib * 1024.0)), "{shown:?}");
    node.job.remove();
    drop(node.workload);
    stored::wait_for_end(&env, "x");
    wait_until("the job vanishes from the page", || !page().keys().any(|series| series.contains("jobid=")));
    assert!(page().contains_key(&memory), "the node stays");
    let mut reader = env.reader();
    let key = stored::job(&mut reader, "x").unwrap().job_key;
    let stored = stored::samples(&mut reader, SeriesScope::Job(key));
    let points = &stored[&("cpu.usage".to_owned(), String::new())].points;
    let seconds = shown[&usage];
    assert!(points.iter().any(|(_, ns)| (ns / 1e9 - seconds).abs() < 1e-9), "{seconds} was never sampled");
    node.agent.daemon.terminate();
}

fn prometheus_scrapes_the_page_with_a_token() {
    require(&[&NEEDS[..], &[Need::Receivers]].concat());
    let env = TestEnvironment::new();
    let authority = Authority::new("site");
    authority.issue("page", "localhost");
    let file = |name: &str| authority.path(name).display().to_string();
    let token = env.path("token");
    fs::write(&token, "an-example-of-a-token\n").unwrap();
    fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let page = format!(
        "listen = \"127.0.0.1:{port}\"\ntoken_file = {token:?}\ncertificate_file = \"{}\"\nkey_file = \"{}\"\n",
        file("page.crt"),
        file("page.key")
    );
    let node = start(&env, &page);
    let url = format!("https://localhost:{port}/metrics");
    let root = file("root.crt");
    let get = |header: &str| curl(&["--cacert", &root, "--header", header, &url]);
    let authorised = "Authorization: Bearer an-example-of-a-token";
    wait_until("the job is on the page", || get(authorised).is_some_and(|page| page.contains("jobid=\"x\"")));
    assert_eq!(get("Authorization: Bearer an-example-of-another"), None);
    assert_eq!(promtool(&get(authorised).unwrap()), "");
    let config = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: polymeter\n  scheme: https\n  \
         authorization: {{credentials_file: {token:?}}}\n  tls_config: {{ca_file: {root:?}}}\n  \
         static_configs: [{{targets: [\"localhost:{port}\"]}}]\n"
    );
    let prometheus = Receiver::scraping(&env, &config);
    let mut names = Vec::new();
    wait_until("Prometheus has the values of the job", || {
        let samples = prometheus.samples("jobid", "x");
        names = samples.into_keys().map(|labels| labels["__name__"].clone()).collect();
        names.len() >= 3
    });
    names.sort();
    assert_eq!(names, ["polymeter_cpu_usage_seconds_total", "polymeter_job_info", "polymeter_pids_current"]);
    node.agent.daemon.terminate();
}
