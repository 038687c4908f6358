//! Sources that hang on demand, and a sampler that runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use polymeter_proto::batch::{Batch, Column, Job, Shape};
use polymeter_proto::catalogue;
use polymeter_proto::ledger::{Event, Tally};
use polymeter_proto::period::Period;
use polymeter_proto::series::{
    Identifier, JobDescriptor, JobHandle, Labels, MetricId, SeriesId, SessionId, ShapeId,
};
use polymeter_proto::wire::frame::{Block, Encoder, Extras, Frame};
use rustix::io::Errno;
use tokio::sync::oneshot;

use super::super::*;
use crate::clock;
use crate::counters::Counters;
use crate::sources::reader_thread::ThreadedSource;
use crate::sources::{CustomSource, Outcome, Reading, Slot, Source};

/// Longest wait for something that must happen: far beyond any delay on a busy machine. A deadlock becomes a
/// failure.
const PATIENCE: Duration = Duration::from_secs(120);

/// A gate that reads pass: all of them while it is open, else as many as are let through.
#[derive(Debug, Default)]
pub(super) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    is_closed: bool,
    begun: u64,
    /// Reads that may pass although it is closed.
    let_through: u64,
}

impl Gate {
    pub(super) fn closed() -> Arc<Self> {
        let gate = Self::default();
        gate.set_closed(true);
        Arc::new(gate)
    }

    fn change(&self, change: impl FnOnce(&mut GateState)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    pub(super) fn set_closed(&self, is_closed: bool) {
        self.change(|state| state.is_closed = is_closed);
    }

    pub(super) fn let_one_through(&self) {
        self.change(|state| state.let_through += 1);
    }

    fn pass(&self) {
        self.change(|state| state.begun += 1);
        let guard = self.state.lock().unwrap();
        let mut guard =
            self.changed.wait_while(guard, |state| state.is_closed && state.let_through == 0).unwrap();
        guard.let_through = guard.let_through.saturating_sub(1);
    }

    pub(super) fn wait_until_begun(&self, reads: u64) {
        let guard = self.state.lock().unwrap();
        let (guard, wait) =
            self.changed.wait_timeout_while(guard, PATIENCE, |state| state.begun < reads).unwrap();
        assert!(!wait.timed_out(), "{} of {reads} reads have begun", guard.begun);
    }

    pub(super) fn begun(&self) -> u64 {
        self.state.lock().unwrap().begun
    }
}

/// A source of one value, the number of the read. Its reads pass a gate.
#[derive(Debug)]
struct CountingSource {
    slots: Vec<Slot>,
    gate: Arc<Gate>,
    reads: u64,
    has_last_read: bool,
}

impl CustomSource for CountingSource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        self.gate.pass();
        self.reads += 1;
        reading.set(0, self.reads);
        Outcome::Read
    }

    fn has_last_read(&self) -> bool {
        self.has_last_read
    }
}

pub(super) fn slot() -> Slot {
    Slot { definition: catalogue::find("node.filesystem.size").unwrap(), labels: Labels::default() }
}

pub(super) fn counting(gate: &Arc<Gate>) -> Box<dyn CustomSource> {
    Box::new(CountingSource { slots: vec![slot()], gate: Arc::clone(gate), reads: 0, has_last_read: false })
}

/// A source of many values, which counts its reads when they have ended.
#[derive(Debug)]
pub(super) struct WideSource(pub(super) Vec<Slot>, pub(super) Arc<AtomicU64>);

impl CustomSource for WideSource {
    fn slots(&self) -> &[Slot] {
        &self.0
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        (0..).zip(&self.0).for_each(|(slot, _)| reading.set(slot, 7));
        self.1.fetch_add(1, Relaxed);
        Outcome::Read
    }
}

/// A source whose reads fail for a reason that may be temporary.
#[derive(Debug)]
pub(super) struct FailingSource(pub(super) [Slot; 1]);

impl CustomSource for FailingSource {
    fn slots(&self) -> &[Slot] {
        &self.0
    }

    fn read(&mut self, _: &mut Reading) -> Outcome {
        Outcome::Retry(Errno::AGAIN)
    }
}

/// A source whose device has the value of its only slot at every third read.
#[derive(Debug)]
pub(super) struct LackingSource(pub(super) [Slot; 1], pub(super) u64);

impl CustomSource for LackingSource {
    fn slots(&self) -> &[Slot] {
        &self.0
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        reading.clear();
        self.1 += 1;
        if self.1.is_multiple_of(3) {
            reading.set(0, self.1)
        } else {
            reading.set_lacking(0)
        }
        Outcome::Read
    }
}

/// A source that makes the sampler miss deadlines by every tenth read, and has no value at some others.
#[derive(Debug)]
pub(super) struct UnreliableSource(pub(super) [Slot; 1], pub(super) u64);

