//! The rules by which frames are accepted: each once, in order, and understood. Pure: no I/O and no clock.
//!
//! A session's state here is a cache. It begins at what the store has committed, and its dictionary can be asked for
//! again, so that any session may be forgotten whenever all that was accepted of it is committed.

mod dictionary;
mod memory;
#[cfg(test)]
mod tests;
mod times;

use std::collections::HashMap;
use std::time::Duration;

use polymeter_proto::ledger::{Event, JobFactsUpdate};
use polymeter_proto::series::SessionId;
use polymeter_proto::wire::dictionary::Entry;
use polymeter_proto::wire::frame::Frame;
use polymeter_proto::wire::message::{Lost, SkipReason, ToAgent, ToCollector};

use self::dictionary::{Dictionary, Fault};
pub(crate) use self::times::micros;
pub use self::times::{OutOfRangePolicy, TimeRange};
use crate::agents::AgentInfo;
use crate::limits;
use crate::messages::Peer;
use crate::refusal::{Refusal, RefusalKind};
use polymeter_service::clock::Now;
use polymeter_store::accepted::{Accepted, LossReason, LossRecord};

/// What becomes of something that an agent sent.
#[derive(Debug)]
pub enum Verdict {
    /// It is to be stored.
    Accepted(Accepted),
    /// It advances its session, but not all of its samples can ever be stored. The rest is to be stored, and what was
    /// lost; with this reason for a person to read.
    Rejected(Accepted, &'static str),
    /// It came before. What is committed is acknowledged again, where anything is.
    Repeated(Option<ToAgent>),
    /// It cannot be used now, and the agent is asked for something.
    Ask(ToAgent),
    /// It cannot be used, and will be refused again.
    Refused(Refusal),
    /// Nothing follows from it: an entry was learnt, or the agent was asked a moment ago.
    Nothing,
}

/// One session.
#[derive(Debug)]
struct State {
    /// Where its agent is connected now.
    peer: Peer,
    dictionary: Dictionary,
    /// The newest frame that was accepted; all before it were, too.
    received: u64,
    /// The newest frame that is committed.
    committed: u64,
    asked: Asked,
    /// How many dictionaries came since a frame was accepted, of those that were asked for.
    dictionaries: u32,
    /// Whether the agent owes a dictionary.
    dictionary_wanted: bool,
    /// When the agent last spoke.
    heard: Duration,
}

/// When the agent was last asked for something that has not come since. Frames and the dictionary have a patience each:
/// the first frame that comes again may be the one that needs the dictionary.
#[derive(Debug, Default)]
struct Asked {
    frames: Option<Duration>,
    dictionary: Option<Duration>,
}

/// What a Skipped says of the samples that will never come.
#[derive(Debug)]
struct Skipped {
    reason: LossReason,
    span_us: (i64, i64),
    lost: Vec<Lost>,
}

/// The sessions of one writer.
#[derive(Debug, Default)]
pub struct Ingest {
    /// Which times of samples are possible.
    range: TimeRange,
    sessions: HashMap<SessionId, State>,
    dictionary_bytes: usize,
    /// Sessions of which nothing was ever accepted, and the bytes of their dictionaries.
    strangers: usize,
    strangers_bytes: usize,
    /// Bytes of dictionaries that were forgotten, until somebody takes note.
    freed_bytes: usize,
    /// What a session has told of itself, until somebody takes it.
    news: Option<AgentInfo>,
}

impl Ingest {
    /// Without a session yet. Samples are to be dated within `range`.
    pub fn new(range: TimeRange) -> Self {
        Self { range, ..Self::default() }
    }

    /// From now on, samples are to be dated within `range`.
    pub const fn set_range(&mut self, range: TimeRange) {
        self.range = range;
    }

