//! Reasons for which the metrics are unavailable.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use polymeter_agent::cgroups::JobCgroups;
use polymeter_agent::sources::Target;
use polymeter_test_harness::tests;

use crate::support::cgroup::Cgroup;
use crate::support::process::Process;
use crate::support::sources::{counted, open, open_target};

tests![
    reasons_name_what_is_missing,
    exclusive jobs_at_many_levels_are_refused,
    exclusive without_rights_the_reason_names_them,
];

const NETWORK: &str = "network.*";
const RUNQUEUE: &str = "runqueue.*";

fn reasons_name_what_is_missing() {
    let reason = open_target(NETWORK, &Target::Processes(1)).unwrap_err();
    assert!(reason.contains("cgroups of version 2, and the job has none"), "{reason}");
    let of_v1 = BTreeMap::from([("memory".to_owned(), PathBuf::from("/sys/fs/cgroup/memory"))]);
    let reason = open_target(NETWORK, &Target::Cgroups(JobCgroups { v1: of_v1, ..JobCgroups::default() }))
        .unwrap_err();
    assert!(reason.contains("cgroups of version 2, and the job has none"), "{reason}");
    let job = Cgroup::create();
    drop(counted(NETWORK, &job.0));
    let reason = open(NETWORK, &job.0.join("gone")).unwrap_err();
    assert!(reason.contains("gone: No such file or directory"), "{reason}");
    let reason = open(NETWORK, Path::new("/proc")).unwrap_err();
    assert!(reason.contains("no cgroup of version 2"), "{reason}");
    let reason = open_target(RUNQUEUE, &Target::Processes(1)).unwrap_err();
    assert!(reason.contains("the job has none; register the job with its cgroup"), "{reason}");
    let reason = open(RUNQUEUE, &job.0.join("gone")).unwrap_err();
    assert!(reason.contains("gone: No such file or directory"), "{reason}");
    let root = job.0.parent().unwrap();
    let reason = open(RUNQUEUE, root).unwrap_err();
    assert!(reason.contains("the root of the cgroups is no job"), "{reason}");
}

fn jobs_at_many_levels_are_refused() {
    let job = Cgroup::create();
    let mut cgroups = vec![Cgroup(job.0.join("a"))];
    for _ in 0..3 {
        cgroups.push(Cgroup(cgroups[cgroups.len() - 1].0.join("a")));
    }
    cgroups.iter().for_each(|cgroup| fs::create_dir(&cgroup.0).unwrap());
    let first = counted(RUNQUEUE, &job.0);
    let mut others: Vec<_> = cgroups.iter().map(|cgroup| open(RUNQUEUE, &cgroup.0)).collect();
    let reason = others.pop().unwrap().unwrap_err();
    assert!(reason.contains("4 levels of cgroups"), "{reason}");
    assert!(others.iter().all(Result::is_ok));
    // Another one has its place as soon as one is closed.
    drop(first);
    drop(open(RUNQUEUE, &cgroups[3].0).unwrap());
    drop(others);
    cgroups.into_iter().rev().for_each(drop);
}

fn without_rights_the_reason_names_them() {
    let job = Cgroup::create();
    drop(counted(NETWORK, &job.0));
    for (metrics, rights) in [
        (NETWORK, "CAP_BPF and CAP_NET_ADMIN"),
        (RUNQUEUE, "CAP_BPF and CAP_PERFMON"),
        ("vfs.*", "CAP_BPF and CAP_PERFMON"),
    ] {
        let mut user = Process::start("user", &job.0);
        user.tell(metrics);
        let reason = user.answer();
        assert!(reason.contains("permission denied") && reason.contains(rights), "{reason}");
        user.end();
    }
}
