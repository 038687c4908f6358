//! The execution of requests about whole jobs: finds the job's nodes, checks the user's permission, sends the
//! request to all agents with one common effective time, and gathers their answers.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use polymeter_api::TokenService;
use polymeter_proto::control::{
    CollectorAnswer, JobAnswer, NodeAnswer, Refusal, Remote, RoutedRequest, StateRequest, TokenList,
    TokenRequest,
};
use polymeter_proto::series::Identifier;
use polymeter_service::clock::Clock;
use serde_json::Value;
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio::time::timeout;

use super::agent_requests::AgentRequests;
use super::clock_probe::ClockProbe;
use super::links::CoordinatorLinks;
use super::outcome::{OutcomeReport, OutcomeSender, outcome_of};
use super::pending_file::{self, PendingFile};
use super::pending_requests::{PendingRequests, Resend, SentRequest};
use super::permission::{ROOT, may, permitted};
use crate::agents::{AgentDirectory, AgentInfo, JobNode};
use crate::limits;
use crate::messages::AgentAnswer;

/// The coordinator, shared by all listeners.
#[derive(Debug)]
pub(super) struct Coordinator {
    directory: AgentDirectory,
    requests: Arc<AgentRequests>,
    clock: Clock,
    outcomes: OutcomeSender,
    /// The file that keeps pending requests across restarts, if configured.
    pending_file: Option<PendingFile>,
    /// The user that may report final states of jobs, besides root.
    scheduler_uid: Option<u32>,
    tokens: TokenService,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Users' requests that are being executed, by user.
    busy: HashMap<u32, usize>,
    /// A lock per job for requests that change its sampling. Without it, an agent could receive a late
    /// request after the next one.
    turns: HashMap<Identifier, Weak<AsyncMutex<()>>>,
    pending: PendingRequests,
}

/// One request in execution. Dropping it releases its place.
struct Busy<'a>(&'a Coordinator, u32);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        let left = state.busy.get(&self.1).copied().unwrap_or_default().saturating_sub(1);
        if left == 0 {
            state.busy.remove(&self.1);
        } else {
            state.busy.insert(self.1, left);
        }
    }
}

impl Coordinator {
    pub(super) fn new(
        links: CoordinatorLinks,
        clock: Clock,
        pending_file: Option<PendingFile>,
        scheduler_uid: Option<u32>,
        tokens: TokenService,
    ) -> Self {
        let CoordinatorLinks { directory, receiver, outcomes } = links;
        let pending = pending_file.as_ref().map(PendingFile::read).unwrap_or_default();
        let state = Mutex::new(State { pending, ..State::default() });
        let requests = Arc::new(AgentRequests::new(receiver, clock));
        Self { directory, requests, clock, outcomes, pending_file, scheduler_uid, tokens, state }
    }

    /// Returns the measurement of the agents' clocks.
    pub(super) fn clock_probe(&self) -> ClockProbe {
        let requests = Arc::clone(&self.requests);
        ClockProbe { requests, directory: self.directory.clone(), clock: self.clock }
    }

    /// Executes the request in `line` of user `uid`.
    pub(super) async fn answer(self: &Arc<Self>, uid: u32, line: &[u8]) -> CollectorAnswer {
        if let Some(request) = StateRequest::parse(line) {
            let stored = self.store_state(uid, request).await;
            return stored.map_or_else(CollectorAnswer::Refused, |()| CollectorAnswer::Done {});
        }
        if let Some(request) = TokenRequest::parse(line) {
            let tokens = self.execute_token_request(uid, request).await;
            return tokens.map_or_else(CollectorAnswer::Refused, CollectorAnswer::Tokens);
        }
        self.ask(uid, line).await.map_or_else(CollectorAnswer::Refused, CollectorAnswer::Nodes)
    }

    /// Executes a request about tokens of the HTTP API.
    async fn execute_token_request(
        &self,
        uid: u32,
        request: Result<TokenRequest, Refusal>,
    ) -> Result<TokenList, Refusal> {
        let request = request?;
        let _busy = self.begin(uid)?;
        self.tokens.execute(uid, request).await
    }

