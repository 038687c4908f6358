//! Agents that are not there: each has a session of its own, and sends the values of a recorded job as if it sampled them.
//! Pure: what carries the frames is somebody else's affair.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use polymeter_proto::batch::{Batch, Instant, Shape};
use polymeter_proto::period::Period;
use polymeter_proto::series::{Identifier, SessionDescriptor, SessionId};
use polymeter_proto::wire::dictionary::{Announced, Entry};
use polymeter_proto::wire::frame::{Encoder, Extras};
use polymeter_proto::wire::message::{ToAgent, ToCollector};

use crate::recording::{self, RecordingError};

/// Ticks of the recording, of a millisecond each, between two frames of one agent: a prime, so that all are used.
const STRIDE: usize = 97;

/// What all mock agents have in common: names and values.
#[derive(Debug)]
pub struct Script {
    period: Period,
    shapes: Vec<Arc<Shape>>,
    /// What announces them; the session's own entry goes before.
    entries: Vec<Entry>,
    ticks: Vec<Tick>,
}

/// The values of one tick: the number of a shape, and a value for each of its columns.
type Tick = Vec<(usize, Vec<Option<u64>>)>;

impl Script {
    /// The values of a recording, to be sent every `period`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(path: &Path, period: Period) -> Result<Self, RecordingError> {
        let rows = recording::rows(path)?;
        let mut shapes: Vec<Arc<Shape>> = Vec::new();
        let mut ticks: Vec<Tick> = Vec::new();
        for of_tick in rows.chunk_by(|a, b| a.instant.time_us / 1_000 == b.instant.time_us / 1_000) {
            let mut tick = Vec::with_capacity(of_tick.len());
            for row in of_tick {
                let known = shapes.iter().position(|shape| shape.id == row.shape.id);
                tick.push((known.unwrap_or(shapes.len()), row.values.clone()));
                if known.is_none() {
                    shapes.push(Arc::new(Shape { period, ..Shape::clone(&row.shape) }));
                }
            }
            ticks.push(tick);
        }
        // Those at the ends, or around a missed deadline, are not whole.
        ticks.retain(|tick| tick.len() == shapes.len());
        if ticks.is_empty() {
            return Err(RecordingError::Incomplete);
        }
        let (mut announced, mut entries) = (Announced::default(), Vec::new());
        shapes.iter().for_each(|shape| announced.announce(shape, &mut entries));
        Ok(Self { period, shapes, entries, ticks })
    }

    /// Samples in one frame of one agent.
    pub fn samples_per_tick(&self) -> usize {
        self.shapes.iter().map(|shape| shape.columns.len()).sum()
    }

    /// What is sampled together, with the names of its series.
    pub fn shapes(&self) -> &[Arc<Shape>] {
        &self.shapes
    }

    /// Where a session begins: anywhere will do, as long as not all begin at the same tick.
    pub fn first_tick(&self, session: SessionId) -> usize {
        usize::try_from(session.0 % self.ticks.len() as u64).unwrap_or(0)
    }

    /// The tick that is due after this one.
    pub const fn tick_after(&self, tick: usize) -> usize {
        (tick + STRIDE) % self.ticks.len()
    }

    /// What a tick has: the number of a shape, and a value for each of its columns.
    pub fn rows(&self, tick: usize) -> impl Iterator<Item = (usize, &[Option<u64>])> {
        self.ticks.get(tick).into_iter().flatten().map(|(shape, values)| (*shape, values.as_slice()))
    }
}

/// One agent: its session, and the frames that are not acknowledged.
#[derive(Debug)]
pub struct MockAgent {
    session: SessionId,
    descriptor: SessionDescriptor,
    sequence: u64,
    tick: usize,
    outbox: VecDeque<(u64, Vec<u8>)>,
    samples: u64,
}

impl MockAgent {
    /// An agent on `node` that begins somewhere in the script.
    pub const fn new(session: SessionId, node: Identifier, version: Identifier, started_us: i64) -> Self {
        let descriptor = SessionDescriptor { node, agent_version: version, started_us };
        Self { session, descriptor, sequence: 0, tick: 0, outbox: VecDeque::new(), samples: 0 }
    }

