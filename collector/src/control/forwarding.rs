//! Requests that other collectors took: they are found in the store, and forwarded to the agents of this
//! collector.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_proto::control::RoutedRequest;
use polymeter_proto::series::Identifier;
use polymeter_store::{AnsweringSession, StoredControlRequest};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::warn;

use super::agent_requests::Replies;
use super::answer_budget::AnswerBudget;
use super::job_requests::{JobRequests, answer_row};
use super::pending_requests::{granted_until, is_final};
use super::permission::may;
use crate::agents::JobNode;
use crate::limits;

struct Forwarded {
    number: i64,
    nodes: Vec<JobNode>,
    replies: Replies,
    at_us: i64,
}

impl JobRequests {
    /// Returns false if the store does not answer.
    pub(super) async fn find_requests(self: &Arc<Self>) -> bool {
        loop {
            let found = self.lock().found;
            let Some(stored) = self.store.after(found).await else { return false };
            let Some(last) = stored.last().map(|last| last.number) else { return true };
            {
                let mut state = self.lock();
                state.found = last.max(state.found);
            }
            let mut by_job: BTreeMap<Identifier, Vec<(StoredControlRequest, RoutedRequest)>> =
                BTreeMap::new();
            for stored in stored {
                if self.take_shared(&stored) {
                    continue;
                }
                let Ok(request) = RoutedRequest::parse(stored.request.line.as_bytes()) else {
                    warn!(
                        number = stored.number,
                        "cannot parse a stored request; compare the versions of the collectors"
                    );
                    continue;
                };
                if stored.request.is_lasting {
                    self.expect(
                        &request.job,
                        stored
                            .request
                            .expires_us
                            .max(stored.request.at_us.saturating_add(limits::PENDING_US)),
                    );
                }
                if stored.request.collector_id != self.store.collector_id() {
                    by_job.entry(request.job.clone()).or_default().push((stored, request));
                }
            }
            for (job, requests) in by_job {
                let this = Arc::clone(self);
                tokio::spawn(async move { this.forward_in_turn(job, requests).await });
            }
        }
    }

    /// Keeps the order of the requests, after those that are in progress.
    async fn forward_in_turn(
        self: &Arc<Self>,
        job: Identifier,
        requests: Vec<(StoredControlRequest, RoutedRequest)>,
    ) {
        let turn = self.turn(&job);
        let _turn = turn.lock().await;
        for (stored, request) in requests {
            if self.set_forwarded(&job, stored.number)
                && let Some(forwarded) = self.forward(&stored, &request).await
            {
                self.record(forwarded).await;
            }
        }
    }

    /// Sends the requests about a job that other collectors took before request `number`. The caller has the
    /// turn.
    pub(super) async fn forward_earlier(self: &Arc<Self>, job: &Identifier, number: i64) {
        let found = self.lock().found;
        for stored in self.store.after(found).await.unwrap_or_default() {
            let is_earlier =
                stored.number < number && stored.request.collector_id != self.store.collector_id();
            let Ok(request) = RoutedRequest::parse(stored.request.line.as_bytes()) else { continue };
            if !is_earlier || request.job != *job || !self.set_forwarded(job, stored.number) {
                continue;
            }
            if let Some(forwarded) = self.forward(&stored, &request).await {
                let this = Arc::clone(self);
                tokio::spawn(async move { this.record(forwarded).await });
            }
        }
    }

    /// Returns false if the request was forwarded before.
    fn set_forwarded(&self, job: &Identifier, number: i64) -> bool {
        let mut state = self.lock();
        let is_new = state.forwarded.get(job).is_none_or(|last| *last < number);
        if is_new {
            state.forwarded.insert(job.clone(), number);
        }
        if state.forwarded.len() > limits::PENDING_REQUESTS {
            // Those that were found long ago are not found again.
            let kept = i64::try_from(limits::PENDING_REQUESTS).unwrap_or(i64::MAX);
            let oldest = state.found.saturating_sub(kept);
            state.forwarded.retain(|_, number| *number > oldest);
        }
        is_new
    }

    /// Sends a request to those agents of this collector that it may reach; none if there are none.
    async fn forward(&self, stored: &StoredControlRequest, request: &RoutedRequest) -> Option<Forwarded> {
        let mut nodes = self.own_nodes(request);
        // The agent's own report of the owner decides.
        nodes.retain(|node| may(stored.request.uid, node));
        if nodes.is_empty() {
            return None;
        }
        let session =
            |node: &JobNode| AnsweringSession { session: node.session, node: node.node.to_string() };
        let sessions = nodes.iter().map(session).collect();
        match self.store.claim(stored.number, sessions, stored.request.is_lasting).await {
            Some(claimed) => nodes.retain(|node| claimed.contains(&node.session)),
            // A lasting request may be repeated; another one must not.
            None if stored.request.is_lasting => {}
            None => return None,
        }
        let replies = self.requests.start(&nodes, stored.request.uid, stored.request.at_us, &request.line);
        (!nodes.is_empty()).then_some(Forwarded {
            number: stored.number,
            nodes,
            replies,
            at_us: stored.request.at_us,
        })
    }

    async fn record(&self, forwarded: Forwarded) {
        let Forwarded { number, nodes, mut replies, at_us } = forwarded;
        let mut budget = AnswerBudget::new(limits::JOB_ANSWER_BYTES);
        let mut rows = Vec::new();
        let mut until_us = None;
        let mut flushes = interval(limits::ANSWERS_POLL);
        flushes.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut left = nodes.len();
        let gather = async {
            while left > 0 || !rows.is_empty() {
                tokio::select! {
                    Some((position, line)) = replies.next(), if left > 0 => {
                        left -= 1;
                        let Some(node) = nodes.get(position) else { continue };
                        let answer = budget.take(&line);
                        until_us = until_us.max(granted_until(&answer));
                        rows.push(answer_row(node, Some(answer.to_string()), is_final(&answer)));
                    }
                    _ = flushes.tick() => {
                        self.store.answer(number, std::mem::take(&mut rows), until_us).await;
                    }
                }
            }
        };
        timeout(self.requests.patience(at_us), gather).await.ok();
        self.store.answer(number, rows, until_us).await;
    }
}