    /// Whether the session is known. One that is not must be looked up in the store and [opened](Self::open).
    pub fn knows(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// Begins a session behind the frames that the store has, `committed` being the newest of them, or 0.
    ///
    /// Makes room by forgetting what was quiet for longest: of the peer's own sessions, if it has many. Says false
    /// where there is no room, because everything else waits for a commit.
    pub fn open(&mut self, session: SessionId, peer: &Peer, committed: u64, now: Now) -> bool {
        let of_peer = self.sessions.values().filter(|state| state.peer == *peer).count();
        if of_peer >= limits::SESSIONS_PER_PEER && !self.forget_quietest(|state| state.peer == *peer) {
            return false;
        }
        if self.sessions.len() >= limits::SESSIONS && !self.forget_quietest(|_| true) {
            return false;
        }
        let state = State {
            peer: peer.clone(),
            dictionary: Dictionary::default(),
            received: committed,
            committed,
            asked: Asked::default(),
            dictionaries: 0,
            dictionary_wanted: false,
            heard: now.since_start,
        };
        self.strangers += usize::from(state.is_stranger());
        self.sessions.insert(session, state);
        true
    }

    /// What the session that spoke last says of itself, where that is new.
    pub fn take_changes(&mut self) -> Option<AgentInfo> {
        self.news.take()
    }

    /// Judges a frame of an open session.
    pub fn frame(&mut self, peer: &Peer, frame: Frame, now: Now) -> Verdict {
        let id = frame.session;
        if let Some(refusal) = self.refuse_node(id, peer, &frame.dictionary) {
            return Verdict::Refused(refusal);
        }
        let range = self.range;
        let verdict = self.with(id, peer, now, |state| state.frame(frame, range, now));
        self.bound_memory(id);
        verdict
    }

    /// Judges a message of an open session.
    pub fn message(&mut self, peer: &Peer, message: ToCollector, now: Now) -> Verdict {
        let id = session_of(&message);
        let entries = match &message {
            ToCollector::Dictionary { entries, .. } => entries.as_slice(),
            ToCollector::Skipped { .. } | ToCollector::Answer { .. } => &[],
        };
        if let Some(refusal) = self.refuse_node(id, peer, entries) {
            return Verdict::Refused(refusal);
        }
        let verdict = self.with(id, peer, now, |state| match message {
            ToCollector::Dictionary { session, entries } => state.learn(session, entries),
            ToCollector::Skipped { first, last, reason, span_us, lost, .. } => {
                let reason = match reason {
                    SkipReason::OutboxFull => LossReason::OutboxFull,
                    SkipReason::Refused => LossReason::Refused,
                    SkipReason::Damaged => LossReason::SpoolDamaged,
                    // Where the store has them, it does not take this, and no loss is recorded.
                    SkipReason::AlreadyAcknowledged => LossReason::StoreReplaced,
                };
                state.skip(id, (first, last), Skipped { reason, span_us, lost }, now)
            }
            // The receiver hands it to control.
            ToCollector::Answer { .. } => Verdict::Nothing,
        });
        self.bound_memory(id);
        verdict
    }

    /// Refuses what a peer says for another node than its key is for: in a session that is another node's, or with
    /// `entries` that would make a session another node's. Nothing of it may touch the session.
    fn refuse_node(&self, id: SessionId, peer: &Peer, entries: &[Entry]) -> Option<Refusal> {
        let own = peer.node()?;
        let session = self.sessions.get(&id).and_then(|state| state.dictionary.session().ok());
        let announced = entries.iter().filter_map(|entry| match entry {
            Entry::Session(descriptor) => Some(&descriptor.node),
            Entry::Metric(..) | Entry::Job(..) | Entry::Series(..) | Entry::Shape(..) => None,
        });
        let nodes = session.map(|session| &session.descriptor.node).into_iter().chain(announced);
        let other = nodes.into_iter().find(|node| *node != own)?;
        let reason = format!("an agent with the key of {own} speaks for {other}");
        Some(Refusal { kind: RefusalKind::Node, reason })
    }

    /// How many sessions are remembered.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    fn with(
        &mut self,
        id: SessionId,
        peer: &Peer,
        now: Now,
        judge: impl FnOnce(&mut State) -> Verdict,
    ) -> Verdict {
        let Some(state) = self.sessions.get_mut(&id) else { return Verdict::Nothing };
        state.heard = now.since_start;
        let moved = state.peer != *peer;
        if moved {
            // The agent has connected anew, and what was asked over the old connection is lost.
            state.peer = peer.clone();
            state.asked = Asked::default();
        }
        let (before, was_stranger) = (state.dictionary.bytes(), state.is_stranger());
        let verdict = judge(state);
        let bytes = state.dictionary.bytes();
        self.dictionary_bytes = self.dictionary_bytes - before + bytes;
        if was_stranger {
            self.strangers_bytes -= before;
            self.strangers -= 1;
        }
        if state.is_stranger() {
            self.strangers_bytes += bytes;
            self.strangers += 1;
        } else if state.dictionary.take_changes() || moved || was_stranger {
            // Of a session that has sent nothing to be stored, nobody need know.
            self.news = state.presence(id);
        }
        verdict
    }

