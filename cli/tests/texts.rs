//! Snapshots of the texts that users read: the help of every command, and messages of failures that need no
//! daemon.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

#[path = "../src/snapshot.rs"]
mod snapshot;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Output};

fn polymeter(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polymeter"));
    command.args(arguments).env_clear().env("COLUMNS", "80").env("PATH", "/usr/bin:/bin");
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn help(command: &[&str]) -> String {
    let output = polymeter(&[command, &["--help"]].concat());
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn subcommands(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty());
    let names = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != "help").map(str::to_owned).collect()
}

/// Returns the names of the snapshots.
fn check_help(command: &[&str]) -> BTreeSet<String> {
    let text = help(command);
    let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 80, "{command:?}: {widest} columns");
    let name = ["help"].iter().chain(command).copied().collect::<Vec<_>>().join("-");
    snapshot::check(&name, &text);
    let mut names = BTreeSet::from([name]);
    for subcommand in subcommands(&text) {
        names.append(&mut check_help(&[command, &[subcommand.as_str()]].concat()));
    }
    names
}

#[test]
fn help_of_every_command_is_as_recorded() {
    let checked = check_help(&[]);
    assert!(checked.len() > 15, "{checked:?}");
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots");
    let recorded: BTreeSet<String> = std::fs::read_dir(directory)
        .unwrap()
        .filter_map(|entry| Some(entry.unwrap().file_name().to_str()?.strip_suffix(".txt")?.to_owned()))
        .filter(|name| name.starts_with("help"))
        .collect();
    assert_eq!(checked, recorded, "snapshots of commands that do not exist");
}

/// Commands that fail without a daemon, in the order of the recorded messages.
const FAILURES: &[&[&str]] = &[
    &["nonsense"],
    &["status", "--nonsense"],
    &["status", "--socket", "/nowhere/agent.sock"],
    &["status", "--socket", "/nowhere/agent.sock", "--json"],
    &["plan", "--job", "x", "--socket", "/nowhere/agent.sock"],
    &["plan", "--job", "x", "--collector", "head:7718"],
    &["plan", "--job", "x", "--collector", "/nowhere/collector.sock"],
    &["watch", "--job", "x", "--socket", "/nowhere/agent.sock"],
    &["mark", "checkpoint", "--socket", "/nowhere/agent.sock"],
    &["set", "--job", "x", "cpu.usage"],
    &["push", "--job", "x", "loss"],
    &["push", "--job", "x", "loss=much"],
    &["push", "--job", "x", "loss=1", "--label", "rank"],
    &["metrics", "cpu.usge"],
    &["device", "try", "gopher://pdu3"],
    &["device", "try", "file:///nowhere/power"],
    &["store", "keep", "1", "--until", "2020-01-01"],
    &["report", "1", "--advice", "/nowhere/advice.d"],
    &["job", "start", "--strict", "--no-agent", "--socket", "/nowhere/agent.sock"],
    &["job", "start", "--strict", "--no-agent", "--job", "7", "--socket", "/nowhere/agent.sock"],
    &["job", "end", "--strict", "--job", "7", "--socket", "/nowhere/agent.sock"],
    &[
        "job",
        "state",
        "--strict",
        "--job",
        "7",
        "--state",
        "FAILED",
        "--collector",
        "/nowhere/collector.sock",
    ],
    &["report", "--store", "nonsense"],
    &["report", "--store", "sqlite:/nowhere/run.db"],
    &["bundle"],
    &["bundle", "verify", "/nowhere"],
    &["bundle", "seal", "/nowhere"],
    &["store", "--store", "sqlite:/nowhere/run.db"],
    &["store", "prune", "--store", "sqlite:/nowhere/run.db", "--dry-run"],
    &["store", "prune", "--before", "yesterday"],
    &["store", "import"],
    &["store", "import", "job.parquet", "--store", "nonsense"],
    &["store", "import", "job.parquet", "--store", "sqlite:/nowhere/run.db"],
    &["store", "keep", "4711", "--store", "sqlite:/nowhere/run.db"],
    &["store", "keep", "4711", "--until", "2030-01-01", "--release"],
    &["calibrate", "--socket", "/nowhere", "--output", "/nowhere/roofs.json"],
    &["keygen", "--out", "/nowhere"],
    &["keygen", "--name", "a/b"],
    &["doctor", "--role", "cluster"],
    &["check", "--socket", "/nowhere/agent.sock"],
    &["check", "--warning", "age=20:10"],
    &["check", "--critical", "age"],
    &["check", "--collector", "--node", "n1"],
    &["setup", "collector", "--store", "postgres://p:secret@db/p", "--dry-run"],
    &["setup", "collector", "--store", "nonsense", "--dry-run"],
    &["setup", "collector", "--listen", "tcp://0.0.0.0:7717", "--dry-run"],
    &["setup", "login"],
    &["setup", "login", "--collector", "head"],
    &["setup", "node", "--name", "a/b", "--dry-run"],
    &["run"],
    &["run", "-m", "cpu.usge", "true"],
    &["run", "--every", "1us", "true"],
    &["run", "--report", "/nowhere/report", "true"],
];

#[test]
fn failures_are_reported_as_recorded() {
    let mut transcript = String::new();
    for arguments in FAILURES {
        let output = polymeter(arguments);
        let status = output.status.code().unwrap();
        assert_ne!(status, 0, "{arguments:?}");
        writeln!(transcript, "$ polymeter {}", arguments.join(" ")).unwrap();
        transcript.push_str(&text(&output.stdout));
        transcript.push_str(&text(&output.stderr));
        writeln!(transcript, "exit status {status}\n").unwrap();
    }
    snapshot::check("failures", &transcript);
}
