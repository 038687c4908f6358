//! A delivery and the spool: what goes to the disk and when, and how an earlier life's frames are sent. Still pure: whoever
//! has the disk asks what to write, and says what became of it.

use polymeter_proto::series::SessionId;
use polymeter_proto::wire::dictionary::Entry;
use polymeter_proto::wire::message::ToCollector;

use super::{DeliveryCounts, DeliverySession, RESEND_NS};
use crate::delivery::frame_builder::FrameBuilder;
use crate::delivery::outbox::{Outbox, Outgoing, Spill};
use crate::delivery::spool::segment::{self, Segment};
use crate::delivery::spool::{Batch, SEGMENT_BYTES};

/// How long something may wait in memory alone while nothing is acknowledged, in nanoseconds. It bounds what the death of
/// the agent costs when the collector is away, and how often the disk is bothered.
const SPILL_NS: u64 = 5_000_000_000;

/// Whether and how a delivery uses the spool.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Spooling {
    /// There is none.
    Off,
    /// What finds no room goes there.
    On {
        /// The segment that was written last, and the dictionary's version that it has.
        written: Option<(u64, u64)>,
    },
    /// All comes from there: what an earlier life left, with the dictionary of what was read back of it.
    Replay(Vec<Entry>),
}

impl DeliverySession {
    /// What an earlier life of the agent left of a session: segments, each with its first and its last number.
    pub fn replay(session: SessionId, outbox_bytes: usize, segments: &[(u64, u64)], now_ns: u64) -> Self {
        let outbox = Outbox::of_segments(session, outbox_bytes, segments);
        Self::with(outbox, FrameBuilder::default(), outbox_bytes, now_ns, Spooling::Replay(Vec::new()))
    }

    /// From now on what finds no room is not dropped, but for [`DeliverySession::spill`] to give.
    pub fn use_spool(&mut self) {
        self.spooling = Spooling::On { written: None };
    }

    pub(super) fn all_entries(&self) -> Vec<Entry> {
        match &self.spooling {
            Spooling::Off | Spooling::On { .. } => self.builder.all_entries(),
            Spooling::Replay(entries) => entries.clone(),
        }
    }

    /// When something must go to the disk for want of an answer.
    pub(super) fn spill_at_ns(&self) -> Option<u64> {
        let waits = matches!(self.spooling, Spooling::On { .. }) && self.outbox.bytes() > 0;
        waits.then_some(self.quiet_since_ns + SPILL_NS)
    }

    /// What is to be written to the spool now, whose open segment is `open`: where the outbox is beyond its bound, where
    /// nothing was acknowledged for long, or all where the agent `ends`.
    pub fn spill(&mut self, open: Option<u64>, ends: bool, now_ns: u64) -> Option<Batch> {
        let Spooling::On { written } = &self.spooling else { return None };
        let written = *written;
        let is_quiet = now_ns >= self.quiet_since_ns + SPILL_NS;
        if !(self.outbox.is_over() || is_quiet || ends) {
            return None;
        }
        let Some(Spill { first, continues, entries, records }) = self.outbox.spill(self.segment_bytes() / 4)
        else {
            // All of it lies there.
            self.quiet_since_ns = now_ns;
            return None;
        };
        let continues = continues.filter(|continues| open == Some(*continues));
        let version = self.builder.version();
        let mut bytes = Vec::new();
        if continues.is_none() || written != continues.map(|segment| (segment, version)) {
            for message in ToCollector::dictionaries(self.session, &self.builder.all_entries()) {
                segment::put(&mut bytes, &message);
            }
        }
        for record in records {
            match record {
                Outgoing::Frame(frame) => segment::put(&mut bytes, frame),
                Outgoing::Note(note) => segment::put(&mut bytes, &note.encode()),
                Outgoing::Segment(_) => {}
            }
        }
        Some(Batch { session: self.session, first, entries, continues, bytes })
    }

    /// What [`DeliverySession::spill`] gave is in `segment`.
    pub fn spilled(&mut self, batch: &Batch, segment: u64) {
        self.spooling = Spooling::On { written: Some((segment, self.builder.version())) };
        self.outbox.spilled(batch.first, batch.entries, segment);
    }

    /// What [`DeliverySession::spill`] gave could not be written: what has no room is dropped, and the disk left alone for a while.
    pub fn not_spilled(&mut self, now_ns: u64) {
        self.quiet_since_ns = now_ns;
        self.make_room();
    }

    /// What was read back of a segment. Returns how many frames are missing of it.
    pub fn restored(&mut self, segment: u64, read: Segment) -> u64 {
        if let Spooling::Replay(entries) = &mut self.spooling {
            // A segment says all that is needed from it on, and for what was not acknowledged before it, too.
            *entries = read.dictionary;
        }
        self.outbox.restored(segment, read.restored)
    }

    /// Bytes after which a new segment should be begun. One is in memory as a whole when it is read back.
    pub fn segment_bytes(&self) -> usize {
        SEGMENT_BYTES.min(self.window_bytes / 2)
    }

    /// Whose delivery it is.
    pub const fn session(&self) -> SessionId {
        self.session
    }

    /// The segments that nobody wants any more.
    pub fn released(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.released)
    }

    pub(super) fn with(
        outbox: Outbox,
        builder: FrameBuilder,
        outbox_bytes: usize,
        now_ns: u64,
        spooling: Spooling,
    ) -> Self {
        Self {
            session: outbox.session(),
            // What was sent is not dropped: it may be stored. So half of the outbox must be left for what was not.
            window_bytes: super::WINDOW_BYTES.min(outbox_bytes / 2),
            outbox,
            builder,
            encoder: Default::default(),
            retiring: Vec::new(),
            dictionary: Default::default(),
            resend_at_ns: None,
            resend_after_ns: RESEND_NS,
            refused: (0, 0),
            complained: false,
            counts: DeliveryCounts::default(),
            spooling,
            framed_ns: now_ns,
            quiet_since_ns: now_ns,
            released: Vec::new(),
        }
    }
}
