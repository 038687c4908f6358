//! The set-up of tests of a job on two nodes, which users control through the collector.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cgroup::{Job, TestCgroups};
use crate::daemons::{Agent, Daemon, Plan, ask, collector_with};
use crate::fixture::OWNER;
use crate::workload::Sleeper;
use crate::{TestEnvironment, install, program, stored, wait_until};

/// A node whose agent tracks the owner's job x in cgroups of its own.
pub struct TrackedNode {
    pub agent: Agent,
    env: TestEnvironment,
    endpoint: String,
    /// Further tables of the agent's configuration.
    tables: String,
    pub job: Job,
}

impl TrackedNode {
    /// Starts the agent of a node. `endpoint` is a collector's endpoint, or several in brackets.
    pub fn start(env: TestEnvironment, endpoint: &str, job: Job, tables: &str) -> Self {
        let agent = Self::agent(&env, endpoint, &job, tables);
        Self { agent, env, endpoint: endpoint.to_owned(), tables: tables.to_owned(), job }
    }

    fn agent(env: &TestEnvironment, endpoint: &str, job: &Job, tables: &str) -> Agent {
        let baseline = [("cpu.usage", "500ms"), ("pids.current", "50ms")];
        let plan = Plan { collector: endpoint, jobs: &[], baseline: &baseline };
        let agent = Agent::start_with(env, &plan, "", tables);
        let register = json!({"verb": "register", "job": "x", "uid": OWNER, "cgroups": job.directories});
        let answer = agent.ask(&register);
        assert_eq!(answer["answer"], "registered", "{answer}");
        agent.wait_until_tracked("x", &["v2/cpu.stat", "v1/pids.current"]);
        agent
    }

    pub fn crash(&mut self) {
        self.agent.daemon.signal(Signal::KILL);
        wait_until("the agent is gone", || !self.agent.daemon.runs());
        self.agent = Self::agent(&self.env, &self.endpoint, &self.job, &self.tables);
    }

    /// Effective period of a metric of the job as a whole, its cause, and its end.
    pub fn in_force(&self, metric: &str) -> Option<(String, String, Option<i64>)> {
        self.in_force_at(None, metric)
    }

    pub fn in_force_at(&self, level: Option<&str>, metric: &str) -> Option<(String, String, Option<i64>)> {
        let plan = self.agent.ask(&json!({"verb": "plan", "job": "x"}));
        let line = plan["plan"]
            .as_array()?
            .iter()
            .find(|line| line["metric"] == metric && line["level"].as_str() == level)?;
        let text = |name: &str| Some(line[name].as_str()?.to_owned());
        Some((text("period")?, text("cause")?, line["until_us"].as_i64()))
    }

    pub fn is(&self, metric: &str, period: &str, cause: &str) -> bool {
        self.in_force(metric).is_some_and(|(effective, reason, _)| effective == period && reason == cause)
    }

    pub fn name(&self) -> &str {
        &self.env.node
    }
}

/// Two nodes, their collector, and the command in a directory where ordinary users can run it.
pub struct TwoNodes {
    // Fields are dropped in this order: the daemons before the directory that they write to.
    pub nodes: [TrackedNode; 2],
    pub collector: Daemon,
    _sleepers: [Sleeper; 2],
    _cgroups: TestCgroups,
    pub socket: PathBuf,
    command: PathBuf,
    pub env: TestEnvironment,
}

impl TwoNodes {
    fn configuration(env: &TestEnvironment, more: &str) -> String {
        format!("control_socket = \"{}\"\n{more}", env.path("control.sock").display())
    }

    pub fn crash_collector(&mut self) {
        self.collector.signal(Signal::KILL);
        wait_until("the collector is gone", || !self.collector.runs());
        let more = Self::configuration(&self.env, "");
        self.collector = collector_with(&self.env, &self.env.endpoint(), &more).0;
    }

    pub fn new(more: &str) -> Self {
        Self::with(more, "")
    }

    /// Starts them with further keys of the collector, and further tables of the agents.
    pub fn with(more: &str, tables: &str) -> Self {
        let (env, cgroups) = (TestEnvironment::new(), TestCgroups::new());
        let socket = env.path("control.sock");
        let more = Self::configuration(&env, more);
        let (collector, endpoint) = collector_with(&env, &env.endpoint(), &more);
        let sleepers = [Sleeper::start(), Sleeper::start()];
        let mut nodes = [0, 1].map(|number| {
            let job = cgroups.job(&format!("x{number}"));
            job.enter(sleepers[number].pid());
            TrackedNode::start(TestEnvironment::new(), &endpoint, job, tables)
        });
        nodes.sort_by(|a, b| a.name().cmp(b.name()));
        fs::set_permissions(env.path(""), PermissionsExt::from_mode(0o755)).unwrap();
        let command = env.path("polymeter");
        install(program("polymeter").get_program(), &command);
        let fixture = Self { nodes, collector, _sleepers: sleepers, _cgroups: cgroups, socket, command, env };
        wait_until("the collector knows both nodes", || fixture.known() == 2);
        fixture
    }

    /// How many of the job's nodes the collector knows.
    pub fn known(&self) -> usize {
        let answer = ask(&self.socket, "{\"verb\":\"plan\",\"job\":\"x\"}\n");
        answer["nodes"].as_array().map_or(0, Vec::len)
    }

    /// Output of the command, called by a user who is on none of the job's nodes.
    pub fn user(&self, uid: u32, arguments: &[&str]) -> Output {
        self.command(uid).args(arguments).output().unwrap()
    }

    pub fn command(&self, uid: u32) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args([format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".to_owned()])
            .arg(&self.command)
            .env("POLYMETER_COLLECTOR", &self.socket)
            .env_remove("SLURM_JOB_ID")
            .env_remove("OAR_JOB_ID")
            .current_dir("/");
        command
    }

    pub fn answers(&self, uid: u32, arguments: &[&str]) -> (Value, i32) {
        let output = self.user(uid, &[arguments, &["--json", "--job", "x"]].concat());
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let answer =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"));
        (answer, output.status.code().unwrap())
    }

    /// Error message of a refused command, whose exit status must be 1.
    pub fn refused(&self, uid: u32, arguments: &[&str]) -> String {
        let output = self.user(uid, arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{:?}", String::from_utf8_lossy(&output.stdout));
        stderr
    }

    pub fn both_have(&self, metric: &str, period: &str, cause: &str) -> bool {
        self.nodes.iter().all(|node| node.is(metric, period, cause))
    }

    /// Returns the time at which each node changed the period of a metric to `period_us`, in microseconds
    /// since the epoch.
    pub fn changes(&self, metric: &str, period_us: i64) -> Vec<(String, i64)> {
        let mut reader = self.env.reader();
        let Some(job) = stored::job(&mut reader, "x") else { return Vec::new() };
        let mut changes = reader.plan_changes(job.job_key).unwrap();
        changes.retain(|change| change.metric == metric && change.new_period_us == Some(period_us));
        changes.into_iter().map(|change| (change.node, change.time_ns / 1000)).collect()
    }

    pub fn now_us(&self) -> i64 {
        self.nodes[0].agent.status()["collector"]["now_us"].as_i64().unwrap()
    }

    pub fn end(self) {
        self.end_job();
        self.stop();
    }

    pub fn end_job(&self) {
        for node in &self.nodes {
            assert_eq!(node.agent.ask(&json!({"verb": "unregister", "job": "x"}))["answer"], "done");
        }
        stored::wait_for_end(&self.env, "x");
    }

    pub fn stop(self) {
        for node in self.nodes {
            node.agent.daemon.terminate();
        }
        self.collector.terminate();
    }
}
