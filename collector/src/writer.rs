//! A writer: takes what agents sent from its inbox, judges it, gathers what is to be stored, commits, acknowledges.
//!
//! While the store is away a writer takes nothing: its inbox fills, the receiver stops reading, and the data wait in the
//! agents' outboxes, where they belong. Nothing is acknowledged before it is committed.

mod persist;
mod totals;

use std::collections::HashSet;
use std::sync::mpsc;
use std::time::Duration;

use polymeter_proto::series::SessionId;
use polymeter_proto::wire::frame::{self, Frame};
use polymeter_proto::wire::message::ToCollector;

use self::persist::NotStored;
pub use self::totals::Totals;
use polymeter_service::clock::Clock;
use polymeter_service::log::chain;
use tracing::{error, warn};

use crate::agents::AgentDirectory;
use crate::clock_skew::ClockSkewLog;
use crate::config::Config;
use crate::control::outcome::OutcomeReport;
use crate::ingest::{Ingest, Verdict, micros, session_of};
use crate::messages::{Outgoing, Peer, ReceivedMessage};
use crate::metrics::WriterMetrics;
use crate::queues::{Dequeued, OutgoingSender, WriterQueue};
use crate::refusal::Refusal;
use crate::settings::{Settings, SharedSettings};
use crate::shutdown::Shutdown;
use crate::{limits, memory};
use polymeter_store::accepted::{Accepted, LossReason};
use polymeter_store::{Origin, Store};

/// What a writer takes from and gives to.
#[derive(Debug)]
pub(crate) struct Ways {
    /// Messages from agents.
    pub(crate) queue: WriterQueue,
    /// Messages to agents.
    pub(crate) outgoing: OutgoingSender,
    /// The agents and their jobs.
    pub(crate) directory: AgentDirectory,
    /// The log of skewed clocks.
    pub(crate) clock_skew: ClockSkewLog,
    /// The writer's metrics.
    pub(crate) metrics: WriterMetrics,
    /// How jobs ended, where this writer is the one to store that.
    pub(crate) outcomes: Option<mpsc::Receiver<OutcomeReport>>,
    /// What may change while it works.
    pub(crate) settings: SharedSettings,
}

/// One writer with its connection.
#[derive(Debug)]
pub(crate) struct Writer {
    config: Config,
    clock: Clock,
    shutdown: Shutdown,
    queue: WriterQueue,
    outgoing: OutgoingSender,
    directory: AgentDirectory,
    clock_skew: ClockSkewLog,
    /// None while it is away.
    store: Option<Store>,
    /// Where it led when it was there last.
    origin: Origin,
    /// Since when its file is missing.
    missing_since: Option<Duration>,
    ingest: Ingest,
    /// What the next transaction is to hold.
    gathered: Vec<Accepted>,
    rows: usize,
    /// When the first of it was gathered.
    since: Duration,
    /// The next search for silent sessions; none where another writer does it.
    next_look: Option<Duration>,
    /// When it last looked after strangers, and how many bytes were freed since the allocator was asked to give memory back.
    tidied: Duration,
    freed_bytes: usize,
    /// The stop's patience is over: what still comes is left to the agents.
    given_up: bool,
    totals: Totals,
    /// The totals that the metrics have.
    published: Totals,
    metrics: WriterMetrics,
    outcomes: Option<mpsc::Receiver<OutcomeReport>>,
    shared_settings: SharedSettings,
    /// Those in force.
    settings: Settings,
}

