//! Mock agents: each has its own session and sends the values of a recorded job as if it had sampled them.
//! Free of I/O: the caller transports the frames.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use polymeter_proto::batch::{Batch, Instant, Job, Shape};
use polymeter_proto::period::Period;
use polymeter_proto::series::{
    Identifier, JobDescriptor, JobHandle, Processors, SessionDescriptor, SessionId,
};
use polymeter_proto::wire::dictionary::{Announced, Entry};
use polymeter_proto::wire::frame::{Encoder, Extras};
use polymeter_proto::wire::message::{ToAgent, ToCollector};

use crate::recording::{self, RecordingError};

/// Distance in the recording, in ticks of a millisecond, between two frames of one agent: a prime, so that
/// all ticks are used.
const STRIDE: usize = 97;

/// Metric names and values that all mock agents share.
#[derive(Debug)]
pub struct Script {
    period: Period,
    shapes: Vec<Arc<Shape>>,
    /// Dictionary entries that announce the series; the session's own entry precedes them.
    entries: Vec<Entry>,
    ticks: Vec<Tick>,
}

/// Name of the counter that an agent may work at a given speed.
const WORK: &str = "cpu.usage";

/// Values of one tick: the index of a shape, and one value for each of its columns.
type Tick = Vec<(usize, Vec<Option<u64>>)>;

impl Script {
    /// Reads the values of a recording, to be sent every `period`.
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
        // Ticks at both ends, or around a missed deadline, are incomplete.
        ticks.retain(|tick| tick.len() == shapes.len());
        if ticks.is_empty() {
            return Err(RecordingError::Incomplete);
        }
        let entries = announce(&shapes);
        Ok(Self { period, shapes, entries, ticks })
    }

    /// Makes the values those of the job `id`, which started at `started_us`. A recording itself has no job.
    #[must_use]
    pub fn of_job(self, id: Identifier, started_us: i64) -> Self {
        let descriptor =
            JobDescriptor { job_id: id, cluster: None, owner_uid: None, owner: None, started_us };
        let job = Arc::new(Job { handle: JobHandle(1), descriptor });
        let of_job =
            |shape: &Arc<Shape>| Arc::new(Shape { job: Some(Arc::clone(&job)), ..Shape::clone(shape) });
        let shapes: Vec<_> = self.shapes.iter().map(of_job).collect();
        Self { entries: announce(&shapes), shapes, ..self }
    }

    /// Samples in one tick of one agent.
    pub fn samples_per_tick(&self) -> usize {
        self.shapes.iter().map(|shape| shape.columns.len()).sum()
    }

    pub fn shapes(&self) -> &[Arc<Shape>] {
        &self.shapes
    }

    pub fn ticks(&self) -> usize {
        self.ticks.len()
    }

    /// First tick of a session. Sessions start at different ticks.
    pub fn first_tick(&self, session: SessionId) -> usize {
        usize::try_from(session.0 % self.ticks.len() as u64).unwrap_or(0)
    }

    /// Follows `tick`; the recording is repeated.
    pub const fn tick_after(&self, tick: usize) -> usize {
        (tick + STRIDE) % self.ticks.len()
    }

    /// Rows of a tick: the index of a shape, and one value for each of its columns.
    pub fn rows(&self, tick: usize) -> impl Iterator<Item = (usize, &[Option<u64>])> {
        self.ticks.get(tick).into_iter().flatten().map(|(shape, values)| (*shape, values.as_slice()))
    }
}

fn announce(shapes: &[Arc<Shape>]) -> Vec<Entry> {
    let (mut announced, mut entries) = (Announced::default(), Vec::new());
    shapes.iter().for_each(|shape| announced.announce(shape, &mut entries));
    entries
}

/// Unacknowledged frames of one session.
#[derive(Debug)]
pub struct Outbox {
    sequence: u64,
    frames: VecDeque<(u64, Vec<u8>)>,
    /// Largest number of frames that are sent before the oldest of them is acknowledged.
    window: usize,
}

