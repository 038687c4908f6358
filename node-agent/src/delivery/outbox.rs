//! The outbox: frames that the collector has not acknowledged yet. A pure state machine; it sees no socket and no clock.
//!
//! The collector takes the frames of a session in their order and without gaps. So when there is no room and the
//! oldest frames go, a note stays in their place that says which they were and what they held; it is sent and
//! acknowledged as they would have been.

use std::collections::VecDeque;

use polymeter_proto::series::SessionId;
use polymeter_proto::wire::message::{SkipReason, ToCollector};

use crate::sampler::Told;

/// What was known of a frame when it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Content {
    /// How many samples it holds.
    pub samples: u64,
    /// When the oldest and the newest of them were taken, in microseconds since the epoch.
    pub span_us: (i64, i64),
}

/// What had to go to make room.
#[derive(Debug, Default)]
pub struct Dropped {
    /// Samples, which are counted.
    pub samples: u64,
    /// Events, which go into the next frame: whoever reads the data must know them.
    pub events: Vec<Told>,
}

/// One place of the outbox.
#[derive(Debug)]
enum Entry {
    Frame { sequence: u64, bytes: Vec<u8>, content: Content, events: Vec<Told> },
    Skipped { first: u64, last: u64, content: Content, reason: SkipReason },
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
}

/// What is to be sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Outgoing<'a> {
    /// A frame's bytes.
    Frame(&'a [u8]),
    /// A note about frames that went.
    Message(ToCollector),
}

/// Frames in the order of their sequence numbers, bounded in bytes.
#[derive(Debug)]
pub struct Outbox {
    session: SessionId,
    limit_bytes: usize,
    entries: VecDeque<Entry>,
    bytes: usize,
    next_sequence: u64,
    /// The first sequence number that has not been sent since the last time that sending began anew.
    unsent: u64,
}

impl Outbox {
    /// An empty outbox for at most `limit_bytes` of frames.
    pub const fn new(session: SessionId, limit_bytes: usize) -> Self {
        Self { session, limit_bytes, entries: VecDeque::new(), bytes: 0, next_sequence: 1, unsent: 1 }
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

    /// Whether something has been sent and not acknowledged.
    pub fn awaits_answer(&self) -> bool {
        self.entries.front().is_some_and(|entry| entry.first() < self.unsent)
    }

    /// Bytes that have been sent and not acknowledged.
    pub fn bytes_in_flight(&self) -> usize {
        let sent = self.entries.iter().take_while(|entry| entry.first() < self.unsent);
        sent.map(|entry| match entry {
            Entry::Frame { bytes, .. } => bytes.len(),
            Entry::Skipped { .. } => 0,
        })
        .sum()
    }

    /// Puts in the frame [`Outbox::next_sequence`], with the events that are in it. Returns what had to go to make room.
    pub fn push(&mut self, bytes: Vec<u8>, content: Content, events: Vec<Told>) -> Dropped {
        self.bytes += bytes.len();
        self.entries.push_back(Entry::Frame { sequence: self.next_sequence, bytes, content, events });
        self.next_sequence += 1;
        let mut dropped = Dropped::default();
        while self.bytes > self.limit_bytes && self.bytes > 0 {
            self.drop_oldest(&mut dropped);
        }
        dropped
    }

    /// Replaces the oldest frame by a note, and joins it with the note before it.
    fn drop_oldest(&mut self, dropped: &mut Dropped) {
        let oldest = self.entries.iter().position(|entry| matches!(entry, Entry::Frame { .. }));
        let Some(position) = oldest else { return };
        let Some(Entry::Frame { sequence, bytes, content, events }) = self.entries.remove(position) else {
            return;
        };
        self.bytes -= bytes.len();
        dropped.samples += content.samples;
        dropped.events.extend(events);
        let before = position.checked_sub(1).and_then(|before| self.entries.get_mut(before));
        if let Some(Entry::Skipped { last, content: skipped, reason: SkipReason::OutboxFull, .. }) = before {
            *last = sequence;
            skipped.samples += content.samples;
            let (begin_us, end_us) = skipped.span_us;
            skipped.span_us = (begin_us.min(content.span_us.0), end_us.max(content.span_us.1));
            // The note as it was sent, if it was, did not say this.
            self.unsent = self.unsent.min(sequence);
        } else {
            let note =
                Entry::Skipped { first: sequence, last: sequence, content, reason: SkipReason::OutboxFull };
            self.entries.insert(position, note);
        }
    }

    /// What is to be sent next, in the order of the sequence.
    pub fn next_outgoing(&self) -> Option<Outgoing<'_>> {
        let entry = self.entries.iter().find(|entry| entry.last() >= self.unsent)?;
        Some(match entry {
            Entry::Frame { bytes, .. } => Outgoing::Frame(bytes),
            Entry::Skipped { first, last, content, reason } => Outgoing::Message(ToCollector::Skipped {
                session: self.session,
                first: *first,
                last: *last,
                samples: content.samples,
                reason: *reason,
                span_us: content.span_us,
            }),
        })
    }

