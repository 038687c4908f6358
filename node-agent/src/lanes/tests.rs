//! Tests of the sampler with sources of both lanes, one of which hangs on demand.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use polymeter_proto::batch::{Column, Job, Shape};
use polymeter_proto::catalogue;
use polymeter_proto::ledger::{Event, Tally};
use polymeter_proto::period::Period;
use polymeter_proto::series::{Identifier, JobDescriptor, JobHandle, Labels, MetricId, SeriesId, ShapeId};

use super::*;
use crate::clock;
use crate::counters::Counters;
use crate::kernel;
use crate::sources::reader_thread::ThreadedSource;
use crate::sources::{CustomSource, Outcome, Reading, Slot, Source};

/// A gate that reads wait at while it is closed.
#[derive(Debug, Default)]
struct Gate {
    is_closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn set_closed(&self, is_closed: bool) {
        *self.is_closed.lock().unwrap() = is_closed;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let guard = self.is_closed.lock().unwrap();
        drop(self.opened.wait_while(guard, |is_closed| *is_closed).unwrap());
    }
}

/// A source of one value, the number of the read. Its reads pass a gate and take some time.
#[derive(Debug)]
struct CountingSource {
    slots: Vec<Slot>,
    gate: Arc<Gate>,
    takes: Duration,
    reads: u64,
}

impl CustomSource for CountingSource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        self.gate.pass();
        clock::sleep(self.takes);
        self.reads += 1;
        reading.set(0, self.reads);
        Outcome::Read
    }
}

fn counting(gate: &Arc<Gate>, takes_ms: u64) -> Box<dyn CustomSource> {
    let slot =
        Slot { definition: catalogue::find("node.filesystem.size").unwrap(), labels: Labels::default() };
    let takes = Duration::from_millis(takes_ms);
    Box::new(CountingSource { slots: vec![slot], gate: Arc::clone(gate), takes, reads: 0 })
}

fn slow(gate: &Arc<Gate>, takes_ms: u64) -> Source {
    Source::Threaded(ThreadedSource::start("test", counting(gate, takes_ms)).unwrap())
}

fn job() -> Arc<Job> {
    let descriptor = JobDescriptor {
        job_id: Identifier::try_from("42").unwrap(),
        cluster: None,
        owner_uid: None,
        owner: None,
        started_us: 0,
    };
    Arc::new(Job { handle: JobHandle(1), descriptor })
}

/// Returns a group of the one series of the source with this number.
fn group(number: u32, name: &str, job: Option<&Arc<Job>>, period: &str) -> Group {
    let definition = catalogue::find("node.filesystem.size").unwrap();
    let metric = (MetricId(0), definition.descriptor().unwrap());
    let columns = vec![Column { series: SeriesId(number), metric, labels: Labels::default() }];
    let (source, period) = (Identifier::try_from(name).unwrap(), period.parse::<Period>().unwrap());
    Group::new(Arc::new(Shape { id: ShapeId(number), job: job.cloned(), source, period, columns }), vec![0])
}

