//! The waits of the processes of a job for a CPU, compared with those that the kernel counts for each
//! process.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use polymeter_agent::cgroups::JobCgroups;
use polymeter_agent::sources::{Opened, Target, follow_created_cgroups, online_cpus};
use polymeter_test_harness::{skip, tests};

use crate::support::cgroup::{Cgroup, remove};
use crate::support::process::{Process, numbers, wait_until};
use crate::support::sources::{counted, counted_target, value, values};

tests![
    // The processes of the tests take the CPUs from each other.
    exclusive processes_on_one_cpu_wait_for_each_other,
    exclusive waits_in_the_queues_of_several_cpus_are_added_up,
    exclusive an_idle_job_does_not_wait,
    exclusive jobs_and_steps_are_counted_at_the_same_time,
    exclusive jobs_of_version_1_are_counted,
    exclusive a_job_in_a_new_cgroup_continues,
];

const RUNQUEUE: &str = "runqueue.*";

/// CPU time for which each process computes. Processes on one CPU wait as long for each other.
const WORK_NS: u64 = 300_000_000;

/// What was counted: the time, the number, and the number up to each limit.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Waits {
    time_ns: u64,
    count: u64,
    buckets: Vec<u64>,
}

fn read(opened: &mut Opened) -> Waits {
    let values = values(opened);
    let waits = Waits {
        time_ns: value(&values, "runqueue.wait.time"),
        count: value(&values, "runqueue.wait.count"),
        buckets: values
            .iter()
            .filter(|(name, _)| name.starts_with("runqueue.wait.bucket{le="))
            .map(|(_, value)| *value)
            .collect(),
    };
    assert_eq!(waits.buckets.len(), 11, "{values:?}");
    // Each limit includes those below it.
    assert!(waits.buckets.is_sorted() && waits.buckets[10] <= waits.count, "{waits:?}");
    waits
}

struct Workers(Vec<Process>);

impl Workers {
    fn start(cgroup: &Path, count: usize) -> Self {
        let mut workers: Vec<Process> = (0..count).map(|_| Process::start("worker", cgroup)).collect();
        workers.iter_mut().for_each(|worker| assert_eq!(worker.answer(), "ready"));
        Self(workers)
    }

    /// Lets all of them compute. Returns the sum of their waits and its number.
    fn work(&mut self, cpu: &str) -> [u64; 2] {
        self.0.iter_mut().for_each(|worker| worker.tell(&format!("{cpu} {WORK_NS}")));
        let answers = self.0.iter_mut().map(|worker| numbers::<2>(&worker.answer()));
        answers.fold([0, 0], |sum, [time, count]| [sum[0] + time as u64, sum[1] + count as u64])
    }

    fn end(self) {
        self.0.into_iter().for_each(Process::end);
    }
}

/// Checks what was counted against the sum of the kernel. A process waits a little before and after it
/// compares, too; and what the first of its waits was in the queue of another CPU is unknown.
fn check(waits: &Waits, [time_ns, count]: [u64; 2]) {
    assert!(time_ns > WORK_NS / 10, "the processes did not wait for each other");
    let share = waits.time_ns as f64 / time_ns as f64;
    assert!((0.8..1.25).contains(&share), "{waits:?}, of the kernel {time_ns} ns, {count}");
    assert!(waits.count >= count * 9 / 10, "{waits:?}, of the kernel {time_ns} ns, {count}");
    // No wait of a time slice is as short as the first limit, or as long as the time of all.
    assert!(waits.buckets[0] < waits.count, "{waits:?}");
}

fn first_cpu() -> String {
    online_cpus(Path::new("/")).unwrap()[0].to_string()
}

fn processes_on_one_cpu_wait_for_each_other() {
    let job = Cgroup::create();
    let mut source = counted(RUNQUEUE, &job.0);
    assert_eq!(read(&mut source), Waits { buckets: vec![0; 11], ..Waits::default() });
    let mut workers = Workers::start(&job.0, 2);
    let expected = workers.work(&first_cpu());
    let waits = read(&mut source);
    check(&waits, expected);
    // A second source of the same job begins at 0, and counts the same.
    let mut second = counted(RUNQUEUE, &job.0);
    assert!(read(&mut second).time_ns < WORK_NS / 2);
    let before = read(&mut source);
    let expected = workers.work(&first_cpu());
    let (after, of_second) = (read(&mut source), read(&mut second));
    check(&of_second, expected);
    let increase = after.time_ns - before.time_ns;
    assert!(increase.abs_diff(of_second.time_ns) < WORK_NS / 2, "{increase} {of_second:?}");
    // The job continues to be counted when one of them is closed.
    drop(source);
    let expected = workers.work(&first_cpu());
    let last = read(&mut second);
    check(
        &Waits { time_ns: last.time_ns - of_second.time_ns, count: last.count - of_second.count, ..last },
        expected,
    );
    workers.end();
}