    /// What [`Outbox::next_outgoing`] gave has been sent.
    pub fn sent(&mut self) {
        if let Some(entry) = self.entries.iter().find(|entry| entry.last() >= self.unsent) {
            self.unsent = entry.last() + 1;
        }
    }

    /// Everything up to `through` is safe. Returns how many frames that were. A number that was never sent, from a
    /// collector that lies, is ignored.
    pub fn acknowledge(&mut self, through: u64) -> u64 {
        let mut frames = 0;
        if through >= self.unsent {
            return frames;
        }
        while self.entries.front().is_some_and(|entry| entry.last() <= through) {
            if let Some(Entry::Frame { bytes, .. }) = self.entries.pop_front() {
                self.bytes -= bytes.len();
                frames += 1;
            }
        }
        frames
    }

    /// The collector wants everything from `from` once more. What is not there any more was acknowledged once, perhaps
    /// by another collector or to a database that was lost since; it is told so.
    pub fn resend_from(&mut self, from: u64) {
        let oldest = self.entries.front().map_or(self.next_sequence, Entry::first);
        if from < oldest {
            let note = Entry::Skipped {
                first: from,
                last: oldest - 1,
                content: Content::default(),
                reason: SkipReason::AlreadyAcknowledged,
            };
            self.entries.push_front(note);
        }
        self.unsent = self.unsent.min(from);
    }

    /// Begins anew with everything that is not acknowledged: after a silence, or when the collector was restarted.
    pub fn resend_all(&mut self) {
        self.unsent = self.entries.front().map_or(self.next_sequence, Entry::first);
    }
}

#[cfg(test)]
mod tests {
    use polymeter_proto::ledger::Event;
    use polymeter_proto::series::JobHandle;

    use super::*;

    const SESSION: SessionId = SessionId(1);

    fn content(samples: u64, at: i64) -> Content {
        Content { samples, span_us: (at, at + 1) }
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
                Outgoing::Message(ToCollector::Skipped { first, last, samples, reason, .. }) => {
                    format!("{first}-{last}:{samples}:{reason:?}")
                }
                Outgoing::Message(other) => panic!("{other:?}"),
            });
            outbox.sent();
        }
        sent
    }

    #[test]
    fn frames_stay_until_they_are_acknowledged() {
        let mut outbox = outbox(3, 1000);
        assert_eq!(send_all(&mut outbox), ["1", "2", "3"]);
        assert_eq!(outbox.bytes_in_flight(), 30);
        assert_eq!(outbox.acknowledge(2), 2);
        assert_eq!((outbox.bytes(), outbox.awaits_answer()), (10, true));
        outbox.resend_all();
        assert_eq!(send_all(&mut outbox), ["3"]);
        assert_eq!(outbox.acknowledge(3), 1);
        assert!(outbox.is_empty());
    }

    #[test]
    fn a_full_outbox_notes_what_went() {
        let mut outbox = outbox(5, 20);
        assert_eq!(send_all(&mut outbox), ["1-3:6:OutboxFull", "4", "5"]);
        assert_eq!(outbox.push(vec![6; 10], content(6, 60), Vec::new()).samples, 4);
        // The note has grown since it was sent, so it is sent once more.
        assert_eq!(send_all(&mut outbox), ["1-4:10:OutboxFull", "5", "6"]);
        assert_eq!(outbox.acknowledge(4), 0);
        assert_eq!(outbox.acknowledge(6), 2);
        assert!(outbox.is_empty());
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