impl Default for Outbox {
    fn default() -> Self {
        Self { sequence: 0, frames: VecDeque::new(), window: usize::MAX }
    }
}

impl Outbox {
    /// Sequence number of the newest frame, or 0.
    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Sequence number of the newest acknowledged frame, or 0.
    pub fn acknowledged(&self) -> u64 {
        self.frames.front().map_or(self.sequence, |(sequence, _)| sequence - 1)
    }

    /// Encodes the next frame of `session`, and keeps it until it is acknowledged. Fails if the content does
    /// not fit into one frame.
    pub fn push(
        &mut self,
        session: SessionId,
        encoder: &mut Encoder,
        batch: &Batch,
        extras: Extras<'_>,
    ) -> Result<&[u8], &'static str> {
        let mut bytes = Vec::new();
        encoder
            .encode(&mut bytes, session, self.sequence + 1, batch, extras)
            .map_err(|_oversized| "so many ticks do not fit into a frame")?;
        self.sequence += 1;
        self.frames.push_back((self.sequence, bytes));
        Ok(self.frames.back().map_or(&[], |(_, bytes)| bytes))
    }

    /// Messages to send in response to an answer of the collector. `dictionary` returns the entries of the
    /// session. Fails if the collector rejected a frame.
    pub fn hear(
        &mut self,
        session: SessionId,
        answer: &ToAgent,
        dictionary: impl FnOnce() -> Vec<Entry>,
    ) -> Result<Vec<Vec<u8>>, String> {
        match answer {
            ToAgent::Ack { through, .. } => {
                let before = self.frames.len();
                while self.frames.front().is_some_and(|(sequence, _)| sequence <= through) {
                    self.frames.pop_front();
                }
                let room = before - self.frames.len();
                let sent = self.window.saturating_sub(room);
                Ok(self.frames.iter().skip(sent).take(room).map(|(_, bytes)| bytes.clone()).collect())
            }
            ToAgent::Resend { from, .. } => Ok(self.unacknowledged(*from)),
            ToAgent::NeedDictionary { .. } => {
                let mut messages = ToCollector::dictionaries(session, &dictionary());
                messages.extend(self.unacknowledged(0));
                Ok(messages)
            }
            ToAgent::Refused { reason, .. } => Err(reason.clone()),
            // The experiments send no remote requests.
            ToAgent::Request { .. } => Ok(Vec::new()),
        }
    }

    /// Frames from `first` on, within the window.
    pub fn unacknowledged(&self, first: u64) -> Vec<Vec<u8>> {
        let from = self.frames.iter().take(self.window).filter(|(sequence, _)| *sequence >= first);
        from.map(|(_, bytes)| bytes.clone()).collect()
    }

    pub fn len(&self) -> usize {
        self.frames.len()
    }

    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

/// A mock agent: its session and its unacknowledged frames.
#[derive(Debug)]
pub struct MockAgent {
    session: SessionId,
    descriptor: SessionDescriptor,
    tick: usize,
    outbox: Outbox,
    samples: u64,
    /// CPU time of the job, in nanoseconds, and its growth in a tick; none for that of the recording.
    work: Option<(u64, u64)>,
}

impl MockAgent {
    pub fn new(session: SessionId, node: Identifier, version: Identifier, started_us: i64) -> Self {
        let descriptor = SessionDescriptor {
            node,
            agent_version: version,
            started_us,
            processors: Processors { cpus: None, cores: None, roofs: None },
        };
        Self { session, descriptor, tick: 0, outbox: Outbox::default(), samples: 0, work: None }
    }

    /// Bounds the frames that are sent before the oldest of them is acknowledged. None may have been sent yet.
    pub const fn bound_window(&mut self, frames: usize) {
        self.outbox.window = frames;
    }

    /// Sets the CPU time that the job takes in each further tick, in nanoseconds.
    pub const fn work(&mut self, tick_ns: u64) {
        let done = match self.work {
            Some((done, _)) => done,
            None => 0,
        };
        self.work = Some((done, tick_ns));
    }

