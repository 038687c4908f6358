//! The notices of the sampler: sources that it gives back, and sources that have changed, have gone or cannot be read.

use polymeter_service::clock;
use tracing::{info, warn};

use super::dispatcher::Dispatcher;
use crate::lanes::{Notice, SourceId};
use crate::targets::{TrackedTarget, describe};

/// Handles what the sampler noticed. Returns whether a source has gone, so that jobs may have ended.
pub(super) fn handle(core: &mut Dispatcher) -> bool {
    let mut is_gone = false;
    while let Some(notice) = core.edge.shared.channels.next_notice() {
        match notice {
            Notice::Removed(id, source) => {
                drop(source);
                core.edge.ids.sources.release(id);
            }
            Notice::Replaced(source) => drop(source),
            Notice::Changed(id) => reopen_later(core, id, false),
            Notice::Gone(id) => {
                is_gone = true;
                reopen_later(core, id, true);
            }
            Notice::Hung(id) => {
                if let Some(name) = target_of(core, id).and_then(|target| target.sources.set_hung(id)) {
                    warn!("a read of {name} hangs: its samples are missed until it returns");
                }
            }
            Notice::Recovered(id) => {
                if let Some(name) = target_of(core, id).and_then(|target| target.sources.set_recovered(id)) {
                    info!("the read of {name} has returned: it is sampled again");
                }
            }
            Notice::Failing(id, errno) => {
                if let Some(name) = target_of(core, id).and_then(|target| target.sources.name(id)) {
                    warn!("cannot read {name}: {errno}; its samples are absent until a read succeeds");
                }
            }
            Notice::Failed(id, errno) => {
                let name = core.edge.ids.sources.target(id).map_or_else(String::new, describe);
                warn!("cannot read a source of {name} any more: {errno}");
                if let Some(target) = target_of(core, id) {
                    // Should it be a perf group, it is no longer worth keeping.
                    target.sources.forget_perf();
                }
                reopen_later(core, id, true);
            }
        }
    }
    core.edge.count(&core.targets);
    is_gone
}

/// The target of a source, where it is still tracked.
fn target_of(core: &mut Dispatcher, id: SourceId) -> Option<&mut TrackedTarget> {
    let key = core.edge.ids.sources.target(id)?;
    core.targets.get_mut(key)
}

/// Has the sources of a target opened anew, since one of them has changed, or has ended.
fn reopen_later(core: &mut Dispatcher, id: SourceId, is_ended: bool) {
    let Some(target) = target_of(core, id) else { return };
    // The processes of a job without a cgroup do not come again, and their numbers may be others'.
    if is_ended && target.cgroups().is_some() {
        target.sources.end_lasting(id);
    }
    target.sources.reopen_later(clock::monotonic_ns());
}
