//! The usual set-up of a test: a collector, an agent and a job that the agent tracks.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use polymeter_store::reader::{PlanChangeRow, SeriesScope};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cgroup::{Job, TestCgroups};
use crate::daemons::{Agent, Daemon, Plan, collector, configure};
use crate::workload::Sleeper;
use crate::{Need, TestEnvironment, install, program, stored, wait_until};

pub const NEEDS: [Need; 3] = [Need::Root, Need::Cgroup1, Need::Cgroup2];
pub const OWNER: u32 = 64_001;
pub const OTHER_USER: u32 = 64_002;

/// An agent that tracks a job of the owner, and the command in a directory where ordinary users can run it.
pub struct Fixture {
    // Fields are dropped in this order: the daemons before the directory that they write to.
    pub agent: Agent,
    pub collector: Daemon,
    _sleeper: Sleeper,
    pub job: Job,
    _cgroups: TestCgroups,
    pub command: PathBuf,
    pub env: TestEnvironment,
}

impl Fixture {
    pub fn new() -> Self {
        Self::with("")
    }

    pub fn with(tables: &str) -> Self {
        Self::configured("", tables)
    }

    /// Creates one with keys and tables of the agent's configuration.
    pub fn configured(keys: &str, tables: &str) -> Self {
        let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
        let (collector, endpoint) = collector(&env, &env.endpoint());
        let (job, sleeper) = (cgroups.job("x"), Sleeper::start());
        job.enter(sleeper.pid());
        let baseline = [("cpu.usage", "500ms"), ("pids.current", "50ms"), ("perf.task_clock", "50ms")];
        let plan = Plan { collector: &endpoint, jobs: &[], baseline: &baseline };
        let agent = Agent::start_with(&env, &plan, keys, tables);
        let register = json!({"verb": "register", "job": "x", "uid": OWNER, "cgroups": job.directories});
        let answer = agent.ask(&register);
        assert_eq!(answer["answer"], "registered", "{answer}");
        agent.wait_until_tracked("x", &["v2/cpu.stat", "v1/pids.current"]);
        fs::set_permissions(env.path(""), PermissionsExt::from_mode(0o755)).unwrap();
        let command = env.path("polymeter");
        install(program("polymeter").get_program(), &command);
        Self { env, collector, agent, command, _cgroups: cgroups, job, _sleeper: sleeper }
    }

