//! The names and tables of a process, and the sums over its threads.

use std::sync::Arc;

use crate::clock::Clock;
use crate::limits::{GIVEN_NAMES, OTHER, REGIONS};
use crate::message::printable;
use crate::slot::{Counts, Slot};

pub(crate) type RegionId = usize;

/// Counts names beyond the limit.
pub(crate) const OTHER_ID: RegionId = 0;

/// Grouped by region.
#[derive(Debug)]
pub(crate) struct ThreadCounts {
    slots: Box<[Slot]>,
    /// Ends without a beginning.
    pub(crate) unmatched: Slot,
}

impl ThreadCounts {
    pub(crate) fn new() -> Self {
        let slots = std::iter::repeat_with(Slot::default).take(REGIONS + 1).collect();
        Self { slots, unmatched: Slot::default() }
    }

    #[inline]
    pub(crate) fn slot(&self, region: RegionId) -> Option<&Slot> {
        self.slots.get(region)
    }
}

/// Sums over threads, in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) counts: Counts,
    /// Time of the thread with the most.
    pub(crate) longest: u64,
    pub(crate) threads: u64,
}

impl Sums {
    fn add(&mut self, counts: Counts) {
        self.counts.entries = self.counts.entries.saturating_add(counts.entries);
        self.counts.time = self.counts.time.saturating_add(counts.time);
        self.counts.own = self.counts.own.saturating_add(counts.own);
        self.longest = self.longest.max(counts.time);
        self.threads = self.threads.saturating_add(u64::from(counts.entries > 0));
    }
}

#[derive(Debug)]
pub(crate) struct Registry {
    /// Names as they are sent.
    names: Vec<&'static [u8]>,
    /// Names that programs use: those that are sent alike are one region.
    given: Vec<(&'static [u8], RegionId)>,
    threads: Vec<Arc<ThreadCounts>>,
    /// Grouped by region.
    ended: Vec<Sums>,
    ended_unmatched: u64,
}

impl Registry {
    pub(crate) fn new() -> Self {
        Self {
            names: vec![OTHER.as_bytes()],
            given: Vec::new(),
            threads: Vec::new(),
            ended: vec![Sums::default(); REGIONS + 1],
            ended_unmatched: 0,
        }
    }

    /// Number of the region with a name, which begins with its first entry.
    pub(crate) fn region(&mut self, name: &[u8]) -> (RegionId, &'static [u8]) {
        if let Some((known, id)) = self.given.iter().find(|(known, _)| *known == name) {
            return (*id, known);
        }
        // Names are as many as the limits say, and last as long as the process.
        let kept: &'static [u8] = Box::leak(Box::from(name));
        let id = self.region_sent_as(printable(name).into_bytes());
        if self.given.len() < GIVEN_NAMES {
            self.given.push((kept, id));
        }
        (id, kept)
    }

    fn region_sent_as(&mut self, name: Vec<u8>) -> RegionId {
        if let Some(id) = self.names.iter().position(|known| *known == name) {
            return id;
        }
        if self.names.len() > REGIONS {
            return OTHER_ID;
        }
        self.names.push(Box::leak(name.into_boxed_slice()));
        self.names.len() - 1
    }

    pub(crate) fn add_thread(&mut self) -> Arc<ThreadCounts> {
        let counts = Arc::new(ThreadCounts::new());
        self.threads.push(Arc::clone(&counts));
        counts
    }

    /// Adds the counts of a thread that ends to those of the threads that have ended.
    pub(crate) fn remove_thread(&mut self, counts: &Arc<ThreadCounts>, clock: Clock) {
        self.threads.retain(|known| !Arc::ptr_eq(known, counts));
        for (region, sums) in self.ended.iter_mut().enumerate() {
            let counts = counts.slot(region).and_then(|slot| slot.read(|| clock.ticks()));
            sums.add(counts.unwrap_or_default());
        }
        let unmatched = counts.unmatched.read(|| 0).unwrap_or_default();
        self.ended_unmatched = self.ended_unmatched.saturating_add(unmatched.entries);
    }

    /// Sums of each region that was entered, with its name. A region that a thread changes all the time may
    /// lack that thread's counts.
    pub(crate) fn sums(&self, clock: Clock) -> Vec<(&'static [u8], Sums)> {
        let mut all = Vec::new();
        for (region, (name, ended)) in self.names.iter().zip(&self.ended).enumerate() {
            let mut sums = *ended;
            for thread in &self.threads {
                let counts = thread.slot(region).and_then(|slot| slot.read(|| clock.ticks()));
                sums.add(counts.unwrap_or_default());
            }
            if sums.counts.entries > 0 {
                all.push((*name, sums));
            }
        }
        all
    }

    pub(crate) fn unmatched(&self) -> u64 {
        self.threads
            .iter()
            .map(|thread| thread.unmatched.read(|| 0).unwrap_or_default().entries)
            .fold(self.ended_unmatched, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_sent_alike_are_one_region() {
        let mut registry = Registry::new();
        let mut id = |name: &[u8]| {
            let (id, known) = registry.region(name);
            assert_eq!(known, name, "the table of a thread finds it again");
            id
        };
        let ids = [b"a\nb".as_slice(), b"a\tb", b"a?b", b"a\xffb", b"a b", b"(other)"].map(&mut id);
        assert_eq!(ids, [1, 1, 1, 1, 2, OTHER_ID]);
        assert_eq!(id(b"a\tb"), 1);
        let others = (0..1000).map(|number: u32| id(format!("r{number}\n").as_bytes()));
        assert_eq!(others.filter(|id| *id == OTHER_ID).count(), 1000 - (REGIONS - 2));
        assert_eq!(registry.names.len(), REGIONS + 1);
        assert_eq!(registry.names[1], b"a?b");
    }
}