fn active(
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

/// Everything that a sampler has handed on.
#[derive(Debug, Default)]
struct Received {
    tallies: BTreeMap<String, Tally>,
    /// The sources whose last report has arrived.
    ended: Vec<String>,
    /// The times and deadlines of the rows, by source.
    rows: BTreeMap<String, Vec<i64>>,
    job_ended_us: Option<i64>,
    sum: Tally,
}

/// A sampler on a thread of its own.
struct Running {
    channels: Arc<Channels>,
    thread: JoinHandle<()>,
    received: Received,
}

impl Running {
    fn start() -> Self {
        let channels = Arc::new(Channels::new().unwrap());
        let for_sampler = Arc::clone(&channels);
        let flush = "20ms".parse().unwrap();
        let thread = std::thread::spawn(move || {
            // Protects against delays by other tests. Without the right to real-time priority the machine must be idle.
            kernel::set_fifo_priority(1).ok();
            Sampler::new(for_sampler, Arc::new(Counters::default()), flush).run();
        });
        Self { channels, thread, received: Received::default() }
    }

    fn command(&self, command: Command) {
        self.channels.command(command).unwrap();
    }

    fn add(&self, (id, source): (SourceId, Box<ActiveSource>)) {
        self.command(Command::Add(id, source));
    }

    /// Receives the batches that arrive within `duration`.
    fn receive(&mut self, duration: Duration) {
        let until_ns = clock::monotonic_ns() + u64::try_from(duration.as_nanos()).unwrap();
        while clock::monotonic_ns() < until_ns && !self.thread.is_finished() {
            self.take_batches();
            clock::sleep(Duration::from_millis(2));
        }
        self.take_batches();
    }

    fn take_batches(&mut self) {
        while let Some(sample_batch) = self.channels.next_batch() {
            for row in sample_batch.batch.recorded() {
                let name = sample_batch.batch.shapes()[row.shape].source.to_string();
                self.received.rows.entry(name).or_default().push(row.time_us);
            }
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
        }
    }

    fn notices(&self) -> Vec<Notice> {
        std::iter::from_fn(|| self.channels.next_notice()).collect()
    }

    /// Stops the sampler. Returns everything that it has handed on, and the time that it took to stop.
    fn stop(mut self) -> (Received, Duration) {
        let began_ns = clock::monotonic_ns();
        self.command(Command::Stop);
        while !self.thread.is_finished() {
            self.take_batches();
            clock::sleep(Duration::from_millis(1));
        }
        let took = Duration::from_nanos(clock::monotonic_ns() - began_ns);
        self.take_batches();
        for (name, tally) in &self.received.tallies {
            assert_eq!(tally.due, tally.taken + tally.missed + tally.absent, "{name}: {tally:?}");
        }
        let mut sum = Tally::default();
        self.received.tallies.values().for_each(|tally| sum.add(tally));
        assert_eq!(sum, self.received.sum, "the sum of all tallies");
        (self.received, took)
    }
}

#[test]
fn a_source_that_hangs_affects_only_itself() {
    let (open, gate) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
    gate.set_closed(true);
    let mut running = Running::start();
    running.add(active(0, "fast", None, Source::Custom(counting(&open, 0)), "100ms"));
    running.add(active(1, "slow", None, slow(&open, 5), "100ms"));
    running.add(active(2, "hung", None, slow(&gate, 0), "20ms"));
    running.receive(Duration::from_millis(1500));
    let hung: Vec<_> =
        running.notices().into_iter().map(|notice| matches!(notice, Notice::Hung(SourceId(2)))).collect();
    assert_eq!(hung, [true], "reported once");
    let missed = running.received.tallies["hung"].missed;
    assert!(missed >= 40, "{missed} missed of some 50 until the last report");
    assert!(!running.received.rows.contains_key("hung"));
    gate.set_closed(false);
    running.receive(Duration::from_millis(1500));
    let recovered = running.notices().iter().all(|notice| matches!(notice, Notice::Recovered(SourceId(2))));
    assert!(recovered);
    let (received, _) = running.stop();
    for name in ["fast", "slow"] {
        let tally = received.tallies[name];
        // Other tests may delay a thread of ordinary priority by a period; a source that hangs would cost some 15 of
        // 30.
        assert!(tally.missed <= 3 && tally.absent == 0 && tally.taken >= 22, "{name}: {tally:?}");
        assert_eq!(received.rows[name].len() as u64, tally.taken, "{name}");
    }
    let tally = received.tallies["hung"];
    assert!(tally.missed >= 70 && tally.taken >= 40 && tally.late >= 1, "{tally:?}");
    assert_eq!(received.rows["hung"].len() as u64, tally.taken);
    assert!(received.rows["hung"].is_sorted(), "a value is dated by the end of a read that hung");
}

#[test]
fn stopping_does_not_wait_for_a_source_that_hangs() {
    let gate = Arc::new(Gate::default());
    gate.set_closed(true);
    let mut running = Running::start();
    running.add(active(0, "hung", None, slow(&gate, 0), "10ms"));
    running.receive(Duration::from_millis(1200));
    let (received, took) = running.stop();
    assert!(took < Duration::from_millis(200), "{took:?}");
    let tally = received.tallies["hung"];
    assert!(tally.missed == tally.due && tally.due >= 100, "{tally:?}");
    gate.set_closed(false);
}

#[test]
fn the_last_reading_of_a_job_comes_before_its_end() {
    let (gate, job) = (Arc::new(Gate::default()), job());
    let mut running = Running::start();
    let (id, source) = active(0, "slow", Some(&job), slow(&gate, 60), "1h");
    running.add((id, source));
    running.command(Command::ReadNow(vec![id]));
    running.command(Command::Remove(id));
    let event = Event::JobEnded { job: job.handle, at_us: 0 };
    running.command(Command::RecordEvent(Box::new(EventRecord { job: Some(Arc::clone(&job)), event })));
    running.receive(Duration::from_millis(300));
    assert!(matches!(running.notices()[..], [Notice::Removed(SourceId(0), _)]));
    let received = &running.received;
    assert_eq!(received.ended, ["slow"]);
    assert_eq!(received.tallies["slow"], Tally { due: 1, taken: 1, ..Tally::default() });
    assert!(received.rows["slow"][0] <= received.job_ended_us.unwrap());
    running.stop();
}

#[test]
fn a_removed_source_that_hangs_is_given_back_at_once() {
    let gate = Arc::new(Gate::default());
    gate.set_closed(true);
    let mut running = Running::start();
    let (id, source) = active(0, "hung", None, slow(&gate, 0), "10ms");
    running.add((id, source));
    running.receive(Duration::from_millis(1200));
    running.command(Command::Remove(id));
    running.receive(Duration::from_millis(50));
    assert!(matches!(running.notices()[..], [Notice::Hung(_), Notice::Removed(SourceId(0), _)]));
    assert_eq!(running.received.ended, ["hung"]);
    gate.set_closed(false);
    running.stop();
}

#[test]
fn a_source_that_hangs_is_not_replaced_by_another_that_would() {
    let gate = Arc::new(Gate::default());
    gate.set_closed(true);
    let mut running = Running::start();
    running.add(active(0, "hung", None, slow(&gate, 0), "10ms"));
    running.receive(Duration::from_millis(1200));
    running.add(active(0, "hung", None, slow(&gate, 0), "20ms"));
    running.receive(Duration::from_millis(50));
    assert!(matches!(running.notices()[..], [Notice::Hung(_), Notice::Replaced(_)]));
    gate.set_closed(false);
    running.receive(Duration::from_millis(200));
    assert!(matches!(running.notices()[..], [Notice::Recovered(SourceId(0))]), "the first one goes on");
    let (received, _) = running.stop();
    assert!(received.tallies["hung"].taken >= 5, "{:?}", received.tallies);
}

#[test]
fn a_change_of_plan_keeps_the_deadlines_of_a_read_under_way() {
    let gate = Arc::new(Gate::default());
    let mut running = Running::start();
    running.add(active(0, "slow", None, slow(&gate, 40), "50ms"));
    for round in 0..10 {
        running.receive(Duration::from_millis(33));
        let period = if round % 2 == 0 { "70ms" } else { "50ms" };
        running.command(Command::Regroup(SourceId(0), vec![group(round, "slow", None, period)]));
    }
    let (received, _) = running.stop();
    let tally = received.tallies["slow"];
    assert!(tally.taken >= 3 && tally.missed <= 1, "{tally:?}");
    assert_eq!(received.rows["slow"].len() as u64, tally.taken);
}
