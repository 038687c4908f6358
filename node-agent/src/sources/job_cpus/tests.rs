//! Tests of the CPUs of jobs, on a laid-out `/proc` and cgroup.

use std::fs;

use polymeter_proto::catalogue;

use super::*;
use crate::cgroups::JobCgroups;

const SECOND: u64 = 1_000_000_000;

/// A laid-out job with processes 10 and 20; 10 has the threads 10 and 11.
struct Laid {
    directory: tempfile::TempDir,
}

impl Laid {
    fn new() -> Self {
        let laid = Self { directory: tempfile::tempdir().unwrap() };
        fs::create_dir_all(laid.path("v2/slice/job_1")).unwrap();
        fs::write(laid.path("v2/slice/job_1/cgroup.procs"), "10\n20\n").unwrap();
        laid
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.directory.path().join(relative)
    }

    fn thread(&self, (pid, tid): (u32, u32), started: u64, ticks: u64, cpu: u32, affinity: &str) {
        let directory = self.path(&format!("proc/{pid}/task/{tid}"));
        fs::create_dir_all(&directory).unwrap();
        let line = format!(
            "{tid} (a) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 {started} 0 0 0 1 1 0 0 0 0 0 0 0 0 0 0 17 {cpu} 0 0\n"
        );
        fs::write(directory.join("stat"), line).unwrap();
        let status =
            format!("Name:\ta\nCpus_allowed:\tff\nCpus_allowed_list:\t{affinity}\nMems_allowed:\t1\n");
        fs::write(directory.join("status"), status).unwrap();
    }

    /// Writes this text in place of the lines of the threads 10 and 20.
    fn damage(&self, text: &str) {
        for thread in ["proc/10/task/10", "proc/20/task/20"] {
            fs::write(self.path(thread).join("stat"), text).unwrap();
        }
    }

    fn source(&self, names: &[&str]) -> JobCpus {
        let cgroups = JobCgroups { v2: Some(self.path("v2/slice/job_1")), ..JobCgroups::default() };
        let target = Target::Cgroups(cgroups);
        let wanted: Vec<Definition> = names.iter().map(|name| catalogue::find(name).unwrap()).collect();
        let cpuset = Cpuset::of(&target, Some(&self.path("v2")));
        let processes = ProcessList::of(&target).unwrap();
        JobCpus::new(&self.path("proc"), processes, cpuset, slots(&wanted, &[0, 1, 2]))
    }
}

fn read(source: &mut JobCpus, now_ns: u64) -> Vec<Option<u64>> {
    let mut reading = Reading::absent(source.slots().len());
    assert_eq!(source.read_at(now_ns, &mut reading), Outcome::Read);
    reading.iter().collect()
}

#[test]
fn allowed_cpus_are_those_of_the_nearest_cpuset() {
    let laid = Laid::new();
    laid.thread((10, 10), 1, 0, 0, "0-1");
    laid.thread((20, 20), 1, 0, 0, "1,5");
    let mut source = laid.source(&["cpu.allowed"]);
    assert_eq!(read(&mut source, SECOND), [Some(3)], "without cpusets the affinities count");
    fs::write(laid.path("v2/cpuset.cpus.effective"), "0-63\n").unwrap();
    assert_eq!(read(&mut source, SECOND), [Some(64)]);
    fs::write(laid.path("v2/slice/job_1/cpuset.cpus.effective"), "0-3,8\n").unwrap();
    assert_eq!(read(&mut source, SECOND), [Some(5)]);
    fs::write(laid.path("v2/slice/job_1/cpuset.cpus.effective"), "\n").unwrap();
    assert_eq!(read(&mut source, SECOND), [Some(64)], "an empty list means those of the parent");
}

#[test]
fn allowed_cpus_of_version_1_are_those_of_its_cpuset() {
    let laid = Laid::new();
    let directory = laid.path("cpuset/job_1");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("cpuset.cpus"), "2-3\n").unwrap();
    let cgroups =
        JobCgroups { v1: [("cpuset".to_owned(), directory.clone())].into(), ..JobCgroups::default() };
    let cpuset = Cpuset::of(&Target::Cgroups(cgroups), None);
    assert_eq!(cpuset.count(), Some(2));
    fs::write(directory.join("cpuset.effective_cpus"), "2\n").unwrap();
    assert_eq!(cpuset.count(), Some(1), "a CPU is offline");
    assert_eq!(Cpuset::default().count(), None);
}

