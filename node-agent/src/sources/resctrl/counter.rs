//! A counter that begins at 0 with its first reading. Pure.

/// Increase of a counter of the hardware. That of a reused RMID does not begin at 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counter {
    total: u64,
    /// `None` before the first reading of a group.
    last: Option<u64>,
}

impl Counter {
    /// Takes a reading. Returns the increase since the first one. A counter that is lower than before began
    /// anew, as for an L3 domain whose CPUs were offline: it counts from this reading on.
    pub(super) fn read(&mut self, raw: u64) -> u64 {
        let increase = self.last.map_or(0, |last| raw.saturating_sub(last));
        self.total = self.total.saturating_add(increase);
        self.last = Some(raw);
        self.total
    }

    /// Continues with the counter of another group.
    pub(super) const fn begin_anew(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_begins_at_the_first_reading_and_never_decreases() {
        let mut counter = Counter::default();
        assert_eq!([7_000, 7_000, 7_500].map(|raw| counter.read(raw)), [0, 0, 500]);
        assert_eq!([20, 30].map(|raw| counter.read(raw)), [500, 510], "the domain was offline");
        counter.begin_anew();
        assert_eq!([1_000_000, 1_000_001].map(|raw| counter.read(raw)), [510, 511], "another RMID");
        assert_eq!(counter.read(u64::MAX), 510 + (u64::MAX - 1_000_000));
    }

    proptest! {
        #[test]
        fn it_counts_no_more_than_the_increases(raws in prop::collection::vec(any::<u64>(), 1..50)) {
            let mut counter = Counter::default();
            let (mut last, mut sum) = (None, 0_u64);
            for raw in raws {
                sum = sum.saturating_add(last.map_or(0, |last| raw.saturating_sub(last)));
                last = Some(raw);
                prop_assert_eq!(counter.read(raw), sum);
            }
        }
    }
}
