//! State of the tracked targets, as clients see it.

use polymeter_proto::step_level::StepLevel;

use crate::request::{JobView, SourceView, View};
use crate::stats_cache::{SourceStats, StatsCache};
use crate::targets::{TargetKey, Targets, TrackedTarget};

pub(super) fn view_all(targets: &Targets, stats: &StatsCache) -> View {
    View { subjects: targets.iter().map(|(key, target)| view(key, target, stats)).collect() }
}

pub(super) fn view(key: &TargetKey, target: &TrackedTarget, stats: &StatsCache) -> JobView {
    let descriptor = target.job.as_ref().map(|job| &job.descriptor);
    let cgroups = target.cgroups().map(|cgroups| cgroups.directories()).unwrap_or_default();
    JobView {
        job_id: key.clone(),
        owner_uid: target.owner_uid,
        owner: descriptor.and_then(|descriptor| descriptor.owner.clone()),
        started_us: descriptor.map(|descriptor| descriptor.started_us),
        cgroups: cgroups.into_iter().map(ToOwned::to_owned).collect(),
        sources: stats
            .of(target.handle())
            .into_iter()
            .map(|(name, SourceStats { tally, cost, .. })| SourceView {
                name,
                tally,
                reads: cost.reads,
                read_total_ns: cost.total_ns,
                read_max_ns: cost.max_ns,
            })
            .collect(),
        unavailable: target.sources.unavailable_with_steps(),
        plan: [target.plan_in_force(), target.ring_in_force(), target.device_demands()].concat(),
        step_plans: StepLevel::ALL
            .into_iter()
            .flat_map(|level| {
                target.plan_in_force_at(Some(level)).into_iter().map(move |planned| (level, planned))
            })
            .collect(),
        release: target.release(),
        refused: target.refused.all(),
    }
}
