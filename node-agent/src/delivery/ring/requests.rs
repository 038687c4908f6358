//! Requests to keep intervals, from the supervisor to the sender.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossbeam_queue::ArrayQueue;
use polymeter_proto::series::{Identifier, JobHandle};
use polymeter_proto::text::Text;

/// Requests that wait for the sender.
const REQUESTS: usize = 256;

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

/// What the ring of a job holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub job_id: Identifier,
    pub owner_uid: Option<u32>,
    /// Times of the oldest and the newest sample, in microseconds since the epoch.
    pub span_us: (i64, i64),
    pub bytes: usize,
    /// False if too many intervals wait already.
    pub has_room: bool,
}

/// How far an interval may reach into the future, in microseconds: a minute.
pub const AHEAD_US: i64 = 60_000_000;

#[derive(Debug)]
pub struct RingRequests {
    keep_us: i64,
    wanted: ArrayQueue<Wanted>,
    held: Mutex<BTreeMap<JobHandle, Held>>,
}

impl Default for RingRequests {
    fn default() -> Self {
        Self { keep_us: i64::MAX, wanted: ArrayQueue::new(REQUESTS), held: Mutex::default() }
    }
}

impl RingRequests {
    /// Sets the age up to which samples are held, which is the longest interval.
    pub fn holding(keep_us: i64) -> Self {
        Self { keep_us, ..Self::default() }
    }

    /// Longest interval that can be kept, in microseconds.
    pub const fn keep_us(&self) -> i64 {
        self.keep_us
    }

    /// Returns false if too many requests wait. The sender must be woken afterwards.
    pub fn keep(&self, wanted: Wanted) -> bool {
        self.wanted.push(wanted).is_ok()
    }

    /// None if the job has no ring, or an empty one.
    pub fn held(&self, job: JobHandle) -> Option<Held> {
        self.lock().get(&job).cloned()
    }

    /// Newest job of this id with a ring, which may have ended, and its owner.
    pub fn of_id(&self, job_id: &Identifier) -> Option<(JobHandle, Option<u32>)> {
        let held = self.lock();
        let (handle, held) = held.iter().rev().find(|(_, held)| held.job_id == *job_id)?;
        Some((*handle, held.owner_uid))
    }

    pub(super) fn next(&self) -> Option<Wanted> {
        self.wanted.pop()
    }

    pub(super) fn set_held(&self, held: BTreeMap<JobHandle, Held>) {
        *self.lock() = held;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobHandle, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
