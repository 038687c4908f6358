//! Watches of the directories in which jobs' cgroups may appear, by inotify.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

const BUFFER_BYTES: usize = 16 * 1024;

/// Kernel's number of a watch, which is not used again.
pub(super) type WatchDescriptor = i32;

/// Opens inotify; reads of it do not block.
pub(super) fn open() -> io::Result<OwnedFd> {
    Ok(inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?)
}

/// Events that report another set of directories. A directory's own end has an event, too, but not in
/// cgroups.
const MASK: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::ONLYDIR);

#[derive(Debug)]
struct WatchedDirectory {
    watch: WatchDescriptor,
    /// A directory that was removed and created again under the same name has another inode.
    inode: u64,
}

#[derive(Debug)]
pub(super) struct DirectoryWatches {
    inotify: Option<OwnedFd>,
    limit: usize,
    directories: BTreeMap<PathBuf, WatchedDirectory>,
    paths: BTreeMap<WatchDescriptor, PathBuf>,
    buffer: Vec<MaybeUninit<u8>>,
    /// True if every directory of the current walk is watched.
    are_complete: bool,
    #[cfg(test)]
    pub(super) additions: usize,
}

impl DirectoryWatches {
    /// Watches at most `limit` directories. Without inotify it reports nothing.
    pub(super) fn new(limit: usize) -> (Self, Option<io::Error>) {
        match open() {
            Ok(inotify) => (Self::with(Some(inotify), limit), None),
            Err(error) => (Self::with(None, limit), Some(error)),
        }
    }

    pub(super) fn with(inotify: Option<OwnedFd>, limit: usize) -> Self {
        Self {
            inotify,
            limit,
            directories: BTreeMap::new(),
            paths: BTreeMap::new(),
            buffer: vec![MaybeUninit::uninit(); BUFFER_BYTES],
            are_complete: false,
            #[cfg(test)]
            additions: 0,
        }
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(AsFd::as_fd)
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.directories.len()
    }

    #[cfg(test)]
    pub(super) fn deafen(&mut self) {
        self.inotify = Some(open().unwrap());
    }

    /// True if every directory of the last walk is watched, so that a change of any of them is reported.
    pub(super) const fn are_complete(&self) -> bool {
        self.are_complete
    }

    pub(super) const fn begin_walk(&mut self) {
        self.are_complete = self.inotify.is_some();
    }

    /// Watches a directory, unless it is watched already. A directory that cannot be watched leaves the
    /// watches incomplete.
    pub(super) fn add(&mut self, directory: &Path, inode: u64) {
        let Some(inotify) = &self.inotify else { return };
        let known = self.directories.get(directory);
        if known.is_some_and(|known| known.inode == inode) {
            return;
        }
        if known.is_none() && self.directories.len() >= self.limit {
            self.are_complete = false;
            return;
        }
        #[cfg(test)]
        {
            self.additions += 1;
        }
        // A directory that has disappeared meanwhile needs no watch; without a free watch the walks have to
        // do.
        let Ok(watch) = inotify::add_watch(inotify, directory, MASK) else {
            self.are_complete = false;
            return;
        };
        let former = self.directories.insert(directory.to_owned(), WatchedDirectory { watch, inode });
        if let Some(former) = former.filter(|former| former.watch != watch) {
            self.end(former.watch);
        }
        self.paths.insert(watch, directory.to_owned());
    }

    /// Ends the watches on directories that the walk has not seen.
    pub(super) fn retain(&mut self, seen: &BTreeSet<PathBuf>) {
        let unseen: Vec<PathBuf> =
            self.directories.keys().filter(|directory| !seen.contains(*directory)).cloned().collect();
        for directory in unseen {
            if let Some(former) = self.directories.remove(&directory) {
                self.end(former.watch);
            }
        }
    }

    /// Reads the events. Returns true if something has changed, or events were lost. Watches that may be
    /// those of removed directories are ended, and the next walk adds them again.
    pub(super) fn drain(&mut self) -> bool {
        let Some(inotify) = self.inotify.take() else { return false };
        let mut buffer = std::mem::take(&mut self.buffer);
        let (mut changed, mut stale) = (false, BTreeSet::new());
        let mut reader = Reader::new(&inotify, &mut buffer);
        while let Ok(event) = reader.next() {
            let name = event.file_name().map(|name| Path::new(OsStr::from_bytes(name.to_bytes())));
            changed |= self.is_change(event.events(), event.wd(), name, &mut stale);
        }
        (self.inotify, self.buffer) = (Some(inotify), buffer);
        for directory in stale {
            self.forget_tree(&directory);
        }
        changed
    }

    /// True if an event is a change. Adds the directory whose watches it ends to `stale`.
    fn is_change(
        &mut self,
        mask: ReadFlags,
        watch: WatchDescriptor,
        name: Option<&Path>,
        stale: &mut BTreeSet<PathBuf>,
    ) -> bool {
        if mask.contains(ReadFlags::QUEUE_OVERFLOW) {
            // Any directory may have been removed and created again.
            stale.extend(self.directories.keys().cloned());
            return true;
        }
        if mask.contains(ReadFlags::IGNORED) {
            // The end of a watch is reported even if it was requested; otherwise the directory is gone, or
            // its mount.
            let ended = self.paths.remove(&watch);
            stale.extend(ended.iter().cloned());
            return ended.is_some();
        }
        if mask.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM)
            && let (Some(directory), Some(name)) = (self.paths.get(&watch), name)
        {
            stale.insert(directory.join(name));
        }
        true
    }

    /// Forgets a directory and those below it.
    fn forget_tree(&mut self, top: &Path) {
        let tree = self.directories.range(top.to_owned()..).take_while(|(path, _)| path.starts_with(top));
        let tree: Vec<PathBuf> = tree.map(|(path, _)| path.clone()).collect();
        for directory in tree {
            if let Some(former) = self.directories.remove(&directory) {
                self.end(former.watch);
            }
        }
    }

    fn end(&mut self, watch: WatchDescriptor) {
        self.paths.remove(&watch);
        if let Some(inotify) = &self.inotify {
            // An error means that the kernel has ended it already.
            inotify::remove_watch(inotify, watch).ok();
        }
    }
}
