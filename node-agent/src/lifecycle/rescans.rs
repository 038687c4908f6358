//! Jobs in which something happened: those of which a part has ended are read at once, and all are rescanned. Pure.

use std::collections::BTreeMap;

use polymeter_proto::series::{Identifier, JobHandle};

use super::event::{LifecycleEffect, LifecycleTask};
use crate::targets::{Now, TargetKey, Targets};

/// The jobs that are to be rescanned because something happened in them; true if the job must still be read.
#[derive(Debug, Default)]
pub(super) struct PendingRescans(BTreeMap<TargetKey, bool>);

impl PendingRescans {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Queues the jobs in which something happened; true if a process or a cgroup has ended. Returns those that must be
    /// read at once.
    pub(super) fn exits_seen(
        &mut self,
        targets: &mut Targets,
        exits: BTreeMap<Identifier, bool>,
        now: Now,
    ) -> Vec<JobHandle> {
        let mut urgent = Vec::new();
        for (job_id, is_ended) in exits {
            let key = Some(job_id);
            let Some(target) = targets.get_mut(&key) else {
                // The job is being opened, or is not tracked any more.
                *self.0.entry(key).or_default() |= is_ended;
                continue;
            };
            if !target.rescans.try_take(now.monotonic_ns) {
                continue;
            }
            urgent.extend(target.handle().filter(|_| is_ended));
            self.0.entry(key).or_default();
        }
        urgent
    }

    /// Rescans one job.
    pub(super) fn next(&mut self, targets: &Targets, out: &mut Vec<LifecycleEffect>) {
        let Some((key, is_unread)) = self.0.pop_first() else { return };
        let Some(target) = targets.get(&key) else { return };
        if is_unread {
            out.extend(target.handle().map(LifecycleEffect::ReadJob));
        }
        out.push(LifecycleTask::WatchExits(key).into());
    }
}

/// Rescans the jobs that exceeded their rescan budget.
pub(super) fn missed(targets: &mut Targets, out: &mut Vec<LifecycleEffect>) {
    for (key, target) in targets.iter_mut() {
        if target.rescans.take_missed() {
            out.push(LifecycleTask::WatchExits(key.clone()).into());
        }
    }
}

/// Continues with a job whose exits are watched from now on.
pub(super) fn exits_watched(
    targets: &mut Targets,
    key: TargetKey,
    is_missed: bool,
    out: &mut Vec<LifecycleEffect>,
) {
    let Some(target) = targets.get_mut(&key) else { return };
    target.owner_search.note_event();
    if is_missed {
        out.extend(target.handle().map(LifecycleEffect::ReadJob));
    }
    out.push(LifecycleTask::ScanCgroups(key.clone()).into());
    out.push(LifecycleEffect::UpdateSteps(key));
}