impl Writer {
    pub(crate) fn new(
        config: Config,
        clock: Clock,
        shutdown: Shutdown,
        Ways { queue, outgoing, directory, clock_skew, metrics, outcomes, settings }: Ways,
        store: Store,
        looks_for_silence: bool,
    ) -> Self {
        let (shared_settings, settings) = (settings.clone(), settings.get());
        let ingest = Ingest::new(settings.clock);
        let origin = store.origin();
        // Agents that are still there have that long to reach a collector that was away.
        let next_look = looks_for_silence.then(|| clock.now().since_start + config.session_timeout);
        Self {
            config,
            clock,
            shutdown,
            queue,
            outgoing,
            directory,
            clock_skew,
            store: Some(store),
            origin,
            missing_since: None,
            ingest,
            gathered: Vec::new(),
            rows: 0,
            since: Duration::ZERO,
            next_look,
            tidied: Duration::ZERO,
            freed_bytes: 0,
            given_up: false,
            totals: Totals::default(),
            published: Totals::default(),
            metrics,
            outcomes,
            shared_settings,
            settings,
        }
    }

    /// Works until the receiver has gone and its inbox is empty.
    pub(crate) fn run(mut self) -> Totals {
        loop {
            match self.queue.take(self.next_wake()) {
                Dequeued::Message(message) => {
                    self.look_up_settings();
                    let (peer, len) = (message.peer.clone(), message.bytes.len());
                    let is_useful = self.judge(message);
                    self.queue.note(&peer, len, is_useful, self.clock.now().since_start);
                    self.freed_bytes += if is_useful { 0 } else { len };
                }
                Dequeued::TimedOut => {}
                Dequeued::Closed => break,
            }
            if self.is_due() {
                self.commit();
            }
            self.end_silent();
            self.tell_outcomes();
            self.tidy();
            self.publish_metrics();
        }
        self.commit();
        self.publish_metrics();
        self.totals
    }

    fn publish_metrics(&mut self) {
        self.metrics.sessions.set(i64::try_from(self.ingest.sessions()).unwrap_or(i64::MAX));
        if self.totals != self.published {
            self.totals.publish(&self.published, &self.metrics);
            self.published = self.totals;
        }
    }

    /// Stores how jobs ended. Who told of a job that is not stored yet tells again.
    fn tell_outcomes(&mut self) {
        while let Some(OutcomeReport { outcome, reply }) =
            self.outcomes.as_ref().and_then(|outcomes| outcomes.try_recv().ok())
        {
            let is_told =
                !self.given_up && matches!(self.persist(|store| store.store_outcome(&outcome)), Ok(true));
            // Who does not wait any more tells again.
            reply.send(is_told).ok();
        }
    }

    fn look_up_settings(&mut self) {
        let settings = self.shared_settings.get();
        if settings != self.settings {
            self.settings = settings;
            self.ingest.set_range(settings.clock);
        }
    }

    /// Forgets now and then who sends nothing that can be stored.
    fn tidy(&mut self) {
        let now = self.clock.now();
        if now.since_start.saturating_sub(self.tidied) < limits::TIDY_EVERY {
            return;
        }
        self.tidied = now.since_start;
        self.ingest.forget_silent_strangers(now);
        self.freed_bytes += self.ingest.take_freed();
        self.queue.tidy(now.since_start);
        if self.freed_bytes >= limits::TRIM_BYTES {
            memory::trim();
            self.freed_bytes = 0;
        }
    }

    /// How long the gathered may still wait for more.
    fn patience(&self) -> Option<Duration> {
        let waited = || self.clock.now().since_start.saturating_sub(self.since);
        (!self.gathered.is_empty()).then(|| self.settings.commit_interval.saturating_sub(waited()))
    }

    /// How long to wait for a message.
    fn next_wake(&self) -> Option<Duration> {
        let now = self.clock.now().since_start;
        let until_look = self.next_look.map(|look| look.saturating_sub(now));
        let until_told = self.outcomes.is_some().then_some(limits::OUTCOMES_EVERY);
        let is_untidy = self.ingest.has_strangers() || self.freed_bytes >= limits::TRIM_BYTES;
        let until_tidy = is_untidy.then_some(limits::TIDY_EVERY);
        self.patience().into_iter().chain(until_look).chain(until_told).chain(until_tidy).min()
    }

