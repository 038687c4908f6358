//! A simulated agent: a real delivery session and a sampler that generates samples. The value of a sample, or
//! of a window of samples, is its id; an event's id is its time or, in events without a time, a name in it.

use std::collections::HashMap;
use std::sync::Arc;

use polymeter_agent::delivery::session::{DeliverySession, NextSend};
use polymeter_agent::lanes::{EventRecord, ReadCost, SampleBatch, SourceKey, SourceReport};
use polymeter_collector::session_messages::Peer;
use polymeter_proto::batch::{Column, Instant, Job, Shape};
use polymeter_proto::ledger::{
    Cause, Event, JobDetails, JobDetailsUpdate, JobFacts, JobFactsUpdate, JobOwner, Mark, MarkKind,
    PlanChange, RequestRefused, Tally,
};
use polymeter_proto::name::MetricName;
use polymeter_proto::period::{Period, Sampling};
use polymeter_proto::series::{
    Identifier, JobDescriptor, JobHandle, Kind, Labels, MetricDescriptor, MetricId, Number, SeriesId,
    SessionDescriptor, SessionId, ShapeId, Unit,
};

use polymeter_proto::window::{PARTS, Summary};

use super::disk::Disk;
use polymeter_e2e::random::Random;

/// Names of sources. Two shapes of one job may have the same source.
const SOURCE_NAMES: [&str; 2] = ["a", "b"];

const JOBS_MAX: usize = 3;

/// Added to the ids of ends of jobs, which are times: an end before the last sample of its job would be
/// stored at that sample's time.
const AFTER_SAMPLES_US: i64 = 1 << 52;

#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) session: SessionId,
    pub(crate) delivery: DeliverySession,
    /// Undelivered sessions of earlier runs.
    pub(crate) earlier: Vec<DeliverySession>,
    pub(crate) disk: Option<Disk>,
    /// True if it can send all acknowledged frames again.
    pub(crate) keeps_all: bool,
    pub(crate) outbox_bytes: usize,
    /// Acknowledged frames that were put back into the outbox after failovers, by which it may be beyond its
    /// limit.
    pub(crate) taken_back_bytes: usize,
    pub(crate) collector: usize,
    /// Each connection has a different id.
    pub(crate) peer: Peer,
    pub(crate) samples: u64,
    pub(crate) events: Vec<i64>,
    /// Expected tally of each source, by the job's id.
    pub(crate) expected: HashMap<SourceId, Tally>,
    next_id: u32,
    own: Arc<Shape>,
    jobs: Vec<(Arc<Job>, Arc<Shape>)>,
    /// Its scheduler may report facts afterwards.
    last_ended: Option<Arc<Job>>,
    next_unique_id: u64,
}

pub(crate) fn peer(number: u64) -> Peer {
    Peer::from(number.to_le_bytes().as_slice())
}

fn descriptor() -> SessionDescriptor {
    SessionDescriptor {
        node: "n1".try_into().unwrap(),
        agent_version: "1".try_into().unwrap(),
        started_us: 0,
        processors: Default::default(),
    }
}

/// Name that is the id of an event.
fn name_of(id: i64) -> Identifier {
    id.to_string().as_str().try_into().unwrap()
}

pub(crate) fn event_id(event: &Event) -> i64 {
    let of = |name: &Option<Identifier>| name.as_ref().unwrap().as_str().parse().unwrap();
    match event {
        Event::PlanChange(PlanChange { at_us, .. })
        | Event::JobEnded { at_us, .. }
        | Event::Mark(Mark { at_us, .. })
        | Event::RequestRefused(RequestRefused { at_us, .. })
        | Event::SessionEnded { at_us } => *at_us,
        Event::JobFacts(update) => of(&update.facts.account),
        Event::JobOwner(owner) => of(&owner.name),
        Event::JobDetails(update) => of(&update.details.display_id),
        Event::Kept(kept) => kept.end_us,
        Event::Fired(firing) => firing.at_us,
    }
}

fn plan_change(job: JobHandle, at_us: i64) -> PlanChange {
    PlanChange {
        at_us,
        job: Some(job),
        level: None,
        metric: MetricName::new("cpu.usage").unwrap(),
        old: None,
        new: Some(Sampling::raw(Period::SECOND)),
        cause: Cause::Baseline,
        by: None,
        until_us: None,
    }
}

