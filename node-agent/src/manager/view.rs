//! What is followed and how it goes, for whoever asks.

use super::tracked_target::TrackedTarget;
use super::{Manager, TargetKey};
use crate::request::{JobView, SourceView, View};
use crate::sources::Target;
use crate::stats_cache::SourceStats;

impl Manager {
    /// Everything that is followed.
    pub(super) fn view(&self) -> View {
        View { subjects: self.followed.iter().map(|(key, followed)| self.view_of(key, followed)).collect() }
    }

    /// One job, or the node.
    pub(super) fn view_of(&self, key: &TargetKey, followed: &TrackedTarget) -> JobView {
        let source = |(name, SourceStats { tally, cost, .. })| SourceView {
            name,
            tally,
            reads: cost.reads,
            read_total_ns: cost.total_ns,
            read_max_ns: cost.max_ns,
        };
        JobView {
            job_id: key.clone(),
            owner_uid: followed.owner_uid,
            owner: followed.job.as_ref().and_then(|job| job.descriptor.owner.clone()),
            started_us: followed.job.as_ref().map(|job| job.descriptor.started_us),
            cgroups: match &followed.target {
                Target::Cgroups(cgroups) => {
                    cgroups.directories().into_iter().map(ToOwned::to_owned).collect()
                }
                Target::Processes(_) | Target::Node(_) => Vec::new(),
            },
            sources: self
                .stats_cache
                .of(followed.job.as_ref().map(|job| job.handle))
                .into_iter()
                .map(source)
                .collect(),
            unavailable: followed.unavailable.clone(),
            plan: followed.plan_in_force(),
            refused: followed.refused.all(),
        }
    }
}
