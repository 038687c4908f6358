//! Draws the pictures of the pages in the documents: runs jobs on this machine, samples them for two minutes, and takes pictures of the
//! pages in a headless Chromium. Requires root, cgroups of both versions and Chromium.
//!
//! `cargo run --bin screenshots -- DIRECTORY`

#![allow(
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a fault ends the program"
)]

use std::path::PathBuf;
use std::thread;

use polymeter_e2e::browser::Browser;
use polymeter_e2e::cgroup::{Job, TestCgroups};
use polymeter_e2e::daemons::{Agent, Plan, collector_with};
use polymeter_e2e::site::{Proxy, api_config};
use polymeter_e2e::workload::Workload;
use polymeter_e2e::{TestEnvironment, program, wait_until};
use serde_json::json;

/// A user that every Debian has, and who owns the jobs.
const OWNER: (&str, u32) = ("daemon", 1);

/// The nodes, all of which are this machine.
const NODES: [&str; 3] = ["node01", "node02", "node03"];

/// The number of times that the workload repeats its phases, each for some seconds.
const ROUNDS: u64 = 14;

/// A page of memory is 4 KiB.
const PAGES_PER_MIB: u64 = 256;

/// An agent with its part of a job.
struct Node {
    agent: Agent,
    job: Job,
    workload: Workload,
    _cgroups: TestCgroups,
    _env: TestEnvironment,
}

impl Node {
    fn start(name: &str, endpoint: &str, id: &str) -> Self {
        let (mut env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
        name.clone_into(&mut env.node);
        let baseline = [
            ("cpu.usage", "500ms"),
            ("memory.*", "500ms"),
            ("io.*", "1s"),
            ("pids.current", "2s"),
            ("pressure.*.total", "1s"),
            ("node.load1", "2s"),
            ("agent.*", "5s"),
        ];
        let agent = Agent::start(
            &env,
            &Plan { collector: endpoint, jobs: &[cgroups.pattern()], baseline: &baseline },
        );
        let (job, workload) = (cgroups.job(id), Workload::start());
        job.enter(workload.pid());
        agent.wait_until_tracked(id, &["v2/cpu.stat"]);
        Self { agent, job, workload, _cgroups: cgroups, _env: env }
    }

    fn announce(&self, facts: &[&str]) {
        let told = program("polymeter")
            .args([
                "job",
                "start",
                "--no-agent",
                "--job",
                &self.job.id,
                "--uid",
                &OWNER.1.to_string(),
                "--socket",
            ])
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
}

fn main() {
    let directory = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "docs/images".to_owned()));
    let env = TestEnvironment::new();
    let (_collector, endpoint) = collector_with(&env, &env.endpoint(), &api_config(&env.path("api.sock")));
    println!("sampling a job on {} nodes", NODES.len());
    let mut nodes: Vec<Node> = NODES.iter().map(|name| Node::start(name, &endpoint, "418211")).collect();
    let list = NODES.join(",");
    for node in &nodes {
        node.announce(&[
            "--name",
            "lattice-qcd-L32",
            "--queue",
            "normal",
            "--account",
            "physics",
            "--nodes",
            &list,
            "--cores",
            "3",
            "--gpus",
            "0",
            "--memory",
            "384M",
            "--time-limit",
            "0:30:00",
        ]);
    }
    thread::scope(|scope| {
        for (number, node) in nodes.iter_mut().enumerate() {
            scope.spawn(move || node.work(number as u64));
        }
    });
    let proxy = Proxy::start(&env.path("api.sock"));
    let mut browser = proxy.open(OWNER.0, "");
    wait_until("the job is summarized", || {
        browser.eval("document.querySelector('.jobs td.findings-cell:not(:empty)') !== null") == true
    });
    browser.wait_until(&format!("Number(document.documentElement.dataset.nodes) === {}", NODES.len()));
    let key = browser.eval("document.querySelector('.jobs tbody tr').dataset.key");
    take(&mut browser, (1280, 560), "light", &directory.join("page-overview.png"));
    let mut browser = proxy.open(OWNER.0, &format!("job?key={}", key.as_str().unwrap()));
    browser.wait_until("document.documentElement.dataset.complete");
    browser.resize(1280, 1500);
    browser.wait_until("Number(document.querySelector('.charts').dataset.loaded) >= 4");
    take(&mut browser, (1280, 1180), "light", &directory.join("page-job.png"));
    take(&mut browser, (1280, 1180), "dark", &directory.join("page-job-dark.png"));
    browser.eval("document.querySelector('#charts').scrollIntoView()");
    take(&mut browser, (360, 740), "dark", &directory.join("page-job-narrow.png"));
    browser.resize(1280, 900);
    browser.eval("document.querySelector('#sampling').scrollIntoView()");
    take(&mut browser, (1280, 620), "light", &directory.join("page-sampling.png"));
}

/// Writes a picture of the window.
fn take(browser: &mut Browser, (width, height): (u32, u32), scheme: &str, path: &std::path::Path) {
    let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
    browser.call("Emulation.setEmulatedMedia", json!({"features": features}));
    browser.resize(width, height);
    browser.wait_until(&format!("innerWidth === {width}"));
    // Two frames: charts follow the size of their place.
    browser.eval("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(drawn, 300))))");
    let picture = browser.picture();
    std::fs::write(path, &picture).unwrap();
    println!("{}: {} kB", path.display(), picture.len() / 1000);
}
