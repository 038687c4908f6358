//! The outbox: frames that the collector has not acknowledged yet. A pure state machine without socket, disk
//! or clock.
//!
//! The collector takes the frames of a session in order and without gaps. If frames are dropped for lack of
//! room, a note takes their place: it states their numbers and their losses, and is sent and acknowledged
//! like a frame.
//!
//! A frame that was sent once may be stored even if no acknowledgement arrived. Therefore frames that were
//! never sent are dropped first, and a note that was sent never changes: each lost sample is counted once,
//! and no stored sample is counted as lost.
//!
//! With a spool, frames may be in segments on the disk instead. A segment keeps its place in the sequence and
//! is read back when its turn comes. The disk always holds the oldest part of the sequence, without gaps.

mod entry;
mod kept;
mod spilling;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use polymeter_proto::series::SessionId;
use polymeter_proto::wire::message::{SkipReason, ToCollector};

pub use self::entry::{Acknowledged, Dropped, Outgoing, Restored, Spill};
use self::entry::{Entry, What};
use self::kept::KeptFrames;
use super::frame_summary::{FrameSummary, LostSamples};
use crate::lanes::EventRecord;

/// Frames in the order of their sequence numbers, bounded in bytes.
#[derive(Debug)]
pub struct Outbox {
    session: SessionId,
    limit_bytes: usize,
    entries: VecDeque<Entry>,
    /// Bytes in memory; `own_bytes` are those of them that are not on the disk as well.
    bytes: usize,
    own_bytes: usize,
    next_sequence: u64,
    /// Entries that were sent since sending last started over.
    under_way: usize,
    under_way_bytes: usize,
    /// Newest sequence number ever sent.
    sent_through: u64,
    kept: KeptFrames,
}

impl Outbox {
    pub fn new(session: SessionId, limit_bytes: usize) -> Self {
        Self {
            session,
            limit_bytes,
            entries: VecDeque::new(),
            bytes: 0,
            own_bytes: 0,
            next_sequence: 1,
            under_way: 0,
            under_way_bytes: 0,
            sent_through: 0,
            kept: KeptFrames::default(),
        }
    }

    pub const fn session(&self) -> SessionId {
        self.session
    }

    pub const fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of the oldest frame without an acknowledgement, or of the next frame.
    pub fn oldest(&self) -> u64 {
        self.entries.front().map_or(self.next_sequence, |entry| entry.first)
    }

    /// A database may lack acknowledged frames after a failover.
    pub const fn keep_acknowledged(&mut self, limit_bytes: usize) {
        self.kept.set_limit(limit_bytes);
    }

    /// Number of the oldest frame that may be sent again.
    pub fn oldest_kept(&self) -> u64 {
        self.kept.oldest().unwrap_or_else(|| self.oldest())
    }

    pub const fn kept_bytes(&self) -> usize {
        self.kept.bytes()
    }

    /// True if an entry was sent and is not acknowledged.
    pub const fn awaits_answer(&self) -> bool {
        self.under_way > 0
    }

    /// Bytes that were sent and are not acknowledged.
    pub const fn bytes_under_way(&self) -> usize {
        self.under_way_bytes
    }

    /// Adds the frame [`Outbox::next_sequence`] with its events. If [`Outbox::is_over`] is true afterwards,
    /// entries must be [spilled](Self::spill) or [dropped](Self::make_room).
    pub fn push(&mut self, bytes: Vec<u8>, summary: FrameSummary, events: Vec<EventRecord>) {
        self.bytes += bytes.len();
        self.own_bytes += bytes.len();
        self.push_entry(What::Frame { bytes, summary, events });
    }

    /// Adds a note in place of the next frame, whose samples exceed the limits of a frame and can never be
    /// sent.
    pub fn push_note(&mut self, summary: &FrameSummary) {
        self.push_entry(What::Skipped { losses: summary.into(), reason: SkipReason::Refused });
    }

    fn push_entry(&mut self, what: What) {
        let (first, last) = (self.next_sequence, self.next_sequence);
        self.entries.push_back(Entry { first, last, segment: None, what });
        self.next_sequence += 1;
    }

    /// True if it is above its limit. Frames that are on the disk as well do not count: they are at most the
    /// window and one segment.
    pub const fn is_over(&self) -> bool {
        self.own_bytes > self.limit_bytes
    }

    /// Drops the oldest frames that were never sent, until the outbox is within its limit. Returns their
    /// contents.
    pub fn make_room(&mut self) -> Dropped {
        let mut dropped = Dropped::default();
        while self.is_over() {
            let unsent = self.position(self.sent_through + 1);
            let oldest = self
                .entries
                .iter()
                .skip(unsent)
                .position(|entry| matches!(entry.what, What::Frame { .. }) && entry.segment.is_none());
            let Some(oldest) = oldest else { break };
            self.skip(unsent + oldest, SkipReason::OutboxFull, &mut dropped);
        }
        dropped
    }

    /// Drops the oldest frame, which the collector refuses.
    pub fn give_up_oldest(&mut self) -> Dropped {
        let mut dropped = Dropped::default();
        // The note is sent next, and everything behind it once more.
        self.rewind(0);
        self.skip(0, SkipReason::Refused, &mut dropped);
        dropped
    }

