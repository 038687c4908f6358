//! Draws the pictures of the pages in the documents: runs jobs on this machine, samples them for two minutes,
//! and takes pictures of the pages in a headless Chromium. Requires root, cgroups of both versions and
//! Chromium.
//!
//! `cargo run --bin screenshots -- DIRECTORY [--all]`. With `--all` all pages, in both colour schemes and at
//! two widths, for a review.

#![allow(
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a fault ends the program"
)]

use std::path::{Path, PathBuf};
use std::thread;

use polymeter_e2e::browser::Browser;
use polymeter_e2e::cgroup::{Job, TestCgroups};
use polymeter_e2e::daemons::{Agent, Plan, collector_with};
use polymeter_e2e::site::{Proxy, api_config};
use polymeter_e2e::workload::Workload;
use polymeter_e2e::{TestEnvironment, program, wait_until};
use serde_json::json;

/// A user of every Debian, who owns the jobs.
const OWNER: (&str, u32) = ("daemon", 1);

/// A user of every Debian, who is an administrator here.
const ADMINISTRATOR: &str = "sys";

/// All nodes are this machine.
const NODES: [&str; 3] = ["node01", "node02", "node03"];

/// How often the workload repeats its phases of some seconds.
const ROUNDS: u64 = 14;

/// A page of memory is 4 KiB.
const PAGES_PER_MIB: u64 = 256;

/// Jobs that have ended: id, name, memory in MiB, final state, and their commands.
const ENDED: [(&str, &str, u32, &str, &[&str]); 4] = [
    ("418186", "cfd-wing-mesh", 192, "COMPLETED", &["burn 5200", "touch 20480", "burn 1500"]),
    ("418190", "genome-align", 1024, "COMPLETED", &["touch 5120", "burn 900", "rest 5500"]),
    ("418197", "train-resnet", 96, "OUT_OF_MEMORY", &["burn 2500", "touch 22528", "burn 3000"]),
    ("418203", "md-protein", 512, "TIMEOUT", &["burn 2200", "rest 2000", "burn 2800"]),
];

const BASELINE: [(&str, &str); 14] = [
    ("cpu.usage", "500ms"),
    ("memory.*", "500ms"),
    ("io.*", "1s"),
    ("pids.current", "2s"),
    ("pressure.*.total", "1s"),
    ("node.load1", "2s"),
    ("node.cpu.user", "1s"),
    ("node.cpu.system", "1s"),
    ("node.memory.total", "5s"),
    ("node.memory.available", "1s"),
    ("node.network.*.bytes", "1s"),
    ("node.disk.*.sectors", "1s"),
    ("node.pressure.cpu.some.total", "1s"),
    ("agent.*", "5s"),
];

struct Node {
    agent: Agent,
    job: Job,
    workload: Workload,
    cgroups: TestCgroups,
    _env: TestEnvironment,
}

