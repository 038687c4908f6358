//! Tests of discovery on a simulated machine.

use std::fs;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;

const HIERARCHIES: [&str; 3] = ["memory", "cpu,cpuacct", "unified"];

const PATTERN: &str = "slurm/uid_{uid}/job_{job}";

/// Simulates a machine with a memory controller of version 1 and a unified hierarchy, in a directory.
fn machine() -> (tempfile::TempDir, Mounts) {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("proc/self")).unwrap();
    for hierarchy in HIERARCHIES {
        fs::create_dir_all(root.path().join("sys/fs/cgroup").join(hierarchy)).unwrap();
    }
    let mountinfo = "30 23 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
        31 23 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
        32 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
        33 23 0:29 / /sys/kernel/tracing rw - tracefs tracefs rw\n";
    fs::write(root.path().join("proc/self/mountinfo"), mountinfo).unwrap();
    let mounts = Mounts::read(root.path()).unwrap();
    (root, mounts)
}

fn found_by_rescan(discovery: &mut Discovery, now_ns: u64) -> usize {
    let found = if discovery.must_walk(now_ns) { discovery.walk(now_ns) } else { discovery.found() };
    found.len()
}

#[test]
fn recreated_directory_is_watched_again() {
    let (root, mounts) = machine();
    let (mut discovery, _) = Discovery::new(mounts, vec![PATTERN.parse().unwrap()]);
    let user = root.path().join("sys/fs/cgroup/memory/slurm/uid_7");
    fs::create_dir_all(user.join("job_1")).unwrap();
    assert_eq!(discovery.walk(0).len(), 1);
    fs::remove_dir_all(&user).unwrap();
    // It is created again before the next walk.
    fs::create_dir_all(&user).unwrap();
    assert!(discovery.walk(0).is_empty());
    while discovery.changed() {}
    fs::create_dir(user.join("job_2")).unwrap();
    assert!(discovery.changed(), "a job in the new directory");
    fs::remove_dir_all(root.path().join("sys/fs/cgroup/memory/slurm")).unwrap();
    discovery.walk(0);
    assert_eq!(discovery.watches.count(), 3, "the roots are left");
}

#[test]
fn mounts_are_found_by_controller() {
    let (root, mounts) = machine();
    assert_eq!(mounts.v1.keys().collect::<Vec<_>>(), ["cpu", "cpuacct", "memory"]);
    assert_eq!(mounts.v1["cpu"], root.path().join("sys/fs/cgroup/cpu,cpuacct"));
    assert_eq!(mounts.v2, Some(root.path().join("sys/fs/cgroup/unified")));
    assert_eq!(mounts.roots().len(), 3);
}

/// Jobs that the default patterns find if `directories` are below some hierarchy: ids, owners' numbers and
/// names.
fn found_by_default(hierarchy: &str, directories: &[&str]) -> Vec<(String, Option<u32>, Option<String>)> {
    let (root, mounts) = machine();
    for directory in directories {
        fs::create_dir_all(root.path().join("sys/fs/cgroup").join(hierarchy).join(directory)).unwrap();
    }
    let patterns = crate::config::AgentConfig::standard().jobs;
    let (mut discovery, _) = Discovery::new(mounts, patterns);
    let captured = discovery.walk(0).clone().into_values().map(|found| found.captured);
    captured.map(|captured| (captured.job.unwrap(), captured.uid, captured.user)).collect()
}

#[test]
fn finds_the_layouts_of_slurm() {
    let job = |id: &str, uid| (id.to_owned(), uid, None);
    for place in ["slurm", "slurm_n17"] {
        let extern_step = format!("{place}/uid_1000/job_42/step_extern/task_0");
        let batch = format!("{place}/uid_1000/job_42/step_batch/task_0");
        let other = format!("{place}/uid_1001/job_43/step_0");
        let found = found_by_default("memory", &[&extern_step, &batch, &other, &format!("{place}/system")]);
        assert_eq!(found, [job("42", Some(1000)), job("43", Some(1001))], "{place}");
    }
    for scope in ["slurmstepd.scope", "n17_slurmstepd.scope"] {
        let step = format!("system.slice/{scope}/job_42/step_0/user/task_0");
        let sluid = format!("system.slice/{scope}/job_s9K2WQ5N7RT00/step_batch/user");
        let bare = format!("system.slice/{scope}/s5K1KKYAYG5D00/step_0/user/task_0");
        let system = format!("system.slice/{scope}/system");
        let found = found_by_default("unified", &[&step, &sluid, &bare, &system]);
        let named = [job("42", None), job("s9K2WQ5N7RT00", None), job("s5K1KKYAYG5D00", None)];
        assert_eq!(found, named, "{scope}");
    }
}

