//! Discovery: finds the cgroups of jobs by a walk along the patterns; inotify triggers the next walk.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};

use inotify::{EventMask, Inotify, WatchDescriptor, WatchMask};

use super::found_job::FoundJob;
use crate::admission::JOBS;
use crate::cgroups::{Captured, JobCgroups, Mounts, Pattern};

/// The most directories that are watched. Beyond that the rescan finds new jobs.
const WATCHES: usize = 16 * 1024;

/// The most jobs that are found at once: more than are tracked, so that the choice is among all owners' jobs.
const FOUND: usize = 4 * JOBS;

/// A pattern whose components match so far.
struct Begun<'a> {
    pattern: &'a Pattern,
    captured: Captured,
}

/// One walk through one hierarchy.
struct Walk<'a> {
    root: &'a Path,
    found: &'a mut BTreeMap<PathBuf, FoundJob>,
    /// The directories in which jobs may appear.
    seen: &'a mut BTreeSet<PathBuf>,
    /// The number of jobs found per owner, for owners that a path names.
    owners: &'a mut BTreeMap<(Option<u32>, Option<String>), usize>,
    /// The number of jobs that were left out, because there are too many.
    passed_over: &'a mut usize,
}

impl Walk<'_> {
    /// Returns true if a job is taken: at most as many jobs of one owner as would be tracked.
    fn takes(&mut self, relative: &Path, captured: &Captured) -> bool {
        if self.found.contains_key(relative) {
            return true;
        }
        let of_owner = self.owners.entry((captured.uid, captured.user.clone())).or_default();
        let is_named = captured.uid.is_some() || captured.user.is_some();
        let takes = self.found.len() < FOUND && (!is_named || *of_owner <= JOBS);
        *of_owner += usize::from(takes);
        *self.passed_over += usize::from(!takes);
        takes
    }
}

/// Finds the cgroups of jobs.
#[derive(Debug)]
pub(crate) struct Discovery {
    mounts: Mounts,
    patterns: Vec<Pattern>,
    inotify: Option<Inotify>,
    watched: BTreeMap<PathBuf, WatchDescriptor>,
    buffer: Vec<u8>,
    passed_over: usize,
}

impl Discovery {
    /// Creates a discovery of jobs by `patterns` below `mounts`. Without inotify, only the rescan finds jobs.
    pub(crate) fn new(mounts: Mounts, patterns: Vec<Pattern>) -> (Self, Option<io::Error>) {
        let (inotify, error) = match Inotify::init() {
            Ok(inotify) => (Some(inotify), None),
            Err(error) => (None, Some(error)),
        };
        (
            Self {
                mounts,
                patterns,
                inotify,
                watched: BTreeMap::new(),
                buffer: vec![0; 16 * 1024],
                passed_over: 0,
            },
            error,
        )
    }