type SourceId = (Option<(u32, String)>, String);

/// Handle and id of a shape's job, and its source.
fn source_of(shape: &Shape) -> SourceId {
    let job = shape.job.as_ref().map(|job| (job.handle.0, job.descriptor.job_id.as_str().to_owned()));
    (job, shape.source.as_str().to_owned())
}

/// Creates a shape of one or two columns, with unique ids.
fn shape(next_id: &mut u32, job: Option<&Arc<Job>>, columns: u32) -> Arc<Shape> {
    let metric = MetricDescriptor {
        name: MetricName::new("cpu.usage").unwrap(),
        unit: Unit::Count,
        kind: Kind::Counter,
        number: Number::Unsigned,
    };
    let columns = (0..columns).map(|_| {
        *next_id += 1;
        let metric = (MetricId(1), metric.clone());
        Column { series: SeriesId(*next_id), metric, labels: Labels::default() }
    });
    let columns = columns.collect();
    *next_id += 1;
    let source = SOURCE_NAMES[*next_id as usize % SOURCE_NAMES.len()].try_into().unwrap();
    Arc::new(Shape {
        id: ShapeId(*next_id),
        job: job.cloned(),
        source,
        period: Period::SECOND,
        window: next_id.is_multiple_of(3).then_some(Period::HOUR),
        columns,
    })
}

impl Agent {
    /// Creates an agent, which recovers the data on its disk, if it has one.
    pub(crate) fn new(
        session: u64,
        connection: u64,
        outbox_bytes: usize,
        disk: Option<Disk>,
        now_ns: u64,
    ) -> Self {
        let mut disk = disk;
        let mut next_id = 0;
        let own = shape(&mut next_id, None, 1);
        let session = SessionId(session);
        let mut delivery = DeliverySession::new(session, descriptor(), outbox_bytes, now_ns);
        // Some agents keep nothing, some a few frames, and some all of them.
        let kept_bytes = [0, 300, usize::MAX][(session.0 % 3) as usize];
        delivery.keep_acknowledged(kept_bytes);
        let keeps_all = kept_bytes == usize::MAX && disk.is_none();
        let mut earlier = Vec::new();
        if let Some(disk) = &mut disk {
            delivery.use_spool();
            earlier = disk.deliveries(outbox_bytes, now_ns);
        }
        Self {
            session,
            delivery,
            earlier,
            disk,
            outbox_bytes,
            taken_back_bytes: 0,
            keeps_all,
            collector: 0,
            peer: peer(connection),
            samples: 0,
            events: Vec::new(),
            expected: HashMap::new(),
            next_id,
            own,
            jobs: Vec::new(),
            last_ended: None,
            next_unique_id: 0,
        }
    }

    /// True if everything is acknowledged and no tally or loss is left to be reported.
    pub(crate) fn is_settled(&self) -> bool {
        let is_spooled = self.disk.as_ref().is_some_and(|disk| !disk.is_empty());
        self.delivery.is_empty() && !self.delivery.has_unreported() && !is_spooled && self.earlier.is_empty()
    }

    /// Unique id of a sample or an event, across all sessions.
    fn unique_id(&mut self) -> u64 {
        self.next_unique_id += 1;
        self.session.0 << 32 | self.next_unique_id
    }

