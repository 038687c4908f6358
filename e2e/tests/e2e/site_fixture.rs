//! Collectors with pages: of two running jobs, and of one that has ended.

use polymeter_e2e::browser::Browser;
use polymeter_e2e::cgroup::{Job, TestCgroups};
use polymeter_e2e::daemons::{Agent, Daemon, Plan, collector_with};
use polymeter_e2e::site::{Proxy, api_config};
use polymeter_e2e::workload::{self, Sleeper};
use polymeter_e2e::{Need, TestEnvironment, program, require, stored, wait_until};
use polymeter_store::reader::SeriesScope;
use serde_json::json;

/// Users of every Debian, with their numeric ids.
pub(crate) const OWNER: (&str, u32) = ("daemon", 1);
pub(crate) const OTHER: (&str, u32) = ("bin", 2);

pub(crate) const ADMINISTRATOR: &str = "sys";

/// A user who manages the account `physics`.
pub(crate) const MANAGER: &str = "games";

/// Adds 40 runs of `train` for each of the users: of the owner in the account `physics`, of the other in
/// `chem`. From the 25th on they take longer.
pub(crate) fn insert_runs(store: &rusqlite::Connection) {
    for ((name, uid), account) in [(OWNER, "physics"), (OTHER, "chem")] {
        store
            .execute_batch(&format!(
                "BEGIN;
                 CREATE TEMP TABLE run AS WITH RECURSIVE run (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM run WHERE n < 39)
                 SELECT n, (1760000000 + n * 86400) * 1000000000 AS started,
                        3600 + n * 37 % 40 + CASE WHEN n >= 24 THEN 650 ELSE 0 END AS elapsed FROM run;
                 INSERT INTO job (job_id, owner, owner_uid, account, name, state, cores, started, ended, run)
                 SELECT '{account}-' || n, '{name}', {uid}, '{account}', 'train', 'COMPLETED', 2, started, started + elapsed * 1000000000,
                        '{{\"command\": [\"secret-' || (n / 24) || '\"]}}' FROM run;
                 INSERT INTO job_node (job_key, node, started, ended)
                 SELECT job_key, 'n' || (substr(job_id, {}) / 24), started, ended FROM job WHERE name = 'train' AND owner_uid = {uid};
                 INSERT INTO job_usage (job_key, ended, elapsed_s, nodes, cores, cpu_s, memory_used_bytes, energy_j)
                 SELECT job_key, ended, elapsed, 1, 2, elapsed * 1.4, 2e9 + n * 7919 % 13 * 1e7, elapsed * 180
                 FROM run JOIN job ON job_id = '{account}-' || n;
                 DROP TABLE run;
                 COMMIT;",
                account.len() + 2
            ))
            .unwrap();
    }
}

/// Configuration of a collector with an administrator, a manager and pages.
fn config(env: &TestEnvironment) -> String {
    let control = format!("control_socket = \"{}\"\n", env.path("control.sock").display());
    let roles = format!("administrators = [\"{ADMINISTRATOR}\"]\nmanagers = [\"physics|{MANAGER}\"]\n");
    format!("{roles}{control}{}", api_config(&env.path("api.sock")))
}

/// A collector with pages, an agent, and two running jobs: `x` of the owner, `y` of the other user.
pub(crate) struct Site {
    // The daemons end before the directory that they write to.
    pub(crate) agent: Agent,
    collector: Option<Daemon>,
    endpoint: String,
    _jobs: [(Job, Sleeper); 2],
    _cgroups: TestCgroups,
    pub(crate) proxy: Proxy,
    pub(crate) env: TestEnvironment,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self::with_baseline(&[])
    }

    /// Starts an agent that samples more than the metrics of jobs.
    pub(crate) fn with_baseline(more: &[(&str, &str)]) -> Self {
        require(&[Need::Root, Need::Cgroup1, Need::Cgroup2, Need::Chromium]);
        let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
        let (collector, endpoint) = collector_with(&env, &env.endpoint(), &config(&env));
        let usual = [("cpu.usage", "500ms"), ("pids.current", "50ms"), ("memory.current", "100ms")];
        let baseline = [&usual[..], more].concat();
        let agent = Agent::start(&env, &Plan { collector: &endpoint, jobs: &[], baseline: &baseline });
        let jobs = [("x", OWNER), ("y", OTHER)].map(|(id, (_, uid))| {
            let (job, sleeper) = (cgroups.job(id), Sleeper::start());
            job.enter(sleeper.pid());
            let register = json!({"verb": "register", "job": id, "uid": uid, "cgroups": job.directories});
            assert_eq!(agent.ask(&register)["answer"], "registered");
            agent.wait_until_tracked(id, &["v2/cpu.stat"]);
            (job, sleeper)
        });
        let site = Self {
            agent,
            collector: Some(collector),
            endpoint,
            _jobs: jobs,
            _cgroups: cgroups,
            proxy: Proxy::start(&env.path("api.sock")),
            env,
        };
        for id in ["x", "y"] {
            wait_until("the job has samples", || site.times_us(id, "pids.current").len() > 20);
        }
        site
    }

    pub(crate) fn times_us(&self, id: &str, metric: &str) -> Vec<i64> {
        let mut reader = self.env.reader();
        let Some(job) = stored::job(&mut reader, id) else { return Vec::new() };
        let samples = stored::samples(&mut reader, SeriesScope::Job(job.job_key));
        let series = samples.get(&(metric.to_owned(), String::new()));
        series.map(|series| series.points.iter().map(|point| point.0).collect()).unwrap_or_default()
    }

    pub(crate) fn key(&self, id: &str) -> i64 {
        stored::job(&mut self.env.reader(), id).unwrap().job_key
    }

    pub(crate) fn collector(&self) -> &Daemon {
        self.collector.as_ref().unwrap()
    }

    pub(crate) fn kill_collector(&mut self) {
        self.collector.take().unwrap().kill();
    }

    pub(crate) fn start_collector(&mut self) {
        self.collector = Some(collector_with(&self.env, &self.endpoint, &config(&self.env)).0);
    }

    /// Opens the page of a job and waits for its first chart.
    pub(crate) fn open_job(&self, id: &str) -> Browser {
        let mut browser = self.proxy.open(OWNER.0, &format!("job?key={}", self.key(id)));
        browser.wait_until("Number(document.querySelector('.charts').dataset.loaded) > 0");
        browser
    }
}

