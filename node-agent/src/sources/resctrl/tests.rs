//! Tests of resctrl on a laid-out file system, whose operations are imitated: real text of several kernels.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use polymeter_proto::catalogue;
use polymeter_proto::series::Identifier;
use rustix::fs::{FlockOperation, flock};

use super::group::remove_left_behind;
use super::*;
use crate::cgroups::JobCgroups;
use crate::sources::kind::SourceFactory;
use crate::sources::process_list::ProcessList;
use crate::sources::slot::Unavailable;
use crate::sources::target::Target;
use crate::sources::unknown_lines::UnknownLines;

const SECOND: u64 = 1_000_000_000;

const MOUNTINFO: &str = "\
24 30 0:22 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw
60 24 0:41 / /sys/fs/resctrl rw,relatime shared:20 - resctrl resctrl rw
";

/// File system as the kernel shows it: a new directory has files, and each thread is checked.
#[derive(Debug, Default)]
struct StandIn {
    root: PathBuf,
    rmids: AtomicUsize,
    /// Threads that cannot be moved, with the reasons.
    refused: Mutex<BTreeMap<u32, Errno>>,
}

impl StandIn {
    fn mount(&self) -> PathBuf {
        self.root.join("sys/fs/resctrl")
    }
}

impl Operations for StandIn {
    fn create_group(&self, group: &Path) -> io::Result<()> {
        if !group.exists() && count(&self.mount().join(GROUPS)) >= self.rmids.load(Relaxed) {
            return Err(Errno::NOSPC.into());
        }
        fs::create_dir(group)?;
        fs::write(group.join("tasks"), "")?;
        fs::create_dir(group.join("mon_data"))?;
        domains(&self.mount()).into_iter().try_for_each(|domain| {
            let directory = group.join(format!("mon_data/mon_L3_{domain:02}"));
            fs::create_dir_all(&directory)?;
            EVENTS.iter().try_for_each(|event| fs::write(directory.join(event.name()), "0\n"))
        })
    }

    fn remove_group(&self, group: &Path) -> io::Result<()> {
        fs::remove_dir_all(group)
    }

    fn add_task(&self, group: &Path, thread: u32) -> io::Result<()> {
        if let Some(errno) = self.refused.lock().unwrap().get(&thread) {
            return Err((*errno).into());
        }
        let tasks = fs::read_to_string(group.join("tasks"))?;
        fs::write(group.join("tasks"), format!("{tasks}{thread}\n"))
    }
}

struct Node {
    _directory: tempfile::TempDir,
    file_system: &'static StandIn,
    mounts: Mounts,
    target: Target,
    wanted: Vec<Definition>,
}

impl Node {
    fn new(features: &str, domains: &[u32]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let mount = root.join("sys/fs/resctrl");
        for domain in domains {
            fs::create_dir_all(mount.join(format!("mon_data/mon_L3_{domain:02}"))).unwrap();
        }
        for directory in ["info/L3_MON", "info/L3", GROUPS] {
            fs::create_dir_all(mount.join(directory)).unwrap();
        }
        fs::write(mount.join("info/L3_MON/mon_features"), features).unwrap();
        fs::write(mount.join("info/L3_MON/num_rmids"), "224\n").unwrap();
        fs::write(mount.join("tasks"), "1\n").unwrap();
        fs::create_dir_all(root.join("proc/self")).unwrap();
        fs::write(root.join("proc/self/mountinfo"), MOUNTINFO).unwrap();
        fs::create_dir_all(root.join("job")).unwrap();
        let file_system = StandIn { root: root.to_owned(), rmids: AtomicUsize::new(4), ..StandIn::default() };
        let mounts = Mounts { root: root.to_owned(), proc: root.join("proc"), ..Mounts::default() };
        let target = Target::Cgroups(JobCgroups { v2: Some(root.join("job")), ..JobCgroups::default() });
        let wanted = ["resctrl.l3.occupancy", "resctrl.memory.total.bytes", "resctrl.memory.local.bytes"];
        let wanted = wanted.map(|name| catalogue::find(name).unwrap()).into();
        let file_system = Box::leak(Box::new(file_system));
        let node = Self { _directory: directory, file_system, mounts, target, wanted };
        node.run(&[(10, &[10, 11]), (20, &[20])]);
        node
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.mounts.root.join(relative)
    }

    fn group(&self, job: &str) -> PathBuf {
        self.file_system.mount().join(GROUPS).join(name_of(job))
    }

