//! Choice of the processes of a job that have series of their own. Pure.
//!
//! The number of series is bounded, also over the lifetime of a job that starts 100,000 processes: a process
//! is chosen only after it has used a second of CPU time, keeps its place while it runs, and gives it up only
//! to one that has used twice as much.

use std::collections::BTreeMap;

use polymeter_proto::series::{InvalidIdentifier, Labels};
use polymeter_proto::text::escape;

use crate::sources::process_files::StatLine;

/// Processes that may be chosen over a job's lifetime, as a multiple of those at a time.
const LIFETIME: usize = 4;

/// CPU time from which on a process may be chosen.
const CPU_MIN_NS: u64 = 1_000_000_000;

/// Factor by which a process must exceed another one to take its place.
const EXCESS: u64 = 2;

/// A process: its number belongs to others later, its time of start does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::sources) struct ProcessId {
    pub(in crate::sources) pid: u32,
    /// Time of its start in ticks since the boot.
    pub(in crate::sources) started: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) name: Vec<u8>,
    pub(super) cpu_ns: u64,
}

impl Candidate {
    pub(super) fn of(stat: &StatLine) -> Self {
        Self { name: stat.name.clone(), cpu_ns: stat.cpu_ns() }
    }
}

#[derive(Debug, Default)]
pub(in crate::sources) struct Selection {
    chosen: BTreeMap<ProcessId, Labels>,
    so_far: usize,
}

impl Selection {
    pub(in crate::sources) fn chosen(&self) -> impl Iterator<Item = (ProcessId, &Labels)> {
        self.chosen.iter().map(|(id, labels)| (*id, labels))
    }

    /// Chooses up to `limit` of all running processes. Returns true if one was added.
    pub(super) fn update(&mut self, found: &BTreeMap<ProcessId, Candidate>, limit: usize) -> bool {
        self.chosen.retain(|id, _| found.contains_key(id));
        let mut others: Vec<(&ProcessId, &Candidate)> = found
            .iter()
            .filter(|(id, candidate)| candidate.cpu_ns >= CPU_MIN_NS && !self.chosen.contains_key(id))
            .collect();
        others.sort_by_key(|(_, candidate)| std::cmp::Reverse(candidate.cpu_ns));
        let mut is_any = false;
        for (id, candidate) in others {
            if self.so_far >= limit.saturating_mul(LIFETIME) || !self.make_room(found, candidate, limit) {
                break;
            }
            if let Ok(labels) = labels(*id, &candidate.name) {
                self.chosen.insert(*id, labels);
                self.so_far += 1;
                is_any = true;
            }
        }
        is_any
    }

    /// Makes room for a process, if it may take the place of another one.
    fn make_room(
        &mut self,
        found: &BTreeMap<ProcessId, Candidate>,
        candidate: &Candidate,
        limit: usize,
    ) -> bool {
        if self.chosen.len() < limit {
            return true;
        }
        let cpu_ns = |id: &ProcessId| found.get(id).map_or(0, |found| found.cpu_ns);
        let least = self.chosen.keys().map(|id| (cpu_ns(id), *id)).min();
        match least {
            Some((least_ns, id)) if candidate.cpu_ns >= least_ns.saturating_mul(EXCESS) => {
                self.chosen.remove(&id).is_some()
            }
            Some(_) | None => false,
        }
    }
}

/// Labels of the series of a process. Its name may have any bytes.
fn labels(id: ProcessId, name: &[u8]) -> Result<Labels, InvalidIdentifier> {
    let name = if name.is_empty() { "_".to_owned() } else { escape(name) };
    let label = |key: &str, value: String| (key.to_owned(), value);
    Labels::new(vec![
        label("comm", name),
        label("pid", id.pid.to_string()),
        label("started", id.started.to_string()),
    ])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn id(pid: u32) -> ProcessId {
        ProcessId { pid, started: 7 }
    }

    fn found(seconds: &[(u32, u64)]) -> BTreeMap<ProcessId, Candidate> {
        let found = seconds.iter().map(|(pid, cpu)| {
            let candidate = Candidate { name: b"a".to_vec(), cpu_ns: cpu * SECOND };
            (id(*pid), candidate)
        });
        found.collect()
    }

    fn pids(selection: &Selection) -> Vec<u32> {
        selection.chosen().map(|(id, _)| id.pid).collect()
    }

    #[test]
    fn the_busiest_are_chosen_and_keep_their_places() {
        let mut selection = Selection::default();
        assert!(!selection.update(&found(&[(1, 0), (2, 0)]), 2), "none has used a second");
        assert!(selection.update(&found(&[(1, 5), (2, 3), (3, 4), (4, 0)]), 2));
        assert_eq!(pids(&selection), [1, 3]);
        assert!(!selection.update(&found(&[(1, 6), (2, 9), (3, 5)]), 2), "not twice as much");
        assert!(selection.update(&found(&[(1, 7), (2, 10), (3, 5)]), 2));
        assert_eq!(pids(&selection), [1, 2]);
        assert!(!selection.update(&found(&[(2, 10)]), 2), "one has ended");
        assert!(selection.update(&found(&[(2, 10), (3, 6)]), 2));
        assert_eq!(pids(&selection), [2, 3]);
    }

    #[test]
    fn a_reused_number_is_another_series() {
        let mut selection = Selection::default();
        selection.update(&found(&[(1, 5)]), 2);
        let before: Vec<Labels> = selection.chosen().map(|(_, labels)| labels.clone()).collect();
        let later = ProcessId { pid: 1, started: 8 };
        let candidate = Candidate { name: b"a".to_vec(), cpu_ns: 3 * SECOND };
        assert!(selection.update(&[(later, candidate)].into(), 2));
        let after: Vec<Labels> = selection.chosen().map(|(_, labels)| labels.clone()).collect();
        assert_eq!(before[0].to_string(), "comm=a,pid=1,started=7");
        assert_eq!(after[0].to_string(), "comm=a,pid=1,started=8");
    }

    #[test]
    fn a_hundred_thousand_processes_make_few_series() {
        let mut selection = Selection::default();
        let mut added = 0;
        for pid in 0..100_000 {
            added += usize::from(selection.update(&found(&[(pid, 2)]), 5));
        }
        assert_eq!(added, 5 * LIFETIME);
        assert!(selection.chosen().count() <= 5);
        assert!(!Selection::default().update(&found(&[(1, 5)]), 0), "none are wanted");
    }

    proptest! {
        #[test]
        fn any_name_has_labels(name in prop::collection::vec(any::<u8>(), 0..40)) {
            let labels = labels(id(1), &name).unwrap();
            prop_assert_eq!(labels.get("pid"), Some("1"));
            let shown = if name.is_empty() { "_".to_owned() } else { escape(&name) };
            prop_assert_eq!(labels.get("comm"), Some(shown.as_str()));
        }
    }
}
