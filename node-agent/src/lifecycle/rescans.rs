//! Jobs in which something happened: those of which a part has ended are read at once, and all of them are rescanned. Pure.

use std::collections::BTreeMap;

use polymeter_proto::series::Identifier;

use super::event::LifecycleEffect;
use crate::targets::{Now, TargetKey, Targets};

/// The jobs that are to be rescanned because something happened in them; true where the job is still to be read.
#[derive(Debug, Default)]
pub(super) struct PendingRescans(BTreeMap<TargetKey, bool>);

impl PendingRescans {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Has the jobs read of which a part has ended, and rescans them later.
    pub(super) fn exits_seen(
        &mut self,
        targets: &mut Targets,
        exits: BTreeMap<Identifier, bool>,
        now: Now,
        out: &mut Vec<LifecycleEffect>,
    ) {
        for (job_id, is_ended) in exits {
            let key = Some(job_id);
            let Some(target) = targets.get_mut(&key) else {
                // It is being opened just now, or is tracked no more.
                *self.0.entry(key).or_default() |= is_ended;
                continue;
            };
            if !target.rescans.try_take(now.monotonic_ns) {
                continue;
            }
            if is_ended {
                out.extend(target.handle().map(LifecycleEffect::ReadJob));
            }
            self.0.entry(key).or_default();
        }
    }

    /// Rescans one job.
    pub(super) fn next(&mut self, targets: &Targets, out: &mut Vec<LifecycleEffect>) {
        let Some((key, is_unread)) = self.0.pop_first() else { return };
        let Some(target) = targets.get(&key) else { return };
        if is_unread {
            out.extend(target.handle().map(LifecycleEffect::ReadJob));
        }
        out.push(LifecycleEffect::WatchExits(key));
    }
}

/// Rescans the jobs in which too much happened to rescan each time.
pub(super) fn missed(targets: &mut Targets, out: &mut Vec<LifecycleEffect>) {
    for (key, target) in targets.iter_mut() {
        if target.rescans.take_missed() {
            out.push(LifecycleEffect::WatchExits(key.clone()));
        }
    }
}

/// Goes on with a job whose exits are watched from now on.
pub(super) fn exits_watched(
    targets: &Targets,
    key: TargetKey,
    is_missed: bool,
    out: &mut Vec<LifecycleEffect>,
) {
    let Some(target) = targets.get(&key) else { return };
    if is_missed {
        out.extend(target.handle().map(LifecycleEffect::ReadJob));
    }
    out.push(LifecycleEffect::ScanCgroups(key.clone()));
    out.push(LifecycleEffect::UpdateSteps(key));
}
