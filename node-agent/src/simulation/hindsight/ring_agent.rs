//! One run of an agent: jobs that are sampled into rings and, once a step, for the triggers. It knows the
//! true fate of each sample up to the delivery session.

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_proto::batch::{Column, Instant, Job, Shape};
use polymeter_proto::ledger::{Event, Tally};
use polymeter_proto::name::MetricName;
use polymeter_proto::period::Period;
use polymeter_proto::series::{
    Identifier, JobDescriptor, JobHandle, Kind, Labels, MetricDescriptor, MetricId, Number, Processors,
    SeriesId, SessionDescriptor, SessionId, ShapeId, Unit,
};
use polymeter_proto::text::Text;
use polymeter_proto::trigger::{OOM_METRIC, Rule, RuleFields};

use super::{BEGIN_US, PERIOD_US};
use crate::delivery::ring::{NotKept, RingLimits, RingRequests, Rings, Wanted};
use crate::delivery::session::DeliverySession;
use crate::lanes::{EventRecord, ReadCost, SampleBatch, SourceKey, SourceReport};
use crate::simulation::random::Random;
use crate::triggers::Triggers;

pub(super) type SourceName = (JobHandle, Identifier);

#[derive(Debug)]
struct SimulatedJob {
    job: Arc<Job>,
    ring: Arc<Shape>,
    watched: Arc<Shape>,
    oom_kills: u64,
}

#[derive(Debug)]
pub(super) struct RingAgent {
    pub(super) session: SessionId,
    pub(super) delivery: DeliverySession,
    pub(super) requests: Arc<RingRequests>,
    rings: Rings,
    triggers: Triggers,
    jobs: BTreeMap<JobHandle, SimulatedJob>,
    pub(super) tallies: BTreeMap<SourceName, Tally>,
    /// Intervals that were promised, by the number of the trigger.
    pub(super) promised: BTreeMap<u64, Wanted>,
    next_id: u32,
    next_trigger: u64,
    pub(super) has_ended: bool,
}

