//! Source of the lines: this node's agent, or the store of the collector for all nodes of a job.

use std::path::PathBuf;
use std::sync::Arc;

use polymeter_proto::control::{Answer, Refusal, Request};
use tokio::sync::mpsc;

use super::stream::WatchStream;
use crate::connection::agent::ask;
use crate::connection::collector::Collector;
use crate::failure::Failure;
use crate::local::WatchLine;

#[derive(Debug)]
pub(super) enum WatchSource {
    Agent(WatchStream),
    /// A thread that reads what the collector has stored.
    Collector(mpsc::Receiver<Result<WatchLine, Failure>>),
}

impl WatchSource {
    /// Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<WatchLine, Failure> {
        match self {
            Self::Agent(stream) => stream.next().await,
            Self::Collector(lines) => lines.recv().await.unwrap_or_else(|| {
                Err(Failure::Failed("cannot continue to watch: the reading thread has ended".to_owned()))
            }),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) enum RequestTarget {
    Agent(PathBuf),
    Collector(Arc<Collector>),
}

impl RequestTarget {
    pub(super) fn ask(&self, request: &Request) -> Result<Answer, Failure> {
        match self {
            Self::Agent(socket) => ask(socket, request),
            Self::Collector(collector) => ask_nodes(collector, request),
        }
    }
}

/// Returns the first refusal, else the answer of the first node.
fn ask_nodes(collector: &Collector, request: &Request) -> Result<Answer, Failure> {
    let answers = collector.ask(request)?.nodes.into_iter().filter_map(|node| node.answer);
    let mut answers: Vec<Answer> = answers.filter_map(|answer| serde_json::from_value(answer).ok()).collect();
    let refused = answers.iter().position(|answer| matches!(answer, Answer::Refused(_))).unwrap_or(0);
    if answers.is_empty() {
        let none = Refusal::new("no_answer", None, "no node of the job answered; try again in a moment");
        return Ok(Answer::Refused(none));
    }
    Ok(answers.swap_remove(refused))
}
