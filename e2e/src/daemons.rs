//! The daemons, run as systemd would run them: started, queried, signalled, and ended by their pids.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{TestEnvironment, program, unique, wait_until};

/// A program that runs until it is ended, and its log.
pub struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    pub fn start(env: &TestEnvironment, name: &str, arguments: &[&str]) -> Self {
        let mut command = program(name);
        command.args(arguments);
        Self::of(env, command)
    }

    /// Starts `command` with its stderr in a log file of the environment.
    pub fn of(env: &TestEnvironment, mut command: Command) -> Self {
        let log = env.path(&format!("{}.log", unique()));
        let child = command.stderr(File::create(&log).unwrap()).spawn().unwrap();
        Self { child, log }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a thread that gives itself this name, and returns its /proc directory.
    pub fn thread(&self, name: &str) -> PathBuf {
        let mut found = None;
        wait_until(&format!("there is a thread {name}"), || {
            let threads = fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
            found = threads.map(|thread| thread.unwrap().path()).find(|thread| {
                fs::read_to_string(thread.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
            });
            found.is_some()
        });
        found.unwrap()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid().try_into().unwrap()).unwrap(), signal).unwrap();
    }

    pub fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Number of open file descriptors, once it has stopped changing.
    pub fn settled_descriptors(&self) -> usize {
        let (mut open, mut same) = (0, 0);
        wait_until("the open descriptors stay the same", || {
            let now = fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count();
            same = if now == open { same + 1 } else { 0 };
            open = now;
            same == 50
        });
        open
    }

    /// Sends `signal`, waits for the end and returns the exit status and the log.
    pub fn end(mut self, signal: Signal) -> (ExitStatus, String) {
        self.signal(signal);
        let status = self.child.wait().unwrap();
        (status, self.log())
    }

    /// Ends it with SIGTERM, as systemd would, and returns the log. Its exit status must be 0.
    pub fn terminate(self) -> String {
        let (status, log) = self.end(Signal::TERM);
        assert_eq!(status.code(), Some(0), "{log}");
        log
    }

    /// Kills it with SIGKILL, as the kernel does when memory is short.
    pub fn kill(self) {
        drop(self.end(Signal::KILL));
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        if std::thread::panicking() {
            println!("{}:\n{}", self.log.display(), self.log());
        }
    }
}

pub fn collector(env: &TestEnvironment, listen: &str) -> (Daemon, String) {
    collector_with(env, listen, "")
}

pub fn collector_with(env: &TestEnvironment, listen: &str, more: &str) -> (Daemon, String) {
    collector_within(env, listen, more, |program| program)
}

/// Starts a collector with the command that `within` makes of the program. Returns it and its endpoint.
pub fn collector_within(
    env: &TestEnvironment,
    listen: &str,
    more: &str,
    within: impl FnOnce(Command) -> Command,
) -> (Daemon, String) {
    let config = env.path("collector.toml");
    let text =
        format!("listen = \"{listen}\"\nstore = \"{}\"\ncommit_interval = \"50ms\"\n{more}", env.store());
    fs::write(&config, text).unwrap();
    let mut command = program("polymeter-collector");
    command.arg("--config").arg(&config);
    let daemon = Daemon::of(env, within(command));
    let mut endpoint = None;
    wait_until("the collector listens", || {
        let log = daemon.log();
        endpoint =
            log.split_once("listening at ").and_then(|(_, rest)| Some(rest.split_once(',')?.0.to_owned()));
        endpoint.is_some()
    });
    (daemon, endpoint.unwrap())
}

pub struct Plan<'a> {
    /// An endpoint, or several in brackets.
    pub collector: &'a str,
    pub jobs: &'a [String],
    pub baseline: &'a [(&'a str, &'a str)],
}

pub struct Agent {
    pub daemon: Daemon,
    pub socket: PathBuf,
    pub config: PathBuf,
}

impl Agent {
    /// Starts an agent and waits until its control socket accepts connections.
    pub fn start(env: &TestEnvironment, plan: &Plan<'_>) -> Self {
        Self::start_with(env, plan, "", "")
    }

