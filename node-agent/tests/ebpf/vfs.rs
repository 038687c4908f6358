//! Operations of the processes of a job on files, by file system.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use polymeter_agent::sources::Opened;
use polymeter_test_harness::tests;

use crate::support::cgroup::Cgroup;
use crate::support::process::Process;
use crate::support::sources::{counted, values};

tests![
    operations_on_files_are_counted_exactly,
    file_systems_are_separate,
    operations_of_other_jobs_are_not_counted,
    many_threads_are_counted,
];

const VFS: &str = "vfs.*";

/// Values of the file system of a directory, without the label of the mount: `read.count`,
/// `read.bucket{le=1}`.
fn on(opened: &mut Opened, directory: &Path) -> BTreeMap<String, u64> {
    let device = fs::metadata(directory).unwrap().dev();
    values(opened)
        .into_iter()
        .filter_map(|(name, value)| {
            let (metric, labels) = name.strip_prefix("vfs.")?.strip_suffix('}')?.split_once('{')?;
            let (le, mount) = labels.split_once("mount=")?;
            let is_it = fs::metadata(mount).is_ok_and(|metadata| metadata.dev() == device);
            let le = le.trim_end_matches(',');
            let name = if le.is_empty() { metric.to_owned() } else { format!("{metric}{{{le}}}") };
            is_it.then_some((name, value))
        })
        .collect()
}

fn start(cgroup: &Path) -> Process {
    let mut process = Process::start("files", cgroup);
    assert_eq!(process.answer(), "ready");
    process
}

/// Lets a process work with a file of the directory, on some threads at the same time.
fn work(process: &mut Process, directory: &Path, threads: usize) {
    process.tell(&format!("{threads} {}", directory.display()));
    assert_eq!(process.answer(), "done");
}

fn check(values: &BTreeMap<String, u64>, times: u64) {
    let value = |name: &str| values.get(name).copied().unwrap_or_else(|| panic!("no {name} in {values:?}"));
    assert_eq!((value("write.bytes"), value("write.count")), (10_030 * times, 11 * times), "{values:?}");
    // Five reads, and one at the end of the file.
    assert_eq!((value("read.bytes"), value("read.count")), (2_500 * times, 6 * times), "{values:?}");
    assert_eq!((value("open.count"), value("sync.count")), (times, 2 * times), "{values:?}");
    for operation in ["read", "write", "open", "sync"] {
        let buckets = values.iter().filter(|(name, _)| name.starts_with(&format!("{operation}.bucket{{")));
        let mut by_limit: Vec<(f64, u64)> = buckets
            .map(|(name, value)| {
                (name.split_once("le=").unwrap().1.trim_end_matches('}').parse().unwrap(), *value)
            })
            .collect();
        by_limit.sort_by(|one, other| one.0.total_cmp(&other.0));
        assert_eq!(by_limit.len(), 11, "{values:?}");
        assert!(by_limit.is_sorted_by_key(|(_, count)| *count), "{values:?}");
        // Not all took less than the mean.
        let (time, count) = (value(&format!("{operation}.time")), value(&format!("{operation}.count")));
        assert!(time > 0 && by_limit[10].1 <= count, "{values:?}");
        let mut below_mean = by_limit.iter().filter(|(limit, _)| limit * 1e9 < time as f64 / count as f64);
        assert!(below_mean.all(|(_, below)| *below < count), "{values:?}");
    }
}

fn operations_on_files_are_counted_exactly() {
    let job = Cgroup::create();
    let directory = tempfile::tempdir().unwrap();
    let mut process = start(&job.0);
    let mut source = counted(VFS, &job.0);
    // A file system without operations has no values.
    assert!(values(&mut source).is_empty());
    work(&mut process, directory.path(), 1);
    check(&on(&mut source, directory.path()), 1);
    work(&mut process, directory.path(), 1);
    check(&on(&mut source, directory.path()), 2);
    // A second source begins at 0.
    let mut second = counted(VFS, &job.0);
    assert!(values(&mut second).is_empty());
    work(&mut process, directory.path(), 1);
    check(&on(&mut source, directory.path()), 3);
    check(&on(&mut second, directory.path()), 1);
    process.end();
}

fn file_systems_are_separate() {
    let memory = Path::new("/dev/shm");
    let (job, directory) = (Cgroup::create(), tempfile::tempdir().unwrap());
    let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
    if device(memory).is_none()
        || device(memory) == device(directory.path())
        || device(memory) == device(Path::new("/dev"))
    {
        polymeter_test_harness::skip("shm", "/dev/shm is no file system of its own");
    }
    let in_memory = tempfile::tempdir_in(memory).unwrap();
    let mut source = counted(VFS, &job.0);
    let mut process = start(&job.0);
    work(&mut process, in_memory.path(), 1);
    check(&on(&mut source, in_memory.path()), 1);
    assert!(on(&mut source, directory.path()).is_empty());
    work(&mut process, directory.path(), 1);
    check(&on(&mut source, directory.path()), 1);
    check(&on(&mut source, in_memory.path()), 1);
    process.end();
}

fn operations_of_other_jobs_are_not_counted() {
    let (job, other) = (Cgroup::create(), Cgroup::create());
    let directory = tempfile::tempdir().unwrap();
    let (mut source, mut other_source) = (counted(VFS, &job.0), counted(VFS, &other.0));
    let mut process = start(&other.0);
    work(&mut process, directory.path(), 1);
    assert!(values(&mut source).is_empty());
    check(&on(&mut other_source, directory.path()), 1);
    drop(other_source);
    work(&mut process, directory.path(), 1);
    assert!(values(&mut source).is_empty());
    process.end();
}

fn many_threads_are_counted() {
    let job = Cgroup::create();
    let directory = tempfile::tempdir().unwrap();
    let mut source = counted(VFS, &job.0);
    let mut process = start(&job.0);
    work(&mut process, directory.path(), 16);
    check(&on(&mut source, directory.path()), 16);
    process.end();
}
