//! Mock agents that run jobs: each has a session of its own, and sends what an agent sends about a job.

use std::collections::VecDeque;
use std::error::Error;
use std::sync::Arc;

use polymeter_benches::mock::Outbox;
use polymeter_proto::batch::{Batch, Instant, Job, Shape};
use polymeter_proto::ledger::{
    Cause, Event, JobFacts, JobFactsUpdate, LedgerEntry, Mark, MarkKind, PlanChange, Tally,
};
use polymeter_proto::period::Sampling;
use polymeter_proto::series::{Identifier, JobDescriptor, JobHandle, SessionDescriptor, SessionId};
use polymeter_proto::wire::dictionary::{Announced, Entry};
use polymeter_proto::wire::frame::{Encoder, Extras};
use polymeter_proto::wire::message::ToAgent;

use super::calendar::{JobPlan, STEPS_PER_FRAME};
use super::template::{Excerpt, STEP_SOURCE, Template, metric_names};

/// One in so many jobs has missed a sample of its first source.
const MISSED: u64 = 50;

/// One in so many jobs was marked by its owner.
const MARKED: u64 = 10;

/// One in so many jobs had a lease.
const LEASED: u64 = 20;

/// User id of the first owner.
pub(crate) const FIRST_UID: u32 = 20_000;

const LEASED_PERIOD: polymeter_proto::period::Period = polymeter_proto::period::Period::TEN_MILLISECONDS;

#[derive(Debug)]
pub(crate) struct Node {
    session: SessionId,
    descriptor: SessionDescriptor,
    outbox: Outbox,
    announced: Announced,
    own: Arc<Shape>,
    /// Tally of the node's own samples.
    tally: Tally,
    next_series: u32,
    next_shape: u32,
    next_handle: u32,
    /// Ended jobs, each with the last frame about it.
    retiring: VecDeque<(u64, JobHandle)>,
    samples: u64,
}

impl Node {
    pub(crate) fn new(
        session: SessionId,
        number: usize,
        started_us: i64,
        template: &Template,
    ) -> Result<Self, Box<dyn Error>> {
        let (node, agent_version) = (format!("node{number:04}").try_into()?, "world".try_into()?);
        let own = template.node_shape((0, 0));
        Ok(Self {
            session,
            descriptor: SessionDescriptor { node, agent_version, started_us, processors: Default::default() },
            outbox: Outbox::default(),
            announced: Announced::default(),
            next_series: u32::try_from(own.columns.len())?,
            own,
            tally: Tally::default(),
            next_shape: 1,
            next_handle: 1,
            retiring: VecDeque::new(),
            samples: 0,
        })
    }

    pub(crate) const fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    pub(crate) const fn samples(&self) -> u64 {
        self.samples
    }

    /// Messages to send in response to an answer of the collector.
    pub(crate) fn hear(&mut self, answer: &ToAgent) -> Result<Vec<Vec<u8>>, String> {
        let (announced, descriptor) = (&self.announced, &self.descriptor);
        let messages = self.outbox.hear(self.session, answer, || announced.all(descriptor))?;
        let acknowledged = self.outbox.acknowledged();
        while let Some((_, handle)) = self.retiring.front().filter(|(last, _)| *last <= acknowledged) {
            self.announced.retire_job(*handle);
            self.retiring.pop_front();
        }
        Ok(messages)
    }

    /// Last frame of the session: the agent stops.
    pub(crate) fn stop(&mut self, encoder: &mut Encoder, at_us: i64) -> Result<&[u8], &'static str> {
        let mut dictionary = self.introduction();
        self.announced.announce(&self.own, &mut dictionary);
        let extras =
            Extras { dictionary: &dictionary, events: &[Event::SessionEnded { at_us }], ..Extras::default() };
        self.outbox.push(self.session, encoder, &Batch::default(), extras)
    }

    /// The session's own entry, if it was not announced yet.
    fn introduction(&self) -> Vec<Entry> {
        let is_first = self.outbox.sequence() == 0;
        is_first.then(|| Entry::Session(self.descriptor.clone())).into_iter().collect()
    }

    /// Adds a row of the node's own series to `batch`.
    fn sample_node(&mut self, template: &Template, batch: &mut Batch, time_us: i64) {
        let second = u32::try_from((time_us - self.descriptor.started_us) / 1_000_000).unwrap_or(0);
        let shape = batch.add_shape(&self.own);
        let instant = Instant { deadline: None, time_us };
        // The batch of a job has room for a row.
        let taken = batch.push(shape, instant, template.node_values(second)).unwrap_or(0);
        self.tally.due += taken;
        self.tally.taken += taken;
    }
}

