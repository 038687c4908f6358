//! Targets: the tracked objects, which are the node and the jobs on it. Everything here is pure: it opens no
//! file and reads no clock.

mod ids;
mod key;
mod open_source;
mod open_step;
mod owner_search;
mod recorded_plan;
mod source_ids;
mod source_set;
mod tracked_target;
mod tracked_targets;
mod user_events;

pub(crate) use ids::JobHandles;
pub(crate) use key::{Access, Now, TargetKey, describe};
pub(crate) use open_source::{SessionIds, SourceChanges, SourceOwner};
pub(crate) use open_step::WantedOfStep;
#[cfg(test)]
pub(crate) use recorded_plan::LEVELS;
pub(crate) use tracked_target::TrackedTarget;
pub(crate) use tracked_targets::Targets;
pub(crate) use user_events::USER_SUPPLIED;
