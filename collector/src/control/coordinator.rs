//! Entry to control: executes the requests of users, and limits those of each user.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polymeter_api::TokenService;
use polymeter_proto::control::{
    CollectorAnswer, JobAnswer, NoticesRequest, Refusal, RoutedRequest, StateRequest, TokenList,
    TokenRequest, UNASKED,
};
use polymeter_service::clock::{self, Clock};
use polymeter_store::accepted::StoredOutcome;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::agent_requests::AgentRequests;
use super::clock_probe::ClockProbe;
use super::demands::Demands;
use super::job_requests::JobRequests;
use super::node_outcome::{OutcomeReport, OutcomeSender, outcome_of};
use super::notice_choices::NoticeChoiceService;
use super::permission::ROOT;
use super::request_store::RequestStore;
use crate::agents::{AgentDirectory, AgentInfo};
use crate::limits;
use crate::other_collectors::OtherCollectors;
use crate::queues::OutgoingSender;
use crate::session_messages::AgentAnswer;

/// Shared by all listeners.
#[derive(Debug)]
pub(super) struct Coordinator {
    directory: AgentDirectory,
    requests: Arc<AgentRequests>,
    clock: Clock,
    outcomes: OutcomeSender,
    jobs: Arc<JobRequests>,
    /// User who may report final states of jobs, besides root.
    scheduler_uid: Option<u32>,
    tokens: TokenService,
    notices: NoticeChoiceService,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Users' requests that are being executed, by user.
    busy: HashMap<u32, usize>,
}

/// Request in execution. Dropping it releases its place.
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
        (directory, receiver, outcomes, others): (
            AgentDirectory,
            OutgoingSender,
            OutcomeSender,
            OtherCollectors,
        ),
        clock: Clock,
        store: RequestStore,
        scheduler_uid: Option<u32>,
        tokens: TokenService,
        notices: NoticeChoiceService,
    ) -> Self {
        let requests = Arc::new(AgentRequests::new(receiver, clock));
        let demands = Arc::new(Demands::new(Arc::clone(&requests), directory.clone(), clock));
        let parts = (directory.clone(), Arc::clone(&requests), demands);
        let jobs = Arc::new(JobRequests::new(parts, store, others, clock));
        let state = Mutex::default();
        Self { directory, requests, clock, outcomes, jobs, scheduler_uid, tokens, notices, state }
    }

    pub(super) fn clock_probe(&self) -> ClockProbe {
        let (requests, demands) = (Arc::clone(&self.requests), Arc::clone(self.demands()));
        ClockProbe { requests, demands, directory: self.directory.clone(), clock: self.clock }
    }

    pub(super) async fn answer(&self, uid: u32, line: &[u8]) -> CollectorAnswer {
        if let Some(request) = StateRequest::parse(line) {
            let stored = self.store_state(uid, request).await;
            return stored.map_or_else(CollectorAnswer::Refused, |()| CollectorAnswer::Done {});
        }
        if let Some(request) = NoticesRequest::parse(line) {
            return self.choose_notices(uid, request).await.unwrap_or_else(CollectorAnswer::Refused);
        }
        if let Some(request) = TokenRequest::parse(line) {
            let tokens = self.execute_token_request(uid, request).await;
            return tokens.map_or_else(CollectorAnswer::Refused, CollectorAnswer::Tokens);
        }
        self.ask(uid, line).await.map_or_else(CollectorAnswer::Refused, CollectorAnswer::Nodes)
    }

    async fn choose_notices(
        &self,
        uid: u32,
        request: Result<NoticesRequest, Refusal>,
    ) -> Result<CollectorAnswer, Refusal> {
        let request = request?;
        let _busy = self.begin(uid)?;
        self.notices.execute(uid, request).await
    }

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
        let job = outcome.job_id.clone();
        let (reply, stored) = oneshot::channel();
        self.outcomes.try_send(OutcomeReport { outcome, reply }).map_err(|_full| {
            Refusal::new(
                "busy",
                None,
                "too many final states are waiting to be stored; try again in a moment",
            )
        })?;
        match timeout(limits::OUTCOME_TIMEOUT, stored).await {
            Ok(Ok(StoredOutcome::Stored)) => Ok(()),
            Ok(Ok(StoredOutcome::SeveralClusters(clusters))) => {
                let message = format!(
                    "cannot store the state of job {job}: there are jobs of this id on the clusters {}; name one \
                     with --cluster",
                    clusters.join(", ")
                );
                Err(Refusal::new("ambiguous", Some("cluster"), &message))
            }
            Ok(Ok(StoredOutcome::UnknownJob) | Err(_)) => {
                let message = format!("unknown job {job}: the store does not contain it yet");
                Err(Refusal::new("unknown_job", Some("job"), &message))
            }
            Err(_) => Err(Refusal::new("busy", None, "the store does not answer; try again in a moment")),
        }
    }

    async fn ask(&self, uid: u32, line: &[u8]) -> Result<JobAnswer, Refusal> {
        let now_us = self.clock.now().wall_us;
        // No other request to this collector has this time to the nanosecond.
        let request = RoutedRequest::parse_now(line, now_us, clock::realtime_ns() >> 1)?;
        let _busy = self.begin(uid)?;
        self.jobs.ask(uid, request).await
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

    pub(super) fn take_answer(&self, answer: AgentAnswer) {
        if answer.request == UNASKED {
            self.demands().take_unasked(&answer);
        } else {
            self.requests.take_answer(answer);
        }
    }

    pub(super) fn demands(&self) -> &Arc<Demands> {
        &self.jobs.demands
    }

    pub(super) fn jobs(&self) -> &Arc<JobRequests> {
        &self.jobs
    }

    /// Waits until sessions have connected or changed their jobs.
    pub(super) async fn changed_sessions(&self) -> Vec<AgentInfo> {
        self.directory.changed().await;
        self.directory.take_changes()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent at every point where a panic could occur.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
