//! A spool in memory, which survives its agent. It may be full, or refuse to write for a while.

use std::collections::BTreeMap;

use polymeter_agent::delivery::outbox::Restored;
use polymeter_agent::delivery::session::DeliverySession;
use polymeter_agent::delivery::spool::segment::{self, Segment};
use polymeter_proto::series::SessionId;
use polymeter_proto::wire::frame::Frame;

use super::agent::event_id;

/// A frame on the disk, with the ids of its samples and events.
pub(crate) struct SpooledFrame {
    pub(crate) session: SessionId,
    pub(crate) sequence: u64,
    pub(crate) samples: Vec<u64>,
    pub(crate) events: Vec<i64>,
}

#[derive(Debug)]
pub(crate) struct Disk {
    segments: BTreeMap<(SessionId, u64), Vec<u8>>,
    open: Option<(SessionId, u64)>,
    limit_bytes: usize,
    pub(crate) is_faulty: bool,
}

impl Disk {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self { segments: BTreeMap::new(), open: None, limit_bytes, is_faulty: false }
    }

    /// Spills and removes segments of a delivery session, as the agent's spool manager does.
    pub(crate) fn sync(&mut self, delivery: &mut DeliverySession, ends: bool, now_ns: u64) {
        for segment in delivery.released() {
            let released = self.segments.remove(&(delivery.session(), segment));
            assert!(released.is_some(), "segment {segment} is released twice");
            self.open = self.open.filter(|open| *open != (delivery.session(), segment));
        }
        let segment_bytes = delivery.segment_bytes();
        loop {
            let open = self
                .open
                .filter(|open| self.segments.get(open).is_some_and(|bytes| bytes.len() < segment_bytes));
            let Some(batch) = delivery.spill(open.map(|(_, first)| first), ends, now_ns) else { return };
            let bytes: usize = self.segments.values().map(Vec::len).sum();
            if self.is_faulty || bytes + batch.bytes.len() > self.limit_bytes {
                return delivery.not_spilled(now_ns);
            }
            let key = (batch.session, batch.continues.unwrap_or(batch.first));
            self.segments.entry(key).or_default().extend_from_slice(&batch.bytes);
            self.open = Some(key);
            delivery.spilled(&batch, key.1);
        }
    }

    pub(crate) fn read(&self, session: SessionId, first: u64) -> Segment {
        segment::read(session, &self.segments[&(session, first)])
    }

    /// Undelivered sessions on the disk, as the next agent finds them.
    pub(crate) fn deliveries(&mut self, outbox_bytes: usize, now_ns: u64) -> Vec<DeliverySession> {
        self.open = None;
        let mut sessions: BTreeMap<SessionId, Vec<u64>> = BTreeMap::new();
        self.segments.keys().for_each(|(session, first)| sessions.entry(*session).or_default().push(*first));
        sessions
            .iter()
            .map(|(session, firsts)| {
                let newest = self.read(*session, *firsts.last().unwrap()).last().unwrap();
                let ends = firsts.iter().skip(1).map(|next| next - 1).chain([newest]);
                let segments: Vec<_> = firsts.iter().copied().zip(ends).collect();
                DeliverySession::replay(*session, outbox_bytes, &segments, now_ns)
            })
            .collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    pub(crate) fn frames(&self) -> Vec<SpooledFrame> {
        let mut frames = Vec::new();
        for ((session, _), bytes) in &self.segments {
            for restored in segment::read(*session, bytes).restored {
                if let Restored::Frame(sequence, bytes, ..) = restored {
                    let Frame { session, blocks, events, .. } = Frame::decode(&bytes).unwrap();
                    let samples = blocks.into_iter().flat_map(|block| block.values).collect();
                    let events = events.iter().map(event_id).collect();
                    frames.push(SpooledFrame { session, sequence, samples, events });
                }
            }
        }
        frames
    }
}