    fn run(&self, processes: &[(u32, &[u32])]) {
        let pids: String = processes.iter().map(|(pid, _)| format!("{pid}\n")).collect();
        fs::write(self.path("job/cgroup.procs"), pids).unwrap();
        for (pid, threads) in processes {
            for thread in *threads {
                fs::create_dir_all(self.path(&format!("proc/{pid}/task/{thread}"))).unwrap();
            }
        }
    }

    fn count(&self, job: &str, domain: u32, texts: [&str; 3]) {
        let directory = self.group(job).join(format!("mon_data/mon_L3_{domain:02}"));
        for (event, text) in EVENTS.iter().zip(texts) {
            fs::write(directory.join(event.name()), format!("{text}\n")).unwrap();
        }
    }

    fn open(&self, job: &str) -> (Vec<super::super::target::Opened>, Vec<Unavailable>) {
        let job = Identifier::try_from(job).unwrap();
        let host = SourceFactory { job: Some(&job), ..SourceFactory::of(&self.mounts) };
        let request = OpenRequest { host: &host, target: &self.target, wanted: self.wanted.clone() };
        let mut opening = Opening::new(None);
        opening.open(&ResctrlKind { operations: self.file_system }, &request);
        opening.finish()
    }

    /// Opens the source of a job without a thread of its own.
    fn source(&self, job: &str) -> ResctrlSource {
        let mount = find_mount(&self.mounts).unwrap();
        let mut opening = Opening::new(None);
        let wanted = counted(&mount, &self.wanted, &mut opening);
        let domains = domains(&mount);
        let (slots, values) = slots(&wanted, &domains).unzip();
        let (job, proc) = (job.to_owned(), self.mounts.proc.clone());
        let processes = ProcessList::of(&self.target).unwrap();
        let group = Group::open(&self.group(&job), self.file_system).unwrap();
        let unknown_features = UnknownLines::default();
        let monitored = Monitored { mount, proc, job, processes, slots, values, domains, unknown_features };
        ResctrlSource::new(monitored, group)
    }

    fn tasks(&self, job: &str) -> BTreeSet<u32> {
        text::tasks(&fs::read_to_string(self.group(job).join("tasks")).unwrap())
    }
}

const FEATURES: &str = "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n";

fn read(source: &mut ResctrlSource, second: u64) -> (Outcome, Vec<Option<u64>>) {
    let mut reading = Reading::absent(source.slots().len());
    let outcome = source.read_at(second * SECOND, &mut reading);
    (outcome, reading.iter().collect())
}

fn values(source: &mut ResctrlSource, second: u64) -> Vec<Option<u64>> {
    let (outcome, values) = read(source, second);
    assert_eq!(outcome, Outcome::Read);
    values
}

fn reasons(unavailable: &[Unavailable]) -> BTreeSet<String> {
    unavailable.iter().map(|unavailable| unavailable.reason.clone()).collect()
}

#[test]
fn a_job_has_a_group_with_its_threads_from_open_to_drop() {
    let node = Node::new(FEATURES, &[0, 1]);
    let mut source = node.source("42/a");
    assert!(node.group("42/a").ends_with("sys/fs/resctrl/mon_groups/polymeter-42%2fa"));
    let labels: Vec<String> = source.slots().iter().map(|slot| slot.labels.to_string()).collect();
    assert_eq!(labels, ["domain=0", "domain=1", "domain=0", "domain=1", "domain=0", "domain=1"]);
    // A reused RMID does not count from 0.
    node.count("42/a", 0, ["4096", "7000000", "5000000"]);
    node.count("42/a", 1, ["8192", "100", "50"]);
    let (zero, some) = (Some(0), Some);
    assert_eq!(values(&mut source, 1), [some(4096), some(8192), zero, zero, zero, zero]);
    assert_eq!(node.tasks("42/a"), [10, 11, 20].into());
    node.count("42/a", 0, ["0", "7000640", "5000064"]);
    node.count("42/a", 1, ["Unavailable", "Unassigned", "Error"]);
    assert_eq!(values(&mut source, 2), [zero, None, some(640), None, some(64), None]);
    drop(source);
    assert!(!node.group("42/a").exists());
}

