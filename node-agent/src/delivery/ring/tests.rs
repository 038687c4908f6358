//! Tests of the rings with the delivery session: every sample is sent once, or counted as not kept.

use std::collections::{BTreeMap, BTreeSet};

use polymeter_proto::batch::{Column, Instant, Job, Shape};
use polymeter_proto::ledger::{JobFactsUpdate, KeptInterval, Tally};
use polymeter_proto::name::MetricName;
use polymeter_proto::period::Period;
use polymeter_proto::series::{
    Identifier, JobDescriptor, Kind, Labels, MetricDescriptor, MetricId, Number, Processors, SeriesId,
    SessionDescriptor, SessionId, ShapeId, Unit,
};
use polymeter_proto::text::Text;
use polymeter_proto::wire::dictionary::Entry;
use polymeter_proto::wire::frame::Frame;
use polymeter_proto::wire::message::{ToAgent, ToCollector};
use proptest::prelude::*;

use super::*;
use crate::delivery::session::NextSend;
use crate::lanes::{ReadCost, SourceKey, SourceReport};

const SESSION: SessionId = SessionId(7);
const PERIOD_US: i64 = 10_000;
const SECOND_US: i64 = 1_000_000;
const BEGIN_US: i64 = 1_790_000_000 * SECOND_US;

const LIMITS: RingLimits = RingLimits {
    keep_us: 20 * SECOND_US,
    after_end_us: 5 * SECOND_US,
    settle_us: SECOND_US,
    memory_bytes: 1024 * 1024,
    bytes_per_s: 1024 * 1024,
    outbox_bytes: 64 * 1024 * 1024,
};

fn shape(job: u32, id: u32, columns: u32) -> Arc<Shape> {
    shape_of(None, job, id, columns)
}

fn shape_of(owner_uid: Option<u32>, job: u32, id: u32, columns: u32) -> Arc<Shape> {
    let descriptor = JobDescriptor {
        job_id: job.to_string().as_str().try_into().unwrap(),
        cluster: None,
        owner_uid,
        owner: None,
        started_us: BEGIN_US,
    };
    let metric = MetricDescriptor {
        name: MetricName::new("memory.current").unwrap(),
        unit: Unit::Bytes,
        kind: Kind::Gauge,
        number: Number::Unsigned,
    };
    let columns = (0..columns).map(|number| Column {
        series: SeriesId(id * 100 + number),
        metric: (MetricId(0), metric.clone()),
        labels: Labels::default(),
    });
    Arc::new(Shape {
        id: ShapeId(id),
        job: Some(Arc::new(Job { handle: JobHandle(job), descriptor })),
        source: format!("ring/s{id}").as_str().try_into().unwrap(),
        period: Period::TEN_MILLISECONDS,
        columns: columns.collect(),
        window: None,
    })
}

/// A sender without a socket: what it sends is decoded and acknowledged at once.
struct World {
    rings: Rings,
    delivery: DeliverySession,
    requests: Arc<RingRequests>,
    shapes: Vec<Arc<Shape>>,
    taken: BTreeMap<Identifier, u64>,
    /// Series and time of each sample that arrived.
    arrived: BTreeMap<(SeriesId, i64), u64>,
    kept: Vec<KeptInterval>,
    /// Requests that were not refused.
    accepted: usize,
    tallies: BTreeMap<(Option<JobHandle>, Identifier), Tally>,
    known: BTreeMap<ShapeId, Vec<SeriesId>>,
    /// Sequence number of the last frame that the collector took.
    received: u64,
    now_us: i64,
}

impl World {
    fn new(limits: RingLimits, shapes: Vec<Arc<Shape>>) -> Self {
        let requests = Arc::new(RingRequests::default());
        let descriptor = SessionDescriptor {
            node: "n1".try_into().unwrap(),
            agent_version: "1".try_into().unwrap(),
            started_us: BEGIN_US,
            processors: Processors::default(),
        };
        Self {
            rings: Rings::new(limits, Arc::clone(&requests)),
            delivery: DeliverySession::new(SESSION, descriptor, limits.outbox_bytes, 0),
            requests,
            shapes,
            taken: BTreeMap::new(),
            arrived: BTreeMap::new(),
            kept: Vec::new(),
            accepted: 0,
            tallies: BTreeMap::new(),
            known: BTreeMap::new(),
            received: 0,
            now_us: BEGIN_US,
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.now_us - BEGIN_US).unwrap() * 1000
    }

