//! The contents of a frame beside the samples: the dictionary that they need, tallies and events. Pure.

use std::collections::VecDeque;

use polymeter_proto::batch::Shape;
use polymeter_proto::catalogue::{STACKS_KIND, stacks_source};
use polymeter_proto::ledger::{Event, LedgerEntry};
use polymeter_proto::series::{JobHandle, MetricId, SessionDescriptor, ShapeId};
use polymeter_proto::stacks::StackInterval;
use polymeter_proto::wire::dictionary::{Announced, Entry};

use super::loss_ledger::LossLedger;
use super::stack_intervals::announce_stacks;
use crate::lanes::{EventRecord, SampleBatch};

/// Part of the outbox that the repeated events of one frame may take: small, so that such a frame fits even
/// if the outbox is nearly full.
const AGAIN_PART: usize = 8;

/// Bytes of an event with the entry of its job; most have fewer.
const EVENT_BYTES: usize = 256;

/// The fewest and the most events of lost frames that one frame repeats.
const AGAIN_IN_FRAME: (usize, usize) = (16, 1024);

/// Most events of lost frames that wait to be repeated: some 20 MiB, the jobs of a very long outage. Beyond
/// it the oldest are dropped and counted, those that users cause first.
const UNREPORTED_EVENTS: usize = 64 * 1024;

/// What a frame contains beside the samples of one flush.
#[derive(Debug, Default)]
pub(super) struct FrameParts {
    pub(super) dictionary: Vec<Entry>,
    pub(super) ledger: Vec<LedgerEntry>,
    pub(super) events: Vec<EventRecord>,
    pub(super) stacks: Vec<StackInterval>,
    /// Jobs that were retired already and that the frame mentions again.
    pub(super) revived: Vec<JobHandle>,
}

/// Builds the contents of frames, and tracks what was announced to the collector.
#[derive(Debug, Default)]
pub(super) struct FrameBuilder {
    /// None for a session of an earlier process: its descriptor is in the spool.
    descriptor: Option<SessionDescriptor>,
    announced: Announced,
    introduced: bool,
    ledger: LossLedger,
    unreported: VecDeque<EventRecord>,
    /// Most of `unreported` that one frame repeats.
    again_in_frame: usize,
}

impl FrameBuilder {
    pub(super) fn new(descriptor: SessionDescriptor, outbox_bytes: usize, now_ns: u64) -> Self {
        let (fewest, most) = AGAIN_IN_FRAME;
        Self {
            descriptor: Some(descriptor),
            ledger: LossLedger::new(now_ns),
            again_in_frame: (outbox_bytes / AGAIN_PART / EVENT_BYTES).clamp(fewest, most),
            ..Self::default()
        }
    }

    /// Makes the contents of frame `sequence` that accompany the samples of `flushed`. None if there is
    /// nothing to send and no frame `is_heartbeat_due` as a heartbeat.
    pub(super) fn build(
        &mut self,
        flushed: &SampleBatch,
        sequence: u64,
        is_heartbeat_due: bool,
        now_ns: u64,
    ) -> Option<FrameParts> {
        let lines = self.ledger.enter(&flushed.reports, sequence, now_ns);
        let again = self.unreported.len().min(self.again_in_frame);
        let mut events: Vec<EventRecord> = self.unreported.drain(..again).collect();
        let again = events.iter().filter_map(|record| record.job.as_ref());
        let again =
            again.chain(lines.iter().filter(|line| line.is_again).filter_map(|line| line.job.as_ref()));
        let revived = again.map(|job| job.handle).filter(|job| !self.announced.knows_job(*job)).collect();
        events.extend(flushed.events.iter().cloned());
        let has_samples = !flushed.batch.is_empty() || !flushed.stacks.is_empty();
        if !is_heartbeat_due && !has_samples && lines.is_empty() && events.is_empty() {
            return None;
        }
        let mut dictionary = Vec::new();
        if !std::mem::replace(&mut self.introduced, true) {
            dictionary.extend(self.descriptor.clone().map(Entry::Session));
        }
        for shape in flushed.batch.shapes() {
            self.announced.announce(shape, &mut dictionary);
        }
        let mentioned = lines.iter().filter_map(|line| line.job.as_ref());
        for job in mentioned.chain(events.iter().filter_map(|record| record.job.as_ref())) {
            self.announced.announce_job(job.handle, &job.descriptor, &mut dictionary);
        }
        for record in &events {
            if let Event::JobOwner(owner) = &record.event {
                self.announced.learn_owner(owner);
            }
        }
        let mut stacks = Vec::new();
        for record in &flushed.stacks {
            announce_stacks(&mut self.announced, record, &mut dictionary, &mut stacks);
        }
        let ledger = lines.into_iter().map(|line| line.entry).collect();
        Some(FrameParts { dictionary, ledger, events, stacks, revived })
    }

