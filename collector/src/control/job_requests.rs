//! Executes requests about whole jobs on all their nodes, also on those of other collectors.
//!
//! ```text
//! user -> ask -> store -> agents of this collector -----> answers -> user
//!                  |                                        ^
//!                  +--> other collectors -> their agents -> store
//! ```
//!
//! A request with a lasting effect is stored before it is sent: if this collector ends, another one completes
//! it. Requests about a job are sent in the order of their numbers, by every collector.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use polymeter_proto::control::{JobAnswer, NodeAnswer, PlanRequest, Refusal, Remote, RoutedRequest, Verb};
use polymeter_proto::series::{Identifier, SessionId};
use polymeter_service::clock::Clock;
use polymeter_store::{AnswerRow, ControlRequest, NewControlRequest, StoredJobNode};
use serde_json::Value;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;
use tracing::warn;

use super::agent_requests::AgentRequests;
use super::demands::Demands;
use super::gathering::{Gathering, gather};
use super::pending_requests::{self, is_final, is_lasting, lease_end};
use super::permission::{may, unknown_job};
use super::request_store::RequestStore;
use super::targets::{Target, one_reachable, targets};
use crate::agents::{AgentDirectory, AgentInfo, JobNode};
use crate::limits;
use crate::other_collectors::OtherCollectors;

#[derive(Debug)]
pub(super) struct JobRequests {
    pub(super) directory: AgentDirectory,
    pub(super) requests: Arc<AgentRequests>,
    pub(super) demands: Arc<Demands>,
    pub(super) store: RequestStore,
    pub(super) others: OtherCollectors,
    pub(super) clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Lock per job for requests that change its sampling. Without it, an agent could receive a late request
    /// after the next one.
    turns: HashMap<Identifier, Weak<AsyncMutex<()>>>,
    /// Jobs with stored requests that agents may not have received, each with the time until which there may
    /// be some.
    pub(super) pending_jobs: HashMap<Identifier, i64>,
    pub(super) found: i64,
    /// Last forwarded request of each job, if that is greater than `found`.
    pub(super) forwarded: HashMap<Identifier, i64>,
    /// Requests that could not be stored yet, each with the sessions that have answered.
    pub(super) unstored: Vec<(NewControlRequest, Vec<AnswerRow>)>,
}

impl JobRequests {
    pub(super) fn new(
        (directory, requests, demands): (AgentDirectory, Arc<AgentRequests>, Arc<Demands>),
        store: RequestStore,
        others: OtherCollectors,
        clock: Clock,
    ) -> Self {
        Self { directory, requests, demands, store, others, clock, state: Mutex::default() }
    }

    pub(super) async fn ask(
        self: &Arc<Self>,
        uid: u32,
        request: RoutedRequest,
    ) -> Result<JobAnswer, Refusal> {
        let stored = self.stored_nodes(&request).await;
        let own = self.own_nodes(&request);
        let targets = targets(uid, own, stored, self.store.collector_id());
        if targets.is_empty() {
            return Err(unknown_job(uid, &request.job));
        }
        match request.remote {
            Remote::Immediate | Remote::ImmediateOrEnded => {
                let mut answer = self.ask_at_once(uid, &request, &targets).await;
                if request.verb == PlanRequest::NAME {
                    answer.nodes.extend(self.demands.plans(&request.job));
                }
                return Ok(answer);
            }
            Remote::OneNode => return Ok(self.ask_at_once(uid, &request, one_reachable(&targets)).await),
            Remote::Refused
            | Remote::CollectorOnly
            | Remote::GrantsLeases
            | Remote::EndsLeases
            | Remote::AddsTrigger
            | Remote::RemovesTrigger => {}
        }
        let turn = self.turn(&request.job);
        let _turn = turn.lock().await;
        Ok(self.ask_in_turn(uid, request, &targets).await)
    }

    /// Nodes of the job of a request whose agents send to this collector.
    pub(super) fn own_nodes(&self, request: &RoutedRequest) -> Vec<JobNode> {
        match request.remote {
            Remote::ImmediateOrEnded => self.directory.nodes_of_ended(&request.job),
            Remote::Refused
            | Remote::CollectorOnly
            | Remote::Immediate
            | Remote::OneNode
            | Remote::GrantsLeases
            | Remote::EndsLeases
            | Remote::AddsTrigger
            | Remote::RemovesTrigger => self.directory.nodes_of(&request.job),
        }
    }

    /// Another collector of the store has run a short time ago.
    fn are_others(&self) -> bool {
        self.others.ran_within(limits::SESSION_TIMEOUT, self.clock.now().since_start)
    }

