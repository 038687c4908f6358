//! Versions of control groups, and the controllers that hold metrics of jobs.

use std::fs;
use std::path::Path;

use polymeter_service::cgroup_mounts::Mounts;

use crate::commands::doctor::finding::Findings;
use crate::commands::doctor::machine::Machine;
use crate::commands::doctor::role::Role;

/// Controllers of version 2 that jobs need, with their names in version 1 and the metrics that are missing
/// without them.
const NEEDED: [(&str, &str, &str); 3] =
    [("memory", "memory", "memory.*"), ("io", "blkio", "io.*"), ("pids", "pids", "pids.*")];

/// Directories below which schedulers make the cgroups of jobs.
const PARENTS: [&str; 3] = ["system.slice", "system.slice/slurmstepd.scope", "oar.slice"];

pub(super) fn check(machine: &Machine, _: Role, findings: &mut Findings) {
    judge(&machine.mounts, findings);
}

fn judge(mounts: &Mounts, findings: &mut Findings) {
    if mounts.v2.is_none() && mounts.v1.is_empty() {
        findings
            .problem("no cgroups are mounted: jobs are not found", "mount -t cgroup2 none /sys/fs/cgroup");
        return;
    }
    let available =
        mounts.v2.as_deref().map(|root| words(&root.join("cgroup.controllers"))).unwrap_or_default();
    for (name, old_name, metrics) in NEEDED {
        if mounts.v1.contains_key(old_name) {
            continue;
        }
        match &mounts.v2 {
            Some(root) if available.iter().any(|known| known == name) => {
                delegated(root, name, metrics, findings)
            }
            Some(_) | None => findings.problem(
                format!("the cgroup controller `{name}` is missing: jobs have no {metrics}"),
                format!(
                    "remove cgroup_disable={name} from the kernel's command line, or add cgroup_enable={name}"
                ),
            ),
        }
    }
    if findings.has_any() {
        return;
    }
    let v1: Vec<&str> = mounts.v1.keys().map(String::as_str).collect();
    findings.ok(match (&mounts.v2, v1.as_slice()) {
        (Some(_), []) => format!("version 2 with {}", available.join(", ")),
        (None, v1) => format!("version 1 with {}", v1.join(", ")),
        (Some(_), v1) => {
            let v2 = if available.is_empty() { "no controllers".to_owned() } else { available.join(", ") };
            format!("version 1 with {}; version 2 with {v2}", v1.join(", "))
        }
    });
}

/// Checks that a controller of version 2 reaches the cgroups of jobs.
fn delegated(root: &Path, name: &str, metrics: &str, findings: &mut Findings) {
    let parents = std::iter::once(root.to_owned()).chain(PARENTS.map(|parent| root.join(parent)));
    for parent in parents.filter(|parent| parent.is_dir()) {
        let control = parent.join("cgroup.subtree_control");
        // system.slice need not pass a controller on where no jobs are below it.
        let has_jobs =
            parent == root || !parent.ends_with("system.slice") || parent.join("slurmstepd.scope").is_dir();
        if has_jobs && !words(&control).iter().any(|known| known == name) {
            findings.problem(
                format!("{} does not delegate `{name}`: jobs below it have no {metrics}", parent.display()),
                format!("echo +{name} > {}", control.display()),
            );
            return;
        }
    }
}

fn words(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::finding::{Finding, Level};

    fn judged(mounts: &Mounts) -> Vec<Finding> {
        let mut findings = Findings::new("cgroups", Role::Node);
        judge(mounts, &mut findings);
        findings.into_list()
    }

    #[test]
    fn version_2_has_to_delegate_controllers() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let mounts = Mounts { v2: Some(root.path().to_owned()), ..Mounts::default() };
        put("cgroup.controllers", "cpuset cpu io memory hugetlb pids rdma misc\n");
        put("cgroup.subtree_control", "cpuset cpu io memory hugetlb pids rdma misc\n");
        put("system.slice/cgroup.subtree_control", "cpu pids\n");
        assert_eq!(
            judged(&mounts)[0].text,
            "version 2 with cpuset, cpu, io, memory, hugetlb, pids, rdma, misc"
        );
        // Slurm's scope is below the slice, which does not delegate.
        put("system.slice/slurmstepd.scope/cgroup.subtree_control", "cpuset cpu io memory pids\n");
        let found = judged(&mounts);
        assert_eq!(found.iter().map(|finding| finding.level).collect::<Vec<_>>(), [Level::Problem; 2]);
        assert!(found[0].text.contains("system.slice does not delegate `memory`"), "{found:?}");
        assert!(found[0].remedy.as_ref().is_some_and(|remedy| remedy.starts_with("echo +memory > ")));
        put("cgroup.subtree_control", "cpu io pids\n");
        assert!(judged(&mounts)[0].text.contains("jobs below it have no memory.*"));
        put("cgroup.controllers", "cpu io pids\n");
        assert!(judged(&mounts)[0].text.contains("controller `memory` is missing"));
    }

    fn v1(names: &[&str]) -> Mounts {
        Mounts {
            v1: names.iter().map(|name| ((*name).to_owned(), "/x".into())).collect(),
            ..Mounts::default()
        }
    }

    #[test]
    fn controllers_of_version_1_suffice() {
        assert_eq!(
            judged(&v1(&["memory", "blkio", "pids", "cpu"]))[0].text,
            "version 1 with blkio, cpu, memory, pids"
        );
        assert!(judged(&v1(&["blkio", "pids"]))[0].text.contains("`memory` is missing"));
        assert_eq!(judged(&Mounts::default())[0].level, Level::Problem);
    }
}
