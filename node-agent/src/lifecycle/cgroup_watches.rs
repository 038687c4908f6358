//! Watches of jobs' cgroups by inotify: subgroups that are created and removed, processes that enter, and the
//! end of the last process of a cgroup of version 2.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use polymeter_proto::series::Identifier;
use rustix::fs::inotify::{self, ReadFlags, Reader, WatchFlags};

use super::directory_watches::{self, WatchDescriptor};
use crate::cgroups::subdirectories;

/// Most directories of one job that are watched: its own, its steps' and its tasks'.
pub(super) const DIRECTORIES: usize = 256;

/// Most watches of all jobs together: many clusters' kernels allow one user some thousand.
const WATCHES: usize = 6 * 1024;

/// File of a cgroup of version 2 that states whether it has processes.
pub(super) const EVENTS: &str = "cgroup.events";

/// Files of a cgroup that a process enters by a write. Writes to other files, such as limits, are irrelevant.
const ENTRIES: [&str; 3] = ["cgroup.procs", "tasks", "cgroup.threads"];

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Watched {
    /// A cgroup: subgroups are created and removed in it, and processes enter it.
    Directory(PathBuf),
    /// File of version 2 that changes when the last process ends.
    Events(PathBuf),
}

pub(super) type WatchedPaths = BTreeMap<Watched, WatchDescriptor>;

#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Jobs in which something has happened; true if a part of the job has ended.
    pub(super) happened: BTreeSet<(Identifier, bool)>,
    pub(super) ended: Vec<(Identifier, Watched)>,
}

#[derive(Debug)]
pub(super) struct CgroupWatches {
    /// None if it is unavailable: then changes are seen only by rescans.
    inotify: Option<OwnedFd>,
    watches: BTreeMap<WatchDescriptor, (Identifier, Watched)>,
    buffer: Vec<MaybeUninit<u8>>,
}

impl CgroupWatches {
    pub(super) fn new() -> Self {
        Self {
            inotify: directory_watches::open().ok(),
            watches: BTreeMap::new(),
            buffer: vec![MaybeUninit::uninit(); 16 * 1024],
        }
    }

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
                (path, WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MODIFY | WatchFlags::ONLYDIR)
            }
            Watched::Events(path) => (path, WatchFlags::MODIFY),
        };
        // A cgroup that has disappeared meanwhile needs no watch.
        if let Ok(watch) = inotify::add_watch(inotify, path, mask) {
            // The kernel returns the watch that a path has already; the limit must not end it.
            if self.watches.len() >= WATCHES && !self.watches.contains_key(&watch) {
                inotify::remove_watch(inotify, watch).ok();
                return;
            }
            self.watches.insert(watch, (job.clone(), wanted.clone()));
            watched.insert(wanted, watch);
        }
    }

    pub(super) fn unwatch(&mut self, watch: WatchDescriptor) {
        if self.watches.remove(&watch).is_some()
            && let Some(inotify) = &self.inotify
        {
            // An error means that the kernel has ended the watch already.
            inotify::remove_watch(inotify, watch).ok();
        }
    }

    /// Takes what has changed since the last call.
    pub(super) fn changes(&mut self) -> Changes {
        let mut changes = Changes::default();
        let Some(inotify) = &self.inotify else { return changes };
        let mut reader = Reader::new(inotify, &mut self.buffer);
        while let Ok(event) = reader.next() {
            let (events, watch) = (event.events(), event.wd());
            if events.contains(ReadFlags::IGNORED) {
                changes.ended.extend(self.watches.remove(&watch));
                continue;
            }
            let Some((job, watched)) = self.watches.get(&watch) else { continue };
            let name = event.file_name().and_then(|name| name.to_str().ok());
            let is_entry = name.is_some_and(|name| ENTRIES.contains(&name));
            let ended = match watched {
                Watched::Events(_) => events.contains(ReadFlags::MODIFY),
                Watched::Directory(_) if events.contains(ReadFlags::MODIFY) && !is_entry => continue,
                Watched::Directory(_) => events.contains(ReadFlags::DELETE),
            };
            changes.happened.insert((job.clone(), ended));
        }
        changes
    }

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
        assert_eq!(watched, WatchedPaths::from([(first.clone(), former[&first])]));
    }
}