    /// Samples all shapes for a second, except for those of `ended` jobs.
    fn second(&mut self, ended: &BTreeSet<u32>, events: Vec<EventRecord>) {
        let mut flushed = SampleBatch::default();
        let shapes = self.shapes.clone();
        let running = shapes.iter().filter(|shape| !ended.contains(&shape.job.as_ref().unwrap().handle.0));
        for shape in running {
            let index = flushed.ring.add_shape(shape);
            for tick in 0..SECOND_US / PERIOD_US {
                let deadline_us = self.now_us + tick * PERIOD_US;
                let instant = Instant {
                    deadline: Some(u64::try_from(deadline_us / PERIOD_US).unwrap()),
                    time_us: deadline_us + 14 + tick % 3,
                };
                // Every seventh tick lacks a value.
                let values = (0..shape.columns.len()).map(|column| {
                    let is_absent = tick % 7 == 0 && column == 0 && shape.columns.len() > 1;
                    (!is_absent).then_some(column as u64 * 1000 + tick.unsigned_abs())
                });
                let present = flushed.ring.push(index, instant, values).unwrap();
                *self.taken.entry(shape.source.clone()).or_default() += present;
            }
            let taken = self.taken[&shape.source];
            flushed.reports.push(SourceReport {
                key: Arc::new(SourceKey { job: shape.job.clone(), name: shape.source.clone() }),
                tally: Tally { due: taken, taken, ..Tally::default() },
                cost: ReadCost::default(),
                last: false,
            });
        }
        flushed.events = events;
        self.now_us += SECOND_US;
        let now_ns = self.now_ns();
        self.rings.take(&flushed, self.now_us, &mut self.delivery);
        self.delivery.take(&flushed, now_ns);
        self.rings.advance(self.now_us, now_ns, &mut self.delivery);
        self.send();
    }

    fn end_of(&self, job: u32) -> EventRecord {
        let of = self.shapes.iter().find_map(|shape| shape.job.clone().filter(|of| of.handle.0 == job));
        EventRecord { job: of, event: Event::JobEnded { job: JobHandle(job), at_us: self.now_us } }
    }

    fn send(&mut self) {
        while let Some(next) = self.delivery.next_send() {
            match next {
                NextSend::Frame(bytes) => {
                    let frame = Frame::decode(bytes).unwrap();
                    self.delivery.sent(self.now_ns());
                    self.receive(frame);
                }
                NextSend::Message(bytes) => {
                    let message = ToCollector::decode(&bytes).unwrap();
                    let ToCollector::Dictionary { entries, .. } = message else { panic!("{message:?}") };
                    self.delivery.sent(self.now_ns());
                    self.learn(entries);
                }
                NextSend::Restore(segment) => panic!("{segment:?}"),
            }
        }
        self.delivery.handle(ToAgent::Ack { session: SESSION, through: self.received }, self.now_ns());
    }