    /// Ends the sessions of which nothing was heard for too long, now and then.
    fn end_silent(&mut self) {
        let now = self.clock.now();
        if self.next_look.is_none_or(|look| now.since_start < look) || self.store.is_none() {
            return;
        }
        let session_timeout = self.settings.session_timeout;
        self.next_look = Some(now.since_start + session_timeout.min(limits::SILENCE_LOOK));
        let cutoff_us = now.wall_us.saturating_sub(micros(session_timeout));
        match self.attempt(|store| store.end_silent(cutoff_us, now.wall_us)) {
            Ok(()) => {}
            Err(error) if error.is_loss() => {
                error!("{}", chain(&error));
                self.begin_anew();
            }
            Err(error) => {
                warn!(error = %chain(&error), remedy = "trying again", "cannot end silent sessions");
            }
        }
    }

    fn is_due(&self) -> bool {
        self.rows >= self.settings.commit_rows
            || self.gathered.len() >= limits::COMMIT_FRAMES
            || self.patience() == Some(Duration::ZERO)
    }

    /// Does what follows from a message, and says whether it was of any use: whether something of it is to be stored.
    fn judge(&mut self, ReceivedMessage { peer, bytes }: ReceivedMessage) -> bool {
        if self.given_up {
            self.totals.given_up += 1;
            return true;
        }
        let verdict = if bytes.starts_with(&frame::MAGIC) {
            Frame::decode(&bytes).map(|frame| self.judge_frame(&peer, frame))
        } else {
            ToCollector::decode(&bytes).map(|message| self.judge_message(&peer, message))
        };
        if let Some(presence) = self.ingest.take_news() {
            self.directory.update(presence);
        }
        match verdict {
            Ok(verdict) => {
                let is_useful = matches!(verdict, Verdict::Accepted(_) | Verdict::Rejected(..));
                self.follow(peer, verdict);
                is_useful
            }
            Err(error) => {
                self.outgoing.send(Outgoing::Refusal(peer, Refusal::from(error), Frame::peek(&bytes)));
                false
            }
        }
    }

    fn judge_frame(&mut self, peer: &Peer, frame: Frame) -> Verdict {
        if !self.open(frame.session, peer) {
            return Verdict::Nothing;
        }
        self.ingest.frame(peer, frame, self.clock.now())
    }

    fn judge_message(&mut self, peer: &Peer, message: ToCollector) -> Verdict {
        if !self.open(session_of(&message), peer) {
            return Verdict::Nothing;
        }
        self.ingest.message(peer, message, self.clock.now())
    }

    /// Makes sure that the session is known, beginning where the store is. Says false where that is not possible now.
    fn open(&mut self, session: SessionId, peer: &Peer) -> bool {
        if self.ingest.knows(session) {
            return true;
        }
        match self.persist(|store| store.last_sequence(session)) {
            Ok(last) => self.ingest.open(session, peer, last, self.clock.now()),
            Err(NotStored::GivenUp) => false,
            Err(NotStored::StoreLost) => {
                self.begin_anew();
                false
            }
            Err(NotStored::Refused(error)) => {
                warn!(error = %chain(&error), %session, "cannot look up a session");
                false
            }
        }
    }

    fn follow(&mut self, peer: Peer, verdict: Verdict) {
        match verdict {
            Verdict::Accepted(accepted) => self.gather(accepted),
            Verdict::Rejected(accepted, why) => {
                warn!(
                    error = %why,
                    remedy = "the rest counts as lost",
                    session = %accepted.session.id,
                    node = %accepted.session.descriptor.node,
                    frame = accepted.sequence,
                    "cannot store the whole of a frame"
                );
                self.gather(accepted);
            }
            Verdict::Repeated(ack) => {
                self.totals.repeated += 1;
                if let Some(ack) = ack.filter(|_| self.is_store_there()) {
                    self.outgoing.send(Outgoing::Message(peer, ack));
                }
            }
            Verdict::Ask(request) => self.outgoing.send(Outgoing::Message(peer, request)),
            Verdict::Refused(why) => self.outgoing.send(Outgoing::Refusal(peer, why, None)),
            Verdict::Nothing => {}
        }
    }