impl Node {
    fn start(name: &str, endpoint: &str, id: &str) -> Self {
        let (mut env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
        name.clone_into(&mut env.node);
        let plan = Plan { collector: endpoint, jobs: &[cgroups.pattern()], baseline: &BASELINE };
        let agent = Agent::start(&env, &plan);
        let (job, workload) = (cgroups.job(id), Workload::start());
        job.enter(workload.pid());
        agent.wait_until_tracked(id, &["v2/cpu.stat"]);
        Self { agent, job, workload, cgroups, _env: env }
    }

    fn announce(&self, id: &str, facts: &[&str]) {
        let told = program("polymeter")
            .args(["job", "start", "--no-agent", "--job", id, "--uid", &OWNER.1.to_string(), "--socket"])
            .arg(&self.agent.socket)
            .args(facts)
            .output()
            .unwrap();
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    }

    fn mark(&self, name: &str, kind: &str) {
        self.agent.ask(&json!({"verb": "mark", "job": self.job.id, "name": name, "kind": kind}));
    }

    /// Computes, allocates and waits. Each node does a little more than the one before.
    fn work(&mut self, number: u64) {
        for round in 0..ROUNDS {
            let is_solving = round % 4 != 3;
            let name = if is_solving { "solve" } else { "exchange" };
            self.mark(name, "begin");
            for _ in 0..4 {
                if is_solving {
                    self.workload.execute(&format!("burn {}", 450 + 90 * number));
                    self.workload.execute(&format!("touch {}", (2 + number) * PAGES_PER_MIB));
                }
                self.workload.execute(&format!("rest {}", if is_solving { 500 } else { 900 }));
            }
            self.mark(name, "end");
        }
    }

    fn run_others(&self) {
        for (id, name, memory_mib, state, commands) in ENDED {
            let (job, mut workload) = (self.cgroups.job(id), Workload::start());
            job.enter(workload.pid());
            self.agent.wait_until_tracked(id, &["v2/cpu.stat"]);
            let memory = format!("{memory_mib}M");
            let facts =
                ["--name", name, "--queue", "normal", "--account", "physics", "--cores", "1", "--gpus", "0"];
            self.announce(id, &[&facts[..], &["--memory", &memory, "--time-limit", "0:10:00"]].concat());
            for command in commands {
                workload.execute(command);
            }
            drop(workload);
            drop(job);
            self.agent.ask(&json!({"verb": "end", "job": id, "state": state}));
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().unwrap_or_else(|| "docs/images".to_owned()));
    std::fs::create_dir_all(&directory).unwrap();
    let env = TestEnvironment::new();
    let config = format!("administrators = [\"{ADMINISTRATOR}\"]\n{}", api_config(&env.path("api.sock")));
    let (_collector, endpoint) = collector_with(&env, &env.endpoint(), &config);
    println!("sampling jobs on {} nodes", NODES.len());
    let first = Node::start(NODES[0], &endpoint, "418211");
    first.run_others();
    let others = NODES[1..].iter().map(|name| Node::start(name, &endpoint, "418211"));
    let mut nodes: Vec<Node> = std::iter::once(first).chain(others).collect();
    let list = NODES.join(",");
    for node in &nodes {
        let facts =
            ["--name", "lattice-qcd-L32", "--queue", "normal", "--account", "physics", "--nodes", &list];
        let limits = ["--cores", "3", "--gpus", "0", "--memory", "384M", "--time-limit", "0:30:00"];
        node.announce("418211", &[&facts[..], &limits].concat());
    }
    thread::scope(|scope| {
        for (number, node) in nodes.iter_mut().enumerate() {
            scope.spawn(move || node.work(number as u64));
        }
    });
    let proxy = Proxy::start(&env.path("api.sock"));
    let mut browser = open_overview(&proxy);
    let key = browser.eval("document.querySelector('.jobs.running tbody tr').dataset.key");
    let job = format!("job?key={}", key.as_str().unwrap());
    if arguments.next().as_deref() == Some("--all") {
        take_all(&proxy, &job, &directory);
    } else {
        take_for_documents(&proxy, &job, &directory);
    }
}

/// Opens the overview and waits until the jobs are summarized and the nodes are there.
fn open_overview(proxy: &Proxy) -> Browser {
    let mut browser = proxy.open(OWNER.0, "");
    browser.wait_until(&format!("Number(document.documentElement.dataset.nodes) === {}", NODES.len()));
    browser.wait_until(
        "[...document.querySelectorAll('.jobs td.findings-cell')].every((cell) => cell.textContent)",
    );
    browser
}

fn open(proxy: &Proxy, page: &str) -> Browser {
    if page.is_empty() {
        return open_overview(proxy);
    }
    if page.starts_with("job") {
        let mut browser = proxy.open(OWNER.0, page);
        browser.wait_until("document.documentElement.dataset.complete");
        browser.resize(1280, 1500);
        browser.wait_until("Number(document.querySelector('.charts').dataset.loaded) >= 3");
        return browser;
    }
    let mut browser = proxy.open(ADMINISTRATOR, page);
    if page.starts_with("node") {
        browser.resize(1280, 1500);
        browser.wait_until("Number(document.querySelector('.charts').dataset.loaded) >= 4");
    } else {
        // The clocks of all agents are measured.
        wait_until("the clocks are measured", || {
            browser.open_url(&proxy.url(page));
            browser.wait_until("document.querySelectorAll('.agents tbody tr').length === 3");
            browser.eval("[...document.querySelectorAll('.agents tbody tr')].every((row) => row.textContent.includes('±'))") == true
        });
    }
    browser
}

fn take_for_documents(proxy: &Proxy, job: &str, directory: &Path) {
    let picture = |name: &str| directory.join(format!("page-{name}.png"));
    take(&mut open(proxy, ""), (1280, 640), "light", &picture("overview"));
    let mut browser = open(proxy, job);
    take(&mut browser, (1280, 1180), "light", &picture("job"));
    browser.eval("document.querySelector('#charts').scrollIntoView()");
    take(&mut browser, (360, 740), "dark", &picture("job-narrow"));
    browser.resize(1280, 900);
    browser.eval(
        "document.querySelector('#tab-sampling').click(); document.querySelector('.tabbed').scrollIntoView()",
    );
    take(&mut browser, (1280, 620), "light", &picture("sampling"));
    let mut browser = open(proxy, "node?name=node01");
    // The time of the job, whose own charts are then beside those of the node.
    browser.eval(
        "(() => { const choice = document.querySelector('[aria-labelledby=node-charts] select'); choice.value = [...choice.options].at(-5).value; \
         choice.dispatchEvent(new Event('change')); })()",
    );
    browser.wait_until("document.querySelectorAll('.phases bdi').length === 2");
    browser.wait_until("Number(document.querySelector('.charts').dataset.loaded) >= 6");
    take(&mut browser, (1280, 1180), "light", &picture("node"));
    take(&mut open(proxy, "status"), (1280, 620), "light", &picture("measurement"));
}

/// Takes pictures of all pages in full length, in both schemes and at two widths, for a review.
fn take_all(proxy: &Proxy, job: &str, directory: &Path) {
    for (name, page) in [("overview", ""), ("job", job), ("node", "node?name=node01"), ("status", "status")] {
        let mut browser = open(proxy, page);
        for scheme in ["light", "dark"] {
            for width in [1360, 400] {
                browser.resize(width, 900);
                browser.eval("new Promise((drawn) => setTimeout(drawn, 400))");
                let height = browser.eval("Math.min(document.documentElement.scrollHeight, 6000)");
                let height = u32::try_from(height.as_u64().unwrap()).unwrap();
                take(
                    &mut browser,
                    (width, height),
                    scheme,
                    &directory.join(format!("{name}-{width}-{scheme}.png")),
                );
            }
        }
    }
}

fn take(browser: &mut Browser, (width, height): (u32, u32), scheme: &str, path: &Path) {
    browser.set_media(&[("prefers-color-scheme", scheme)]);
    browser.call("Emulation.setScrollbarsHidden", json!({"hidden": true}));
    browser.resize(width, height);
    browser.wait_until(&format!("innerWidth === {width}"));
    // Two frames: charts follow the size of their place.
    browser.eval("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(drawn, 900))))");
    let picture = browser.picture();
    std::fs::write(path, &picture).unwrap();
    println!("{}: {} kB", path.display(), picture.len() / 1000);
}
