//! Where requests about jobs are answered, whichever door they came through: finds the job's nodes, checks the right, asks
//! all agents with one common time, and gathers what they say.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use polymeter_proto::series::{Identifier, SessionId};
use polymeter_proto::wire::control::ControlLine;
use polymeter_proto::wire::message::ToAgent;
use serde_json::Value;
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot};
use tokio::time::timeout;

use super::CoordinatorLinks;
use super::answer::{Answer, Budget, JobAnswer, NodeAnswer, Refusal};
use super::outcome::{self, OutcomeSender, Told};
use super::pending_file::{self, PendingFile};
use super::pending_requests::{Again, Passed, PendingRequests};
use super::request::{self, Kind, Request};
use polymeter_service::clock::Clock;

use crate::agents::{AgentDirectory, AgentInfo, JobNode};
use crate::limits;
use crate::messages::{AgentAnswer, Outgoing, Peer};
use crate::queues::OutgoingSender;
use polymeter_store::accepted::JobOutcome;

/// Root, on this machine or by its credential.
const ROOT: u32 = 0;

/// The coordinator. One for all doors.
#[derive(Debug)]
pub(super) struct Coordinator {
    directory: AgentDirectory,
    receiver: OutgoingSender,
    clock: Clock,
    outcomes: OutcomeSender,
    /// Where what is pending outlives this process; none where it does not.
    pending_file: Option<PendingFile>,
    /// The user who may tell how jobs ended, beside root.
    scheduler_uid: Option<u32>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the next question to an agent.
    next_ask: u64,
    /// Questions that may still be answered.
    open: HashMap<u64, Open>,
    /// Requests that are being answered, by user.
    busy: HashMap<u32, usize>,
    /// Whose turn it is to change how a job is sampled. One after the other: else an agent that is told late of one
    /// change could hear of it behind the next.
    turns: HashMap<Identifier, Weak<AsyncMutex<()>>>,
    pending: PendingRequests,
}

/// A question to an agent.
#[derive(Debug)]
struct Open {
    peer: Peer,
    session: SessionId,
    /// Where the answer goes, and which of the places that were asked it is of.
    reply: mpsc::Sender<(usize, ControlLine)>,
    place: usize,
}

