//! State of one session: the order of its frames, and pending requests to its agent.

use std::time::Duration;

use polymeter_proto::ledger::{Event, JobFactsUpdate};
use polymeter_proto::series::{JobHandle, SessionId};
use polymeter_proto::wire::dictionary::Entry;
use polymeter_proto::wire::frame::Frame;
use polymeter_proto::wire::message::{Lost, ToAgent};
use polymeter_service::clock::Now;
use polymeter_store::accepted::{Accepted, LossReason, LossRecord};

use super::dictionary::Dictionary;
use super::fault::Fault;
use super::shared_rules::Shared;
use super::times::TimeRange;
use super::verdict::{Rejection, Verdict};
use crate::agents::AgentInfo;
use crate::limits;
use crate::refusal::MessageRefusal;
use crate::session_messages::Peer;

#[derive(Debug)]
pub(super) struct SessionState {
    pub(super) peer: Peer,
    pub(super) dictionary: Dictionary,
    /// Newest accepted frame. All earlier frames were accepted, too.
    pub(super) received: u64,
    pub(super) committed: u64,
    pub(super) requested: RequestTimes,
    /// Requested dictionaries that arrived since a frame was accepted.
    dictionaries: u32,
    dictionary_requested: bool,
    /// Time at which a whole dictionary had no room.
    overfull: Option<Duration>,
    pub(super) last_message: Duration,
}

/// Times of the last unanswered requests. Frames and the dictionary have separate ones: the first frame that
/// is sent again may be the one that needs the dictionary.
#[derive(Debug, Default)]
pub(super) struct RequestTimes {
    frames: Option<Duration>,
    dictionary: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct SkippedSamples {
    pub(super) reason: LossReason,
    pub(super) span_us: (i64, i64),
    pub(super) lost: Vec<Lost>,
}

impl SessionState {
    /// `committed` is the newest committed frame, or 0.
    pub(super) fn new(peer: &Peer, committed: u64, now: Now) -> Self {
        Self {
            peer: peer.clone(),
            dictionary: Dictionary::default(),
            received: committed,
            committed,
            requested: RequestTimes::default(),
            dictionaries: 0,
            dictionary_requested: false,
            overfull: None,
            last_message: now.since_start,
        }
    }

    /// No frame of the session was ever accepted, by this collector or another.
    pub(super) const fn is_unproven(&self) -> bool {
        self.received == 0
    }

    /// Agent's node and jobs; none before it has announced its node.
    pub(super) fn agent_info(&self, session: SessionId) -> Option<AgentInfo> {
        let descriptor = &self.dictionary.session().ok()?.descriptor;
        let jobs = self.dictionary.running().take(limits::JOBS);
        Some(AgentInfo {
            session,
            peer: self.peer.clone(),
            node: descriptor.node.clone(),
            started_us: descriptor.started_us,
            jobs: jobs.map(|(job_id, owner_uid)| (job_id.clone(), owner_uid)).collect(),
        })
    }

    pub(super) fn frame(
        &mut self,
        mut frame: Frame,
        range: TimeRange,
        now: Now,
        shared: &mut Shared,
    ) -> Verdict {
        let session = frame.session;
        if frame.sequence <= self.received {
            return self.repeated(session);
        }
        if frame.sequence > self.received + 1 {
            return self.request(ToAgent::Resend { session, from: self.received + 1 }, now);
        }
        let sequence = frame.sequence;
        let entries = std::mem::take(&mut frame.dictionary);
        let learnt = entries.into_iter().try_for_each(|entry| self.dictionary.add(session, entry, shared));
        let mut losses = Vec::new();
        let mut rejected = None;
        let events = frame.events.len();
        match learnt.and_then(|()| self.dictionary.check(&frame)) {
            Ok(()) => {}
            Err(Fault::Contradiction(fault)) if self.dictionary.session().is_ok() => {
                losses = frame
                    .blocks
                    .iter()
                    .map(|block| self.dictionary.loss(block, LossReason::Contradiction, now.wall_us))
                    .collect();
                for interval in &frame.stacks {
                    losses.push(self.dictionary.loss_of_stacks(interval, LossReason::Contradiction));
                }
                frame = Frame {
                    blocks: Vec::new(),
                    ledger: Vec::new(),
                    events: Vec::new(),
                    stacks: Vec::new(),
                    ..frame
                };
                rejected = Some(fault);
            }
            Err(_) if self.gives_up(now) => {
                losses = self.dictionary.reject_unknown(&mut frame, now.wall_us);
                rejected = Some(if self.is_overfull(now) {
                    "the agent has more series than one session may have; let several agents poll the devices"
                } else {
                    "the agent does not announce some of its ids"
                });
            }
            Err(fault) => return self.need_dictionary(fault, session, now),
        }
        let events = events.saturating_sub(frame.events.len());
        let ended: Vec<_> = frame.events.iter().filter_map(ended_job).collect();
        let mut accepted = match self.dictionary.resolve(frame, now.wall_us) {
            Ok(accepted) => accepted,
            // The agent has not announced its node.
            Err(fault) => return self.need_dictionary(fault, session, now),
        };
        losses.into_iter().for_each(|loss| accepted.add_loss(loss));
        range.enforce(&mut accepted, now.wall_us);
        self.dictionary.bound_jobs(&mut accepted);
        for (_, owner) in &accepted.job_owners {
            self.dictionary.learn_owner(owner.job, owner.uid);
        }
        ended.into_iter().for_each(|job| self.dictionary.end_job(job));
        self.advance(sequence);
        match rejected {
            None => Verdict::Accepted(accepted),
            Some(reason) => Verdict::Rejected(accepted, Rejection { reason, events }),
        }
    }

