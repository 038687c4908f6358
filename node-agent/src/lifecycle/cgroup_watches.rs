//! Watches of jobs' cgroups by inotify: subgroups that are created and removed, processes that enter, and the
//! end of the last process of a cgroup of version 2.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use inotify::{EventMask, Inotify, WatchDescriptor, WatchMask};
use polymeter_proto::series::Identifier;

use crate::cgroups::subdirectories;

/// The most directories of one job that are watched: its own, its steps' and its tasks'.
pub(super) const DIRECTORIES: usize = 256;

/// The most watches of all jobs together: many clusters' kernels allow one user some thousand.
const WATCHES: usize = 6 * 1024;

/// The file of a cgroup of version 2 that states whether it has processes.
pub(super) const EVENTS: &str = "cgroup.events";

/// The files of a cgroup that a process enters by a write. Writes to other files, such as limits, are
/// irrelevant.
const ENTRIES: [&str; 3] = ["cgroup.procs", "tasks", "cgroup.threads"];

/// The object of a watch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Watched {
    /// A cgroup: subgroups are created and removed in it, and processes enter it.
    Directory(PathBuf),
    /// The file of version 2 that changes when the last process ends.
    Events(PathBuf),
}

/// The watches of one job.
pub(super) type WatchedPaths = BTreeMap<Watched, WatchDescriptor>;

/// The changes of jobs' cgroups since the last call.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The jobs in which something has happened; true if a part of the job has ended.
    pub(super) happened: BTreeSet<(Identifier, bool)>,
    /// The watches that the kernel has ended.
    pub(super) ended: Vec<(Identifier, Watched)>,
}

/// The watches of all jobs.
#[derive(Debug)]
pub(super) struct CgroupWatches {
    /// None if it is unavailable: then changes are seen only by rescans.
    inotify: Option<Inotify>,
    watches: BTreeMap<WatchDescriptor, (Identifier, Watched)>,
    buffer: Vec<u8>,
}

impl CgroupWatches {
    /// Creates an instance without watches.
    pub(super) fn new() -> Self {
        Self { inotify: Inotify::init().ok(), watches: BTreeMap::new(), buffer: vec![0; 16 * 1024] }
    }

    /// Returns the descriptor that is readable when something has changed.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(AsFd::as_fd)
    }

    /// Watches a cgroup and all below it. Returns them.
    pub(super) fn watch_tree(
        &mut self,
        job: &Identifier,
        watched: &mut WatchedPaths,
        top: &Path,
    ) -> Vec<PathBuf> {
        let (mut found, mut next) = (vec![top.to_owned()], 0);
        while let Some(directory) = found.get(next).cloned() {
            next += 1;
            // The watch comes before the read: a cgroup that appears in between is seen twice rather than
            // never.
            self.watch(job, watched, Watched::Directory(directory.clone()));
            let room = DIRECTORIES.saturating_sub(found.len());
            found.extend(subdirectories(&directory).into_iter().take(room));
        }
        found
    }

    /// Watches one path, unless that is done already or there are too many watches.
    pub(super) fn watch(&mut self, job: &Identifier, watched: &mut WatchedPaths, wanted: Watched) {
        let Some(inotify) = &self.inotify else { return };
        if watched.contains_key(&wanted) {
            return;
        }
        let (path, mask) = match &wanted {
            Watched::Directory(path) => {
                (path, WatchMask::CREATE | WatchMask::DELETE | WatchMask::MODIFY | WatchMask::ONLYDIR)
            }
            Watched::Events(path) => (path, WatchMask::MODIFY),
        };
        // A cgroup that has disappeared meanwhile needs no watch.
        if let Ok(watch) = inotify.watches().add(path, mask) {
            // The kernel returns the watch that a path has already; the limit must not end it.
            if self.watches.len() >= WATCHES && !self.watches.contains_key(&watch) {
                inotify.watches().remove(watch).ok();
                return;
            }
            self.watches.insert(watch.clone(), (job.clone(), wanted.clone()));
            watched.insert(wanted, watch);
        }
    }

    /// Removes a watch.
    pub(super) fn unwatch(&mut self, watch: WatchDescriptor) {
        if self.watches.remove(&watch).is_some()
            && let Some(inotify) = &self.inotify
        {
            // An error means that the kernel has ended the watch already.
            inotify.watches().remove(watch).ok();
        }
    }

    /// Returns the changes since the last call.
    pub(super) fn changes(&mut self) -> Changes {
        let mut changes = Changes::default();
        let Some(inotify) = &mut self.inotify else { return changes };
        let Ok(events) = inotify.read_events(&mut self.buffer) else { return changes };
        for event in events {
            if event.mask.contains(EventMask::IGNORED) {
                changes.ended.extend(self.watches.remove(&event.wd));
                continue;
            }
            let Some((job, watched)) = self.watches.get(&event.wd) else { continue };
            let is_entry =
                || event.name.and_then(|name| name.to_str()).is_some_and(|name| ENTRIES.contains(&name));
            let ended = match watched {
                Watched::Events(_) => event.mask.contains(EventMask::MODIFY),
                Watched::Directory(_) if event.mask.contains(EventMask::MODIFY) && !is_entry() => continue,
                Watched::Directory(_) => event.mask.contains(EventMask::DELETE),
            };
            changes.happened.insert((job.clone(), ended));
        }
        changes
    }

    /// Returns true if there are no watches.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.watches.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_at_the_limit_is_kept_by_the_next_walk() {
        let directory = tempfile::tempdir().unwrap();
        let job = Identifier::try_from("42").unwrap();
        let path = |number: usize| directory.path().join(number.to_string());
        let (mut watches, mut watched) = (CgroupWatches::new(), WatchedPaths::new());
        for number in 0..=WATCHES {
            std::fs::create_dir(path(number)).unwrap();
            watches.watch(&job, &mut watched, Watched::Directory(path(number)));
        }
        assert_eq!((watches.watches.len(), watched.len()), (WATCHES, WATCHES));
        let former = std::mem::take(&mut watched);
        for number in [0, WATCHES] {
            watches.watch(&job, &mut watched, Watched::Directory(path(number)));
        }
        let first = Watched::Directory(path(0));
        assert_eq!(watched, WatchedPaths::from([(first.clone(), former[&first].clone())]));
    }
}
