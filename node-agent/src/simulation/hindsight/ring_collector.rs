//! A collector without a socket: what it stores, and the checks of what it receives.

use std::collections::{BTreeMap, BTreeSet};

use polymeter_proto::ledger::{Event, KeptInterval, Tally};
use polymeter_proto::series::{JobHandle, SeriesId, ShapeId};
use polymeter_proto::wire::dictionary::Entry;
use polymeter_proto::wire::frame::Frame;
use polymeter_proto::wire::message::{ToAgent, ToCollector};

use super::ring_agent::{RingAgent, SourceName, now_ns};
use crate::delivery::session::NextSend;

/// What a collector knows about one session.
#[derive(Debug, Default)]
pub(super) struct RingCollector {
    /// Last frame without a gap before it.
    received: u64,
    shapes: BTreeMap<ShapeId, (SourceName, Vec<SeriesId>)>,
    seen: BTreeSet<(SeriesId, i64)>,
    pub(super) stored: BTreeMap<SourceName, u64>,
    pub(super) lost: BTreeMap<SourceName, u64>,
    pub(super) tallies: BTreeMap<SourceName, Tally>,
    pub(super) kept: BTreeMap<u64, KeptInterval>,
}

impl RingCollector {
    /// Receives up to `messages`, and loses some of them. Returns false if there are no more.
    pub(super) fn receive(
        &mut self,
        agent: &mut RingAgent,
        messages: usize,
        mut loses: impl FnMut() -> bool,
        now_us: i64,
    ) -> bool {
        for _ in 0..messages {
            let Some(next) = agent.delivery.next_send() else {
                self.acknowledge(agent, now_us);
                return false;
            };
            let is_lost = loses();
            let answer = match next {
                NextSend::Restore(segment) => panic!("{segment} without a spool"),
                _ if is_lost => None,
                NextSend::Frame(bytes) => self.take_frame(Frame::decode(bytes).unwrap(), agent),
                NextSend::Message(bytes) => self.take_message(ToCollector::decode(&bytes).unwrap()),
            };
            agent.delivery.sent(now_ns(now_us));
            if let Some(answer) = answer {
                agent.delivery.handle(answer, now_ns(now_us));
            }
        }
        self.acknowledge(agent, now_us);
        true
    }

    fn acknowledge(&self, agent: &mut RingAgent, now_us: i64) {
        let ack = ToAgent::Ack { session: agent.session, through: self.received };
        agent.delivery.handle(ack, now_ns(now_us));
    }

    fn take_message(&mut self, message: ToCollector) -> Option<ToAgent> {
        match message {
            ToCollector::Dictionary { entries, .. } => self.learn(entries),
            ToCollector::Skipped { session, first, last, lost, .. } => {
                if first > self.received + 1 {
                    return Some(ToAgent::Resend { session, from: self.received + 1 });
                }
                if last > self.received {
                    assert_eq!(first, self.received + 1, "a note about a frame that was received");
                    self.received = last;
                    for of in lost {
                        *self.lost.entry((of.job.unwrap(), of.source)).or_default() += of.samples;
                    }
                }
            }
            ToCollector::Answer { .. } => panic!("{message:?}"),
        }
        None
    }

    fn learn(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            if let Entry::Shape(id, shape) = entry {
                // A job has two shapes, and the first has its number.
                let job = JobHandle(id.0 / 2 * 2);
                self.shapes.insert(id, ((job, shape.source), shape.series));
            }
        }
    }

    fn take_frame(&mut self, frame: Frame, agent: &RingAgent) -> Option<ToAgent> {
        let session = agent.session;
        if frame.sequence <= self.received {
            return None;
        }
        if frame.sequence > self.received + 1 {
            return Some(ToAgent::Resend { session, from: self.received + 1 });
        }
        self.learn(frame.dictionary);
        if frame.blocks.iter().any(|block| !self.shapes.contains_key(&block.shape)) {
            return Some(ToAgent::NeedDictionary { session });
        }
        self.received = frame.sequence;
        for block in &frame.blocks {
            let ((job, source), series) = &self.shapes[&block.shape];
            assert_eq!(source.as_str().starts_with("ring/"), frame.is_kept, "{source}");
            for (column, values) in block.iter() {
                *self.stored.entry((*job, source.clone())).or_default() += values.len() as u64;
                for time_us in &block.times_us {
                    assert!(self.seen.insert((series[column], *time_us)), "{source} is sent twice");
                    assert!(!frame.is_kept || is_promised(agent, *job, *time_us), "{job:?} at {time_us}");
                }
            }
        }
        for entry in frame.ledger {
            self.tallies.insert((entry.job.unwrap(), entry.source), entry.tally);
        }
        for (shape, tally) in frame.shape_tallies {
            self.tallies.insert(self.shapes[&shape].0.clone(), tally);
        }
        for event in frame.events {
            if let Event::Kept(kept) = event {
                let promised = &agent.promised[&kept.trigger];
                let interval = (promised.job, promised.begin_us, promised.end_us);
                assert_eq!((kept.job, kept.begin_us, kept.end_us), interval);
                assert_eq!(self.kept.insert(kept.trigger, kept), None, "an interval ends twice");
            }
        }
        None
    }
}

fn is_promised(agent: &RingAgent, job: JobHandle, time_us: i64) -> bool {
    let mut of_job = agent.promised.values().filter(|wanted| wanted.job == job);
    of_job.any(|wanted| (wanted.begin_us..=wanted.end_us).contains(&time_us))
}
