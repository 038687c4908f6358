//! Live samples: the owner of a job sees them as they are taken, on the socket, as lines and in a terminal.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};

use polymeter_e2e::fixture::{Fixture, NEEDS, OTHER_USER, OWNER};
use polymeter_e2e::tests;
use polymeter_e2e::{now_us, require, wait_until};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::terminal::{Terminal, words};

tests![
    watch_streams_samples_as_they_are_taken,
    watch_is_limited_to_own_jobs_and_minimum_periods,
    watch_lines_end_as_requested,
    watch_terminal_shows_values_and_changes_periods,
];

/// A connection on which root watches, and the lines received on it.
struct Watcher {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
}

impl Watcher {
    fn begin(socket: &Path, request: &Value) -> Self {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.write_all(format!("{request}\n").as_bytes()).unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap());
        Self { stream, lines }
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    /// Receives lines until one is an answer of this name.
    fn next_of(&mut self, name: &str) -> Value {
        loop {
            let line = self.next();
            if line["answer"] == name {
                return line;
            }
            assert_ne!(line["answer"], "refused", "{line}");
        }
    }
}

fn watch_streams_samples_as_they_are_taken() {
    require(&NEEDS);
    let fixture = Fixture::new();
    let request = json!({"verb": "watch", "job": "x", "metrics": ["pids.*", "user.*"]});
    let mut watcher = Watcher::begin(&fixture.agent.socket, &request);
    let first = watcher.next();
    assert_eq!(first["answer"], "plan", "{first}");
    assert!(first["plan"].as_array().unwrap().iter().any(|line| line["metric"] == "cpu.usage"));
    let samples = watcher.next_of("samples");
    let fields = ["metric", "unit", "kind", "period"].map(|field| samples[field].as_str().unwrap());
    assert_eq!(fields, ["pids.current", "count", "gauge", "50ms"]);
    assert_eq!(samples["values"][0], 1.0, "one process sleeps there: {samples}");
    assert!((now_us() - samples["times_us"][0].as_i64().unwrap()).abs() < 60_000_000, "{samples}");
    let push = json!({"verb": "push", "job": "x", "metric": "loss", "value": 0.5, "unit": "nats", "labels": {"rank": "3"}});
    assert_eq!(fixture.agent.ask(&push)["answer"], "done");
    let pushed = loop {
        let samples = watcher.next_of("samples");
        if samples["metric"] == "user.loss" {
            break samples;
        }
    };
    assert_eq!(
        (&pushed["values"], &pushed["unit"], &pushed["period"]),
        (&json!([0.5]), &"nats".into(), &Value::Null)
    );
    let progress = watcher.next_of("progress");
    assert_eq!(progress["tally"]["missed"].as_u64().map(|_| ()), Some(()), "{progress}");
    fixture.granted(OWNER, &["pids.current=20ms"]);
    let plan = watcher.next_of("plan");
    let line = plan["plan"].as_array().unwrap().iter().find(|line| line["metric"] == "pids.current").unwrap();
    assert_eq!((&line["period"], &line["actor"]), (&"20ms".into(), &"uid 64001".into()));
    // A second watcher receives the samples as well, and the first one continues when the second ends.
    let mut second = Watcher::begin(
        &fixture.agent.socket,
        &json!({"verb": "watch", "job": "x", "metrics": ["cpu.usage"]}),
    );
    assert_eq!(second.next_of("samples")["metric"], "cpu.usage");
    drop(second);
    watcher.next_of("samples");
    // The stream ends with the job; the connection stays open.
    assert_eq!(fixture.agent.ask(&json!({"verb": "unregister", "job": "x"}))["answer"], "done");
    watcher.next_of("ended");
    watcher.stream.write_all(b"{\"verb\":\"jobs\"}\n").unwrap();
    assert_eq!(watcher.next()["answer"], "status");
}

