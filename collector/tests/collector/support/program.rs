//! Program `polymeter-collector` as a child process.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};

use rustix::process::{Pid, Signal, kill_process};

const MAX_LINES: usize = 10_000;

pub(crate) struct RunningCollector {
    child: Child,
    pub(crate) endpoint: String,
    /// Messages before it listened.
    before: Vec<String>,
    /// Messages after it listened. A thread reads them, so that a full pipe never blocks the program.
    lines: Receiver<String>,
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polymeter-collector"));
    command.env_remove("JOURNAL_STREAM");
    command
}

pub(crate) fn run(arguments: &[&str]) -> (Option<i32>, String) {
    run_with(arguments, &[])
}

pub(crate) fn run_with(arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = command();
    let Output { status, stderr, .. } =
        command.args(arguments).envs(variables.iter().copied()).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

impl RunningCollector {
    pub(crate) fn start(store: &str, more: &[&str]) -> Self {
        let mut child = command()
            .args(["--listen", "tcp://127.0.0.1:*", "--store", store])
            .args(more)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = sync_channel(MAX_LINES);
        std::thread::spawn(move || stderr.lines().try_for_each(|line| sender.send(line.unwrap())));
        let mut before: Vec<String> = Vec::new();
        let first = loop {
            let line: String = lines.recv().unwrap_or_else(|_| panic!("{before:?}"));
            if line.contains("listening at ") {
                break line;
            }
            before.push(line);
        };
        let endpoint = first
            .split_once("listening at ")
            .and_then(|(_, rest)| rest.split(',').next())
            .unwrap_or_else(|| panic!("{first}"));
        let kind = if store.starts_with("sqlite:") { "SQLite" } else { "PostgreSQL" };
        assert!(!endpoint.ends_with('*') && first.contains(kind), "{first}");
        Self { endpoint: endpoint.to_owned(), child, before, lines }
    }

    pub(crate) fn next_line(&self) -> String {
        self.lines.recv().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id().try_into().unwrap()).unwrap(), signal).unwrap();
    }

    /// Returns the other lines of the program, which must succeed.
    pub(crate) fn stop(mut self) -> Vec<String> {
        self.signal(Signal::TERM);
        let lines = std::mem::take(&mut self.before).into_iter().chain(self.lines.iter()).collect();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        lines
    }

    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
    }
}

impl Drop for RunningCollector {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
