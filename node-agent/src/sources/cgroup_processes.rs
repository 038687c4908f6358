//! Processes of a cgroup and of all below it.

use std::collections::BTreeSet;
use std::path::Path;

use super::kernel_text;
use crate::cgroups::subdirectories;

/// Bound of the tracked processes: a fork bomb must not delay the sampler.
pub(super) const PROCESSES_MAX: usize = 4096;

const CGROUPS_MAX: usize = 256;

/// Lists the processes in a cgroup and in all below it; `None` if it is gone.
pub(crate) fn listed(top: &Path) -> Option<BTreeSet<u32>> {
    let (mut directories, mut next) = (vec![top.to_owned()], 0);
    let mut listed = BTreeSet::new();
    while let Some(directory) = directories.get(next).cloned() {
        next += 1;
        match kernel_text::text(&directory.join("cgroup.procs")) {
            Ok(text) => listed.extend(kernel_text::lines(&text).filter_map(|line| line.parse::<u32>().ok())),
            Err(_) if next == 1 => return None,
            // It was removed meanwhile, or has threads only.
            Err(_) => {}
        }
        let room = CGROUPS_MAX.saturating_sub(directories.len());
        directories.extend(subdirectories(&directory).into_iter().take(room));
    }
    Some(listed.into_iter().take(PROCESSES_MAX).collect())
}
