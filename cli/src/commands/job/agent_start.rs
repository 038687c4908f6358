//! Having an agent: the one that runs, or else one that is started, once, however many prologs want one at the same time.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use polymeter_agent::control::{Answer, Verb, beside};
use polymeter_agent::log::Priority;
use rustix::fs::{FlockOperation, flock};

use crate::control::ask_within;
use crate::failure::Failure;

/// How long an agent may take to answer. A job waits for this.
const PATIENCE: Duration = Duration::from_secs(2);

/// The agent to be started where none runs.
#[derive(Debug, clap::Args)]
pub(crate) struct Starting {
    /// Start no agent where none runs.
    #[arg(long)]
    no_agent: bool,

    /// The agent's program; without it polymeter-agent beside this program.
    #[arg(long, value_name = "PATH")]
    agent: Option<PathBuf>,

    /// The configuration of an agent that is started.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The collector of an agent that is started.
    #[arg(long, value_name = "ENDPOINT")]
    collector: Option<String>,

    /// An agent that is started ends when no job has been there for a few seconds and the collector has everything.
    #[arg(long)]
    exit_when_idle: bool,
}

/// What asking an agent has come to.
enum Asked {
    /// It has answered.
    Answered(Answer),
    /// There is none, or it is about to end: one may be started.
    Nobody(Failure),
}

/// Asks the agent that listens at `socket`.
fn ask(socket: &Path, verb: &Verb) -> Result<Asked, Failure> {
    match ask_within(socket, verb, PATIENCE) {
        Ok(Answer::Refused(refusal)) if refusal.code == "stopping" => {
            Ok(Asked::Nobody(Failure::Refused(refusal.message.into())))
        }
        Ok(answer) => Ok(Asked::Answered(answer)),
        Err(failure @ Failure::Nobody(_)) => Ok(Asked::Nobody(failure)),
        Err(failure) => Err(failure),
    }
}

/// Asks the agent that runs at `socket`.
pub(super) fn ask_running(socket: &Path, verb: &Verb) -> Result<Answer, Failure> {
    match ask(socket, verb)? {
        Asked::Answered(answer) => Ok(answer),
        Asked::Nobody(failure) => Err(failure),
    }
}

/// Asks the agent that runs at `socket`, or one that is started there.
pub(super) fn ask_any(socket: &Path, verb: &Verb, starting: &Starting) -> Result<Answer, Failure> {
    match ask(socket, verb)? {
        Asked::Answered(answer) => return Ok(answer),
        Asked::Nobody(failure) if starting.no_agent => return Err(failure),
        Asked::Nobody(_) => {}
    }
    let wrong = |error: io::Error| {
        Failure::Refused(format!("cannot start an agent beside {}: {error}", socket.display()))
    };
    if let Some(directory) = socket.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(directory).map_err(wrong)?;
    }
    let turn = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(beside(socket, "starting"))
        .map_err(wrong)?;
    // Whoever is before us waits for no longer than an agent may take to be ready.
    flock(&turn, FlockOperation::LockExclusive).map_err(|errno| wrong(errno.into()))?;
    if let Asked::Answered(answer) = ask(socket, verb)? {
        return Ok(answer);
    }
    starting.start(socket)?;
    ask_running(socket, verb)
}

impl Starting {
    /// Starts an agent, and returns when it is ready.
    fn start(&self, socket: &Path) -> Result<(), Failure> {
        let beside_this = || Some(std::env::current_exe().ok()?.with_file_name("polymeter-agent"));
        let program = self.agent.clone().or_else(beside_this).unwrap_or_else(|| "polymeter-agent".into());
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
        // What is wrong with it comes on stderr, which it lets go of when it is ready. It belongs where this program's own
        // messages go: a scheduler may keep no more than syslog does.
        let ended = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output();
        let failed = |why: String| Failure::Refused(format!("cannot start {}: {why}", program.display()));
        let ended = ended.map_err(|error| failed(error.to_string()))?;
        let said = String::from_utf8_lossy(&ended.stderr);
        let said: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        if !ended.status.success() {
            let why = if said.is_empty() { String::new() } else { format!(": {}", said.join("; ")) };
            return Err(failed(format!("it ended with {}{why}", ended.status)));
        }
        let grave = said.into_iter().filter(|line| !line.contains(": info: "));
        grave.for_each(|line| super::report(Priority::Warning, line));
        Ok(())
    }
}