    fn learn(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            if let Entry::Shape(id, shape) = entry {
                self.known.insert(id, shape.series);
            }
        }
    }

    fn receive(&mut self, frame: Frame) {
        if frame.sequence <= self.received {
            return;
        }
        self.learn(frame.dictionary);
        if frame.blocks.iter().any(|block| !self.known.contains_key(&block.shape)) {
            self.delivery.handle(ToAgent::NeedDictionary { session: SESSION }, self.now_ns());
            return;
        }
        self.received = frame.sequence;
        for block in &frame.blocks {
            assert!(frame.is_kept, "nothing but kept samples was sampled");
            for (column, values) in block.iter() {
                for (time_us, value) in block.times_us.iter().zip(values) {
                    let series = self.known[&block.shape][column];
                    assert_eq!(self.arrived.insert((series, *time_us), *value), None, "sent twice");
                }
            }
        }
        for entry in frame.ledger {
            self.tallies.insert((entry.job, entry.source), entry.tally);
        }
        for (id, tally) in frame.shape_tallies {
            let shape = self.shapes.iter().find(|shape| shape.id == id).unwrap();
            self.tallies.insert((shape.job.as_ref().map(|job| job.handle), shape.source.clone()), tally);
        }
        for event in frame.events {
            match event {
                Event::Kept(kept) => self.kept.push(kept),
                // The collector forgets an ended job with its shapes.
                Event::JobEnded { job, .. } | Event::JobFacts(JobFactsUpdate { job, .. }) => self.forget(job),
                Event::PlanChange(_)
                | Event::Mark(_)
                | Event::JobOwner(_)
                | Event::RequestRefused(_)
                | Event::SessionEnded { .. }
                | Event::JobDetails(_)
                | Event::Fired(_) => {}
            }
        }
    }

    fn forget(&mut self, job: JobHandle) {
        let of_job = |shape: &&Arc<Shape>| shape.job.as_ref().is_some_and(|of| of.handle == job);
        for shape in self.shapes.iter().filter(of_job) {
            self.known.remove(&shape.id);
        }
    }

    fn keep(&mut self, job: u32, from_s: i64, to_s: i64) -> Result<(), NotKept> {
        let wanted = Wanted {
            job: JobHandle(job),
            begin_us: BEGIN_US + from_s * SECOND_US,
            end_us: BEGIN_US + to_s * SECOND_US,
            trigger: 9,
            reason: Text::of("oom"),
        };
        let taken = self.requests.keep(wanted);
        self.accepted += usize::from(taken.is_ok());
        taken
    }

    fn end_session(&mut self, ended: &BTreeSet<u32>) {
        let event = EventRecord { job: None, event: Event::SessionEnded { at_us: self.now_us } };
        self.second(ended, vec![event]);
        self.second(
            &self.shapes.iter().map(|shape| shape.job.as_ref().unwrap().handle.0).collect(),
            Vec::new(),
        );
    }

    /// Every sample was sent or is counted, and every request that was taken has its interval.
    fn check_balance(&self) {
        assert_eq!(self.kept.len(), self.accepted);
        for shape in &self.shapes {
            let Some(taken) = self.taken.get(&shape.source) else { continue };
            let job = shape.job.as_ref().map(|job| job.handle);
            let tally = self.tallies[&(job, shape.source.clone())];
            let own: BTreeSet<SeriesId> = shape.columns.iter().map(|column| column.series).collect();
            let sent = self.arrived.keys().filter(|(series, _)| own.contains(series)).count() as u64;
            assert_eq!(tally.taken, *taken, "{}", shape.source);
            assert_eq!(tally.taken, tally.not_kept + sent, "{}: {tally:?}, {sent} sent", shape.source);
        }
    }
}

#[test]
fn the_wanted_interval_is_sent_exactly() {
    let mut world = World::new(LIMITS, vec![shape(1, 1, 3), shape(2, 2, 1)]);
    let none = BTreeSet::new();
    (0..10).for_each(|_| world.second(&none, Vec::new()));
    world.keep(1, 5, 12).unwrap();
    (0..4).for_each(|_| world.second(&none, Vec::new()));
    // 7 s of 100 ticks with 3 values, of which every seventh tick lacks one; both ends count.
    let times: BTreeSet<i64> = world.arrived.keys().map(|(_, time_us)| *time_us).collect();
    let (first, last) = (times.first().unwrap(), times.last().unwrap());
    assert_eq!((first - BEGIN_US, last - BEGIN_US), (5 * SECOND_US + 14, 12 * SECOND_US - PERIOD_US + 14));
    assert_eq!(times.len(), 700);
    assert!(world.arrived.keys().all(|(series, _)| series.0 / 100 == 1));
    let [kept] = world.kept.as_slice() else { panic!("{:?}", world.kept) };
    assert_eq!(kept.samples, world.arrived.len() as u64);
    assert_eq!((kept.trigger, kept.reason.as_str()), (9, "oom"));
    world.end_session(&none);
    world.check_balance();
}

#[test]
fn samples_go_out_once_even_if_they_are_wanted_twice() {
    let mut world = World::new(LIMITS, vec![shape(1, 1, 2)]);
    let none = BTreeSet::new();
    (0..8).for_each(|_| world.second(&none, Vec::new()));
    world.keep(1, 2, 5).unwrap();
    world.keep(1, 4, 7).unwrap();
    assert_eq!(world.keep(3, 4, 7), Err(NotKept::NoRing));
    (0..3).for_each(|_| world.second(&none, Vec::new()));
    let times: BTreeSet<i64> = world.arrived.keys().map(|(_, time_us)| *time_us).collect();
    assert_eq!((times.len(), world.kept.len()), (500, 2));
    assert_eq!(world.kept.iter().map(|kept| kept.samples).sum::<u64>(), world.arrived.len() as u64);
    world.end_session(&none);
    world.check_balance();
}

