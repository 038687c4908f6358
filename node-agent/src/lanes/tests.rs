//! Tests of the sampler with sources of both lanes, one of which hangs on demand.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use polymeter_proto::batch::{Column, Job, Shape};
use polymeter_proto::catalogue;
use polymeter_proto::ledger::{Event, Tally};
use polymeter_proto::period::Period;
use polymeter_proto::series::{Identifier, JobDescriptor, JobHandle, Labels, MetricId, SeriesId, ShapeId};
use rustix::io::Errno;
use tokio::sync::oneshot;

use super::*;
use crate::clock;
use crate::counters::Counters;
use crate::sources::reader_thread::ThreadedSource;
use crate::sources::{CustomSource, Outcome, Reading, Slot, Source};

/// The longest wait for something that must happen: far beyond any delay on a busy machine. A deadlock becomes a
/// failure.
const PATIENCE: Duration = Duration::from_secs(120);

/// A gate that reads pass: all of them while it is open, else as many as are let through.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    is_closed: bool,
    /// The number of reads that have begun.
    begun: u64,
    /// The number of reads that may pass although it is closed.
    let_through: u64,
}

impl Gate {
    fn closed() -> Arc<Self> {
        let gate = Self::default();
        gate.set_closed(true);
        Arc::new(gate)
    }

    fn change(&self, change: impl FnOnce(&mut GateState)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    fn set_closed(&self, is_closed: bool) {
        self.change(|state| state.is_closed = is_closed);
    }

    fn let_one_through(&self) {
        self.change(|state| state.let_through += 1);
    }

    fn pass(&self) {
        self.change(|state| state.begun += 1);
        let guard = self.state.lock().unwrap();
        let is_held = |state: &mut GateState| state.is_closed && state.let_through == 0;
        let mut guard = self.changed.wait_while(guard, is_held).unwrap();
        guard.let_through = guard.let_through.saturating_sub(1);
    }

    /// Waits until this many reads have begun.
    fn wait_until_begun(&self, reads: u64) {
        let guard = self.state.lock().unwrap();
        let (guard, wait) =
            self.changed.wait_timeout_while(guard, PATIENCE, |state| state.begun < reads).unwrap();
        assert!(!wait.timed_out(), "{} of {reads} reads have begun", guard.begun);
    }

    /// Returns the number of reads that have begun.
    fn begun(&self) -> u64 {
        self.state.lock().unwrap().begun
    }
}

/// A source of one value, the number of the read. Its reads pass a gate.
#[derive(Debug)]
struct CountingSource {
    slots: Vec<Slot>,
    gate: Arc<Gate>,
    reads: u64,
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
}

fn slot() -> Slot {
    Slot { definition: catalogue::find("node.filesystem.size").unwrap(), labels: Labels::default() }
}

fn counting(gate: &Arc<Gate>) -> Box<dyn CustomSource> {
    Box::new(CountingSource { slots: vec![slot()], gate: Arc::clone(gate), reads: 0 })
}

/// A source whose reads fail for a reason that may be temporary.
#[derive(Debug)]
struct FailingSource([Slot; 1]);

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
struct LackingSource([Slot; 1], u64);

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

fn slow(gate: &Arc<Gate>) -> Source {
    Source::Threaded(ThreadedSource::start("test", counting(gate)).unwrap())
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
    /// The tallies of the last reports.
    tallies: BTreeMap<String, Tally>,
    /// The sources whose last report has arrived.
    ended: Vec<String>,
    /// The times of the rows, by source.
    rows: BTreeMap<String, Vec<i64>>,
    /// The shapes that have rows.
    shapes: BTreeSet<ShapeId>,
    job_ended_us: Option<i64>,
    sum: Tally,
    notices: Vec<Notice>,
}

impl Received {
    fn rows(&self, name: &str) -> u64 {
        self.rows.get(name).map_or(0, |rows| rows.len() as u64)
    }

    fn tally(&self, name: &str) -> Tally {
        self.tallies.get(name).copied().unwrap_or_default()
    }

    fn has_notice(&self, is_wanted: impl Fn(&Notice) -> bool) -> bool {
        self.notices.iter().any(is_wanted)
    }
}

const fn is_hung(notice: &Notice) -> bool {
    matches!(notice, Notice::Hung(_))
}

const fn is_recovered(notice: &Notice) -> bool {
    matches!(notice, Notice::Recovered(_))
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
        let sampler = move || Sampler::new(for_sampler, Arc::new(Counters::default()), flush).run();
        let thread = std::thread::spawn(sampler);
        Self { channels, thread, received: Received::default() }
    }

    fn command(&self, command: Command) {
        self.channels.command(command).unwrap();
    }

    fn add(&self, (id, source): (SourceId, Box<ActiveSource>)) {
        self.command(Command::Add(id, source));
    }

    /// Waits until the sampler has handled all commands so far, and receives the resulting notices.
    fn confirm(&mut self) {
        let (reply, mut confirmed) = oneshot::channel();
        self.command(Command::Confirm(reply));
        self.until("a confirmation", |_| confirmed.try_recv().is_ok());
    }

