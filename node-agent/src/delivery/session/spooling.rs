//! The spool in the delivery protocol: which entries are written to the disk and when, and how the frames of
//! an earlier process are sent. Pure: the spool manager takes the entries to be written, and reports the
//! result.

use std::collections::BTreeSet;

use polymeter_proto::series::SessionId;
use polymeter_proto::wire::dictionary::Entry;
use polymeter_proto::wire::message::ToCollector;
use polymeter_service::spool::record;

use super::spool_mode::SpoolMode;
use super::{DeliveryCounts, DeliverySession, RESEND_NS};
use crate::delivery::frame_builder::FrameBuilder;
use crate::delivery::outbox::{Outbox, Outgoing, Spill};
use crate::delivery::spool::segment::Segment;
use crate::delivery::spool::{SEGMENT_BYTES, SpoolBatch};
use crate::lanes::SampleBatch;

/// How long frames wait in memory alone while nothing is acknowledged. Bounds the loss when the agent is
/// killed while the collector is away, and the rate of writes to the disk.
const SPILL_NS: u64 = 5_000_000_000;

impl DeliverySession {
    /// Makes the session of an earlier process from its segments, each with its first and its last number.
    pub fn replay(session: SessionId, outbox_bytes: usize, segments: &[(u64, u64)], now_ns: u64) -> Self {
        let outbox = Outbox::of_segments(session, outbox_bytes, segments);
        Self::with(outbox, FrameBuilder::default(), outbox_bytes, now_ns, SpoolMode::Replay(Vec::new()))
    }

    /// Enables the spool: frames without room are not dropped, but returned by [`DeliverySession::spill`].
    /// Acknowledged frames are not kept any more: one that is sent again could be spilled to the segment that
    /// its acknowledgement removes.
    pub fn use_spool(&mut self) {
        self.outbox.keep_acknowledged(0);
        self.spool_mode = SpoolMode::On { written: None };
    }

    pub(super) fn all_entries(&self) -> Vec<Entry> {
        match &self.spool_mode {
            SpoolMode::Off | SpoolMode::On { .. } => self.builder.all_entries(),
            SpoolMode::Replay(entries) => entries.clone(),
        }
    }

    pub(super) fn spill_at_ns(&self) -> Option<u64> {
        let waits = matches!(self.spool_mode, SpoolMode::On { .. }) && self.outbox.bytes() > 0;
        waits.then_some(self.quiet_since_ns + SPILL_NS)
    }

    /// Takes the batch to be written to the spool now, whose open segment is `open`: if the outbox is above
    /// its limit, if nothing was acknowledged for `SPILL_NS`, or everything if the agent `ends`.
    pub fn spill(&mut self, open: Option<u64>, ends: bool, now_ns: u64) -> Option<SpoolBatch> {
        let SpoolMode::On { written } = self.spool_mode else { return None };
        while ends && self.builder.has_unreported() {
            self.take(&SampleBatch::default(), now_ns);
        }
        let is_quiet = now_ns >= self.quiet_since_ns + SPILL_NS;
        if !(self.outbox.is_over() || is_quiet || ends) {
            return None;
        }
        let Some(Spill { first, continues, entries, records }) = self.outbox.spill(self.segment_bytes() / 4)
        else {
            // All waiting data are on the disk.
            self.quiet_since_ns = now_ns;
            return None;
        };
        let continues = continues.filter(|continues| open == Some(*continues));
        let version = self.builder.version();
        let mut bytes = Vec::new();
        if continues.is_none() || written != continues.map(|segment| (segment, version)) {
            for message in ToCollector::dictionaries(self.session, &self.builder.all_entries()) {
                record::put(&mut bytes, &[&message]);
            }
        }
        for record in records {
            match record {
                Outgoing::Frame(frame) => record::put(&mut bytes, &[frame]),
                Outgoing::Note(note) => record::put(&mut bytes, &[&note.encode()]),
                Outgoing::Segment(_) => {}
            }
        }
        Some(SpoolBatch { session: self.session, first, entries, continues, bytes })
    }

    pub fn spilled(&mut self, batch: &SpoolBatch, segment: u64) {
        self.spool_mode = SpoolMode::On { written: Some((segment, self.builder.version())) };
        self.outbox.spilled(batch.first, batch.entries, segment);
    }

    /// Records that the batch could not be written: frames without room are dropped, and the next attempt is
    /// delayed.
    pub fn not_spilled(&mut self, now_ns: u64) {
        self.quiet_since_ns = now_ns;
        self.make_room();
    }

    /// Returns how many frames of the segment are missing.
    pub fn restored(&mut self, segment: u64, read: Segment) -> u64 {
        if let SpoolMode::Replay(entries) = &mut self.spool_mode {
            // A segment defines all that is needed for it and the following, and for earlier frames without
            // an acknowledgement.
            *entries = read.dictionary;
        }
        self.outbox.restored(segment, read.restored)
    }

    /// A segment is in memory as a whole when it is read back.
    pub fn segment_bytes(&self) -> usize {
        SEGMENT_BYTES.min(self.window_bytes / 2)
    }

    pub const fn session(&self) -> SessionId {
        self.session
    }

    pub fn released(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.released)
    }

    pub(super) fn with(
        outbox: Outbox,
        builder: FrameBuilder,
        outbox_bytes: usize,
        now_ns: u64,
        spool_mode: SpoolMode,
    ) -> Self {
        Self {
            session: outbox.session(),
            // Sent frames are not dropped, because they may be stored. So half of the outbox is left for
            // frames that were not sent.
            window_bytes: super::WINDOW_BYTES.min(outbox_bytes / 2),
            outbox,
            builder,
            encoder: Default::default(),
            retiring: Vec::new(),
            unused_shapes: (Vec::new(), 0),
            looked_in: 0,
            dictionary: Default::default(),
            resend_at_ns: None,
            resend_after_ns: RESEND_NS,
            refused: (0, 0),
            refusal_logged: false,
            counts: DeliveryCounts::default(),
            spool_mode,
            framed_ns: now_ns,
            quiet_since_ns: now_ns,
            released: Vec::new(),
            held_jobs: BTreeSet::new(),
            released_jobs: Vec::new(),
        }
    }
}