    /// Begins and ends jobs, takes samples, and passes them to the delivery session. A batch without content
    /// is not passed on, as by the real sampler.
    pub(crate) fn flush(&mut self, random: &mut Random, now_ns: u64) {
        let mut flushed = SampleBatch::default();
        if self.jobs.len() < JOBS_MAX && random.percent(20) {
            self.begin_job(random, &mut flushed);
        }
        for _ in 0..random.below(4) {
            let choice = random.below(self.jobs.len() as u64 + 1) as usize;
            let shape = Arc::clone(self.jobs.get(choice).map_or(&self.own, |(_, shape)| shape));
            self.sample(&shape, &mut flushed, now_ns);
        }
        if !self.jobs.is_empty() && random.percent(15) {
            let (job, shape) = self.jobs.remove(random.below(self.jobs.len() as u64) as usize);
            self.sample(&shape, &mut flushed, now_ns);
            self.report(&shape, &mut flushed, true);
            let at_us = self.unique_id() as i64 + AFTER_SAMPLES_US;
            self.events.push(at_us);
            let event = Event::JobEnded { job: job.handle, at_us };
            self.last_ended = Some(Arc::clone(&job));
            flushed.events.push(EventRecord { job: Some(job), event });
        }
        if random.percent(30) {
            self.explain(random, &mut flushed);
        }
        if random.percent(30) {
            self.report_all(&mut flushed, false);
        }
        if !flushed.is_empty() {
            self.delivery.take(&flushed, now_ns);
        }
        self.sync_disk(false, now_ns);
        // Data that are read back from the disk count in addition.
        let max_bytes = self.outbox_bytes + self.disk.as_ref().map_or(0, |_| self.outbox_bytes);
        let (bytes, taken_back) = (self.delivery.outbox_bytes(), self.taken_back_bytes);
        assert!(
            bytes <= max_bytes + taken_back,
            "{bytes} bytes, {taken_back} taken back: beyond {max_bytes}"
        );
        // What has left the outbox leaves no room behind.
        self.taken_back_bytes = taken_back.min(bytes.saturating_sub(max_bytes));
    }

    /// Spills to the disk, and removes what was delivered.
    pub(crate) fn sync_disk(&mut self, ends: bool, now_ns: u64) {
        let Some(disk) = &mut self.disk else { return };
        disk.sync(&mut self.delivery, ends, now_ns);
        self.earlier.iter_mut().for_each(|delivery| disk.sync(delivery, ends, now_ns));
        self.earlier.retain(|delivery| !delivery.is_empty());
    }

    pub(crate) fn deliveries(&mut self) -> impl Iterator<Item = &mut DeliverySession> {
        std::iter::once(&mut self.delivery).chain(&mut self.earlier)
    }

    /// Next message to send, of the oldest session that has one.
    pub(crate) fn next_send(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        for delivery in self.earlier.iter_mut().chain([&mut self.delivery]) {
            while let Some(send) = delivery.next_send() {
                let bytes = match send {
                    NextSend::Frame(bytes) => bytes.to_vec(),
                    NextSend::Message(bytes) => bytes,
                    NextSend::Restore(segment) => {
                        let disk = self.disk.as_ref().expect("a spilled segment is on a disk");
                        let missing = delivery.restored(segment, disk.read(delivery.session(), segment));
                        assert_eq!(missing, 0);
                        continue;
                    }
                };
                delivery.sent(now_ns);
                return Some(bytes);
            }
        }
        None
    }

    /// Reports the final tallies of all sources, which are closed. No batch follows.
    pub(crate) fn end(&mut self, now_ns: u64) {
        let mut flushed = SampleBatch::default();
        self.report_all(&mut flushed, true);
        self.delivery.take(&flushed, now_ns);
    }

    fn report_all(&self, flushed: &mut SampleBatch, last: bool) {
        for shape in self.jobs.iter().map(|(_, shape)| shape).chain([&self.own]) {
            self.report(shape, flushed, last);
        }
    }

    fn report(&self, shape: &Arc<Shape>, flushed: &mut SampleBatch, last: bool) {
        let key = SourceKey { job: shape.job.clone(), name: shape.source.clone() };
        let tally = self.expected.get(&source_of(shape)).copied().unwrap_or_default();
        flushed.reports.push(SourceReport { key: Arc::new(key), tally, cost: ReadCost::default(), last });
    }

    fn begin_job(&mut self, random: &mut Random, flushed: &mut SampleBatch) {
        self.next_id += 1;
        // Some removed cgroups return: the same job with another handle.
        let name = if random.percent(30) { random.below(3) as u32 } else { self.next_id };
        let descriptor = JobDescriptor {
            job_id: format!("{name}").as_str().try_into().unwrap(),
            cluster: None,
            owner_uid: None,
            owner: None,
            started_us: 0,
        };
        let job = Arc::new(Job { handle: JobHandle(self.next_id), descriptor });
        let shape = shape(&mut self.next_id, Some(&job), 1 + random.below(2) as u32);
        self.record(&job, flushed, |job, at_us| Event::PlanChange(plan_change(job, at_us)));
        if random.percent(50) {
            self.record(&job, flushed, |job, id| {
                Event::JobOwner(JobOwner { job, uid: Some(7), name: Some(name_of(id)) })
            });
        }
        self.jobs.push((job, shape));
    }

