//! A child process of this program that runs a part of the agents or of the exporters.

use std::error::Error;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{ChildStdout, Command, Stdio};

use polymeter_benches::process::KilledOnDrop;
use serde::Serialize;
use serde::de::DeserializeOwned;

#[derive(Debug)]
pub(crate) struct Part {
    child: KilledOnDrop,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Part {
    /// Starts the part `name` of this program, which a JSON value describes.
    pub(crate) fn start(name: &str, value: &impl Serialize) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["part", name, &serde_json::to_string(value)?]);
        let mut child = KilledOnDrop(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
        let stdout = child.stdout.take().ok_or("a mock process has no stdout")?;
        Ok(Self { child, lines: BufReader::new(stdout).lines() })
    }

    pub(crate) fn line(&mut self) -> Result<String, Box<dyn Error>> {
        Ok(self.lines.next().ok_or("a mock process broke")??)
    }

    pub(crate) fn parsed_line<T: DeserializeOwned>(&mut self) -> Result<T, Box<dyn Error>> {
        Ok(serde_json::from_str(&self.line()?)?)
    }

    /// Sends the line on which the process continues.
    pub(crate) fn go(&mut self) -> Result<(), Box<dyn Error>> {
        Ok(self.child.stdin.as_mut().ok_or("a mock process has no stdin")?.write_all(b"go\n")?)
    }
}