    async fn stored_nodes(&self, request: &RoutedRequest) -> Vec<StoredJobNode> {
        let (job, may_have_ended) = (&request.job, request.remote == Remote::ImmediateOrEnded);
        if !self.are_others() {
            return Vec::new();
        }
        self.store.job_nodes(job.to_string(), may_have_ended).await.unwrap_or_else(|| {
            warn!(%job, "cannot find the nodes of a job at other collectors: the store does not answer");
            Vec::new()
        })
    }

    /// Sends a request without a lasting effect. It is stored only if other collectors must forward it.
    async fn ask_at_once(&self, uid: u32, request: &RoutedRequest, targets: &[Target]) -> JobAnswer {
        let at_us = self.clock.now().wall_us;
        let number = if targets.iter().any(|target| target.other.is_some()) {
            let new = self.new_request(uid, request, at_us, targets);
            self.store.take(new).await.map(|taken| taken.number)
        } else {
            None
        };
        let answers = self.send(uid, at_us, request, targets, number).await;
        if let Some(number) = number {
            self.store.remove(number);
        }
        answer(request, None, targets, answers)
    }

    async fn ask_in_turn(
        self: &Arc<Self>,
        uid: u32,
        request: RoutedRequest,
        targets: &[Target],
    ) -> JobAnswer {
        let are_others = targets.iter().any(|target| target.other.is_some());
        let delay_us = if are_others { limits::SHARED_EFFECT_DELAY_US } else { limits::EFFECT_DELAY_US };
        let at_us = self.clock.now().wall_us + delay_us;
        let new = self.new_request(uid, &request, at_us, targets);
        self.expect(&request.job, new.request.expires_us.max(at_us.saturating_add(limits::PENDING_US)));
        // A slow store delays a request only as long as it can take effect in time.
        let (store, stored) = (self.store.clone(), new.clone());
        let mut storing = tokio::spawn(async move { store.take(stored).await });
        let early = timeout(limits::STORE_PATIENCE, &mut storing).await.ok();
        let is_stored = early.is_some();
        let taken = early.and_then(Result::ok).flatten();
        let at_us = taken.map_or(at_us, |taken| taken.at_us);
        if let Some(taken) = taken.filter(|_| self.store.is_shared()) {
            self.forward_earlier(&request.job, taken.number).await;
        }
        let answers = self.send(uid, at_us, &request, targets, taken.map(|taken| taken.number)).await;
        let taken = if is_stored { taken } else { storing.await.ok().flatten() };
        let given = final_answers(targets, &answers);
        match taken {
            Some(taken) => {
                // Recorded before the user reads which nodes have not answered.
                let until_us = lease_end(&request, at_us, &answers);
                self.store.answer(taken.number, given, None).await;
                self.store.settle(taken.number, expiry(&request, at_us, until_us)).await;
            }
            None => self.keep_unstored(new, given),
        }
        self.catch_up_connected(&request.job, targets);
        let mut answer = answer(&request, Some(at_us), targets, answers);
        let may_end_demands = request.remote == Remote::EndsLeases && self.demands.has(&request.job);
        if request.wants_devices() || may_end_demands {
            let own: Vec<JobNode> = targets.iter().filter_map(|target| target.own.clone()).collect();
            let is_alone = !self.are_others();
            answer.nodes.extend(self.demands.settle(&own, &request.job, is_alone).await);
        }
        answer
    }

    fn new_request(
        &self,
        uid: u32,
        request: &RoutedRequest,
        at_us: i64,
        targets: &[Target],
    ) -> NewControlRequest {
        let is_lasting = is_lasting(request.remote);
        let answers_us = i64::try_from(limits::ANSWERS_TIMEOUT.as_micros()).unwrap_or(i64::MAX);
        NewControlRequest {
            request_id: self.store.request_id(),
            request: ControlRequest {
                collector_id: self.store.collector_id().to_owned(),
                job_id: request.job.to_string(),
                uid,
                line: request.line.as_str().to_owned(),
                is_lasting,
                at_us,
                expires_us: if is_lasting {
                    pending_requests::first_expiry(request, at_us)
                } else {
                    at_us.saturating_add(answers_us)
                },
            },
            wanted: targets.iter().filter_map(|target| target.other.clone()).collect(),
        }
    }

    /// Asks the agents of this collector. Returns their answers and those that other collectors store.
    async fn send(
        &self,
        uid: u32,
        at_us: i64,
        request: &RoutedRequest,
        targets: &[Target],
        number: Option<i64>,
    ) -> Vec<Option<Value>> {
        let own: Vec<JobNode> = targets.iter().filter_map(|target| target.own.clone()).collect();
        let patience = self.requests.patience(at_us);
        let replies = self.requests.start(&own, uid, at_us, &request.line);
        gather(targets, replies, number.map(|number| (number, &self.store)), patience).await
    }

    pub(super) fn turn(&self, job: &Identifier) -> Arc<AsyncMutex<()>> {
        let mut state = self.lock();
        state.turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = state.turns.get(job).and_then(Weak::upgrade).unwrap_or_default();
        state.turns.insert(job.clone(), Arc::downgrade(&turn));
        turn
    }

