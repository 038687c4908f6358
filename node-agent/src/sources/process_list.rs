//! A job's processes: those of its cgroup and of all below it, or a process and its descendants.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

pub(super) use super::cgroup_processes::PROCESSES_MAX;
pub(crate) use super::cgroup_processes::listed;
use super::kernel_text;
use super::process_files::StatLine;
use super::target::Target;

#[derive(Debug)]
pub(super) enum ProcessList {
    Cgroup(PathBuf),
    Tree {
        /// First process, until it was seen.
        root: Option<u32>,
        /// Processes of the last list, with their times of start: they stay in the tree when their parent has
        /// ended.
        known: BTreeMap<u32, u64>,
    },
}

impl ProcessList {
    /// `None` for the node, and for a job without a cgroup of processes.
    pub(super) fn of(target: &Target) -> Option<Self> {
        match target {
            Target::Cgroups(cgroups) => cgroups.of_processes().map(|top| Self::Cgroup(top.to_owned())),
            Target::Processes(root) => Some(Self::Tree { root: Some(*root), known: BTreeMap::new() }),
            Target::Node(_) => None,
        }
    }

    /// Lists at most [`PROCESSES_MAX`] processes; `None` if the job is gone.
    pub(super) fn list(&mut self, proc: &Path) -> Option<BTreeSet<u32>> {
        match self {
            Self::Cgroup(top) => listed(top),
            Self::Tree { root, known } => {
                let found = walk(proc, *root, known);
                *root = root.filter(|root| !found.contains_key(root));
                *known = found;
                (!known.is_empty()).then(|| known.keys().copied().collect())
            }
        }
    }
}

/// Finds the known processes that still run, the root, and all descendants, with their times of start.
fn walk(proc: &Path, root: Option<u32>, known: &BTreeMap<u32, u64>) -> BTreeMap<u32, u64> {
    let mut queue: Vec<u32> = known.keys().copied().chain(root).collect();
    let (mut found, mut next) = (BTreeMap::new(), 0);
    while let Some(pid) = queue.get(next).copied() {
        next += 1;
        let directory = proc.join(pid.to_string());
        let Some(stat) = StatLine::read(&directory) else { continue };
        // The number of an ended process may belong to a process of another job.
        let is_other = known.get(&pid).is_some_and(|started| *started != stat.started()) && root != Some(pid);
        if is_other || found.insert(pid, stat.started()).is_some() || found.len() >= PROCESSES_MAX {
            continue;
        }
        queue.extend(children(&directory).into_iter().filter(|pid| !found.contains_key(pid)));
    }
    found
}

pub(super) fn children(directory: &Path) -> Vec<u32> {
    let threads = fs::read_dir(directory.join("task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| kernel_text::text(&thread.path().join("children")).ok());
    lists.flat_map(|list| parse_children(&list)).collect()
}

/// Parses `children`, where a space follows each number.
fn parse_children(list: &str) -> Vec<u32> {
    let whole = list.rsplit_once(' ').map_or("", |(numbers, _)| numbers);
    whole.split(' ').filter_map(|pid| pid.parse().ok()).collect()
}

pub(super) fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let children = parse_children(&text);
    assert!(children.len() <= text.matches(' ').count());
    assert!(children == parse_children(&format!("{text}7")), "the last number was cut off");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(proc: &Path, pid: u32, started: u64, children: &str) {
        let task = proc.join(format!("{pid}/task/{pid}"));
        fs::create_dir_all(&task).unwrap();
        let line = format!("{pid} (a) S 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 {started} 0 0 0");
        fs::write(proc.join(format!("{pid}/stat")), line).unwrap();
        fs::write(task.join("children"), children).unwrap();
    }

    #[test]
    fn a_tree_keeps_orphans_and_leaves_reused_numbers_out() {
        let proc = tempfile::tempdir().unwrap();
        let proc = proc.path();
        write(proc, 10, 1, "11 ");
        write(proc, 11, 2, "12 ");
        write(proc, 12, 3, "");
        let mut list = ProcessList::of(&Target::Processes(10)).unwrap();
        assert_eq!(list.list(proc), Some([10, 11, 12].into()));
        fs::remove_dir_all(proc.join("11")).unwrap();
        assert_eq!(list.list(proc), Some([10, 12].into()), "an orphan stays");
        fs::remove_dir_all(proc.join("10")).unwrap();
        write(proc, 10, 9, "");
        assert_eq!(list.list(proc), Some([12].into()), "another process has the number of the first");
        fs::remove_dir_all(proc.join("12")).unwrap();
        assert_eq!(list.list(proc), None);
    }

    #[test]
    fn a_walk_ends_in_a_circle() {
        let proc = tempfile::tempdir().unwrap();
        write(proc.path(), 1, 1, "2 1 ");
        write(proc.path(), 2, 1, "1 2 2 ");
        assert_eq!(walk(proc.path(), Some(1), &BTreeMap::new()), [(1, 1), (2, 1)].into());
    }
}