impl CustomSource for UnreliableSource {
    fn slots(&self) -> &[Slot] {
        &self.0
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        self.1 += 1;
        match self.1 % 10 {
            0 => clock::sleep(Duration::from_millis(50)),
            4..7 => return Outcome::Retry(Errno::AGAIN),
            _ => {}
        }
        reading.set(0, self.1);
        Outcome::Read
    }
}

/// A source that reads only the values that are wanted, and remembers them.
#[derive(Debug)]
pub(super) struct ThriftySource {
    pub(super) slots: [Slot; 2],
    pub(super) wanted: Arc<Mutex<Vec<[bool; 2]>>>,
}

impl CustomSource for ThriftySource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn reads_wanted_only(&self) -> bool {
        true
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        let wanted = [0, 1].map(|slot| reading.is_wanted(slot));
        (0..).zip(wanted).filter(|(_, is_wanted)| *is_wanted).for_each(|(slot, _)| reading.set(slot, 7));
        self.wanted.lock().unwrap().push(wanted);
        Outcome::Read
    }
}

pub(super) fn slow(gate: &Arc<Gate>) -> Source {
    Source::Threaded(ThreadedSource::start("test", counting(gate)).unwrap())
}

/// A source of the slow lane that is read once more before it is closed.
pub(super) fn slow_with_last_read(gate: &Arc<Gate>) -> Source {
    let (slots, gate) = (vec![slot()], Arc::clone(gate));
    let source = CountingSource { slots, gate, reads: 0, has_last_read: true };
    Source::Threaded(ThreadedSource::start("test", Box::new(source)).unwrap())
}

pub(super) fn job() -> Arc<Job> {
    let descriptor = JobDescriptor {
        job_id: Identifier::try_from("42").unwrap(),
        cluster: None,
        owner_uid: None,
        owner: None,
        started_us: 0,
    };
    Arc::new(Job { handle: JobHandle(1), descriptor })
}

pub(super) fn group(number: u32, name: &str, job: Option<&Arc<Job>>, period: &str) -> Group {
    let definition = catalogue::find("node.filesystem.size").unwrap();
    let metric = (MetricId(0), definition.descriptor().unwrap());
    let columns = vec![Column { series: SeriesId(number), metric, labels: Labels::default() }];
    let (source, period) = (Identifier::try_from(name).unwrap(), period.parse::<Period>().unwrap());
    Group::new(
        Arc::new(Shape { id: ShapeId(number), job: job.cloned(), source, period, window: None, columns }),
        vec![0],
    )
}

pub(super) fn active(
    number: u32,
    name: &str,
    job: Option<&Arc<Job>>,
    source: Source,
    period: &str,
) -> (SourceId, Box<ActiveSource>) {
    let key = SourceKey { job: job.cloned(), name: Identifier::try_from(name).unwrap() };
    let groups = vec![group(number, name, job, period)];
    (SourceId(number), Box::new(ActiveSource::new(Arc::new(key), source, groups)))
}

#[derive(Debug, Default)]
pub(super) struct Received {
    pub(super) tallies: BTreeMap<String, Tally>,
    pub(super) ended: Vec<String>,
    pub(super) rows: BTreeMap<String, Vec<i64>>,
    /// Samples, those in windows included.
    pub(super) samples: BTreeMap<String, u64>,
    /// All blocks, as they come out of frames, with their shapes.
    pub(super) blocks: Vec<(Arc<Shape>, Block)>,
    pub(super) shapes: BTreeSet<ShapeId>,
    pub(super) job_ended_us: Option<i64>,
    pub(super) sum: Tally,
    pub(super) notices: Vec<Notice>,
}

impl Received {
    pub(super) fn rows(&self, name: &str) -> u64 {
        self.rows.get(name).map_or(0, |rows| rows.len() as u64)
    }

    pub(super) fn tally(&self, name: &str) -> Tally {
        self.tallies.get(name).copied().unwrap_or_default()
    }

    fn receive_blocks(&mut self, batch: &Batch) {
        for (shape, samples) in batch.shapes().iter().zip(batch.samples_by_shape()) {
            *self.samples.entry(shape.source.to_string()).or_default() += samples;
        }
        let mut bytes = Vec::new();
        Encoder::default().encode(&mut bytes, SessionId(1), 1, batch, Extras::default()).unwrap();
        let frame = Frame::decode(&bytes).unwrap();
        assert_eq!(frame.samples(), batch.samples());
        for block in frame.blocks {
            let shape = batch.shapes().iter().find(|shape| shape.id == block.shape).unwrap();
            self.blocks.push((Arc::clone(shape), block));
        }
    }