    /// Notes that the store has `session` up to `through`, and says who must hear it.
    pub fn committed(&mut self, session: SessionId, through: u64) -> Option<(Peer, ToAgent)> {
        let state = self.sessions.get_mut(&session)?;
        state.committed = state.committed.max(through);
        // Another collector may have stored what this one has not seen.
        state.received = state.received.max(state.committed);
        Some((state.peer.clone(), ToAgent::Ack { session, through: state.committed }))
    }
}

/// The session that a message is about.
pub const fn session_of(message: &ToCollector) -> SessionId {
    match message {
        ToCollector::Dictionary { session, .. }
        | ToCollector::Skipped { session, .. }
        | ToCollector::Answer { session, .. } => *session,
    }
}

impl State {
    /// Whether nothing of the session was ever accepted, by this collector or another.
    const fn is_stranger(&self) -> bool {
        self.received == 0
    }

    /// What the session says of itself; none where it has not said yet who it is.
    fn presence(&self, session: SessionId) -> Option<AgentInfo> {
        let said = &self.dictionary.session().ok()?.descriptor;
        let jobs = self.dictionary.running().take(limits::JOBS);
        Some(AgentInfo {
            session,
            peer: self.peer.clone(),
            node: said.node.clone(),
            started_us: said.started_us,
            jobs: jobs.map(|(job_id, owner_uid)| (job_id.clone(), owner_uid)).collect(),
        })
    }

    fn frame(&mut self, mut frame: Frame, range: TimeRange, now: Now) -> Verdict {
        let session = frame.session;
        if frame.sequence <= self.received {
            return self.repeated(session);
        }
        if frame.sequence > self.received + 1 {
            return self.ask(ToAgent::Resend { session, from: self.received + 1 }, now);
        }
        let sequence = frame.sequence;
        let entries = std::mem::take(&mut frame.dictionary);
        let learnt = entries.into_iter().try_for_each(|entry| self.dictionary.add(session, entry));
        let mut losses = Vec::new();
        let mut rejected = None;
        match learnt.and_then(|()| self.dictionary.understands(&frame)) {
            Ok(()) => {}
            Err(Fault::Contradiction(what)) if self.dictionary.session().is_ok() => {
                let loss = |block| self.dictionary.loss(block, LossReason::Contradiction, now.wall_us);
                losses = frame.blocks.iter().map(loss).collect();
                frame = Frame { blocks: Vec::new(), ledger: Vec::new(), events: Vec::new(), ..frame };
                rejected = Some(what);
            }
            Err(_) if self.dictionaries >= limits::DICTIONARIES_PER_FRAME => {
                losses = self.dictionary.reject_unknown(&mut frame, now.wall_us);
                rejected = Some("the agent does not explain some of its ids");
            }
            Err(fault) => return self.need_dictionary(fault, session, now),
        }
        let ended: Vec<_> = frame.events.iter().filter_map(ended_job).collect();
        let mut accepted = match self.dictionary.resolve(frame, now.wall_us) {
            Ok(accepted) => accepted,
            // Nobody has said who speaks.
            Err(fault) => return self.need_dictionary(fault, session, now),
        };
        losses.into_iter().for_each(|loss| accepted.add_loss(loss));
        range.enforce(&mut accepted, now.wall_us);
        for (_, owner) in &accepted.job_owners {
            self.dictionary.learn_owner(owner.job, owner.uid);
        }
        ended.into_iter().for_each(|job| self.dictionary.end_job(job));
        self.advance(sequence);
        match rejected {
            None => Verdict::Accepted(accepted),
            Some(why) => Verdict::Rejected(accepted, why),
        }
    }

    /// What cannot be understood now may be understood with a dictionary.
    fn need_dictionary(&mut self, fault: Fault, session: SessionId, now: Now) -> Verdict {
        if fault == Fault::Full {
            // The agent announces again what it still uses, and no more.
            self.dictionary.clear();
        }
        self.dictionary_wanted = true;
        self.ask(ToAgent::NeedDictionary { session }, now)
    }

