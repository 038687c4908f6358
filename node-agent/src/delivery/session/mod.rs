//! Agent's side of the delivery protocol: a pure state machine. Its inputs are sample batches, the
//! collector's messages, new connections and the time; its outputs are frames and messages to be sent.
//!
//! Every loss is counted: dropped frames, for lack of room or because the collector refuses them, leave a
//! note in their place in the sequence.

mod framing;
mod ring_frames;
mod spool_mode;
mod spooling;

use std::collections::{BTreeSet, VecDeque};

use polymeter_proto::series::{JobHandle, SessionDescriptor, SessionId, ShapeId};
use polymeter_proto::wire::frame::Encoder;
use polymeter_proto::wire::message::{ToAgent, ToCollector};

use self::spool_mode::SpoolMode;
use crate::delivery::frame_builder::FrameBuilder;
use crate::delivery::outbox::{Outbox, Outgoing};

/// Most bytes under way without an acknowledgement. More would only fill buffers that a restart loses.
const WINDOW_BYTES: usize = 8 * 1024 * 1024;

/// First wait for an acknowledgement before everything is sent again; it doubles each time.
const RESEND_NS: u64 = 5_000_000_000;
const RESEND_MOST_NS: u64 = 60_000_000_000;

/// Refusals after which a frame is given up. A frame damaged in transit is accepted when it is sent again;
/// one refused for its contents would block all frames behind it forever.
pub const REFUSALS: u32 = 3;

#[derive(Debug, PartialEq, Eq)]
pub enum NextSend<'a> {
    Frame(&'a [u8]),
    Message(Vec<u8>),
    /// No data: this segment must be [restored](DeliverySession::restored) first.
    Restore(u64),
}

