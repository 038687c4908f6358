//! The frames of a session: sample batches become frames in the outbox, and lost events and tallies become
//! part of later frames.

use polymeter_proto::batch::Batch;
use polymeter_proto::ledger::{Event, JobFactsUpdate, LedgerEntry};
use polymeter_proto::series::JobHandle;
use polymeter_proto::stacks::StackInterval;
use polymeter_proto::wire::dictionary::Entry;
use polymeter_proto::wire::frame::Extras;

use super::DeliverySession;
use super::spool_mode::SpoolMode;
use crate::delivery::frame_builder::{FrameBuilder, FrameParts};
use crate::delivery::frame_summary::FrameSummary;
use crate::delivery::outbox::Dropped;
use crate::lanes::{EventRecord, SampleBatch};

/// The collector regards an agent as dead after minutes of silence.
const HEARTBEAT_NS: u64 = 30_000_000_000;

#[derive(Debug, Clone, Copy)]
struct Samples<'a> {
    batch: &'a Batch,
    stacks: &'a [StackInterval],
    /// True for samples that a ring held.
    is_kept: bool,
}

impl Samples<'_> {
    fn is_empty(self) -> bool {
        self.batch.is_empty() && self.stacks.is_empty()
    }

    fn summary(self, builder: &FrameBuilder) -> FrameSummary {
        FrameSummary::of(self.batch).with_stacks(self.stacks, |metric| builder.stacks_source(metric))
    }
}

impl DeliverySession {
    pub fn take(&mut self, flushed: &SampleBatch, now_ns: u64) {
        if !self.take_as(flushed, false, now_ns) {
            return;
        }
        let last = self.outbox.next_sequence() - 1;
        // Their last counts are in a frame now.
        for job in std::mem::take(&mut self.released_jobs) {
            self.retire_after(job, last);
        }
    }

    /// Returns false if there is nothing to send.
    pub(super) fn take_as(&mut self, flushed: &SampleBatch, is_kept: bool, now_ns: u64) -> bool {
        let first = self.outbox.next_sequence();
        let is_heartbeat_due = now_ns.saturating_sub(self.framed_ns) >= HEARTBEAT_NS;
        let Some(parts) = self.builder.build(flushed, first, is_heartbeat_due, now_ns) else {
            return false;
        };
        self.framed_ns = now_ns;
        let FrameParts { dictionary, ledger, events, stacks, revived } = parts;
        if self.outbox.is_empty() {
            self.quiet_since_ns = now_ns;
        }
        let samples = Samples { batch: &flushed.batch, stacks: &stacks, is_kept };
        self.push_frame(samples, &dictionary, &ledger, events);
        let last = self.outbox.next_sequence() - 1;
        self.builder.divided(first, last);
        revived.into_iter().for_each(|job| self.retire_after(job, last));
        if self.spool_mode == SpoolMode::Off {
            self.make_room();
        }
        true
    }

    /// Drops frames until the outbox is within its limit: without a spool, or if the spool has no room
    /// either.
    pub(super) fn make_room(&mut self) {
        let dropped = self.outbox.make_room();
        self.counts.samples_dropped += dropped.samples;
        self.lost(dropped);
    }

    /// Puts a frame into the outbox, or several if one would exceed the limits: the dictionary and the
    /// tallies before the samples, so that no sample is delivered without the losses before it; the events
    /// behind them.
    fn push_frame(
        &mut self,
        samples: Samples<'_>,
        dictionary: &[Entry],
        ledger: &[LedgerEntry],
        records: Vec<EventRecord>,
    ) {
        let events: Vec<Event> = records.iter().map(|record| record.event.clone()).collect();
        let sequence = self.outbox.next_sequence();
        let mut bytes = Vec::new();
        let extras =
            Extras { dictionary, ledger, events: &events, stacks: samples.stacks, is_kept: samples.is_kept };
        if self.encoder.encode(&mut bytes, self.session, sequence, samples.batch, extras).is_err() {
            return self.push_divided(samples, dictionary, ledger, records);
        }
        bytes.shrink_to_fit();
        for record in &records {
            let is_end = matches!(
                record.event,
                Event::JobEnded { .. } | Event::JobFacts(JobFactsUpdate { is_over: true, .. })
            );
            let ends =
                self.retiring.iter().any(|(job, _)| record.job.as_ref().is_some_and(|of| of.handle == *job));
            if let Some(job) = record.job.as_ref().filter(|_| is_end || ends) {
                self.retire_after(job.handle, sequence);
            }
        }
        self.outbox.push(bytes, samples.summary(&self.builder), records);
    }