    /// Records an event of any other kind, of a running job or of the one that ended last.
    fn explain(&mut self, random: &mut Random, flushed: &mut SampleBatch) {
        let running = self.jobs.iter().map(|(job, _)| job);
        let known: Vec<_> = running.chain(&self.last_ended).cloned().collect();
        let Some(job) = known.get(random.below(4) as usize) else { return };
        let is_over = self.last_ended.as_ref().is_some_and(|ended| Arc::ptr_eq(ended, job));
        let kind = if is_over { 0 } else { random.below(5) };
        self.record(job, flushed, |job, id| match kind {
            0 => {
                let facts = JobFacts { account: Some(name_of(id)), ..JobFacts::default() };
                Event::JobFacts(JobFactsUpdate { job, is_over, facts })
            }
            1 => {
                let details = JobDetails { display_id: Some(name_of(id)), ..JobDetails::default() };
                Event::JobDetails(JobDetailsUpdate { job, details })
            }
            2 => {
                let (request, reason) = ("a".into(), "b".into());
                Event::RequestRefused(RequestRefused {
                    at_us: id,
                    job,
                    request,
                    period: None,
                    by: None,
                    reason,
                })
            }
            3 => Event::PlanChange(plan_change(job, id)),
            _ => {
                let kind = MarkKind::Instant;
                Event::Mark(Mark { at_us: id, job: Some(job), name: name_of(id), kind, by: None })
            }
        });
    }

    fn record(
        &mut self,
        job: &Arc<Job>,
        flushed: &mut SampleBatch,
        event: impl FnOnce(JobHandle, i64) -> Event,
    ) {
        let event = event(job.handle, self.event());
        flushed.events.push(EventRecord { job: Some(Arc::clone(job)), event });
    }

    fn event(&mut self) -> i64 {
        let at_us = self.unique_id() as i64;
        self.events.push(at_us);
        at_us
    }

    fn sample(&mut self, shape: &Arc<Shape>, flushed: &mut SampleBatch, now_ns: u64) {
        let index = flushed.batch.add_shape(shape);
        let values: Vec<u64> = shape.columns.iter().map(|_| self.unique_id()).collect();
        let instant = Instant { deadline: None, time_us: (now_ns / 1000) as i64 };
        let recorded = if shape.window.is_some() {
            flushed.batch.push_windows(index, instant, &windows(shape, &values), &[])
        } else {
            flushed.batch.push_whole(index, instant, &values)
        };
        let count = recorded.unwrap();
        self.samples += count;
        // Some deadlines are missed and some samples are absent; sometimes the batch is full.
        let (missed, absent, dropped) = (
            count % 2,
            u64::from(self.next_unique_id.is_multiple_of(7)),
            u64::from(self.next_unique_id.is_multiple_of(11)),
        );
        let taken = count + dropped;
        let tally =
            Tally { due: taken + missed + absent, taken, late: 0, missed, absent, dropped, not_kept: 0 };
        self.expected.entry(source_of(shape)).or_default().add(&tally);
    }
}

/// A row of windows with these last values. Some have one sample, which may be the first of its series.
fn windows(shape: &Shape, values: &[u64]) -> Vec<u64> {
    let packed = shape.columns.iter().zip(values).map(|(column, id)| {
        let (count, least) = if id.is_multiple_of(5) { (1, f64::NAN) } else { (1 + id % 4, 0.5) };
        let (min, max) = (least.to_bits(), (2.0 * least).to_bits());
        Summary { last: *id, count, min, max, sum: 0 }.pack(&column.metric.1)
    });
    let packed: Vec<[u64; PARTS]> = packed.collect();
    (0..PARTS).flat_map(|part| packed.iter().map(move |of| of[part])).collect()
}
