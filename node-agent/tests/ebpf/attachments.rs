//! Programs on a cgroup, when sources are closed, agents are killed, and cgroups are created again.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};

use polymeter_agent::sources::follow_created_cgroups;
use polymeter_test_harness::tests;

use crate::support::cgroup::{Cgroup, remove};
use crate::support::links::{attached, programs};
use crate::support::process::{Process, wait_until};
use crate::support::sources::{counted, read_network};
use crate::support::talker::{Talker, bound};

tests![
    // A process that another test starts has the links for a moment, until it is another program.
    exclusive sources_on_one_cgroup_are_independent,
    exclusive nothing_stays_attached_after_a_kill,
    exclusive a_cgroup_that_is_created_again_continues,
    exclusive programs_for_all_jobs_end_after_a_kill,
];

const NETWORK: &str = "network.*";

fn sources_on_one_cgroup_are_independent() {
    let job = Cgroup::create();
    let mut first = counted(NETWORK, &job.0);
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let here = bound(loopback);
    let mut talker = Talker::start(&job.0, loopback);
    talker.send(&here, 1, 72);
    let mut second = counted(NETWORK, &job.0);
    assert_eq!(attached(&job.0), [2, 2]);
    talker.send(&here, 1, 72);
    assert_eq!((read_network(&mut first), read_network(&mut second)), ([0, 0, 200, 2], [0, 0, 100, 1]));
    drop(first);
    assert_eq!(attached(&job.0), [1, 1]);
    talker.send(&here, 1, 72);
    assert_eq!(read_network(&mut second), [0, 0, 200, 2]);
    drop(second);
    assert_eq!(attached(&job.0), [0, 0]);
    talker.process.end();
}

fn nothing_stays_attached_after_a_kill() {
    let job = Cgroup::create();
    let mut source = counted(NETWORK, &job.0);
    let mut agent = Process::start("agent", &job.0);
    agent.tell(NETWORK);
    assert_eq!(agent.answer(), "open");
    assert_eq!(attached(&job.0), [2, 2]);
    // SIGKILL.
    agent.child.kill().unwrap();
    agent.child.wait().unwrap();
    assert_eq!(attached(&job.0), [1, 1]);
    assert_eq!(read_network(&mut source), [0; 4]);
}

fn a_cgroup_that_is_created_again_continues() {
    let job = Cgroup::create();
    let mut source = counted(NETWORK, &job.0);
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let here = bound(loopback);
    let mut talker = Talker::start(&job.0, loopback);
    talker.send(&here, 2, 72);
    follow_created_cgroups();
    assert_eq!((attached(&job.0), read_network(&mut source)), ([1, 1], [0, 0, 200, 2]));
    talker.process.end();
    remove(&job.0);
    // What the job has sent so far remains known.
    follow_created_cgroups();
    assert_eq!(read_network(&mut source), [0, 0, 200, 2]);
    fs::create_dir(&job.0).unwrap();
    assert_eq!(attached(&job.0), [0, 0]);
    follow_created_cgroups();
    assert_eq!((attached(&job.0), read_network(&mut source)), ([1, 1], [0, 0, 200, 2]));
    let mut talker = Talker::start(&job.0, loopback);
    talker.send(&here, 1, 72);
    assert_eq!(read_network(&mut source), [0, 0, 300, 3]);
    // Nothing changes while the cgroup stays.
    follow_created_cgroups();
    talker.send(&here, 1, 72);
    assert_eq!((attached(&job.0), read_network(&mut source)), ([1, 1], [0, 0, 400, 4]));
    drop(source);
    assert_eq!(attached(&job.0), [0, 0]);
    talker.process.end();
}

fn programs_for_all_jobs_end_after_a_kill() {
    let job = Cgroup::create();
    for (metrics, names) in
        [("runqueue.*", &["polymeter_wait"][..]), ("vfs.*", &["polymeter_enter", "polymeter_leave"])]
    {
        drop(counted(metrics, &job.0));
        let before = ids(names);
        let mut agent = Process::start("agent", &job.0);
        agent.tell(metrics);
        assert_eq!(agent.answer(), "open");
        let new: Vec<u32> = ids(names).into_iter().filter(|id| !before.contains(id)).collect();
        assert!(new.len() >= names.len(), "{new:?}");
        // SIGKILL.
        agent.child.kill().unwrap();
        agent.child.wait().unwrap();
        wait_until(|| new.iter().all(|id| !ids(names).contains(id)));
    }
}

/// Ids of the programs in the kernel with these names. Ids are never used again.
fn ids(names: &[&str]) -> Vec<u32> {
    programs().into_iter().filter(|(_, name)| names.contains(&name.as_str())).map(|(id, _)| id).collect()
}
