//! The agent's side of the delivery protocol: a pure state machine. Its inputs are sample batches, the collector's
//! messages, new connections and the time; its outputs are frames and messages to be sent.
//!
//! Every loss is counted: dropped frames, for lack of room or because the collector refuses them, leave a note in their
//! place in the sequence.

mod spool_mode;
mod spooling;

use std::collections::VecDeque;

use polymeter_proto::batch::Batch;
use polymeter_proto::ledger::{Event, JobFactsUpdate, LedgerEntry};
use polymeter_proto::series::{JobHandle, SessionDescriptor, SessionId};
use polymeter_proto::wire::dictionary::Entry;
use polymeter_proto::wire::frame::{Encoder, Extras};
use polymeter_proto::wire::message::{ToAgent, ToCollector};

use self::spool_mode::SpoolMode;
use crate::delivery::frame_builder::{FrameBuilder, FrameParts};
use crate::delivery::frame_summary::FrameSummary;
use crate::delivery::outbox::{Dropped, Outbox, Outgoing};
use crate::lanes::{EventRecord, SampleBatch};

/// The most bytes under way without an acknowledgement. More would only fill buffers that a restart loses.
const WINDOW_BYTES: usize = 8 * 1024 * 1024;

/// The first wait for an acknowledgement before everything is sent again, in nanoseconds; it doubles each time.
const RESEND_NS: u64 = 5_000_000_000;
/// The longest wait for an acknowledgement, in nanoseconds.
const RESEND_MOST_NS: u64 = 60_000_000_000;

/// The longest time without a frame, in nanoseconds. The collector regards an agent as dead after minutes of silence.
const HEARTBEAT_NS: u64 = 30_000_000_000;

/// The number of refusals after which a frame is given up. A frame that was damaged in transit is accepted when it is
/// sent again; one that is refused for its contents would block all frames behind it forever.
pub const REFUSALS: u32 = 3;

/// The next thing to be sent.
#[derive(Debug, PartialEq, Eq)]
pub enum NextSend<'a> {
    /// A frame.
    Frame(&'a [u8]),
    /// A message.
    Message(Vec<u8>),
    /// No data: this segment must be [restored](DeliverySession::restored) first.
    Restore(u64),
}

impl NextSend<'_> {
    /// Returns the bytes; none of a segment.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Frame(bytes) => bytes,
            Self::Message(bytes) => bytes,
            Self::Restore(_) => &[],
        }
    }
}

/// The result of a message of the collector, for the log.
#[derive(Debug, PartialEq, Eq)]
pub enum SessionNotice {
    /// Nothing to be logged.
    Ordinary,
    /// The collector refuses frames, for the first time since it accepted one.
    Refused {
        /// The reason of the refusal.
        reason: String,
        /// The first and the last version of the protocol that the collector accepts.
        versions: (u8, u8),
    },
    /// A frame was given up, and its samples are counted as lost.
    GivenUp {
        /// The number of the frame.
        sequence: u64,
        /// The number of its samples.
        samples: u64,
        /// The reason of the refusal.
        reason: String,
    },
}

/// Counts of samples and frames since the session began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeliveryCounts {
    /// Frames that were acknowledged.
    pub frames_acknowledged: u64,
    /// Samples that were dropped because the outbox was full.
    pub samples_dropped: u64,
    /// Samples of frames that were given up.
    pub samples_refused: u64,
    /// Events of lost frames that are too many to be sent again.
    pub events_dropped: u64,
}

/// The agent's side of one session.
#[derive(Debug)]
pub struct DeliverySession {
    session: SessionId,
    window_bytes: usize,
    outbox: Outbox,
    builder: FrameBuilder,
    encoder: Encoder,
    /// Jobs that have ended, each with the last frame that mentions it.
    retiring: Vec<(JobHandle, u64)>,
    /// Messages with the whole dictionary, which the collector has requested. They are sent before frames.
    dictionary: VecDeque<Vec<u8>>,
    resend_at_ns: Option<u64>,
    resend_after_ns: u64,
    /// The frame that was refused last, and the number of its refusals.
    refused: (u64, u32),
    complained: bool,
    counts: DeliveryCounts,
    spool_mode: SpoolMode,
    /// The time of the newest frame.
    framed_ns: u64,
    /// The time since which data wait without an acknowledgement or, if later, at which all waiting data were on the
    /// disk.
    quiet_since_ns: u64,
    /// Segments that are not needed any more.
    released: Vec<u64>,
}

impl DeliverySession {
    /// Creates a new session, with an outbox of `outbox_bytes`.
    pub fn new(session: SessionId, descriptor: SessionDescriptor, outbox_bytes: usize, now_ns: u64) -> Self {
        let (outbox, builder) = (Outbox::new(session, outbox_bytes), FrameBuilder::new(descriptor, now_ns));
        Self::with(outbox, builder, outbox_bytes, now_ns, SpoolMode::Off)
    }