#[test]
fn only_busy_threads_are_bound() {
    let laid = Laid::new();
    let names = ["cpu.bound", "cpu.threads.busy", "cpu.estimated.per_cpu"];
    let mut source = laid.source(&names);
    laid.thread((10, 10), 1, 500, 0, "0-7");
    laid.thread((10, 11), 1, 100, 1, "1");
    laid.thread((20, 20), 1, 7, 2, "2");
    let nothing = [None, None, Some(0), Some(0), Some(0)];
    assert_eq!(
        read(&mut source, SECOND),
        nothing,
        "time from before the first reading is not of this job's sampling"
    );
    laid.thread((10, 11), 1, 101, 1, "1");
    assert_eq!(read(&mut source, SECOND + SHORTEST.as_nanos() - 1), nothing, "the last reading is recent");
    // In 10 s the threads 11 and 20 were busy; thread 10 used one tick, less than 1 %.
    laid.thread((10, 10), 1, 501, 0, "0-7");
    laid.thread((10, 11), 1, 1_100, 1, "1");
    laid.thread((20, 20), 1, 507, 2, "1-2");
    let tick = crate::sources::process_files::TICK_NS;
    let expected = [Some(2), Some(2), Some(tick), Some(1_000 * tick), Some(500 * tick)];
    assert_eq!(read(&mut source, 11 * SECOND), expected);
    // The number of thread 11 is another thread's now, which began since.
    laid.thread((10, 11), 9, 30, 0, "0-1");
    let expected = [Some(2), Some(1), Some(31 * tick), Some(1_000 * tick), Some(500 * tick)];
    assert_eq!(read(&mut source, 12 * SECOND), expected);
    fs::remove_dir_all(laid.path("v2/slice/job_1")).unwrap();
    let mut reading = Reading::absent(5);
    assert_eq!(source.read_at(13 * SECOND, &mut reading), Outcome::Gone);
}

#[test]
fn a_thread_that_cannot_be_read_for_a_moment_is_not_counted_from_0() {
    let laid = Laid::new();
    let mut source = laid.source(&["cpu.estimated.per_cpu"]);
    let tick = crate::sources::process_files::TICK_NS;
    laid.thread((10, 10), 1, 200, 1, "0-1");
    laid.thread((20, 20), 1, 200, 1, "0-1");
    // The first one is known, the other never was.
    fs::write(laid.path("proc/20/task/20/stat"), "").unwrap();
    assert_eq!(read(&mut source, SECOND), [Some(0), Some(0), Some(0)]);
    for (second, text) in (2..).zip(["", "x", &"x".repeat(1 << 20), "20 (a) S 1"]) {
        laid.damage(text);
        assert_eq!(read(&mut source, second * SECOND), [Some(0), Some(0), Some(0)], "{text:.20}");
    }
    laid.thread((10, 10), 1, 230, 1, "0-1");
    laid.thread((20, 20), 1, 230, 1, "0-1");
    assert_eq!(
        read(&mut source, 10 * SECOND),
        [Some(0), Some(30 * tick), Some(0)],
        "the growth of the first"
    );
    laid.thread((20, 20), 1, 250, 1, "0-1");
    assert_eq!(read(&mut source, 11 * SECOND), [Some(0), Some(50 * tick), Some(0)], "both are known now");
    // Another thread with a number that was unreadable counts from 0, since it has begun meanwhile.
    laid.damage("");
    assert_eq!(read(&mut source, 12 * SECOND), [Some(0), Some(50 * tick), Some(0)]);
    laid.thread((10, 10), 9, 7, 0, "0-1");
    laid.thread((20, 20), 1, 250, 1, "0-1");
    assert_eq!(read(&mut source, 13 * SECOND), [Some(7 * tick), Some(50 * tick), Some(0)]);
}

#[test]
fn affinities_of_several_kernels() {
    // Linux 3.10 and 6.18 differ in the lines around it.
    let old = b"Name:\tsh\nSigCgt:\t0000000000010002\nSeccomp:\t0\nCpus_allowed:\tffff,ffffffff\nCpus_allowed_list:\t0-47\nMems_allowed:\t3\n";
    assert_eq!(affinity(old).map(|cpus| cpus.len()), Some(48));
    let new = b"Umask:\t0022\nSpeculation_Store_Bypass:\tvulnerable\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1\nMems_allowed_list:\t0\nx86_Thread_features:\t\n";
    assert_eq!(affinity(new), Some(vec![0, 1]));
    for wrong in [
        &b""[..],
        b"Cpus_allowed_list:\t\n",
        b"Cpus_allowed_list:\t\xff\n",
        b"Name:\tCpus_allowed_list:\t0\n",
    ] {
        assert_eq!(affinity(wrong), None);
    }
}
