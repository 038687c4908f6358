//! Cgroups of one job.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use polymeter_proto::catalogue::Hierarchy;
use polymeter_service::cgroup_mounts::Mounts;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobCgroups {
    pub v2: Option<PathBuf>,
    /// Directories of version 1, by controller.
    pub v1: BTreeMap<String, PathBuf>,
    /// Inode of each directory that discovery found, also of those that are gone: a directory that was
    /// removed and created again has another.
    pub inodes: BTreeMap<PathBuf, u64>,
}

impl JobCgroups {
    /// Adds the directory `relative` of the hierarchies at `root`, which was found there with `inode`.
    pub fn add_found(&mut self, mounts: &Mounts, root: &Path, relative: &Path, inode: u64) {
        let path = root.join(relative);
        if mounts.v2.as_deref() == Some(root) {
            self.v2 = Some(path.clone());
        }
        for (controller, _) in mounts.v1.iter().filter(|(_, directory)| *directory == root) {
            self.v1.insert(controller.clone(), path.clone());
        }
        self.inodes.insert(path, inode);
    }

    pub fn add(&mut self, mounts: &Mounts, path: &Path) {
        if mounts.v2.as_ref().is_some_and(|root| path.starts_with(root))
            && !mounts.v1.values().any(|root| path.starts_with(root))
        {
            self.v2 = Some(path.to_owned());
        }
        for (controller, root) in &mounts.v1 {
            if path.starts_with(root) {
                self.v1.insert(controller.clone(), path.to_owned());
            }
        }
    }

    /// True if one of these directories was created anew since `earlier`: the path belongs to another job
    /// now.
    pub fn replaces(&self, earlier: &Self) -> bool {
        self.inodes.iter().any(|(path, inode)| earlier.inodes.get(path).is_some_and(|before| before != inode))
    }

    /// Goes on with the directories that were found later. The inodes of those that are gone stay: a walk may
    /// see nothing but what is left of a job, and the next nothing but what the next job has so far.
    pub fn go_on_with(&mut self, found: Self) {
        let gone = std::mem::replace(self, found).inodes;
        for (path, inode) in gone {
            self.inodes.entry(path).or_insert(inode);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.v2.is_none() && self.v1.is_empty()
    }

    pub fn directory(&self, hierarchy: Hierarchy) -> Option<&Path> {
        match hierarchy {
            Hierarchy::V2 => self.v2.as_deref(),
            Hierarchy::V1(controller) => self.v1.get(controller).map(PathBuf::as_path),
            Hierarchy::Proc | Hierarchy::Sys => None,
        }
    }

    /// Directory on which perf counts: that of `perf_event` of version 1, else that of version 2.
    pub fn perf_directory(&self, mounts: &Mounts) -> Option<&Path> {
        let v2 = self.v2.as_deref().filter(|_| mounts.perf_follows_v2());
        self.v1.get("perf_event").map(PathBuf::as_path).or(v2)
    }

    /// Directory in which the job's processes are searched: of a controller of version 1, since those of a
    /// machine with both versions contain all processes, else of version 2.
    pub fn of_processes(&self) -> Option<&Path> {
        self.of_processes_v1().or(self.v2.as_deref())
    }

    pub fn of_processes_v1(&self) -> Option<&Path> {
        let controllers = ["memory", "cpuacct", "cpu", "pids", "blkio", "perf_event", "hugetlb"];
        controllers.iter().find_map(|controller| self.directory(Hierarchy::V1(controller)))
    }

    /// Returns all directories, each once.
    pub fn directories(&self) -> Vec<&Path> {
        let mut all: Vec<&Path> = self.v2.iter().chain(self.v1.values()).map(PathBuf::as_path).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(inodes: &[(&str, u64)]) -> JobCgroups {
        let inodes = inodes.iter().map(|(path, inode)| (PathBuf::from(path), *inode)).collect();
        JobCgroups { inodes, ..JobCgroups::default() }
    }

    #[test]
    fn recreated_directory_is_another_job() {
        let before = job(&[("/memory/j", 7), ("/cpu/j", 8)]);
        assert!(!before.replaces(&before));
        assert!(!job(&[("/memory/j", 7)]).replaces(&before), "one went");
        assert!(!job(&[("/memory/j", 7), ("/pids/j", 9)]).replaces(&before), "one came");
        assert!(job(&[("/memory/j", 10), ("/cpu/j", 8)]).replaces(&before));
    }

    #[test]
    fn a_directory_that_returns_after_it_was_missing_is_another_job() {
        let mut cgroups = job(&[("/memory/j", 7), ("/cpu/j", 8)]);
        cgroups.go_on_with(job(&[("/cpu/j", 8)]));
        assert!(!job(&[("/memory/j", 7), ("/cpu/j", 8)]).replaces(&cgroups), "the walk missed it");
        assert!(job(&[("/memory/j", 10)]).replaces(&cgroups), "the other one is not created yet");
    }
}