    /// Passes the final state of a job to a writer, which stores it.
    async fn store_state(&self, uid: u32, request: Result<StateRequest, Refusal>) -> Result<(), Refusal> {
        // This is checked first, so that other users learn nothing from later errors.
        if uid != ROOT && self.scheduler_uid != Some(uid) {
            let message = "only root and the configured `scheduler_user` may report the state of a job";
            return Err(Refusal::new("forbidden", Some("verb"), message));
        }
        let outcome = outcome_of(&request?)?;
        let _busy = self.begin(uid)?;
        let unknown = format!("unknown job {}: the store does not contain it yet", outcome.job_id);
        let (reply, stored) = oneshot::channel();
        let busy = |_| {
            Refusal::new(
                "busy",
                None,
                "too many final states are waiting to be stored; try again in a moment",
            )
        };
        self.outcomes.try_send(OutcomeReport { outcome, reply }).map_err(busy)?;
        match timeout(limits::OUTCOME_TIMEOUT, stored).await {
            Ok(Ok(true)) => Ok(()),
            Ok(_) => Err(Refusal::new("unknown_job", Some("job"), &unknown)),
            Err(_) => Err(Refusal::new("busy", None, "the store does not answer; try again in a moment")),
        }
    }

    async fn ask(self: &Arc<Self>, uid: u32, line: &[u8]) -> Result<JobAnswer, Refusal> {
        let request = RoutedRequest::parse(line)?;
        let _busy = self.begin(uid)?;
        let nodes = permitted(uid, &request.job, self.directory.nodes_of(&request.job))?;
        if request.remote == Remote::Immediate {
            let answers = self.requests.send(&nodes, uid, self.clock.now().wall_us, &request.line).await;
            return Ok(gathered(&request.job, None, &nodes, answers));
        }
        let turn = self.turn(&request.job);
        let _turn = turn.lock().await;
        let at_us = self.clock.now().wall_us + limits::EFFECT_DELAY_US;
        let answers = self.requests.send(&nodes, uid, at_us, &request.line).await;
        let answered = nodes.iter().zip(&answers).filter(|(_, answer)| answer.as_ref().is_some_and(is_final));
        let answered = answered.map(|(node, _)| node.session).collect();
        let until_us = lease_end(&request, at_us, &answers);
        let job = request.job.clone();
        self.add_pending(SentRequest { request, uid, at_us, until_us, answered }, &nodes);
        // Saved before the user reads that disconnected nodes will receive it.
        self.write_pending().await;
        Ok(gathered(&job, Some(at_us), &nodes, answers))
    }

    fn turn(&self, job: &Identifier) -> Arc<AsyncMutex<()>> {
        let mut state = self.lock();
        state.turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = state.turns.get(job).and_then(Weak::upgrade).unwrap_or_default();
        state.turns.insert(job.clone(), Arc::downgrade(&turn));
        turn
    }

