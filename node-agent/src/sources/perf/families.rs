//! The families of a job's processes: which of them are counted already because an event of an ancestor was inherited. Pure.
//!
//! A perf event of a process counts all that it starts from then on. Another event for one of these would count it twice.

use std::collections::{BTreeMap, BTreeSet};

/// The process to which the kernel gives orphans.
const INIT: u32 = 1;

/// A process as it is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) parent: u32,
    /// The time at which it started, in ticks since boot.
    pub(super) started: u64,
}

/// The time at which the events of a process were opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Opening {
    /// The ticks since boot before and after it.
    pub(super) ticks: (u64, u64),
    /// The number of the newest process or thread after it.
    pub(super) last_pid: u32,
}

impl Opening {
    /// Returns true if a process started later. Within a tick the numbers decide, which increase.
    fn precedes(&self, pid: u32, started: u64) -> bool {
        let (before, after) = self.ticks;
        started > after || started >= before && pid > self.last_pid
    }
}

/// The way in which a process is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counted {
    /// Events of its own, opened then.
    Own(Opening),
    /// Inherited events of this process.
    Inherited(u32),
    /// Inherited events of an ancestor that is not known any more.
    Orphan,
    /// No events.
    No,
}

/// The processes of a job that are known.
#[derive(Debug, Default)]
pub(super) struct Families {
    known: BTreeMap<u32, Counted>,
    /// The processes with events of their own, ended ones included, whose descendants may live.
    roots: BTreeMap<u32, Opening>,
}

/// The changes since the last listing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FamilyChanges {
    /// The processes that need events of their own, parents first.
    pub(super) open: Vec<u32>,
    /// The processes whose events count nothing any more.
    pub(super) close: Vec<u32>,
}

impl Families {
    /// Returns true if a process is known, so that it need not be read.
    pub(super) fn knows(&self, pid: u32) -> bool {
        self.known.contains_key(&pid)
    }

    /// Takes the numbers of all processes, and the lines of those that are not known.
    pub(super) fn update(&mut self, all: &BTreeSet<u32>, new: &BTreeMap<u32, Listed>) -> FamilyChanges {
        let mut changes = FamilyChanges::default();
        // Parents precede their children.
        let mut in_order: Vec<(u64, u32, u32)> =
            new.iter().map(|(pid, listed)| (listed.started, *pid, listed.parent)).collect();
        in_order.sort_unstable();
        for (started, pid, parent) in in_order {
            let counted = self.inherited(parent, pid, started);
            self.known.insert(pid, counted.unwrap_or(Counted::No));
            if counted.is_none() {
                changes.open.push(pid);
            }
        }
        self.known.retain(|pid, _| all.contains(pid));
        let has_orphans = self.known.values().any(|counted| *counted == Counted::Orphan);
        let of_root = |(pid, counted): (&u32, &Counted)| match counted {
            Counted::Own(_) => Some(*pid),
            Counted::Inherited(root) => Some(*root),
            Counted::Orphan | Counted::No => None,
        };
        let alive: BTreeSet<u32> = self.known.iter().filter_map(of_root).collect();
        if !has_orphans {
            changes.close = self.roots.keys().filter(|root| !alive.contains(root)).copied().collect();
            self.roots.retain(|root, _| alive.contains(root));
        }
        changes
    }

    /// Returns the way in which a new process is counted by inheritance; none if it is not.
    fn inherited(&self, parent: u32, pid: u32, started: u64) -> Option<Counted> {
        match self.known.get(&parent) {
            Some(Counted::Own(opening)) => {
                opening.precedes(pid, started).then_some(Counted::Inherited(parent))
            }
            Some(Counted::Inherited(root)) => Some(Counted::Inherited(*root)),
            Some(Counted::Orphan) => Some(Counted::Orphan),
            Some(Counted::No) => None,
            // Its parent has ended. It was counted if anything of the job was.
            None if parent == INIT => {
                let mut openings = self.roots.values();
                openings.any(|opening| opening.precedes(pid, started)).then_some(Counted::Orphan)
            }
            // A process outside of the job put it there.
            None => None,
        }
    }

    /// Records that a process has events of its own.
    pub(super) fn opened(&mut self, pid: u32, opening: Opening) {
        self.known.insert(pid, Counted::Own(opening));
        self.roots.insert(pid, opening);
    }

    /// Forgets a process whose events could not be opened now, so that the next listing tries again.
    pub(super) fn forget(&mut self, pid: u32) {
        self.known.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_100: Opening = Opening { ticks: (100, 101), last_pid: 500 };

    fn update(families: &mut Families, all: &[(u32, u32, u64)]) -> FamilyChanges {
        let pids = all.iter().map(|(pid, ..)| *pid).collect();
        let new = all.iter().filter(|(pid, ..)| !families.knows(*pid));
        let new = new.map(|(pid, parent, started)| (*pid, Listed { parent: *parent, started: *started }));
        let new = new.collect();
        families.update(&pids, &new)
    }

    fn open(pids: &[u32]) -> FamilyChanges {
        FamilyChanges { open: pids.to_vec(), close: Vec::new() }
    }

    #[test]
    fn descendants_are_counted_once() {
        let mut families = Families::default();
        // 400 and its child 450 exist; 10 is outside of the job.
        let listed = [(400, 10, 90), (450, 400, 95)];
        assert_eq!(update(&mut families, &listed), open(&[400, 450]));
        families.opened(400, AT_100);
        families.opened(450, AT_100);
        // A child from before the opening, in the tick of it, and from after it in the same tick and later.
        let children = [(499, 400, 99), (500, 450, 100), (501, 450, 100), (502, 400, 101), (503, 502, 150)];
        assert_eq!(update(&mut families, &[&listed[..], &children].concat()), open(&[499, 500]));
    }

    #[test]
    fn a_process_from_outside_has_events_of_its_own() {
        let mut families = Families::default();
        assert_eq!(update(&mut families, &[(400, 10, 90)]), open(&[400]));
        families.opened(400, AT_100);
        assert_eq!(update(&mut families, &[(400, 10, 90), (600, 10, 200)]), open(&[600]));
        // There was no room for it: its children have no events either.
        assert_eq!(update(&mut families, &[(400, 10, 90), (600, 10, 200), (601, 600, 210)]), open(&[601]));
        families.forget(600);
        assert_eq!(update(&mut families, &[(400, 10, 90), (600, 10, 200)]), open(&[600]), "tried again");
    }

    #[test]
    fn events_stay_open_while_a_descendant_lives() {
        let mut families = Families::default();
        update(&mut families, &[(400, 10, 90)]);
        families.opened(400, AT_100);
        assert_eq!(update(&mut families, &[(400, 10, 90), (501, 400, 120)]), open(&[]));
        assert_eq!(update(&mut families, &[(501, 400, 120)]), open(&[]), "its child lives");
        let nothing = FamilyChanges { open: Vec::new(), close: vec![400] };
        assert_eq!(update(&mut families, &[]), nothing);
        assert_eq!(update(&mut families, &[]), open(&[]), "once");
    }

    #[test]
    fn orphans_are_counted_if_anything_was() {
        let mut families = Families::default();
        assert_eq!(update(&mut families, &[(300, 1, 50)]), open(&[300]), "nothing was counted yet");
        families.opened(300, AT_100);
        assert_eq!(update(&mut families, &[(300, 1, 50), (501, 1, 130)]), open(&[]));
        assert_eq!(update(&mut families, &[(501, 1, 130)]), open(&[]), "the events of 300 may count it");
        assert_eq!(update(&mut families, &[]), FamilyChanges { open: Vec::new(), close: vec![300] });
    }
}
