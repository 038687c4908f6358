//! Tests of sums over real and laid-out processes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::members::PROCESSES_PER_READING;
use super::*;

fn place(source: &ProcessSumSource, name: &str) -> u32 {
    let position = source.slots().iter().position(|slot| slot.definition.name() == name);
    u32::try_from(position.unwrap()).unwrap()
}

fn read(source: &mut ProcessSumSource, name: &str) -> u64 {
    let mut reading = Reading::absent(source.slots().len());
    assert_eq!(source.read(&mut reading), Outcome::Read);
    reading.get(place(source, name)).unwrap()
}

#[test]
fn reads_this_process_and_reports_an_ended_one() {
    let mut here = ProcessSumSource::of_tree(Path::new("/proc"), std::process::id());
    assert!(read(&mut here, "process.count") >= 1);
    assert!(read(&mut here, "process.memory.resident") > 100_000);
    let mut nobody = ProcessSumSource::of_tree(Path::new("/proc"), u32::MAX);
    assert_eq!(nobody.read(&mut Reading::absent(nobody.slots().len())), Outcome::Gone);
}

#[test]
fn the_use_of_an_orphan_stays_when_it_ends() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = |name: &str| {
        let path = directory.path().join(name);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    };
    let (leaf, middle) = (fifo("leaf"), fifo("middle"));
    let file = directory.path().join("file");
    // The middle one ends first, so that the leaf's parent is outside of the tree.
    let (file, leaf_go, middle_go) = (file.display(), leaf.display(), middle.display());
    let of_leaf =
        format!("dd if=/dev/zero of={file} bs=1M count=3 conv=fsync 2>&-; echo ready; read x <{leaf_go}; :");
    let of_middle = format!("sh -c '{of_leaf}' & read x <{middle_go}; :");
    let mut root = Command::new("sh")
        .args(["-c", &format!("sh -c \"{of_middle}\" & wait; read x; :")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    BufReader::new(root.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let mut source = ProcessSumSource::of_tree(Path::new("/proc"), root.id());
    let names = ["process.faults.minor", "process.io.write.bytes", "process.cpu.usage"];
    let mut last = names.map(|name| read(&mut source, name));
    assert_eq!(read(&mut source, "process.count"), 3);
    for (go, left) in [(middle, 2), (leaf, 1)] {
        fs::write(&go, "\n").unwrap();
        loop {
            let count = read(&mut source, "process.count");
            let now = names.map(|name| read(&mut source, name));
            assert!(now.iter().zip(last).all(|(now, last)| *now >= last), "{now:?} after {last:?}");
            last = now;
            if count == left {
                break;
            }
        }
    }
    drop(root.stdin.take());
    root.wait().unwrap();
}

#[test]
fn io_that_may_not_be_read_is_absent() {
    let directory = tempfile::tempdir().unwrap();
    let (proc, job) = (directory.path().join("proc"), directory.path().join("job"));
    fs::create_dir_all(&job).unwrap();
    fs::create_dir_all(proc.join("7")).unwrap();
    fs::write(job.join("cgroup.procs"), "").unwrap();
    let mut source = ProcessSumSource::of_cgroup(&proc, &job);
    assert_eq!(read(&mut source, "io.write.bytes"), 0, "no process yet");
    fs::write(job.join("cgroup.procs"), "7\n").unwrap();
    fs::write(proc.join("7/stat"), "7 (a) S 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 7 0 0 0").unwrap();
    let mut reading = Reading::absent(source.slots().len());
    assert_eq!(source.read(&mut reading), Outcome::Read);
    assert_eq!(reading.get(place(&source, "io.write.bytes")), None);
    fs::write(proc.join("7/io"), "rchar: 3\nread_bytes: 1\nwrite_bytes: 2\n").unwrap();
    assert_eq!(read(&mut source, "io.write.bytes"), 2);
    let mut all = ProcessSumSource::of_all_in_cgroup(&proc, &job);
    assert_eq!(read(&mut all, "process.io.read.call.bytes"), 3);
    fs::remove_file(proc.join("7/io")).unwrap();
    assert_eq!(read(&mut source, "io.write.bytes"), 2, "as it was known");
}

/// A process that cannot be read for a while, as without a descriptor, has not ended, and counts once.
#[test]
fn a_process_that_cannot_be_read_counts_as_it_was_known() {
    let directory = tempfile::tempdir().unwrap();
    let (proc, job) = (directory.path().join("proc"), directory.path().join("job"));
    fs::create_dir_all(&job).unwrap();
    fs::create_dir_all(proc.join("7")).unwrap();
    fs::write(job.join("cgroup.procs"), "7\n").unwrap();
    let write = |stat: &str| fs::write(proc.join("7/stat"), stat).unwrap();
    let mut source = ProcessSumSource::of_cgroup(&proc, &job);
    let mut reading = Reading::absent(source.slots().len());
    assert_eq!(source.read(&mut reading), Outcome::Read);
    assert_eq!(reading.iter().flatten().count(), 0, "nothing is known of it");
    let stat = "7 (a) S 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 7 0 0 0\n";
    write(stat);
    fs::write(proc.join("7/io"), "read_bytes: 1\nwrite_bytes: 2\n").unwrap();
    assert_eq!(read(&mut source, "io.write.bytes"), 2);
    for broken in ["", "7 (a) S 1", "7 (a) S x"] {
        write(broken);
        assert_eq!(read(&mut source, "io.write.bytes"), 2, "{broken:?}");
    }
    write(stat);
    assert_eq!(read(&mut source, "io.write.bytes"), 2, "once");
    fs::remove_dir_all(proc.join("7")).unwrap();
    assert_eq!(read(&mut source, "io.write.bytes"), 2, "it has ended");
}

fn write_process(proc: &Path, pid: u32, parent: u32, state: &str, bytes: u64) {
    let at = proc.join(pid.to_string());
    fs::create_dir_all(&at).unwrap();
    let stat = format!("{pid} (a) {state} {parent} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 {pid} 0 0 0");
    fs::write(at.join("stat"), stat).unwrap();
    fs::write(at.join("io"), format!("read_bytes: 0\nwrite_bytes: {bytes}\n")).unwrap();
}

/// A cgroup does not list a process that has ended before its parent waits for it.
#[test]
fn the_use_of_a_process_that_exits_counts_once() {
    let directory = tempfile::tempdir().unwrap();
    let (proc, job) = (directory.path().join("proc"), directory.path().join("job"));
    fs::create_dir_all(&job).unwrap();
    let list = |pids: &str| fs::write(job.join("cgroup.procs"), pids).unwrap();
    write_process(&proc, 7, 1, "S", 10);
    write_process(&proc, 8, 7, "R", 3);
    list("7\n8\n");
    let mut source = ProcessSumSource::of_cgroup(&proc, &job);
    assert_eq!(read(&mut source, "io.write.bytes"), 13);
    list("7\n");
    for state in ["R", "Z", "X"] {
        write_process(&proc, 8, 7, state, 4);
        assert_eq!(read(&mut source, "io.write.bytes"), 13, "{state}");
    }
    fs::remove_dir_all(proc.join("8")).unwrap();
    write_process(&proc, 7, 1, "S", 14);
    assert_eq!(read(&mut source, "io.write.bytes"), 14, "its parent has waited");
    // Its number belongs to another process meanwhile.
    write_process(&proc, 9, 7, "R", 5);
    list("7\n9\n");
    assert_eq!(read(&mut source, "io.write.bytes"), 19);
    list("7\n");
    fs::write(proc.join("9/stat"), "9 (b) S 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 999 0 0 0").unwrap();
    assert_eq!(read(&mut source, "io.write.bytes"), 19, "it has ended, and its parent ignored it");
}

#[test]
fn processes_of_a_cgroup_take_turns() {
    let directory = tempfile::tempdir().unwrap();
    let (proc, job) = (directory.path().join("proc"), directory.path().join("job"));
    fs::create_dir_all(job.join("step_0")).unwrap();
    let count = u32::try_from(PROCESSES_PER_READING).unwrap() + 44;
    (1..=count).for_each(|pid| write_process(&proc, pid, 1, "S", 1));
    fs::write(job.join("cgroup.procs"), "").unwrap();
    let pids: String = (1..=count).map(|pid| format!("{pid}\n")).collect();
    fs::write(job.join("step_0/cgroup.procs"), pids).unwrap();
    let mut source = ProcessSumSource::of_cgroup(&proc, &job);
    assert_eq!(read(&mut source, "io.write.bytes"), PROCESSES_PER_READING as u64);
    assert_eq!(read(&mut source, "io.write.bytes"), u64::from(count));
    (1..=count).for_each(|pid| write_process(&proc, pid, 1, "S", 2));
    let mut reads = 0;
    while read(&mut source, "io.write.bytes") < 2 * u64::from(count) {
        reads += 1;
        assert!(reads < 3, "some process never has its turn");
    }
    fs::remove_dir_all(job.join("step_0")).unwrap();
    assert_eq!(read(&mut source, "io.write.bytes"), 2 * u64::from(count), "all have ended");
    fs::remove_dir_all(&job).unwrap();
    assert_eq!(source.read(&mut Reading::absent(source.slots().len())), Outcome::Gone);
}
