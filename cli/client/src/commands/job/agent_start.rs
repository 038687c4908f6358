//! Agent of a prolog: the running one, or a new one. Concurrent prologs start only one agent.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use polymeter_proto::control::{Answer, Request};
use polymeter_service::log::Severity;
use polymeter_service::place;
use rustix::fs::{FlockOperation, flock};

use super::problem::report;
use crate::connection::agent::ask_within;
use crate::failure::Failure;

/// Delays the job's start.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Options for starting an agent if none runs.
#[derive(Debug, clap::Args)]
pub(crate) struct StartOptions {
    /// Do not start an agent if none runs.
    #[arg(long)]
    no_agent: bool,

    /// The agent's program. Default: polymeter-agent in the directory of this program.
    #[arg(long, value_name = "PATH")]
    agent: Option<PathBuf>,

    /// The configuration file for a started agent.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The collector for a started agent.
    #[arg(long, value_name = "ENDPOINT")]
    collector: Option<String>,

    /// Let a started agent exit a few seconds after the last job, as soon as the collector has all samples.
    #[arg(long)]
    exit_when_idle: bool,
}

#[expect(clippy::large_enum_variant, reason = "the command reads one answer")]
enum Attempt {
    Answered(Answer),
    /// No agent runs, or it is about to stop: a new one may be started.
    NotRunning(Failure),
}

fn attempt(socket: &Path, verb: &Request) -> Result<Attempt, Failure> {
    match ask_within(socket, verb, TIMEOUT) {
        Ok(Answer::Refused(refusal)) if refusal.code == "stopping" => {
            Ok(Attempt::NotRunning(Failure::Failed(refusal.message.into())))
        }
        Ok(answer) => Ok(Attempt::Answered(answer)),
        Err(failure @ Failure::NotRunning(_)) => Ok(Attempt::NotRunning(failure)),
        Err(failure) => Err(failure),
    }
}

/// Fails if no agent runs at `socket`.
pub(super) fn ask_running(socket: &Path, verb: &Request) -> Result<Answer, Failure> {
    match attempt(socket, verb)? {
        Attempt::Answered(answer) => Ok(answer),
        Attempt::NotRunning(failure) => Err(failure),
    }
}

pub(super) fn ask_or_start(socket: &Path, verb: &Request, options: &StartOptions) -> Result<Answer, Failure> {
    match attempt(socket, verb)? {
        Attempt::Answered(answer) => return Ok(answer),
        Attempt::NotRunning(failure) if options.no_agent => return Err(failure),
        Attempt::NotRunning(_) => {}
    }
    let cannot_start =
        |error: io::Error| Failure::Failed(format!("cannot start an agent at {}: {error}", socket.display()));
    if let Some(directory) = socket.parent() {
        place::make_directory(directory, 0o755).map_err(cannot_start)?;
    }
    let lock = place::open_or_create(&start_lock(socket)).map_err(cannot_start)?;
    // The holder of the lock waits no longer than an agent may take to become ready.
    flock(&lock, FlockOperation::LockExclusive).map_err(|errno| cannot_start(errno.into()))?;
    if let Attempt::Answered(answer) = attempt(socket, verb)? {
        return Ok(answer);
    }
    options.start(socket)?;
    ask_running(socket, verb)
}

/// Locked while an agent is started at `socket`.
fn start_lock(socket: &Path) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(".starting");
    PathBuf::from(name)
}

impl StartOptions {
    fn start(&self, socket: &Path) -> Result<(), Failure> {
        let program = self
            .agent
            .clone()
            .or_else(|| Some(std::env::current_exe().ok()?.with_file_name("polymeter-agent")))
            .unwrap_or_else(|| "polymeter-agent".into());
        let mut command = Command::new(&program);
        command.args(["--detach", "--socket"]).arg(socket);
        if self.exit_when_idle {
            command.arg("--exit-when-idle");
        }
        if let Some(config) = &self.config {
            command.arg("--config").arg(config);
        }
        if let Some(collector) = &self.collector {
            command.arg("--collector").arg(collector);
        }
        // The agent reports problems on stderr, which it closes when it is ready. They are reported like this
        // program's own messages: a scheduler may keep only those in syslog.
        let output = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output();
        let cannot_start =
            |cause: String| Failure::Failed(format!("cannot start {}: {cause}", program.display()));
        let output = output.map_err(|error| cannot_start(error.to_string()))?;
        let messages = String::from_utf8_lossy(&output.stderr);
        let messages: Vec<&str> = messages.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        if !output.status.success() {
            let cause =
                if messages.is_empty() { String::new() } else { format!(": {}", messages.join("; ")) };
            return Err(cannot_start(format!("it exited with {}{cause}", output.status)));
        }
        let warnings = messages.into_iter().filter(|line| !is_informative(line));
        warnings.for_each(|line| report(Severity::Warning, line));
        Ok(())
    }
}

/// True for a log line of the agent, in either format, whose level is below warning.
fn is_informative(line: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Leveled {
        level: String,
    }
    let of_json = serde_json::from_str(line).ok().map(|Leveled { level }| level);
    of_json
        .or_else(|| line.split(": ").nth(1).map(str::to_owned))
        .is_some_and(|level| ["info", "debug", "trace"].contains(&level.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_of_a_log_line_is_known_in_both_formats() {
        for line in [
            "polymeter-agent: info: sampling n1",
            "polymeter-agent: debug: discovered job 42",
            r#"{"time":"2026-01-01T00:00:00.000000Z","level":"info","message":"sampling: warning: n1"}"#,
        ] {
            assert!(is_informative(line), "{line}");
        }
        for line in [
            "polymeter-agent: warning: cannot read: info: none",
            r#"{"level":"error","message":"a: info: b"}"#,
            "Segmentation fault",
            "",
        ] {
            assert!(!is_informative(line), "{line}");
        }
    }
}