impl NextSend<'_> {
    /// Bytes to send; none of a segment.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Frame(bytes) => bytes,
            Self::Message(bytes) => bytes,
            Self::Restore(_) => &[],
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum SessionNotice {
    Ordinary,
    /// Refused for the first time since the collector accepted a frame.
    Refused {
        reason: String,
    },
    GivenUp {
        sequence: u64,
        samples: u64,
        reason: String,
    },
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeliveryCounts {
    pub frames_acknowledged: u64,
    /// Samples for which the outbox had no room.
    pub samples_dropped: u64,
    /// Samples of frames that were given up.
    pub samples_refused: u64,
    /// Events of lost frames that are too many to be sent again.
    pub events_dropped: u64,
}

#[derive(Debug)]
pub struct DeliverySession {
    session: SessionId,
    window_bytes: usize,
    outbox: Outbox,
    builder: FrameBuilder,
    encoder: Encoder,
    /// Ended jobs, each with the last frame that mentions it.
    retiring: Vec<(JobHandle, u64)>,
    /// Shapes of former plans and of devices that have other values now, and the last frame that may have
    /// blocks of them. A device that changes all the time would fill the memory with them.
    unused_shapes: (Vec<ShapeId>, u64),
    /// Version of the dictionary in which they were looked for.
    looked_in: u64,
    /// Messages with the whole dictionary, which the collector has requested. Sent before frames.
    dictionary: VecDeque<Vec<u8>>,
    resend_at_ns: Option<u64>,
    resend_after_ns: u64,
    /// Last refused frame, and how often it was refused.
    refused: (u64, u32),
    refusal_logged: bool,
    counts: DeliveryCounts,
    spool_mode: SpoolMode,
    framed_ns: u64,
    /// Time since which data wait without an acknowledgement or, if later, all waiting data are on the disk.
    quiet_since_ns: u64,
    released: Vec<u64>,
    /// Jobs with a ring, whose counts go on after their end.
    held_jobs: BTreeSet<JobHandle>,
    /// Jobs whose ring is gone, and whose last counts are in no frame yet.
    released_jobs: Vec<JobHandle>,
}

impl DeliverySession {
    pub fn new(session: SessionId, descriptor: SessionDescriptor, outbox_bytes: usize, now_ns: u64) -> Self {
        let (outbox, builder) =
            (Outbox::new(session, outbox_bytes), FrameBuilder::new(descriptor, outbox_bytes, now_ns));
        Self::with(outbox, builder, outbox_bytes, now_ns, SpoolMode::Off)
    }

    /// Keeps up to `limit_bytes` of acknowledged frames, which a database may lack after a failover.
    pub const fn keep_acknowledged(&mut self, limit_bytes: usize) {
        self.outbox.keep_acknowledged(limit_bytes);
    }

    /// None if there is none, or the window is full.
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

    pub fn handle(&mut self, message: ToAgent, now_ns: u64) -> SessionNotice {
        match message {
            ToAgent::Ack { session, through } if session == self.session => {
                self.acknowledged(through, now_ns)
            }
            ToAgent::Resend { session, from } if session == self.session => {
                let lost = self.outbox.resend_from(from.max(1));
                // Events are not repeated: the store may have them, and would have them twice.
                self.builder.lost(&lost, Vec::new());
            }
            ToAgent::NeedDictionary { session } if session == self.session => {
                self.dictionary = ToCollector::dictionaries(self.session, &self.all_entries()).into();
                self.outbox.resend_all();
            }
            ToAgent::Refused { frame: Some((session, _)), .. } if session != self.session => {}
            ToAgent::Refused { reason, frame } => return self.refused(reason, frame),
            // Messages for another session, from a collector that remembers an earlier process, and messages
            // that do not concern delivery.
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
        self.refusal_logged = false;
        self.resend_after_ns = RESEND_NS;
        self.resend_at_ns = self.outbox.awaits_answer().then_some(now_ns + RESEND_NS);
        // The dictionary must define the jobs of all frames that may be sent again.
        let oldest = self.outbox.oldest_kept();
        let (builder, held_jobs) = (&mut self.builder, &self.held_jobs);
        self.retiring.retain(|(job, sequence)| {
            let is_safe = *sequence < oldest;
            if is_safe {
                builder.retire(*job, held_jobs.contains(job));
            }
            !is_safe
        });
        self.retire_shapes(oldest);
    }

    /// Forgets unused shapes when all frames before `oldest` are acknowledged, and looks for further ones if
    /// there are new shapes, of which some may replace others.
    fn retire_shapes(&mut self, oldest: u64) {
        let (unused, last) = &self.unused_shapes;
        if *last >= oldest {
            return;
        }
        self.builder.retire_shapes(unused);
        let version = self.builder.version();
        let is_changed = std::mem::replace(&mut self.looked_in, version) != version;
        let unused = if is_changed { self.builder.unused_shapes() } else { Vec::new() };
        self.unused_shapes = (unused, self.outbox.next_sequence() - 1);
    }

    fn refused(&mut self, reason: String, frame: Option<(SessionId, u64)>) -> SessionNotice {
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
        if std::mem::replace(&mut self.refusal_logged, true) {
            return SessionNotice::Ordinary;
        }
        SessionNotice::Refused { reason }
    }

    /// Sends everything without an acknowledgement again, after a new connection. The collector may be
    /// another one or have lost its memory, and messages over the old connection may be lost.
    pub fn connected(&mut self) {
        self.dictionary.clear();
        self.outbox.resend_all();
        self.resend_after_ns = RESEND_NS;
        self.resend_at_ns = None;
    }

    /// Does what is due: sends everything again if no acknowledgement came within the wait, and reports what
    /// no batch carries.
    pub fn advance(&mut self, now_ns: u64) {
        self.take_nothing(now_ns);
        if self.resend_at_ns.is_some_and(|at_ns| now_ns >= at_ns) {
            self.outbox.resend_all();
            self.resend_after_ns = (self.resend_after_ns * 2).min(RESEND_MOST_NS);
            self.resend_at_ns = Some(now_ns + self.resend_after_ns);
        }
    }

    /// Returns the time at which to call [`DeliverySession::advance`] next and, with a spool,
    /// [`DeliverySession::spill`].
    pub fn wake_at_ns(&self) -> Option<u64> {
        let spill_at_ns = self.spill_at_ns();
        self.resend_at_ns.into_iter().chain(spill_at_ns).min()
    }

    /// True if an event or tally is in no frame yet.
    pub fn has_unreported(&self) -> bool {
        self.builder.has_unreported()
    }

    pub fn is_empty(&self) -> bool {
        self.outbox.is_empty()
    }

    /// True if all frames without an acknowledgement are in the spool.
    pub fn is_spooled(&self) -> bool {
        self.outbox.is_spilled()
    }

    pub const fn outbox_bytes(&self) -> usize {
        self.outbox.bytes()
    }

    pub const fn counts(&self) -> DeliveryCounts {
        self.counts
    }
}