    /// Replaces the frame at `position`, which is not under way, by a note, or extends the note before it.
    fn skip(&mut self, position: usize, reason: SkipReason, dropped: &mut Dropped) {
        let Some(entry) = self.entries.get_mut(position) else { return };
        let (sequence, segment) = (entry.first, entry.segment);
        let What::Frame { bytes, summary, events } = &mut entry.what else { return };
        let losses = LostSamples::from(&*summary);
        self.bytes -= bytes.len();
        self.own_bytes -= if segment.is_none() { bytes.len() } else { 0 };
        dropped.samples += summary.samples();
        dropped.events.append(events);
        dropped.frames.push(sequence);
        // A preceding note with the same reason that was never sent takes in this frame.
        let sent_through = self.sent_through;
        let before = position.checked_sub(1).and_then(|before| self.entries.get_mut(before));
        let losses = match before {
            Some(Entry {
                first,
                last,
                segment: of,
                what: What::Skipped { losses: skipped, reason: same },
            }) if *same == reason && *first > sent_through && *of == segment => match skipped.join(losses) {
                Ok(()) => {
                    *last = sequence;
                    self.entries.remove(position);
                    return;
                }
                Err(losses) => losses,
            },
            _ => losses,
        };
        if let Some(entry) = self.entries.get_mut(position) {
            entry.what = What::Skipped { losses, reason };
        }
    }

    /// Next entry to be sent, in the order of the sequence.
    pub fn next_outgoing(&self) -> Option<Outgoing<'_>> {
        self.entries.get(self.under_way).map(|entry| self.outgoing(entry))
    }

    fn outgoing<'a>(&self, entry: &'a Entry) -> Outgoing<'a> {
        match &entry.what {
            What::Frame { bytes, .. } => Outgoing::Frame(bytes),
            What::Skipped { losses, reason } => Outgoing::Note(ToCollector::Skipped {
                session: self.session,
                first: entry.first,
                last: entry.last,
                reason: *reason,
                span_us: losses.span_us,
                lost: losses.to_lost(),
            }),
            What::Spilled => Outgoing::Segment(entry.segment.unwrap_or(entry.first)),
        }
    }

    pub fn sent(&mut self) {
        if let Some(entry) = self.entries.get(self.under_way) {
            self.under_way += 1;
            self.under_way_bytes += entry.weight();
            self.sent_through = self.sent_through.max(entry.last);
        }
    }

    /// Records that everything up to `through` is stored. Returns the freed entries. A number that was never
    /// sent is ignored.
    pub fn acknowledge(&mut self, through: u64) -> Acknowledged {
        let mut acknowledged = Acknowledged::default();
        if through > self.sent_through {
            return acknowledged;
        }
        while self.entries.front().is_some_and(|entry| entry.last <= through) {
            let Some(entry) = self.entries.pop_front() else { break };
            if self.under_way > 0 {
                self.under_way -= 1;
                self.under_way_bytes -= entry.weight();
            }
            self.bytes -= entry.bytes();
            self.own_bytes -= entry.own_bytes();
            acknowledged.frames += u64::from(matches!(entry.what, What::Frame { .. }));
            let segment = entry.segment;
            let is_last = self.entries.front().is_none_or(|next| next.segment != segment);
            acknowledged.segments.extend(segment.filter(|_| is_last));
            self.kept.keep(entry);
        }
        acknowledged
    }

    /// Sends everything from `from` once more, also frames that were acknowledged, as far as they are kept:
    /// the database has lost them. For others a note states that they were acknowledged before. Returns the
    /// numbers of frames whose tallies must be repeated.
    pub fn resend_from(&mut self, from: u64) -> Vec<u64> {
        let oldest = self.oldest();
        let mut lost = Vec::new();
        if from < oldest {
            self.rewind(0);
            let (entries, noted) = self.kept.take_from(from, oldest);
            lost = noted;
            for entry in entries.into_iter().rev() {
                self.push_front(entry);
            }
        }
        self.rewind(self.position(from));
        lost
    }

    /// Puts an acknowledged entry before all others.
    fn push_front(&mut self, entry: Entry) {
        if let Some(next) = self.entries.front_mut().filter(|next| next.may_grow())
            && entry.may_grow()
        {
            next.first = entry.first;
            return;
        }
        self.bytes += entry.bytes();
        self.own_bytes += entry.own_bytes();
        self.entries.push_front(entry);
    }

    /// Sends everything that is not acknowledged once more: after a silence, or when the collector was
    /// restarted.
    pub fn resend_all(&mut self) {
        self.rewind(0);
    }

    /// Takes the entry at `position` and those behind it from the entries under way.
    fn rewind(&mut self, position: usize) {
        if position < self.under_way {
            self.under_way = position;
            self.under_way_bytes = self.entries.iter().take(position).map(Entry::weight).sum();
        }
    }

    /// Position of the entry with `sequence`, or of the first entry behind it.
    fn position(&self, sequence: u64) -> usize {
        self.entries.partition_point(|entry| entry.last < sequence)
    }
}