#[test]
fn finds_the_layouts_of_oar() {
    let zoe = |uid, user: Option<&str>| vec![("7".to_owned(), uid, user.map(str::to_owned))];
    // Without a memory controller, which OAR does not use.
    assert_eq!(found_by_default("cpu,cpuacct", &["oar/zoe_7"]), zoe(None, Some("zoe")));
    let deep = "oar.slice/oar-u1000.slice/oar-u1000-j7.slice/oar-u1000-j7-p12.scope";
    assert_eq!(found_by_default("unified", &[deep]), zoe(Some(1000), None));
    for place in ["oar.slice/zoe_x_7.scope", "oar.slice/zoe_x_7.slice", "zoe_x_7.slice"] {
        assert_eq!(found_by_default("unified", &[place]), zoe(None, Some("zoe_x")), "{place}");
    }
}

#[test]
fn jobs_in_slices_that_systemd_nests_and_escapes_are_found_with_their_owners() {
    for (place, user) in [
        ("jean.slice/jean-pierre_7.slice", "jean-pierre"),
        ("a.slice/a-b.slice/a-b-c_d_7.slice", "a-b-c_d"),
        (r"jean\x2dmarc_7.slice", "jean-marc"),
        (r"a\x2db.slice/a\x2db-c_7.slice", "a-b-c"),
        (r"oar.slice/zo\xc3\xab_7.scope", "zoë"),
        ("oar.slice/jean-pierre_7.scope", "jean-pierre"),
    ] {
        for hierarchy in ["unified", "memory"] {
            let found = found_by_default(hierarchy, &[place]);
            assert_eq!(found, [("7".to_owned(), None, Some(user.to_owned()))], "{hierarchy} {place}");
        }
    }
    let slurm = "site.slice/site-batch.slice/n1_slurmstepd.scope/job_42/step_0";
    assert_eq!(found_by_default("unified", &[slurm]), [("42".to_owned(), None, None)]);
    for place in [
        // Only systemd's own names nest.
        "jean.slice/pierre-x_7.slice",
        "jean.slice/jean-pierre_7",
        "user.slice/user-1000.slice/user-1000-x_7.slice",
        "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod2c48_b29f_7.slice",
    ] {
        assert_eq!(found_by_default("unified", &[place]), [], "{place}");
    }
}

#[test]
fn cgroups_of_systemd_are_no_jobs() {
    let places = [
        "user.slice/user-1000.slice/session-3.scope",
        "user.slice/user-1000.slice/user@1000.service/app.slice",
        "system.slice/slurmd.service",
        "system.slice/system-getty.slice/getty@tty1.service",
        "init.scope",
        "machine.slice/machine-qemu_1.scope",
    ];
    assert_eq!(found_by_default("unified", &places), []);
}

#[test]
fn job_is_found_with_all_its_cgroups_until_they_go() {
    let (root, mounts) = machine();
    let (mut discovery, error) = Discovery::new(mounts, vec![PATTERN.parse().unwrap()]);
    assert!(error.is_none());
    assert!(discovery.walk(0).is_empty());
    let job =
        |controller: &str| root.path().join("sys/fs/cgroup").join(controller).join("slurm/uid_7/job_42");
    fs::create_dir_all(job("memory")).unwrap();
    fs::create_dir_all(job("cpu,cpuacct")).unwrap();
    assert!(discovery.changed(), "the first directory of the pattern appeared");
    let found = discovery.walk(0);
    let job_42 = &found[Path::new("slurm/uid_7/job_42")];
    assert_eq!((job_42.captured.job.as_deref(), job_42.captured.uid), (Some("42"), Some(7)));
    assert_eq!(
        job_42.cgroups.directory(polymeter_proto::catalogue::Hierarchy::V1("cpuacct")),
        Some(job("cpu,cpuacct").as_path())
    );
    assert_eq!(job_42.cgroups.v2, None);
    while discovery.changed() {}
    fs::remove_dir(job("memory")).unwrap();
    fs::remove_dir(job("cpu,cpuacct")).unwrap();
    assert!(discovery.changed(), "the job went");
    assert!(discovery.walk(0).is_empty());
}

fn create(root: &Path, hierarchy: &str, number: u32) {
    let job = format!("{hierarchy}/slurm/uid_{number}/job_{number}");
    fs::create_dir_all(root.join("sys/fs/cgroup").join(job)).unwrap();
}

/// Returns true if a walk is due.
fn wait_for_change(discovery: &mut Discovery) -> bool {
    let long = Timespec { tv_sec: 60, tv_nsec: 0 };
    let descriptor = discovery.descriptor().unwrap();
    assert_eq!(poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&long)), Ok(1), "no event");
    discovery.changed()
}

