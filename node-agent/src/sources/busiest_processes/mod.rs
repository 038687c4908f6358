//! Chooses, from time to time, the processes of a job that have series of their own.

mod selection;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use super::lock::lock;
use super::process_files::StatLine;
use super::process_list::ProcessList;
use selection::Candidate;
pub(super) use selection::{ProcessId, Selection};

pub(super) const CHOOSE_EVERY_NS: u64 = 10_000_000_000;

/// Times of the choices after the very first one: many jobs are shorter than `CHOOSE_EVERY_NS`, and none of
/// their processes has used any CPU time when they begin.
const EARLY_CHOICES_NS: [u64; 3] = [1_000_000_000, 2_000_000_000, 5_000_000_000];

/// Bound of the processes to choose among: each takes some 10 microseconds of the supervisor. If a job has
/// more, they take turns.
const CANDIDATES_MAX: usize = 512;

#[derive(Debug, Default)]
pub struct BusiestProcesses(Mutex<Choice>);

#[derive(Debug, Default)]
pub(super) struct Choice {
    processes: Option<ProcessList>,
    selection: Selection,
    /// How often a process was added.
    version: u64,
    begun_ns: Option<u64>,
    next_ns: u64,
    /// Process at which the next choice among too many begins.
    turn: u32,
}

impl BusiestProcesses {
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut Choice) -> R) -> R {
        act(&mut lock(&self.0))
    }
}

impl Choice {
    /// Takes the list of the job's processes. That of a tree stays: it has processes that a new one would not
    /// find.
    pub(super) fn begin(&mut self, processes: ProcessList) {
        if self.processes.is_none() || matches!(processes, ProcessList::Cgroup(_)) {
            self.processes = Some(processes);
        }
    }

    pub(super) const fn selection(&self) -> &Selection {
        &self.selection
    }

    /// How often a process was added.
    pub(super) const fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn choose(&mut self, proc: &Path, limit: usize, now_ns: u64) {
        if now_ns < self.next_ns {
            return;
        }
        let begun_ns = *self.begun_ns.get_or_insert(now_ns);
        let early = EARLY_CHOICES_NS.iter().map(|after_ns| begun_ns.saturating_add(*after_ns));
        self.next_ns = early
            .chain([now_ns.saturating_add(CHOOSE_EVERY_NS)])
            .find(|at_ns| *at_ns > now_ns)
            .unwrap_or(now_ns);
        let Some(pids) = self.processes.as_mut().and_then(|processes| processes.list(proc)) else { return };
        let turn = self.turn;
        let in_turn = pids.range(turn..).chain(pids.range(..turn)).take(CANDIDATES_MAX).copied();
        let chosen = self.selection.chosen().map(|(id, _)| id.pid);
        let read: Vec<u32> = chosen.chain(in_turn).collect();
        self.turn = read.last().map_or(0, |last| last.saturating_add(1));
        let mut found = BTreeMap::new();
        for pid in read.into_iter().filter(|pid| pids.contains(pid)) {
            if let Some(stat) = StatLine::read(&proc.join(pid.to_string())) {
                found.insert(ProcessId { pid, started: stat.started() }, Candidate::of(&stat));
            }
        }
        self.version += u64::from(self.selection.update(&found, limit));
    }
}
