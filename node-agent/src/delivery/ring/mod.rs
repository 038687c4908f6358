//! Hindsight: the newest samples of each job at short periods, in memory. What somebody wants to keep is sent
//! in frames of its own; the rest is dropped and counted, when it is old or the memory is full.

mod job_ring;
mod requests;
mod segment;
mod shares;

use std::collections::BTreeMap;
use std::sync::Arc;

use polymeter_proto::ledger::{Event, JobOwner};
use polymeter_proto::series::JobHandle;
use polymeter_proto::text::Text;
use polymeter_proto::units::to_f64;
use polymeter_proto::wire::frame::Encoder;
use polymeter_service::token_bucket::TokenBucket;

use self::job_ring::{JobRing, Part};
pub use self::requests::{AHEAD_US, Held, HeldSpan, NotKept, RingRequests, Wanted};
use self::segment::counts_of;
use self::shares::Shares;
use super::session::DeliverySession;
use crate::lanes::{EventRecord, SampleBatch};
use crate::principal::Sharer;

/// Rings at most, those of ended jobs included. The samples of further jobs are dropped.
const RINGS: usize = 1024;

/// Part of the outbox that kept samples leave to others.
const OUTBOX_PART: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingLimits {
    pub keep_us: i64,
    pub after_end_us: i64,
    /// Time after which the samples of an instant are in the ring.
    pub settle_us: i64,
    /// Of one job.
    pub memory_bytes: usize,
    /// Of all jobs.
    pub bytes_per_s: usize,
    pub outbox_bytes: usize,
}

#[derive(Debug)]
pub struct Rings {
    limits: RingLimits,
    requests: Arc<RingRequests>,
    jobs: BTreeMap<JobHandle, JobRing>,
    encoder: Encoder,
    bandwidth: TokenBucket,
    /// How the owners of jobs share the bandwidth.
    shares: Shares<Sharer>,
    /// Owners of running jobs that were found later than the job.
    owners: BTreeMap<JobHandle, u32>,
    /// True if the rings hold other samples than the requesters know.
    is_changed: bool,
}

impl Rings {
    pub fn new(limits: RingLimits, requests: Arc<RingRequests>) -> Self {
        let rate = to_f64(limits.bytes_per_s as u64);
        Self {
            limits,
            requests,
            jobs: BTreeMap::new(),
            encoder: Encoder::default(),
            bandwidth: TokenBucket::new(rate, rate),
            shares: Shares::new(),
            owners: BTreeMap::new(),
            is_changed: false,
        }
    }

    /// Takes the rows of a batch for the rings, before the rest of the batch is framed.
    pub fn take(&mut self, flushed: &SampleBatch, now_us: i64, delivery: &mut DeliverySession) {
        let by_job = flushed.ring.divided(|shape| shape.job.as_ref().map(|job| job.handle));
        for (handle, rows) in by_job {
            self.is_changed = true;
            let job = rows.shapes().first().and_then(|shape| shape.job.as_ref());
            if !self.jobs.contains_key(&handle)
                && self.jobs.len() < RINGS
                && let Some(job) = job
            {
                let owner_uid = self.owners.get(&handle).copied().or(job.descriptor.owner_uid);
                self.jobs.insert(handle, JobRing::new(Arc::clone(job), owner_uid));
                delivery.hold(handle);
            }
            let lost = match self.jobs.get_mut(&handle) {
                Some(ring) => ring.take(&rows, &mut self.encoder),
                None => counts_of(&rows),
            };
            delivery.count_not_kept(&lost, false);
        }
        for record in &flushed.events {
            match &record.event {
                Event::JobOwner(owner) => self.learn_owner(owner),
                Event::JobEnded { job, .. } => {
                    self.owners.remove(job);
                    if let Some(ring) = self.jobs.get_mut(job) {
                        ring.ended_us = Some(now_us);
                    }
                }
                Event::SessionEnded { .. } => self.finish(now_us, delivery),
                Event::PlanChange(_)
                | Event::Mark(_)
                | Event::JobFacts(_)
                | Event::RequestRefused(_)
                | Event::JobDetails(_)
                | Event::Kept(_)
                | Event::Fired(_) => {}
            }
        }
    }

