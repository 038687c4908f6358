//! The outbox: frames that the collector has not acknowledged yet. A pure state machine; it sees no socket and no clock.
//!
//! The collector takes the frames of a session in their order and without gaps. So when there is no room and frames go,
//! a note stays in their place that says which they were and what they held; it is sent and acknowledged as they would
//! have been.
//!
//! What was sent once may be stored, whether the answer came or not. So a frame that was never sent goes first, and a
//! note that was sent never changes: what is counted as lost is lost, and what is lost is counted once.

use std::collections::VecDeque;

use polymeter_proto::series::SessionId;
use polymeter_proto::wire::message::{SkipReason, ToCollector};

use super::content::{Content, Losses};
use crate::sampler::Told;

/// What a note weighs against the window: about what its message takes on the wire.
const NOTE_BYTES: usize = 64;

/// What will never be stored.
#[derive(Debug, Default)]
pub struct Dropped {
    /// Samples, which are counted.
    pub samples: u64,
    /// Events, which go into a later frame: whoever reads the data must know them.
    pub events: Vec<Told>,
    /// The frames. What else was in them must be told again, too.
    pub frames: Vec<u64>,
}

impl Dropped {
    /// Both as one.
    pub fn join(&mut self, other: Self) {
        self.samples += other.samples;
        self.events.extend(other.events);
        self.frames.extend(other.frames);
    }
}

/// One place of the outbox.
#[derive(Debug)]
enum Entry {
    Frame { sequence: u64, bytes: Vec<u8>, content: Content, events: Vec<Told> },
    Skipped { first: u64, last: u64, losses: Losses, reason: SkipReason },
}

impl Entry {
    const fn first(&self) -> u64 {
        match self {
            Self::Frame { sequence, .. } => *sequence,
            Self::Skipped { first, .. } => *first,
        }
    }

    const fn last(&self) -> u64 {
        match self {
            Self::Frame { sequence, .. } => *sequence,
            Self::Skipped { last, .. } => *last,
        }
    }

    /// What it weighs against the window.
    const fn weight(&self) -> usize {
        match self {
            Self::Frame { bytes, .. } => bytes.len(),
            Self::Skipped { .. } => NOTE_BYTES,
        }
    }
}

/// What is to be sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Outgoing<'a> {
    /// A frame's bytes.
    Frame(&'a [u8]),
    /// A note about frames that went.
    Note(ToCollector),
}

/// Frames in the order of their sequence numbers, bounded in bytes.
#[derive(Debug)]
pub struct Outbox {
    session: SessionId,
    limit_bytes: usize,
    entries: VecDeque<Entry>,
    bytes: usize,
    next_sequence: u64,
    /// How many of the entries are under way: sent since the last time that sending began anew.
    under_way: usize,
    under_way_bytes: usize,
    /// The newest sequence number that was ever sent.
    sent_through: u64,
}

impl Outbox {
    /// An empty outbox for at most `limit_bytes` of frames.
    pub const fn new(session: SessionId, limit_bytes: usize) -> Self {
        Self {
            session,
            limit_bytes,
            entries: VecDeque::new(),
            bytes: 0,
            next_sequence: 1,
            under_way: 0,
            under_way_bytes: 0,
            sent_through: 0,
        }
    }

    /// The sequence number of the next frame to be put in.
    pub const fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// Bytes of the frames that it holds.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether everything has been acknowledged.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of the oldest frame that is not acknowledged, or of the next one.
    pub fn oldest(&self) -> u64 {
        self.entries.front().map_or(self.next_sequence, Entry::first)
    }

    /// Whether something has been sent and not acknowledged.
    pub const fn awaits_answer(&self) -> bool {
        self.under_way > 0
    }

    /// Bytes that have been sent and not acknowledged.
    pub const fn bytes_under_way(&self) -> usize {
        self.under_way_bytes
    }