    /// The store may have requests for agents that connect until a time, in microseconds since the epoch.
    pub(super) fn expect(&self, job: &Identifier, until_us: i64) {
        let mut state = self.lock();
        let until = state.pending_jobs.entry(job.clone()).or_insert(until_us);
        *until = until_us.max(*until);
        while state.pending_jobs.len() > limits::PENDING_REQUESTS {
            let first = state.pending_jobs.iter().min_by_key(|(_, until_us)| **until_us);
            let Some(first) = first.map(|(job, _)| job.clone()) else { break };
            state.pending_jobs.remove(&first);
        }
    }

    fn keep_unstored(&self, new: NewControlRequest, answers: Vec<AnswerRow>) {
        let effect = "until it can be stored, only agents of this collector have received it";
        warn!(job = %new.request.job_id, effect, "cannot store a request");
        let mut state = self.lock();
        if state.unstored.len() < limits::UNSTORED_REQUESTS {
            state.unstored.push((new, answers));
        }
    }

    pub(super) fn sessions_connected(self: &Arc<Self>, sessions: Vec<AgentInfo>) {
        for agent in sessions {
            for (job, owner_uid) in agent.jobs {
                let (node, session, peer) = (agent.node.clone(), agent.session, agent.peer.clone());
                self.catch_up(&job, JobNode { node, session, peer, owner_uid });
            }
        }
    }

    fn catch_up_connected(self: &Arc<Self>, job: &Identifier, asked: &[Target]) {
        let asked: HashSet<SessionId> =
            asked.iter().filter_map(|target| Some(target.own.as_ref()?.session)).collect();
        for node in self.directory.nodes_of(job).into_iter().filter(|node| !asked.contains(&node.session)) {
            self.catch_up(job, node);
        }
    }

    /// Sends the stored requests about a job to a session that has not answered them.
    pub(super) fn catch_up(self: &Arc<Self>, job: &Identifier, node: JobNode) {
        let now_us = self.clock.now().wall_us;
        if self.lock().pending_jobs.get(job).is_none_or(|until_us| *until_us <= now_us) {
            return;
        }
        let (requests, job) = (Arc::clone(self), job.clone());
        tokio::spawn(async move {
            let turn = requests.turn(&job);
            let _turn = turn.lock().await;
            let unanswered = requests.store.unanswered(job.to_string(), node.session).await;
            for stored in unanswered.unwrap_or_default() {
                let Ok(request) = RoutedRequest::parse(stored.request.line.as_bytes()) else { continue };
                if !may(stored.request.uid, &node) {
                    continue;
                }
                let nodes = std::slice::from_ref(&node);
                let answers = requests
                    .requests
                    .send(nodes, stored.request.uid, stored.request.at_us, &request.line)
                    .await;
                let Some(answer) = answers.into_iter().flatten().find(is_final) else {
                    // The agent has disconnected again. It receives the request when it reconnects.
                    return;
                };
                let until_us = pending_requests::granted_until(&answer);
                let answer = answer_row(&node, None, true);
                requests.store.answer(stored.number, vec![answer], until_us).await;
            }
        });
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent at every point where a panic could occur.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn answer_row(node: &JobNode, answer: Option<String>, is_final: bool) -> AnswerRow {
    AnswerRow { session: node.session, node: node.node.to_string(), answer, is_final }
}

/// Final answers of this collector's agents. Their texts are not needed in the store. An agent that answered
/// through another collector meanwhile has the same session.
fn final_answers(targets: &[Target], answers: &[Option<Value>]) -> Vec<AnswerRow> {
    targets
        .iter()
        .zip(answers)
        .filter_map(|(target, answer)| {
            let is_given = answer.as_ref().is_some_and(is_final);
            target.own.as_ref().filter(|_| is_given).map(|own| answer_row(own, None, true))
        })
        .collect()
}

/// Time until which a request stays stored, once all answers that came in time are known; none if that does
/// not change.
fn expiry(request: &RoutedRequest, at_us: i64, until_us: Option<i64>) -> Option<i64> {
    let least_us = at_us.saturating_add(limits::FORWARD_US);
    matches!(request.remote, Remote::GrantsLeases | Remote::AddsTrigger)
        .then(|| until_us.map_or(least_us, |until_us| until_us.max(least_us)))
}

fn answer(request: &RoutedRequest, at_us: Option<i64>, targets: &[Target], answers: Gathering) -> JobAnswer {
    let nodes = targets.iter().zip(answers);
    let nodes = nodes.map(|(target, answer)| NodeAnswer { node: target.node.clone(), answer });
    JobAnswer { job: request.job.to_string(), at_us, nodes: nodes.collect() }
}