/// One request that is being answered; makes room when it is dropped.
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
        others: CoordinatorLinks,
        clock: Clock,
        pending_file: Option<PendingFile>,
        scheduler_uid: Option<u32>,
    ) -> Self {
        let CoordinatorLinks { directory, receiver, outcomes } = others;
        let pending = pending_file.as_ref().map(PendingFile::read).unwrap_or_default();
        let state = Mutex::new(State { pending, ..State::default() });
        Self { directory, receiver, clock, outcomes, pending_file, scheduler_uid, state }
    }

    /// The answer to one line from user `uid`.
    pub(super) async fn answer(self: &Arc<Self>, uid: u32, line: &[u8]) -> Answer {
        if let Some(outcome) = outcome::parse(line) {
            let told = self.tell(uid, outcome).await;
            return told.map_or_else(Answer::Refused, |()| Answer::Done {});
        }
        self.ask(uid, line).await.map_or_else(Answer::Refused, Answer::Nodes)
    }

    /// Has a writer store how a job ended.
    async fn tell(&self, uid: u32, outcome: Result<JobOutcome, Refusal>) -> Result<(), Refusal> {
        // First, so that nobody else learns anything from what follows.
        if uid != ROOT && self.scheduler_uid != Some(uid) {
            let message = "only root and the configured `scheduler_user` may tell the state of a job";
            return Err(Refusal::new("forbidden", Some("verb"), message));
        }
        let outcome = outcome?;
        let _busy = self.begin(uid)?;
        let unknown = format!("unknown job {}: the store has none of this id yet", outcome.job_id);
        let (reply, told) = oneshot::channel();
        let busy = |_| Refusal::new("busy", None, "too many states wait to be stored; try again in a moment");
        self.outcomes.try_send(Told { outcome, reply }).map_err(busy)?;
        match timeout(limits::OUTCOME_WITHIN, told).await {
            Ok(Ok(true)) => Ok(()),
            Ok(_) => Err(Refusal::new("unknown_job", Some("job"), &unknown)),
            Err(_) => Err(Refusal::new("busy", None, "the store does not answer; try again in a moment")),
        }
    }

    async fn ask(self: &Arc<Self>, uid: u32, line: &[u8]) -> Result<JobAnswer, Refusal> {
        let Request { job, kind, line } = request::parse(line)?;
        let _busy = self.begin(uid)?;
        let places = permitted(uid, &job, self.directory.nodes_of(&job))?;
        if kind == Kind::Once {
            let answers = self.ask_all(&places, uid, self.clock.now().wall_us, &line).await;
            return Ok(gathered(&job, None, &places, answers));
        }
        let turn = self.turn(&job);
        let _turn = turn.lock().await;
        let at_us = self.clock.now().wall_us + limits::EFFECT_AFTER_US;
        let answers = self.ask_all(&places, uid, at_us, &line).await;
        let told = places.iter().zip(&answers).filter(|(_, answer)| answer.as_ref().is_some_and(is_final));
        let told = told.map(|(place, _)| place.session).collect();
        let until_us = lease_end(&kind, at_us, &answers);
        self.remember(Passed { job: job.clone(), kind, uid, at_us, line, until_us, told }, &places);
        // Before anybody hears that it will reach those who are away.
        self.keep().await;
        Ok(gathered(&job, Some(at_us), &places, answers))
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
                "too many of your requests wait for answers; try again in a moment",
            ));
        }
        *busy += 1;
        Ok(Busy(self, uid))
    }

    /// Asks the agents at all places, and gives what each said in time.
    async fn ask_all(
        &self,
        places: &[JobNode],
        uid: u32,
        at_us: i64,
        line: &ControlLine,
    ) -> Vec<Option<Value>> {
        let (reply, mut replies) = mpsc::channel(places.len().max(1));
        let asks: Vec<u64> =
            (0..).zip(places).map(|(number, place)| self.open(number, place, &reply)).collect();
        drop(reply);
        for (ask, place) in asks.iter().zip(places) {
            let (session, ask, line) = (place.session, *ask, line.clone());
            let message = ToAgent::Ask { session, ask, uid, at_us, line };
            self.receiver.send(Outgoing::Message(place.peer.clone(), message));
        }
        let ahead_us = u64::try_from(at_us.saturating_sub(self.clock.now().wall_us)).unwrap_or(0);
        let patience = Duration::from_micros(ahead_us) + limits::ANSWERS_WITHIN;
        let mut answers = vec![None; places.len()];
        let mut budget = Budget::new(limits::JOB_ANSWER_BYTES);
        let gather = async {
            while let Some((number, line)) = replies.recv().await {
                if let Some(place) = answers.get_mut(number) {
                    *place = Some(budget.take(&line));
                }
            }
        };
        // Whoever has not answered by then has no answer; all that came is kept.
        timeout(patience, gather).await.ok();
        let mut state = self.lock();
        asks.iter().for_each(|ask| drop(state.open.remove(ask)));
        answers
    }

    fn open(&self, number: usize, place: &JobNode, reply: &mpsc::Sender<(usize, ControlLine)>) -> u64 {
        let mut state = self.lock();
        state.next_ask += 1;
        let ask = state.next_ask;
        let (peer, session) = (place.peer.clone(), place.session);
        state.open.insert(ask, Open { peer, session, reply: reply.clone(), place: number });
        ask
    }

    /// Takes an agent's answer. One to what was not asked, or was asked of somebody else, is nobody's.
    pub(super) fn hear(&self, AgentAnswer { peer, session, ask, line }: AgentAnswer) {
        let mut state = self.lock();
        let fits = state.open.get(&ask).is_some_and(|open| open.peer == peer && open.session == session);
        if let Some(open) = fits.then(|| state.open.remove(&ask)).flatten() {
            // There is a place in the queue for each question.
            open.reply.try_send((open.place, line)).ok();
        }
    }

    fn remember(self: &Arc<Self>, passed: Passed, asked: &[JobNode]) {
        let job = passed.job.clone();
        let now_us = self.clock.now().wall_us;
        self.lock().pending.add(passed, now_us);
        // Agents that came while the others were being asked.
        let asked: HashSet<_> = asked.iter().map(|place| place.session).collect();
        let came = |place: &JobNode| !asked.contains(&place.session);
        for place in self.directory.nodes_of(&job).into_iter().filter(came) {
            self.catch_up(job.clone(), place);
        }
    }

    /// Writes down what is pending, where it is to outlive this process.
    async fn keep(&self) {
        if let Some(pending_file) = &self.pending_file {
            pending_file.write(|| pending_file::text(&self.lock().pending)).await;
        }
    }

    /// Tells sessions that have come, or come again, what they missed.
    pub(super) fn welcome(self: &Arc<Self>, news: Vec<AgentInfo>) {
        for presence in news {
            for (job, owner_uid) in presence.jobs {
                let (node, session, peer) = (presence.node.clone(), presence.session, presence.peer.clone());
                self.catch_up(job, JobNode { node, session, peer, owner_uid });
            }
        }
    }

    fn catch_up(self: &Arc<Self>, job: Identifier, place: JobNode) {
        if self.missed(&job, &place).is_empty() {
            return;
        }
        let coordinator = Arc::clone(self);
        tokio::spawn(async move {
            let turn = coordinator.turn(&job);
            let _turn = turn.lock().await;
            for again in coordinator.missed(&job, &place) {
                let at = std::slice::from_ref(&place);
                let answers = coordinator.ask_all(at, again.uid, again.at_us, &again.line).await;
                if !answers.iter().flatten().any(is_final) {
                    // It has gone again. When it comes back it is told again.
                    return;
                }
                coordinator.lock().pending.told(again.number, place.session);
            }
            coordinator.keep().await;
        });
    }

    /// What a place has to be told.
    fn missed(&self, job: &Identifier, place: &JobNode) -> Vec<Again> {
        let now_us = self.clock.now().wall_us;
        let mut missed = self.lock().pending.missed(job, place.session, now_us);
        missed.retain(|again| may(again.uid, place));
        missed
    }

    /// What has changed in the directory; waits until something may have.
    pub(super) async fn news(&self) -> Vec<AgentInfo> {
        self.directory.changed().await;
        self.directory.take_changes()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nobody leaves it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When the leases of a request end: as the agents say, or where none could say anything, as was asked.
fn lease_end(kind: &Kind, at_us: i64, answers: &[Option<Value>]) -> Option<i64> {
    let Kind::Set { lasts_us, .. } = kind else { return None };
    let mut said = answers.iter().flatten().peekable();
    if said.peek().is_none() {
        return lasts_us.map(|lasts_us| at_us.saturating_add_unsigned(lasts_us));
    }
    said.filter_map(|answer| answer.get("until_us")?.as_i64()).max()
}

/// Whether the agent has heard and judged the request, and need not hear it again.
fn is_final(answer: &Value) -> bool {
    !matches!(answer.get("code").and_then(Value::as_str), Some("busy" | "stopping"))
}

fn gathered(
    job: &Identifier,
    at_us: Option<i64>,
    places: &[JobNode],
    answers: Vec<Option<Value>>,
) -> JobAnswer {
    let nodes = places.iter().zip(answers);
    let nodes = nodes.map(|(place, answer)| NodeAnswer { node: place.node.to_string(), answer });
    JobAnswer { job: job.to_string(), at_us, nodes: nodes.collect() }
}

/// Root may ask about everything, a job's owner about her job; each node says who that is, and is believed for itself.
fn may(uid: u32, place: &JobNode) -> bool {
    uid == ROOT || place.owner_uid == Some(uid)
}

/// The nodes of a job that a user may ask. A job of others is answered as one that does not exist, in code, text and
/// fields: else the answer would reveal which ids are in use.
fn permitted(uid: u32, job: &Identifier, places: Vec<JobNode>) -> Result<Vec<JobNode>, Refusal> {
    let mine: Vec<JobNode> = places.into_iter().filter(|place| may(uid, place)).collect();
    if !mine.is_empty() {
        return Ok(mine);
    }
    let message = if uid == ROOT {
        format!("unknown job {job}: no agent connected to this collector tracks it")
    } else {
        format!("unknown job {job}, or not yours")
    };
    Err(Refusal::new("unknown_job", Some("job"), &message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn place(node: &str, owner_uid: Option<u32>) -> JobNode {
        let peer = Peer::from(node.as_bytes());
        JobNode { node: node.try_into().unwrap(), session: SessionId(1), peer, owner_uid }
    }

    #[test]
    fn each_node_says_for_itself_who_owns_the_job() {
        let job = Identifier::try_from("7").unwrap();
        let places = || vec![place("n1", Some(1000)), place("n2", Some(1001)), place("n3", None)];
        let nodes = |uid| {
            let mine = permitted(uid, &job, places()).map_err(|refusal| refusal.code);
            mine.map(|places| places.into_iter().map(|place| place.node.to_string()).collect::<Vec<_>>())
        };
        assert_eq!(nodes(1000), Ok(vec!["n1".to_owned()]));
        assert_eq!(nodes(ROOT), Ok(["n1", "n2", "n3"].map(str::to_owned).to_vec()));
        assert_eq!(nodes(1002), Err("unknown_job".to_owned()));
        assert_eq!(
            permitted(1002, &job, places()),
            permitted(1002, &job, Vec::new()),
            "ids are not revealed"
        );
        assert_ne!(permitted(ROOT, &job, Vec::new()), permitted(1002, &job, Vec::new()));
    }

    #[test]
    fn a_lease_ends_when_the_agents_say() {
        let set = |lasts_us| Kind::Set { selectors: Vec::new(), lasts_us };
        let granted = |until_us| Some(json!({"answer": "granted", "until_us": until_us}));
        let refused = Some(json!({"answer": "refused", "code": "longest_lease"}));
        assert_eq!(lease_end(&set(None), 5, &[None, granted(100), granted(101)]), Some(101));
        assert_eq!(lease_end(&set(Some(10)), 5, &[refused, None]), None);
        assert_eq!(lease_end(&set(Some(10)), 5, &[None, None]), Some(15));
        assert_eq!(lease_end(&set(None), 5, &[None]), None);
        assert_eq!(lease_end(&Kind::Reset, 5, &[granted(100)]), None);
    }
}
