//! Jobs in which something happened: those of which a part has ended are read at once, and all are rescanned.
//! Pure.

use std::collections::BTreeMap;

use polymeter_proto::series::{Identifier, JobHandle};

use crate::targets::{Now, TargetKey, Targets};

/// Jobs that are to be rescanned because something happened in them; true if the job must still be read.
#[derive(Debug, Default)]
pub(super) struct PendingRescans(BTreeMap<TargetKey, bool>);

impl PendingRescans {
    /// Queues the jobs in which something happened; true if a process or a cgroup has ended. Returns those
    /// that must be read at once.
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

    pub(super) fn next(&mut self) -> Option<(TargetKey, bool)> {
        self.0.pop_first()
    }
}