    /// Puts a sample batch into the outbox.
    pub fn take(&mut self, flushed: &SampleBatch, now_ns: u64) {
        let first = self.outbox.next_sequence();
        let is_owed = now_ns.saturating_sub(self.framed_ns) >= HEARTBEAT_NS;
        let Some(parts) = self.builder.build(flushed, first, is_owed, now_ns) else { return };
        self.framed_ns = now_ns;
        let FrameParts { dictionary, ledger, reported, revived } = parts;
        if self.outbox.is_empty() {
            self.quiet_since_ns = now_ns;
        }
        self.push(&flushed.batch, &dictionary, &ledger, reported);
        let last = self.outbox.next_sequence() - 1;
        self.builder.divided(first, last);
        revived.into_iter().for_each(|job| self.retire_after(job, last));
        if self.spool_mode == SpoolMode::Off {
            self.make_room();
        }
    }

    /// Drops frames until the outbox is within its limit: without a spool, or if the spool has no room either.
    fn make_room(&mut self) {
        let dropped = self.outbox.make_room();
        self.counts.samples_dropped += dropped.samples;
        self.lost(dropped);
    }

    /// Puts a frame into the outbox, or several if one would exceed the limits: the dictionary before the samples,
    /// tallies and events behind them.
    fn push(
        &mut self,
        batch: &Batch,
        dictionary: &[Entry],
        ledger: &[LedgerEntry],
        reported: Vec<EventRecord>,
    ) {
        let events: Vec<Event> = reported.iter().map(|reported| reported.event.clone()).collect();
        let sequence = self.outbox.next_sequence();
        let mut bytes = Vec::new();
        let extras = Extras { dictionary, ledger, events: &events };
        if self.encoder.encode(&mut bytes, self.session, sequence, batch, extras).is_err() {
            return self.push_divided(batch, dictionary, ledger, reported);
        }
        bytes.shrink_to_fit();
        for reported in &reported {
            let is_spoken_of = |job: JobHandle| reported.job.as_ref().is_some_and(|of| of.handle == job);
            let is_end = matches!(
                reported.event,
                Event::JobEnded { .. } | Event::JobFacts(JobFactsUpdate { is_over: true, .. })
            );
            let ends = self.retiring.iter().any(|(job, _)| is_spoken_of(*job));
            if let Some(job) = reported.job.as_ref().filter(|_| is_end || ends) {
                self.retire_after(job.handle, sequence);
            }
        }
        self.outbox.push(bytes, FrameSummary::of(batch), reported);
    }

    fn push_divided(
        &mut self,
        batch: &Batch,
        dictionary: &[Entry],
        ledger: &[LedgerEntry],
        reported: Vec<EventRecord>,
    ) {
        let nothing = Batch::default();
        let mut reported = reported;
        if dictionary.len() > 1 {
            let (first, second) = dictionary.split_at(dictionary.len() / 2);
            self.push(&nothing, first, &[], Vec::new());
            self.push(batch, second, ledger, reported);
        } else if !batch.is_empty() && ledger.len() + reported.len() > 0 {
            self.push(batch, dictionary, &[], Vec::new());
            self.push(&nothing, &[], ledger, reported);
        } else if ledger.len() > 1 {
            let (first, second) = ledger.split_at(ledger.len() / 2);
            self.push(&nothing, dictionary, first, Vec::new());
            self.push(&nothing, &[], second, reported);
        } else if reported.len() > 1 {
            let second = reported.split_off(reported.len() / 2);
            self.push(&nothing, dictionary, ledger, reported);
            self.push(&nothing, &[], &[], second);
        } else {
            // A batch alone is always within the limits by design; this counts it should that fail.
            self.counts.samples_refused += batch.samples() as u64;
            self.outbox.push_nothing(&FrameSummary::of(batch));
        }
    }

    /// Forgets the job when frame `sequence`, the last that mentions it so far, is acknowledged.
    fn retire_after(&mut self, job: JobHandle, sequence: u64) {
        self.retiring.retain(|(retiring, _)| *retiring != job);
        self.retiring.push((job, sequence));
    }

    /// Schedules the events and tallies of dropped frames for repetition in a later frame.
    fn lost(&mut self, dropped: Dropped) {
        if matches!(self.spool_mode, SpoolMode::Replay(_)) {
            // An earlier session has no later frames.
            self.counts.events_dropped += dropped.events.len() as u64;
            return;
        }
        self.counts.events_dropped += self.builder.lost(&dropped.frames, dropped.events);
    }

