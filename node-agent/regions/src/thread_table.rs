//! The table of one thread: the numbers of names, and the regions that the thread is in.

use std::sync::Arc;

use crate::clock::Clock;
use crate::limits::{DEPTH, THREAD_NAMES};
use crate::registry::{OTHER_ID, RegionId, ThreadCounts};

/// Places for names: half of them stay empty, so that searches are short.
const PLACES: usize = 2 * THREAD_NAMES;

/// Odd, with bits in all places: 2^64 divided by the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// How an end is treated whose region is not the innermost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nesting {
    /// Regions inside it end with it: their ends were forgotten.
    Strict,
    /// Regions inside it go on, as LIKWID allows.
    Overlapping,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    hash: u64,
    name: &'static [u8],
    region: RegionId,
}

#[derive(Debug)]
pub(crate) struct ThreadTable {
    pub(crate) counts: Arc<ThreadCounts>,
    clock: Clock,
    places: Box<[Option<Place>]>,
    names: usize,
    stack: Vec<RegionId>,
    /// Entries beyond the limit of the depth.
    beyond: u64,
}

/// Mixes eight bytes at a time: names are hashed at each entry.
#[inline]
fn hash_of(name: &[u8]) -> u64 {
    let mut hash = name.len() as u64;
    let mut words = name.chunks_exact(8);
    for word in &mut words {
        let word = word.try_into().map_or(0, u64::from_le_bytes);
        hash = (hash ^ word).wrapping_mul(FACTOR);
        hash ^= hash >> 32;
    }
    for byte in words.remainder() {
        hash = (hash << 8) ^ (hash >> 56) ^ u64::from(*byte);
    }
    let hash = hash.wrapping_mul(FACTOR);
    hash ^ (hash >> 32)
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the remainder is less than the number of places")]
const fn first_place(hash: u64) -> usize {
    (hash % PLACES as u64) as usize
}

impl ThreadTable {
    pub(crate) fn new(counts: Arc<ThreadCounts>, clock: Clock) -> Self {
        Self {
            counts,
            clock,
            places: vec![None; PLACES].into_boxed_slice(),
            names: 0,
            stack: Vec::with_capacity(DEPTH),
            beyond: 0,
        }
    }

    /// Region with a name, for which `register` is asked at its first entry.
    #[inline]
    pub(crate) fn region(
        &mut self,
        name: &[u8],
        register: impl FnOnce(&[u8]) -> (RegionId, &'static [u8]),
    ) -> RegionId {
        let hash = hash_of(name);
        let mut index = first_place(hash);
        while let Some(Some(place)) = self.places.get(index) {
            if place.hash == hash && place.name == name {
                return place.region;
            }
            index = (index + 1) % PLACES;
        }
        self.learn(name, hash, index, register)
    }

    #[cold]
    fn learn(
        &mut self,
        name: &[u8],
        hash: u64,
        index: usize,
        register: impl FnOnce(&[u8]) -> (RegionId, &'static [u8]),
    ) -> RegionId {
        if self.names >= THREAD_NAMES {
            return OTHER_ID;
        }
        let (region, name) = register(name);
        if let Some(place) = self.places.get_mut(index) {
            *place = Some(Place { hash, name, region });
            self.names += 1;
        }
        region
    }

    #[inline]
    pub(crate) fn begin(&mut self, region: RegionId) {
        if self.stack.len() >= DEPTH {
            self.beyond += 1;
            return;
        }
        let now = self.clock.ticks();
        if let Some(slot) = self.stack.last().and_then(|above| self.counts.slot(*above)) {
            slot.pause(now);
        }
        self.stack.push(region);
        if let Some(slot) = self.counts.slot(region) {
            slot.enter(now);
        }
    }

    /// Leaves a region. The end of a region that the thread is not in is counted.
    #[inline]
    pub(crate) fn end(&mut self, region: RegionId, nesting: Nesting) {
        if self.beyond > 0 {
            self.beyond -= 1;
            return;
        }
        let now = self.clock.ticks();
        if self.stack.last() == Some(&region) {
            self.leave_innermost(now);
            return;
        }
        let Some(position) = self.stack.iter().rposition(|entered| *entered == region) else {
            self.counts.unmatched.enter(now);
            return;
        };
        match nesting {
            Nesting::Strict => {
                while self.stack.len() > position {
                    self.leave_innermost(now);
                }
            }
            Nesting::Overlapping => {
                self.stack.remove(position);
                // The innermost may be another entry of the same region, which goes on.
                if let Some(slot) = self.counts.slot(region) {
                    slot.leave(now, false);
                }
            }
        }
    }

    /// Leaves the innermost region. Without one the end is counted.
    #[inline]
    pub(crate) fn end_innermost(&mut self) {
        match self.stack.last() {
            Some(region) => self.end(*region, Nesting::Strict),
            None => self.counts.unmatched.enter(0),
        }
    }

    #[inline]
    fn leave_innermost(&mut self, now: u64) {
        let Some(region) = self.stack.pop() else { return };
        if let Some(slot) = self.counts.slot(region) {
            slot.leave(now, true);
        }
        if let Some(slot) = self.stack.last().and_then(|above| self.counts.slot(*above)) {
            slot.resume(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::REGIONS;
    use crate::registry::Registry;
    use crate::slot::Counts;

    struct Thread {
        registry: Registry,
        table: ThreadTable,
        clock: Clock,
    }

    impl Thread {
        fn new() -> Self {
            let (mut registry, clock) = (Registry::new(), Clock::new());
            let table = ThreadTable::new(registry.add_thread(), clock);
            Self { registry, table, clock }
        }

        fn id(&mut self, name: &str) -> RegionId {
            let registry = &mut self.registry;
            self.table.region(name.as_bytes(), |name| registry.region(name))
        }

        fn begin(&mut self, name: &str) {
            let id = self.id(name);
            self.table.begin(id);
        }

        fn end(&mut self, name: &str, nesting: Nesting) {
            let id = self.id(name);
            self.table.end(id, nesting);
        }

        fn counts(&self, name: &str) -> Counts {
            let sums = self.registry.sums(self.clock);
            let found = sums.iter().find(|(known, _)| *known == name.as_bytes());
            found.map(|(_, sums)| sums.counts).unwrap_or_default()
        }
    }

    #[test]
    fn self_times_add_up_to_the_time_of_the_outermost_region() {
        let mut thread = Thread::new();
        thread.begin("main");
        for _ in 0..1000 {
            thread.begin("outer");
            thread.begin("inner");
            thread.begin("outer");
            thread.end("outer", Nesting::Strict);
            thread.end("inner", Nesting::Strict);
            thread.end("outer", Nesting::Strict);
        }
        thread.end("main", Nesting::Strict);
        let [main, outer, inner] = ["main", "outer", "inner"].map(|name| thread.counts(name));
        assert_eq!((main.entries, outer.entries, inner.entries), (1, 2000, 1000));
        assert_eq!(main.own + outer.own + inner.own, main.time);
        assert!(inner.time <= outer.time && outer.time <= main.time, "{outer:?} {inner:?}");
        assert_eq!(thread.registry.unmatched(), 0);
    }

    #[test]
    fn ends_without_a_beginning_are_counted() {
        let mut thread = Thread::new();
        thread.end("a", Nesting::Strict);
        thread.table.end_innermost();
        thread.begin("a");
        thread.begin("forgotten");
        thread.end("a", Nesting::Strict);
        thread.end("forgotten", Nesting::Strict);
        assert_eq!(thread.registry.unmatched(), 3);
        let [forgotten, again] = [(), ()].map(|()| thread.counts("forgotten"));
        assert_eq!((forgotten.entries, forgotten), (1, again), "it has ended");
    }

    #[test]
    fn overlapping_regions_keep_their_times() {
        let mut thread = Thread::new();
        thread.begin("a");
        thread.begin("b");
        thread.end("a", Nesting::Overlapping);
        let a = thread.counts("a");
        thread.end("b", Nesting::Overlapping);
        assert_eq!((thread.counts("a"), thread.registry.unmatched()), (a, 0));
        assert!(thread.counts("b").own > 0);
        assert_eq!(thread.counts("b").own, thread.counts("b").time);
    }

    #[test]
    fn names_and_depth_are_bounded() {
        let mut thread = Thread::new();
        for number in 0..1000 {
            let name = format!("region {number}");
            thread.begin(&name);
            thread.end(&name, Nesting::Strict);
        }
        assert_eq!(thread.registry.sums(thread.clock).len(), REGIONS + 1);
        assert_eq!(thread.counts("(other)").entries, 1000 - REGIONS as u64);
        for _ in 0..1000 {
            thread.begin("region 1");
        }
        for _ in 0..1000 {
            thread.end("region 1", Nesting::Strict);
        }
        assert_eq!(thread.counts("region 1").entries, 1 + DEPTH as u64);
        assert_eq!(thread.registry.unmatched(), 0);
    }

    #[test]
    fn the_counts_of_ended_threads_stay() {
        let mut thread = Thread::new();
        thread.begin("a");
        thread.end("a", Nesting::Strict);
        let before = thread.registry.sums(thread.clock);
        let counts = Arc::clone(&thread.table.counts);
        thread.registry.remove_thread(&counts, thread.clock);
        assert_eq!(thread.registry.sums(thread.clock), before);
    }
}