/// A job on one of its nodes.
#[derive(Debug)]
pub(crate) struct JobRun<'a> {
    plan: &'a JobPlan,
    template: &'a Template,
    excerpt: Excerpt,
    job: Arc<Job>,
    shapes: Vec<Arc<Shape>>,
    tallies: Vec<Tally>,
    next: u32,
    /// Number of the next step, and the tally of all of them.
    next_step: u32,
    steps: Tally,
}

impl<'a> JobRun<'a> {
    /// Begins the job on `node`, which is the `rank`th of its nodes.
    pub(crate) fn begin(
        plan: &'a JobPlan,
        template: &'a Template,
        node: &mut Node,
        rank: usize,
    ) -> Result<Self, Box<dyn Error>> {
        let descriptor = JobDescriptor {
            job_id: plan.id.to_string().try_into()?,
            cluster: Some("world".try_into()?),
            owner_uid: Some(FIRST_UID + u32::try_from(plan.owner)?),
            owner: Some(owner(plan)?),
            started_us: plan.begin_us,
        };
        let job = Arc::new(Job { handle: JobHandle(node.next_handle), descriptor });
        let ids = (node.next_series, node.next_shape);
        let shapes = template.job_shapes(plan.series, &job, plan.period, ids);
        node.next_handle += 1;
        node.next_shape += u32::try_from(shapes.len())?;
        node.next_series += u32::try_from(plan.series)?;
        let excerpt = template.excerpt(plan.id + rank as u64, plan.period);
        let tallies = vec![Tally::default(); shapes.len()];
        Ok(Self {
            plan,
            template,
            excerpt,
            job,
            shapes,
            tallies,
            next: 0,
            next_step: 0,
            steps: Tally::default(),
        })
    }

    /// True if all samples were sent.
    pub(crate) const fn is_over(&self) -> bool {
        self.next >= self.plan.samples
    }

