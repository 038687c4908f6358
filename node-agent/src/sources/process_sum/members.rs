//! Processes that are summed, and their reading.
//!
//! A tree is walked from its root with `children` of each thread (CONFIG_PROC_CHILDREN); processes that lost
//! a parent stay part of it. The processes of a cgroup are those of it and of all below it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::sources::process_accounts::{Accounts, Process};
use crate::sources::process_files::{Levels, ProcessReader, StatLine, read_process};
use crate::sources::process_list::{PROCESSES_MAX, children, listed};

/// Bound of the processes of a cgroup per reading in the fast lane, each of which takes some microseconds. If
/// there are more, they take turns: the others count with their last values.
pub(super) const PROCESSES_PER_READING: usize = 256;

#[derive(Debug)]
pub(super) enum Members {
    /// A process and its descendants; `None` for the root once it was read.
    Tree(Option<u32>),
    Cgroup {
        top: PathBuf,
        /// Process at which the next reading begins.
        turn: u32,
        per_reading: usize,
        reader: ProcessReader,
    },
}

/// Current processes, and their quantities that disappear with them.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) processes: BTreeMap<u32, Process>,
    pub(super) levels: Levels,
    pub(super) is_empty: bool,
}

impl Members {
    pub(super) const fn of_tree(root: u32) -> Self {
        Self::Tree(Some(root))
    }

    /// Processes of a cgroup, which take turns.
    pub(super) fn in_turn(cgroup: &Path) -> Self {
        Self::of_cgroup(cgroup, PROCESSES_PER_READING)
    }

    /// Processes of a cgroup, all of which are read each time.
    pub(super) fn all_of(cgroup: &Path) -> Self {
        Self::of_cgroup(cgroup, PROCESSES_MAX)
    }

    fn of_cgroup(cgroup: &Path, per_reading: usize) -> Self {
        Self::Cgroup { top: cgroup.to_owned(), turn: 0, per_reading, reader: ProcessReader::default() }
    }

    /// Reads the current processes below `proc`; `None` if the cgroup is gone. `accounts` has those of
    /// earlier readings.
    pub(super) fn read(&mut self, proc: &Path, accounts: &Accounts) -> Option<Found> {
        let readable = Readable { proc, accounts };
        match self {
            Self::Tree(root) => {
                let found = readable.tree(*root);
                // From now on its start time identifies it: its number may be assigned to another process
                // later.
                *root = root.filter(|root| !found.processes.contains_key(root));
                Some(found)
            }
            Self::Cgroup { top, turn, per_reading, reader } => {
                let listed = listed(top)?;
                reader.retain(|pid| listed.contains(&pid));
                let (found, next) = readable.cgroup(&listed, *turn, *per_reading, reader);
                *turn = next;
                Some(found)
            }
        }
    }
}

struct Readable<'a> {
    proc: &'a Path,
    accounts: &'a Accounts,
}

impl Readable<'_> {
    /// Known processes that still exist, and all descendants.
    fn tree(&self, root: Option<u32>) -> Found {
        let known = self.accounts.processes().map(|(pid, process)| (pid, Some(process.started)));
        let mut queue: Vec<(u32, Option<u64>)> = known.collect();
        // Parents before children, so that a process that is waited for meanwhile is not counted twice.
        queue.sort_by_key(|(pid, _)| self.accounts.process(*pid).map(|process| process.started));
        queue.extend(root.map(|root| (root, None)));
        let (mut found, mut next) = (Found::default(), 0);
        while let Some((pid, started)) = queue.get(next).copied() {
            next += 1;
            if found.processes.contains_key(&pid) {
                continue;
            }
            let known = self.accounts.process(pid);
            let Some((process, own)) = read_process(self.proc, pid, known) else {
                found.processes.extend(known.filter(|_| self.exists(pid)).map(|known| (pid, *known)));
                continue;
            };
            if started.is_some_and(|started| started != process.started) {
                continue;
            }
            found.processes.insert(pid, process);
            found.levels.add(&own);
            if queue.len() < PROCESSES_MAX {
                let children = children(&self.proc.join(pid.to_string()));
                queue.extend(children.into_iter().map(|pid| (pid, None)));
            }
        }
        found
    }

    /// Current processes of a cgroup, which are `listed`, and the process at which the next reading begins.
    fn cgroup(
        &self,
        listed: &BTreeSet<u32>,
        turn: u32,
        per_reading: usize,
        reader: &mut ProcessReader,
    ) -> (Found, u32) {
        let (known, new): (Vec<u32>, Vec<u32>) =
            listed.iter().copied().partition(|pid| self.accounts.process(*pid).is_some());
        // New processes first, then the others in turn.
        let begin = known.partition_point(|pid| *pid < turn);
        let in_turn = known.get(begin..).into_iter().chain(known.get(..begin)).flatten();
        let mut read: Vec<u32> = new.iter().chain(in_turn).take(per_reading).copied().collect();
        let next = read.last().map_or(0, |last| last.saturating_add(1));
        // Parents usually have lower numbers than their children, and must be read before them.
        read.sort_unstable();
        let processes = known.iter().filter_map(|pid| Some((*pid, *self.accounts.process(*pid)?))).collect();
        let mut found = Found { processes, levels: Levels::default(), is_empty: listed.is_empty() };
        for pid in read {
            match reader.read(self.proc, pid, self.accounts.process(pid)) {
                Some((process, own)) => {
                    found.processes.insert(pid, process);
                    found.levels.add(&own);
                }
                None if self.exists(pid) => {}
                None => drop(found.processes.remove(&pid)),
            }
        }
        // A cgroup does not list a process that exits, whose use is in its parent's account only when that
        // has waited for it; nor one that has left the cgroup. Parents are read before, as above.
        let unlisted = self.accounts.processes().filter(|(pid, _)| !listed.contains(pid)).take(per_reading);
        let left = unlisted.filter(|(pid, process)| self.still_exists(*pid, process.started));
        found.processes.extend(left.map(|(pid, process)| (pid, *process)));
        (found, next)
    }

    /// True for a process that still exists, also as a zombie.
    fn still_exists(&self, pid: u32, started: u64) -> bool {
        let stat = StatLine::read(&self.proc.join(pid.to_string()));
        stat.is_some_and(|stat| stat.started() == started)
    }

    /// True for a process that cannot be read, as without a descriptor, but has not ended: it counts as it
    /// was known.
    fn exists(&self, pid: u32) -> bool {
        self.proc.join(pid.to_string()).exists()
    }
}
