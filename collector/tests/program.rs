//! Tests of the program as a user or systemd runs it: its messages and its exit status.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a fault of a test is a failed test"
)]

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use common::agent::{Agent, shape, values};
use common::now_us;
use rustix::process::{Pid, Signal, kill_process};

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polymeter-collector"));
    command.env_remove("JOURNAL_STREAM");
    command
}

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = program().args(arguments).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

fn terminate(child: &Child) {
    signal(child, Signal::TERM);
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(child.id().try_into().unwrap()).unwrap(), signal).unwrap();
}

/// Starts the program with a new store, and returns its endpoint and an iterator over its further lines.
fn start(store: &str, more: &[&str]) -> (Running, impl Iterator<Item = String> + use<>, String) {
    let mut child = program()
        .args(["--listen", "tcp://127.0.0.1:*", "--store", store])
        .args(more)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    let endpoint = first
        .split_once("listening at ")
        .and_then(|(_, rest)| rest.split(',').next())
        .unwrap_or_else(|| panic!("{first}"));
    assert!(!endpoint.ends_with('*') && first.contains("SQLite"), "{first}");
    let endpoint = endpoint.to_owned();
    (Running(child), lines, endpoint)
}

/// A process that is ended with its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn it_stores_until_it_is_told_to_stop() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", directory.path().join("p.db").display());
    let (mut child, lines, endpoint) = start(&store, &[]);
    let context = zmq::Context::new();
    let mut agent = Agent::new(&context, &endpoint, "n1", 1);
    agent.frame(&[(&shape(1, None), now_us(), &values(1).0)], &[], &[]);
    agent.send(1);
    agent.settle();
    terminate(&child.0);
    let last = lines.last().unwrap();
    assert!(last.contains("1 frames with 3 samples stored"), "{last}");
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
}

#[test]
fn skewed_clocks_are_logged_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", directory.path().join("p.db").display());
    let config = directory.path().join("collector.toml");
    std::fs::write(&config, "[clock]\nmax_skew = '1h'\nout_of_range = 'quarantine'\n").unwrap();
    let (mut child, lines, endpoint) = start(&store, &["--config", config.to_str().unwrap()]);
    let context = zmq::Context::new();
    for (session, node) in [(1, "n1"), (2, "n2")] {
        let mut agent = Agent::new(&context, &endpoint, node, session);
        for seed in 0..3 {
            let in_a_year = now_us() + 365 * 86_400 * 1_000_000 + seed;
            agent.frame(&[(&shape(1, None), in_a_year, &values(seed).0)], &[], &[]);
        }
        agent.send_from(0);
        agent.settle();
    }
    terminate(&child.0);
    let lines: Vec<_> = lines.collect();
    let of = |node: &str| lines.iter().filter(|line| line.contains(node)).collect::<Vec<_>>();
    for node in ["n1", "n2"] {
        let said = of(&format!("[node={node}]"));
        assert_eq!(said.len(), 1, "{lines:?}");
        // A little less than a year, since some time passes until it arrives.
        assert!(said[0].contains("36") && said[0].contains(" d in the future (at most 60 min)"), "{said:?}");
        assert!(said[0].contains("raise `max_skew` in [clock]"), "{said:?}");
    }
    assert!(
        lines.last().unwrap().contains("0 samples stored")
            && lines.last().unwrap().contains("18 quarantined")
    );
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
}

#[test]
fn sighup_reloads_the_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", directory.path().join("p.db").display());
    let config = directory.path().join("collector.toml");
    let write = |text: &str| std::fs::write(&config, text).unwrap();
    write("[clock]\nmax_skew = '1h'\n");
    let (mut child, mut lines, endpoint) = start(&store, &["--config", config.to_str().unwrap()]);
    let context = zmq::Context::new();
    let mut agent = Agent::new(&context, &endpoint, "n1", 1);
    let mut in_two_hours = |seed| {
        let time_us = now_us() + 7200 * 1_000_000;
        agent.frame(&[(&shape(1, None), time_us, &values(seed).0)], &[], &[]);
        agent.send_from(0);
        agent.settle();
    };
    in_two_hours(1);
    assert!(lines.next().unwrap().contains("cannot trust the times of samples"));
    let hang_up = |child: &Running| signal(&child.0, Signal::HUP);
    // An invalid file changes nothing, and its faults are reported.
    write("writers = 0\n[clock]\nmax_skew = '1y'\n");
    hang_up(&child);
    let said: Vec<_> = lines.by_ref().take(3).collect();
    for line in ["collector.toml:1: ", "collector.toml:3: "] {
        assert!(said[..2].iter().any(|fault| fault.contains(line)), "{said:?}");
    }
    assert!(
        said[2].starts_with("polymeter-collector: error: ")
            && said[2].contains("the previous configuration remains in force"),
        "{said:?}"
    );
    in_two_hours(2);
    write(
        "commit_interval = '100ms'\nwriters = 3\nmetrics_listen = '127.0.0.1:9'\n[clock]\nmax_skew = '3h'\n",
    );
    hang_up(&child);
    assert_eq!(lines.next().unwrap(), "polymeter-collector: info: reloaded the configuration");
    let said = lines.next().unwrap();
    assert!(
        said.contains("writers, metrics_listen cannot change while the collector runs; restart"),
        "{said}"
    );
    in_two_hours(3);
    terminate(&child.0);
    let last = lines.last().unwrap();
    assert!(last.contains("3 samples stored") && last.contains("6 samples rejected"), "{last}");
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
}

#[test]
fn what_is_wrong_shows_in_the_exit_status() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", directory.path().join("p.db").display());
    assert_eq!(run(&["--version"]).0, Some(0));
    assert_eq!(run(&["--store", &store, "--check"]).0, Some(0));
    assert_eq!(run(&["--no-such-option"]).0, Some(2));
    let (status, said) = run(&["--store", "mysql:x", "--listen", "here"]);
    assert_eq!((status, said.lines().count()), (Some(2), 2), "{said}");
    let (status, said) = run(&["--store", &store, "--listen", "ipc:///nowhere/at/all"]);
    assert!(status == Some(3) && said.contains("cannot listen at ipc:///nowhere/at/all"), "{said}");
    let (status, said) = run(&["--store", "sqlite:/nowhere/at/all.db", "--listen", "tcp://127.0.0.1:*"]);
    assert!(status == Some(3) && said.contains("/nowhere/at/all.db"), "{said}");
    let (status, said) = run(&["--store", "host=/nowhere user=u", "--listen", "tcp://127.0.0.1:*"]);
    assert!(status == Some(3) && said.contains("connecting"), "{said}");
    for arguments in [
        &["--store", "mysql:x"][..],
        &["--config", "/nowhere/collector.toml", "--check"],
        &["--store", &store, "--listen", "ipc:///nowhere/at/all"],
        &["--store", "sqlite:/nowhere/at/all.db", "--listen", "tcp://127.0.0.1:*"],
    ] {
        let said = run(arguments).1;
        assert!(
            said.lines().all(|line| line.starts_with("polymeter-collector: error: ")),
            "what ends it is no warning: {said}"
        );
    }
}