    fn gather(&mut self, accepted: Accepted) {
        if self.gathered.is_empty() {
            self.since = self.clock.now().since_start;
        }
        if accepted.out_of_range.is_some() {
            self.clock_skew.report(&accepted, self.settings.clock, self.clock.now().since_start);
        }
        self.rows += accepted.rows() + accepted.rows_quarantined();
        self.gathered.push(accepted);
    }

    /// Stores what was gathered, and acknowledges it.
    fn commit(&mut self) {
        let frames = std::mem::take(&mut self.gathered);
        self.rows = 0;
        if frames.is_empty() {
            return;
        }
        match self.store_all(&frames) {
            Err(NotStored::Refused(_)) => self.commit_one_by_one(frames),
            Ok(()) => {}
            Err(NotStored::GivenUp) => self.give_up(frames.len()),
            Err(NotStored::StoreLost) => self.begin_anew(),
        }
    }

    /// Forgets what was remembered of a store that is gone, ids included. The agents have what was not acknowledged, and
    /// say of the rest that it was: it is counted as lost where the store does not have it.
    fn begin_anew(&mut self) {
        self.gathered.clear();
        self.rows = 0;
        self.ingest.forget_all();
    }

    /// One frame that the store refuses must not keep the others out: each goes alone, and of the one that is refused
    /// goes the loss. Where not even that can be stored, nothing behind it may be: the session begins anew from where the
    /// store is.
    fn commit_one_by_one(&mut self, frames: Vec<Accepted>) {
        let mut stuck = HashSet::new();
        for frame in frames {
            let session = frame.session.id;
            if self.given_up {
                self.totals.given_up += 1;
                continue;
            }
            if stuck.contains(&session) {
                continue;
            }
            match self.commit_alone(&frame) {
                Ok(true) => {}
                Ok(false) => {
                    stuck.insert(session);
                    self.ingest.forget(session);
                }
                // The other frames bear ids of the store that is gone.
                Err(NotStored::StoreLost) => return self.begin_anew(),
                Err(NotStored::GivenUp | NotStored::Refused(_)) => self.give_up(1),
            }
        }
    }

    /// Stores a frame, or else what was in it as a loss, or else that something was lost. Says whether it did.
    fn commit_alone(&mut self, frame: &Accepted) -> Result<bool, NotStored> {
        let losses =
            [frame.as_loss(LossReason::StoreRefused), frame.as_unattributed_loss(LossReason::StoreRefused)];
        for attempt in std::iter::once(frame).chain(&losses) {
            match self.store_all(std::slice::from_ref(attempt)) {
                Ok(()) => return Ok(true),
                Err(NotStored::Refused(error)) => warn!(
                    error = %chain(&error),
                    session = %frame.session.id,
                    frame = frame.sequence,
                    "cannot store a frame"
                ),
                Err(not_stored) => return Err(not_stored),
            }
        }
        Ok(false)
    }

    fn give_up(&mut self, frames: usize) {
        self.given_up = true;
        self.totals.given_up += frames as u64;
    }

    fn store_all(&mut self, frames: &[Accepted]) -> Result<(), NotStored> {
        let begun = self.clock.now().since_start;
        let committed = self.persist(|store| store.commit(frames))?;
        let duration = self.clock.now().since_start.saturating_sub(begun);
        self.metrics.commit_duration.observe(duration.as_secs_f64());
        self.totals.frames += frames.len() as u64 - committed.repeated;
        self.totals.samples += committed.rows;
        self.totals.quarantined += committed.quarantined;
        self.totals.repeated += committed.repeated;
        frames.iter().flat_map(|frame| &frame.losses).for_each(|loss| self.totals.losses.count(loss));
        for (session, through) in committed.through {
            if let Some((peer, ack)) = self.ingest.committed(session, through) {
                self.outgoing.send(Outgoing::Message(peer, ack));
            }
        }
        Ok(())
    }
}
