//! Sums over a job's processes: the only data of an ordinary user without a cgroup, and the I/O of a job whose cgroups
//! do not count it.
//!
//! The use of a process between its last reading and its end becomes known when its parent waits for it; the I/O of an
//! ended process that no parent waits for is not accessible to an ordinary user.
//!
//! A tree is walked from its root with `children` of each thread (CONFIG_PROC_CHILDREN); processes that lost a parent
//! stay part of it. The processes of a cgroup are those of it and of all below it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use polymeter_proto::catalogue::Definition;
use polymeter_proto::series::Labels;
use rustix::io::Errno;

use super::custom_source::CustomSource;
use super::kind::metrics_of;
use super::outcome::Outcome;
use super::process_accounts::{Accounts, Process};
use super::process_files::{Compute, FIELDS, IO_FIELDS, Levels, read_process};
use super::process_list::{PROCESSES_MAX, children, listed};
use super::reading::Reading;
use super::slot::Slot;

/// The kind that sums over the process tree of a job without a cgroup.
pub(super) const TREE_KIND: &str = "processes";

/// The kind that sums over the processes of a job's cgroup what its files do not count here.
pub(super) const CGROUP_KIND: &str = "cgroup_processes";

/// The kind that sums over the processes of a job's cgroup what no file of a cgroup counts.
pub(super) const IO_KIND: &str = "process_io";

/// The most processes of a cgroup per reading in the fast lane, each of which takes some microseconds. If there are more,
/// they take turns: the others count with their last values.
const PROCESSES_PER_READING: usize = 256;

/// The processes that are summed.
#[derive(Debug)]
enum Members {
    /// A process and its descendants. The root is none once it was read.
    Tree(Option<u32>),
    /// All processes in a cgroup and below it, and the process at which the next reading begins.
    Cgroup(PathBuf, u32),
}

/// The sum over the processes of one job.
#[derive(Debug)]
pub(super) struct ProcessSumSource {
    proc: PathBuf,
    members: Members,
    /// The most processes of a cgroup per reading.
    per_reading: usize,
    slots: Vec<Slot>,
    /// The function that computes the value of each slot, and whether it needs I/O.
    compute: Vec<(Compute, bool)>,
    accounts: Accounts,
    /// True once the I/O of a process was read. It stays false if the agent lacks the right to it.
    has_io: bool,
    /// True once a process was read.
    has_any: bool,
}

impl ProcessSumSource {
    /// Creates the sum over the process `root` and its descendants, below `proc`.
    pub(super) fn of_tree(proc: &Path, root: u32) -> Self {
        Self::new(proc, Members::Tree(Some(root)), TREE_KIND)
    }

    /// Creates the sum over the processes in a cgroup and below it, below `proc`, for a kind of the fast lane.
    pub(super) fn of_cgroup(proc: &Path, cgroup: &Path) -> Self {
        Self::new(proc, Members::Cgroup(cgroup.to_owned(), 0), CGROUP_KIND)
    }

    /// Creates the sum over the I/O of the processes in a cgroup and below it, all of which are read each time.
    pub(super) fn of_all_in_cgroup(proc: &Path, cgroup: &Path) -> Self {
        let source = Self::new(proc, Members::Cgroup(cgroup.to_owned(), 0), IO_KIND);
        Self { per_reading: PROCESSES_MAX, ..source }
    }

    /// Creates a source with all metrics of its kind, wanted now or not: if it were opened anew for more, the use of
    /// ended processes would be lost.
    fn new(proc: &Path, members: Members, kind: &str) -> Self {
        let of_metric = |metric| {
            let definition = Definition::of(metric);
            let name = metric.field_of(kind)?;
            let (_, compute) = FIELDS.iter().find(|(field, _)| *field == name)?;
            Some((Slot { definition, labels: Labels::default() }, (*compute, IO_FIELDS.contains(&name))))
        };
        let (slots, compute) = metrics_of(kind).filter_map(of_metric).unzip();
        Self {
            proc: proc.to_owned(),
            members,
            per_reading: PROCESSES_PER_READING,
            slots,
            compute,
            accounts: Accounts::default(),
            has_io: false,
            has_any: false,
        }
    }

    /// Reads all processes. It allocates, which costs less than opening two files of each process.
    fn read_all(&mut self, reading: &mut Reading) -> Outcome {
        reading.clear();
        let mut levels = Levels::default();
        let mut is_empty = false;
        let found = match &self.members {
            Members::Tree(root) => self.read_tree(*root, &mut levels),
            Members::Cgroup(top, turn) => {
                let Some(listed) = listed(top) else { return Outcome::Gone };
                is_empty = listed.is_empty();
                let (found, next) = self.read_cgroup(&listed, *turn, &mut levels);
                self.members = Members::Cgroup(top.clone(), next);
                found
            }
        };
        self.has_any |= levels.processes > 0;
        let (proc, is_tree) = (&self.proc, matches!(self.members, Members::Tree(_)));
        let reread = |pid| read_process(proc, pid, None).map(|(process, _)| process);
        let sums = self.accounts.update(found, reread);
        if is_tree && levels.processes == 0 {
            let has_known = self.accounts.processes().next().is_some();
            return if has_known { Outcome::Retry(Errno::AGAIN) } else { Outcome::Gone };
        }
        if !self.has_any && !is_empty {
            // None of its processes could be read: nothing is known.
            return Outcome::Read;
        }
        self.has_io |= levels.io > 0;
        let knows_io = self.has_io || levels.no_io == 0;
        for (slot, (compute, needs_io)) in (0..).zip(&self.compute) {
            if knows_io || !needs_io {
                reading.set(slot, compute(&sums, &levels));
            }
        }
        Outcome::Read
    }