fn waits_in_the_queues_of_several_cpus_are_added_up() {
    let job = Cgroup::create();
    let mut source = counted(RUNQUEUE, &job.0);
    let cpus = online_cpus(Path::new("/")).unwrap().len();
    // One process more than CPUs, so that the scheduler moves those that wait.
    let mut workers = Workers::start(&job.0, cpus + 1);
    let expected = workers.work("any");
    check(&read(&mut source), expected);
    workers.end();
}

fn an_idle_job_does_not_wait() {
    let (job, other) = (Cgroup::create(), Cgroup::create());
    let mut idle = Workers::start(&other.0, 1);
    let stat = format!("/proc/{}/stat", idle.0[0].child.id());
    wait_until(|| fs::read_to_string(&stat).unwrap().contains(") S "));
    let mut source = counted(RUNQUEUE, &other.0);
    let mut workers = Workers::start(&job.0, 2);
    workers.work(&first_cpu());
    assert_eq!(read(&mut source), Waits { buckets: vec![0; 11], ..Waits::default() });
    workers.end();
    // It is counted as soon as it computes: here against another process of no counted job.
    let mut workers = Workers::start(&job.0, 1);
    workers.0[0].tell(&format!("{} {WORK_NS}", first_cpu()));
    let expected = idle.work(&first_cpu());
    check(&read(&mut source), expected);
    workers.0[0].answer();
    workers.end();
    idle.end();
}

fn jobs_and_steps_are_counted_at_the_same_time() {
    let job = Cgroup::create();
    let step = Cgroup(job.0.join("step"));
    fs::create_dir(&step.0).unwrap();
    let deep = Cgroup(step.0.join("a"));
    fs::create_dir(&deep.0).unwrap();
    let (mut of_job, mut of_step) = (counted(RUNQUEUE, &job.0), counted(RUNQUEUE, &step.0));
    let (mut in_job, mut in_step) = (Workers::start(&job.0, 1), Workers::start(&deep.0, 1));
    in_job.0[0].tell(&format!("{} {WORK_NS}", first_cpu()));
    let by_step = in_step.work(&first_cpu());
    let by_job = numbers::<2>(&in_job.0[0].answer()).map(|number| number as u64);
    check(&read(&mut of_step), by_step);
    check(&read(&mut of_job), [by_step[0] + by_job[0], by_step[1] + by_job[1]]);
    in_job.end();
    in_step.end();
    drop(deep);
    drop(step);
}

fn jobs_of_version_1_are_counted() {
    let root = Path::new("/sys/fs/cgroup/cpuacct");
    if !rustix::process::geteuid().is_root() || !root.join("cgroup.procs").exists() {
        skip("cgroup1", "cgroups of version 1 with cpuacct are not mounted");
    }
    let job = Cgroup(root.join(format!("polymeter-ebpf-{}", std::process::id())));
    fs::create_dir(&job.0).unwrap();
    let v1: BTreeMap<String, PathBuf> = BTreeMap::from([("cpuacct".to_owned(), job.0.clone())]);
    let mut source = counted_target(RUNQUEUE, &Target::Cgroups(JobCgroups { v1, ..JobCgroups::default() }));
    let mut workers = Workers::start(&job.0, 2);
    let expected = workers.work(&first_cpu());
    check(&read(&mut source), expected);
    workers.end();
}

fn a_job_in_a_new_cgroup_continues() {
    let job = Cgroup::create();
    let mut source = counted(RUNQUEUE, &job.0);
    let mut workers = Workers::start(&job.0, 2);
    workers.work(&first_cpu());
    workers.end();
    let before = read(&mut source);
    remove(&job.0);
    follow_created_cgroups();
    assert_eq!(read(&mut source), before);
    fs::create_dir(&job.0).unwrap();
    follow_created_cgroups();
    let mut workers = Workers::start(&job.0, 2);
    let expected = workers.work(&first_cpu());
    let after = read(&mut source);
    check(
        &Waits { time_ns: after.time_ns - before.time_ns, count: after.count - before.count, ..after },
        expected,
    );
    workers.end();
}