/// Fails if the browser has complained, or has asked for anything from elsewhere.
pub(crate) fn assert_calm(proxy: &Proxy, browser: &mut Browser) {
    assert_eq!(browser.complaints(), Vec::<String>::new());
    proxy.assert_own_requests(browser);
}

/// A collector whose store has one ended job with two nodes, and names that users chose.
pub(crate) struct Ended {
    _collector: Daemon,
    pub(crate) proxy: Proxy,
    pub(crate) env: TestEnvironment,
}

impl Ended {
    pub(crate) fn new(name: &str) -> Self {
        Self::with(name, |_| {})
    }

    /// Changes the store before the collector opens it.
    pub(crate) fn with(name: &str, change: impl FnOnce(&rusqlite::Connection)) -> Self {
        require(&[Need::Root, Need::Chromium]);
        let env = TestEnvironment::new();
        let ran = program("polymeter")
            .args(["run", "--report", "/dev/null", "-o"])
            .arg(env.path("store.db"))
            .arg("--")
            .arg(workload::program())
            .arg("burn 300")
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let store = rusqlite::Connection::open(env.path("store.db")).unwrap();
        let quoted = name.replace('\'', "''");
        store
            .execute_batch(&format!(
                "INSERT INTO series_block (first_id, shape_id, job_key, node, job_id)
                 SELECT first_id + 1000000, shape_id, job_key, '{quoted}', job_id FROM series_block WHERE job_key IS NOT NULL;
                 INSERT INTO samples (time, series_id, value) SELECT time, series_id + 1000000, value * 1.3 FROM samples
                 WHERE series_id IN (SELECT series_id FROM series WHERE job_key IS NOT NULL);
                 INSERT INTO job_node (job_key, node, started, ended, lost)
                 SELECT job_key, '{quoted}', started, ended, lost FROM job_node LIMIT 1;
                 INSERT INTO mark (time, job_key, job_id, node, name, detail)
                 SELECT started, job_key, job_id, '{quoted}', '{quoted}', json_object('kind', 'begin') FROM job;
                 UPDATE job SET name = '{quoted}', account = '{quoted}', queue = '{quoted}', state = '{quoted}',
                 display_id = '{quoted}', owner = 'daemon', owner_uid = 1, nodes = NULL;"
            ))
            .unwrap();
        change(&store);
        drop(store);
        let (collector, _) = collector_with(&env, &env.endpoint(), &config(&env));
        Self { _collector: collector, proxy: Proxy::start(&env.path("api.sock")), env }
    }

    /// Paths of all pages. The job is the latest one.
    pub(crate) fn pages(&self) -> Vec<String> {
        let mut browser = self.proxy.open(OWNER.0, "");
        browser.wait_until("document.querySelector('.jobs tbody tr') !== null");
        let mut text = |of_row: &str| {
            let value =
                browser.eval(&format!("((row) => {of_row})(document.querySelector('.jobs tbody tr'))"));
            value.as_str().unwrap().to_owned()
        };
        let job = format!("job?key={}", text("row.dataset.key"));
        let trend =
            format!("trend?name={}", text("encodeURIComponent(row.querySelector('.job-name').textContent)"));
        vec![String::new(), job, "node?name=other".to_owned(), "status".to_owned(), trend]
    }
}