fn shape(id: u32, job: &Arc<Job>, source: &str, metrics: &[&'static str]) -> Arc<Shape> {
    let column = |(number, metric): (u32, &&'static str)| Column {
        series: SeriesId(id * 100 + number),
        metric: (
            MetricId(number + if *metric == OOM_METRIC { 10 } else { 0 }),
            MetricDescriptor {
                name: MetricName::new(*metric).unwrap(),
                unit: Unit::Count,
                kind: Kind::Counter,
                number: Number::Unsigned,
            },
        ),
        labels: Labels::default(),
    };
    Arc::new(Shape {
        id: ShapeId(id),
        job: Some(Arc::clone(job)),
        source: source.try_into().unwrap(),
        period: Period::TEN_MILLISECONDS,
        window: None,
        columns: (0..).zip(metrics).map(column).collect(),
    })
}

fn oom_rule() -> Rule {
    let fields = RuleFields {
        name: "oom".to_owned(),
        when: "oom".to_owned(),
        hold_off: Some("1ms".to_owned()),
        firings: Some(1000),
        keep: Some("5s".to_owned()),
        after: Some("2s".to_owned()),
        ..RuleFields::default()
    };
    Rule::parse(&fields).unwrap()
}

impl RingAgent {
    pub(super) fn new(session: u64, limits: RingLimits, now_us: i64) -> Self {
        let requests = Arc::new(RingRequests::holding(limits.keep_us));
        let descriptor = SessionDescriptor {
            node: "n1".try_into().unwrap(),
            agent_version: "1".try_into().unwrap(),
            started_us: now_us,
            processors: Processors::default(),
        };
        let triggers = Triggers::new(BEGIN_US - 3_600_000_000);
        triggers.change(|evaluator| evaluator.set_site(vec![oom_rule()]));
        let session = SessionId(session);
        Self {
            session,
            delivery: DeliverySession::new(session, descriptor, limits.outbox_bytes, now_ns(now_us)),
            rings: Rings::new(limits, Arc::clone(&requests)),
            requests,
            triggers,
            jobs: BTreeMap::new(),
            tallies: BTreeMap::new(),
            promised: BTreeMap::new(),
            next_id: 0,
            next_trigger: 0,
            has_ended: false,
        }
    }

    pub(super) fn job_count(&self) -> usize {
        self.jobs.len()
    }

    pub(super) fn begin_job(&mut self, now_us: i64) {
        self.next_id += 2;
        let descriptor = JobDescriptor {
            job_id: self.next_id.to_string().as_str().try_into().unwrap(),
            cluster: None,
            owner_uid: Some(7),
            owner: None,
            started_us: now_us,
        };
        let job = Arc::new(Job { handle: JobHandle(self.next_id), descriptor });
        let ring =
            shape(self.next_id, &job, "ring/memory", &["memory.current", "memory.anon", "memory.file"]);
        let watched = shape(self.next_id + 1, &job, "memory.events", &[OOM_METRIC]);
        self.jobs.insert(job.handle, SimulatedJob { job, ring, watched, oom_kills: 0 });
    }

    /// The kernel kills a process of a job: one of its next samples says so, perhaps the last one.
    pub(super) fn kill_process(&mut self, number: usize) {
        if let Some(job) = self.jobs.values_mut().nth(number) {
            job.oom_kills += 1;
        }
    }

    /// Any handle of a job that has run, or of none.
    pub(super) fn any_job(&self, random: &mut Random) -> JobHandle {
        JobHandle(u32::try_from(random.below(u64::from(self.next_id) + 3)).unwrap())
    }

    pub(super) fn keep(
        &mut self,
        job: JobHandle,
        (begin_us, end_us): (i64, i64),
        reason: &str,
    ) -> Result<(), NotKept> {
        self.next_trigger += 1;
        let trigger = self.next_trigger;
        let wanted = Wanted { job, begin_us, end_us, trigger, reason: Text::of(reason) };
        self.requests.keep(wanted.clone())?;
        self.promised.insert(trigger, wanted);
        Ok(())
    }

    /// Does what the rules say about the samples so far. The jobs may be gone by now.
    pub(super) fn act_on_triggers(&mut self) {
        for fired in self.triggers.change(|evaluator| evaluator.take_fired()) {
            let before_us = fired.rule.keep_us.unwrap();
            let interval = (fired.at_us - before_us, fired.at_us + fired.rule.after_us);
            // Many at once are refused, and the firing says so.
            self.keep(fired.job.handle, interval, &fired.why).ok();
        }
    }

    /// Samples all jobs for `ticks` periods before `now_us`, ends those numbered in `ending`, and passes the
    /// batch through triggers, rings and the delivery session, as the sender does.
    pub(super) fn flush(&mut self, ticks: i64, ending: &[usize], random: &mut Random, now_us: i64) {
        let mut flushed = SampleBatch::default();
        let mut gone = Vec::new();
        for (number, (handle, job)) in self.jobs.iter().enumerate() {
            let is_last = ending.contains(&number) || self.has_ended;
            for shape in [&job.ring, &job.watched] {
                let tally = self.tallies.entry((*handle, shape.source.clone())).or_default();
                sample(shape, job.oom_kills, ticks, now_us, &mut flushed, tally, random);
                flushed.reports.push(SourceReport {
                    key: Arc::new(SourceKey { job: shape.job.clone(), name: shape.source.clone() }),
                    tally: *tally,
                    cost: ReadCost::default(),
                    last: is_last,
                });
            }
            if is_last && !self.has_ended {
                let event = Event::JobEnded { job: *handle, at_us: now_us };
                flushed.events.push(EventRecord { job: Some(Arc::clone(&job.job)), event });
                gone.push(*handle);
            }
        }
        for handle in gone {
            self.jobs.remove(&handle);
        }
        if self.has_ended {
            flushed.events.push(EventRecord { job: None, event: Event::SessionEnded { at_us: now_us } });
        }
        self.triggers.take(&flushed, now_us);
        self.rings.take(&flushed, now_us, &mut self.delivery);
        self.delivery.take(&flushed, now_ns(now_us));
        self.advance(now_us);
    }

    pub(super) fn advance(&mut self, now_us: i64) {
        self.rings.advance(now_us, now_ns(now_us), &mut self.delivery);
        self.delivery.advance(now_ns(now_us));
    }

    /// Bytes of all rings.
    pub(super) fn ring_bytes(&self) -> usize {
        let handles = 0..=self.next_id;
        handles.filter_map(|handle| self.requests.held(JobHandle(handle))).map(|held| held.bytes).sum()
    }
}

pub(super) fn now_ns(now_us: i64) -> u64 {
    u64::try_from(now_us - BEGIN_US).unwrap() * 1000
}

/// Takes samples at all deadlines; some are missed, some values are absent, and some find no room.
fn sample(
    shape: &Arc<Shape>,
    oom_kills: u64,
    ticks: i64,
    now_us: i64,
    flushed: &mut SampleBatch,
    tally: &mut Tally,
    random: &mut Random,
) {
    let is_ring = shape.source.as_str().starts_with("ring/");
    let batch = if is_ring { &mut flushed.ring } else { &mut flushed.batch };
    let index = batch.add_shape(shape);
    let columns = shape.columns.len() as u64;
    for tick in 0..if is_ring { ticks } else { 1 } {
        tally.due += columns;
        if random.percent(3) {
            tally.missed += columns;
            continue;
        }
        let deadline_us = (now_us / PERIOD_US - ticks + tick) * PERIOD_US;
        let instant =
            Instant { deadline: u64::try_from(deadline_us / PERIOD_US).ok(), time_us: deadline_us + 14 };
        let values = shape.columns.iter().enumerate();
        let values: Vec<Option<u64>> =
            values.map(|(place, _)| (place == 0 || !random.percent(5)).then_some(oom_kills)).collect();
        let present = values.iter().flatten().count() as u64;
        tally.absent += columns - present;
        tally.taken += present;
        if random.percent(1) || batch.push(index, instant, values.into_iter()).is_err() {
            tally.dropped += present;
        }
    }
}
