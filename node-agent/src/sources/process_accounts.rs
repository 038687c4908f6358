//! Resources that a set of processes has used together: a sum that does not decrease when processes end.
//! Pure.
//!
//! The kernel adds the use of a process to its parent's account when the parent waits for it
//! (`wait_task_zombie`, kernel/exit.c): CPU time and faults to separate fields such as `cutime`, and I/O to
//! the parent's own. It does not if the parent ignores its children, has ended before, or is not in the set.
//! Therefore the use of an ended process is kept here, less the growth of its parent's account.

use std::collections::BTreeMap;

/// Bound of the generations of a family that end between two readings. The use of further ones stays with
/// this process.
const GENERATIONS: usize = 64;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Amounts {
    pub(super) user_ns: u64,
    pub(super) system_ns: u64,
    pub(super) minor_faults: u64,
    pub(super) major_faults: u64,
    pub(super) io: IoAmounts,
}

/// Counts of proc_pid_io(5).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct IoAmounts {
    pub(super) read_bytes: u64,
    pub(super) write_bytes: u64,
    pub(super) cancelled_bytes: u64,
    pub(super) read_call_bytes: u64,
    pub(super) write_call_bytes: u64,
    pub(super) read_calls: u64,
    pub(super) write_calls: u64,
}

impl Amounts {
    pub(super) fn add(&mut self, other: &Self) {
        *self = self.combined(other, u64::saturating_add);
    }

    fn raise_to(&mut self, other: &Self) {
        *self = self.combined(other, u64::max);
    }

    pub(super) fn less(&self, other: &Self) -> Self {
        self.combined(other, u64::saturating_sub)
    }

    fn combined(&self, other: &Self, with: fn(u64, u64) -> u64) -> Self {
        Self {
            user_ns: with(self.user_ns, other.user_ns),
            system_ns: with(self.system_ns, other.system_ns),
            minor_faults: with(self.minor_faults, other.minor_faults),
            major_faults: with(self.major_faults, other.major_faults),
            io: self.io.combined(&other.io, with),
        }
    }
}

impl IoAmounts {
    pub(super) fn combined(&self, other: &Self, with: fn(u64, u64) -> u64) -> Self {
        Self {
            read_bytes: with(self.read_bytes, other.read_bytes),
            write_bytes: with(self.write_bytes, other.write_bytes),
            cancelled_bytes: with(self.cancelled_bytes, other.cancelled_bytes),
            read_call_bytes: with(self.read_call_bytes, other.read_call_bytes),
            write_call_bytes: with(self.write_call_bytes, other.write_call_bytes),
            read_calls: with(self.read_calls, other.read_calls),
            write_calls: with(self.write_calls, other.write_calls),
        }
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) parent: u32,
    /// Time of start: its number may be assigned to another process later.
    pub(super) started: u64,
    /// Use of the process and of the children that it has waited for.
    pub(super) total: Amounts,
    /// Part of `total` to which the kernel adds the use of children when the process waits for them.
    pub(super) waited: Amounts,
}

/// A process, with its account of children before any child was seen.
#[derive(Debug, Clone, Copy)]
struct Known {
    process: Process,
    base: Amounts,
}

#[derive(Debug, Default)]
pub(super) struct Accounts {
    known: BTreeMap<u32, Known>,
    ended: Amounts,
}

impl Accounts {
    pub(super) fn processes(&self) -> impl Iterator<Item = (u32, &Process)> {
        self.known.iter().map(|(pid, known)| (*pid, &known.process))
    }

    pub(super) fn process(&self, pid: u32) -> Option<&Process> {
        self.known.get(&pid).map(|known| &known.process)
    }

    /// Takes a reading of all processes, parents before their children. Returns what all have used so far.
    /// `reread` reads a process once more when a child of it has ended: only then its account is complete.
    pub(super) fn update(
        &mut self,
        found: BTreeMap<u32, Process>,
        mut reread: impl FnMut(u32) -> Option<Process>,
    ) -> Amounts {
        let is_there = |pid: u32, known: &Known| {
            found.get(&pid).is_some_and(|process| process.started == known.process.started)
        };
        let mut owed: BTreeMap<u32, Amounts> = BTreeMap::new();
        for (pid, known) in self.known.iter().filter(|(pid, known)| !is_there(**pid, known)) {
            match heir(&self.known, *pid, is_there) {
                Some(heir) => owed.entry(heir).or_default().add(&known.process.total),
                None => self.ended.add(&known.process.total),
            }
        }
        let before = std::mem::take(&mut self.known);
        let base = |process: Process| Known { process, base: process.waited };
        self.known = found.into_iter().map(|(pid, process)| (pid, base(process))).collect();
        for (pid, owed) in owed {
            let former = before.get(&pid).map(|known| known.base).unwrap_or_default();
            let Some(known) = self.known.get_mut(&pid) else { continue };
            if let Some(process) = reread(pid).filter(|process| process.started == known.process.started) {
                // The account of a process that cannot be read any more stays unchanged.
                known.process.total.raise_to(&process.total);
                known.process.waited.raise_to(&process.waited);
            }
            self.ended.add(&owed.less(&known.process.waited.less(&former)));
        }
        let mut sum = self.ended;
        self.known.values().for_each(|known| sum.add(&known.process.total));
        sum
    }
}