#[test]
fn a_job_that_has_ended_can_be_kept_for_a_while() {
    let mut world = World::new(LIMITS, vec![shape(1, 1, 2), shape(2, 2, 2)]);
    let mut ended = BTreeSet::new();
    (0..6).for_each(|_| world.second(&ended, Vec::new()));
    let end = world.end_of(1);
    world.second(&ended, vec![end]);
    ended.insert(1);
    (0..2).for_each(|_| world.second(&ended, Vec::new()));
    world.keep(1, 3, 30).unwrap();
    world.second(&ended, Vec::new());
    assert_eq!(world.kept.len(), 1);
    let times: BTreeSet<i64> = world.arrived.keys().map(|(_, time_us)| *time_us).collect();
    assert_eq!(times.len(), 400, "4 s until its end");
    (0..10).for_each(|_| world.second(&ended, Vec::new()));
    let gone = world.tallies[&(Some(JobHandle(1)), "ring/s1".try_into().unwrap())];
    assert!(gone.not_kept > 0, "{gone:?}");
    assert_eq!(world.requests.held(JobHandle(1)), None);
    assert_eq!(world.keep(1, 3, 30), Err(NotKept::NoRing));
    world.end_session(&ended);
    world.check_balance();
}

#[test]
fn memory_is_bounded_and_what_it_drops_is_counted() {
    let limits = RingLimits { memory_bytes: 64 * 1024, keep_us: i64::MAX, ..LIMITS };
    let mut world = World::new(limits, (1..9).map(|job| shape(job, job, 20)).collect());
    let none = BTreeSet::new();
    for _ in 0..60 {
        world.second(&none, Vec::new());
        let held: Vec<Held> = (1..9).filter_map(|job| world.requests.held(JobHandle(job))).collect();
        assert!(held.iter().all(|held| held.bytes <= 2 * limits.memory_bytes), "{held:?}");
    }
    world.end_session(&none);
    world.check_balance();
    assert!(world.arrived.is_empty());
}

#[test]
fn requests_without_end_are_bounded() {
    let limits = RingLimits { memory_bytes: 32 * 1024, bytes_per_s: 1, ..LIMITS };
    let mut world = World::new(limits, vec![shape(1, 1, 20)]);
    let none = BTreeSet::new();
    for second in 0..120 {
        for _ in 0..8 {
            world.keep(1, second - 10, second + 1_000_000).ok();
            world.keep(1, second - 3, second - 1).ok();
        }
        world.second(&none, Vec::new());
        let held = world.requests.held(JobHandle(1)).unwrap();
        assert!(held.bytes <= 4 * limits.memory_bytes, "{held:?}");
    }
    assert!(world.kept.len() <= 120, "{} intervals", world.kept.len());
    world.end_session(&none);
    world.check_balance();
}

#[test]
fn a_request_that_was_taken_is_executed_whatever_happens() {
    let mut world = World::new(LIMITS, vec![shape(1, 1, 2)]);
    let (none, all) = (BTreeSet::new(), BTreeSet::from([1]));
    (0..4).for_each(|_| world.second(&none, Vec::new()));
    // Many at once, before the sender sees the first.
    let taken = (0..100).filter(|_| world.keep(1, 0, 1).is_ok()).count();
    assert_eq!(taken, 16);
    assert_eq!(world.keep(1, 0, 1), Err(NotKept::Busy));
    let end = world.end_of(1);
    world.second(&all, vec![end]);
    assert_eq!(world.kept.len(), taken);
    // In the moment in which the ring would be dropped.
    (0..4).for_each(|_| world.second(&all, Vec::new()));
    world.keep(1, 0, 9).unwrap();
    world.second(&all, Vec::new());
    assert_eq!(world.kept.len(), taken + 1);
    world.second(&all, Vec::new());
    assert_eq!(world.keep(1, 0, 9), Err(NotKept::NoRing));
    world.end_session(&all);
    world.check_balance();
    assert_eq!(world.keep(1, 0, 9), Err(NotKept::NoRing));
}