    /// Returns the current tree: the known processes that still exist, and all descendants.
    fn read_tree(&mut self, root: Option<u32>, levels: &mut Levels) -> BTreeMap<u32, Process> {
        let known = self.accounts.processes().map(|(pid, process)| (pid, Some(process.started)));
        let mut queue: Vec<(u32, Option<u64>)> = known.collect();
        // Parents before children, so that a process that is waited for meanwhile is not counted twice.
        queue.sort_by_key(|(pid, _)| self.accounts.process(*pid).map(|process| process.started));
        queue.extend(root.map(|root| (root, None)));
        let (mut found, mut next) = (BTreeMap::new(), 0);
        while let Some((pid, started)) = queue.get(next).copied() {
            next += 1;
            if found.contains_key(&pid) {
                continue;
            }
            let known = self.accounts.process(pid);
            let Some((process, own)) = read_process(&self.proc, pid, known) else {
                found.extend(known.filter(|_| self.exists(pid)).map(|known| (pid, *known)));
                continue;
            };
            if started.is_some_and(|started| started != process.started) {
                continue;
            }
            found.insert(pid, process);
            levels.add(&own);
            if queue.len() < PROCESSES_MAX {
                let children = children(&self.proc.join(pid.to_string()));
                queue.extend(children.into_iter().map(|pid| (pid, None)));
            }
        }
        if root.is_some_and(|root| found.contains_key(&root)) {
            // From now on its start time identifies it: its number may be assigned to another process later.
            self.members = Members::Tree(None);
        }
        found
    }

    /// Returns true for a process that cannot be read, as without a descriptor, but has not ended: it counts as it was known.
    fn exists(&self, pid: u32) -> bool {
        self.proc.join(pid.to_string()).exists()
    }

    /// Returns the current processes of a cgroup, which are `listed`, and the process at which the next reading begins.
    fn read_cgroup(
        &self,
        listed: &BTreeSet<u32>,
        turn: u32,
        levels: &mut Levels,
    ) -> (BTreeMap<u32, Process>, u32) {
        let (known, new): (Vec<u32>, Vec<u32>) =
            listed.iter().copied().partition(|pid| self.accounts.process(*pid).is_some());
        // New processes first, then the others in turn.
        let begin = known.partition_point(|pid| *pid < turn);
        let in_turn = known.get(begin..).into_iter().chain(known.get(..begin)).flatten();
        let mut read: Vec<u32> = new.iter().chain(in_turn).take(self.per_reading).copied().collect();
        let next = read.last().map_or(0, |last| last + 1);
        // Parents usually have lower numbers than their children, and must be read before them.
        read.sort_unstable();
        let mut found: BTreeMap<u32, Process> =
            known.iter().filter_map(|pid| Some((*pid, *self.accounts.process(*pid)?))).collect();
        for pid in read {
            match read_process(&self.proc, pid, self.accounts.process(pid)) {
                Some((process, own)) => {
                    found.insert(pid, process);
                    levels.add(&own);
                }
                None if self.exists(pid) => {}
                None => drop(found.remove(&pid)),
            }
        }
        (found, next)
    }
}

impl CustomSource for ProcessSumSource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        self.read_all(reading)
    }

    fn is_lasting(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

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
        let of_leaf = format!(
            "dd if=/dev/zero of={file} bs=1M count=3 conv=fsync 2>&-; echo ready; read x <{leaf_go}; :"
        );
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

    #[test]
    fn processes_of_a_cgroup_take_turns() {
        let directory = tempfile::tempdir().unwrap();
        let (proc, job) = (directory.path().join("proc"), directory.path().join("job"));
        fs::create_dir_all(job.join("step_0")).unwrap();
        let count = u32::try_from(PROCESSES_PER_READING).unwrap() + 44;
        let write = |pid: u32, bytes: u64| {
            let at = proc.join(pid.to_string());
            fs::create_dir_all(&at).unwrap();
            let stat = format!("{pid} (a) S 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 {pid} 0 0 0");
            fs::write(at.join("stat"), stat).unwrap();
            fs::write(at.join("io"), format!("read_bytes: 0\nwrite_bytes: {bytes}\n")).unwrap();
        };
        let list =
            |pids: &mut dyn Iterator<Item = u32>| pids.map(|pid| format!("{pid}\n")).collect::<String>();
        (1..=count).for_each(|pid| write(pid, 1));
        fs::write(job.join("cgroup.procs"), "").unwrap();
        fs::write(job.join("step_0/cgroup.procs"), list(&mut (1..=count))).unwrap();
        let mut source = ProcessSumSource::of_cgroup(&proc, &job);
        assert_eq!(read(&mut source, "io.write.bytes"), PROCESSES_PER_READING as u64);
        assert_eq!(read(&mut source, "io.write.bytes"), u64::from(count));
        (1..=count).for_each(|pid| write(pid, 2));
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
}
