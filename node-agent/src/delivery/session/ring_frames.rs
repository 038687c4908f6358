//! Frames of samples that a ring held, and the counts of those that it did not keep.

use std::sync::Arc;

use polymeter_proto::batch::{Batch, Shape};
use polymeter_proto::ledger::{Event, JobFacts, JobFactsUpdate};
use polymeter_proto::series::JobHandle;

use super::DeliverySession;
use crate::lanes::{EventRecord, SampleBatch};

impl DeliverySession {
    /// Keeps the counts of a job beyond its end, until [`DeliverySession::release`].
    pub(crate) fn hold(&mut self, job: JobHandle) {
        self.held_jobs.insert(job);
    }

    pub(crate) fn release(&mut self, job: JobHandle) {
        if self.held_jobs.remove(&job) {
            self.released_jobs.push(job);
        }
    }

    pub(crate) fn count_not_kept(&mut self, counts: &[(Arc<Shape>, u64)], is_final: bool) {
        for (shape, samples) in counts {
            self.builder.count_not_kept(shape, *samples, is_final);
        }
    }

    /// Frames samples that a ring held. `over` is their job if it has ended.
    pub(crate) fn take_kept(&mut self, rows: Batch, over: Option<JobHandle>, now_ns: u64) {
        self.take_of_ring(&SampleBatch { batch: rows, ..SampleBatch::default() }, over, now_ns);
    }

    /// Frames the end of a kept interval, behind its samples.
    pub(crate) fn take_kept_end(&mut self, record: EventRecord, over: Option<JobHandle>, now_ns: u64) {
        let job = record.job.clone();
        let mut events = vec![record];
        // The collector has removed the job, and does so again.
        events.extend(over.map(|handle| {
            let facts = JobFactsUpdate { job: handle, is_over: true, facts: JobFacts::default() };
            EventRecord { job, event: Event::JobFacts(facts) }
        }));
        self.take_of_ring(&SampleBatch { events, ..SampleBatch::default() }, over, now_ns);
    }

    fn take_of_ring(&mut self, flushed: &SampleBatch, over: Option<JobHandle>, now_ns: u64) {
        if self.take_as(flushed, true, now_ns)
            && let Some(job) = over
        {
            self.retire_after(job, self.outbox.next_sequence() - 1);
        }
    }
}
