//! Frames that a transaction adds, by session. Pure.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use polymeter_proto::series::SessionId;

use crate::StoreError;
use crate::accepted::{Accepted, JobRecord, SessionRecord, check_gaps};

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Progress {
    /// Newest stored frame after the transaction.
    pub(super) last: u64,
    /// True if at least one of its frames was not stored before.
    pub(super) is_new: bool,
    /// Added samples, except for quarantined ones.
    pub(super) stored: u64,
    /// Time of the newest added sample, in microseconds since the epoch.
    pub(super) newest_us: Option<i64>,
    /// Time at which the agent reported its stop, in microseconds since the epoch.
    pub(super) ended_us: Option<i64>,
}

impl Progress {
    fn add(&mut self, frame: &Accepted) {
        self.last = frame.sequence;
        self.is_new = true;
        self.stored += frame.stored();
        self.newest_us = self.newest_us.max(frame.newest_us());
        self.ended_us = frame.session_end_us.or(self.ended_us);
    }
}

/// Returns the frames that are not stored yet. `last` is the newest stored frame of each session. Fails if
/// the store lacks frames that precede them.
pub(super) fn not_stored<'a>(
    frames: &'a [Accepted],
    last: &HashMap<SessionId, u64>,
) -> Result<(Vec<&'a Accepted>, BTreeMap<SessionId, Progress>), StoreError> {
    check_gaps(frames, last).map_err(StoreError::FramesMissing)?;
    let last = |id| last.get(&id).copied().unwrap_or_default();
    let mut progress: BTreeMap<SessionId, Progress> = BTreeMap::new();
    let mut new = Vec::new();
    for frame in frames {
        let id = frame.session.id;
        let of = progress.entry(id).or_insert_with(|| Progress { last: last(id), ..Progress::default() });
        if frame.sequence > of.last {
            of.add(frame);
            new.push(frame);
        }
    }
    Ok((new, progress))
}

pub(super) fn through(progress: &BTreeMap<SessionId, Progress>) -> Vec<(SessionId, u64)> {
    progress.iter().map(|(id, progress)| (*id, progress.last)).collect()
}

/// Returns the sessions of `frames` without duplicates, in the order of their ids.
pub(super) fn sessions(frames: &[Accepted]) -> Vec<Arc<SessionRecord>> {
    let by_id: BTreeMap<_, _> = frames.iter().map(|frame| (frame.session.id, &frame.session)).collect();
    by_id.into_values().cloned().collect()
}

pub(super) fn distinct<'a, T: 'a>(all: impl Iterator<Item = &'a Arc<T>>) -> Vec<Arc<T>> {
    let mut seen = HashSet::new();
    all.filter(|item| seen.insert(Arc::as_ptr(item))).cloned().collect()
}

/// Returns the key of a job in the store, if it has one.
pub(super) fn key_of(job: Option<&Arc<JobRecord>>) -> Option<i64> {
    job.and_then(|job| job.key.get())
}