    /// Returns the descriptor that is readable when something has changed.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(AsFd::as_fd)
    }

    /// Reads the events of inotify. Returns true if a walk is due. An overflow of its queue means that events were
    /// lost: the next walk makes up for them.
    pub(crate) fn changed(&mut self) -> bool {
        let Some(inotify) = &mut self.inotify else { return false };
        let mut changed = false;
        while let Ok(events) = inotify.read_events(&mut self.buffer) {
            let mut any = false;
            for event in events {
                any = true;
                // The end of a watch is reported even if it was requested.
                changed |= !event.mask.contains(EventMask::IGNORED);
            }
            if !any {
                break;
            }
        }
        changed
    }

    /// Returns the number of directories of jobs that the last walk has left out, because there are too many. A job may
    /// have several.
    pub(crate) const fn passed_over(&self) -> usize {
        self.passed_over
    }

    /// Returns all jobs that exist now, by their relative path. Watches every directory in which a job or a part of its path
    /// may appear.
    pub(crate) fn walk(&mut self) -> BTreeMap<PathBuf, FoundJob> {
        let mut found = BTreeMap::new();
        let (mut seen, mut owners, mut passed_over) = (BTreeSet::new(), BTreeMap::new(), 0);
        let roots: Vec<PathBuf> = self.mounts.roots().into_iter().map(Path::to_owned).collect();
        let patterns = self.patterns.clone();
        let begun: Vec<Begun<'_>> =
            patterns.iter().map(|pattern| Begun { pattern, captured: Captured::default() }).collect();
        for root in &roots {
            let (found, seen, owners) = (&mut found, &mut seen, &mut owners);
            let mut walk = Walk { root, found, seen, owners, passed_over: &mut passed_over };
            self.descend(&mut walk, Path::new(""), &begun, 0);
        }
        self.forget_unseen(&seen);
        self.passed_over = passed_over;
        found
    }

    /// Walks through one directory for all patterns whose first components its path matches.
    fn descend(&mut self, walk: &mut Walk<'_>, relative: &Path, begun: &[Begun<'_>], depth: usize) {
        let directory = walk.root.join(relative);
        // The watch comes before the read, so that nothing that appears in between is missed.
        self.watch(&directory);
        let entries = std::fs::read_dir(&directory);
        walk.seen.insert(directory);
        let Ok(entries) = entries else { return };
        for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            let name = entry.file_name();
            let Some(text) = name.to_str() else { continue };
            let mut deeper = Vec::new();
            for Begun { pattern, captured } in begun {
                let Some(captured) = pattern.matches_part(depth, text, captured) else { continue };
                if depth + 1 < pattern.depth() {
                    deeper.push(Begun { pattern, captured });
                } else if walk.takes(&relative.join(&name), &captured) {
                    let relative = relative.join(&name);
                    let job = walk.found.entry(relative.clone()).or_insert_with(|| FoundJob {
                        captured,
                        relative: relative.clone(),
                        cgroups: JobCgroups::default(),
                        directory_uid: None,
                    });
                    job.cgroups.add_found(&self.mounts, walk.root, &relative, entry.ino());
                }
            }
            if !deeper.is_empty() {
                self.descend(walk, &relative.join(&name), &deeper, depth + 1);
            }
        }
    }

    /// Watches a directory. A directory that was removed and created again under the same name is another one, and the
    /// kernel does not report the end of a watch on a cgroup. Therefore each walk adds the watch again, which returns
    /// the existing watch for an unchanged directory.
    fn watch(&mut self, directory: &Path) {
        let Some(inotify) = &self.inotify else { return };
        let known = self.watched.get(directory);
        if known.is_none() && self.watched.len() >= WATCHES {
            return;
        }
        let mask = WatchMask::CREATE
            | WatchMask::DELETE
            | WatchMask::MOVE
            | WatchMask::DELETE_SELF
            | WatchMask::ONLYDIR;
        // A directory that has disappeared meanwhile needs no watch; without a free watch the rescan has to do.
        let Ok(watch) = inotify.watches().add(directory, mask) else { return };
        if known != Some(&watch)
            && let Some(former) = self.watched.insert(directory.to_owned(), watch)
        {
            // An error means that the kernel has ended it already.
            inotify.watches().remove(former).ok();
        }
    }

    /// Ends the watches on directories that do not exist any more.
    fn forget_unseen(&mut self, seen: &BTreeSet<PathBuf>) {
        let Some(inotify) = &self.inotify else { return };
        self.watched.retain(|directory, watch| {
            let is_seen = seen.contains(directory);
            if !is_seen {
                inotify.watches().remove(watch.clone()).ok();
            }
            is_seen
        });
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Returns a simulated machine with a memory controller of version 1 and a unified hierarchy, in a directory.
    fn machine() -> (tempfile::TempDir, Mounts) {
        let root = tempfile::tempdir().unwrap();
        for directory in
            ["proc/self", "sys/fs/cgroup/memory", "sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup/unified"]
        {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        let mountinfo = "30 23 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
            31 23 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
            32 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
            33 23 0:29 / /sys/kernel/tracing rw - tracefs tracefs rw\n";
        fs::write(root.path().join("proc/self/mountinfo"), mountinfo).unwrap();
        let mounts = Mounts::read(root.path()).unwrap();
        (root, mounts)
    }

    #[test]
    fn recreated_directory_is_watched_again() {
        let (root, mounts) = machine();
        let (mut discovery, _) = Discovery::new(mounts, vec!["slurm/uid_{uid}/job_{job}".parse().unwrap()]);
        let user = root.path().join("sys/fs/cgroup/memory/slurm/uid_7");
        fs::create_dir_all(user.join("job_1")).unwrap();
        assert_eq!(discovery.walk().len(), 1);
        fs::remove_dir_all(&user).unwrap();
        // It is created again before the next walk.
        fs::create_dir_all(&user).unwrap();
        assert!(discovery.walk().is_empty());
        while discovery.changed() {}
        fs::create_dir(user.join("job_2")).unwrap();
        assert!(discovery.changed(), "a job in the new directory");
        fs::remove_dir_all(root.path().join("sys/fs/cgroup/memory/slurm")).unwrap();
        discovery.walk();
        assert_eq!(discovery.watched.len(), 3, "the roots are left");
    }

    #[test]
    fn mounts_are_found_by_controller() {
        let (root, mounts) = machine();
        assert_eq!(mounts.v1.keys().collect::<Vec<_>>(), ["cpu", "cpuacct", "memory"]);
        assert_eq!(mounts.v1["cpu"], root.path().join("sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(mounts.v2, Some(root.path().join("sys/fs/cgroup/unified")));
        assert_eq!(mounts.roots().len(), 3);
    }

    /// Returns the jobs that the default patterns find if `directories` are below some hierarchy: ids, owners' numbers
    /// and names.
    fn found_by_default(hierarchy: &str, directories: &[&str]) -> Vec<(String, Option<u32>, Option<String>)> {
        let (root, mounts) = machine();
        for directory in directories {
            fs::create_dir_all(root.path().join("sys/fs/cgroup").join(hierarchy).join(directory)).unwrap();
        }
        let patterns = crate::config::AgentConfig::standard().jobs;
        let (mut discovery, _) = Discovery::new(mounts, patterns);
        let captured = discovery.walk().into_values().map(|found| found.captured);
        captured.map(|captured| (captured.job.unwrap(), captured.uid, captured.user)).collect()
    }

    #[test]
    fn finds_the_layouts_of_slurm() {
        let job = |id: &str, uid| (id.to_owned(), uid, None);
        for place in ["slurm", "slurm_n17"] {
            let extern_step = format!("{place}/uid_1000/job_42/step_extern/task_0");
            let batch = format!("{place}/uid_1000/job_42/step_batch/task_0");
            let other = format!("{place}/uid_1001/job_43/step_0");
            let found =
                found_by_default("memory", &[&extern_step, &batch, &other, &format!("{place}/system")]);
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
        let (mut discovery, error) =
            Discovery::new(mounts, vec!["slurm/uid_{uid}/job_{job}".parse().unwrap()]);
        assert!(error.is_none());
        assert!(discovery.walk().is_empty());
        let job =
            |controller: &str| root.path().join("sys/fs/cgroup").join(controller).join("slurm/uid_7/job_42");
        fs::create_dir_all(job("memory")).unwrap();
        fs::create_dir_all(job("cpu,cpuacct")).unwrap();
        assert!(discovery.changed(), "the first directory of the pattern appeared");
        let found = discovery.walk();
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
        assert!(discovery.walk().is_empty());
    }
}
