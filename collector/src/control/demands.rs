//! Demands of jobs on devices outside the nodes, which other agents poll.
//!
//! ```text
//! agent of a job's node --report--> Demands --demand, every 30 s--> agent of the devices
//! agent of the devices --report (the nodes that they serve)--^
//! ```
//!
//! Users ask the agents of their jobs, as for any lease: with `set` on any way, at submission, by a trigger.
//! These agents report what is asked at present, so that an agent or a collector that begins anew knows it
//! from the next report. What an agent of devices is asked for ends by itself if it is not repeated.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polymeter_proto::control::{
    Answer, DemandRequest, DeviceReport, NodeAnswer, PlanAnswer, PlanLine, Refusal, RefusedLine, Request,
    TimeAnswer, TimeRequest,
};
use polymeter_proto::ledger::Cause;
use polymeter_proto::period::Period;
use polymeter_proto::series::{Identifier, SessionId};
use polymeter_proto::text::abridged_list;
use polymeter_proto::wire::control::ControlLine;
use polymeter_service::clock::{Clock, Now};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;

use super::agent_requests::{AT_ONCE_US, AgentRequests};
use super::demand_table::{Demand, DemandKey, JobOwner, by_job, demands, reported};
use super::permission::ROOT;
use crate::agents::{AgentDirectory, AgentInfo, JobNode};
use crate::limits;
use crate::session_messages::AgentAnswer;

/// Nodes that a refusal names.
const NAMED: usize = 3;

#[derive(Debug)]
pub(super) struct Demands {
    requests: Arc<AgentRequests>,
    directory: AgentDirectory,
    clock: Clock,
    changed: Notify,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Newest report of each connected session that has anything to do with devices.
    reports: HashMap<SessionId, DeviceReport>,
    asked: BTreeMap<DemandKey, Asked>,
    /// Demands of jobs on nodes of other collectors, by the collector.
    elsewhere: HashMap<(String, JobOwner), Demand>,
    /// Demands stored for other collectors, each with the time since the start at which it is stored again.
    shared: BTreeMap<JobOwner, (Demand, Duration)>,
}

/// Demand that an agent of devices has been sent.
#[derive(Debug)]
struct Asked {
    demand: Demand,
    agent: JobNode,
    /// Time since the start at which it is sent again.
    repeat_at: Duration,
    is_answered: bool,
    answer: Option<Value>,
}

/// Demand to send; an empty one ends an earlier one.
type Due = (DemandKey, JobNode, Demand);

/// Request for the time, and for the report about devices.
pub(super) fn time_request() -> Option<ControlLine> {
    let version = Some(env!("CARGO_PKG_VERSION").to_owned());
    line(&Request::Time(TimeRequest { collector_version: version }))
}

fn line(request: &Request) -> Option<ControlLine> {
    ControlLine::try_from(serde_json::to_string(request).ok()?).ok()
}

/// Request for an agent of devices; a long demand is repeated before the request ends.
pub(super) fn demand_line(job: &Identifier, demand: &Demand, now_us: i64) -> Option<ControlLine> {
    let left_us = u64::try_from(demand.until_us.saturating_sub(now_us)).unwrap_or_default();
    let longest_us = u64::try_from(limits::DEMAND_TIME.as_micros()).unwrap_or(u64::MAX);
    line(&Request::Demand(DemandRequest {
        job: job.to_string(),
        nodes: demand.nodes.iter().cloned().collect(),
        plan: demand.plan_fields(),
        duration: Period::from_micros(left_us.min(longest_us)).ok().map(|lasts| lasts.to_string()),
    }))
}

impl Demands {
    pub(super) fn new(requests: Arc<AgentRequests>, directory: AgentDirectory, clock: Clock) -> Self {
        Self { requests, directory, clock, changed: Notify::new(), state: Mutex::default() }
    }

    /// Sends what is due until the runtime ends.
    pub(super) async fn run(self: Arc<Self>) {
        loop {
            // Without a report, leases and jobs end, and requests are repeated.
            timeout(limits::CLOCK_TICK, self.changed.notified()).await.ok();
            self.update();
            // The agents of a job report at the same time.
            sleep(limits::ANSWERS_POLL).await;
        }
    }

    /// Takes the report in an agent's answer to `time`, if it is one.
    pub(super) fn take_report(&self, session: SessionId, answer: Value) {
        let Ok(Answer::Time(TimeAnswer { devices, .. })) = serde_json::from_value(answer) else { return };
        let mut state = self.lock();
        if state.reports.get(&session).is_none_or(|known| *known != devices) {
            state.reports.insert(session, devices);
            self.changed.notify_one();
        }
        state.reports.retain(|_, report| !report.is_empty());
    }

    /// Takes a report that an agent sends unasked.
    pub(super) fn take_unasked(&self, AgentAnswer { peer, session, line, .. }: &AgentAnswer) {
        if self.directory.is_connected(*session, peer)
            && let Ok(answer) = serde_json::from_str(line.as_str())
        {
            self.take_report(*session, answer);
        }
    }

