//! The notices of the sampler: removed sources, and sources that have changed, ended or cannot be read.

use polymeter_service::clock;
use tracing::{info, warn};

use super::dispatcher::Dispatcher;
use super::edge::{Edge, NodeEdge};
use crate::lanes::{Notice, SourceId};
use crate::targets::{TrackedTarget, describe};

#[derive(Debug, Default)]
pub(super) struct Handled {
    /// A source has ended, so that jobs may have ended.
    pub(super) is_gone: bool,
    pub(super) ranks: Vec<(SourceId, Vec<(u32, u32)>)>,
}

pub(super) fn handle(core: &mut Dispatcher<NodeEdge>) -> Handled {
    let mut handled = Handled::default();
    while let Some(notice) = core.edge.shared.channels.next_notice() {
        match notice {
            Notice::Removed(id, source) => {
                drop(source);
                core.edge.ids.sources.release(id);
            }
            Notice::Replaced(source) => drop(source),
            Notice::Changed(id) => reopen_later(core, id, false),
            Notice::Gone(id) => {
                handled.is_gone = true;
                reopen_later(core, id, true);
            }
            Notice::Ranks(id, ranks) => handled.ranks.push((id, ranks)),
            Notice::Hung(id) => {
                if let Some(name) = target_of(core, id).and_then(|target| target.sources.set_hung(id)) {
                    warn!(
                        "reading {name} is blocked; its samples are counted as missed until the read returns"
                    );
                }
            }
            Notice::Recovered(id) => {
                if let Some(name) = target_of(core, id).and_then(|target| target.sources.set_recovered(id)) {
                    info!("the blocked read of {name} returned; sampling continues");
                }
            }
            Notice::Failing(id, errno) => {
                if let Some(name) = target_of(core, id).and_then(|target| target.sources.name(id)) {
                    warn!("cannot read {name}: {errno}; its samples are absent until a read succeeds");
                }
            }
            Notice::Failed(id, errno) => {
                let name = core.edge.ids.sources.target(id).map_or_else(String::new, describe);
                warn!("cannot read a source of {name}: {errno}; it is opened anew");
                if let Some(target) = target_of(core, id) {
                    // A perf group is not worth keeping any more.
                    target.sources.forget_perf();
                }
                reopen_later(core, id, true);
            }
        }
    }
    core.edge.count(&core.targets);
    handled
}

/// None if the target is not tracked any more.
fn target_of(core: &mut Dispatcher<NodeEdge>, id: SourceId) -> Option<&mut TrackedTarget> {
    let key = core.edge.ids.sources.target(id)?;
    core.targets.get_mut(key)
}

/// Schedules the sources of a target to be opened anew, because one of them has changed or ended.
fn reopen_later(core: &mut Dispatcher<NodeEdge>, id: SourceId, is_ended: bool) {
    let Some(target) = target_of(core, id) else { return };
    // The processes of a job without a cgroup do not reappear, and their numbers may be reused.
    if is_ended && target.cgroups().is_some() {
        target.sources.end_lasting(id);
    }
    target.sources.reopen_later(clock::monotonic_ns());
}
