//! The room for jobs: jobs beyond it are left out, with the same share for every owner. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::effect::LifecycleEffect;
use super::found_job::{FoundJob, Walk};
use crate::admission::Capacity;
use crate::targets::{Now, Targets};

/// Removes the found jobs for which there is no room, and reports them.
pub(super) fn fit(
    capacity: &mut Capacity,
    targets: &Targets,
    Walk { mut found, passed_over, descriptors, .. }: Walk,
    now: Now,
    out: &mut Vec<LifecycleEffect>,
) -> BTreeMap<PathBuf, FoundJob> {
    let room = capacity.room(targets, descriptors);
    let mut left_out = passed_over;
    if found.len() > room {
        let owners = found.iter().map(|(path, job)| (path.clone(), job.owner())).collect();
        for path in Capacity::left_out(targets, owners, room) {
            found.remove(&path);
            left_out += 1;
        }
    }
    out.push(LifecycleEffect::ReportLeftOut(left_out, descriptors));
    match capacity.report(left_out, room, descriptors, now) {
        Some((message, true)) => out.push(LifecycleEffect::LogWarning(message)),
        Some((message, false)) => out.push(LifecycleEffect::LogInfo(message)),
        None => {}
    }
    found
}
