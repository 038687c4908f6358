//! A log of forks: which process has started which. Source: perf_event_open(2), `PERF_RECORD_FORK`. Pure.

use std::collections::{BTreeMap, VecDeque};

use crate::sources::process_files::TICK_NS;

/// Bound of the forks that are kept. A process is looked up soon after its fork.
const FORKS_MAX: usize = 16 * 1024;

const LOST: u32 = 2;
const FORK: u32 = 7;
const LOST_SAMPLES: u32 = 13;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fork {
    pub(super) parent: u32,
    /// Time, in ticks since boot.
    pub(super) ticks: u64,
}

#[derive(Debug, Default)]
pub(super) struct Forks {
    by_pid: BTreeMap<u32, Fork>,
    /// Processes in the order in which they were added.
    order: VecDeque<(u32, Fork)>,
    added: usize,
    /// True if no fork is missing since the log began.
    is_complete: bool,
}

impl Forks {
    pub(super) fn begin() -> Self {
        Self { is_complete: true, ..Self::default() }
    }

    /// True if all forks since the beginning of the log could be looked up. Without a log it is false.
    pub(super) const fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(super) const fn begin_look(&mut self) {
        self.added = 0;
    }

    /// Takes a record: its type, and the bytes behind its header.
    pub(super) fn take(&mut self, kind: u32, body: &[u8]) {
        match kind {
            FORK => {
                if let Some((pid, fork)) = fork(body) {
                    self.add(pid, fork);
                }
            }
            // The buffer was full.
            LOST | LOST_SAMPLES => self.is_complete = false,
            _ => {}
        }
    }

    /// Adds the start of a process. CPUs are looked at one after the other, and a number may be assigned
    /// again.
    pub(super) fn add(&mut self, pid: u32, fork: Fork) {
        if self.by_pid.get(&pid).is_some_and(|known| known.ticks > fork.ticks) {
            return;
        }
        self.added += 1;
        self.by_pid.insert(pid, fork);
        self.order.push_back((pid, fork));
        if self.order.len() > FORKS_MAX
            && let Some((oldest, fork)) = self.order.pop_front()
        {
            if self.by_pid.get(&oldest) == Some(&fork) {
                self.by_pid.remove(&oldest);
            }
            // It was not looked up in between.
            self.is_complete &= self.added <= FORKS_MAX;
        }
    }

    /// Start of a process that started at `started`, in ticks since boot, or later.
    pub(super) fn of(&self, pid: u32, started: u64) -> Option<Fork> {
        self.by_pid.get(&pid).copied().filter(|fork| fork.ticks >= started)
    }
}

/// Parses the record of a fork; `None` for a thread.
fn fork(body: &[u8]) -> Option<(u32, Fork)> {
    let (numbers, rest) = body.split_first_chunk::<16>()?;
    let [pid, parent, ..] = numbers.as_chunks::<4>().0 else { return None };
    let (pid, parent) = (u32::from_ne_bytes(*pid), u32::from_ne_bytes(*parent));
    let ticks = u64::from_ne_bytes(*rest.first_chunk()?) / TICK_NS;
    (pid != parent).then_some((pid, Fork { parent, ticks }))
}

/// Any records, each with a byte for its type and one for its length before it.
pub(in crate::sources) fn check(data: &[u8]) {
    let (mut forks, mut rest) = (Forks::begin(), data);
    let mut is_lost = false;
    while let Some(([kind, length], behind)) = rest.split_first_chunk() {
        let (body, next) = behind.split_at(usize::from(*length).min(behind.len()));
        rest = next;
        forks.take(u32::from(*kind), body);
        is_lost |= [LOST, LOST_SAMPLES].contains(&u32::from(*kind));
        if let Some((pid, fork)) = fork(body).filter(|_| u32::from(*kind) == FORK) {
            assert!(forks.of(pid, fork.ticks).is_some_and(|known| known.ticks >= fork.ticks));
        }
    }
    assert!(forks.by_pid.len() <= forks.order.len() && forks.order.len() <= FORKS_MAX);
    assert!(forks.is_complete() != is_lost || forks.added > FORKS_MAX);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(pid: u32, parent: u32, time_ns: u64) -> Vec<u8> {
        let numbers = [pid, parent, pid, parent].into_iter().flat_map(u32::to_ne_bytes);
        numbers.chain(time_ns.to_ne_bytes()).collect()
    }

    #[test]
    fn records_state_who_started_a_process() {
        let mut forks = Forks::begin();
        forks.take(FORK, &record(501, 400, 1_000_000_000));
        let fork = Fork { parent: 400, ticks: 100 };
        assert_eq!((forks.of(501, 100), forks.of(501, 101), forks.of(502, 0)), (Some(fork), None, None));
        // A thread, an exit, and records that are cut off.
        forks.take(FORK, &record(400, 400, 1));
        forks.take(4, &record(501, 400, 2_000_000_000));
        (0..24).for_each(|length| forks.take(FORK, &record(600, 400, 1)[..length]));
        assert_eq!((forks.of(501, 0), forks.by_pid.len()), (Some(fork), 1));
        // The number is assigned again; the record of the first one comes late.
        forks.take(FORK, &record(501, 7, 3_000_000_000));
        forks.take(FORK, &record(501, 400, 1_000_000_000));
        assert_eq!(forks.of(501, 0), Some(Fork { parent: 7, ticks: 300 }));
    }

    #[test]
    fn a_log_with_gaps_is_not_complete() {
        assert!(!Forks::default().is_complete());
        let mut forks = Forks::begin();
        forks.take(LOST, &[0; 16]);
        assert!(!forks.is_complete());
        let mut forks = Forks::begin();
        let max = u32::try_from(FORKS_MAX).unwrap();
        add(&mut forks, 0..max);
        forks.begin_look();
        add(&mut forks, max..2 * max);
        assert!(forks.is_complete(), "those that are gone could be looked up");
        assert_eq!((forks.of(0, 0), forks.of(max, 0).is_some()), (None, true));
        assert_eq!((forks.by_pid.len(), forks.order.len()), (FORKS_MAX, FORKS_MAX));
        add(&mut forks, 2 * max..2 * max + 1);
        assert!(!forks.is_complete());
    }

    fn add(forks: &mut Forks, pids: std::ops::Range<u32>) {
        pids.for_each(|pid| forks.add(pid, Fork { parent: 1, ticks: pid.into() }));
    }
}