    fn update(self: &Arc<Self>) {
        let now = self.clock.now();
        let mut state = self.lock();
        if state.reports.is_empty() && state.asked.is_empty() && state.elsewhere.is_empty() {
            return;
        }
        let due = state.due(&self.directory.connected(now.wall_us), now);
        drop(state);
        for (key, agent, demand) in due {
            tokio::spawn(Arc::clone(self).send(key, agent, demand));
        }
    }

    async fn send(self: Arc<Self>, key: DemandKey, agent: JobNode, demand: Demand) {
        let Some(line) = demand_line(&key.owner.job, &demand, self.clock.now().wall_us) else { return };
        let nodes = std::slice::from_ref(&agent);
        let answers = self.requests.send(nodes, key.owner.uid, AT_ONCE_US, &line).await;
        self.lock().note(&key, &demand, answers.into_iter().next().flatten(), self.clock.now());
    }

    /// Learns what these nodes of a job ask for, and passes it on. Returns the answers of the agents of
    /// devices, which end when the job's leases do; a refusal where no device serves the job, if the collector
    /// `is_alone`.
    pub(super) async fn settle(
        self: &Arc<Self>,
        nodes: &[JobNode],
        job: &Identifier,
        is_alone: bool,
    ) -> Vec<NodeAnswer> {
        let Some(line) = time_request() else { return Vec::new() };
        let reports = self.requests.send(nodes, ROOT, AT_ONCE_US, &line).await;
        for (node, report) in nodes.iter().zip(reports) {
            if let Some(report) = report {
                self.take_report(node.session, report);
            }
        }
        self.update();
        let over = Instant::now() + limits::ANSWERS_TIMEOUT;
        while self.lock().is_waiting(job) && Instant::now() < over {
            sleep(limits::ANSWERS_POLL / 4).await;
        }
        let answers = self.lock().answers(job);
        if is_alone && answers.is_empty() { self.lock().unserved(nodes, job) } else { answers }
    }

    /// Takes what a job on nodes of another collector asks for; an empty demand ends an earlier one.
    pub(super) fn take_elsewhere(&self, collector_id: &str, owner: JobOwner, demand: Demand) {
        self.lock().elsewhere.insert((collector_id.to_owned(), owner), demand);
        self.changed.notify_one();
    }

    /// Returns what other collectors must know of the demands of jobs on the nodes of this one.
    pub(super) fn share(&self, now: Now) -> Vec<(JobOwner, Demand)> {
        let mut state = self.lock();
        if state.shared.is_empty() && state.reports.values().all(|report| report.demands.is_empty()) {
            return Vec::new();
        }
        state.share(&self.directory.connected(now.wall_us), now)
    }

    pub(super) fn has(&self, job: &Identifier) -> bool {
        self.lock().of_job(job).next().is_some()
    }

