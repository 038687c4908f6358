//! Requests to an agent over its control socket.

use std::io::{BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use polymeter_proto::control::{Answer, Request, StatusReport};
use polymeter_service::log::chain;

use super::stream::{Stream, read_line};
use crate::failure::Failure;

pub const SOCKET: &str = "/run/polymeter/agent.sock";

/// Variable in which `polymeter run` passes its command the socket of the agent within it.
pub const SOCKET_VARIABLE: &str = "POLYMETER_SOCKET";

/// Variable in which it passes the id of its job.
pub const JOB_VARIABLE: &str = "POLYMETER_JOB_ID";

/// Variable in which it passes the file with its samples.
pub const STORE_VARIABLE: &str = "POLYMETER_RUN_STORE";

/// Socket of the agent of the `polymeter run` in which this command runs; none outside of one.
pub fn run_socket() -> Option<PathBuf> {
    std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Default of `--socket`: the agent of the `polymeter run` around this command, else the node's.
pub fn default_socket() -> PathBuf {
    run_socket().unwrap_or_else(|| SOCKET.into())
}

pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Ten times the answer of an agent with thousands of jobs.
const ANSWER_BYTES: u64 = 64 * 1024 * 1024;

/// Options of a command that asks this node's agent.
#[derive(Debug, clap::Args)]
pub struct AgentOptions {
    /// The agent's control socket.
    #[arg(long, value_name = "PATH", default_value_os_t = default_socket())]
    pub socket: PathBuf,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl AgentOptions {
    pub fn is_default(&self) -> bool {
        self.socket == Path::new(SOCKET)
    }
}

pub fn ask(socket: &Path, verb: &Request) -> Result<Answer, Failure> {
    ask_within(socket, verb, TIMEOUT)
}

pub fn ask_within(socket: &Path, verb: &Request, timeout: Duration) -> Result<Answer, Failure> {
    let stream = Stream::unix(socket, timeout).map_err(|error| unreachable(socket, &error))?;
    ask_on(stream, socket, verb)
}

pub fn ask_status(socket: &Path, verb: &Request) -> Result<StatusReport, Failure> {
    let answer = ask(socket, verb)?;
    if let Answer::Status(status) = answer { Ok(status) } else { Err(unexpected(answer)) }
}

pub(super) fn ask_on(mut stream: Stream, socket: &Path, verb: &Request) -> Result<Answer, Failure> {
    let failed = |error| unreachable(socket, &error);
    match stream.write_all(&request_line(verb)?) {
        // An agent that refuses a connection says why, and closes it at once.
        Err(error) if !is_not_running(&error) => return Err(failed(error)),
        Ok(()) | Err(_) => {}
    }
    let answer = read_line(&mut BufReader::new(stream), ANSWER_BYTES);
    let answer = answer.map_err(|error| {
        // The agent closed the connection: it was about to stop.
        let is_closed = error.kind() == ErrorKind::UnexpectedEof;
        failed(if is_closed { ErrorKind::ConnectionReset.into() } else { error })
    })?;
    serde_json::from_str(&answer).map_err(|error| unreadable(&error))
}

pub fn request_line(verb: &Request) -> Result<Vec<u8>, Failure> {
    let mut line =
        serde_json::to_vec(verb).map_err(|error| Failure::because("cannot write the request", &error))?;
    line.push(b'\n');
    Ok(line)
}

/// Failure for a refusal, or an answer to another request.
pub fn unexpected(answer: Answer) -> Failure {
    if let Answer::Refused(refusal) = answer {
        return Failure::Refused(Box::new(refusal));
    }
    Failure::Failed(
        "unexpected answer of the agent; check that agent and command have the same version".to_owned(),
    )
}

pub fn unreadable(error: &(dyn std::error::Error + 'static)) -> Failure {
    Failure::Failed(format!(
        "cannot read the agent's answer: {}; check that agent and command have the same version",
        chain(error)
    ))
}

pub fn is_timeout(error: &std::io::Error) -> bool {
    [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind())
}

pub fn is_not_running(error: &std::io::Error) -> bool {
    let kinds = [
        ErrorKind::NotFound,
        ErrorKind::ConnectionRefused,
        ErrorKind::ConnectionReset,
        ErrorKind::BrokenPipe,
    ];
    kinds.contains(&error.kind())
}

pub fn unreachable(socket: &Path, error: &std::io::Error) -> Failure {
    unreachable_with(socket, error, "")
}

/// Failure for an agent that does not answer, with the command's own remedy.
pub fn unreachable_with(socket: &Path, error: &std::io::Error, remedy: &str) -> Failure {
    let socket = socket.display();
    if is_not_running(error) {
        return Failure::NotRunning(format!(
            "cannot reach the agent at {socket}: {error}; start polymeter-agent, or name its socket with --socket{remedy}"
        ));
    }
    Failure::Unreachable(if is_timeout(error) {
        format!(
            "cannot reach the agent at {socket}: no answer in time; check that it is not stopped or overloaded"
        )
    } else {
        format!("cannot reach the agent at {socket}: {error}")
    })
}