    pub fn typed(&self, uid: u32, verb: &str, more: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args([format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".to_owned()])
            .arg(&self.command)
            .arg(verb)
            .arg("--socket")
            .arg(&self.agent.socket)
            .args(more)
            .env_remove("SLURM_JOB_ID")
            .env_remove("OAR_JOB_ID")
            .current_dir("/");
        command
    }

    pub fn user(&self, uid: u32, verb: &str, more: &[&str]) -> Output {
        self.typed(uid, verb, more).output().unwrap()
    }

    pub fn user_in_job(&self, uid: u32, verb: &str, more: &[&str]) -> Output {
        let typed = self.typed(uid, verb, more);
        let mut shell = Command::new("sh");
        // The shell waits for a line until it has been moved into the job.
        shell
            .args(["-c", "read -r gate && exec \"$@\"", "sh"])
            .arg(typed.get_program())
            .args(typed.get_args());
        shell.env_remove("SLURM_JOB_ID").env_remove("OAR_JOB_ID").current_dir("/");
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        self.job.enter(child.id());
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        child.wait_with_output().unwrap()
    }

    pub fn granted(&self, uid: u32, more: &[&str]) -> Value {
        let output = self.user(uid, "set", &[&["--json", "--job", "x"], more].concat());
        assert!(output.status.success(), "{more:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Error message of a refused command, whose exit status must be 1.
    pub fn refused(&self, uid: u32, verb: &str, more: &[&str]) -> String {
        let output = self.user(uid, verb, more);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{verb} {more:?}: {stderr}");
        assert!(output.stdout.is_empty());
        stderr
    }

    /// Effective period of a metric of the job, and its cause.
    pub fn in_force(&self, metric: &str) -> Option<(String, String)> {
        let plan = self.agent.ask(&json!({"verb": "plan", "job": "x"}));
        let line = plan["plan"].as_array()?.iter().find(|line| line["metric"] == metric)?;
        Some((line["period"].as_str()?.to_owned(), line["cause"].as_str()?.to_owned()))
    }

    pub fn is(&self, metric: &str, period: &str, cause: &str) -> bool {
        self.in_force(metric) == Some((period.to_owned(), cause.to_owned()))
    }

    /// Stored samples of a metric of the job: times in microseconds since the epoch, and values.
    pub fn points(&self, metric: &str) -> Vec<(i64, f64)> {
        let mut reader = self.env.reader();
        let Some(job) = stored::job(&mut reader, "x") else { return Vec::new() };
        let samples = stored::samples(&mut reader, SeriesScope::Job(job.job_key));
        let series = samples.get(&(metric.to_owned(), String::new()));
        series.map(|series| series.points.clone()).unwrap_or_default()
    }

    pub fn end(self) {
        assert_eq!(self.agent.ask(&json!({"verb": "unregister", "job": "x"}))["answer"], "done");
        stored::wait_for_end(&self.env, "x");
        self.agent.daemon.terminate();
        self.collector.terminate();
    }
}

/// A collector, an agent, and a job `1` with one process, which the agent has discovered.
pub struct DiscoveredJob {
    pub env: TestEnvironment,
    pub collector: Daemon,
    pub endpoint: String,
    pub agent: Agent,
    pub cgroups: TestCgroups,
    pub job: Job,
    _sleeper: Sleeper,
}

impl DiscoveredJob {
    /// Starts the programs and waits until the agent has read `source` of the job. The collector listens at
    /// `listen`, or at a socket in the environment.
    pub fn start(listen: Option<&str>, baseline: &[(&str, &str)], source: &str) -> Self {
        let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
        let (collector, endpoint) = collector(&env, listen.unwrap_or(&env.endpoint()));
        let (job, sleeper) = (cgroups.job("1"), Sleeper::start());
        job.enter(sleeper.pid());
        let plan = Plan { collector: &endpoint, jobs: &[cgroups.pattern()], baseline };
        let agent = Agent::start(&env, &plan);
        agent.wait_until_tracked("1", &[source]);
        Self { env, collector, endpoint, agent, cgroups, job, _sleeper: sleeper }
    }

    pub fn reload(&self, baseline: &[(&str, &str)]) {
        let plan = Plan { collector: &self.endpoint, jobs: &[self.cgroups.pattern()], baseline };
        configure(&self.env, &plan);
        self.agent.daemon.signal(Signal::HUP);
    }

    pub fn wait_for_log(&self, words: &str) {
        wait_until(&format!("the agent says `{words}`"), || self.agent.daemon.log().contains(words));
    }

    /// Times of a metric's stored samples of the job, in microseconds since the epoch.
    pub fn times_us(&self, metric: &str) -> Vec<i64> {
        let mut reader = self.env.reader();
        let Some(job) = stored::job(&mut reader, "1") else { return Vec::new() };
        let samples = stored::samples(&mut reader, SeriesScope::Job(job.job_key));
        let series = samples.get(&(metric.to_owned(), String::new()));
        series.map(|series| series.points.iter().map(|point| point.0).collect()).unwrap_or_default()
    }

    pub fn plan_changes(&self, metric: &str) -> Vec<PlanChangeRow> {
        let mut reader = self.env.reader();
        let Some(job) = stored::job(&mut reader, "1") else { return Vec::new() };
        let mut changes = reader.plan_changes(job.job_key).unwrap();
        changes.retain(|change| change.metric == metric);
        changes
    }
}