    pub(crate) fn next_frame<'b>(
        &mut self,
        node: &'b mut Node,
        encoder: &mut Encoder,
    ) -> Result<&'b [u8], Box<dyn Error>> {
        let is_first = self.next == 0;
        let mut batch = Batch::default();
        self.sample(&mut batch);
        let is_last = self.is_over();
        // A job that measures registration has one sample, and nothing else.
        if self.plan.samples > 1 && (is_first || is_last) {
            let time_us = if is_first { self.plan.begin_us } else { self.plan.end_us() };
            node.sample_node(self.template, &mut batch, time_us);
        }
        let mut dictionary = node.introduction();
        node.announced.announce(&node.own, &mut dictionary);
        self.shapes.iter().for_each(|shape| node.announced.announce(shape, &mut dictionary));
        self.sample_steps(node, &mut batch, &mut dictionary)?;
        let mut events = Vec::new();
        if is_first {
            events.extend(self.events_of_begin(&node.descriptor.node)?);
        }
        if is_last {
            events.extend(self.events_of_end()?);
        }
        let ledger = self.ledger(node)?;
        node.samples += batch.samples();
        let extras =
            Extras { dictionary: &dictionary, ledger: &ledger, events: &events, stacks: &[], is_kept: false };
        if is_last {
            node.retiring.push_back((node.outbox.sequence() + 1, self.job.handle));
        }
        Ok(node.outbox.push(node.session, encoder, &batch, extras)?)
    }

    /// Takes the samples of one frame.
    fn sample(&mut self, batch: &mut Batch) {
        let indices: Vec<_> = self.shapes.iter().map(|shape| batch.add_shape(shape)).collect();
        let until = (self.next + self.plan.samples_per_frame).min(self.plan.samples);
        let missed = self.plan.id.is_multiple_of(MISSED).then_some(self.plan.samples / 3);
        for sample in self.next..until {
            let time_us = self.plan.time_us(sample);
            let deadline = u64::try_from(time_us).ok().map(|time_us| time_us / self.plan.period.as_micros());
            let instant = Instant { deadline, time_us };
            for (number, (index, tally)) in indices.iter().zip(&mut self.tallies).enumerate() {
                let columns = self.shapes.get(number).map_or(0, |shape| shape.columns.len());
                tally.due += columns as u64;
                if number == 0 && missed == Some(sample) && self.plan.samples > 1 {
                    tally.missed += columns as u64;
                    continue;
                }
                let values = self.template.values(number, self.excerpt, sample).take(columns);
                // The batch has room for the samples of one frame: the arguments are limited.
                let taken = batch.push(*index, instant, values).unwrap_or(0);
                tally.taken += taken;
                tally.late += if sample % 200 == 7 { taken } else { 0 };
            }
        }
        self.next = until;
    }

    /// Takes the samples of the steps that begin in one frame, two of each series.
    fn sample_steps(
        &mut self,
        node: &mut Node,
        batch: &mut Batch,
        dictionary: &mut Vec<Entry>,
    ) -> Result<(), Box<dyn Error>> {
        let until = (self.next_step + STEPS_PER_FRAME).min(self.plan.steps);
        for step in self.next_step..until {
            let ids = (node.next_series, node.next_shape);
            let shape = self.template.step_shape(&self.job, step, self.plan.period, ids)?;
            node.next_shape += 1;
            node.next_series += u32::try_from(shape.columns.len())?;
            node.announced.announce(&shape, dictionary);
            let index = batch.add_shape(&shape);
            for sample in [step, step + 1] {
                let instant = Instant { deadline: None, time_us: self.plan.time_us(sample) };
                let taken =
                    batch.push(index, instant, self.template.step_values(self.excerpt, sample)).unwrap_or(0);
                self.steps.due += taken;
                self.steps.taken += taken;
            }
        }
        self.next_step = until;
        Ok(())
    }

    fn ledger(&self, node: &Node) -> Result<Vec<LedgerEntry>, Box<dyn Error>> {
        let of_job = self.shapes.iter().zip(&self.tallies).map(|(shape, tally)| LedgerEntry {
            job: Some(self.job.handle),
            source: shape.source.clone(),
            tally: *tally,
        });
        let step_source = STEP_SOURCE.try_into()?;
        let of_steps = (self.plan.steps > 0).then(|| LedgerEntry {
            job: Some(self.job.handle),
            source: step_source,
            tally: self.steps,
        });
        let of_node = LedgerEntry { job: None, source: node.own.source.clone(), tally: node.tally };
        Ok(of_job.chain(of_steps).chain(std::iter::once(of_node)).collect())
    }

    fn events_of_begin(&self, node: &Identifier) -> Result<Vec<Event>, Box<dyn Error>> {
        let (plan, job) = (self.plan, self.job.handle);
        let cores = 4 << (plan.id % 5);
        let facts = JobFacts {
            account: Some(format!("project{}", plan.owner % 8).try_into()?),
            queue: Some(if plan.id % 4 == 0 { "short" } else { "normal" }.try_into()?),
            nodes: Some(node.clone()),
            cores: Some(cores),
            ..JobFacts::default()
        };
        let mut events = vec![Event::JobFacts(JobFactsUpdate { job, is_over: false, facts })];
        let change = PlanChange {
            at_us: plan.begin_us,
            job: Some(job),
            level: None,
            metric: metric_names(&self.shapes)
                .first()
                .map(|name| (*name).clone())
                .ok_or("a job has series")?,
            old: None,
            new: Some(Sampling::raw(plan.period)),
            cause: Cause::Baseline,
            by: None,
            until_us: None,
        };
        let of_baseline = metric_names(&self.shapes)
            .into_iter()
            .map(|metric| Event::PlanChange(PlanChange { metric: metric.clone(), ..change.clone() }));
        events.extend(of_baseline);
        if plan.id % LEASED == 0 {
            let (old, until_us) = (Some(Sampling::raw(plan.period)), Some(plan.end_us()));
            let (new, by) = (Some(Sampling::raw(LEASED_PERIOD)), Some(owner(plan)?));
            events.push(Event::PlanChange(PlanChange {
                old,
                new,
                cause: Cause::Lease,
                by,
                until_us,
                ..change
            }));
        }
        events.extend(self.mark(MarkKind::Begin, plan.time_us(1))?);
        Ok(events)
    }

    fn events_of_end(&self) -> Result<Vec<Event>, Box<dyn Error>> {
        let (plan, job) = (self.plan, self.job.handle);
        let mut events: Vec<_> =
            self.mark(MarkKind::End, plan.time_us(plan.samples - 1))?.into_iter().collect();
        let (state, exit_code) = match plan.id % 20 {
            3 => ("FAILED", 1),
            11 => ("TIMEOUT", 0),
            _ => ("COMPLETED", 0),
        };
        let (state, exit_code) = (Some(state.try_into()?), Some(exit_code));
        let facts = JobFacts { state, exit_code, ..JobFacts::default() };
        events.push(Event::JobFacts(JobFactsUpdate { job, is_over: true, facts }));
        events.push(Event::JobEnded { job, at_us: plan.end_us() });
        Ok(events)
    }

    fn mark(&self, kind: MarkKind, at_us: i64) -> Result<Option<Event>, Box<dyn Error>> {
        if !self.plan.id.is_multiple_of(MARKED) {
            return Ok(None);
        }
        let (job, by) = (Some(self.job.handle), Some(owner(self.plan)?));
        Ok(Some(Event::Mark(Mark { at_us, job, name: "solve".try_into()?, kind, by })))
    }
}

