//! Requests to keep intervals, from the supervisor to the sender.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use polymeter_proto::series::{Identifier, JobHandle};
use polymeter_proto::text::Text;

use crate::mutex::lock;

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
    pub bytes: usize,
    /// Further intervals that it can take.
    pub room: usize,
}

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

#[derive(Debug, Default)]
struct Shared {
    wanted: VecDeque<Wanted>,
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
        Self { keep_us: i64::MAX, shared: Mutex::default() }
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
        let mut shared = self.lock();
        let has_place = shared.wanted.len() < REQUESTS;
        let held = shared.held.get_mut(&wanted.job).ok_or(NotKept::NoRing)?;
        if held.room == 0 || !has_place {
            return Err(NotKept::Busy);
        }
        held.room -= 1;
        shared.wanted.push_back(wanted);
        Ok(())
    }

    /// None if the job has no ring.
    pub fn held(&self, job: JobHandle) -> Option<Held> {
        self.lock().held.get(&job).cloned()
    }

    /// Newest job of this id with a ring, which may have ended, and its owner.
    pub fn of_id(&self, job_id: &Identifier) -> Option<(JobHandle, Option<u32>)> {
        let shared = self.lock();
        let (handle, held) = shared.held.iter().rev().find(|(_, held)| held.job_id == *job_id)?;
        Some((*handle, held.owner_uid))
    }

    pub(super) fn next(&self) -> Option<Wanted> {
        self.lock().wanted.pop_front()
    }

    pub(super) fn set_held(&self, mut held: BTreeMap<JobHandle, Held>) {
        let mut shared = self.lock();
        for wanted in &shared.wanted {
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
    pub(super) fn close_all(&self) -> VecDeque<Wanted> {
        std::mem::take(&mut *self.lock()).wanted
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }
}
