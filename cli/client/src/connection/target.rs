//! Target of a control request: this node's agent, or all nodes of a job through the collector.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use polymeter_proto::control::{Answer, JobAnswer, Request};

use super::agent::{self, SOCKET, TIMEOUT, default_socket, run_socket};
use super::collector::Collector;
use super::configuration::CollectorEndpoint;
use super::stream::Stream;
use crate::failure::Failure;

pub const ALL_NODES_REMEDY: &str = ", or query all nodes of a job with --collector";

/// Options of a command that can reach all nodes of a job.
#[derive(Debug, clap::Args)]
pub struct ControlTarget {
    /// Ask only this node's agent, at this control socket.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Ask all agents of the job through this collector: tcp://HOST:PORT, or its socket. Default: this node's
    /// agent; if it does not track the job, the collector named by POLYMETER_COLLECTOR or
    /// /etc/polymeter/client.toml.
    #[arg(long, value_name = "COLLECTOR", conflicts_with = "socket")]
    collector: Option<CollectorEndpoint>,

    /// The socket of munged, if it is not munge's default.
    #[arg(long, value_name = "PATH")]
    munge_socket: Option<PathBuf>,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[expect(clippy::large_enum_variant, reason = "the command reads one answer")]
#[derive(Debug)]
pub enum TargetAnswer {
    Agent(Answer),
    Nodes(JobAnswer),
}

impl ControlTarget {
    /// Asks this node's agent, or all agents of the job through a collector, as the options would.
    pub const fn through(collector: Option<CollectorEndpoint>, munge_socket: Option<PathBuf>) -> Self {
        Self { socket: None, collector, munge_socket, json: false }
    }

    /// Socket of the agent that is asked first: this node's, or that of the `polymeter run` around this
    /// command.
    pub fn socket(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(default_socket)
    }

    /// Control socket of this node's agent, if the agent of a `polymeter run` is asked first.
    pub fn node_socket(&self) -> Option<&'static Path> {
        (self.socket.is_none() && run_socket().is_some()).then(|| Path::new(SOCKET))
    }

    pub const fn prefers_collector(&self) -> bool {
        self.collector.is_some()
    }

    /// True if the collector may be asked where no agent here tracks the job.
    pub const fn allows_collector(&self) -> bool {
        self.socket.is_none()
    }

    /// None if none is chosen or configured.
    pub fn collector(&self) -> Result<Option<Collector>, Failure> {
        Collector::find(self.collector.as_ref(), self.munge_socket.as_deref())
    }

    pub fn ask(&self, verb: &Request, is_about_job: bool) -> Result<TargetAnswer, Failure> {
        if self.collector.is_some()
            && let Some(collector) = self.collector()?
        {
            return collector.ask(verb).map(TargetAnswer::Nodes);
        }
        let mut answer = ask_agent(&self.socket(), verb)?;
        if is_elsewhere(&answer)
            && let Some(socket) = self.node_socket()
        {
            answer = match (answer, ask_agent(socket, verb)?) {
                // No agent runs on this node: the answer is that of the run.
                (of_run, Err(_)) => of_run,
                (_, answer) => answer,
            };
        }
        if is_elsewhere(&answer)
            && is_about_job
            && self.socket.is_none()
            && let Some(collector) = self.collector()?
        {
            return collector.ask(verb).map(TargetAnswer::Nodes);
        }
        answer.map(TargetAnswer::Agent)
    }
}

/// True if no agent runs there, or it does not track the job.
fn is_elsewhere(answer: &Result<Answer, Failure>) -> bool {
    match answer {
        Err(_) => true,
        Ok(Answer::Refused(refusal)) => refusal.code == "unknown_job",
        Ok(_) => false,
    }
}

/// An inner error means that no agent runs there.
fn ask_agent(socket: &Path, verb: &Request) -> Result<Result<Answer, Failure>, Failure> {
    let unreachable = |error: &std::io::Error| agent::unreachable_with(socket, error, ALL_NODES_REMEDY);
    match Stream::unix(socket, TIMEOUT) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(Err(not_permitted(socket, &error))),
        Err(error) if agent::is_not_running(&error) => Ok(Err(unreachable(&error))),
        Err(error) => Err(unreachable(&error)),
        Ok(stream) => agent::ask_on(stream, socket, verb).map(Ok),
    }
}

/// Failure for an agent whose socket this user may not use, as that of another user's run.
fn not_permitted(socket: &Path, error: &std::io::Error) -> Failure {
    let remedy = if run_socket().is_some_and(|of_run| of_run == socket) {
        "only the user of the `polymeter run` around this command reaches its agent"
    } else {
        "ask the administrator for access to the socket"
    };
    Failure::Unreachable(format!("cannot reach the agent at {}: {error}; {remedy}", socket.display()))
}
