//! The choice of the cgroup of a job by which its tasks are found.

use std::path::PathBuf;

use polymeter_proto::catalogue::Hierarchy;

use super::cgroup_types::CgroupHierarchy;
use crate::sources::target::Target;

/// The controllers of version 1 by which jobs are found, the best first, and their names in
/// `enum cgroup_subsys_id`.
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

/// Returns the cgroup of a target by which programs find its tasks: of version 2, else of a controller of
/// version 1.
pub(in super::super) fn choose(target: &Target) -> Result<(CgroupHierarchy, PathBuf), String> {
    let without = || {
        "eBPF finds the processes of a job by its cgroup, and the job has none; register the job with its \
         cgroup"
            .to_owned()
    };
    let Target::Cgroups(cgroups) = target else { return Err(without()) };
    let of = |hierarchy, kind| cgroups.directory(hierarchy).map(|path| (kind, path.to_owned()));
    of(Hierarchy::V2, CgroupHierarchy::V2)
        .or_else(|| {
            let mut controllers = CONTROLLERS.iter();
            controllers
                .find_map(|(controller, name)| of(Hierarchy::V1(controller), CgroupHierarchy::V1(name)))
        })
        .ok_or_else(without)
}
