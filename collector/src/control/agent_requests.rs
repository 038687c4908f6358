//! Requests to agents, and the answers that arrive in time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polymeter_proto::series::SessionId;
use polymeter_proto::wire::control::ControlLine;
use polymeter_proto::wire::message::ToAgent;
use polymeter_service::clock::Clock;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::answer_budget::AnswerBudget;
use crate::agents::JobNode;
use crate::limits;
use crate::queues::OutgoingSender;
use crate::session_messages::{AgentAnswer, Outgoing, Peer};

/// Time in the past: the request takes effect at once, however wrong the clock of the node is.
pub(super) const AT_ONCE_US: i64 = 0;

/// Requests to agents that may still be answered.
#[derive(Debug)]
pub(super) struct AgentRequests {
    receiver: OutgoingSender,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    latest: u64,
    open: HashMap<u64, OpenRequest>,
}

/// Answers to a request, as they arrive. Later ones are ignored once it is dropped.
#[derive(Debug)]
pub(super) struct Replies {
    requests: Arc<AgentRequests>,
    numbers: Vec<u64>,
    replies: mpsc::Receiver<(usize, ControlLine)>,
}

impl Replies {
    /// Waits for the next answer, and returns it with the index of its node; none if all nodes have answered.
    pub(super) async fn next(&mut self) -> Option<(usize, ControlLine)> {
        self.replies.recv().await
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        let mut state = self.requests.lock();
        self.numbers.iter().for_each(|number| drop(state.open.remove(number)));
    }
}

#[derive(Debug)]
struct OpenRequest {
    peer: Peer,
    session: SessionId,
    /// Channel for the answer, and the index of the agent's node in it.
    reply: mpsc::Sender<(usize, ControlLine)>,
    position: usize,
}

impl AgentRequests {
    pub(super) fn new(receiver: OutgoingSender, clock: Clock) -> Self {
        Self { receiver, clock, state: Mutex::default() }
    }

    /// Sends the request to the agents of all nodes, and returns their answers as they arrive.
    pub(super) fn start(
        self: &Arc<Self>,
        nodes: &[JobNode],
        uid: u32,
        at_us: i64,
        line: &ControlLine,
    ) -> Replies {
        let (reply, replies) = mpsc::channel(nodes.len().max(1));
        let numbers: Vec<u64> =
            (0..).zip(nodes).map(|(position, node)| self.open(position, node, &reply)).collect();
        for (number, node) in numbers.iter().zip(nodes) {
            let (session, request, line) = (node.session, *number, line.clone());
            let message = ToAgent::Request { session, request, uid, at_us, line };
            self.receiver.send(Outgoing::Message(node.peer.clone(), message));
        }
        Replies { requests: Arc::clone(self), numbers, replies }
    }

    /// How long answers to a request with this effective time are awaited.
    pub(super) fn patience(&self, at_us: i64) -> Duration {
        let ahead_us = u64::try_from(at_us.saturating_sub(self.clock.now().wall_us)).unwrap_or(0);
        Duration::from_micros(ahead_us) + limits::ANSWERS_TIMEOUT
    }

    /// Returns the answers that arrive in time.
    pub(super) async fn send(
        self: &Arc<Self>,
        nodes: &[JobNode],
        uid: u32,
        at_us: i64,
        line: &ControlLine,
    ) -> Vec<Option<Value>> {
        let patience = self.patience(at_us);
        let mut replies = self.start(nodes, uid, at_us, line);
        let mut answers = vec![None; nodes.len()];
        let mut budget = AnswerBudget::new(limits::JOB_ANSWER_BYTES);
        let gather = async {
            while let Some((position, line)) = replies.next().await {
                if let Some(answer) = answers.get_mut(position) {
                    *answer = Some(budget.take(&line));
                }
            }
        };
        // After the timeout, the answers that have arrived are returned.
        timeout(patience, gather).await.ok();
        answers
    }

    fn open(&self, position: usize, node: &JobNode, reply: &mpsc::Sender<(usize, ControlLine)>) -> u64 {
        let mut state = self.lock();
        state.latest += 1;
        let number = state.latest;
        let (peer, session) = (node.peer.clone(), node.session);
        state.open.insert(number, OpenRequest { peer, session, reply: reply.clone(), position });
        number
    }

    /// An answer without a request to this agent is ignored.
    pub(super) fn take_answer(&self, AgentAnswer { peer, session, request, line }: AgentAnswer) {
        let mut state = self.lock();
        let fits = state.open.get(&request).is_some_and(|open| open.peer == peer && open.session == session);
        if let Some(open) = fits.then(|| state.open.remove(&request)).flatten() {
            // The queue has room for every answer.
            open.reply.try_send((open.position, line)).ok();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent at every point where a panic could occur.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
