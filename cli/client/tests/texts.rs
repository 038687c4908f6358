//! Snapshots of the texts that differ from those of the full program: the help, and commands that the client does not have.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

#[path = "../../src/snapshot.rs"]
mod snapshot;

use std::fmt::Write;
use std::process::{Command, Output};

/// Commands of the full program that fail, each with its message.
const FAILURES: &str = include_str!("../../tests/snapshots/failures.txt");

fn polymeter(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polymeter-client"));
    command.args(arguments).env_clear().env("COLUMNS", "80").env("PATH", "/usr/bin:/bin");
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_left_out_command_states_that_it_is_left_out() {
    let commands = FAILURES.lines().filter_map(|line| line.strip_prefix("$ polymeter "));
    let mut left_out = 0;
    for command in commands {
        let arguments: Vec<&str> = command.split(' ').collect();
        if ["run", "report", "bundle", "store", "keep", "keygen"].contains(&arguments[0]) {
            let output = polymeter(&arguments);
            assert_eq!(output.status.code(), Some(1), "{command}");
            assert!(text(&output.stderr).contains("this build "), "{command}");
            left_out += 1;
        }
    }
    assert!(left_out > 15, "{left_out}");
    let mut transcript = String::new();
    for arguments in [["report", "--help"], ["run", "--json"], ["report", "--json"]] {
        let output = polymeter(&arguments);
        writeln!(transcript, "$ polymeter {}", arguments.join(" ")).unwrap();
        transcript.push_str(&text(&output.stdout));
        transcript.push_str(&text(&output.stderr));
    }
    snapshot::check("left-out", &transcript);
}

#[test]
fn the_help_is_as_recorded() {
    snapshot::check("small-client-help", &text(&polymeter(&["--help"]).stdout));
}