#[test]
fn events_alone_lead_to_every_job() {
    const JOBS: u32 = 300;
    let (root, mounts) = machine();
    let (mut discovery, _) = Discovery::new(mounts, vec![PATTERN.parse().unwrap()]);
    let mut found = discovery.walk(0).clone();
    std::thread::scope(|scope| {
        // Nested directories appear while the walk is anywhere, and some are another one a moment later.
        scope.spawn(|| {
            for number in 1..=JOBS {
                for hierarchy in HIERARCHIES {
                    create(root.path(), hierarchy, number);
                    if number % 3 == 0 {
                        let user = format!("sys/fs/cgroup/{hierarchy}/slurm/uid_{number}");
                        fs::remove_dir_all(root.path().join(user)).unwrap();
                        create(root.path(), hierarchy, number);
                    }
                }
            }
        });
        while found.values().filter(|found| found.cgroups.directories().len() == HIERARCHIES.len()).count()
            < JOBS as usize
        {
            if wait_for_change(&mut discovery) {
                found = discovery.walk(0).clone();
            }
        }
    });
    assert_eq!(found.len(), JOBS as usize);
    // The directories that were created again are watched, too.
    while discovery.changed() {
        discovery.walk(0);
    }
    for number in 1..=JOBS {
        let user = format!("sys/fs/cgroup/memory/slurm/uid_{number}");
        fs::create_dir(root.path().join(user).join("job_0")).unwrap();
        assert!(discovery.changed(), "a job of user {number}");
    }
}

#[test]
fn an_existing_watch_is_not_added_again() {
    let (root, mounts) = machine();
    let (mut discovery, _) = Discovery::new(mounts, vec![PATTERN.parse().unwrap()]);
    for hierarchy in HIERARCHIES {
        create(root.path(), hierarchy, 1);
    }
    discovery.walk(0);
    assert_eq!(discovery.watches.additions, 9, "the roots, and two directories in each");
    for rescan in 0..3 * u64::from(WALK_RESCANS) {
        assert_eq!(found_by_rescan(&mut discovery, rescan), 1);
        assert_eq!(discovery.walk(rescan).len(), 1);
    }
    assert_eq!(discovery.watches.additions, 9);
    create(root.path(), "memory", 2);
    assert_eq!(found_by_rescan(&mut discovery, 0), 2);
    assert_eq!((discovery.watches.additions, discovery.watches.count()), (10, 10));
}

#[test]
fn lost_events_end_all_watches() {
    let (root, mounts) = machine();
    let (mut discovery, _) = Discovery::new(mounts, vec![PATTERN.parse().unwrap()]);
    create(root.path(), "memory", 1);
    assert_eq!(discovery.walk(0).len(), 1);
    let additions = discovery.watches.additions;
    let memory = root.path().join("sys/fs/cgroup/memory");
    let limit: usize =
        fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    for _ in 0..=limit / 2 {
        fs::write(memory.join("file"), "").unwrap();
        fs::remove_file(memory.join("file")).unwrap();
    }
    // The kernel has no room to report it.
    fs::remove_dir_all(memory.join("slurm/uid_1")).unwrap();
    fs::create_dir_all(memory.join("slurm/uid_1")).unwrap();
    assert!(discovery.changed());
    assert!(discovery.walk(0).is_empty());
    assert_eq!(discovery.watches.additions, 2 * additions);
    assert!(!discovery.changed());
    fs::create_dir(memory.join("slurm/uid_1/job_2")).unwrap();
    assert!(discovery.changed(), "a job in the directory that was created again");
}

#[test]
fn a_change_without_an_event_is_found_at_the_next_walk() {
    let (root, mounts) = machine();
    let (mut discovery, _) = Discovery::new(mounts, vec![PATTERN.parse().unwrap()]);
    create(root.path(), "memory", 1);
    assert_eq!(discovery.walk(0).len(), 1);
    discovery.watches.deafen();
    fs::create_dir(root.path().join("sys/fs/cgroup/memory/slurm/uid_1/job_2")).unwrap();
    for _ in 1..WALK_RESCANS {
        assert_eq!(found_by_rescan(&mut discovery, 0), 1);
    }
    assert_eq!(found_by_rescan(&mut discovery, 0), 2);
    fs::create_dir(root.path().join("sys/fs/cgroup/memory/slurm/uid_1/job_3")).unwrap();
    assert_eq!(found_by_rescan(&mut discovery, WALK_INTERVAL_NS - 1), 2);
    assert_eq!(found_by_rescan(&mut discovery, WALK_INTERVAL_NS), 3);
}

#[test]
fn every_rescan_walks_while_a_directory_is_not_watched() {
    for watches in [DirectoryWatches::with(None, WATCHES), DirectoryWatches::new(2).0] {
        let (root, mounts) = machine();
        let (mut discovery, _) = Discovery::new(mounts, vec![PATTERN.parse().unwrap()]);
        discovery.watches = watches;
        assert!(discovery.walk(0).is_empty());
        for number in 1..4 {
            create(root.path(), "unified", number);
            assert_eq!(found_by_rescan(&mut discovery, 0), number as usize);
        }
    }
}