    /// Records that the contents built for frame `first` were divided among the frames `first` to `last`.
    pub(super) fn divided(&mut self, first: u64, last: u64) {
        self.ledger.divided(first, last);
    }

    /// Schedules `events` and the tallies of the lost `frames` for repetition. Returns how many events are
    /// dropped because too many wait.
    pub(super) fn lost(&mut self, frames: &[u64], events: Vec<EventRecord>) -> u64 {
        self.unreported.extend(events);
        self.ledger.lost(frames);
        let too_many = self.unreported.len().saturating_sub(UNREPORTED_EVENTS);
        let mut left = too_many;
        // A user who floods the agent with requests pushes out no end of a job.
        self.unreported.retain(|record| {
            let goes = left > 0 && is_of_user(&record.event);
            left -= usize::from(goes);
            !goes
        });
        self.unreported.drain(..left);
        too_many as u64
    }

    pub(super) fn has_unreported(&self) -> bool {
        !self.unreported.is_empty() || self.ledger.has_unreported()
    }

    pub(super) fn stacks_source(&self, metric: MetricId) -> &'static str {
        let metric = self.announced.metric(metric);
        metric.map_or(STACKS_KIND, |metric| stacks_source(metric.name.as_str()))
    }

    pub(super) fn all_entries(&self) -> Vec<Entry> {
        self.descriptor.as_ref().map_or_else(Vec::new, |descriptor| self.announced.all(descriptor))
    }

    pub(super) fn unused_shapes(&self) -> Vec<ShapeId> {
        self.announced.unused_shapes()
    }

    pub(super) fn retire_shapes(&mut self, unused: &[ShapeId]) {
        self.announced.retire_shapes(unused);
    }

    /// Changes whenever [`FrameBuilder::all_entries`] does.
    pub(super) const fn version(&self) -> u64 {
        self.announced.version()
    }

    /// Forgets the job. Its counts remain if its ring still `holds` samples.
    pub(super) fn retire(&mut self, job: JobHandle, holds: bool) {
        self.announced.retire_job(job);
        if !holds {
            self.ledger.retire(job);
        }
    }

    pub(super) fn count_not_kept(&mut self, shape: &Shape, samples: u64, is_final: bool) {
        self.ledger.count_not_kept(shape, samples, is_final);
    }
}

/// True for events that users cause, of which there may be any number.
const fn is_of_user(event: &Event) -> bool {
    match event {
        Event::PlanChange(_)
        | Event::Mark(_)
        | Event::RequestRefused(_)
        | Event::Kept(_)
        | Event::Fired(_) => true,
        Event::JobEnded { .. }
        | Event::JobFacts(_)
        | Event::JobOwner(_)
        | Event::SessionEnded { .. }
        | Event::JobDetails(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use polymeter_proto::ledger::{Mark, MarkKind};

    use super::*;

    fn event(at_us: i64) -> Event {
        if at_us % 2 == 0 {
            return Event::JobEnded { job: JobHandle(1), at_us };
        }
        let name = "m".try_into().unwrap();
        Event::Mark(Mark { at_us, job: None, name, kind: MarkKind::Instant, by: None })
    }

    fn records(times: std::ops::Range<i64>) -> Vec<EventRecord> {
        times.map(|at_us| EventRecord { job: None, event: event(at_us) }).collect()
    }

    #[test]
    fn of_too_many_events_those_of_users_are_dropped_first() {
        let mut builder = FrameBuilder::default();
        let most = i64::try_from(UNREPORTED_EVENTS).unwrap();
        assert_eq!(builder.lost(&[], records(0..most)), 0);
        assert_eq!(builder.lost(&[], records(most..most + 2)), 2);
        let left =
            [1, 3, 0, 5].map(|at_us| builder.unreported.iter().any(|record| record.event == event(at_us)));
        assert_eq!(left, [false, false, true, true]);
        // Beyond the bound of those that remain, the oldest go.
        let ends = records(0..2 * most).into_iter().filter(|record| !is_of_user(&record.event));
        assert_eq!(builder.lost(&[], ends.collect()), UNREPORTED_EVENTS as u64);
        assert_eq!(builder.unreported.len(), UNREPORTED_EVENTS);
        assert!(builder.unreported.iter().all(|record| !is_of_user(&record.event)));
    }
}
