//! Processes of jobs: this program in a role.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Variable of the environment that makes this program a process of a job, or another agent: `ROLE:CGROUP`.
pub(crate) const ROLE: &str = "POLYMETER_EBPF_TEST_ROLE";

/// Reads one line; an empty text is the end.
pub(crate) fn line(input: &mut impl BufRead) -> String {
    let mut line = String::new();
    input.read_line(&mut line).unwrap();
    line.trim().to_owned()
}

pub(crate) fn numbers<const N: usize>(text: &str) -> [usize; N] {
    let numbers: Vec<usize> = text.split(' ').map(|number| number.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    pub(crate) fn start(role: &str, cgroup: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(ROLE, format!("{role}:{}", cgroup.display()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    pub(crate) fn tell(&mut self, request: &str) {
        writeln!(self.input, "{request}").unwrap();
    }

    pub(crate) fn answer(&mut self) -> String {
        line(&mut self.output)
    }

    /// Waits for its end, after which it is in no cgroup.
    pub(crate) fn end(mut self) {
        drop(self.input);
        assert!(self.child.wait().unwrap().success());
    }
}

/// Waits for a condition, at most a minute.
pub(crate) fn wait_until(mut condition: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if condition() {
            return;
        }
        polymeter_agent::clock::sleep(Duration::from_millis(10));
    }
    panic!("the condition did not become true");
}
