//! Asking this node's agent over its control socket, or all agents of a job through the collector.

mod annotate;
mod available;
mod collector;
mod job;
mod lease;
mod nodes;
mod shown;

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use polymeter_agent::control::{Answer, Status, Verb};

use crate::failure::Failure;
use crate::terminal;
pub(crate) use collector::{Collector, Endpoint};
use shown::{jobs_text, status_text};

pub(crate) use annotate::{MarkArguments, PushArguments, mark, push};
pub(crate) use available::available;
pub(crate) use job::Job;
pub(crate) use lease::{PlanArguments, ResetArguments, SetArguments, left_between, plan, reset, set};

/// Where the agent is, if nobody says otherwise.
pub(crate) const SOCKET: &str = "/run/polymeter/agent.sock";

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the agent is.
#[derive(Debug, clap::Args)]
pub(crate) struct Place {
    /// The agent's control socket.
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    pub(crate) socket: PathBuf,

    /// As JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Whom to ask about a job.
#[derive(Debug, clap::Args)]
pub(crate) struct Reach {
    /// This node's agent, and nobody else, at its control socket.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// All agents of the job, through the collector: tcp://HOST:PORT, or its socket. Without it the agent of this node is
    /// asked, and where there is none that follows the job, the collector of POLYMETER_COLLECTOR or
    /// /etc/polymeter/client.toml.
    #[arg(long, value_name = "COLLECTOR", conflicts_with = "socket")]
    collector: Option<Endpoint>,

    /// The socket of munged, where it is not the usual one.
    #[arg(long, value_name = "PATH")]
    munge_socket: Option<PathBuf>,

    /// As JSON.
    #[arg(long)]
    json: bool,
}

impl Reach {
    /// Where this node's agent is.
    fn socket(&self) -> &Path {
        self.socket.as_deref().unwrap_or(Path::new(SOCKET))
    }

    /// Asks about a job, or about this node. What this node's agent says is the result; what all nodes of the job say is
    /// shown, and there is none.
    fn ask(&self, verb: &Verb, about_job: bool) -> Result<Option<Answer>, Failure> {
        let collector = || Collector::find(self.collector.as_ref(), self.munge_socket.as_ref());
        if self.collector.is_some()
            && let Some(collector) = collector()?
        {
            return nodes::show(&collector.ask(verb)?, self.json).map(|()| None);
        }
        let socket = self.socket();
        let unreachable =
            |error: &std::io::Error| unreachable_with(socket, error, ", --collector asks all nodes of a job");
        let told = match UnixStream::connect(socket) {
            Err(error) if is_nobody(&error) => Err(unreachable(&error)),
            Err(error) => return Err(unreachable(&error)),
            Ok(stream) => Ok(converse(stream, socket, verb, PATIENCE)?),
        };
        let elsewhere = match &told {
            Err(_) => true,
            Ok(Answer::Refused(refusal)) => refusal.code == "unknown_job",
            Ok(_) => false,
        };
        if elsewhere
            && about_job
            && self.socket.is_none()
            && let Some(collector) = collector()?
        {
            return nodes::show(&collector.ask(verb)?, self.json).map(|()| None);
        }
        told.map(Some)
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    place: Place,
}

impl StatusArguments {
    pub(crate) const fn is_json(&self) -> bool {
        self.place.json
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct JobsArguments {
    #[command(flatten)]
    place: Place,
}

impl JobsArguments {
    pub(crate) const fn is_json(&self) -> bool {
        self.place.json
    }
}

pub(crate) fn status(arguments: &StatusArguments) -> Result<(), Failure> {
    let status = ask_status(&arguments.place.socket, &Verb::Status)?;
    if arguments.is_json() {
        terminal::print_json(&json(&status))
    } else {
        terminal::print(&status_text(&status))
    }
}

pub(crate) fn jobs(arguments: &JobsArguments) -> Result<(), Failure> {
    let mut status = ask_status(&arguments.place.socket, &Verb::Jobs)?;
    status.subjects.retain(|subject| subject.job.is_some());
    if arguments.is_json() {
        terminal::print_json(&json(&status.subjects))
    } else {
        terminal::print(&jobs_text(&status.subjects))
    }
}

fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string_pretty(value).map(|text| text + "\n").unwrap_or_default()
}

fn ask_status(socket: &Path, verb: &Verb) -> Result<Box<Status>, Failure> {
    let answer = ask(socket, verb)?;
    if let Answer::Status(status) = answer { Ok(status) } else { Err(refused(answer)) }
}

/// What was answered is a refusal, or no answer to what was asked.
pub(crate) fn refused(answer: Answer) -> Failure {
    if let Answer::Refused(refusal) = answer {
        return Failure::Answered(Box::new(refusal));
    }
    let other = "the agent answers something else than was asked; is it of another version?";
    Failure::Refused(other.to_owned())
}

/// Asks one thing and reads the answer.
pub(crate) fn ask(socket: &Path, verb: &Verb) -> Result<Answer, Failure> {
    ask_within(socket, verb, PATIENCE)
}

/// Asks one thing and reads the answer, which may take so long.
pub(crate) fn ask_within(socket: &Path, verb: &Verb, patience: Duration) -> Result<Answer, Failure> {
    let stream = UnixStream::connect(socket).map_err(|error| unreachable(socket, &error))?;
    converse(stream, socket, verb, patience)
}

fn converse(
    mut stream: UnixStream,
    socket: &Path,
    verb: &Verb,
    patience: Duration,
) -> Result<Answer, Failure> {
    let unreachable = |error| unreachable(socket, &error);
    stream.set_read_timeout(Some(patience)).map_err(unreachable)?;
    let mut line = serde_json::to_vec(verb).map_err(|error| Failure::refused("cannot ask", &error))?;
    line.push(b'\n');
    stream.write_all(&line).map_err(unreachable)?;
    let mut answer = String::new();
    if BufReader::new(stream).read_line(&mut answer).map_err(unreachable)? == 0 {
        // It was about to end.
        return Err(unreachable(ErrorKind::ConnectionReset.into()));
    }
    serde_json::from_str(&answer).map_err(|error| {
        Failure::refused("the agent's answer cannot be read; is it of another version?", &error)
    })
}

/// Whether a time that was set for reading or writing has passed.
fn is_silence(error: &std::io::Error) -> bool {
    [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind())
}

fn is_nobody(error: &std::io::Error) -> bool {
    let kinds = [
        ErrorKind::NotFound,
        ErrorKind::ConnectionRefused,
        ErrorKind::ConnectionReset,
        ErrorKind::BrokenPipe,
    ];
    kinds.contains(&error.kind())
}

/// Why an agent cannot be asked, and what to do.
pub(crate) fn unreachable(socket: &Path, error: &std::io::Error) -> Failure {
    unreachable_with(socket, error, "")
}

/// The same, with what else the command offers.
fn unreachable_with(socket: &Path, error: &std::io::Error, more: &str) -> Failure {
    let socket = socket.display();
    let message = if is_nobody(error) {
        format!(
            "cannot ask the agent at {socket}: {error}; is polymeter-agent running? --socket names another place{more}"
        )
    } else if is_silence(error) {
        format!("cannot ask the agent at {socket}: it does not answer in time; is it stopped or overloaded?")
    } else {
        format!("cannot ask the agent at {socket}: {error}")
    };
    if is_nobody(error) { Failure::Nobody(message) } else { Failure::Unreachable(message) }
}