    /// True if another dictionary would not help.
    fn gives_up(&self, now: Now) -> bool {
        self.dictionaries >= limits::DICTIONARIES_PER_FRAME || self.is_overfull(now)
    }

    fn is_overfull(&self, now: Now) -> bool {
        let since = self.overfull.map(|overfull| now.since_start.saturating_sub(overfull));
        since.is_some_and(|since| since < limits::DICTIONARY_RETRY)
    }

    /// The dictionary may define the unknown ids.
    fn need_dictionary(&mut self, fault: Fault, session: SessionId, now: Now) -> Verdict {
        if fault == Fault::Full {
            // The agent announces only the entries that it still uses.
            self.dictionary.clear();
        }
        self.dictionary_requested = true;
        self.request(ToAgent::NeedDictionary { session }, now)
    }

    pub(super) fn learn(
        &mut self,
        session: SessionId,
        entries: Vec<Entry>,
        now: Now,
        shared: &mut Shared,
    ) -> Verdict {
        if std::mem::take(&mut self.dictionary_requested) {
            self.dictionaries += 1;
        }
        let learnt = entries.into_iter().try_for_each(|entry| self.dictionary.add(session, entry, shared));
        match learnt {
            // Unknown ids are detected when a frame needs the entries.
            Ok(()) | Err(Fault::Unknown(_)) => Verdict::Nothing,
            Err(Fault::Full) => {
                self.overfull = Some(now.since_start);
                Verdict::Nothing
            }
            Err(Fault::Contradiction(what)) => Verdict::Refused(MessageRefusal::contradiction(what)),
        }
    }

    /// The frames `first..=last` will never arrive.
    pub(super) fn skip(
        &mut self,
        session: SessionId,
        (first, last): (u64, u64),
        lost: SkippedSamples,
        now: Now,
    ) -> Verdict {
        if last > i64::MAX.cast_unsigned() || first > last {
            let reason = format!(
                "the agent reported an impossible range of lost frames, {first} to {last}; restart it"
            );
            return Verdict::Refused(MessageRefusal::contradiction(reason));
        }
        if last <= self.received {
            return self.repeated(session);
        }
        if first > self.received + 1 {
            return self.request(ToAgent::Resend { session, from: self.received + 1 }, now);
        }
        let gives_up = self.gives_up(now);
        match self
            .dictionary
            .session()
            .cloned()
            .and_then(|known| Ok((known, self.losses(lost, gives_up, now.wall_us)?)))
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

    /// Losses of skipped frames. Losses of a job that was not announced have no line of the ledger, if the
    /// session `gives_up` waiting for it.
    fn losses(
        &mut self,
        skipped: SkippedSamples,
        gives_up: bool,
        now_us: i64,
    ) -> Result<Vec<LossRecord>, Fault> {
        let reason = skipped.reason;
        // An agent that knows the samples of acknowledged frames states their number.
        if reason.is_uncounted() && skipped.lost.is_empty() {
            let span_us = (now_us, now_us);
            return Ok(vec![LossRecord { line: None, samples: 0, reason, span_us }]);
        }
        skipped
            .lost
            .into_iter()
            .map(|Lost { job, source, samples }| {
                let line = match self.dictionary.line(job, source) {
                    Err(_) if gives_up => None,
                    line => Some(line?),
                };
                Ok(LossRecord { line, samples, reason, span_us: skipped.span_us })
            })
            .collect()
    }

    fn advance(&mut self, sequence: u64) {
        self.received = sequence;
        self.requested = RequestTimes::default();
        self.dictionaries = 0;
        self.dictionary_requested = false;
    }

    fn repeated(&self, session: SessionId) -> Verdict {
        let committed = (self.committed > 0).then_some(ToAgent::Ack { session, through: self.committed });
        Verdict::Repeated(committed)
    }

    /// Sends a request to the agent, unless the answer to the last request of the same kind may still arrive.
    fn request(&mut self, request: ToAgent, now: Now) -> Verdict {
        let for_dictionary = matches!(request, ToAgent::NeedDictionary { .. });
        let requested = if for_dictionary { self.requested.dictionary } else { self.requested.frames };
        if requested
            .is_some_and(|requested| now.since_start.saturating_sub(requested) < limits::REQUEST_INTERVAL)
        {
            return Verdict::Nothing;
        }
        // The agent resends all frames after its dictionary.
        self.requested.frames = Some(now.since_start);
        if for_dictionary {
            self.requested.dictionary = self.requested.frames;
        }
        Verdict::Ask(request)
    }
}

const fn ended_job(event: &Event) -> Option<JobHandle> {
    match event {
        Event::JobEnded { job, .. } | Event::JobFacts(JobFactsUpdate { job, is_over: true, .. }) => {
            Some(*job)
        }
        Event::PlanChange(_)
        | Event::Mark(_)
        | Event::JobFacts(_)
        | Event::JobDetails(_)
        | Event::Kept(_)
        | Event::Fired(_)
        | Event::JobOwner(_)
        | Event::RequestRefused(_)
        | Event::SessionEnded { .. } => None,
    }
}
