//! The names and tables of a process, and the sums over its threads.

use std::sync::Arc;

use crate::clock::Clock;
use crate::limits::{OTHER, REGIONS};
use crate::slot::{Counts, Slot};

/// The number of a region in the process.
pub(crate) type RegionId = usize;

/// The region in which names beyond the limit are counted.
pub(crate) const OTHER_ID: RegionId = 0;

/// The counts of one thread, by region.
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

/// The sums of a region over threads, in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) counts: Counts,
    /// The time of the thread with the most.
    pub(crate) longest: u64,
    /// The number of threads that have entered it.
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

/// The names and tables of a process.
#[derive(Debug)]
pub(crate) struct Registry {
    names: Vec<&'static [u8]>,
    threads: Vec<Arc<ThreadCounts>>,
    /// The sums over the threads that have ended, by region.
    ended: Vec<Sums>,
    ended_unmatched: u64,
}

impl Registry {
    pub(crate) fn new() -> Self {
        Self {
            names: vec![OTHER.as_bytes()],
            threads: Vec::new(),
            ended: vec![Sums::default(); REGIONS + 1],
            ended_unmatched: 0,
        }
    }

    /// Returns the number of the region with a name, which begins with its first entry.
    pub(crate) fn region(&mut self, name: &[u8]) -> (RegionId, &'static [u8]) {
        if let Some(id) = self.names.iter().position(|known| *known == name) {
            return (id, self.names.get(id).copied().unwrap_or_default());
        }
        // Names are as many as the limit says, and last as long as the process.
        let kept: &'static [u8] = Box::leak(Box::from(name));
        if self.names.len() > REGIONS {
            return (OTHER_ID, kept);
        }
        self.names.push(kept);
        (self.names.len() - 1, kept)
    }

    /// Adds the table of a thread that begins to count.
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

    /// Returns the sums of each region that was entered, with its name. A region that a thread changes all
    /// the time may lack that thread's counts.
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

    /// Returns the number of ends without a beginning.
    pub(crate) fn unmatched(&self) -> u64 {
        let count = |thread: &Arc<ThreadCounts>| thread.unmatched.read(|| 0).unwrap_or_default().entries;
        self.threads.iter().map(count).fold(self.ended_unmatched, u64::saturating_add)
    }
}
