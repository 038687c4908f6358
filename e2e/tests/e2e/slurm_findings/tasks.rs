//! Five tasks of people who use the jobs' data, each by one command, with its time.

use std::collections::BTreeMap;
use std::process::{Command, Output};

use polymeter_e2e::slurm::{OTHER_USER, USER};
use polymeter_e2e::{now_us, stored, wait_until};
use polymeter_store::reader::JobRow;
use rusqlite::Connection;
use serde_json::Value;

use super::cases::Case;
use super::{Fixture, text};

type Jobs = [(Case, Vec<String>)];

/// The account whose manager is the other user.
pub(super) const ACCOUNT: &str = "physics";

impl Fixture {
    /// Runs the command as a user who cannot read the store.
    fn asks(&self, user: Option<(u32, u32, &str)>, task: &str, arguments: &[&str]) -> Output {
        let (uid, gid) = user.map_or((0, 0), |(uid, gid, _)| (uid, gid));
        let began_us = now_us();
        let output = Command::new("setpriv")
            .args([format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".to_owned()])
            .arg(self.env.path("polymeter"))
            .args(arguments)
            .env("POLYMETER_COLLECTOR", &self.socket)
            .env("COLUMNS", "80")
            .current_dir("/")
            .output()
            .unwrap();
        let screen = text(&output.stdout);
        println!(
            "== {task}: {} ms: polymeter {}\n{screen}",
            (now_us() - began_us) / 1000,
            arguments.join(" ")
        );
        output
    }

    fn answers(&self, user: Option<(u32, u32, &str)>, task: &str, arguments: &[&str]) -> Value {
        let output = self.asks(user, task, &[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{task}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Begin of a report by the rules for short jobs.
    fn first_screen_of_report(&self, user: (u32, u32, &str), task: &str, id: &str) -> String {
        let rules = self.env.path("advice.d");
        let output = self.asks(Some(user), task, &["report", id, "--advice", rules.to_str().unwrap()]);
        text(&output.stdout).lines().take(24).collect::<Vec<_>>().join("\n")
    }

    pub(super) fn answer_five_tasks(&self, jobs: &Jobs) {
        let id = |name: &str| jobs.iter().find(|(case, _)| case.name == name).map(|(_, ids)| ids[0].clone());
        self.find_the_job_that_wasted_most(jobs);
        let idle_cores = id("idle cores").unwrap();
        let first = self.first_screen_of_report(OTHER_USER, "say what to change", &idle_cores);
        assert!(first.contains("#SBATCH"), "{first}");
        self.compare_two_runs(&id("healthy, 1 core").unwrap(), &id("serial code").unwrap());
        self.find_the_slow_node(&id("idle node").unwrap());
        self.see_the_job_of_a_colleague();
    }

    fn find_the_job_that_wasted_most(&self, jobs: &Jobs) {
        let ids = jobs.iter().flat_map(|(_, ids)| ids);
        let most = ids.max_by(|a, b| self.wasted_core_s(a).total_cmp(&self.wasted_core_s(b))).unwrap();
        let task = "find the job that wasted most";
        wait_until("the job that wasted most is summarised", || {
            self.answers(None, task, &["usage", "--by", "job"])["groups"][0]["group"] == **most
        });
        self.asks(None, task, &["usage", "--by", "job", "--limit", "3"]);
    }

    /// Cores as Slurm counts them, for the time of the job, less its CPU time by the raw samples.
    fn wasted_core_s(&self, id: &str) -> f64 {
        let cores: f64 = self.cluster.of_job(id, "NumCPUs").parse().unwrap();
        let job = self.stored(id);
        let elapsed_s = (job.ended_ns.unwrap() - job.started_ns) as f64 / 1e9;
        let used: Vec<f64> = self.used_by_node(job.job_key).into_values().collect();
        cores * elapsed_s - used.iter().sum::<f64>()
    }

    fn stored(&self, id: &str) -> JobRow {
        stored::job(&mut self.env.reader(), &self.cluster.of_job(id, "JobId")).unwrap()
    }

    /// CPU time of a job in seconds.
    fn used_by_node(&self, job_key: i64) -> BTreeMap<String, f64> {
        let store = Connection::open(self.env.path("store.db")).unwrap();
        let sql = "SELECT node, (max(value) - min(value)) / 1e9 FROM samples
             JOIN series ON series.series_id = samples.series_id
             WHERE metric = 'cpu.usage' AND job_key = ? AND labels = '{}' GROUP BY series.series_id";
        let mut statement = store.prepare(sql).unwrap();
        let rows = statement.query_map([job_key], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.map(Result::unwrap).collect()
    }

    fn compare_two_runs(&self, first: &str, second: &str) {
        let compared = self.answers(None, "compare two runs", &["compare", first, second]);
        self.asks(None, "compare two runs", &["compare", first, second]);
        let rows = compared["rows"].as_array().unwrap();
        let elapsed = rows.iter().find(|row| row["metric"] == "elapsed").unwrap();
        for (side, id) in [("a", first), ("b", second)] {
            let report: Value = serde_json::from_slice(&self.report(None, &[id, "--json"]).stdout).unwrap();
            let near = (elapsed[side].as_f64().unwrap() - report["wall_s"].as_f64().unwrap()).abs() < 0.1;
            assert!(near, "{side}: {elapsed} {}", report["wall_s"]);
        }
    }

    fn find_the_slow_node(&self, id: &str) {
        let first = self.first_screen_of_report(USER, "find the slow node", id);
        let used = self.used_by_node(self.stored(id).job_key);
        let (least, _) = used.iter().min_by(|a, b| a.1.total_cmp(b.1)).unwrap();
        assert!(first.contains(least), "{least}: {first}");
    }

    fn see_the_job_of_a_colleague(&self) {
        let (uid, gid, _) = USER;
        let id = self.cluster.submit_as(Some((uid, gid)), &["--account", ACCOUNT], "sleep 1");
        self.wait_for_end(&id);
        wait_until("the job of the account is stored", || {
            stored::job(&mut self.env.reader(), &id).is_some_and(|row| row.state.is_some())
        });
        let listed =
            self.asks(Some(OTHER_USER), "see a colleague's job", &["jobs", "--ended", "--account", ACCOUNT]);
        assert!(text(&listed.stdout).contains(&id), "{}", text(&listed.stderr));
        let report = self.asks(Some(OTHER_USER), "see a colleague's job", &["report", &id]);
        assert!(report.status.success(), "{}", text(&report.stderr));
    }
}