    fn begin(&self, uid: u32) -> Result<Busy<'_>, Refusal> {
        let mut state = self.lock();
        let busy = state.busy.entry(uid).or_default();
        if *busy >= limits::CONTROL_PER_USER {
            return Err(Refusal::new(
                "busy",
                None,
                "too many requests of this user are waiting for answers; try again in a moment",
            ));
        }
        *busy += 1;
        Ok(Busy(self, uid))
    }

    /// Takes an agent's answer.
    pub(super) fn take_answer(&self, answer: AgentAnswer) {
        self.requests.take_answer(answer);
    }

    fn add_pending(self: &Arc<Self>, sent: SentRequest, asked: &[JobNode]) {
        let job = sent.request.job.clone();
        let now_us = self.clock.now().wall_us;
        self.lock().pending.add(sent, now_us);
        // Agents that connected while the request was in progress.
        let asked: HashSet<_> = asked.iter().map(|node| node.session).collect();
        let is_new = |node: &JobNode| !asked.contains(&node.session);
        for node in self.directory.nodes_of(&job).into_iter().filter(is_new) {
            self.catch_up(job.clone(), node);
        }
    }

    /// Writes the pending requests to their file, if there is one.
    async fn write_pending(&self) {
        if let Some(pending_file) = &self.pending_file {
            pending_file.write(|| pending_file::text(&self.lock().pending)).await;
        }
    }

    /// Sends pending requests to sessions that have connected.
    pub(super) fn sessions_connected(self: &Arc<Self>, sessions: Vec<AgentInfo>) {
        for agent in sessions {
            for (job, owner_uid) in agent.jobs {
                let (node, session, peer) = (agent.node.clone(), agent.session, agent.peer.clone());
                self.catch_up(job, JobNode { node, session, peer, owner_uid });
            }
        }
    }

    fn catch_up(self: &Arc<Self>, job: Identifier, node: JobNode) {
        if self.unanswered(&job, &node).is_empty() {
            return;
        }
        let coordinator = Arc::clone(self);
        tokio::spawn(async move {
            let turn = coordinator.turn(&job);
            let _turn = turn.lock().await;
            for resend in coordinator.unanswered(&job, &node) {
                let nodes = std::slice::from_ref(&node);
                let answers = coordinator.requests.send(nodes, resend.uid, resend.at_us, &resend.line).await;
                if !answers.iter().flatten().any(is_final) {
                    // The agent has disconnected again. It receives the request when it reconnects.
                    return;
                }
                coordinator.lock().pending.answered(resend.number, node.session);
            }
            coordinator.write_pending().await;
        });
    }

    /// Returns the pending requests for a node.
    fn unanswered(&self, job: &Identifier, node: &JobNode) -> Vec<Resend> {
        let now_us = self.clock.now().wall_us;
        let mut unanswered = self.lock().pending.unanswered(job, node.session, now_us);
        unanswered.retain(|resend| may(resend.uid, node));
        unanswered
    }

    /// Waits until sessions have connected or changed their jobs, and returns them.
    pub(super) async fn changed_sessions(&self) -> Vec<AgentInfo> {
        self.directory.changed().await;
        self.directory.take_changes()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent at every point where a panic could occur.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the end of a request's leases as the agents report it; without answers, the requested end.
fn lease_end(request: &RoutedRequest, at_us: i64, answers: &[Option<Value>]) -> Option<i64> {
    if request.remote != Remote::GrantsLeases {
        return None;
    }
    let mut answers = answers.iter().flatten().peekable();
    if answers.peek().is_none() {
        return request.duration_us.map(|duration_us| at_us.saturating_add_unsigned(duration_us));
    }
    answers.filter_map(|answer| answer.get("until_us")?.as_i64()).max()
}

/// Returns true if the agent has executed or refused the request, and need not receive it again.
fn is_final(answer: &Value) -> bool {
    !matches!(answer.get("code").and_then(Value::as_str), Some("busy" | "stopping"))
}

fn gathered(
    job: &Identifier,
    at_us: Option<i64>,
    nodes: &[JobNode],
    answers: Vec<Option<Value>>,
) -> JobAnswer {
    let nodes = nodes.iter().zip(answers);
    let nodes = nodes.map(|(node, answer)| NodeAnswer { node: node.node.to_string(), answer });
    JobAnswer { job: job.to_string(), at_us, nodes: nodes.collect() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lease_ends_as_the_agents_answer() {
        let request = |remote, duration_us| RoutedRequest {
            job: "7".try_into().unwrap(),
            remote,
            selectors: Vec::new(),
            level: None,
            duration_us,
            line: "{}".try_into().unwrap(),
        };
        let set = |duration_us| request(Remote::GrantsLeases, duration_us);
        let granted = |until_us| Some(json!({"answer": "granted", "until_us": until_us}));
        let refused = Some(json!({"answer": "refused", "code": "longest_lease"}));
        assert_eq!(lease_end(&set(None), 5, &[None, granted(100), granted(101)]), Some(101));
        assert_eq!(lease_end(&set(Some(10)), 5, &[refused, None]), None);
        assert_eq!(lease_end(&set(Some(10)), 5, &[None, None]), Some(15));
        assert_eq!(lease_end(&set(None), 5, &[None]), None);
        assert_eq!(lease_end(&request(Remote::EndsLeases, None), 5, &[granted(100)]), None);
    }
}