    /// Starts an agent with additional keys at the top of its configuration and additional tables at the end.
    pub fn start_with(env: &TestEnvironment, plan: &Plan<'_>, keys: &str, tables: &str) -> Self {
        Self::start_within(env, plan, keys, tables, |program| program)
    }

    pub fn start_within(
        env: &TestEnvironment,
        plan: &Plan<'_>,
        keys: &str,
        tables: &str,
        within: impl FnOnce(Command) -> Command,
    ) -> Self {
        let (socket, config) = (env.path("agent.sock"), env.path("agent.toml"));
        configure_with(env, plan, keys, tables);
        let mut command = program("polymeter-agent");
        command.arg("--config").arg(&config);
        let daemon = Daemon::of(env, within(command));
        let agent = Self { daemon, socket, config };
        wait_until("the agent answers", || UnixStream::connect(&agent.socket).is_ok());
        agent
    }

    pub fn ask(&self, request: &Value) -> Value {
        ask(&self.socket, &format!("{request}\n"))
    }

    pub fn status(&self) -> Value {
        self.ask(&serde_json::json!({"verb": "status"}))
    }

    pub fn count(&self, name: &str) -> u64 {
        self.status()["counts"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {}", self.status()))
    }

    /// Sources of a tracked job, with the number of reads of each.
    pub fn sources(&self, job: &str) -> Vec<(String, u64)> {
        let status = self.status();
        let subjects = status["subjects"].as_array().unwrap();
        let of_job = subjects.iter().filter(|subject| subject["job"] == job);
        let sources = of_job.flat_map(|subject| subject["sources"].as_array().unwrap());
        sources
            .map(|source| (source["name"].as_str().unwrap().to_owned(), source["reads"].as_u64().unwrap()))
            .collect()
    }

    pub fn jobs(&self) -> Vec<String> {
        let status = self.status();
        let subjects = status["subjects"].as_array().unwrap();
        subjects.iter().filter_map(|subject| Some(subject["job"].as_str()?.to_owned())).collect()
    }

    /// Waits until the agent tracks a job and has read all of these sources.
    pub fn wait_until_tracked(&self, job: &str, sources: &[&str]) {
        wait_until(&format!("job {job} is tracked with {sources:?}"), || {
            let read = self.sources(job);
            sources.iter().all(|wanted| read.iter().any(|(name, reads)| name == wanted && *reads > 0))
        });
    }
}

/// Runs `polymeter keygen`, which writes `NAME.key` and `NAME.pub` to the environment's directory. Returns
/// whether it succeeded, and its output.
pub fn keygen(env: &TestEnvironment, name: &str) -> (bool, String) {
    let out = env.path("");
    let output =
        program("polymeter").args(["keygen", "--json", "--name", name, "--out"]).arg(out).output().unwrap();
    let stderr = if output.status.success() { &output.stdout } else { &output.stderr };
    (output.status.success(), String::from_utf8(stderr.clone()).unwrap())
}

pub fn configure(env: &TestEnvironment, plan: &Plan<'_>) {
    configure_with(env, plan, "", "");
}

/// The predicted cost of a request is the present cost of a read on this machine, several times as high
/// beside other tests as alone: only tests of the limits may depend on it.
const AMPLE_LIMITS: &str = "[limits]\njob_cpu_percent = 100\nnode_cpu_percent = 100\n";

pub fn configure_with(env: &TestEnvironment, plan: &Plan<'_>, keys: &str, tables: &str) {
    let mut text = format!(
        "{keys}node = \"{}\"\ncollector = {}\nflush_interval = \"50ms\"\ncontrol_socket = \"{}\"\njobs = {:?}\n[baseline]\n",
        env.node,
        if plan.collector.starts_with('[') {
            plan.collector.to_owned()
        } else {
            format!("{:?}", plan.collector)
        },
        env.path("agent.sock").display(),
        plan.jobs
    );
    for (selector, period) in plan.baseline {
        text.push_str(&format!("\"{selector}\" = \"{period}\"\n"));
    }
    text.push_str(tables);
    if !tables.contains("[limits]") {
        text.push_str(AMPLE_LIMITS);
    }
    fs::write(env.path("agent.toml"), text).unwrap();
}

pub fn ask(socket: &std::path::Path, line: &str) -> Value {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(line.as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{answer:?}: {error}"))
}