#[test]
fn a_reader_sees_that_samples_found_no_room() {
    let limits = RingLimits { memory_bytes: 16 * 1024, bytes_per_s: 1, ..LIMITS };
    let mut world = World::new(limits, vec![shape(1, 1, 20)]);
    let none = BTreeSet::new();
    for second in 0..20 {
        world.keep(1, second - 2, second).ok();
        world.second(&none, Vec::new());
    }
    world.end_session(&none);
    world.check_balance();
    let cut: Vec<&KeptInterval> = world
        .kept
        .iter()
        .filter(|kept| kept.reason.as_str().ends_with("samples found no room; oom"))
        .collect();
    assert!(
        !cut.is_empty() && world.kept.iter().any(|kept| kept.reason.as_str() == "oom"),
        "{:?}",
        world.kept
    );
}

#[test]
fn the_bandwidth_is_limited() {
    let limits = RingLimits { bytes_per_s: 4 * 1024, ..LIMITS };
    let mut world = World::new(limits, vec![shape(1, 1, 40)]);
    let none = BTreeSet::new();
    (0..12).for_each(|_| world.second(&none, Vec::new()));
    world.keep(1, 0, 11).unwrap();
    let mut seconds = 0;
    while world.kept.is_empty() {
        world.second(&none, Vec::new());
        seconds += 1;
        assert!(seconds < 100);
    }
    assert!(seconds >= 3, "{seconds} s for {} samples", world.arrived.len());
    world.end_session(&none);
    world.check_balance();
}

/// A user wants everything of some jobs, without end and more than the bandwidth has.
#[test]
fn a_storm_of_a_user_does_not_delay_the_dump_of_another() {
    let limits = RingLimits { bytes_per_s: 2 * 1024, ..LIMITS };
    let storming = (1..=8).map(|job| shape_of(Some(1000), job, job, 20));
    let mut world = World::new(limits, storming.chain([shape_of(Some(2000), 9, 9, 4)]).collect());
    let none = BTreeSet::new();
    let mut kept_after = None;
    for second in 0..60_i64 {
        for job in 1..=8 {
            // The requests and the rings of the user are full all the time.
            while world.keep(job, second - 2, second).is_ok() {}
        }
        if second == 30 {
            world.keep(9, 25, 30).unwrap();
        }
        world.second(&none, Vec::new());
        let is_kept = world.kept.iter().any(|kept| kept.job == JobHandle(9));
        kept_after = kept_after.or(is_kept.then_some(second - 30));
    }
    let of_victim: Vec<&KeptInterval> = world.kept.iter().filter(|kept| kept.job == JobHandle(9)).collect();
    let samples = of_victim.first().map(|kept| kept.samples);
    // 500 ticks of four series, of which every seventh tick lacks one value, in less than half the bandwidth.
    assert!(samples.is_some_and(|samples| samples > 1_900), "{of_victim:?}");
    assert!(kept_after.is_some_and(|seconds| seconds <= 6), "after {kept_after:?} s");
    assert!(world.kept.len() > 20, "the storm goes on: {} intervals", world.kept.len());
    world.end_session(&none);
    world.check_balance();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_sample_is_sent_once_or_counted(
        steps in prop::collection::vec((0_u32..8, 0_u32..4, 0_i64..30, 0_i64..12), 1..40),
        memory in prop_oneof![Just(8 * 1024_usize), Just(100 * 1024), Just(1024 * 1024)],
        rate in prop_oneof![Just(2 * 1024_usize), Just(1024 * 1024)],
    ) {
        let limits = RingLimits { memory_bytes: memory, bytes_per_s: rate, keep_us: 6 * SECOND_US, ..LIMITS };
        let shapes = vec![shape(1, 1, 3), shape(1, 2, 1), shape(2, 3, 8), shape(3, 4, 2)];
        let mut world = World::new(limits, shapes);
        let mut ended = BTreeSet::new();
        for (what, job, from_s, length_s) in steps {
            match what {
                0 if job > 0 && ended.insert(job) => {
                    ended.remove(&job);
                    let end = world.end_of(job);
                    world.second(&ended, vec![end]);
                    ended.insert(job);
                }
                1 | 2 => drop(world.keep(job, from_s, from_s + length_s)),
                _ => world.second(&ended, Vec::new()),
            }
        }
        world.end_session(&ended);
        world.check_balance();
        let kept: u64 = world.kept.iter().map(|kept| kept.samples).sum();
        prop_assert_eq!(kept, world.arrived.len() as u64);
        for (_, time_us) in world.arrived.keys() {
            prop_assert!(world.kept.iter().any(|kept| (kept.begin_us..=kept.end_us).contains(time_us)));
        }
    }
}
