//! Snapshots of the texts that differ from those of the full program: the help, and commands that the client
//! lacks.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

#[path = "../../src/snapshot.rs"]
mod snapshot;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::{Command, Output};

const FULL_HELP: &str = include_str!("../../tests/snapshots/help.txt");

const FAILURES: &str = include_str!("../../tests/snapshots/failures.txt");

fn polymeter(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polymeter-client"));
    command.args(arguments).env_clear().env("COLUMNS", "80").env("PATH", "/usr/bin:/bin");
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn listed(help: &str) -> BTreeSet<&str> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty()).collect()
}

#[test]
fn a_left_out_command_states_that_it_is_left_out() {
    let help = text(&polymeter(&["--help"]).stdout);
    let left_out = &listed(FULL_HELP) - &listed(&help);
    assert!(left_out.contains("report") && left_out.len() > 8, "{left_out:?}");
    let failing = FAILURES.lines().filter_map(|line| line.strip_prefix("$ polymeter "));
    let failing = failing.map(|command| command.split(' ').collect::<Vec<_>>());
    let failing = failing.filter(|arguments| left_out.contains(arguments[0]));
    for arguments in left_out.iter().map(|name| vec![*name]).chain(failing) {
        let output = polymeter(&arguments);
        // Nagios reads the standard output of a plugin.
        let (status, message) = if arguments[0] == "check" { (3, output.stdout) } else { (1, output.stderr) };
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        assert!(text(&message).contains("this build "), "{arguments:?}");
    }
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