#[test]
fn threads_that_come_from_elsewhere_are_found_later() {
    let node = Node::new(FEATURES, &[0]);
    let mut source = node.source("1");
    values(&mut source, 1);
    node.run(&[(10, &[10, 11, 12]), (30, &[30])]);
    node.file_system.refused.lock().unwrap().insert(12, Errno::SRCH);
    let mut reading = Reading::absent(3);
    source.read_at(SECOND + SECOND / 2, &mut reading);
    assert_eq!(node.tasks("1"), [10, 11, 20].into(), "no second search within a second");
    assert_eq!(values(&mut source, 2).len(), 3, "one that has ended is no failure");
    assert_eq!(node.tasks("1"), [10, 11, 20, 30].into());
    assert!(source.longest_gap_ns().is_some(), "also with long periods");
    // The last counts of a job are read after its end.
    fs::remove_dir_all(node.path("job")).unwrap();
    node.count("1", 0, ["0", "9", "5"]);
    assert_eq!(values(&mut source, 3), [Some(0), Some(9), Some(5)]);
}

#[test]
fn counts_continue_when_sources_are_opened_anew() {
    let node = Node::new(FEATURES, &[0]);
    let mut source = node.source("1");
    node.count("1", 0, ["0", "1000", "0"]);
    values(&mut source, 1);
    node.count("1", 0, ["0", "1500", "0"]);
    let mut next = node.source("1");
    drop(source);
    assert!(node.group("1").exists());
    assert_eq!(values(&mut next, 2)[1], Some(500));
    // Something else removes the group: its successor has another RMID.
    fs::remove_dir_all(node.group("1")).unwrap();
    assert_eq!(values(&mut next, 3)[1], Some(500));
    assert_eq!(node.tasks("1"), [10, 11, 20].into());
    node.count("1", 0, ["0", "30", "0"]);
    assert_eq!(values(&mut next, 4)[1], Some(530));
}

#[test]
fn a_domain_may_go_offline_and_come_back() {
    let node = Node::new(FEATURES, &[0, 1]);
    let mut source = node.source("1");
    node.count("1", 1, ["1", "5000", "0"]);
    values(&mut source, 1);
    node.count("1", 1, ["1", "9000", "0"]);
    assert_eq!(values(&mut source, 2)[3], Some(4000));
    let (of_all, of_group) =
        (node.path("sys/fs/resctrl/mon_data/mon_L3_01"), node.group("1").join("mon_data/mon_L3_01"));
    fs::remove_dir_all(&of_all).unwrap();
    fs::remove_dir_all(&of_group).unwrap();
    assert_eq!(values(&mut source, 3), [Some(0), None, Some(0), None, Some(0), None]);
    for directory in [&of_all, &of_group] {
        fs::create_dir_all(directory).unwrap();
    }
    node.count("1", 1, ["1", "20", "0"]);
    assert_eq!(values(&mut source, 4)[3], Some(4000));
    node.count("1", 1, ["1", "25", "0"]);
    assert_eq!(values(&mut source, 5)[3], Some(4005));
    // One that was offline when the source was opened.
    fs::create_dir_all(node.path("sys/fs/resctrl/mon_data/mon_L3_02")).unwrap();
    assert_eq!(read(&mut source, 6).0, Outcome::Changed);
    assert_eq!(node.source("1").slots().len(), 9);
}

#[test]
fn a_domain_with_sub_numa_clustering_is_one_domain() {
    let node = Node::new(FEATURES, &[0]);
    for part in ["mon_sub_L3_00", "mon_sub_L3_01"] {
        fs::create_dir_all(node.path(&format!("sys/fs/resctrl/mon_data/mon_L3_00/{part}"))).unwrap();
    }
    fs::create_dir_all(node.path("sys/fs/resctrl/mon_data/mon_PERF_PKG_00")).unwrap();
    assert_eq!(node.source("1").slots().len(), 3);
}

#[test]
fn groups_without_an_agent_are_removed() {
    let node = Node::new(FEATURES, &[0]);
    let groups = node.file_system.mount().join(GROUPS);
    for name in ["polymeter-1", "polymeter-2", "other"] {
        fs::create_dir(groups.join(name)).unwrap();
    }
    let agent = fs::File::open(groups.join("polymeter-2")).unwrap();
    flock(&agent, FlockOperation::LockExclusive).unwrap();
    let source = node.source("3");
    assert_eq!(remove_left_behind(&node.file_system.mount(), node.file_system), 1);
    assert!(!groups.join("polymeter-1").exists() && groups.join("other").exists());
    let reason = reasons(&node.open("2").1);
    assert_eq!(reason, ["the monitoring group polymeter-2 belongs to another agent".to_owned()].into());
    // The agent is killed.
    drop(agent);
    assert_eq!(remove_left_behind(&node.file_system.mount(), node.file_system), 1);
    assert!(node.group("3").exists(), "the agent's own");
    drop(source);
    assert_eq!(remove_left_behind(&node.file_system.mount(), node.file_system), 0);
    // A group of the same job that was left behind is taken over.
    fs::create_dir(groups.join("polymeter-4")).unwrap();
    drop(node.source("4"));
    assert!(!groups.join("polymeter-4").exists());
}