    /// Puts in the frame [`Outbox::next_sequence`], with the events that are in it. Returns what had to go to make room.
    pub fn push(&mut self, bytes: Vec<u8>, content: Content, events: Vec<Told>) -> Dropped {
        self.bytes += bytes.len();
        self.entries.push_back(Entry::Frame { sequence: self.next_sequence, bytes, content, events });
        self.next_sequence += 1;
        let mut dropped = Dropped::default();
        while self.bytes > self.limit_bytes {
            let unsent = self.position(self.sent_through + 1);
            let is_frame = |entry: &Entry| matches!(entry, Entry::Frame { .. });
            let Some(oldest) = self.entries.iter().skip(unsent).position(is_frame) else { break };
            self.skip(unsent + oldest, SkipReason::OutboxFull, &mut dropped);
        }
        dropped
    }

    /// Notes that the samples of the next frame can never be sent, for there is no frame that would hold them.
    pub fn push_nothing(&mut self, content: &Content) {
        let (first, last, losses) = (self.next_sequence, self.next_sequence, content.into());
        let reason = SkipReason::Refused;
        self.entries.push_back(Entry::Skipped { first, last, losses, reason });
        self.next_sequence += 1;
    }

    /// Gives up the oldest frame, which the collector refuses. Returns what was in it.
    pub fn give_up_oldest(&mut self) -> Dropped {
        let mut dropped = Dropped::default();
        // The note is to be sent next, and everything behind it once more.
        self.rewind(0);
        self.skip(0, SkipReason::Refused, &mut dropped);
        dropped
    }

    /// Replaces the frame at `position`, which is not under way, by a note, or lets the note before it grow.
    fn skip(&mut self, position: usize, reason: SkipReason, dropped: &mut Dropped) {
        let Some(place) = self.entries.get_mut(position) else { return };
        let Entry::Frame { sequence, bytes, content, events } = place else { return };
        let (sequence, losses) = (*sequence, Losses::from(&*content));
        self.bytes -= bytes.len();
        dropped.samples += content.samples();
        dropped.events.append(events);
        dropped.frames.push(sequence);
        // A neighbour that says the same, and was not sent either, says it for both.
        let sent_through = self.sent_through;
        let before = position.checked_sub(1).and_then(|before| self.entries.get_mut(before));
        let losses = match before {
            Some(Entry::Skipped { first, last, losses: skipped, reason: same })
                if *same == reason && *first > sent_through =>
            {
                match skipped.join(losses) {
                    Ok(()) => {
                        *last = sequence;
                        self.entries.remove(position);
                        return;
                    }
                    Err(losses) => losses,
                }
            }
            _ => losses,
        };
        if let Some(place) = self.entries.get_mut(position) {
            *place = Entry::Skipped { first: sequence, last: sequence, losses, reason };
        }
    }

