//! Chooses the cgroup by which the tasks of a job are found.

use std::path::PathBuf;

use polymeter_proto::catalogue::Hierarchy;

use super::super::reason::EbpfError;
use super::cgroup_types::CgroupHierarchy;
use crate::sources::target::Target;

/// Controllers of version 1 by which jobs are found, the best first, and their names in `enum
/// cgroup_subsys_id`.
const CONTROLLERS: &[(&str, &str)] = &[
    ("cpuacct", "cpuacct_cgrp_id"),
    ("cpu", "cpu_cgrp_id"),
    ("memory", "memory_cgrp_id"),
    ("freezer", "freezer_cgrp_id"),
    ("cpuset", "cpuset_cgrp_id"),
    ("devices", "devices_cgrp_id"),
    ("pids", "pids_cgrp_id"),
    ("blkio", "io_cgrp_id"),
    ("perf_event", "perf_event_cgrp_id"),
];

/// Cgroup by which programs find a target's tasks: of version 2, else of a controller of version 1.
pub(in super::super) fn choose(target: &Target) -> Result<(CgroupHierarchy, PathBuf), EbpfError> {
    let Target::Cgroups(cgroups) = target else { return Err(EbpfError::NoCgroup) };
    if let Some(path) = cgroups.directory(Hierarchy::V2) {
        return Ok((CgroupHierarchy::V2, path.to_owned()));
    }
    for (controller, name) in CONTROLLERS {
        if let Some(path) = cgroups.directory(Hierarchy::V1(controller)) {
            return Ok((CgroupHierarchy::V1(name), path.to_owned()));
        }
    }
    Err(EbpfError::NoCgroup)
}