#[test]
fn rmids_are_limited() {
    let node = Node::new(FEATURES, &[0]);
    node.file_system.rmids.store(1, Relaxed);
    let source = node.source("1");
    let (opened, unavailable) = node.open("2");
    let expected = "all 224 RMIDs of the processor are in use (info/L3_MON/num_rmids); sample fewer jobs, or remove \
                    monitoring groups";
    assert_eq!((unavailable.len(), reasons(&unavailable)), (3, [expected.to_owned()].into()));
    assert_eq!(opened.iter().map(|opened| opened.name.as_str()).collect::<Vec<_>>(), ["resctrl/room"]);
    let mount = node.file_system.mount();
    let watch = RoomWatch::new(&mount, 5 * SECOND);
    assert_eq!(watch.look(6 * SECOND), Outcome::Read);
    assert_eq!(watch.look(5 * SECOND + RETRY_NS), Outcome::Changed);
    drop(source);
    assert_eq!(watch.look(6 * SECOND), Outcome::Changed, "a job has ended");
    let opened = node.open("2").0;
    assert_eq!(opened.iter().map(|opened| opened.name.as_str()).collect::<Vec<_>>(), ["resctrl"]);
}

#[test]
fn threads_of_other_control_groups_stay_there() {
    let node = Node::new(FEATURES, &[0]);
    fs::create_dir_all(node.path("sys/fs/resctrl/latency/mon_groups")).unwrap();
    fs::write(node.path("sys/fs/resctrl/latency/tasks"), "10\n11\n").unwrap();
    node.file_system.refused.lock().unwrap().extend([(10, Errno::INVAL), (11, Errno::INVAL)]);
    let mut source = node.source("1");
    assert_eq!(values(&mut source, 1).len(), 3);
    assert_eq!(node.tasks("1"), [20].into());
    assert!(source.has_warned());
    fs::write(node.path("sys/fs/resctrl/latency/tasks"), "10\n11\n20\n").unwrap();
    let expected = "the job's processes belong to the control group latency of resctrl; only those of the default one are monitored";
    assert_eq!(reasons(&node.open("2").1), [expected.to_owned()].into());
    assert!(!node.group("2").exists());
    node.file_system.refused.lock().unwrap().insert(20, Errno::INVAL);
    fs::write(node.group("1").join("tasks"), "").unwrap();
    assert_eq!(read(&mut source, 3), (Outcome::Retry(Errno::INVAL), vec![None; 3]));
}

#[test]
fn reasons_name_what_is_missing() {
    let node = Node::new("llc_occupancy\n", &[0]);
    let (opened, unavailable) = node.open("1");
    let expected = "the processor does not count it; info/L3_MON/mon_features: llc_occupancy";
    assert_eq!((opened.len(), reasons(&unavailable)), (1, [expected.to_owned()].into()));
    assert_eq!(unavailable.len(), 2);
    drop(opened);
    fs::remove_dir_all(node.path("sys/fs/resctrl/info/L3_MON")).unwrap();
    let expected = "resctrl of this processor cannot monitor: it has no info/L3_MON";
    assert_eq!(reasons(&node.open("1").1), [expected.to_owned()].into());
    fs::write(node.path("proc/self/mountinfo"), "24 30 0:22 / /sys rw - sysfs sysfs rw\n").unwrap();
    let (opened, unavailable) = node.open("1");
    let expected = "resctrl is not mounted; mount it with `mount -t resctrl resctrl /sys/fs/resctrl`";
    assert_eq!(reasons(&unavailable), [expected.to_owned()].into());
    assert_eq!(opened.iter().map(|opened| opened.name.as_str()).collect::<Vec<_>>(), ["resctrl/mounts"]);
    fs::remove_dir_all(node.path("sys/fs/resctrl")).unwrap();
    let expected = "the processor or the kernel has no resctrl (Intel RDT, AMD QoS, Arm MPAM)";
    assert_eq!(reasons(&node.open("1").1), [expected.to_owned()].into());
    let elsewhere = MOUNTINFO.replace("/sys/fs/resctrl", "/mnt/a\\040b");
    fs::write(node.path("proc/self/mountinfo"), elsewhere).unwrap();
    assert_eq!(find_mount(&node.mounts).unwrap(), node.path("mnt/a b"));
}