fn owner(plan: &JobPlan) -> Result<Identifier, Box<dyn Error>> {
    Ok(format!("user{:02}", plan.owner).try_into()?)
}

#[cfg(test)]
pub(crate) mod tests {
    use polymeter_proto::wire::frame::Frame;

    use super::*;

    pub(crate) fn job() -> Job {
        let descriptor = JobDescriptor {
            job_id: "1".try_into().unwrap(),
            cluster: None,
            owner_uid: None,
            owner: None,
            started_us: 0,
        };
        Job { handle: JobHandle(1), descriptor }
    }

    fn plan() -> JobPlan {
        JobPlan {
            id: 1_000_000,
            owner: 3,
            nodes: 0..1,
            begin_us: 1_700_000_000_000_000,
            period: "1min".parse().unwrap(),
            samples: 30,
            series: 60,
            samples_per_frame: 15,
            steps: 0,
        }
    }

    #[test]
    fn frames_explain_themselves_and_tallies_add_up() {
        let (template, plan, mut encoder) = (Template::read().unwrap(), plan(), Encoder::default());
        let mut node = Node::new(SessionId(7), 1, plan.begin_us, &template).unwrap();
        let mut run = JobRun::begin(&plan, &template, &mut node, 0).unwrap();
        let first = Frame::decode(run.next_frame(&mut node, &mut encoder).unwrap()).unwrap();
        assert!(!run.is_over());
        let last = Frame::decode(run.next_frame(&mut node, &mut encoder).unwrap()).unwrap();
        assert!(run.is_over());
        assert!(matches!(first.dictionary.first(), Some(Entry::Session(_))));
        assert!(last.dictionary.is_empty());
        let samples = first.samples() + last.samples();
        assert_eq!(samples, node.samples());
        let tallies = last.ledger.iter().map(|entry| &entry.tally);
        let tallies: Vec<&Tally> = tallies.chain(last.shape_tallies.iter().map(|(_, tally)| tally)).collect();
        let sum = |of: fn(&Tally) -> u64| tallies.iter().copied().map(of).sum::<u64>();
        // 60 series and the node's 4 at the begin and the end.
        assert_eq!(sum(|tally| tally.due), 60 * 30 + 4 * 2);
        assert!(sum(|tally| tally.missed) > 0, "a sample of this job is missed");
        assert_eq!(sum(|tally| tally.due), sum(|tally| tally.taken + tally.missed));
        assert_eq!(sum(|tally| tally.taken), samples);
        assert!(last.events.iter().any(|event| matches!(event, Event::JobEnded { .. })));
        let changes = first.events.iter().filter(|event| matches!(event, Event::PlanChange(_))).count();
        assert!(changes > 50, "{changes}");
    }

    #[test]
    fn an_acknowledged_job_leaves_the_dictionary() {
        let (template, plan, mut encoder) = (Template::read().unwrap(), plan(), Encoder::default());
        let mut node = Node::new(SessionId(7), 1, plan.begin_us, &template).unwrap();
        let mut run = JobRun::begin(&plan, &template, &mut node, 0).unwrap();
        while !run.is_over() {
            run.next_frame(&mut node, &mut encoder).unwrap();
        }
        let session = SessionId(7);
        node.hear(&ToAgent::Ack { session, through: 1 }).unwrap();
        assert!(node.announced.knows_job(JobHandle(1)));
        node.hear(&ToAgent::Ack { session, through: 2 }).unwrap();
        assert!(!node.announced.knows_job(JobHandle(1)) && node.outbox().is_empty());
    }
}