    /// True if the tallies of all sources are those of the last batch, and not some of them of an earlier
    /// one.
    pub(super) fn has_current_tallies(&self) -> bool {
        let mut sum = Tally::default();
        self.tallies.values().for_each(|tally| sum.add(tally));
        sum == self.sum
    }

    pub(super) fn has_notice(&self, is_wanted: impl Fn(&Notice) -> bool) -> bool {
        self.notices.iter().any(is_wanted)
    }
}

pub(super) const fn is_hung(notice: &Notice) -> bool {
    matches!(notice, Notice::Hung(_))
}

pub(super) const fn is_recovered(notice: &Notice) -> bool {
    matches!(notice, Notice::Recovered(_))
}

pub(super) struct Running {
    channels: Arc<Channels>,
    thread: JoinHandle<()>,
    pub(super) received: Received,
    /// Check after each batch, of everything received so far.
    pub(super) check: fn(&Received),
}

impl Running {
    pub(super) fn start() -> Self {
        let channels = Arc::new(Channels::new().unwrap());
        let for_sampler = Arc::clone(&channels);
        let flush = "20ms".parse().unwrap();
        let thread =
            std::thread::spawn(move || Sampler::new(for_sampler, Arc::new(Counters::default()), flush).run());
        Self { channels, thread, received: Received::default(), check: |_| () }
    }

    pub(super) fn command(&self, command: Command) {
        self.channels.command(command).unwrap();
    }

    /// Waits until the sampler has handled all commands so far. Takes no batch meanwhile.
    pub(super) fn confirm_without_batches(&self) {
        let (reply, confirmed) = oneshot::channel();
        self.command(Command::Confirm(reply));
        confirmed.blocking_recv().unwrap();
    }

    pub(super) fn add(&self, (id, source): (SourceId, Box<ActiveSource>)) {
        self.command(Command::Add(id, source));
    }

    /// Waits until the sampler has handled all commands so far, and receives the resulting notices.
    pub(super) fn confirm(&mut self) {
        let (reply, mut confirmed) = oneshot::channel();
        self.command(Command::Confirm(reply));
        self.until("a confirmation", |_| confirmed.try_recv().is_ok());
    }

    /// Receives batches and notices until `has_happened`.
    pub(super) fn until(&mut self, what: &str, mut has_happened: impl FnMut(&Received) -> bool) {
        let began_ns = clock::monotonic_ns();
        loop {
            self.receive();
            if has_happened(&self.received) {
                break;
            }
            let waited = Duration::from_nanos(clock::monotonic_ns() - began_ns);
            assert!(waited < PATIENCE, "waited {waited:?} for {what}: {:?}", self.received);
            clock::sleep(Duration::from_millis(1));
        }
        // Something that happened before has left its notices.
        self.receive();
    }

    /// Requests the samples and the tallies so far. They arrive later if the sampler has no free batch.
    pub(super) fn flush(&mut self) {
        self.command(Command::Flush);
        self.confirm();
    }

    fn receive(&mut self) {
        while let Some(sample_batch) = self.channels.next_batch() {
            for row in sample_batch.batch.recorded() {
                let shape = &sample_batch.batch.shapes()[row.shape];
                self.received.rows.entry(shape.source.to_string()).or_default().push(row.time_us);
                self.received.shapes.insert(shape.id);
            }
            self.received.receive_blocks(&sample_batch.batch);
            for report in &sample_batch.reports {
                let name = report.key.name.to_string();
                self.received.tallies.insert(name.clone(), report.tally);
                self.received.ended.extend(report.last.then_some(name));
            }
            for record in &sample_batch.events {
                if let Event::JobEnded { at_us, .. } = record.event {
                    self.received.job_ended_us = Some(at_us);
                }
            }
            self.received.sum = sample_batch.sum;
            self.channels.give_back(sample_batch);
            (self.check)(&self.received);
        }
        self.received.notices.extend(std::iter::from_fn(|| self.channels.next_notice()));
    }

    /// Returns everything that it has handed on.
    pub(super) fn stop(mut self) -> Received {
        self.command(Command::Stop);
        let channels = Arc::clone(&self.channels);
        self.until("the end of the sampler", |_| Arc::strong_count(&channels) == 2);
        self.thread.join().unwrap();
        for (name, tally) in &self.received.tallies {
            assert_eq!(tally.due, tally.taken + tally.missed + tally.absent, "{name}: {tally:?}");
            let samples = self.received.samples.get(name).copied().unwrap_or_default();
            assert_eq!(samples, tally.taken - tally.dropped, "{name}: {tally:?}");
        }
        assert!(self.received.has_current_tallies(), "the sum of all tallies: {:?}", self.received);
        self.received
    }
}
