//! Search for processes whose perf events are counted one by one.

use super::dispatcher::Dispatcher;
use super::edge::{Edge, NodeEdge};

/// Looks for new processes of the jobs whose perf events are counted process by process.
pub(super) fn find(core: &mut Dispatcher<NodeEdge>) {
    for key in core.targets.keys_where(|target| target.sources.follows_processes()) {
        if let Some(target) = core.targets.get_mut(&key)
            && core.edge.scan_cgroups(&key, target)
        {
            // More than could be handed over at once.
            target.rescans.note_missed();
        }
    }
}