    fn learn(&mut self, session: SessionId, entries: Vec<Entry>) -> Verdict {
        if std::mem::take(&mut self.dictionary_wanted) {
            self.dictionaries += 1;
        }
        let learnt = entries.into_iter().try_for_each(|entry| self.dictionary.add(session, entry));
        match learnt {
            // What is unknown or has no room shows when a frame needs it.
            Ok(()) | Err(Fault::Unknown(_) | Fault::Full) => Verdict::Nothing,
            Err(Fault::Contradiction(what)) => Verdict::Refused(Refusal::contradiction(what)),
        }
    }

    /// Frames `first..=last` will never come.
    fn skip(&mut self, session: SessionId, (first, last): (u64, u64), lost: Skipped, now: Now) -> Verdict {
        if last > i64::MAX.cast_unsigned() || first > last {
            let why = format!("frames {first} to {last} cannot be skipped");
            return Verdict::Refused(Refusal::contradiction(why));
        }
        if last <= self.received {
            return self.repeated(session);
        }
        if first > self.received + 1 {
            return self.ask(ToAgent::Resend { session, from: self.received + 1 }, now);
        }
        let hopeless = self.dictionaries >= limits::DICTIONARIES_PER_FRAME;
        match self
            .dictionary
            .session()
            .cloned()
            .and_then(|known| Ok((known, self.losses(lost, hopeless, now.wall_us)?)))
        {
            Ok((known, losses)) => {
                let mut accepted = Accepted::empty(known, last, now.wall_us);
                accepted.follows = self.received;
                losses.into_iter().for_each(|loss| accepted.add_loss(loss));
                self.advance(last);
                Verdict::Accepted(accepted)
            }
            Err(fault) => self.need_dictionary(fault, session, now),
        }
    }

    /// The losses that a Skipped tells of. Of a job that nobody explains they are nobody's, once that is `hopeless`.
    fn losses(&mut self, skipped: Skipped, hopeless: bool, now_us: i64) -> Result<Vec<LossRecord>, Fault> {
        let reason = skipped.reason;
        let loss = |Lost { job, source, samples }| {
            let line = match self.dictionary.line(job, source) {
                Err(_) if hopeless => None,
                line => Some(line?),
            };
            Ok(LossRecord { line, samples, reason, span_us: skipped.span_us })
        };
        if reason.is_uncounted() {
            let span_us = (now_us, now_us);
            return Ok(vec![LossRecord { line: None, samples: 0, reason, span_us }]);
        }
        skipped.lost.into_iter().map(loss).collect()
    }

    fn advance(&mut self, sequence: u64) {
        self.received = sequence;
        self.asked = Asked::default();
        self.dictionaries = 0;
        self.dictionary_wanted = false;
    }

    fn repeated(&self, session: SessionId) -> Verdict {
        let committed = (self.committed > 0).then_some(ToAgent::Ack { session, through: self.committed });
        Verdict::Repeated(committed)
    }

    /// Asks the agent, unless the answer to the last request of the kind may still be on its way.
    fn ask(&mut self, request: ToAgent, now: Now) -> Verdict {
        let for_dictionary = matches!(request, ToAgent::NeedDictionary { .. });
        let asked = if for_dictionary { self.asked.dictionary } else { self.asked.frames };
        if asked.is_some_and(|asked| now.since_start.saturating_sub(asked) < limits::REQUEST_AGAIN) {
            return Verdict::Nothing;
        }
        // Behind its dictionary the agent sends all frames again.
        self.asked.frames = Some(now.since_start);
        if for_dictionary {
            self.asked.dictionary = self.asked.frames;
        }
        Verdict::Ask(request)
    }
}

const fn ended_job(event: &Event) -> Option<polymeter_proto::series::JobHandle> {
    match event {
        Event::JobEnded { job, .. } | Event::JobFacts(JobFactsUpdate { job, is_over: true, .. }) => {
            Some(*job)
        }
        Event::PlanChange(_)
        | Event::Mark(_)
        | Event::JobFacts(_)
        | Event::JobOwner(_)
        | Event::RequestRefused(_)
        | Event::SessionEnded { .. } => None,
    }
}
