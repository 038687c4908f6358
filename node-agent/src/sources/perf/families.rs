//! Families of a job's processes: which of them are counted already because an event of an ancestor was
//! inherited. Pure.
//!
//! A perf event of a process counts all that it starts from then on. Another event for one of these would
//! count it twice.
//!
//! The parent of an orphan is init, or its nearest ancestor that adopts orphans (`PR_SET_CHILD_SUBREAPER`),
//! which may be outside of the job: a step daemon of the scheduler, a service manager, a container's monitor.
//! A process with a parent outside is either an orphan of the job, or was put there by that parent. The log
//! of forks ([`Forks`]) decides: it has who started the process, and who started that one, up to the first
//! process that is known.
//!
//! Without a log, or where it has a gap, the process is an orphan if its session or process group is led by a
//! process of the job, if that parent has adopted another process of the job before, or if it is an ancestor
//! of the job's processes that has started none of them itself. Undecided, and taken for a new process, is
//! then the first orphan of the job with a session of its own whose parent has also started processes of the
//! job.

use std::collections::{BTreeMap, BTreeSet};

use super::forks::Forks;

/// Bound of the processes that are followed from a process to its ancestors in the log of forks.
const GENERATIONS_MAX: usize = 1024;

/// Process to which the kernel gives orphans.
const INIT: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) parent: u32,
    /// Time of start, in ticks since boot.
    pub(super) started: u64,
    pub(super) leaders: [u32; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Opening {
    /// Ticks since boot before and after it.
    pub(super) ticks: (u64, u64),
    /// Number of the newest process or thread after it.
    pub(super) last_pid: u32,
}

impl Opening {
    /// True if a process started later. Within a tick the numbers decide, which increase.
    fn precedes(&self, pid: u32, started: u64) -> bool {
        let (before, after) = self.ticks;
        started > after || started >= before && pid > self.last_pid
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counted {
    /// Events of its own, opened then.
    Own(Opening),
    /// Inherited events of this process.
    Inherited(u32),
    /// Inherited events of an ancestor that is not known any more.
    Orphan,
    No,
}

#[derive(Debug, Clone, Copy)]
struct Member {
    counted: Counted,
    parent: u32,
    /// Leaders of its session and process group that are processes of the job, ended ones included.
    leaders: [Option<u32>; 2],
}

/// Bound of the processes outside of the job that are remembered. Nothing is known of further ones.
const OUTSIDERS_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Families {
    known: BTreeMap<u32, Member>,
    /// Processes outside of the job that started processes of it.
    launchers: BTreeSet<u32>,
    ancestors: BTreeSet<u32>,
    /// Processes outside of the job that have adopted orphans of it.
    adopters: BTreeSet<u32>,
    /// Processes with events of their own, ended ones included, whose descendants may live.
    roots: BTreeMap<u32, Opening>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FamilyChanges {
    /// Processes that need events of their own, parents first.
    pub(super) open: Vec<u32>,
    /// Processes whose events count nothing any more.
    pub(super) close: Vec<u32>,
}

impl Families {
    /// True if a process is known, so that it need not be read.
    pub(super) fn knows(&self, pid: u32) -> bool {
        self.known.contains_key(&pid)
    }

    pub(super) fn knows_launcher(&self, pid: u32) -> bool {
        self.launchers.contains(&pid)
    }

    /// Records that a process outside of the job, with these ancestors, started one of it.
    pub(super) fn launched_by(&mut self, launcher: u32, ancestors: impl IntoIterator<Item = u32>) {
        if launcher != INIT && self.launchers.len() < OUTSIDERS_MAX {
            self.launchers.insert(launcher);
            let room = OUTSIDERS_MAX.saturating_sub(self.ancestors.len());
            self.ancestors.extend(ancestors.into_iter().take(room));
        }
    }

    /// Known processes whose parents were of the job and have ended, so that others have adopted them.
    pub(super) fn orphans(&self, all: &BTreeSet<u32>) -> Vec<u32> {
        let orphans = self.known.iter().filter(|(pid, member)| {
            all.contains(pid) && self.known.contains_key(&member.parent) && !all.contains(&member.parent)
        });
        orphans.map(|(pid, _)| *pid).collect()
    }

    /// Records the parent that has adopted a process. `all` are the processes of the job.
    pub(super) fn adopted(&mut self, pid: u32, parent: u32, all: &BTreeSet<u32>) {
        if let Some(member) = self.known.get_mut(&pid) {
            let is_outside = !all.contains(&parent) && parent != member.parent;
            member.parent = parent;
            if is_outside && self.adopters.len() < OUTSIDERS_MAX {
                self.adopters.insert(parent);
            }
        }
    }

    /// Takes the numbers of all processes, the lines of those that are not known, and the log of forks.
    pub(super) fn update(
        &mut self,
        all: &BTreeSet<u32>,
        new: &BTreeMap<u32, Listed>,
        forks: &Forks,
    ) -> FamilyChanges {
        let mut changes = FamilyChanges::default();
        // Parents precede their children.
        let mut in_order: Vec<(u64, u32, &Listed)> =
            new.iter().map(|(pid, listed)| (listed.started, *pid, listed)).collect();
        in_order.sort_unstable_by_key(|(started, pid, _)| (*started, *pid));
        for (_, pid, listed) in in_order {
            let leaders = listed.leaders.map(|leader| self.is_leader(leader).then_some(leader));
            let logged = self.inherited_by_log(pid, listed, forks);
            let counted = logged.unwrap_or_else(|| self.inherited(pid, listed, leaders));
            let member = Member { counted: counted.unwrap_or(Counted::No), parent: listed.parent, leaders };
            self.known.insert(pid, member);
            if counted.is_none() {
                changes.open.push(pid);
            }
        }
        self.known.retain(|pid, _| all.contains(pid));
        let has_orphans = self.known.values().any(|member| member.counted == Counted::Orphan);
        let alive = self.known.iter().filter_map(|(pid, member)| match member.counted {
            Counted::Own(_) => Some(*pid),
            Counted::Inherited(root) => Some(root),
            Counted::Orphan | Counted::No => None,
        });
        let alive: BTreeSet<u32> = alive.collect();
        if !has_orphans {
            changes.close = self.roots.keys().filter(|root| !alive.contains(root)).copied().collect();
            self.roots.retain(|root, _| alive.contains(root));
        }
        changes
    }

    /// True for the leader of a session or process group that is, or was, a process of the job.
    fn is_leader(&self, pid: u32) -> bool {
        pid > INIT
            && (self.known.contains_key(&pid)
                || self.known.values().any(|member| member.leaders.contains(&Some(pid))))
    }

    /// How a new process is counted by inheritance, if at all, according to the log of forks; the outer
    /// `None` if the log does not tell.
    fn inherited_by_log(&self, pid: u32, listed: &Listed, forks: &Forks) -> Option<Option<Counted>> {
        let (mut child, mut started) = (pid, listed.started);
        for _ in 0..GENERATIONS_MAX {
            let Some(fork) = forks.of(child, started) else {
                // What a complete log does not have is older than all events.
                return (child != pid && forks.is_complete()).then_some(None);
            };
            let known = self.known.get(&fork.parent).map(|member| member.counted);
            match known.or_else(|| self.roots.get(&fork.parent).copied().map(Counted::Own)) {
                Some(Counted::Own(opening)) => {
                    // The record of a fork is a little later than the fork.
                    let ticks = if child == pid { listed.started } else { fork.ticks };
                    let is_inherited = opening.precedes(child, ticks);
                    return Some(is_inherited.then_some(Counted::Inherited(fork.parent)));
                }
                Some(Counted::Inherited(root)) => return Some(Some(Counted::Inherited(root))),
                Some(Counted::Orphan) => return Some(Some(Counted::Orphan)),
                Some(Counted::No) => return Some(None),
                // It has ended, or is outside of the job. The next one started it, at whatever time.
                None => (child, started) = (fork.parent, 0),
            }
        }
        None
    }

    /// How a new process is counted by inheritance, if at all.
    fn inherited(&self, pid: u32, listed: &Listed, leaders: [Option<u32>; 2]) -> Option<Counted> {
        let Listed { parent, started, .. } = *listed;
        match self.known.get(&parent).map(|member| member.counted) {
            Some(Counted::Own(opening)) => {
                opening.precedes(pid, started).then_some(Counted::Inherited(parent))
            }
            Some(Counted::Inherited(root)) => Some(Counted::Inherited(root)),
            Some(Counted::Orphan) => Some(Counted::Orphan),
            Some(Counted::No) => None,
            // Its parent has ended. It was counted if anything of the job was.
            None if self.is_orphan(pid, parent, leaders) => {
                let mut openings = self.roots.values();
                openings.any(|opening| opening.precedes(pid, started)).then_some(Counted::Orphan)
            }
            // A process outside of the job put it there.
            None => None,
        }
    }

    /// True if a process with a parent outside of the job is an orphan of the job.
    fn is_orphan(&self, pid: u32, parent: u32, leaders: [Option<u32>; 2]) -> bool {
        let is_of_job = leaders.into_iter().flatten().any(|leader| leader != pid);
        let is_above = self.ancestors.contains(&parent) && !self.launchers.contains(&parent);
        parent == INIT || is_of_job || is_above || self.adopters.contains(&parent)
    }

    pub(super) fn opened(&mut self, pid: u32, opening: Opening) {
        if let Some(member) = self.known.get_mut(&pid) {
            member.counted = Counted::Own(opening);
            self.roots.insert(pid, opening);
        }
    }

    /// Forgets a process whose events could not be opened now, so that the next listing tries again.
    pub(super) fn forget(&mut self, pid: u32) {
        self.known.remove(&pid);
    }
}

#[cfg(test)]
mod tests;
