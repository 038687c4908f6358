//! `polymeter status`, `jobs`, `plan`, `set` and `reset`: asking this node's agent over its control socket.

mod lease;
mod shown;

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use polymeter_agent::control::{Answer, Status, Verb};

use crate::failure::Failure;
use crate::terminal;
use shown::{jobs_text, status_text};

pub(crate) use lease::{PlanArguments, ResetArguments, SetArguments, plan, reset, set};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the agent is.
#[derive(Debug, clap::Args)]
pub(crate) struct Place {
    /// The agent's control socket.
    #[arg(long, value_name = "PATH", default_value = "/run/polymeter/agent.sock")]
    socket: PathBuf,

    /// As JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Args)]
pub(crate) struct JobsArguments {
    #[command(flatten)]
    place: Place,
}

pub(crate) fn status(arguments: &StatusArguments) -> Result<(), Failure> {
    let status = ask_status(&arguments.place, &Verb::Status)?;
    terminal::print(&if arguments.place.json { json(&status) } else { status_text(&status) });
    Ok(())
}

pub(crate) fn jobs(arguments: &JobsArguments) -> Result<(), Failure> {
    let mut status = ask_status(&arguments.place, &Verb::Jobs)?;
    status.subjects.retain(|subject| subject.job.is_some());
    terminal::print(&if arguments.place.json { json(&status.subjects) } else { jobs_text(&status.subjects) });
    Ok(())
}

fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string_pretty(value).map(|text| text + "\n").unwrap_or_default()
}

fn ask_status(place: &Place, verb: &Verb) -> Result<Box<Status>, Failure> {
    match ask(&place.socket, verb)? {
        Answer::Status(status) => Ok(status),
        Answer::Refused(refusal) => Err(Failure::Refused(refusal.message)),
        Answer::Plan { .. }
        | Answer::Metrics { .. }
        | Answer::Granted { .. }
        | Answer::Reset { .. }
        | Answer::Registered { .. }
        | Answer::Done {} => Err(something_else()),
    }
}

/// What was answered is no answer to what was asked.
fn something_else() -> Failure {
    Failure::Refused("the agent answers something else than was asked; is it of another version?".to_owned())
}

/// Asks one thing and reads the answer.
fn ask(socket: &Path, verb: &Verb) -> Result<Answer, Failure> {
    let unreachable = |error: std::io::Error| {
        let nobody = [ErrorKind::NotFound, ErrorKind::ConnectionRefused].contains(&error.kind());
        let silent = [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind());
        let advice = match (nobody, silent) {
            (true, _) => "; is polymeter-agent running? --socket names another place",
            (_, true) => "; the agent does not answer",
            _ => "",
        };
        Failure::Unreachable(format!("cannot ask the agent at {}: {error}{advice}", socket.display()))
    };
    let mut stream = UnixStream::connect(socket).map_err(unreachable)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(unreachable)?;
    let mut line = serde_json::to_vec(verb).map_err(|error| Failure::refused("cannot ask", &error))?;
    line.push(b'\n');
    stream.write_all(&line).map_err(unreachable)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).map_err(unreachable)?;
    serde_json::from_str(&answer).map_err(|error| {
        Failure::refused("the agent's answer cannot be read; is it of another version?", &error)
    })
}