    /// Returns the next frame or message to be sent; none if there is none, or the window is full.
    pub fn next_send(&self) -> Option<NextSend<'_>> {
        if let Some(message) = self.dictionary.front() {
            return Some(NextSend::Message(message.clone()));
        }
        if self.outbox.bytes_under_way() >= self.window_bytes {
            return None;
        }
        Some(match self.outbox.next_outgoing()? {
            Outgoing::Frame(bytes) => NextSend::Frame(bytes),
            Outgoing::Note(note) => NextSend::Message(note.encode()),
            Outgoing::Segment(segment) => NextSend::Restore(segment),
        })
    }

    /// Records that the result of [`DeliverySession::next_send`] was sent.
    pub fn sent(&mut self, now_ns: u64) {
        if self.dictionary.pop_front().is_none() {
            self.outbox.sent();
            self.resend_at_ns.get_or_insert(now_ns + self.resend_after_ns);
        }
    }

    /// Handles a message of the collector.
    pub fn hear(&mut self, message: ToAgent, now_ns: u64) -> SessionNotice {
        match message {
            ToAgent::Ack { session, through } if session == self.session => {
                self.acknowledged(through, now_ns)
            }
            ToAgent::Resend { session, from } if session == self.session => {
                self.outbox.resend_from(from.max(1));
            }
            ToAgent::NeedDictionary { session } if session == self.session => {
                self.dictionary = ToCollector::dictionaries(self.session, &self.all_entries()).into();
                self.outbox.resend_all();
            }
            ToAgent::Refused { frame: Some((session, _)), .. } if session != self.session => {}
            ToAgent::Refused { reason, versions, frame } => return self.refused(reason, versions, frame),
            // Messages for another session, from a collector that remembers an earlier process, and messages that do
            // not concern delivery.
            ToAgent::Ack { .. }
            | ToAgent::Resend { .. }
            | ToAgent::NeedDictionary { .. }
            | ToAgent::Request { .. } => {}
        }
        SessionNotice::Ordinary
    }

    fn acknowledged(&mut self, through: u64, now_ns: u64) {
        let acknowledged = self.outbox.acknowledge(through);
        self.counts.frames_acknowledged += acknowledged.frames;
        self.released.extend(acknowledged.segments);
        self.quiet_since_ns = now_ns;
        self.complained = false;
        self.resend_after_ns = RESEND_NS;
        self.resend_at_ns = self.outbox.awaits_answer().then_some(now_ns + RESEND_NS);
        let oldest = self.outbox.oldest();
        let builder = &mut self.builder;
        self.retiring.retain(|(job, sequence)| {
            let is_safe = *sequence < oldest;
            if is_safe {
                builder.retire(*job);
            }
            !is_safe
        });
    }

    fn refused(
        &mut self,
        reason: String,
        versions: (u8, u8),
        frame: Option<(SessionId, u64)>,
    ) -> SessionNotice {
        // Only the oldest frame counts: the others are judged when they are the oldest.
        if let Some((_, sequence)) = frame.filter(|(_, sequence)| *sequence == self.outbox.oldest()) {
            let times = if self.refused.0 == sequence { self.refused.1 + 1 } else { 1 };
            self.refused = (sequence, times);
            if times == REFUSALS {
                let dropped = self.outbox.give_up_oldest();
                let samples = dropped.samples;
                self.counts.samples_refused += samples;
                self.lost(dropped);
                return SessionNotice::GivenUp { sequence, samples, reason };
            }
            // Resend at once: the collector takes nothing behind a refused frame.
            self.outbox.resend_all();
        }
        if std::mem::replace(&mut self.complained, true) {
            return SessionNotice::Ordinary;
        }
        SessionNotice::Refused { reason, versions }
    }

    /// Sends everything without an acknowledgement again, after a new connection. The collector may be another one or
    /// have lost its memory, and messages over the old connection may be lost.
    pub fn connected(&mut self) {
        self.dictionary.clear();
        self.outbox.resend_all();
        self.resend_after_ns = RESEND_NS;
        self.resend_at_ns = None;
    }

    /// Sends everything again if no acknowledgement came within the wait.
    pub fn passed(&mut self, now_ns: u64) {
        if self.resend_at_ns.is_some_and(|at_ns| now_ns >= at_ns) {
            self.outbox.resend_all();
            self.resend_after_ns = (self.resend_after_ns * 2).min(RESEND_MOST_NS);
            self.resend_at_ns = Some(now_ns + self.resend_after_ns);
        }
    }

    /// Returns the latest time for the next call of [`DeliverySession::passed`] and, with a spool, of
    /// [`DeliverySession::spill`].
    pub fn wake_at_ns(&self) -> Option<u64> {
        let spill_at_ns = self.spill_at_ns();
        self.resend_at_ns.into_iter().chain(spill_at_ns).min()
    }

    /// Puts events and tallies of lost frames into a frame of their own, for the end of the agent, when no further
    /// samples follow.
    pub fn tell_all(&mut self, now_ns: u64) {
        if self.builder.has_unreported() && self.outbox.is_empty() {
            self.take(&SampleBatch::default(), now_ns);
        }
    }

    /// True if an event or tally is in no frame yet.
    pub fn has_unreported(&self) -> bool {
        self.builder.has_unreported()
    }

    /// True if everything is acknowledged.
    pub fn is_empty(&self) -> bool {
        self.outbox.is_empty()
    }

    /// True if all frames without an acknowledgement are in the spool.
    pub fn is_spooled(&self) -> bool {
        self.outbox.is_spilled()
    }

    /// Bytes of the frames in memory.
    pub const fn outbox_bytes(&self) -> usize {
        self.outbox.bytes()
    }

    /// The counts of samples and frames.
    pub const fn counts(&self) -> DeliveryCounts {
        self.counts
    }
}
