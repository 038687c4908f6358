//! Private namespaces of the kernel for one test, which a process keeps.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::basics::wrap;

/// Namespaces, which the kernel removes when the test and the programs in them have ended.
pub(crate) struct Namespaces {
    /// Options of `unshare` and `nsenter`: `--mount`, `--net`.
    kinds: &'static [&'static str],
    /// Process that keeps them. It ends when its standard input is closed.
    holder: Child,
}

impl Namespaces {
    /// Creates namespaces of these kinds and runs a shell script in them. Fails if this machine does not
    /// permit them.
    pub(crate) fn create(
        kinds: &'static [&'static str],
        script: &str,
        arguments: &[&OsStr],
    ) -> Result<Self, String> {
        let mut holder = Command::new("unshare")
            .args(kinds)
            .args(["sh", "-c", &format!("set -e\n{script}\necho ready\nread -r line"), "sh"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("unshare cannot be run: {error}"))?;
        let mut answer = String::new();
        let stdout = holder.stdout.take().ok_or("unshare has no output")?;
        let namespaces = Self { kinds, holder };
        BufReader::new(stdout).read_line(&mut answer).map_err(|error| error.to_string())?;
        if answer == "ready\n" { Ok(namespaces) } else { Err(format!("no namespaces {kinds:?} can be made")) }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.holder.id()
    }

    /// Command with arguments that runs a program in them.
    pub(crate) fn entered(&self) -> Vec<String> {
        let target = self.pid().to_string();
        [&["nsenter"], self.kinds, &["-t", &target, "--"]].concat().into_iter().map(str::to_owned).collect()
    }

    /// Wraps a command so that it runs in them. The wrapper becomes the program and keeps its pid.
    pub(crate) fn within(&self, command: &Command) -> Command {
        let words = self.entered();
        let mut outer = Command::new(&words[0]);
        outer.args(&words[1..]);
        wrap(outer, command)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        self.holder.wait().ok();
    }
}