fn watch_is_limited_to_own_jobs_and_minimum_periods() {
    require(&NEEDS);
    let fixture = Fixture::new();
    for (uid, words, status, word) in [
        (OTHER_USER, vec!["--job", "x"], 1, "unknown job x, or not yours"),
        (OWNER, vec!["--node"], 1, "only administrators"),
        (OWNER, vec!["--job", "../x"], 1, "unknown job ../x, or not yours"),
        (OWNER, vec![], 2, "cannot determine the job"),
        (OWNER, vec!["--job", "x", "cpu.[ab]"], 2, "cpu.[ab]"),
    ] {
        let output = fixture.user(uid, "watch", &words);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{words:?}: {stderr}");
        assert!(stderr.contains(word), "{words:?}: {stderr}");
    }
    for (request, field) in [
        (json!({"verb": "watch", "job": "x", "metrics": "cpu.*"}), "metrics"),
        (json!({"verb": "watch", "job": "x", "metrics": vec!["a"; 65]}), "metrics"),
        (json!({"verb": "watch", "job": "x", "selectors": []}), "selectors"),
    ] {
        let refused = fixture.agent.ask(&request);
        assert_eq!((&refused["code"], &refused["field"]), (&"invalid".into(), &field.into()), "{refused}");
    }
    let mut watchers: Vec<Child> = Vec::new();
    for _ in 0..4 {
        let mut watch = fixture.typed(OWNER, "watch", &["--job", "x"]);
        let mut watcher = watch.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(watcher.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "it has begun");
        watchers.push(watcher);
    }
    let fifth = fixture.user(OWNER, "watch", &["--job", "x"]);
    assert_eq!(fifth.status.code(), Some(1));
    assert!(String::from_utf8(fifth.stderr).unwrap().contains("too many watch streams"));
    let root = fixture.user(0, "watch", &["--job", "x", "--count", "1"]);
    assert_eq!(root.status.code(), Some(0), "the quota does not apply to root");
    for watcher in &mut watchers {
        watcher.kill().unwrap();
        watcher.wait().unwrap();
    }
    wait_until("a watch stream is free again", || {
        fixture.user(OWNER, "watch", &["--job", "x", "--count", "1"]).status.code() == Some(0)
    });
    fixture.end();
}

fn watch_lines_end_as_requested() {
    require(&NEEDS);
    let fixture = Fixture::new();
    let output = fixture.user(OWNER, "watch", &["--job", "x", "--count", "3", "pids.current"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let words: Vec<Vec<&str>> = lines.lines().map(|line| line.split(' ').collect()).collect();
    assert!(
        words.len() == 3 && words.iter().all(|words| words[1..] == ["pids.current", "1", "count"]),
        "{lines}"
    );
    assert!(words.iter().all(|words| words[0].parse::<f64>().is_ok()), "{lines}");
    let output = fixture.user(OWNER, "watch", &["--job", "x", "--for", "300ms", "--json"]);
    let lines = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((output.status.code(), &answers[0]["answer"]), (Some(0), &"plan".into()), "{lines}");

    // A reader such as `head` may close the pipe early.
    let mut watch = piped_watch(&fixture, &[]);
    drop(watch.stdout.take());
    let output = watch.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{output:?}");
    // A watch of a job ends with the job, a watch of the node with the agent.
    let mut watches = [piped_watch(&fixture, &["--plain"]), piped_watch(&fixture, &["--json"])];
    for watch in &mut watches {
        watch.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    }
    assert_eq!(fixture.agent.ask(&json!({"verb": "unregister", "job": "x"}))["answer"], "done");
    for watch in watches {
        let output = watch.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(String::from_utf8(output.stderr).unwrap().contains("the job has ended"));
    }
    let mut watch = fixture.typed(0, "watch", &["--node", "--json"]);
    let mut watch = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    watch.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    fixture.agent.daemon.terminate();
    let output = watch.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("cannot continue to watch"));
}

fn piped_watch(fixture: &Fixture, more: &[&str]) -> Child {
    let words = [&["--job", "x"], more].concat();
    fixture.typed(OWNER, "watch", &words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn watch_terminal_shows_values_and_changes_periods() {
    require(&NEEDS);
    let fixture = Fixture::new();
    let watch = fixture.typed(OWNER, "watch", &["--job", "x", "pids.current"]);
    let mut terminal = Terminal::run(&watch);
    terminal.wait_for("a value and its period", |shown| {
        let words = words(shown);
        ["pids.current", "1", "50ms", "baseline"].iter().all(|word| words.iter().any(|shown| shown == word))
    });
    terminal.press("+");
    wait_until("the lease is in force", || fixture.is("pids.current", "20ms", "lease"));
    terminal.wait_for("the new period", |shown| words(shown).iter().any(|word| word == "20ms"));
    terminal.press_until("-", || fixture.is("pids.current", "50ms", "baseline"));
    terminal.press_until("+", || fixture.in_force("pids.current").is_some_and(|(_, cause)| cause == "lease"));
    terminal.press_until("r", || fixture.is("pids.current", "50ms", "baseline"));
    terminal.press("q");
    assert_eq!(terminal.end(), Some(0));

    // The terminal is also restored after a signal, and after the agent's end.
    let mut terminal = Terminal::run(&watch);
    terminal.wait_for("the job", |shown| shown.contains("\u{1b}[?1049h") && shown.contains("job"));
    kill_process(terminal.pid(), Signal::TERM).unwrap();
    assert_eq!(terminal.end(), Some(128 + 15));
    let mut terminal = Terminal::run(&watch);
    terminal.wait_for("the job", |shown| shown.contains("\u{1b}[?1049h") && shown.contains("job"));
    fixture.agent.daemon.terminate();
    terminal.wait_for("why it ends", |shown| shown.contains("cannot continue to watch"));
    assert_eq!(terminal.end(), Some(3));
}
