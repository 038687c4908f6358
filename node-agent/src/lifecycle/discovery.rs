//! Discovery: finds the cgroups of jobs by a walk along the patterns; inotify triggers the next walk. While
//! every directory is watched, a rescan repeats the walk only now and then.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::directory_watches::DirectoryWatches;
use super::found_job::FoundJob;
use crate::admission::JOBS;
use crate::cgroups::{Captured, JobCgroups, Mounts, Pattern};

/// Most directories that are watched. Beyond that the rescan finds new jobs.
const WATCHES: usize = 16 * 1024;

/// One of so many rescans walks even if no change was reported: a directory can appear without an event, for
/// example by a mount.
const WALK_RESCANS: u32 = 10;

/// How long until a rescan walks although no change was reported.
const WALK_INTERVAL_NS: u64 = 10_000_000_000;

/// Most jobs that are found at once: more than are tracked, so that the choice is among all owners' jobs.
const FOUND: usize = 4 * JOBS;

struct Begun<'a> {
    pattern: &'a Pattern,
    /// Component that the names in the directory may match.
    depth: usize,
    captured: Captured,
    /// How these names begin, if the directory is a slice in which systemd nests others.
    prefix: String,
}

struct Walk<'a> {
    root: &'a Path,
    found: &'a mut BTreeMap<PathBuf, FoundJob>,
    seen: &'a mut BTreeSet<PathBuf>,
    /// Jobs found per owner, for owners that a path names.
    owners: &'a mut BTreeMap<(Option<u32>, Option<String>), usize>,
    /// Jobs that were left out, because there are too many.
    passed_over: &'a mut usize,
}

impl Walk<'_> {
    /// True if a job is taken: at most as many jobs of one owner as would be tracked.
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

#[derive(Debug)]
pub(crate) struct Discovery {
    mounts: Mounts,
    patterns: Vec<Pattern>,
    watches: DirectoryWatches,
    found: BTreeMap<PathBuf, FoundJob>,
    passed_over: usize,
    rescans: u32,
    walked_at_ns: u64,
}

impl Discovery {
    /// Without inotify, only the rescan finds jobs.
    pub(crate) fn new(mounts: Mounts, patterns: Vec<Pattern>) -> (Self, Option<io::Error>) {
        let (watches, error) = DirectoryWatches::new(WATCHES);
        let discovery = Self {
            mounts,
            patterns,
            watches,
            found: BTreeMap::new(),
            passed_over: 0,
            rescans: 0,
            walked_at_ns: 0,
        };
        (discovery, error)
    }

    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.watches.descriptor()
    }

    /// Returns true if a walk is due.
    pub(crate) fn changed(&mut self) -> bool {
        self.watches.drain()
    }

    /// Directories of jobs that the last walk has left out, because there are too many. A job may have
    /// several.
    pub(crate) const fn passed_over(&self) -> usize {
        self.passed_over
    }

    /// True if a rescan must walk: a directory is not watched, a change was reported, or the last walk is too
    /// long ago. Counts the rescans.
    pub(crate) fn must_walk(&mut self, now_ns: u64) -> bool {
        self.rescans += 1;
        let is_overdue =
            self.rescans >= WALK_RESCANS || now_ns.saturating_sub(self.walked_at_ns) >= WALK_INTERVAL_NS;
        self.changed() || is_overdue || !self.is_told_of_changes()
    }

    /// True if every directory is watched in which a job may appear.
    pub(crate) const fn is_told_of_changes(&self) -> bool {
        self.watches.are_complete()
    }

    /// Jobs that the last walk has found, by their relative path.
    pub(crate) const fn found(&self) -> &BTreeMap<PathBuf, FoundJob> {
        &self.found
    }

    /// Finds all jobs that exist now. Watches every directory in which a job or a part of its path may
    /// appear.
    pub(crate) fn walk(&mut self, now_ns: u64) -> &BTreeMap<PathBuf, FoundJob> {
        (self.rescans, self.walked_at_ns) = (0, now_ns);
        // A watch on a directory that was removed is forgotten before a directory of the same name is found.
        self.watches.drain();
        self.watches.begin_walk();
        let mut found = BTreeMap::new();
        let (mut seen, mut owners, mut passed_over) = (BTreeSet::new(), BTreeMap::new(), 0);
        let roots: Vec<PathBuf> = self.mounts.roots().into_iter().map(Path::to_owned).collect();
        let patterns = self.patterns.clone();
        let begun = patterns.iter().map(|pattern| Begun {
            pattern,
            depth: 0,
            captured: Captured::default(),
            prefix: String::new(),
        });
        let begun: Vec<Begun<'_>> = begun.collect();
        for root in &roots {
            let inode = std::fs::metadata(root).map_or(0, |root| root.ino());
            let (found, seen, owners) = (&mut found, &mut seen, &mut owners);
            let mut walk = Walk { root, found, seen, owners, passed_over: &mut passed_over };
            self.descend(&mut walk, Path::new(""), inode, &begun);
        }
        self.watches.retain(&seen);
        self.passed_over = passed_over;
        self.found = found;
        &self.found
    }

    /// Walks through one directory for all patterns whose first components its path matches.
    fn descend(&mut self, walk: &mut Walk<'_>, relative: &Path, inode: u64, begun: &[Begun<'_>]) {
        let directory = walk.root.join(relative);
        // The watch comes before the read, so that nothing that appears in between is missed.
        self.watches.add(&directory, inode);
        let entries = std::fs::read_dir(&directory);
        walk.seen.insert(directory);
        let Ok(entries) = entries else { return };
        for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            let name = entry.file_name();
            let Some(text) = name.to_str() else { continue };
            let mut deeper = Vec::new();
            for Begun { pattern, depth, captured, .. } in
                begun.iter().filter(|begun| text.starts_with(&begun.prefix))
            {
                if let Some(prefix) = pattern.nested_at(*depth, text) {
                    deeper.push(Begun { pattern, depth: *depth, captured: captured.clone(), prefix });
                }
                let Some(captured) = pattern.matches_part(*depth, text, captured) else { continue };
                if depth + 1 < pattern.depth() {
                    let depth = depth + 1;
                    deeper.push(Begun { pattern, depth, captured, prefix: String::new() });
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
                self.descend(walk, &relative.join(&name), entry.ino(), &deeper);
            }
        }
    }
}

#[cfg(test)]
mod tests;
