//! What is followed and how it goes, for whoever asks.

use super::followed::Followed;
use super::{Key, Manager};
use crate::jobs::open::Subject;
use crate::request::{JobView, SourceView, View};
use crate::status::Pinned;

impl Manager {
    /// Everything that is followed.
    pub(super) fn view(&self) -> View {
        View { subjects: self.followed.iter().map(|(key, followed)| self.view_of(key, followed)).collect() }
    }

    /// One job, or the node.
    pub(super) fn view_of(&self, key: &Key, followed: &Followed) -> JobView {
        let source = |(name, Pinned { tally, cost, .. })| SourceView {
            name,
            tally,
            reads: cost.reads,
            read_total_ns: cost.total_ns,
            read_most_ns: cost.most_ns,
        };
        JobView {
            job_id: key.clone(),
            owner_uid: followed.owner_uid,
            owner: followed.job.as_ref().and_then(|job| job.descriptor.owner.clone()),
            started_us: followed.job.as_ref().map(|job| job.descriptor.started_us),
            cgroups: match &followed.subject {
                Subject::Cgroups(cgroups) => {
                    cgroups.directories().into_iter().map(ToOwned::to_owned).collect()
                }
                Subject::Processes(_) | Subject::Node(_) => Vec::new(),
            },
            sources: self
                .board
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