    fn push_divided(
        &mut self,
        samples: Samples<'_>,
        dictionary: &[Entry],
        ledger: &[LedgerEntry],
        mut records: Vec<EventRecord>,
    ) {
        let empty = Batch::default();
        let nothing = Samples { batch: &empty, stacks: &[], is_kept: false };
        let Samples { batch, stacks, is_kept } = samples;
        if dictionary.len() > 1 {
            let (first, second) = dictionary.split_at(dictionary.len() / 2);
            self.push_frame(nothing, first, &[], Vec::new());
            self.push_frame(samples, second, ledger, records);
        } else if !samples.is_empty() && !ledger.is_empty() {
            self.push_frame(nothing, dictionary, ledger, Vec::new());
            self.push_frame(samples, &[], &[], records);
        } else if !samples.is_empty() && !records.is_empty() {
            self.push_frame(samples, dictionary, &[], Vec::new());
            self.push_frame(nothing, &[], &[], records);
        } else if stacks.len() > 1 || (!stacks.is_empty() && !batch.is_empty()) {
            // With a batch: that one alone, then all intervals.
            let (first, second) = stacks.split_at(if batch.is_empty() { stacks.len() / 2 } else { 0 });
            self.push_frame(Samples { batch, stacks: first, is_kept }, dictionary, &[], Vec::new());
            self.push_frame(Samples { batch: &empty, stacks: second, is_kept: false }, &[], &[], Vec::new());
        } else if ledger.len() > 1 {
            let (first, second) = ledger.split_at(ledger.len() / 2);
            self.push_frame(nothing, dictionary, first, Vec::new());
            self.push_frame(nothing, &[], second, records);
        } else if records.len() > 1 {
            let second = records.split_off(records.len() / 2);
            self.push_frame(nothing, dictionary, ledger, records);
            self.push_frame(nothing, &[], &[], second);
        } else {
            // A batch alone is always within the limits by design; this counts it should that fail.
            let summary = samples.summary(&self.builder);
            self.counts.samples_refused += summary.samples();
            self.counts.events_dropped += records.len() as u64;
            self.outbox.push_note(&summary);
        }
    }

    /// Forgets the job when frame `sequence`, the last that mentions it so far, is acknowledged.
    pub(super) fn retire_after(&mut self, job: JobHandle, sequence: u64) {
        self.retiring.retain(|(retiring, _)| *retiring != job);
        self.retiring.push((job, sequence));
    }

    pub(super) fn lost(&mut self, dropped: Dropped) {
        if matches!(self.spool_mode, SpoolMode::Replay(_)) {
            // An earlier session has no later frames.
            self.counts.events_dropped += dropped.events.len() as u64;
            return;
        }
        self.counts.events_dropped += self.builder.lost(&dropped.frames, dropped.events);
    }

    /// Makes the frames that need no samples, once nothing waits any more: the events and tallies of lost
    /// frames, and the heartbeat. A sampler without sources hands on no batch that could carry them.
    pub(super) fn take_nothing(&mut self, now_ns: u64) {
        if self.outbox.is_empty() && !matches!(self.spool_mode, SpoolMode::Replay(_)) {
            self.take(&SampleBatch::default(), now_ns);
        }
    }
}