    /// Takes requests, drops what is old, and passes on what is wanted, as far as the bandwidth permits.
    pub fn advance(&mut self, now_us: i64, now_ns: u64, delivery: &mut DeliverySession) {
        while let Some(wanted) = self.requests.next() {
            self.want(wanted);
        }
        let RingLimits { keep_us, after_end_us, settle_us, memory_bytes, .. } = self.limits;
        let mut gone = Vec::new();
        self.is_changed |= self.jobs.values().any(JobRing::has_work);
        for (handle, ring) in &mut self.jobs {
            let lost = ring.release(now_us.saturating_sub(settle_us), &mut self.encoder);
            delivery.count_not_kept(&lost, false);
            let dropped = ring.evict(now_us.saturating_sub(keep_us), memory_bytes);
            delivery.count_not_kept(&dropped, false);
            self.is_changed |= !dropped.is_empty();
            let is_over =
                ring.ended_us.is_some_and(|ended_us| now_us >= ended_us.saturating_add(after_end_us));
            if is_over && !ring.has_work() {
                gone.push(*handle);
            }
        }
        for handle in gone {
            if self.requests.close(handle) {
                self.discard(handle, delivery);
            }
        }
        while delivery.outbox_bytes() < self.limits.outbox_bytes / OUTBOX_PART
            && self.bandwidth.tokens(now_ns) > 0.0
        {
            let before = delivery.outbox_bytes();
            if !self.pass_on(now_ns, delivery) {
                break;
            }
            let sent = delivery.outbox_bytes().saturating_sub(before);
            self.bandwidth.charge(to_f64(sent as u64), now_ns);
        }
        self.publish();
    }

    /// Tells the requesters what the rings hold, if that has changed.
    pub(crate) fn publish(&mut self) {
        if std::mem::take(&mut self.is_changed) {
            let held = self.jobs.iter().map(|(handle, ring)| (*handle, ring.held()));
            self.requests.set_held(held.collect());
        }
    }

    fn learn_owner(&mut self, owner: &JobOwner) {
        let Some(uid) = owner.uid else { return };
        self.owners.insert(owner.job, uid);
        if let Some(ring) = self.jobs.get_mut(&owner.job) {
            ring.owner_uid = Some(uid);
            self.is_changed = true;
        }
    }

    fn want(&mut self, wanted: Wanted) {
        self.is_changed = true;
        // A ring with reservations stays.
        if let Some(ring) = self.jobs.get_mut(&wanted.job) {
            ring.want(wanted);
        }
    }

    /// Passes on the next part of the ring whose turn it is. False if nothing waits.
    fn pass_on(&mut self, now_ns: u64, delivery: &mut DeliverySession) -> bool {
        let waiting = self.jobs.values().filter(|ring| ring.has_outgoing());
        let Some(sharer) = self.shares.next(waiting.map(JobRing::sharer)) else { return false };
        let of_sharer = self.jobs.values_mut().filter(|ring| ring.has_outgoing() && ring.sharer() == sharer);
        let Some(ring) = of_sharer.min_by_key(|ring| ring.turn) else { return false };
        let Some(part) = ring.next_part() else { return false };
        ring.turn = self.shares.charge(sharer, part.bytes());
        // The collector may forget the job once nothing more of it is known to follow.
        let is_over = ring.ended_us.is_some() && !ring.has_work();
        let over = is_over.then_some(ring.job.handle);
        match part {
            Part::Samples(segment) => delivery.take_kept(segment.rows(), over, now_ns),
            Part::End { mut kept, dropped } => {
                if dropped > 0 {
                    kept.reason = Text::of(&format!("{dropped} samples found no room; {}", kept.reason));
                }
                let record = EventRecord { job: Some(Arc::clone(&ring.job)), event: Event::Kept(kept) };
                delivery.take_kept_end(record, over, now_ns);
            }
        }
        true
    }

    /// Drops the ring of a job that has ended.
    fn discard(&mut self, handle: JobHandle, delivery: &mut DeliverySession) {
        self.is_changed = true;
        if let Some(ring) = self.jobs.remove(&handle) {
            delivery.count_not_kept(&ring.into_counts(), true);
            delivery.release(handle);
        }
    }

    /// Passes on all that is wanted, and drops the rest: the session ends.
    fn finish(&mut self, now_us: i64, delivery: &mut DeliverySession) {
        for wanted in self.requests.close_all() {
            self.want(wanted);
        }
        for ring in self.jobs.values_mut() {
            ring.ended_us.get_or_insert(now_us);
            let lost = ring.release(i64::MAX, &mut self.encoder);
            delivery.count_not_kept(&lost, false);
        }
        while self.pass_on(0, delivery) {}
        while let Some(handle) = self.jobs.keys().next().copied() {
            self.discard(handle, delivery);
        }
    }

    /// Time at which [`Rings::advance`] has something to do without a batch, on the monotonic clock.
    pub(crate) fn wake_at_ns(&self, now_ns: u64) -> Option<u64> {
        const PAUSE_NS: u64 = 50_000_000;
        self.jobs.values().any(JobRing::has_work).then_some(now_ns.saturating_add(PAUSE_NS))
    }
}

#[cfg(test)]
mod tests;