    /// Makes the next frame: `ticks` ticks, the last one at `time_us`. The frame stays in the outbox until it
    /// is acknowledged. Fails if the ticks do not fit into one frame.
    pub fn sample(
        &mut self,
        script: &Script,
        encoder: &mut Encoder,
        time_us: i64,
        ticks: u16,
    ) -> Result<&[u8], &'static str> {
        let first = self.outbox.sequence() == 0;
        if first {
            self.tick = script.first_tick(self.session);
        }
        let mut batch = Batch::default();
        let indices: Vec<_> = script.shapes.iter().map(|shape| batch.add_shape(shape)).collect();
        let period_us = i64::try_from(script.period.as_micros()).unwrap_or(i64::MAX);
        for back in (0..i64::from(ticks)).rev() {
            let time_us = time_us - back * period_us;
            let instant = Instant { deadline: u64::try_from(time_us / period_us).ok(), time_us };
            self.tick = script.tick_after(self.tick);
            if let Some((done, tick_ns)) = &mut self.work {
                *done += *tick_ns;
            }
            for (shape, values) in script.rows(self.tick) {
                let (Some(index), Some(of)) = (indices.get(shape), script.shapes.get(shape)) else {
                    continue;
                };
                let values = of.columns.iter().zip(values).map(|(column, value)| match self.work {
                    Some((done, _)) if column.metric.1.name.as_str() == WORK => Some(done),
                    _ => *value,
                });
                // Samples that do not fit into the frame are not counted.
                self.samples += batch.push(*index, instant, values).unwrap_or(0);
            }
        }
        let dictionary = if first { self.dictionary(script) } else { Vec::new() };
        let extras = Extras { dictionary: &dictionary, ..Extras::default() };
        self.outbox.push(self.session, encoder, &batch, extras)
    }

    pub fn hear(&mut self, script: &Script, answer: &ToAgent) -> Result<Vec<Vec<u8>>, String> {
        let descriptor = &self.descriptor;
        self.outbox.hear(self.session, answer, || dictionary(descriptor, script))
    }

    pub fn unacknowledged(&self, first: u64) -> Vec<Vec<u8>> {
        self.outbox.unacknowledged(first)
    }

    pub fn is_settled(&self) -> bool {
        self.outbox.is_empty()
    }

    pub const fn samples(&self) -> u64 {
        self.samples
    }

    fn dictionary(&self, script: &Script) -> Vec<Entry> {
        dictionary(&self.descriptor, script)
    }
}

fn dictionary(descriptor: &SessionDescriptor, script: &Script) -> Vec<Entry> {
    let session = std::iter::once(Entry::Session(descriptor.clone()));
    session.chain(script.entries.iter().cloned()).collect()
}

/// Session that an answer is addressed to; `None` if it is addressed to the connection.
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
        assert_eq!((first.sequence, first.samples()), (1, agent.samples()));
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
        let refused = ToAgent::Refused { reason: "why".to_owned(), frame: None };
        assert_eq!(agent.hear(&script, &refused), Err("why".to_owned()));
    }

    #[test]
    fn each_frame_is_sent_once_when_the_window_has_room_for_it() {
        let (script, mut agent, mut encoder) = (script(), agent(7), Encoder::default());
        for second in 1..=7 {
            agent.sample(&script, &mut encoder, second * 1_000_000, 1).unwrap();
        }
        let frames = agent.unacknowledged(0);
        agent.bound_window(3);
        assert_eq!(agent.unacknowledged(0), frames[..3]);
        let mut acknowledge =
            |through| agent.hear(&script, &ToAgent::Ack { session: SessionId(7), through }).unwrap();
        assert_eq!(acknowledge(2), frames[3..5]);
        assert_eq!(acknowledge(2), frames[..0]);
        assert_eq!(acknowledge(5), frames[5..]);
        assert_eq!(acknowledge(7), frames[..0]);
        assert!(agent.is_settled());
    }
}