    /// Receives batches and notices until `has_happened`.
    fn until(&mut self, what: &str, mut has_happened: impl FnMut(&Received) -> bool) {
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
    fn flush(&mut self) {
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
        self.received.notices.extend(std::iter::from_fn(|| self.channels.next_notice()));
    }

    /// Stops the sampler. Returns everything that it has handed on.
    fn stop(mut self) -> Received {
        self.command(Command::Stop);
        let channels = Arc::clone(&self.channels);
        self.until("the end of the sampler", |_| Arc::strong_count(&channels) == 2);
        self.thread.join().unwrap();
        for (name, tally) in &self.received.tallies {
            assert_eq!(tally.due, tally.taken + tally.missed + tally.absent, "{name}: {tally:?}");
            assert_eq!(self.received.rows(name), tally.taken, "{name}: {tally:?}");
        }
        let mut sum = Tally::default();
        self.received.tallies.values().for_each(|tally| sum.add(tally));
        assert_eq!(sum, self.received.sum, "the sum of all tallies");
        self.received
    }
}

#[test]
fn a_source_that_hangs_affects_only_itself() {
    let (open, other_open, gate) = (Arc::new(Gate::default()), Arc::new(Gate::default()), Gate::closed());
    let mut running = Running::start();
    // Added by one command and with one period, they have the same deadlines.
    let added = vec![
        active(0, "hung", None, slow(&gate), "20ms"),
        active(1, "fast", None, Source::Custom(counting(&open)), "20ms"),
        active(2, "slow", None, slow(&other_open), "20ms"),
    ];
    running.command(Command::Exchange { removed: Vec::new(), added });
    gate.wait_until_begun(1);
    // The read that hangs has begun, and ends only after all of this.
    let (fast, slow) = (open.begun() + 10, other_open.begun() + 10);
    running.until("rows of the others", |received| {
        received.rows("fast") >= fast && received.rows("slow") >= slow
    });
    running.until("the notice", |received| received.has_notice(is_hung));
    for _ in 0..3 {
        let due = running.received.tally("hung").due;
        running.until("further misses", |received| received.tally("hung").due > due);
        let [hung, fast, slow] = ["hung", "fast", "slow"].map(|name| running.received.tally(name));
        // The last deadline of each waits for its read; the fast lane's is read at once.
        assert_eq!((hung.missed, hung.due), (fast.due - 1, fast.due - 1), "{hung:?} {fast:?}");
        assert!(slow.due == fast.due || slow.due == fast.due - 1, "{slow:?} {fast:?}");
    }
    assert!(matches!(running.received.notices[..], [Notice::Hung(SourceId(0))]), "reported once");
    assert_eq!((running.received.rows("hung"), gate.begun()), (0, 1));
    let opened_us = clock::realtime_us();
    gate.set_closed(false);
    running.until("a row", |received| received.rows("hung") > 0);
    assert!(matches!(running.received.notices[..], [Notice::Hung(_), Notice::Recovered(SourceId(0))]));
    running.flush();
    while running.received.tally("hung").late == 0 {
        // The gate was opened within a tenth of the period after a deadline.
        gate.set_closed(true);
        let Tally { missed, due, .. } = running.received.tally("hung");
        running.until("a further miss", |received| received.tally("hung").missed > missed);
        // It is reported at a deadline; half a period later is late.
        clock::sleep(Duration::from_millis(10));
        gate.set_closed(false);
        running.until("a further report", |received| received.tally("hung").due > due);
        running.flush();
    }
    let received = running.stop();
    let [hung, fast, slow] = ["hung", "fast", "slow"].map(|name| received.tally(name));
    assert_eq!((hung.due, slow.due), (fast.due, fast.due), "each deadline is counted for each source");
    for tally in [hung, fast, slow] {
        assert_eq!(tally.taken + tally.missed, tally.due, "{tally:?}");
    }
    assert!(
        received.rows["hung"].is_sorted() && received.rows["hung"][0] >= opened_us,
        "dated by the end of a read that hung"
    );
}

#[test]
fn a_source_that_fails_is_reported_once_for_all_its_groups() {
    let mut running = Running::start();
    let key = SourceKey { job: None, name: Identifier::try_from("failing").unwrap() };
    // Groups of the same period are always due together, and share a read.
    let groups = vec![group(0, "failing", None, "10ms"), group(1, "failing", None, "10ms")];
    let source = Source::Custom(Box::new(FailingSource([slot()])));
    running.add((SourceId(0), Box::new(ActiveSource::new(Arc::new(key), source, groups))));
    running.until("many failed reads", |received| received.tally("failing").absent >= 40);
    let received = running.stop();
    let tally = received.tally("failing");
    assert_eq!((tally.taken, tally.due), (0, tally.absent + tally.missed));
    assert!(matches!(received.notices[..], [Notice::Failing(SourceId(0), Errno::AGAIN)]), "{received:?}");
}

#[test]
fn a_value_that_the_device_does_not_have_is_not_due() {
    let mut running = Running::start();
    let fast = Source::Custom(Box::new(LackingSource([slot()], 0)));
    let of_thread = ThreadedSource::start("lacking", Box::new(LackingSource([slot()], 0))).unwrap();
    running.add(active(0, "fast", None, fast, "2ms"));
    running.add(active(1, "slow", None, Source::Threaded(of_thread), "2ms"));
    running.until("some values", |received| {
        ["fast", "slow"].iter().all(|name| received.tally(name).taken >= 10)
    });
    let received = running.stop();
    for name in ["fast", "slow"] {
        let tally = received.tally(name);
        assert_eq!((tally.absent, tally.due), (0, tally.taken + tally.missed), "{name}");
    }
}

#[test]
fn stopping_does_not_wait_for_a_source_that_hangs() {
    let gate = Gate::closed();
    let mut running = Running::start();
    running.add(active(0, "hung", None, slow(&gate), "10ms"));
    running.until("the notice", |received| received.has_notice(is_hung));
    let received = running.stop();
    let tally = received.tally("hung");
    assert!(tally.missed == tally.due && tally.due >= 100, "{tally:?}");
    assert_eq!(gate.begun(), 1, "its first read hangs until here");
    gate.set_closed(false);
}

#[test]
fn the_last_reading_of_a_job_comes_before_its_end() {
    // A reading that takes longer than the sampler waits for it is given up; on a busy machine it is tried again.
    while !is_last_reading_before_the_end() {}
}

/// Returns false if the reading took so long that the sampler may have given it up.
fn is_last_reading_before_the_end() -> bool {
    let (gate, job) = (Gate::closed(), job());
    let mut running = Running::start();
    let (id, source) = active(0, "slow", Some(&job), slow(&gate), "1h");
    running.add((id, source));
    running.command(Command::ReadNow(vec![id]));
    gate.wait_until_begun(1);
    let removed_ns = clock::monotonic_ns();
    running.command(Command::Remove(id));
    let event = Event::JobEnded { job: job.handle, at_us: 0 };
    running.command(Command::RecordEvent(Box::new(EventRecord { job: Some(Arc::clone(&job)), event })));
    running.flush();
    let is_pending = running.received.notices.is_empty() && running.received.job_ended_us.is_none();
    gate.set_closed(false);
    running.until("the end of the job", |received| received.job_ended_us.is_some());
    let is_within = clock::monotonic_ns() - removed_ns < slow_sources::CLOSE_WITHIN_NS;
    let received = running.stop();
    if is_within {
        assert!(is_pending, "the end of the job waits for the reading");
        assert!(matches!(received.notices[..], [Notice::Removed(SourceId(0), _)]));
        assert_eq!(received.ended, ["slow"]);
        assert_eq!(received.tally("slow"), Tally { due: 1, taken: 1, ..Tally::default() });
        assert!(received.rows["slow"][0] <= received.job_ended_us.unwrap());
    }
    is_within
}

#[test]
fn a_removed_source_that_hangs_is_given_back_at_once() {
    let gate = Gate::closed();
    let mut running = Running::start();
    let (id, source) = active(0, "hung", None, slow(&gate), "10ms");
    running.add((id, source));
    running.until("the notice", |received| received.has_notice(is_hung));
    running.command(Command::Remove(id));
    running.confirm();
    assert!(matches!(running.received.notices[..], [Notice::Hung(_), Notice::Removed(SourceId(0), _)]));
    running.until("the last report", |received| received.ended == ["hung"]);
    gate.set_closed(false);
    running.stop();
}

#[test]
fn a_source_that_hangs_is_not_replaced_by_another_that_would() {
    let gate = Gate::closed();
    let mut running = Running::start();
    running.add(active(0, "hung", None, slow(&gate), "10ms"));
    running.until("the notice", |received| received.has_notice(is_hung));
    running.add(active(0, "hung", None, slow(&gate), "20ms"));
    running.confirm();
    assert!(matches!(running.received.notices[..], [Notice::Hung(_), Notice::Replaced(_)]));
    gate.set_closed(false);
    running.until("rows", |received| received.rows("hung") >= 5);
    let notices = &running.received.notices[2..];
    assert!(matches!(notices, [Notice::Recovered(SourceId(0))]), "the first one goes on");
    running.stop();
}

#[test]
fn a_change_of_plan_keeps_the_deadlines_of_a_read_under_way() {
    let gate = Gate::closed();
    let mut running = Running::start();
    running.add(active(0, "slow", None, slow(&gate), "20ms"));
    let mut kept = 0;
    for round in 1.. {
        gate.wait_until_begun(u64::from(round));
        running.received.notices.clear();
        let former = ShapeId(round - 1);
        let period = if round % 2 == 0 { "20ms" } else { "30ms" };
        running.command(Command::Regroup(SourceId(0), vec![group(round, "slow", None, period)]));
        running.confirm();
        gate.let_one_through();
        // A change of plan gives up a read that hangs; on a busy machine this one may.
        running.until("the row of the former plan", |received| {
            received.shapes.contains(&former) || received.has_notice(is_recovered)
        });
        kept += u32::from(running.received.shapes.contains(&former));
        if kept == 10 {
            break;
        }
    }
    gate.set_closed(false);
    running.stop();
}