    /// What is to be sent next, in the order of the sequence.
    pub fn next_outgoing(&self) -> Option<Outgoing<'_>> {
        Some(match self.entries.get(self.under_way)? {
            Entry::Frame { bytes, .. } => Outgoing::Frame(bytes),
            Entry::Skipped { first, last, losses, reason } => Outgoing::Note(ToCollector::Skipped {
                session: self.session,
                first: *first,
                last: *last,
                reason: *reason,
                span_us: losses.span_us,
                lost: losses.to_lost(),
            }),
        })
    }

    /// What [`Outbox::next_outgoing`] gave has been sent.
    pub fn sent(&mut self) {
        if let Some(entry) = self.entries.get(self.under_way) {
            self.under_way += 1;
            self.under_way_bytes += entry.weight();
            self.sent_through = self.sent_through.max(entry.last());
        }
    }

    /// Everything up to `through` is safe. Returns how many frames that were. A number that was never sent, from a
    /// collector that lies, is ignored.
    pub fn acknowledge(&mut self, through: u64) -> u64 {
        let mut frames = 0;
        if through > self.sent_through {
            return frames;
        }
        while self.entries.front().is_some_and(|entry| entry.last() <= through) {
            let Some(entry) = self.entries.pop_front() else { break };
            if self.under_way > 0 {
                self.under_way -= 1;
                self.under_way_bytes -= entry.weight();
            }
            if let Entry::Frame { bytes, .. } = entry {
                self.bytes -= bytes.len();
                frames += 1;
            }
        }
        frames
    }

    /// The collector wants everything from `from` once more. What is not there any more was acknowledged once, perhaps
    /// by another collector or to a database that was lost since; it is told so.
    pub fn resend_from(&mut self, from: u64) {
        let oldest = self.oldest();
        if from < oldest {
            self.rewind(0);
            let reason = SkipReason::AlreadyAcknowledged;
            // It counts nothing, so that it may grow although it was sent.
            if let Some(Entry::Skipped { first, reason: SkipReason::AlreadyAcknowledged, .. }) =
                self.entries.front_mut()
            {
                *first = from;
            } else {
                let (last, losses) = (oldest - 1, Losses::default());
                self.entries.push_front(Entry::Skipped { first: from, last, losses, reason });
            }
        }
        self.rewind(self.position(from));
    }

    /// Begins anew with everything that is not acknowledged: after a silence, or when the collector was restarted.
    pub fn resend_all(&mut self) {
        self.rewind(0);
    }

    /// What is at `position` and behind it is not under way any more.
    fn rewind(&mut self, position: usize) {
        if position < self.under_way {
            self.under_way = position;
            self.under_way_bytes = self.entries.iter().take(position).map(Entry::weight).sum();
        }
    }

    /// The position of the entry that has `sequence`, or of the first beyond it.
    fn position(&self, sequence: u64) -> usize {
        self.entries.partition_point(|entry| entry.last() < sequence)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use polymeter_proto::batch::{Batch, Column, Instant, Shape};
    use polymeter_proto::ledger::Event;
    use polymeter_proto::name::MetricName;
    use polymeter_proto::period::Period;
    use polymeter_proto::series::{
        JobHandle, Kind, Labels, MetricDescriptor, MetricId, Number, SeriesId, ShapeId, Unit,
    };

    use super::*;

    const SESSION: SessionId = SessionId(1);

    /// So many samples of one source.
    fn content(samples: u64, at_us: i64) -> Content {
        let source = "stat".try_into().unwrap();
        let period = Period::SECOND;
        let shape = Arc::new(Shape { id: ShapeId(1), job: None, source, period, columns: vec![column()] });
        let mut batch = Batch::default();
        let index = batch.add_shape(&shape);
        for _ in 0..samples {
            let instant = Instant { deadline: None, time_us: at_us };
            batch.push(index, instant, std::iter::once(Some(1))).unwrap();
        }
        Content::of(&batch)
    }

    fn column() -> Column {
        let name = MetricName::new("cpu.usage").unwrap();
        let metric =
            MetricDescriptor { name, unit: Unit::Count, kind: Kind::Counter, number: Number::Unsigned };
        Column { series: SeriesId(1), metric: (MetricId(1), metric), labels: Labels::default() }
    }

    fn outbox(frames: u8, limit_bytes: usize) -> Outbox {
        let mut outbox = Outbox::new(SESSION, limit_bytes);
        for frame in 1..=frames {
            outbox.push(vec![frame; 10], content(u64::from(frame), i64::from(frame) * 10), Vec::new());
        }
        outbox
    }

    fn send_all(outbox: &mut Outbox) -> Vec<String> {
        let mut sent = Vec::new();
        while let Some(outgoing) = outbox.next_outgoing() {
            sent.push(match outgoing {
                Outgoing::Frame(bytes) => format!("{}", bytes[0]),
                Outgoing::Note(ToCollector::Skipped { first, last, lost, reason, .. }) => {
                    let samples: u64 = lost.iter().map(|lost| lost.samples).sum();
                    format!("{first}-{last}:{samples}:{reason:?}")
                }
                Outgoing::Note(other) => panic!("{other:?}"),
            });
            outbox.sent();
        }
        sent
    }

    #[test]
    fn frames_stay_until_they_are_acknowledged() {
        let mut outbox = outbox(3, 1000);
        assert_eq!(send_all(&mut outbox), ["1", "2", "3"]);
        assert_eq!(outbox.bytes_under_way(), 30);
        assert_eq!(outbox.acknowledge(2), 2);
        assert_eq!((outbox.bytes(), outbox.awaits_answer()), (10, true));
        outbox.resend_all();
        assert_eq!(send_all(&mut outbox), ["3"]);
        assert_eq!(outbox.acknowledge(3), 1);
        assert!(outbox.is_empty());
    }

    #[test]
    fn a_full_outbox_notes_what_went_and_keeps_what_was_sent() {
        let mut outbox = outbox(5, 20);
        assert_eq!(send_all(&mut outbox), ["1-3:6:OutboxFull", "4", "5"]);
        // What was sent may be stored already: the newest frame goes, for it alone was never sent.
        assert_eq!(outbox.push(vec![6; 10], content(6, 60), Vec::new()).samples, 6);
        assert_eq!(send_all(&mut outbox), ["6-6:6:OutboxFull"]);
        // A note that was sent does not grow; one that was not does.
        assert_eq!(outbox.push(vec![7; 10], content(7, 70), Vec::new()).samples, 7);
        assert_eq!(outbox.push(vec![8; 10], content(8, 80), Vec::new()).samples, 8);
        assert_eq!(send_all(&mut outbox), ["7-8:15:OutboxFull"]);
        assert_eq!(outbox.acknowledge(4), 1);
        assert_eq!(outbox.acknowledge(8), 1);
        assert!(outbox.is_empty());
    }

    #[test]
    fn a_frame_that_is_refused_leaves_a_note_and_what_follows_is_sent_again() {
        let mut outbox = outbox(3, 1000);
        send_all(&mut outbox);
        assert_eq!(outbox.give_up_oldest().samples, 1);
        assert_eq!(outbox.give_up_oldest().samples, 0);
        assert_eq!((outbox.bytes(), outbox.bytes_under_way()), (20, 0));
        assert_eq!(send_all(&mut outbox), ["1-1:1:Refused", "2", "3"]);
        assert_eq!(outbox.acknowledge(3), 2);
        assert_eq!((outbox.bytes(), outbox.bytes_under_way(), outbox.is_empty()), (0, 0, true));
    }

    #[test]
    fn an_acknowledgement_that_comes_after_sending_began_anew_counts() {
        let mut outbox = outbox(3, 1000);
        send_all(&mut outbox);
        outbox.resend_all();
        assert_eq!(outbox.acknowledge(2), 2);
        assert_eq!(send_all(&mut outbox), ["3"]);
    }

    #[test]
    fn events_of_a_frame_that_goes_are_given_back() {
        let mut outbox = Outbox::new(SESSION, 15);
        let event = Event::JobEnded { job: JobHandle(7), at_us: 1 };
        let told = Told { job: None, event: event.clone() };
        assert!(outbox.push(vec![0; 10], content(1, 0), vec![told]).events.is_empty());
        let given_back = outbox.push(vec![0; 10], content(1, 1), Vec::new()).events;
        assert_eq!(given_back.into_iter().map(|told| told.event).collect::<Vec<_>>(), [event]);
    }

    #[test]
    fn what_was_acknowledged_is_never_made_up_again() {
        let mut outbox = outbox(3, 1000);
        send_all(&mut outbox);
        outbox.acknowledge(2);
        outbox.resend_from(1);
        assert_eq!(send_all(&mut outbox), ["1-2:0:AlreadyAcknowledged", "3"]);
        outbox.acknowledge(3);
        outbox.resend_from(2);
        assert_eq!(send_all(&mut outbox), ["2-3:0:AlreadyAcknowledged"]);
    }

    #[test]
    fn a_collector_that_acknowledges_the_future_is_not_believed() {
        let mut outbox = outbox(3, 1000);
        assert_eq!(outbox.acknowledge(u64::MAX), 0);
        assert_eq!(send_all(&mut outbox).len(), 3);
    }

    #[test]
    fn a_frame_larger_than_the_outbox_is_noted_too() {
        let mut outbox = Outbox::new(SESSION, 5);
        assert_eq!(outbox.push(vec![0; 10], content(7, 0), Vec::new()).samples, 7);
        assert_eq!(outbox.bytes(), 0);
        assert_eq!(send_all(&mut outbox), ["1-1:7:OutboxFull"]);
    }
}
