//! Sums over a job's processes: the only data of an ordinary user without a cgroup, and the I/O of a job
//! whose cgroups do not count it.
//!
//! The use of a process between its last reading and its end becomes known when its parent waits for it; the
//! I/O of an ended process that no parent waits for is not accessible to an ordinary user.

mod members;

use std::path::{Path, PathBuf};

use polymeter_proto::catalogue::Definition;
use rustix::io::Errno;

use super::custom_source::CustomSource;
use super::kind::metrics_of;
use super::outcome::Outcome;
use super::process_accounts::Accounts;
use super::process_files::{Compute, FIELDS, IO_FIELDS, read_process};
use super::reading::Reading;
use super::slot::Slot;
use members::Members;

/// Sums over the process tree of a job without a cgroup.
pub(super) const TREE_KIND: &str = "processes";

/// Sums over the processes of a job's cgroup what its files do not count here.
pub(super) const CGROUP_KIND: &str = "cgroup_processes";

/// Sums over the processes of a job's cgroup what no file of a cgroup counts.
pub(super) const IO_KIND: &str = "process_io";

#[derive(Debug)]
pub(super) struct ProcessSumSource {
    proc: PathBuf,
    members: Members,
    slots: Vec<Slot>,
    /// Computes the value of each slot, and whether it needs I/O.
    compute: Vec<(Compute, bool)>,
    accounts: Accounts,
    /// True once the I/O of a process was read. It stays false if the agent lacks the right to it.
    has_io: bool,
    has_any: bool,
}

impl ProcessSumSource {
    pub(super) fn of_tree(proc: &Path, root: u32) -> Self {
        Self::new(proc, Members::of_tree(root), TREE_KIND)
    }

    /// Sums over the processes in a cgroup and below it, below `proc`, for a kind of the fast lane.
    pub(super) fn of_cgroup(proc: &Path, cgroup: &Path) -> Self {
        Self::new(proc, Members::in_turn(cgroup), CGROUP_KIND)
    }

    /// Sums the I/O of the processes in a cgroup and below it, and reads all of them each time.
    pub(super) fn of_all_in_cgroup(proc: &Path, cgroup: &Path) -> Self {
        Self::new(proc, Members::all_of(cgroup), IO_KIND)
    }

    /// Has all metrics of its kind, wanted now or not: opened anew for more, it would lose the use of ended
    /// processes.
    fn new(proc: &Path, members: Members, kind: &str) -> Self {
        let of_slots = metrics_of(kind).filter_map(|metric| {
            let name = metric.field_of(kind)?;
            let (_, compute) = FIELDS.iter().find(|(field, _)| *field == name)?;
            Some((Slot::unlabelled(Definition::of(metric)), (*compute, IO_FIELDS.contains(&name))))
        });
        let (slots, compute) = of_slots.unzip();
        Self {
            proc: proc.to_owned(),
            members,
            slots,
            compute,
            accounts: Accounts::default(),
            has_io: false,
            has_any: false,
        }
    }

    /// Reads all processes. It allocates, which costs less than opening two files of each process.
    fn read_all(&mut self, reading: &mut Reading) -> Outcome {
        reading.clear();
        let Some(found) = self.members.read(&self.proc, &self.accounts) else { return Outcome::Gone };
        let levels = found.levels;
        self.has_any |= levels.processes > 0;
        let proc = &self.proc;
        let reread = |pid| Some(read_process(proc, pid, None)?.0);
        let sums = self.accounts.update(found.processes, reread);
        if matches!(self.members, Members::Tree(_)) && levels.processes == 0 {
            let has_known = self.accounts.processes().next().is_some();
            return if has_known { Outcome::Retry(Errno::AGAIN) } else { Outcome::Gone };
        }
        if !self.has_any && !found.is_empty {
            // None of its processes could be read: nothing is known.
            return Outcome::Read;
        }
        self.has_io |= levels.io > 0;
        let knows_io = self.has_io || levels.no_io == 0;
        for (slot, (compute, needs_io)) in (0..).zip(&self.compute) {
            if knows_io || !needs_io {
                reading.set(slot, compute(&sums, &levels));
            }
        }
        Outcome::Read
    }
}

impl CustomSource for ProcessSumSource {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        self.read_all(reading)
    }

    fn is_lasting(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