/// Nearest ancestor that still runs, which may have waited for the process.
fn heir(known: &BTreeMap<u32, Known>, pid: u32, is_there: impl Fn(u32, &Known) -> bool) -> Option<u32> {
    let parent = |pid: &u32| known.get(pid).map(|known| known.process.parent);
    let ancestors = std::iter::successors(parent(&pid), parent).take(GENERATIONS);
    ancestors
        .map_while(|pid| known.get(&pid).map(|known| (pid, known)))
        .find_map(|(pid, known)| is_there(pid, known).then_some(pid))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Processes with the accounts that the kernel keeps: CPU time apart, and I/O.
    #[derive(Debug, Default, Clone)]
    struct Family {
        alive: BTreeMap<u32, Process>,
        used: u64,
        next: u32,
    }

    const fn cpu_and_io(amounts: &Amounts) -> [u64; 2] {
        [amounts.user_ns, amounts.io.write_calls]
    }

    fn used(cpu: u64, io: u64) -> Amounts {
        let io = IoAmounts { write_calls: io, ..IoAmounts::default() };
        Amounts { user_ns: cpu, io, ..Amounts::default() }
    }

    impl Family {
        fn fork(&mut self, parent: u32) {
            self.next += 1;
            let process = Process { parent, started: self.next.into(), ..Process::default() };
            self.alive.insert(self.next, process);
        }

        fn nth(&self, number: usize) -> Option<u32> {
            self.alive.keys().nth(number.checked_rem(self.alive.len())?).copied()
        }

        fn work(&mut self, number: usize, amount: u64) {
            let Some(process) = self.nth(number).and_then(|pid| self.alive.get_mut(&pid)) else { return };
            self.used += amount;
            process.total.add(&used(amount, amount));
            process.waited.add(&used(0, amount));
        }

        fn exit(&mut self, number: usize, is_waited_for: bool) {
            let Some(pid) = self.nth(number) else { return };
            let process = self.alive.remove(&pid).unwrap();
            if let Some(parent) = self.alive.get_mut(&process.parent).filter(|_| is_waited_for) {
                parent.total.add(&process.total);
                parent.waited.add(&process.total);
            }
            // Orphans are adopted by a process outside of the family.
            self.alive.values_mut().filter(|child| child.parent == pid).for_each(|child| child.parent = 1);
        }
    }

    #[test]
    fn children_count_once() {
        for is_waited_for in [true, false] {
            let mut family = Family { next: 9, ..Family::default() };
            family.fork(1);
            family.fork(10);
            family.work(1, 500);
            let mut accounts = Accounts::default();
            for _ in 0..2 {
                let sum = accounts.update(family.alive.clone(), |pid| family.alive.get(&pid).copied());
                assert_eq!(sum, used(500, 500));
            }
            let mut after = family.clone();
            after.exit(1, is_waited_for);
            after.work(0, 7);
            let sum = accounts.update(after.alive.clone(), |pid| after.alive.get(&pid).copied());
            // The parent's own I/O cannot be distinguished from that of a child that it waited for.
            assert_eq!(sum, used(507, if is_waited_for { 507 } else { 500 }), "waited for: {is_waited_for}");
        }
    }

    #[test]
    fn children_that_are_waited_for_during_a_reading_count_once() {
        let mut family = Family { next: 9, ..Family::default() };
        family.fork(1);
        family.fork(10);
        family.work(1, 500);
        let mut accounts = Accounts::default();
        accounts.update(family.alive.clone(), |_| None);
        // The parent is read, then waits for its child, which is therefore not found.
        let mut found = family.alive.clone();
        found.remove(&11);
        family.exit(1, true);
        for _ in 0..2 {
            let sum = accounts.update(found.clone(), |pid| family.alive.get(&pid).copied());
            assert_eq!(sum, used(500, 500));
            found = family.alive.clone();
        }
    }

    #[test]
    fn a_reused_number_is_another_process() {
        let process =
            |started, cpu| Process { parent: 1, started, total: used(cpu, 0), waited: Amounts::default() };
        let mut accounts = Accounts::default();
        assert_eq!(accounts.update([(7, process(1, 90))].into(), |_| None).user_ns, 90);
        assert_eq!(accounts.update([(7, process(2, 5))].into(), |_| None).user_ns, 95);
        assert_eq!(accounts.update(BTreeMap::new(), |_| None).user_ns, 95);
    }

    proptest! {
        #[test]
        fn sums_never_decrease_and_count_once(
            steps in prop::collection::vec((0_u8..6, any::<usize>(), 0..1_000_u64), 1..80)
        ) {
            let mut family = Family { next: 9, ..Family::default() };
            family.fork(1);
            let mut accounts = Accounts::default();
            let mut last = Amounts::default();
            for (kind, number, amount) in steps {
                match kind {
                    0 | 1 => family.work(number, amount),
                    2 => if let Some(parent) = family.nth(number) { family.fork(parent) },
                    3 => family.exit(number, true),
                    4 => family.exit(number, false),
                    _ => {
                        let alive = &family.alive;
                        let sum = accounts.update(alive.clone(), |pid| alive.get(&pid).copied());
                        for (amount, before) in cpu_and_io(&sum).into_iter().zip(cpu_and_io(&last)) {
                            prop_assert!(amount >= before, "{sum:?} after {last:?}");
                            prop_assert!(amount <= family.used, "{sum:?} of {}", family.used);
                        }
                        last = sum;
                    }
                }
            }
        }
    }
}