    /// Its next frame: `ticks` ticks of which the last is at `time_us`. It stays in the outbox until it is acknowledged.
    ///
    /// # Errors
    /// When so many ticks are too much for one frame.
    pub fn sample(
        &mut self,
        script: &Script,
        encoder: &mut Encoder,
        time_us: i64,
        ticks: u16,
    ) -> Result<&[u8], &'static str> {
        if self.sequence == 0 {
            self.tick = script.first_tick(self.session);
        }
        self.sequence += 1;
        let mut batch = Batch::default();
        let indices: Vec<_> = script.shapes.iter().map(|shape| batch.add_shape(shape)).collect();
        let period_us = i64::try_from(script.period.as_micros()).unwrap_or(i64::MAX);
        for back in (0..i64::from(ticks)).rev() {
            let time_us = time_us - back * period_us;
            let instant = Instant { deadline: u64::try_from(time_us / period_us).ok(), time_us };
            self.tick = script.tick_after(self.tick);
            for (shape, values) in script.rows(self.tick) {
                if let Some(index) = indices.get(shape) {
                    // What has no room in a frame is not counted either.
                    self.samples += batch.push(*index, instant, values.iter().copied()).unwrap_or(0);
                }
            }
        }
        let first = self.sequence == 1;
        let dictionary = if first { self.dictionary(script) } else { Vec::new() };
        let extras = Extras { dictionary: &dictionary, ..Extras::default() };
        let mut bytes = Vec::new();
        encoder
            .encode(&mut bytes, self.session, self.sequence, &batch, extras)
            .map_err(|_oversized| "so many ticks do not fit into a frame")?;
        self.outbox.push_back((self.sequence, bytes));
        Ok(self.outbox.back().map_or(&[], |(_, bytes)| bytes))
    }

    /// What is to be sent because of an answer.
    ///
    /// # Errors
    /// When the collector refuses what came.
    pub fn hear(&mut self, script: &Script, answer: &ToAgent) -> Result<Vec<Vec<u8>>, String> {
        match answer {
            ToAgent::Ack { through, .. } => {
                while self.outbox.front().is_some_and(|(sequence, _)| sequence <= through) {
                    self.outbox.pop_front();
                }
                Ok(Vec::new())
            }
            ToAgent::Resend { from, .. } => Ok(self.unacknowledged(*from)),
            ToAgent::NeedDictionary { .. } => {
                let mut messages = ToCollector::dictionaries(self.session, &self.dictionary(script));
                messages.extend(self.unacknowledged(0));
                Ok(messages)
            }
            ToAgent::Refused { reason, .. } => Err(reason.clone()),
            // Nobody asks here.
            ToAgent::Request { .. } => Ok(Vec::new()),
        }
    }

    /// The frames that wait for an acknowledgement, from number `first` on.
    pub fn unacknowledged(&self, first: u64) -> Vec<Vec<u8>> {
        let from = self.outbox.iter().filter(|(sequence, _)| *sequence >= first);
        from.map(|(_, bytes)| bytes.clone()).collect()
    }

    /// Whether all its frames are acknowledged.
    pub fn is_settled(&self) -> bool {
        self.outbox.is_empty()
    }

    /// How many samples its frames had.
    pub const fn samples(&self) -> u64 {
        self.samples
    }

    fn dictionary(&self, script: &Script) -> Vec<Entry> {
        let session = std::iter::once(Entry::Session(self.descriptor.clone()));
        session.chain(script.entries.iter().cloned()).collect()
    }
}

/// The session that an answer is for; none where it is for the connection.
pub const fn session_of(answer: &ToAgent) -> Option<SessionId> {
    match answer {
        ToAgent::Ack { session, .. }
        | ToAgent::Resend { session, .. }
        | ToAgent::NeedDictionary { session }
        | ToAgent::Request { session, .. } => Some(*session),
        ToAgent::Refused { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use polymeter_proto::wire::frame::Frame;

    use super::*;

    fn script() -> Script {
        Script::read(Path::new(recording::RECORDED), Period::SECOND).unwrap()
    }

    fn agent(session: u64) -> MockAgent {
        MockAgent::new(SessionId(session), "n1".try_into().unwrap(), "0".try_into().unwrap(), 0)
    }

    #[test]
    fn frames_explain_themselves_and_have_the_recorded_values() {
        let (script, mut agent, mut encoder) = (script(), agent(7), Encoder::default());
        assert_eq!(script.samples_per_tick(), 50);
        let first = Frame::decode(agent.sample(&script, &mut encoder, 5_000_000, 3).unwrap()).unwrap();
        assert_eq!((first.sequence, first.samples() as u64), (1, agent.samples()));
        assert_eq!(first.dictionary, agent.dictionary(&script));
        let mut times: Vec<_> = first.blocks.iter().flat_map(|block| block.times_us.clone()).collect();
        times.dedup();
        assert!(times.starts_with(&[3_000_000, 4_000_000, 5_000_000]), "{times:?}");
        let second = Frame::decode(agent.sample(&script, &mut encoder, 6_000_000, 1).unwrap()).unwrap();
        assert!(second.dictionary.is_empty() && second.sequence == 2);
        assert!(second.blocks.iter().flat_map(|block| &block.values).any(|value| *value > 1_000));
    }

    #[test]
    fn frames_stay_until_they_are_acknowledged() {
        let (script, mut agent, mut encoder) = (script(), agent(7), Encoder::default());
        for second in 1..=3 {
            agent.sample(&script, &mut encoder, second * 1_000_000, 1).unwrap();
        }
        let session = SessionId(7);
        let again = agent.hear(&script, &ToAgent::Resend { session, from: 2 }).unwrap();
        assert_eq!(again, agent.unacknowledged(2));
        assert_eq!(again.len(), 2);
        assert!(agent.hear(&script, &ToAgent::Ack { session, through: 2 }).unwrap().is_empty());
        assert_eq!(agent.hear(&script, &ToAgent::NeedDictionary { session }).unwrap().len(), 2);
        assert!(!agent.is_settled());
        agent.hear(&script, &ToAgent::Ack { session, through: 3 }).unwrap();
        assert!(agent.is_settled());
        let refused = ToAgent::Refused { reason: "why".to_owned(), versions: (1, 1), frame: None };
        assert_eq!(agent.hear(&script, &refused), Err("why".to_owned()));
    }
}
