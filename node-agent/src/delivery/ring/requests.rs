//! Requests to keep intervals, from the supervisor to the sender.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use polymeter_proto::series::{Identifier, JobHandle};
use polymeter_proto::text::Text;
use polymeter_service::turns::Turns;

use crate::mutex::lock;
use crate::principal::Sharer;

/// Requests that wait for the sender. The owners of the jobs share them.
const REQUESTS: usize = 512;

/// An interval whose samples should be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub job: JobHandle,
    /// Microseconds since the epoch.
    pub begin_us: i64,
    /// Microseconds since the epoch.
    pub end_us: i64,
    /// The same on all nodes that keep the interval.
    pub trigger: u64,
    pub reason: Text,
}

/// Samples of a ring, or those that it has sent of an interval. Times are those of the first and the last
/// one, in microseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldSpan {
    pub first_us: i64,
    pub last_us: i64,
    pub samples: u64,
}

impl HeldSpan {
    pub(crate) fn joined(self, other: Self) -> Self {
        Self {
            first_us: self.first_us.min(other.first_us),
            last_us: self.last_us.max(other.last_us),
            samples: self.samples + other.samples,
        }
    }

    /// Part of it within an interval. Samples are taken to be evenly distributed.
    fn within(self, begin_us: i64, end_us: i64) -> Option<Self> {
        let (first_us, last_us) = (self.first_us.max(begin_us), self.last_us.min(end_us));
        if first_us > last_us {
            return None;
        }
        let length = |first_us: i64, last_us: i64| u128::from(last_us.abs_diff(first_us)) + 1;
        let samples =
            u128::from(self.samples) * length(first_us, last_us) / length(self.first_us, self.last_us);
        Some(Self { first_us, last_us, samples: u64::try_from(samples).unwrap_or(u64::MAX) })
    }
}

/// What the ring of a job holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub job_id: Identifier,
    pub owner_uid: Option<u32>,
    pub bytes: usize,
    /// Further intervals that it can take.
    pub room: usize,
    /// Shortest period of its metrics, in microseconds.
    pub period_us: i64,
    /// Spans in no order; those of recent samples that it has sent are among them.
    pub spans: Vec<HeldSpan>,
}

impl Held {
    /// Samples of an interval, from the first to the last. What is missing at an end for want of a deadline
    /// does not count. None if there are none.
    pub fn part(&self, begin_us: i64, end_us: i64) -> Option<HeldSpan> {
        let within = self.spans.iter().filter_map(|span| span.within(begin_us, end_us));
        let all = within.reduce(HeldSpan::joined)?;
        let near_us = self.period_us.saturating_mul(NEAR_PERIODS);
        let first_us = if all.first_us.saturating_sub(near_us) <= begin_us { begin_us } else { all.first_us };
        let last_us = if all.last_us.saturating_add(near_us) >= end_us { end_us } else { all.last_us };
        Some(HeldSpan { first_us, last_us, ..all })
    }

    /// Times of its first and last sample; none if it has none.
    pub fn ends_us(&self) -> Option<(i64, i64)> {
        let all = self.spans.iter().copied().reduce(HeldSpan::joined)?;
        Some((all.first_us, all.last_us))
    }
}

/// The first sample of an interval is this many periods behind its begin at most, if none was missed.
const NEAR_PERIODS: i64 = 2;

/// Longest part of an interval that may lie in the future, in microseconds: the longest that a trigger keeps
/// after its instant, and 10 s by which clocks may differ.
pub const AHEAD_US: i64 = 70_000_000;

/// Why an interval cannot be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotKept {
    /// The job has no ring.
    NoRing,
    /// Too many intervals wait.
    Busy,
}

#[derive(Debug)]
struct Shared {
    wanted: Turns<Sharer, Wanted>,
    held: BTreeMap<JobHandle, Held>,
}

/// A request that was taken is executed: it reserves its place in the ring, and a ring with reservations is
/// not dropped.
#[derive(Debug)]
pub struct RingRequests {
    keep_us: i64,
    shared: Mutex<Shared>,
}

impl Default for RingRequests {
    fn default() -> Self {
        let shared = Shared { wanted: Turns::new(REQUESTS), held: BTreeMap::new() };
        Self { keep_us: i64::MAX, shared: Mutex::new(shared) }
    }
}

impl RingRequests {
    /// Sets the age up to which samples are held.
    pub fn holding(keep_us: i64) -> Self {
        Self { keep_us, ..Self::default() }
    }

    /// Longest interval that can be kept, in microseconds: what the ring holds, and what is still to come.
    pub const fn longest_us(&self) -> i64 {
        self.keep_us.saturating_add(AHEAD_US)
    }

    /// Takes a request. The sender must be woken afterwards.
    ///
    /// # Errors
    ///
    /// Nothing is kept.
    pub fn keep(&self, wanted: Wanted) -> Result<(), NotKept> {
        let Shared { wanted: waiting, held } = &mut *self.lock();
        let held = held.get_mut(&wanted.job).ok_or(NotKept::NoRing)?;
        if held.room == 0 {
            return Err(NotKept::Busy);
        }
        waiting.offer(Sharer::of(wanted.job, held.owner_uid), wanted).map_err(|_none| NotKept::Busy)?;
        held.room -= 1;
        Ok(())
    }

    /// None if the job has no ring.
    pub fn held(&self, job: JobHandle) -> Option<Held> {
        self.lock().held.get(&job).cloned()
    }

    /// Jobs of this id with rings, which may have ended, and their owners; the newest first.
    pub fn of_id(&self, job_id: &Identifier) -> Vec<(JobHandle, Option<u32>)> {
        let shared = self.lock();
        let of_id = shared.held.iter().rev().filter(|(_, held)| held.job_id == *job_id);
        of_id.map(|(handle, held)| (*handle, held.owner_uid)).collect()
    }

    pub(super) fn next(&self) -> Option<Wanted> {
        self.lock().wanted.take()
    }

    pub(super) fn set_held(&self, mut held: BTreeMap<JobHandle, Held>) {
        let mut shared = self.lock();
        for wanted in shared.wanted.iter() {
            if let Some(held) = held.get_mut(&wanted.job) {
                held.room = held.room.saturating_sub(1);
            }
        }
        shared.held = held;
    }

    /// Takes no further requests for a ring. Returns false if some wait.
    pub(super) fn close(&self, job: JobHandle) -> bool {
        let mut shared = self.lock();
        let is_wanted = shared.wanted.iter().any(|wanted| wanted.job == job);
        if !is_wanted {
            shared.held.remove(&job);
        }
        !is_wanted
    }

    /// Takes no further requests, and returns those that wait.
    pub(super) fn close_all(&self) -> Vec<Wanted> {
        let mut shared = self.lock();
        shared.held.clear();
        std::iter::from_fn(|| shared.wanted.take()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }
}