    /// Returns the metrics that agents of devices sample for a job, as answers to `plan`.
    pub(super) fn plans(&self, job: &Identifier) -> Vec<NodeAnswer> {
        let state = self.lock();
        let plans = state.of_job(job).filter_map(|(key, asked)| {
            let plan = Answer::Plan(asked.plan(key)?);
            Some(NodeAnswer { node: asked.agent.node.to_string(), answer: serde_json::to_value(plan).ok() })
        });
        plans.collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent at every point where a panic could occur.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Demands that are new, have changed, have ended or must be repeated.
    fn due(&mut self, agents: &[AgentInfo], now: Now) -> Vec<Due> {
        let sessions: HashSet<SessionId> = agents.iter().map(|agent| agent.session).collect();
        self.reports.retain(|session, _| sessions.contains(session));
        self.elsewhere.retain(|_, demand| demand.until_us > now.wall_us && !demand.plan.is_empty());
        let own = reported(&self.reports, agents, now.wall_us);
        let own = own.iter().map(|(owner, demand)| (owner, demand));
        let others = self.elsewhere.iter().map(|((_, owner), demand)| (owner, demand));
        let demands = demands(own.chain(others), &self.reports, agents);
        let mut due = Vec::new();
        self.asked.retain(|key, asked| {
            let lasts = demands.contains_key(key);
            if !lasts && sessions.contains(&key.session) {
                due.push((key.clone(), asked.agent.clone(), Demand::default()));
            }
            lasts
        });
        for (key, demand) in demands {
            let asked = self.asked.get_mut(&key);
            let is_new = asked.as_ref().is_none_or(|asked| asked.demand.differs(&demand));
            if let Some(asked) = asked.filter(|asked| !is_new && now.since_start < asked.repeat_at) {
                asked.demand.until_us = demand.until_us;
                continue;
            }
            let Some(agent) = agents.iter().find(|agent| agent.session == key.session) else { continue };
            let agent = agent.node_with(None);
            due.push((key.clone(), agent.clone(), demand.clone()));
            let repeat_at = now.since_start + limits::DEMAND_INTERVAL;
            let former = self.asked.remove(&key).filter(|_| !is_new);
            let (is_answered, answer) =
                former.map_or((false, None), |asked| (asked.is_answered, asked.answer));
            self.asked.insert(key, Asked { demand, agent, repeat_at, is_answered, answer });
        }
        due
    }

    fn share(&mut self, agents: &[AgentInfo], now: Now) -> Vec<(JobOwner, Demand)> {
        let demands = by_job(reported(&self.reports, agents, now.wall_us));
        let mut due = Vec::new();
        self.shared.retain(|owner, _| {
            let lasts = demands.contains_key(owner);
            if !lasts {
                due.push((owner.clone(), Demand::default()));
            }
            lasts
        });
        for (owner, demand) in demands {
            let known = self.shared.get(&owner);
            if known.is_none_or(|(known, at)| known.differs(&demand) || now.since_start >= *at) {
                due.push((owner.clone(), demand.clone()));
                self.shared.insert(owner, (demand, now.since_start + limits::DEMAND_INTERVAL));
            }
        }
        due
    }

    fn note(&mut self, key: &DemandKey, demand: &Demand, answer: Option<Value>, now: Now) {
        let Some(asked) = self.asked.get_mut(key).filter(|asked| !asked.demand.differs(demand)) else {
            return;
        };
        if word(answer.as_ref(), "answer") != Some("granted") {
            asked.repeat_at = asked.repeat_at.min(now.since_start + limits::DEMAND_RETRY);
            let reason = word(answer.as_ref(), "message").unwrap_or("no answer");
            if !asked.is_answered || word(asked.answer.as_ref(), "message") != Some(reason) {
                warn!(job = %key.owner.job, agent = %asked.agent.node, reason, "cannot sample devices for a job");
            }
        }
        (asked.is_answered, asked.answer) = (true, answer);
    }

    fn of_job(&self, job: &Identifier) -> impl Iterator<Item = (&DemandKey, &Asked)> {
        self.asked.iter().filter(move |(key, _)| key.owner.job == *job)
    }

    fn is_waiting(&self, job: &Identifier) -> bool {
        self.of_job(job).any(|(_, asked)| !asked.is_answered)
    }

    fn answers(&self, job: &Identifier) -> Vec<NodeAnswer> {
        self.of_job(job).map(|(_, asked)| asked.answer()).collect()
    }

    /// Refusal of what nodes of a job ask for.
    fn unserved(&self, nodes: &[JobNode], job: &Identifier) -> Vec<NodeAnswer> {
        let asks = |node: &&JobNode| {
            let report = self.reports.get(&node.session);
            report.is_some_and(|report| report.demands.iter().any(|demand| demand.job == job.as_str()))
        };
        let asking: Vec<String> = nodes.iter().filter(asks).map(|node| node.node.to_string()).collect();
        if asking.is_empty() {
            return Vec::new();
        }
        let message = format!(
            "no agent of this collector polls a device that serves {}; an administrator can map outlets and ports to nodes (`nodes` of [[device]])",
            abridged_list(&asking, NAMED)
        );
        let refused = Answer::Refused(Refusal::new("unavailable", Some("plan"), &message));
        vec![NodeAnswer { node: "devices".to_owned(), answer: serde_json::to_value(refused).ok() }]
    }
}

fn word<'a>(answer: Option<&'a Value>, field: &str) -> Option<&'a str> {
    answer?.get(field)?.as_str()
}

impl Asked {
    fn answer(&self) -> NodeAnswer {
        let mut answer = self.answer.clone();
        if let Some(until_us) = answer.as_mut().and_then(|answer| answer.get_mut("until_us")) {
            *until_us = self.demand.until_us.into();
        }
        NodeAnswer { node: self.agent.node.to_string(), answer }
    }

    fn plan(&self, key: &DemandKey) -> Option<PlanAnswer> {
        let mut answer = PlanAnswer { plan: Vec::new(), unavailable: Vec::new(), refused: Vec::new() };
        match serde_json::from_value(self.answer.clone()?) {
            Ok(Answer::Granted(mut granted)) => {
                for (metric, period) in granted.metrics {
                    answer.plan.push(PlanLine {
                        level: None,
                        period,
                        cause: Cause::Lease.as_str().to_owned(),
                        actor: Some(format!("uid {}", key.owner.uid)),
                        until_us: Some(self.demand.until_us),
                        requested: None,
                        reason: granted.reasons.remove(&metric),
                        input_of: Vec::new(),
                        metric,
                    });
                }
            }
            Ok(Answer::Refused(refusal)) => {
                for (selector, sampling) in &self.demand.plan {
                    let (request, period) = (selector.clone(), Some(sampling.to_string()));
                    answer.refused.push(RefusedLine { request, period, reason: refusal.message.to_string() });
                }
            }
            Ok(_) | Err(_) => return None,
        }
        Some(answer)
    }
}
